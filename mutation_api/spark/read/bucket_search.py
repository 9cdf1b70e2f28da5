"""Searches each bucket of a table for the keys that hash to it, in one task.

A merge uses it if its source has more keys than the driver collects. The keys are shuffled to their buckets.
Rows of the table are not shuffled; only those that have a key leave their task.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame

from mutation_api.bucketing.bucket_resolver import BucketIdResolver
from mutation_api.reader.key_groups import group_keys, key_type
from mutation_api.reader.snapshot_split import SnapshotSplit
from mutation_api.spark.jvm import spark_context
from mutation_api.spark.quoted_name import quoted
from mutation_api.spark.read.split_reader import TASKS_PER_CORE, SplitReader, snapshot_ddl
from mutation_api.spark.task_choice import to_tasks
from mutation_api.spark.versions import ArrowColumn, computed
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.serializer import AcidTableSerializer
from mutation_api.types.plain_array import struct_fields

__all__ = ["KEYS_PER_PASS", "key_passes", "search_buckets"]

KEYS_PER_PASS = 1_000_000
"""Number of keys that a task holds at a time. With more keys it reads its buckets several times."""

_BUCKET = "__bucket"


def search_buckets(
    table: AcidTable,
    splits: Sequence[SnapshotSplit],
    reader: SplitReader,
    keys: DataFrame,
    *,
    null_safe: bool,
    keys_per_pass: int = KEYS_PER_PASS,
) -> DataFrame:
    """The rows of the splits that have one of the keys, each once, in the form of a snapshot.

    Args:
        table: its bucket columns are among the keys.
        splits: of the table's buckets, without plain files.
        reader: reads them.
        keys: columns under the table's names (lower case), in its Spark types; not distinct.
        null_safe: whether NULL is a key like any other; otherwise keys with a NULL are left out.
        keys_per_pass: bounds the memory of a task, except for keys with equal values in the bucket columns.
    """
    names = keys.columns
    given = keys if null_safe else keys.na.drop()
    text = AcidTableSerializer.encode(table)
    bucket = ArrowColumn(_BucketOf(text, tuple(names)), "int", (sf.struct(*map(_field, names)),))
    placed = computed(given, {_BUCKET: bucket, **{name: _field(name) for name in names}})
    by_bucket: dict[int, list[str]] = {}
    for split in splits:
        by_bucket.setdefault(split.bucket_id, []).append(split.to_json())
    search = _BucketSearch(text, by_bucket, reader, null_safe, keys_per_pass)
    tasks = min(table.num_buckets, TASKS_PER_CORE * spark_context(keys.sparkSession).defaultParallelism)
    order = [_BUCKET, *(quoted(name.lower()) for name in table.bucket_columns)]
    in_order = to_tasks(placed, tasks, sf.col(_BUCKET) % tasks).sortWithinPartitions(*order)
    return in_order.mapInArrow(search, snapshot_ddl(table, reader.columns))


def _field(name: str) -> Column:
    return sf.col(quoted(name))


@dataclass(frozen=True)
class _BucketOf:
    """The function that runs in tasks: the buckets to which the key columns with these names hash."""

    table_text: str
    names: tuple[str, ...]

    def __call__(self, keys: pa.Array) -> pa.Array:
        columns = pa.record_batch(struct_fields(keys), names=list(self.names))
        return BucketIdResolver(AcidTableSerializer.decode(self.table_text)).resolve(columns)


@dataclass(frozen=True)
class _BucketSearch:
    """The function that runs in tasks: it takes keys ordered by bucket and yields batches of rows."""

    table_text: str
    splits: Mapping[int, Sequence[str]]
    reader: SplitReader
    null_safe: bool
    keys_per_pass: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = AcidTableSerializer.decode(self.table_text)
        types = {c.name: key_type(c) for c in table.all_columns}
        bucket_columns = [name.lower() for name in table.bucket_columns]
        for bucket_id, found in key_passes(batches, bucket_columns, self.keys_per_pass):
            keys = found.cast(pa.schema([(name, types[name]) for name in found.column_names]))
            here = [SnapshotSplit.from_json(text) for text in self.splits.get(bucket_id, ())]
            names = list(dict.fromkeys(split.partition_name for split in here))
            groups = group_keys(table, keys, names, null_safe=self.null_safe, prunes_buckets=False)
            wanted = [split for split in here if groups.has_partition(split.partition_name)]
            yield from self.reader.in_turn(table, wanted, groups, checks_placement=lambda _: True)


def key_passes(
    batches: Iterator[pa.RecordBatch], bucket_columns: Sequence[str], limit: int
) -> Iterator[tuple[int, pa.Table]]:
    """Keys of one bucket at a time, at most about ``limit`` of them.

    Rows with equal values in the bucket columns stay together, and so do equal keys.

    Args:
        batches: the bucket id, then the key columns; ordered by bucket id and the bucket columns.
        bucket_columns: names of the bucket columns.
        limit: a pass ends at the first new value of the bucket columns after this number of rows.

    Yields:
        The bucket id, and the key columns of a pass, which is never empty.
    """
    held: list[pa.RecordBatch] = []
    for part in _parts_of_one_bucket(batches):
        rest = part
        if held and _bucket_id(held[0]) != _bucket_id(part):
            yield _pass(held)
            held = []
        elif held and sum(batch.num_rows for batch in held) >= limit:
            cut = _first_other(held[-1].slice(held[-1].num_rows - 1), part, bucket_columns)
            held.append(part.slice(0, cut))
            rest = part.slice(cut)
            if rest.num_rows:
                yield _pass(held)
                held = []
        if rest.num_rows:
            held.append(rest)
    if held:
        yield _pass(held)


def _pass(held: list[pa.RecordBatch]) -> tuple[int, pa.Table]:
    keys = pa.Table.from_batches(held).combine_chunks()
    return _bucket_id(held[0]), keys.drop_columns(_BUCKET)


def _bucket_id(batch: pa.RecordBatch) -> int:
    return int(batch.column(_BUCKET)[0].as_py())


def _parts_of_one_bucket(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids = batch.column(_BUCKET).to_numpy()
        borders = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), batch.num_rows]
        for start, stop in itertools.pairwise(borders):
            if start < stop:
                yield batch.slice(start, stop - start)


def _first_other(last: pa.RecordBatch, part: pa.RecordBatch, names: Sequence[str]) -> int:
    """Index of the first row of ``part`` that differs from ``last`` in a column; its length if none does."""
    differs = np.zeros(part.num_rows, bool)
    for name in names:
        value, column = last.column(name)[0], part.column(name)
        if value.is_valid:
            differs |= pc.fill_null(pc.not_equal(column, value), True).to_numpy(zero_copy_only=False)
        else:
            differs |= column.is_valid().to_numpy(zero_copy_only=False)
    return int(np.argmax(differs)) if differs.any() else part.num_rows
