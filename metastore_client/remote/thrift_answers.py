"""Answers of a metastore: their checks, and the errors that they become.

The answer to a call, read field by field: what it lacks or cannot hold is refused by its path.

Generated code leaves a field that did not come at None, and takes any number for an enum. So nothing of an
answer is used as it came: each field is asked for by what it must be, and a field of a wrong kind or number
becomes one error.

Threads that make calls beside their caller, and end when nothing has been asked of them for a while.

A thread has a connection of its own, for which a server keeps a thread, too. So a client that does nothing
keeps none but its own.

Checks of a Thrift request before any of it is sent.

Generated Python code encodes a request with a missing field half, and the server hangs up on it. So each
request is compared with the generated specification first.
"""

from __future__ import annotations

import enum
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from typing import Any, NoReturn, TypeVar

from thrift.Thrift import TException, TType

from metastore_client.errors import InvalidAnswerError, InvalidRequestError

__all__ = ["Answer", "Helpers", "check_argument", "done"]


_E = TypeVar("_E", bound=enum.IntEnum)
_T = TypeVar("_T")
_SHOWN_LETTERS = 120
_ADVICE = (
    "the server, or a proxy before it, answers otherwise than Hive does: see its log, and whether the "
    "address is that of a Hive metastore of a supported release"
)


class Answer:
    """A value of an answer: the answer itself, a field, or an element of a list.

    Each method that gives a value raises InvalidAnswerError if it is absent or of another kind; it names the
    call, the path to the value, what was found and what is expected.

    Args:
        value: as generated code has decoded it.
        name: of the answer, as messages begin; else of the field.
        within: the value that has the field; None for the answer itself.
    """

    __slots__ = ("_name", "_value", "_within")

    def __init__(self, value: Any, name: str, within: Answer | None = None) -> None:
        self._value = value
        self._name = name
        self._within = within

    def __getitem__(self, field: str) -> Answer:
        """A field of a structure; the field may be absent, the structure may not."""
        return Answer(getattr(self.struct(), field), field, self)

    @property
    def is_absent(self) -> bool:
        """Whether the server left it out."""
        return self._value is None

    def optional(self, read: Callable[[Answer], _T]) -> _T | None:
        """What a method of this class gives (``answer.optional(Answer.text)``), or None if it is absent."""
        return None if self._value is None else read(self)

    def struct(self) -> Any:
        """A structure as it was decoded: to be sent back, never to be read."""
        if self._value is None:
            self.refuse("a structure")
        return self._value

    def text(self) -> str:
        """A text, which may be empty."""
        if not isinstance(self._value, str):
            self.refuse("a text")
        return self._value

    def text_or_empty(self) -> str:
        """A text, '' if it is absent."""
        return "" if self._value is None else self.text()

    def octets(self) -> bytes:
        """Bytes."""
        if not isinstance(self._value, bytes):
            self.refuse("bytes")
        return self._value

    def flag(self) -> bool:
        """A truth."""
        if not isinstance(self._value, bool):
            self.refuse("true or false")
        return self._value

    def real(self) -> float:
        """A floating-point number."""
        if not isinstance(self._value, float):
            self.refuse("a floating-point number")
        return self._value

    def number(self) -> int:
        """An integer."""
        return self.number_from(None)

    def number_from(self, least: int | None, most: int | None = None) -> int:
        """An integer, not below and not above some others."""
        value = self._value
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or (least is not None and value < least)
            or (most is not None and value > most)
        ):
            ends = {"from": least, "up to": most}
            self.refuse(" ".join(["a number", *(f"{word} {n}" for word, n in ends.items() if n is not None)]))
        return value

    def id(self) -> int:
        """The id of a transaction, a lock or a write, which begin at 1."""
        return self.number_from(1)

    def member(self, kind: type[_E], among: Collection[_E] | None = None) -> _E:
        """A member of an enum, by its number; one of some members, if given."""
        allowed = kind if among is None else among
        found = next((each for each in allowed if each == self._value), None)
        if found is None or isinstance(self._value, bool):
            self.refuse("one of " + ", ".join(f"{int(each)} ({each.name})" for each in allowed))
        return found

    def elements(self) -> list[Answer]:
        """The elements of a list or set."""
        if not isinstance(self._value, list | set):
            self.refuse("a list")
        return [Answer(each, f"[{at}]", self) for at, each in enumerate(self._value)]

    def elements_or_none(self) -> list[Answer]:
        """The elements of a list; no elements if it is absent."""
        return [] if self._value is None else self.elements()

    def texts(self) -> list[str]:
        """A list of texts."""
        return [each.text() for each in self.elements()]

    def parameters(self) -> dict[str, str]:
        """A map of texts by texts, as a new one."""
        found = self._value
        if isinstance(found, dict) and all(type(n) is str and type(v) is str for n, v in found.items()):
            return dict(found)
        return {name: each.text() for name, each in self.by_name().items()}

    def by_name(self) -> dict[str, Answer]:
        """The values of a map with texts as keys."""
        if not isinstance(self._value, dict) or not all(isinstance(name, str) for name in self._value):
            self.refuse("a map with texts as keys")
        return {name: Answer(each, f"[{name!r}]", self) for name, each in self._value.items()}

    def one_of(self, expected: Iterable[str]) -> str:
        """A text that is one of those that were asked for, in any case; gives it in lower case."""
        found = self.text().lower()
        asked = list(expected)
        if found not in asked:
            self.refuse(f"what was asked for: {', '.join(map(repr, asked[:10]))}{' …' * (len(asked) > 10)}")
        return found

    def refuse(self, expected: str) -> NoReturn:
        """Raise the error of this value.

        Args:
            expected: what it should be, such as "a text".
        """
        names: list[str] = []
        value: Answer = self
        while value._within is not None:
            names.append(value._name if value._name.startswith("[") else f".{value._name}")
            value = value._within
        path = "".join(reversed(names)).removeprefix(".") or "it"
        found = "is absent" if self._value is None else f"is {_shown(self._value)}"
        raise InvalidAnswerError(f"{value._name}: {path} {found}, expected {expected}; {_ADVICE}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}…"


IDLE_SECONDS = 2.0
"""A thread that waits so long for work ends."""

_Work = tuple[Callable[[], Any], "Future[Any]"]


class Helpers:
    """Some threads, made when they are needed.

    Args:
        most: number of threads.
        at_end: called by each thread before it ends.
    """

    def __init__(self, most: int, at_end: Callable[[], None]) -> None:
        self._most = most
        self._at_end = at_end
        self._changed = threading.Condition()
        self._work: deque[_Work] = deque()
        self._waiting = 0
        self._is_closed = False
        self._threads: set[threading.Thread] = set()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Let a thread make a call, as soon as one is free; until then the future can be cancelled."""
        future: Future[Any] = Future()
        with self._changed:
            self._work.append((call, future))
            if self._waiting >= len(self._work):
                self._changed.notify()
            elif len(self._threads) < self._most:
                thread = threading.Thread(target=self._run, name="metastore-call", daemon=True)
                self._threads.add(thread)
                thread.start()
        return future

    def close(self) -> None:
        """End the threads, and wait for them."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            threads = self._threads - {threading.current_thread()}
        for thread in threads:
            thread.join()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            call, future = work
            if future.set_running_or_notify_cancel():
                _settle(future, call)
        self._at_end()

    def _next(self) -> _Work | None:
        """What to do; None: nothing for a while, or no more."""
        with self._changed:
            while not self._work:
                self._waiting += 1
                is_told = not self._is_closed and self._changed.wait(IDLE_SECONDS)
                self._waiting -= 1
                if not self._work and (self._is_closed or not is_told):
                    self._threads.discard(threading.current_thread())
                    return None
            return self._work.popleft()


def done(call: Callable[[], Any]) -> Future[Any]:
    """A call that has been made, and its result or error."""
    future: Future[Any] = Future()
    _settle(future, call)
    return future


def _settle(future: Future[Any], call: Callable[[], Any]) -> None:
    """Make a call, and give a future its result or error."""
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)


