"""Keys that several source rows have: an error before anything is written, or one of the rows counts."""

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
    "copied_keys_error",
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
    return DuplicateKeyError(
        f"table {table_name}: {_counted(key_count)} several source rows that would act, so the outcome would "
        f"be random: {_shown([_described(each) for each in samples], key_count)}. Nothing was written. Keep "
        "one source row for each key, or define which one counts with on_duplicate=first_by(…)"
    )


def copied_keys_error(
    what: str, table_name: str, key_count: int, samples: Sequence[str]
) -> DuplicateKeyError:
    """The error of a copy of a whole table in which keys have several rows.

    Args:
        what: names the copy.
        table_name: ``database.table`` that it would fill.
        key_count: number of such keys in all.
        samples: JSON texts of some of them.
    """
    return DuplicateKeyError(
        f"{what}: {_counted(key_count)} several rows, as {table_name} stores it: "
        f"{_shown(samples, key_count)}. Nothing was written. If the source has such a key once, give the key "
        "columns types in Hive that keep its values apart"
    )


def _counted(key_count: int) -> str:
    return f"{key_count:,} {'key has' if key_count == 1 else 'keys have'}"


def _shown(samples: Sequence[str], key_count: int) -> str:
    more = f"; and {key_count - len(samples):,} more" if key_count > len(samples) else ""
    return "; ".join(samples) + more


def _described(found: DuplicatedKey) -> str:
    rows = sorted(found.rows)[:ROWS_SHOWN]
    more = ", …" if found.row_count > len(rows) else ""
    key = ", ".join(f"{name}={value!r}" for name, value in json.loads(found.key).items())
    return f"({key}) in {found.row_count:,} rows: {', '.join(rows)}{more}"
