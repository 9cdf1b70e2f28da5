"""The answer to a call, read field by field: what it lacks or cannot hold is refused by its path.

Generated code leaves a field that did not come at None, and takes any number for an enum. So nothing of an
answer is used as it came: each field is asked for by what it must be, and a field of a wrong kind or number
becomes one error.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable
from typing import Any, NoReturn, TypeVar

from metastore_client.errors import InvalidAnswerError

__all__ = ["Answer"]

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
