"""compact_table: request compaction of partitions with enough changes, and wait for it.

Readers merge deltas on every read, and a compaction merges them into a base. To decide when to compact,
compare the sizes of both by partition (:func:`delta_sizes`).

Hive does the compaction. It queues a request only once, regardless of which client makes it. A second run
therefore waits for the same compaction, and a run that was stopped can be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from metastore_client.client import MetastoreClient, compactions_of
from metastore_client.model import CompactionInfo, CompactionType
from mutation_api.errors import CompactionError, ConfigurationError
from mutation_api.read.table_view import open_table
from mutation_api.table.acid_table import WriterOptions
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT, MutatorClientBuilder
from mutation_api.transaction.catalog import normal_full_name, split_full_name
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.upkeep.compaction_terms import CompactedDirectory, CompactionSettings
from mutation_api.upkeep.compactor import compact_partitions
from mutation_api.upkeep.delta_sizes import DeltaSizes, delta_sizes
from mutation_api.upkeep.doctor import compactor_trouble
from mutation_api.upkeep.watermark_table import read_by_all

KINDS = ("minor", "major", "rebalance")
ENGINES = ("hive", "local")
DELTA_ROWS_DEFAULT = 100_000
WAIT_SECONDS_DEFAULT = 900.0
POLL_SECONDS = 0.5
UNTAKEN_SECONDS = 30.0
"""The time after which a request that no worker has taken is reported."""

_NOT_ENOUGH = "None of the compaction thresholds met"
"""The reason that a Hive 4 worker gives for refusing a compaction that would merge nothing; seen in 4.1.0."""
_WORKERS = "hive.compactor.worker.threads"


@dataclass(frozen=True)
class CompactionThreshold:
    """A threshold that is reached when the deltas reach one of these numbers; a number of None is ignored."""

    row_count: int | None = DELTA_ROWS_DEFAULT
    file_count: int | None = None
    byte_count: int | None = None

    def reached_by(self, sizes: Sequence[DeltaSizes]) -> bool:
        """Return True if the deltas of these partitions together reach the threshold."""
        found = (
            sum(each.deltas.row_count or 0 for each in sizes),
            sum(each.deltas.file_count for each in sizes),
            sum(each.deltas.byte_count for each in sizes),
        )
        limits = (self.row_count, self.file_count, self.byte_count)
        return any(limit is not None and count >= limit for limit, count in zip(limits, found, strict=True))

    def __str__(self) -> str:
        """Return the threshold as a string, for example ``100,000 rows or 50 files``."""
        named = {"rows": self.row_count, "files": self.file_count, "bytes": self.byte_count}
        return " or ".join(f"{n:,} {name}" for name, n in named.items() if n is not None)


@dataclass(frozen=True)
class CompactedPartition:
    """One compaction. ``partition``: '' for the whole table. ``state``: the server's, or ``requested``.

    ``refused``: a Hive 4 server found nothing to merge. Any other refusal is an error.
    """

    partition: str
    before: DeltaSizes
    state: str
    seconds: float


@dataclass(frozen=True)
class CompactReport:
    """The result of ``compact``. ``partitions`` is empty if there were too few changes."""

    table: str
    kind: str
    threshold: CompactionThreshold
    delta_row_count: int | None
    partitions: tuple[CompactedPartition, ...]
    after: tuple[DeltaSizes, ...] = field(default=())

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-serialisable dict."""
        return {
            "table": self.table,
            "kind": self.kind,
            "delta_row_count": self.delta_row_count,
            "partitions": [
                {"partition": each.partition, "state": each.state, "seconds": round(each.seconds, 3)}
                for each in self.partitions
            ],
        }

    def __str__(self) -> str:
        """Return one line per partition, or one line with the reason why nothing was done."""
        if not self.partitions:
            rows = "" if self.delta_row_count is None else f" ({self.delta_row_count:,} rows)"
            return f"{self.table}: nothing to do, its deltas{rows} are below {self.threshold}"
        return "\n".join(
            f"{self.table}{f'/{each.partition}' if each.partition else ''}: {self.kind} compaction "
            f"{each.state}"
            f" ({each.before.deltas.file_count:,} delta files, {each.seconds:.1f} s)"
            for each in self.partitions
        )


