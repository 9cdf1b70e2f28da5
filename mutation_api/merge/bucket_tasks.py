"""The functions that run in Spark's tasks when each task merges the buckets that it owns.

Source rows come through the shuffle (:mod:`.bucket_owners`). The task reads the rows of its buckets that have
one of the keys, decides every row as the local engine does, and writes the changes. No row of the table
leaves its task.

Each worker imports this module, so it imports nothing that only the driver needs.
"""

from __future__ import annotations

import dataclasses
import functools
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metastore_client.valid_ids import ValidIdList
from mutation_api.errors import UnsupportedLocallyError, WorkerError
from mutation_api.format.event import MAX_BUCKETS, Mask
from mutation_api.merge.acting import Acting
from mutation_api.merge.bucket_owners import Owners, buckets_of, typed_keys
from mutation_api.merge.clauses import MergeOptions
from mutation_api.merge.evaluator import ArrowEvaluator, ArrowMerge
from mutation_api.merge.local_plan import LocalMergePlan
from mutation_api.merge.outcome import MergeOutcome, change_batches, change_schema
from mutation_api.merge.resolve import Alternatives
from mutation_api.merge.source_rows import DoubledKeys, dense_ranks, plain_batch
from mutation_api.merge.target_rows import Reading
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.spark.tasks import (
    WRITER,
    ChangeWriter,
    Manifests,
    PieceAddresser,
    batches_in,
    leave_task,
    local_folder,
    task_number,
)
from mutation_api.storage.connect import configure_storage
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.write.address import with_names_once
from mutation_api.write.batch_sorter import BatchSorter
from mutation_api.write.forecast import CountedChanges, GroupCount, Trial
from mutation_api.write.local_plan import LocalOptions

Numbers = NDArray[np.int64]

PASS_PARTS = 2
"""Source rows that a task merges at once use at most 1/PASS_PARTS of the sorting memory."""
_NO_LIMIT = LocalOptions(memory_bytes=1 << 62, threads=1)


@dataclass(frozen=True)
class TaskResult:
    """The result of one task. ``manifests`` are those of the files that it wrote.

    In a dry run there are none, but the number of changes of each group, and trials of new rows.
    """

    task: int
    outcome: MergeOutcome
    doubled: DoubledKeys
    manifests: Manifests = ()
    groups: tuple[GroupCount, ...] = ()
    trials: tuple[Trial, ...] = ()


def _nothing() -> None:
    """Check nothing: the driver cancels the job if the lock is lost."""


@dataclass(frozen=True)
class _OwnedSplits:
    """The splits that a task owns, as a :class:`~mutation_api.merge.target_rows.PlannedView`."""

    locations: Mapping[str, Location]
    valid_ids: ValidIdList
    splits: Sequence[SnapshotSplit]
    check: Callable[[], None] = _nothing

    def plan(self, names: Collection[str]) -> Sequence[SnapshotSplit]:
        """Return the splits of some partitions."""
        wanted = {*names}
        return [split for split in self.splits if split.partition_name in wanted]


@dataclass(frozen=True)
class OrderColumn:
    """A column of the source by which rows are ordered, as Spark orders them."""

    name: str
    is_descending: bool
    nulls_first: bool

    def keys(self, rows: pa.RecordBatch) -> tuple[Numbers, Numbers]:
        """Return two sort keys of n rows, the more significant last."""
        values = rows.column(self.name)
        is_null = values.is_null().to_numpy(zero_copy_only=False).astype(np.int64)
        return dense_ranks(
            values, is_descending=self.is_descending
        ), -is_null if self.nulls_first else is_null


@dataclass(frozen=True)
class _TaskEvaluator(ArrowEvaluator):
    """An evaluator whose conditions on partitions are the names that the driver found to meet them.

    ``order_columns`` are those of ``on_duplicate``.
    """

    order_columns: tuple[OrderColumn, ...] = ()

    def order(self) -> Numbers:
        """Return the rank of each source row."""
        keys = [key for column in reversed(self.order_columns) for key in column.keys(self.source)]
        ranks: Numbers = np.empty(self.source.num_rows, np.int64)
        ranks[np.lexsort(keys)] = np.arange(len(ranks))
        return ranks

    def partitions(self, names: Sequence[str], alternatives: Alternatives[frozenset[str]]) -> list[str]:
        """Return the partitions that may hold rows to read."""
        if not all(alternatives):
            return list(names)
        chosen = frozenset[str]().union(*(part for parts in alternatives for part in parts))
        return [name for name in names if name in chosen]


