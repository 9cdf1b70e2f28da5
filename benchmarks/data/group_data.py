"""Rows that come grouped by partition and bucket, as writers want them: random keys, texts of twenty letters.

The same rows for Python, as Arrow batches, and for Java, as a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.data.merge_data import scrambled
from mutation_api import AcidTable, BucketIdResolver

COLUMNS = "id bigint, msg string, v double"
"""As Hive declares the table; it is partitioned by ``ds string`` and bucketed by ``id``."""

TEXT_LETTERS = 20
_SEED = 20_250_117


@dataclass(frozen=True)
class GroupedRows:
    """Rows of partitions p0000, p0001, … in groups of equal size, a batch for each.

    Attributes:
        partitions: how many.
        buckets: of each partition.
        batches: ``partitions * buckets`` batches of (id, msg, v), by partition, within it by bucket.
    """

    partitions: int
    buckets: int
    batches: tuple[pa.RecordBatch, ...]

    @classmethod
    def made(cls, table: AcidTable, partitions: int, rows: int) -> GroupedRows:
        """About ``rows`` random rows, at least one a group, that lie in the buckets which Hive's hash says.

        Args:
            table: bucketed by id.
            partitions: how many partitions there shall be.
            rows: in all groups together.
        """
        per_group = max(1, rows // (partitions * table.num_buckets))
        ids = _ids_by_bucket(table, per_group * partitions)
        rng = np.random.default_rng([_SEED, per_group])
        batches = tuple(
            _batch(ids[bucket, partition * per_group : (partition + 1) * per_group], rng)
            for partition in range(partitions)
            for bucket in range(table.num_buckets)
        )
        return cls(partitions, table.num_buckets, batches)

    @property
    def count(self) -> int:
        """Rows of all groups."""
        return sum(batch.num_rows for batch in self.batches)

    def groups(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Partition value and batch of each group, in order."""
        values = self.partition_values()
        for number, batch in enumerate(self.batches):
            yield values[number // self.buckets], batch

    def partition_values(self) -> tuple[str, ...]:
        """Values of ``ds``, in order."""
        return tuple(f"p{number:04d}" for number in range(self.partitions))

    def write_for_java(self, path: Path) -> None:
        """Write the file that ``Rows.java`` reads: count, ids, values, offsets, texts; little-endian."""
        rows = pa.Table.from_batches(self.batches).combine_chunks()
        texts = [text.encode() for text in rows["msg"].to_pylist()]
        with path.open("wb") as file:
            file.write(np.int64(rows.num_rows).astype("<i8").tobytes())
            file.write(rows["id"].to_numpy().astype("<i8").tobytes())
            file.write(rows["v"].to_numpy().astype("<f8").tobytes())
            file.write(np.cumsum([0, *map(len, texts)]).astype("<i4").tobytes())
            file.write(b"".join(texts))


def _ids_by_bucket(table: AcidTable, count: int) -> NDArray[np.int64]:
    """Distinct ids, shape (buckets, count): ``count`` of each bucket."""
    wanted = 2 * count * table.num_buckets + 1000
    ids = scrambled(np.arange(wanted, dtype=np.int64))
    buckets = BucketIdResolver(table).resolve(pa.record_batch({"id": ids})).to_numpy()
    return np.stack([ids[buckets == bucket][:count] for bucket in range(table.num_buckets)])


def _batch(ids: NDArray[np.int64], rng: np.random.Generator) -> pa.RecordBatch:
    letters = rng.integers(ord("a"), ord("z") + 1, len(ids) * TEXT_LETTERS, dtype=np.uint8)
    offsets = np.arange(0, len(letters) + 1, TEXT_LETTERS, dtype=np.int32)
    texts = pa.StringArray.from_buffers(len(ids), pa.py_buffer(offsets), pa.py_buffer(letters))
    values = rng.integers(0, 4_000_000, len(ids)) / 4
    return pa.record_batch({"id": ids, "msg": texts, "v": values})
