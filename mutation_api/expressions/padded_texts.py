"""Texts with blanks at their end that an Arrow expression compares with char columns.

A char is read without the blanks at its end, so Arrow finds it unequal to every such text, while Hive's
releases differ in what they find. Such a comparison is refused; an answer would be a guess.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import RecordLayoutError
from mutation_api.expressions.parts import Path, expression_text, folded
from mutation_api.types.hive_type import HiveType, parse_hive_type

__all__ = ["char_paths", "check_no_padded_texts"]

_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "is_in", "index_in")
_KEEP_TEXTS = ("cast", "coalesce", "if_else", "utf8_lower", "utf8_upper", "ascii_lower", "ascii_upper")
"""Functions that give one of their texts, or give it in another form, with its blanks."""


@dataclass(frozen=True)
class _Texts:
    """What the text that a part gives may be: that of some char columns, or some padded texts."""

    columns: tuple[Path, ...] = ()
    padded: tuple[str, ...] = ()

    def __add__(self, other: _Texts) -> _Texts:
        return _Texts(self.columns + other.columns, self.padded + other.padded)


def char_paths(types: Mapping[str, str], *above: str) -> frozenset[Path]:
    """The paths of char columns, and of char fields of struct columns.

    Args:
        types: Hive types by column.
        above: what a path begins with, as the side of a merge.
    """
    found = set()
    for name, text in types.items():
        if "char(" in text:
            kind = parse_hive_type(text)
            found |= {(*above, name, *path) for path in _char_fields(kind)}
    return frozenset(found)


def _char_fields(kind: HiveType) -> Iterator[Path]:
    if kind.kind == "char":
        yield ()
    elif kind.kind == "struct":
        for name, child in zip(kind.field_names, kind.children, strict=True):
            yield from ((name, *path) for path in _char_fields(child))


def check_no_padded_texts(expression: pc.Expression, chars: frozenset[Path], what: str) -> None:
    """Refuse an expression that compares a char column with a text that ends with a blank.

    Args:
        expression: names of columns are in lower case.
        chars: see :func:`char_paths`.
        what: the expression's role, for messages.

    Raises:
        RecordLayoutError: it does; the message names column and text.
    """
    if not chars:
        return

    def of_call(name: str, arguments: Sequence[_Texts], values: pa.Array | None) -> _Texts:
        found = sum(arguments, _Texts((), _padded(values)))
        if name not in _COMPARISONS:
            return found if name in _KEEP_TEXTS else _Texts()
        if found.columns and found.padded:
            raise RecordLayoutError(
                f"{what} {expression_text(expression)} compares {'.'.join(found.columns[0])}, a char, with "
                f"{found.padded[0]!r}: a char is read without the blanks at its end, and Hive's releases "
                f"differ in such comparisons; write {found.padded[0].rstrip(' ')!r}"
            )
        return _Texts()

    with contextlib.suppress(pa.ArrowNotImplementedError, pa.ArrowInvalid):  # of unknown columns
        folded(
            expression,
            lambda path: _Texts((path,)) if path in chars else _Texts(),
            lambda value: _Texts((), _padded(value)),
            of_call,
        )


def _padded(values: pa.Array | None) -> tuple[str, ...]:
    if values is None or not _holds_texts(values.type):
        return ()
    return tuple(text for text in values.to_pylist() if text is not None and text.endswith(" "))


def _holds_texts(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _holds_texts(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