def compact_table(
    metastore: MetastoreClient,
    table: str,
    *,
    kind: str = "major",
    partitions: Sequence[str] = (),
    threshold: CompactionThreshold | None = None,
    at_once: int = 1,
    wait_seconds: float | None = WAIT_SECONDS_DEFAULT,
    engine: str = "hive",
    without_queue: bool = False,
    for_consumers: bool = False,
    watermark_table: str | None = None,
    keep_old: timedelta | None = None,
    num_buckets: int | None = None,
    sort_by: Sequence[str] = (),
    progress: Callable[[str], None] = lambda line: None,
) -> CompactReport:
    """Compact the partitions of a table that have deltas, if the deltas together reach a threshold.

    If there is nothing to do, this succeeds. It works for any ACID table, even if incremental update is not
    enabled.

    Args:
        metastore: metastore of the table; stays open.
        table: ``database.table``.
        kind: ``minor`` (merges the deltas into one), ``major`` (merges everything into one base), or on Hive
            4 ``rebalance``.
        partitions: names of the partitions to compact (``day=2024-05-01``). Default: all.
        threshold: minimum size of the deltas. Default: 100,000 rows.
        at_once: maximum number of concurrent compactions; the next one is requested when one has ended. For
            a single partition of ``engine="local"``, of buckets.
        wait_seconds: maximum time to wait for one compaction. If None, only request it.
        engine: ``hive`` to let a worker of Hive compact, or ``local`` for this process (Hive 4). See
            :mod:`mutation_api.upkeep.compactor`.
        without_queue: True to let this process compact on Hive 2.3 or 3.1 (``engine="local"``, major). See
            :mod:`mutation_api.upkeep.unqueued_compaction`.
        for_consumers: True to compact only what all consumers of change feeds have read, so that none of them
            misses changes (``engine="local"``).
        watermark_table: the table of their positions. If None, ``mutation_watermarks`` in the table's
            database.
        keep_old: how long to keep the old files for :func:`mutation_api.upkeep.restore.restore_table`
            (``engine="local"``). If None, they are not kept.
        num_buckets: see :func:`mutation_api.upkeep.compactor.compact_partition`.
        sort_by: see :func:`mutation_api.upkeep.compactor.compact_partition`.
        progress: called with a message when something changes.

    Raises:
        TableNotFoundError: If the table does not exist.
        ConfigurationError: If the server does not support the kind, or a partition does not exist.
        CompactionError: If a compaction failed or did not end in time; other compactions continue on the
            server.
        ConnectionFailedError: If the server cannot be reached.
        TransactionError: If the server cannot be queried.
        ReadError: If the table's directories contradict each other.
    """
    table = normal_full_name(table)
    is_of_local = without_queue or for_consumers or keep_old is not None or num_buckets or sort_by
    _check_arguments(metastore, kind, engine, is_of_local=bool(is_of_local))
    limit = threshold or CompactionThreshold()
    sizes = read_sizes(metastore, table, counts_rows=limit.row_count is not None)
    missing = sorted(set(partitions) - {each.partition for each in sizes})
    if missing:
        raise ConfigurationError(f"table {table} does not have the partition {', '.join(missing)}")
    chosen = [
        each
        for each in sizes
        if each.partition in (partitions or [each.partition])
        and (each.directory_count or (kind == "rebalance" and each.base.file_count))
    ]
    rows = [each.deltas.row_count for each in chosen]
    delta_rows = None if limit.row_count is None else sum(count or 0 for count in rows)
    if kind != "rebalance" and not limit.reached_by(chosen):
        return CompactReport(table, kind, limit, delta_rows, ())
    if engine == "local":
        up_to = read_by_all(metastore, table, watermark_table, progress) if for_consumers else None
        threads = at_once if len(chosen) == 1 or without_queue else 1
        results = compact_partitions(
            metastore,
            table,
            [each.partition for each in chosen],
            CompactionType[kind.upper()],
            CompactionSettings(threads, WriterOptions(), up_to, keep_old, num_buckets, tuple(sort_by)),
            sizes={each.partition: (each.base + each.deltas).byte_count for each in chosen},
            at_once=at_once,
            without_queue=without_queue,
            wait_seconds=LOCK_TIMEOUT_SECONDS_DEFAULT if wait_seconds is None else wait_seconds,
            progress=lambda done: progress(str(done)),
        )
        found = tuple(map(_compacted_here, chosen, results))
    else:
        waiter = _Waiter(metastore, table, CompactionType[kind.upper()], wait_seconds, progress)
        found = tuple(waiter.compact(chosen, at_once))
    after = () if wait_seconds is None else tuple(read_sizes(metastore, table, counts_rows=False))
    return CompactReport(table, kind, limit, delta_rows, found, after)


