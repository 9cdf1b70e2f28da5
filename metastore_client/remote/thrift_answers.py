"""Checks of requests to a metastore and of its answers, and the threads that make calls.

A request is compared with the generated specification before any part of it is sent. If a field is missing,
generated Python code encodes only half of the request, and the server hangs up on it.

An answer is read field by field. Generated code leaves a missing field at None and accepts any number for an
enum. So each field is read by a method that states its type, and a missing or invalid value becomes one error
that names its path.

Threads make calls on behalf of their caller. Each has its own connection, for which the server also keeps a
thread. Threads without work end after a while, so a client that is idle keeps only its own connection.
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

_E = TypeVar("_E", bound=enum.IntEnum)
_T = TypeVar("_T")
_SHOWN_LETTERS = 120
_ADVICE = (
    "the server, or a proxy in front of it, does not answer as Hive does: see its log, and check that the "
    "address is that of a Hive metastore of a supported release"
)


class Answer:
    """A value of an answer: the answer itself, a field, or an element of a list.

    Each method that returns a value raises InvalidAnswerError if the value is absent or of another type. The
    error names the call, the path to the value, the value found and what was expected.

    Args:
        value: the value as generated code has decoded it.
        name: the name of the field. For the answer itself, the beginning of messages.
        within: the value that contains the field. If None, this is the answer itself.
    """

    __slots__ = ("_name", "_value", "_within")

    def __init__(self, value: Any, name: str, within: Answer | None = None) -> None:
        self._value = value
        self._name = name
        self._within = within

    def __getitem__(self, field: str) -> Answer:
        """Return a field of a structure. The field may be absent, but the structure may not."""
        return Answer(getattr(self.struct(), field), field, self)

    @property
    def is_absent(self) -> bool:
        """True if the server omitted the value."""
        return self._value is None

    def optional(self, read: Callable[[Answer], _T]) -> _T | None:
        """Return a method's result (``answer.optional(Answer.text)``), or None if the value is absent."""
        return None if self._value is None else read(self)

    def struct(self) -> Any:
        """Return a structure as it was decoded. It may be sent back, but must not be read."""
        if self._value is None:
            self.refuse("a structure")
        return self._value

    def text(self) -> str:
        """Return a string, which may be empty."""
        if not isinstance(self._value, str):
            self.refuse("a string")
        return self._value

    def text_or_empty(self) -> str:
        """Return a string, or '' if it is absent."""
        return "" if self._value is None else self.text()

    def octets(self) -> bytes:
        """Return bytes."""
        if not isinstance(self._value, bytes):
            self.refuse("bytes")
        return self._value

    def flag(self) -> bool:
        """Return a boolean."""
        if not isinstance(self._value, bool):
            self.refuse("true or false")
        return self._value

    def real(self) -> float:
        """Return a floating-point number."""
        if not isinstance(self._value, float):
            self.refuse("a floating-point number")
        return self._value

    def number(self) -> int:
        """Return an integer."""
        return self.number_from(None)

    def number_from(self, least: int | None, most: int | None = None) -> int:
        """Return an integer from ``least`` up to ``most``, both included. If None, there is no limit."""
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
        """Return the id of a transaction, of a lock or of a write. These ids begin at 1."""
        return self.number_from(1)

    def member(self, kind: type[_E], among: Collection[_E] | None = None) -> _E:
        """Return the member of an enum with this number. If ``among`` is given, the member must be in it."""
        allowed = kind if among is None else among
        found = next((each for each in allowed if each == self._value), None)
        if found is None or isinstance(self._value, bool):
            self.refuse("one of " + ", ".join(f"{int(each)} ({each.name})" for each in allowed))
        return found

    def elements(self) -> list[Answer]:
        """Return the elements of a list or set."""
        if not isinstance(self._value, list | set):
            self.refuse("a list")
        return [Answer(each, f"[{at}]", self) for at, each in enumerate(self._value)]

    def elements_or_none(self) -> list[Answer]:
        """Return the elements of a list, or no elements if it is absent."""
        return [] if self._value is None else self.elements()

    def texts(self) -> list[str]:
        """Return a list of strings."""
        return [each.text() for each in self.elements()]

    def parameters(self) -> dict[str, str]:
        """Return a map from strings to strings, as a new dict."""
        found = self._value
        if isinstance(found, dict) and all(type(n) is str and type(v) is str for n, v in found.items()):
            return dict(found)
        return {name: each.text() for name, each in self.by_name().items()}

    def by_name(self) -> dict[str, Answer]:
        """Return the values of a map whose keys are strings."""
        if not isinstance(self._value, dict) or not all(isinstance(name, str) for name in self._value):
            self.refuse("a map with string keys")
        return {name: Answer(each, f"[{name!r}]", self) for name, each in self._value.items()}

    def one_of(self, expected: Iterable[str]) -> str:
        """Return a string in lower case. It must be one of the expected strings, in any case."""
        found = self.text().lower()
        asked = list(expected)
        if found not in asked:
            self.refuse(f"a requested name: {', '.join(map(repr, asked[:10]))}{' …' * (len(asked) > 10)}")
        return found

    def refuse(self, expected: str) -> NoReturn:
        """Raise InvalidAnswerError for this value.

        Args:
            expected: what the value should be, such as "a string".
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
"""Time after which a thread without work ends."""

_Work = tuple[Callable[[], Any], "Future[Any]"]


class Helpers:
    """A small pool of threads, which are started when they are needed.

    Args:
        most: maximum number of threads.
        at_end: function that each thread calls before it ends.
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
        """Make a call in a thread as soon as one is free. Until then the future can be cancelled."""
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
        """End the threads and wait for them."""
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
        """Wait for the next task and return it.

        Return None if none arrives for a while or the pool is closed.
        """
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
    """Make a call immediately and return it as a completed future with its result or error."""
    future: Future[Any] = Future()
    _settle(future, call)
    return future


def _settle(future: Future[Any], call: Callable[[], Any]) -> None:
    """Make a call and store its result or error in a future."""
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)


_INTEGER_BITS = {TType.BYTE: 8, TType.I16: 16, TType.I32: 32, TType.I64: 64}


def check_argument(value: Any, where: str) -> None:
    """Raise InvalidRequestError if a required field is missing or a value has a wrong type.

    Generated code would send only half of such a request, and the server would hang up on it.
    """
    spec = getattr(value, "thrift_spec", None)
    if spec is None:
        if value is None:
            raise InvalidRequestError(f"{where}: missing argument")
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
    """Check one value against its Thrift type. ``details`` come from the generated specification."""
    if kind == TType.STRUCT:
        check_argument(value, where)
    elif kind == TType.LIST:
        for item in value:
            _check_field(item, details[0], details[1], where)
    elif kind == TType.MAP:
        for key, item in value.items():
            _check_field(key, details[0], details[1], where)
            _check_field(item, details[2], details[3], where)
    elif kind == TType.STRING:
        expected, name = (bytes, "bytes") if details == "BINARY" else (str, "a string")
        if not isinstance(value, expected):
            raise InvalidRequestError(f"{where} must be {name}, got {value!r}")
    elif kind in _INTEGER_BITS:
        limit = 1 << (_INTEGER_BITS[kind] - 1)
        if not isinstance(value, int) or not -limit <= value < limit:
            raise InvalidRequestError(
                f"{where} must be an integer of {_INTEGER_BITS[kind]} bits, got {value!r}"
            )
