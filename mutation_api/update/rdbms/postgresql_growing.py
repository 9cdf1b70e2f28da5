"""Growing columns of PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass

from mutation_api.update.rdbms.growing_column import BUCKETS, GrowingColumn, minus

__all__ = ["GROWING", "growing_column"]


@dataclass(frozen=True)
class _Kind:
    """A type. ``regular``: the condition of its finite values. ``text``: a value as text in any session."""

    regular: str = ""
    lowest: str = ""
    text: str = "({0})::text"
    is_time: bool = False


_FLOAT = _Kind("{0} < 'Infinity'", "{0} = '-Infinity'")
# Before PostgreSQL 14 numeric has NaN and no infinities, and refuses the word.
_NUMERIC = _Kind("{0}::text NOT IN ('NaN', 'Infinity', '-Infinity')", "{0}::text = '-Infinity'")
_TIME = _Kind("isfinite({0})", "{0} = '-infinity'", is_time=True)

GROWING: dict[str, _Kind] = {
    **dict.fromkeys(("int2", "int4", "int8"), _Kind()),
    "numeric": _NUMERIC,
    **dict.fromkeys(("float4", "float8"), _FLOAT),
    **dict.fromkeys(("date", "timestamp"), _TIME),
    "timestamptz": _Kind(_TIME.regular, _TIME.lowest, "({0} AT TIME ZONE 'UTC')::text", is_time=True),
}
"""Types of version columns. A text is not one: no overlap can be subtracted from it."""


def growing_column(name: str, kind: str) -> GrowingColumn | None:
    """Return the SQL of a column; None if its type is not one of GROWING."""
    found = GROWING.get(kind)
    if found is None:
        return None
    literal = "'{0}'::timestamp AT TIME ZONE 'UTC'" if kind == "timestamptz" else f"'{{0}}'::{kind}"
    return GrowingColumn(
        name,
        f"hashtext(concat_ws('/', {{1}}, {found.text})) & {BUCKETS - 1}",
        shown=found.text,
        literal=f"({literal})",
        regular=found.regular,
        lowest=found.lowest,
        lowered=_earlier if found.is_time else minus,
    )


def _earlier(literal: str, overlap: str) -> str:
    return f"({literal} - interval '{overlap} seconds')"
