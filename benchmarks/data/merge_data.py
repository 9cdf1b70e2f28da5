"""Rows and change sets of the benchmark of merges: random keys, texts of about twenty characters.

All of it follows from the number of rows, so every contestant and every run has the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

COLUMNS = "id bigint, acct bigint, name string, amount double, quantity int"
"""As Hive declares the table."""

CHECKSUMS = (
    "count(*), sum(id), sum(acct), sum(crc32(name)), sum(cast(amount * 4 AS bigint)), "
    "sum(cast(quantity AS bigint))"
)
"""Over every column; the same text for Hive and for Spark."""

CHUNK_ROWS = 1_000_000
UPDATED, DELETED, INSERTED = 0.5, 0.2, 0.3
"""Shares of a change set."""

_SEED = 20_151_119
_KEY_BITS = 36
"""Keys are below 2 ** 36, so that the sum of 50 million of them is a bigint."""
_ACCOUNT_SALT = 0x5_DEEC_E66D
_WORDS = 4096


def scrambled(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Map row numbers, 0 <= n < 2 ** 36, to keys in random order; no two numbers have one key."""
    mask = np.uint64((1 << _KEY_BITS) - 1)
    x = numbers.astype(np.uint64)
    for factor in (0x9_E377_9B97, 0xD_6E8F_EB87):  # odd, so the product keeps numbers apart
        x = (x * np.uint64(factor)) & mask
        x ^= x >> np.uint64(_KEY_BITS // 2)
    return x.astype(np.int64)


def base_batches(rows: int) -> Iterator[pa.Table]:
    """The table's first contents, in chunks."""
    for first in range(0, rows, CHUNK_ROWS):
        numbers = np.arange(first, min(first + CHUNK_ROWS, rows), dtype=np.int64)
        yield with_values(numbers, np.random.default_rng([_SEED, first]))


def write_base(rows: int, folder: Path) -> None:
    """Write the table's first contents as Parquet files of a chunk each."""
    folder.mkdir(parents=True)
    for number, table in enumerate(base_batches(rows)):
        pq.write_table(table, folder / f"part-{number:05d}.parquet")


@dataclass(frozen=True)
class ChangeSets:
    """One change set a round, each on keys that no other round touches.

    Attributes:
        rows: of the table at first.
        changes: rows of a change set.
        rounds: how many change sets there are, the warming one included.
        folder: where they are written, a Parquet file each.
    """

    rows: int
    changes: int
    rounds: int
    folder: Path

    @property
    def counts(self) -> tuple[int, int, int]:
        """Updates, deletes and inserts of a change set."""
        updates, deletes = round(self.changes * UPDATED), round(self.changes * DELETED)
        return updates, deletes, self.changes - updates - deletes

    def path(self, number: int) -> Path:
        """The file of a round."""
        return self.folder / f"changes-{number}.parquet"

    def write(self) -> None:
        """Write the files.

        Raises ValueError if the rounds together would touch more rows than the table has.
        """
        updates, deletes, inserts = self.counts
        touched = updates + deletes
        if touched * self.rounds > self.rows:
            raise ValueError(
                f"{self.rounds} rounds of {touched:,} updates and deletes need more than {self.rows:,} rows"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng([_SEED, self.rows, self.changes])
        old = rng.choice(self.rows, touched * self.rounds, replace=False).astype(np.int64)
        operations = np.repeat(np.array(["U", "D", "I"]), (updates, deletes, inserts))
        for number in range(self.rounds):
            first = self.rows + number * inserts
            new = np.arange(first, first + inserts, dtype=np.int64)
            rows = np.concatenate([old[number * touched : (number + 1) * touched], new])
            table = with_values(rows, rng).add_column(0, "op", pa.array(operations))
            pq.write_table(table.take(rng.permutation(self.changes)), self.path(number))

    def expected(self, numbers: Iterable[int], *, deletes: bool = True) -> tuple[int, int]:
        """Rows and sum of keys after these rounds; without ``deletes`` for contestants that do not delete."""
        count = self.rows
        total = int(scrambled(np.arange(self.rows, dtype=np.int64)).sum())
        for number in numbers:
            changes = pq.read_table(self.path(number), columns=["op", "id"])
            for operation, sign in (("I", 1), ("D", -1))[: 2 if deletes else 1]:
                ids = changes.filter(pc.equal(changes["op"], operation))["id"]
                count += sign * len(ids)
                total += sign * (pc.sum(ids).as_py() or 0)
        return count, total


def with_values(numbers: NDArray[np.int64], rng: np.random.Generator) -> pa.Table:
    """Rows of these numbers, with random values; the account is the row's, so that an update keeps it."""
    count = len(numbers)
    words = _words()
    numerals = pc.cast(pa.array(rng.integers(10_000, 1_000_000, count)), pa.string())
    texts = [words.take(pa.array(rng.integers(0, _WORDS, count))) for _ in range(2)]
    return pa.table(
        {
            "id": scrambled(numbers),
            "acct": scrambled(numbers ^ _ACCOUNT_SALT),
            "name": pc.binary_join_element_wise(*texts, numerals, "-"),
            "amount": rng.integers(0, 4_000_000, count) / 4,
            "quantity": rng.integers(0, 100_000, count).astype(np.int32),
        }
    )


def _words() -> pa.Array:
    """Pronounceable words of four to eight letters."""
    rng = np.random.default_rng(_SEED)
    consonants, vowels = list("bcdfghjklmnprstvwz"), list("aeiou")
    return pa.array(
        [
            "".join(str(rng.choice(consonants)) + str(rng.choice(vowels)) for _ in range(rng.integers(2, 5)))
            for _ in range(_WORDS)
        ]
    )