@dataclass(frozen=True)
class BucketMerge:
    """The function that runs in tasks, merges the source's rows into the task's own buckets and writes.

    Attributes:
        owners: the owner of each group.
        splits: the splits of the table by the task that owns them.
        valid_ids: the ids whose rows are visible.
        keys: names of the key columns.
        source: names and types of the source's columns. Values that Spark computed follow the given columns.
        source_columns: number of columns that the source was given with.
        resolved: the checked merge. Its conditions and values are Arrow expressions; ``matched_where`` and
            ``by_source_where`` hold sets of partition names instead.
        options: options of the merge.
        addresser: computes the address of each change.
        order: the columns of ``on_duplicate``, and a hash of the row that breaks ties.
        samples: number of rows of each kind to keep as samples.
        writer: writes the changes. The driver sets it when the job begins.
        is_dry_run: True to count the changes instead.
    """

    owners: Owners
    splits: Mapping[int, Sequence[str]]
    valid_ids: ValidIdList
    keys: tuple[str, ...]
    source: pa.Schema
    source_columns: int
    resolved: ArrowMerge
    options: MergeOptions
    addresser: PieceAddresser
    order: tuple[OrderColumn, ...]
    samples: int
    writer: ChangeWriter | None = None
    is_dry_run: bool = False

    def __call__(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Merge the rows of a task of the shuffle. Yield the pickled result."""
        yield pickle.dumps(self.merged(task_number(), pieces))

    def without_source(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Merge no row into the buckets of some tasks. Yield the pickled results."""
        return (pickle.dumps(self.merged(number, ())) for number in numbers)

    def merged(self, task: int, pieces: Iterable[bytes]) -> TaskResult:
        """Merge source rows into the buckets of a task.

        Raises:
            Errors: Those of :attr:`mutation_api.merge.local_plan.LocalMergePlan.acting`, except about
                duplicates and altered keys, which are part of the result; and those of the writer.
        """
        assert self.writer is not None
        configure_storage(self.writer.storage)
        part = _Part(self, task, self.writer)
        try:
            if self.is_dry_run:
                return part.counted(pieces)
            try:
                manifests = self.writer.write_batches(map(with_names_once, part.changes(pieces)))
            except _RefusedKeysError:
                manifests = ()
            return TaskResult(task, part.outcome, part.doubled, manifests)
        finally:
            leave_task()


class _RefusedKeysError(Exception):
    """Raised in a task whose part of the source has keys that the driver will refuse. Nothing is kept."""


@dataclass(frozen=True)
class _Share:
    """Some of a task's source rows: all that have a hash of their bucket columns from ``low`` to ``end``.

    ``end`` is not included.
    """

    rows: pa.RecordBatch
    low: int = 0
    end: int = MAX_BUCKETS

    @property
    def is_all(self) -> bool:
        """True if it has all rows of the task."""
        return self.low == 0 and self.end == MAX_BUCKETS


@dataclass
class _Part:
    """The part of a merge in one task."""

    merge: BucketMerge
    task: int
    writer: ChangeWriter
    doubled: DoubledKeys = field(default_factory=DoubledKeys)

    def __post_init__(self) -> None:
        merge = self.merge
        self.outcome = MergeOutcome(merge.keys, merge.options.count_by, merge.samples)
        self._is_refused = False

    @property
    def _table(self) -> AcidTable:
        return self.merge.owners.table

    def counted(self, pieces: Iterable[bytes]) -> TaskResult:
        """Count the changes of a dry run."""
        counts = CountedChanges()
        try:
            for batch in self.changes(pieces):
                counts.add(batch)
        except _RefusedKeysError:
            return TaskResult(self.task, self.outcome, self.doubled)
        return TaskResult(
            self.task,
            self.outcome,
            self.doubled,
            groups=tuple(counts.groups),
            trials=counts.trials(self._table),
        )

    def changes(self, pieces: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield addressed changes, in any order.

        Raises:
            _RefusedKeysError: At the end, if keys must be refused.
        """
        for plan in self._plans(pieces):
            self.outcome.add_altered(plan.altered)
            self.doubled.add(plan.doubled.count, plan.doubled.samples)
            self._is_refused |= bool(plan.altered) or plan.doubled.count > 0
            if not self._is_refused:
                yield from self._addressed(plan.acting_on_source)
                yield from self._addressed(plan.acting_on_rest())
        if self._is_refused:
            raise _RefusedKeysError

    def _plans(self, pieces: Iterable[bytes]) -> Iterator[LocalMergePlan]:
        """Yield plans for parts of the source. Their table rows fit into memory as well, if possible."""
        room = self.writer.options.sort_memory_bytes
        for source in self._passes(pieces):
            shares = [source]
            while shares:
                share = shares.pop()
                plan = self._plan(share, share.rows.nbytes + room)
                try:
                    if not (plan.altered or plan.doubled.count):
                        plan.acting_on_source  # noqa: B018  (reads the table)
                except UnsupportedLocallyError:
                    halves = self._halves(share)
                    if halves:
                        shares += reversed(halves)
                        continue
                    plan = self._plan(share, None)
                yield plan

    def _halves(self, share: _Share) -> tuple[_Share, ...]:
        """Cut source rows into two parts with different keys. Return nothing if that is not possible."""
        (hashes,) = self._hashes(share.rows)
        cut = max(int(np.ceil(np.median(hashes))), int(hashes.min()) + 1)
        is_less = hashes < cut
        if is_less.all():
            return ()
        return (
            _Share(share.rows.filter(pa.array(is_less)), share.low, cut),
            _Share(share.rows.filter(pa.array(~is_less)), cut, share.end),
        )

    def _plan(self, share: _Share, memory_bytes: int | None) -> LocalMergePlan:
        """Return the plan for some source rows. With ``memory_bytes``, reading more rows raises an error."""
        merge, source = self.merge, share.rows

        def acts_on(rows: pa.RecordBatch) -> Mask:
            (hashes,) = self._hashes(rows)
            return (share.low <= hashes) & (hashes < share.end)

        return LocalMergePlan(
            self._view,
            self._table,
            source,
            merge.keys,
            merge.resolved,
            _TaskEvaluator(self._table, merge.resolved, source, merge.options, merge.order),
            merge.options,
            _NO_LIMIT,
            merge.samples,
            merge.source_columns,
            Reading(
                exact_timestamps=False,
                in_one_pass=False,
                checks_rest=merge.owners.by_bucket and bool(merge.keys),
                memory_bytes=memory_bytes,
                acts_on=None if share.is_all else acts_on,
            ),
        )

    @functools.cached_property
    def _view(self) -> _OwnedSplits:
        splits = [SnapshotSplit.from_json(text) for text in self.merge.splits.get(self.task, ())]
        locations = {split.partition_name: split.location for split in splits}
        return _OwnedSplits(locations, self.merge.valid_ids, splits)

    def _addressed(self, acting: Iterable[Acting]) -> Iterator[pa.RecordBatch]:
        schema = change_schema(self._table)
        for each in acting:
            self.outcome.add(each)
            # Inserts into a table without buckets are spread over its files. All are of one task.
            extra = {WRITER: pa.array(np.arange(len(each.rows)))} if self.merge.addresser.writers else {}
            for batch in change_batches(self._table, schema, each, extra):
                rows = self.merge.addresser.addressed(batch)
                self._check_owned(rows)
                yield rows

    def _check_owned(self, rows: pa.RecordBatch) -> None:
        """Check that no other task writes the groups of these changes: a second file would hide rows."""
        self._check_mine(self.merge.owners.of_changes(rows))

    def _check_mine(self, owners: Numbers) -> None:
        others = owners[owners != self.task]
        if len(others):
            raise WorkerError(
                f"table {self._table.full_name}: task {self.task} of {self.merge.owners.tasks} got rows of "
                f"task {others[0]}. Nothing was written. Please report this"
            )

    # ---- source

    def _passes(self, pieces: Iterable[bytes]) -> Iterator[_Share]:
        """Yield the source's rows of this task in parts that fit into memory. Equal keys are in one part."""
        limit = max(1, self.writer.options.sort_memory_bytes // PASS_PARTS)
        held: list[pa.RecordBatch] = []
        byte_count = 0
        batches = (batch for piece in pieces for batch in batches_in(piece))
        for batch in batches:
            if not held:
                first = typed_keys(self._table, self.merge.keys, batch.slice(0, 1))
                self._check_mine(self.merge.owners.of_keys(first))
            held.append(batch)
            byte_count += batch.nbytes
            if byte_count > limit:
                yield from self._cut(held, batches, limit)
                return
        yield _Share(_joined(held) if held else plain_batch(self.merge.source.empty_table()))

    def _cut(
        self, held: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch], limit: int
    ) -> Iterator[_Share]:
        """Sort the rows by a hash of their bucket columns, and yield them in parts of equal hashes."""
        table, folder = self._table, local_folder()
        with BatchSorter(table.full_name, self._hashes, 2 * limit, folder) as sorter:
            while held:
                sorter.add(held.pop())
            for batch in rest:
                sorter.add(batch)
            part: list[pa.RecordBatch] = []
            byte_count = low = last = 0
            for batch in sorter.in_order():
                (hashes,) = self._hashes(batch)
                while batch.num_rows:
                    # Rows with the last hash belong to the part before.
                    cut = int(np.searchsorted(hashes, last, "right")) if byte_count > limit else len(hashes)
                    part.append(batch.slice(0, cut))
                    byte_count += part[-1].nbytes
                    last = int(hashes[cut - 1]) if cut else last
                    batch, hashes = batch.slice(cut), hashes[cut:]
                    if batch.num_rows:
                        yield _Share(_joined(part), low, last + 1)
                        part, byte_count, low = [], 0, last + 1
            yield _Share(_joined(part), low)

    def _hashes(self, rows: pa.RecordBatch) -> list[Numbers]:
        keys = typed_keys(self._table, self.merge.keys, rows)
        finest = dataclasses.replace(self._table, num_buckets=MAX_BUCKETS)
        if self.merge.owners.by_bucket:
            return [buckets_of(finest, keys)]
        return [Owners(finest, MAX_BUCKETS, by_partition=True, by_bucket=False).of_keys(keys)]


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return plain_batch(pa.Table.from_batches([batch for batch in batches if batch.num_rows]))
