"""Differences of two states of a table, by rules that hold for every engine.

Rows with equal keys are compared as Spark's ``<=>`` does: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import ConfigurationError, DuplicateKeyError, RecordLayoutError
from mutation_api.format.event import ROW_ID_COLUMN, Mask
from mutation_api.merge.clauses import DUPLICATES_SHOWN_DEFAULT
from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.table.acid_table import AcidTable

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """n pairs of rows, as indices into the source and into the target's rows."""

    source: Indices
    target: Indices


@dataclass(frozen=True)
class SourceKeys:
    """The keys of the source's rows.

    Attributes:
        rows: the key columns in the table's types, with a row per source row.
        lost: mask of source rows with a value that its column cannot contain. They match no row.
        null_safe: True if NULL equals NULL.
    """

    rows: pa.RecordBatch
    lost: Mask
    null_safe: bool

    @cached_property
    def distinct(self) -> pa.Table:
        """The distinct keys that may match; empty if there are no key columns."""
        if not self.rows.num_columns:
            return pa.table({})
        rows = self._filter.keys
        known = rows.filter(pa.array(~self.lost)) if self.lost.any() else rows
        kept = known if self.null_safe else known.drop_null()
        return kept if self.is_unique else kept.group_by(kept.column_names).aggregate([])

    @property
    def is_unique(self) -> bool:
        """True if all source rows that may match have different keys."""
        if self.rows.num_columns == 1 and not self.lost.any():
            (column,) = self.rows.columns
            return self._filter.distinct_count == len(column) - (0 if self.null_safe else column.null_count)
        codes = self._codes[1]
        return len(codes) == 0 or int(np.bincount(codes).max()) == 1

    def pairs(self, target_keys: Sequence[pa.Array]) -> Pairs:
        """Return all pairs of rows with equal keys.

        Args:
            target_keys: n values of each key column, in the order and types of ``rows``.
        """
        positions, codes = self._codes
        order = np.argsort(codes, kind="stable")
        found, wanted = self._filter.encode(target_keys)
        rows_of_key = np.bincount(codes, minlength=int(wanted.max(initial=-1)) + 1)
        first = (np.cumsum(rows_of_key) - rows_of_key)[wanted]
        counts = rows_of_key[wanted]
        target = np.repeat(found, counts)
        ends = np.cumsum(counts)
        within = np.arange(len(target)) - np.repeat(ends - counts, counts)
        return Pairs(positions[order[np.repeat(first, counts) + within]], target)

    @cached_property
    def _filter(self) -> KeyFilter:
        return KeyFilter(pa.Table.from_batches([self.rows]), self.null_safe)

    @cached_property
    def _codes(self) -> tuple[Indices, Indices]:
        """The source rows that may match, and a code for the key of each."""
        positions, codes = self._filter.encode(self.rows.columns)
        if self.lost.any():
            kept = ~self.lost[positions]
            positions, codes = positions[kept], codes[kept]
        return positions, codes


OPERATIONS = ("insert", "update", "delete")
"""The operations of a change set."""

OLD_STATE, NEW_STATE = "the table", "the new state"
"""The names of the two states in messages."""


def checked_key(table: AcidTable, key: Sequence[str], operation_column: str) -> tuple[str, ...]:
    """Return the names of the key columns in lower case.

    Raises:
        ConfigurationError: If there are no keys, a key occurs twice, a key is not a column of the table or is
            a map, or if the table has a column with the name of the operation column.
    """
    wanted = tuple(name.lower() for name in key)
    known = [c.name for c in table.all_columns]
    unknown = [name for name in wanted if name not in known]
    if not wanted or unknown or len(set(wanted)) < len(wanted):
        raise ConfigurationError(
            f"table {table.full_name}: invalid key {list(key)}: name at least one column, and each column "
            f"once. The table's columns are {', '.join(known)}"
        )
    maps = [c.name for c in table.all_columns if c.name in wanted and "map<" in c.type.lower()]
    if maps:
        raise ConfigurationError(f"table {table.full_name}: a map column cannot be a key: {', '.join(maps)}")
    if operation_column.lower() in known:
        raise ConfigurationError(
            f"table {table.full_name} already has a column {operation_column!r}. Choose another name for the "
            "operation column with operation_column"
        )
    return wanted


def check_states(table: AcidTable, old: Sequence[str], new: Sequence[str]) -> None:
    """Check the column names of both states.

    Raises:
        RecordLayoutError: If ``old`` has no ROW__ID, if ``new`` lacks columns of the table, or if ``new`` has
            extra columns other than ROW__ID.
    """
    if ROW_ID_COLUMN not in old:
        raise RecordLayoutError(f"table {table.full_name} is insert-only: its rows have no {ROW_ID_COLUMN}")
    names = [name for name in new if name.lower() != ROW_ID_COLUMN.lower()]
    known = [c.name for c in table.all_columns]
    if sorted(name.lower() for name in names) != sorted(known):
        raise RecordLayoutError(
            f"table {table.full_name}: the columns of the new state differ from the table's: got "
            f"{', '.join(names)}, expected {', '.join(known)}"
        )


def not_unique(
    table: AcidTable, key: Sequence[str], state: str, doubled: Sequence[tuple[str, int]]
) -> DuplicateKeyError:
    """Return the error that shows keys that occur more than once.

    Args:
        table: the table.
        key: names of the key columns.
        state: OLD_STATE or NEW_STATE.
        doubled: JSON strings of such keys with the number of their rows. If there are more keys than the
            message shows, one additional key.
    """
    shown = [f"{text} in {count:,} rows" for text, count in sorted(doubled)[:DUPLICATES_SHOWN_DEFAULT]]
    more = "; …" if len(doubled) > DUPLICATES_SHOWN_DEFAULT else ""
    return DuplicateKeyError(
        f"table {table.full_name}: the key {', '.join(key)} is not unique in {state}: {'; '.join(shown)}"
        f"{more}. Choose a unique key, or keep one row per key"
    )
