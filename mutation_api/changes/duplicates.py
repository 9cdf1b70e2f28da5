"""Several source rows that act on one row: either an error before anything is written, or reduced to one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mutation_api.errors import DuplicateKeyError

__all__ = [
    "DUPLICATES_SHOWN_DEFAULT",
    "DuplicatedKey",
    "FirstBy",
    "duplicate_key_error",
    "first_by",
]

DUPLICATES_SHOWN_DEFAULT = 5
ROWS_SHOWN = 3
"""Number of source rows that a message shows for one key."""


@dataclass(frozen=True)
class FirstBy:
    """If several source rows would act on one row, only the first in this order does."""

    columns: tuple[Any, ...]


def first_by(*columns: Any) -> FirstBy:
    """Order source rows that act on the same row: ``first_by(col("source.updated").desc())``.

    Rows equal in all columns are ordered by a hash of their content, which is the same in each run.
    """
    if not columns:
        raise ValueError("first_by needs at least one column to order by")
    return FirstBy(columns)


@dataclass(frozen=True)
class DuplicatedKey:
    """A key of several source rows: JSON text of the key, their number, and JSON texts of some of them."""

    key: str
    row_count: int
    rows: Sequence[str]


def duplicate_key_error(
    table_name: str, key_count: int, samples: Sequence[DuplicatedKey]
) -> DuplicateKeyError:
    """The error that names some of the keys.

    Args:
        table_name: ``database.table``.
        key_count: number of such keys in all.
        samples: some of them.
    """
    shown = "; ".join(_described(row) for row in samples)
    more = f"; and {key_count - len(samples):,} more" if key_count > len(samples) else ""
    have = "key has" if key_count == 1 else "keys have"
    return DuplicateKeyError(
        f"table {table_name}: {key_count:,} {have} several source rows that would act, so the outcome "
        f"would be random: {shown}{more}. Nothing was written. Keep one source row for each key, or define "
        "which one counts with on_duplicate=first_by(…)"
    )


def _described(found: DuplicatedKey) -> str:
    rows = sorted(found.rows)[:ROWS_SHOWN]
    more = ", …" if found.row_count > len(rows) else ""
    key = ", ".join(f"{name}={value!r}" for name, value in json.loads(found.key).items())
    return f"({key}) in {found.row_count:,} rows: {', '.join(rows)}{more}"