def _check_arguments(metastore: MetastoreClient, kind: str, engine: str, *, is_of_local: bool) -> None:
    if kind not in KINDS:
        raise ConfigurationError(f"kind={kind!r}: expected one of {', '.join(KINDS)}")
    if kind == "rebalance" and not metastore.capabilities().has_exclusive_write_lock:
        raise ConfigurationError("kind='rebalance' requires Hive 4; this server is older")
    if engine not in ENGINES:
        raise ConfigurationError(f"engine={engine!r}: expected one of {', '.join(ENGINES)}")
    if is_of_local and engine != "local":
        raise ConfigurationError(
            "without_queue, for_consumers, keep_old, num_buckets and sort_by require engine='local', got "
            f"{engine!r}"
        )


def _compacted_here(sizes: DeltaSizes, done: CompactedDirectory) -> CompactedPartition:
    state = "succeeded" if done.directory is not None else "refused"
    return CompactedPartition(sizes.partition, sizes, state, done.seconds)


def read_sizes(
    metastore: MetastoreClient,
    table: str,
    *,
    counts_rows: bool = True,
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
) -> list[DeltaSizes]:
    """Return the deltas and bases of a table by partition, in one snapshot.

    Raises the errors of :func:`compact_table`, and LockNotAcquiredError if an exclusive lock on the table is
    held for longer than the timeout.
    """
    builder = MutatorClientBuilder().metastore(metastore).lock_timeout_seconds(lock_timeout_seconds)
    with builder.build() as client, client.open_snapshot(table) as view:
        return delta_sizes(open_table(view, table), counts_rows=counts_rows)