_INTEGER_BITS = {TType.BYTE: 8, TType.I16: 16, TType.I32: 32, TType.I64: 64}


def check_argument(value: Any, where: str) -> None:
    """Refuse a request with a missing required field or a value of a wrong type.

    Generated code sends such a request half, and the server hangs up on it.
    """
    spec = getattr(value, "thrift_spec", None)
    if spec is None:
        if value is None:
            raise InvalidRequestError(f"{where}: an argument is missing")
        return
    try:
        value.validate()
    except TException as error:
        raise InvalidRequestError(f"{where}: {type(value).__name__}: {error}") from error
    for entry in filter(None, spec):
        field = getattr(value, entry[2])
        if field is not None:
            _check_field(field, entry[1], entry[3], f"{where}: {type(value).__name__}.{entry[2]}")


def _check_field(value: Any, kind: int, details: Any, where: str) -> None:
    """Check one value against its Thrift type; ``details`` come from the generated specification."""
    if kind == TType.STRUCT:
        check_argument(value, where)
    elif kind == TType.LIST:
        for item in value:
            _check_field(item, details[0], details[1], where)
    elif kind == TType.MAP:
        for key, item in value.items():
            _check_field(key, details[0], details[1], where)
            _check_field(item, details[2], details[3], where)
    elif kind == TType.STRING and not isinstance(value, str):
        raise InvalidRequestError(f"{where} must be a string, not {value!r}")
    elif kind in _INTEGER_BITS:
        limit = 1 << (_INTEGER_BITS[kind] - 1)
        if not isinstance(value, int) or not -limit <= value < limit:
            raise InvalidRequestError(
                f"{where} must be an integer of {_INTEGER_BITS[kind]} bits, not {value!r}"
            )
