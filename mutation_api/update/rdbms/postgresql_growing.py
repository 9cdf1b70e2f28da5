"""Growing columns of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from mutation_api.update.rdbms.growing_column import (
    BUCKETS,
    NUMBER,
    GrowingColumn,
    matching,
    minus,
    seconds_of,
)

__all__ = ["GROWING", "growing_column"]

_TIME_TEXT = r"[0-9]{4,7}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?( BC)?"


@dataclass(frozen=True)
class _Kind:
    """A type.

    ``regular``: the condition of its finite values. ``text``: a value as text in any session. ``form``: that
    of such a text.
    """

    regular: Callable[[str], str] = lambda value: ""
    lowest: Callable[[str], str] = lambda value: ""
    text: Callable[[str], str] = lambda value: f"({value})::text"
    form: str = NUMBER
    is_time: bool = False


_FLOAT = _Kind(lambda value: f"{value} < 'Infinity'", lambda value: f"{value} = '-Infinity'")
# Before PostgreSQL 14 numeric has NaN and no infinities, and refuses the word.
_NUMERIC = _Kind(
    lambda value: f"{value}::text NOT IN ('NaN', 'Infinity', '-Infinity')",
    lambda value: f"{value}::text = '-Infinity'",
)
_TIME = _Kind(
    lambda value: f"isfinite({value})",
    lambda value: f"{value} = '-infinity'",
    form=_TIME_TEXT,
    is_time=True,
)

GROWING: dict[str, _Kind] = {
    **dict.fromkeys(("int2", "int4", "int8"), _Kind()),
    "numeric": _NUMERIC,
    **dict.fromkeys(("float4", "float8"), _FLOAT),
    **dict.fromkeys(("date", "timestamp"), _TIME),
    "timestamptz": _Kind(
        _TIME.regular,
        _TIME.lowest,
        lambda value: f"({value} AT TIME ZONE 'UTC')::text",
        form=_TIME_TEXT,
        is_time=True,
    ),
}
"""Types of version columns. A text is not one: no overlap can be subtracted from it."""


def growing_column(name: str, kind: str) -> GrowingColumn | None:
    """Return the SQL of a column; None if its type is not one of GROWING."""
    found = GROWING.get(kind)
    if found is None:
        return None
    type_of = "timestamp AT TIME ZONE 'UTC'" if kind == "timestamptz" else kind
    return GrowingColumn(
        name,
        lambda keys, column: f"hashtext(concat_ws('/', {keys}, {found.text(column)})) & {BUCKETS - 1}",
        shown=found.text,
        literal=lambda text: f"('{matching(found.form, text)}'::{type_of})",
        regular=found.regular,
        lowest=found.lowest,
        lowered=_earlier if found.is_time else minus,
    )


def _earlier(literal: str, overlap: Decimal) -> str:
    return f"({literal} - interval '{seconds_of(overlap)} seconds')"