@dataclass
class _Waiter:
    metastore: MetastoreClient
    table: str
    type: CompactionType
    wait_seconds: float | None
    progress: Callable[[str], None]

    def compact(self, partitions: Sequence[DeltaSizes], at_once: int) -> Iterator[CompactedPartition]:
        """Request each compaction in turn, with at most ``at_once`` that have not ended."""
        waiting = list(partitions)
        running: list[_Request] = []
        while waiting or running:
            while waiting and len(running) < max(1, at_once):
                running.append(self._request(waiting.pop(0)))
            if self.wait_seconds is None:
                yield from (request.ended("requested") for request in running)
                running = []
                continue
            entries = self._entries()
            still = []
            for request in running:
                state = self._looked_at(request, entries)
                if state is None:
                    still.append(request)
                else:
                    yield request.ended(state)
            running = still
            if running:
                time.sleep(POLL_SECONDS)

    def _request(self, sizes: DeltaSizes) -> _Request:
        database, name = split_full_name(self.table)
        finished = frozenset(each for each in self._entries() if self._is_of(each, sizes.partition))
        finished = frozenset(each for each in finished if not each.is_pending)
        with metastore_errors_as_ours(f"table {self.table}: cannot request a compaction"):
            is_new = self.metastore.compact(database, name, sizes.partition or None, self.type)
        request = _Request(self.table, sizes, finished, time.monotonic())
        self.progress(
            f"{request.name}: {'requested' if is_new else 'waiting for the queued'} {self.type.name.lower()} "
            "compaction"
        )
        return request

    def _looked_at(self, request: _Request, entries: Sequence[CompactionInfo]) -> str | None:
        """Return the state in which a compaction ended, or None if it has not ended."""
        of_partition = [each for each in entries if self._is_of(each, request.sizes.partition)]
        active = [each for each in of_partition if each.is_pending]
        seconds = time.monotonic() - request.asked_at
        if active:
            self._tell(request, active[-1], seconds)
            return None
        new = [each for each in of_partition if each not in request.finished]
        last = max(new, key=lambda each: (each.id or 0, each.start_time or 0), default=None)
        state = "succeeded" if last is None else last.state
        if not (last is None or last.is_done or _is_unneeded(state, new)):
            raise CompactionError(
                f"{request.name}: the {self.type.name.lower()} compaction {state} after {seconds:.0f} s. "
                f"{self._reason(new)}See the worker's log on the server for details"
            )
        self.progress(f"{request.name}: {state} after {seconds:.0f} s")
        return state

    def _tell(self, request: _Request, entry: CompactionInfo, seconds: float) -> None:
        if entry.state != request.told:
            request.told = entry.state
            worker = f" by {entry.worker_id}" if entry.worker_id else ""
            self.progress(f"{request.name}: {entry.state}{worker}")
        if entry.state == "initiated" and seconds > UNTAKEN_SECONDS and not request.is_warned:
            request.is_warned = True
            self.progress(f"{request.name}: {self._no_worker()}")
        assert self.wait_seconds is not None
        if seconds > self.wait_seconds:
            why = f" {self._no_worker()}" if entry.state == "initiated" else ""
            raise CompactionError(
                f"{request.name}: the {self.type.name.lower()} compaction is {entry.state} after "
                f"{seconds:.0f} s and continues on the server; run the same command again to wait for "
                f"it.{why}"
            )

    def _no_worker(self) -> str:
        threads = self.metastore.get_config_value(_WORKERS, "unknown")
        return (
            f"no worker has taken it. The metastore's {_WORKERS} is {threads}: start compactor threads there "
            f"({_WORKERS} > 0 and, on one of several metastores, hive.compactor.initiator.on; Hive 4: "
            "hive.compactor.cleaner.on, and a HiveServer2 where hive.metastore.runworker.in is hs2)"
        )

    def _reason(self, entries: Sequence[CompactionInfo]) -> str:
        """Return the server's message for the last entry."""
        if not entries:
            return ""
        last = max(entries, key=lambda each: (each.id or 0, each.start_time or 0))
        info = self.metastore.get_table(*split_full_name(self.table))
        trouble = compactor_trouble(info.parameters, self.metastore.capabilities())
        if trouble is not None:
            return f"{trouble[0].upper()}{trouble[1:]}. "
        said = f"The server reports: {last.error.strip()}. " if last.error.strip() else ""
        return said + (f"Worker: {last.worker_id}. " if last.worker_id else "")

    def _entries(self) -> list[CompactionInfo]:
        with metastore_errors_as_ours(f"table {self.table}: cannot list its compactions"):
            return compactions_of(self.metastore, *split_full_name(self.table))

    def _is_of(self, entry: CompactionInfo, partition: str) -> bool:
        return (entry.partition or "") == partition


def _is_unneeded(state: str, entries: Sequence[CompactionInfo]) -> bool:
    """Return True if Hive 4 found nothing to merge, as in a partition with one delta and no base."""
    return state == "refused" and any(_NOT_ENOUGH in each.error for each in entries)


@dataclass
class _Request:
    """A requested compaction. ``finished``: entries of its partition that had already ended."""

    table: str
    sizes: DeltaSizes
    finished: frozenset[CompactionInfo]
    asked_at: float
    told: str = ""
    is_warned: bool = False

    @property
    def name(self) -> str:
        """The table or partition, as ``database.table/partition``."""
        return f"{self.table}/{self.sizes.partition}" if self.sizes.partition else self.table

    def ended(self, state: str) -> CompactedPartition:
        """Return the result of the compaction."""
        return CompactedPartition(self.sizes.partition, self.sizes, state, time.monotonic() - self.asked_at)
