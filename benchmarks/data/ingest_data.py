"""Logs of operations for the benchmark of ingestion: Tungsten's staging files, and what each reduces to.

Every operation may follow the one before it on its key: an insert of an absent one, an update or a delete of
a present one. All of it follows from the number of rows, so every contestant and every run has the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.data.merge_data import with_values

SERVICE, DATABASE, SOURCE_TABLE = "bench", "shop", "orders"
CSV_COLUMNS = (
    "op string, seqno bigint, row_no bigint, committed string, pk bigint, "
    "id bigint, acct bigint, name string, amount double, quantity int"
)
"""A record of the staging files, as a schema for Spark's CSV reader."""

OPERATIONS_EACH_FILE = 100_000
NEW_SHARE = 1 / 3
"""Keys of a log that the table does not have at first."""
DELETE_SHARE = 0.2
"""Of the operations on keys that are there."""

_SEED = 20_170_607
_COMMITTED = "2017-06-07 09:22:28.000"
_VALUES = ("acct", "name", "amount", "quantity")

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class OperationLogs:
    """One log a round, each on keys that no other round touches.

    Attributes:
        rows: of the table at first.
        operations: of a log; an update is one, of two records.
        keys: of a log; about as many are met.
        rounds: how many logs there are.
        folder: where they are written.
    """

    rows: int
    operations: int
    keys: int
    rounds: int
    folder: Path

    def staging_files(self, number: int) -> list[Path]:
        """The files of a round, in order."""
        return sorted((self.folder / f"staging-{number}").glob("*.csv"), key=_first)

    def reduced(self, number: int) -> Path:
        """Parquet file with the last operation of each key, those that change nothing left out."""
        return self.folder / f"reduced-{number}.parquet"

    def write(self) -> None:
        """Write all files.

        Raises ValueError if the rounds together would touch more rows than the table has.
        """
        new = round(self.keys * NEW_SHARE)
        old = self.keys - new
        if old * self.rounds > self.rows:
            raise ValueError(f"{self.rounds} rounds on {old:,} old keys need more than {self.rows:,} rows")
        rng = np.random.default_rng([_SEED, self.rows, self.operations])
        known = rng.choice(self.rows, old * self.rounds, replace=False).astype(np.int64)
        for number in range(self.rounds):
            first = self.rows + number * new
            fresh = np.arange(first, first + new, dtype=np.int64)
            numbers = np.concatenate([known[number * old : (number + 1) * old], fresh])
            self._write_log(number, numbers, old, rng)

    def _write_log(self, number: int, numbers: Integers, old: int, rng: np.random.Generator) -> None:
        picked = rng.integers(0, self.keys, self.operations)
        rank = _ranks(picked)
        deletes = rng.random(self.operations) < DELETE_SHARE
        was_there = np.arange(self.keys) < old
        before, after = _replayed(picked, rank, was_there, deletes)
        values = with_values(numbers[picked], rng)
        folder = self.folder / f"staging-{number}"
        folder.mkdir(parents=True)
        start = 1 + number * self.operations
        for first in range(0, self.operations, OPERATIONS_EACH_FILE):
            part = slice(first, min(first + OPERATIONS_EACH_FILE, self.operations))
            seqnos = start + np.arange(part.start, part.stop)
            text = _records(values.slice(first, part.stop - first), seqnos, before[part], after[part])
            (folder / f"{SOURCE_TABLE}-{start + first}.csv").write_bytes(text)
        is_last = np.zeros(self.operations, np.bool_)
        is_last[_last_places(picked, self.keys)] = True
        changed = is_last & (after | was_there[picked])
        operations = pa.array(np.where(after, "U", "D")[changed])
        reduced = values.filter(pa.array(changed)).add_column(0, "op", operations)
        pq.write_table(reduced, self.reduced(number))


def _first(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _ranks(picked: Integers) -> Integers:
    """For each operation, the number of earlier ones on its key."""
    order = np.argsort(picked, kind="stable")
    sorted_keys = picked[order]
    starts = np.flatnonzero(np.diff(sorted_keys, prepend=-1))
    ranks = np.empty(len(picked), np.int64)
    ranks[order] = np.arange(len(picked)) - np.repeat(starts, np.diff(starts, append=len(picked)))
    return ranks


def _replayed(
    picked: Integers, rank: Integers, was_there: Booleans, deletes: Booleans
) -> tuple[Booleans, Booleans]:
    """Whether the key of each operation exists before it, and after it."""
    there = was_there.copy()
    before, after = np.zeros(len(picked), np.bool_), np.zeros(len(picked), np.bool_)
    for each in range(int(rank.max()) + 1):
        indices = np.flatnonzero(rank == each)
        keys = picked[indices]
        before[indices] = there[keys]
        there[keys] = after[indices] = ~(before[indices] & deletes[indices])
    return before, after


def _last_places(picked: Integers, keys: int) -> Integers:
    last = np.full(keys, -1, np.int64)
    last[picked] = np.arange(len(picked))  # of equal ones the last assignment stays
    return last[last >= 0]


def _records(rows: pa.Table, seqnos: Integers, before: Booleans, after: Booleans) -> bytes:
    """Lines: a delete of what was there, then an insert of what is."""
    ids = pc.cast(rows["id"], pa.string()).combine_chunks()
    numbers = pc.cast(pa.array(seqnos), pa.string())
    texts = [pc.cast(rows[name], pa.string()).combine_chunks() for name in _VALUES]
    first = pa.array(np.ones(len(seqnos), np.int64))
    deleted = _lines("D", numbers, first, ids, [pa.scalar(r"\N")] * len(_VALUES))
    inserted = _lines("I", numbers, pa.array(1 + before.astype(np.int64)), ids, texts)
    indices = np.arange(len(seqnos))
    in_turn = np.stack([indices, len(seqnos) + indices], axis=1).ravel()
    wanted = in_turn[np.stack([before, after], axis=1).ravel()]
    lines = pa.concat_arrays([deleted, inserted]).take(pa.array(wanted))
    return "".join(lines.to_pylist()).encode()


def _lines(
    operation: str, numbers: pa.Array, row_numbers: pa.Array, ids: pa.Array, values: Sequence[Any]
) -> pa.StringArray:
    row_texts = pc.cast(row_numbers, pa.string())
    start = [pa.scalar(operation), numbers, row_texts, pa.scalar(_COMMITTED), ids, ids]
    ended = [*values[:-1], pc.binary_join_element_wise(values[-1], "\n", "")]
    return pc.binary_join_element_wise(*start, *ended, "\x01")
