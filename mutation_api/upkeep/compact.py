"""compact_table: ask Hive to compact the partitions of a table that have enough changes, and wait for it.

The compactor is Hive's; a request is queued once, whoever asks, so a second run waits for the same compaction
and a run that was stopped may be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from metastore_client.client import MetastoreClient
from metastore_client.model import CompactionInfo, CompactionType
from mutation_api.errors import CompactionError, ConfigurationError
from mutation_api.read.table_view import open_table
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT, MutatorClientBuilder
from mutation_api.transaction.catalog import split_full_name
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.upkeep.compaction_rules import DeltaSizes, compactor_trouble, delta_sizes

__all__ = [
    "DELTA_ROWS_DEFAULT",
    "KINDS",
    "WAIT_SECONDS_DEFAULT",
    "CompactReport",
    "CompactedPartition",
    "CompactionThreshold",
    "compact_table",
    "read_sizes",
]

KINDS = ("minor", "major", "rebalance")
DELTA_ROWS_DEFAULT = 100_000
WAIT_SECONDS_DEFAULT = 900.0
POLL_SECONDS = 0.5
UNTAKEN_SECONDS = 30.0
"""A request that no worker took for so long is worth a word."""

_ACTIVE = ("initiated", "working")
_DONE = ("ready for cleaning", "succeeded")
_NOT_ENOUGH = "None of the compaction thresholds met"
"""Why a worker of Hive 4 refuses a compaction that would merge nothing; seen on 4.1.0."""
_WORKERS = "hive.compactor.worker.threads"


@dataclass(frozen=True)
class CompactionThreshold:
    """When a table is compacted: as soon as its deltas reach one of these numbers; None is never reached."""

    rows: int | None = DELTA_ROWS_DEFAULT
    files: int | None = None
    byte_count: int | None = None

    def reached_by(self, sizes: Sequence[DeltaSizes]) -> bool:
        """Whether the deltas of some partitions together are enough."""
        found = (
            sum(each.deltas.row_count or 0 for each in sizes),
            sum(each.deltas.file_count for each in sizes),
            sum(each.deltas.byte_count for each in sizes),
        )
        limits = (self.rows, self.files, self.byte_count)
        return any(limit is not None and count >= limit for limit, count in zip(limits, found, strict=True))

    def __str__(self) -> str:
        """``100,000 rows or 50 files``."""
        named = {"rows": self.rows, "files": self.files, "bytes": self.byte_count}
        return " or ".join(f"{n:,} {name}" for name, n in named.items() if n is not None)


@dataclass(frozen=True)
class CompactedPartition:
    """One compaction. ``partition``: '' for the whole table. ``state``: the server's, or ``requested``.

    ``refused``: a server of Hive 4 found nothing to merge; what else it refuses is an error.
    """

    partition: str
    before: DeltaSizes
    state: str
    seconds: float


@dataclass(frozen=True)
class CompactReport:
    """What was done. ``partitions`` is empty if there were too few changes."""

    table: str
    kind: str
    threshold: CompactionThreshold
    delta_rows: int | None
    partitions: tuple[CompactedPartition, ...]
    after: tuple[DeltaSizes, ...] = field(default=())

    def to_dict(self) -> dict[str, object]:
        """The same for programs, in JSON's types."""
        return {
            "table": self.table,
            "kind": self.kind,
            "delta_rows": self.delta_rows,
            "partitions": [
                {"partition": each.partition, "state": each.state, "seconds": round(each.seconds, 3)}
                for each in self.partitions
            ],
        }

    def __str__(self) -> str:
        """A line for each partition, or one that says why nothing was done."""
        if not self.partitions:
            rows = "" if self.delta_rows is None else f" ({self.delta_rows:,} rows)"
            return f"{self.table}: nothing to do, its deltas{rows} are below {self.threshold}"
        return "\n".join(
            f"{self.table}{f'/{each.partition}' if each.partition else ''}: {self.kind} compaction "
            f"{each.state}"
            f" ({each.before.deltas.file_count:,} files of deltas, {each.seconds:.1f} s)"
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
    progress: Callable[[str], None] = lambda line: None,
) -> CompactReport:
    """Compact the partitions of a table that have deltas, if these are enough together.

    Nothing to do is success. It works for any ACID table, whether incremental update is enabled or not.

    Args:
        metastore: where the table is; stays open.
        table: ``database.table``.
        kind: ``minor`` (deltas become one), ``major`` (all becomes one base) or, on Hive 4, ``rebalance``.
        partitions: only these (``day=2024-05-01``); by default all.
        threshold: how much the deltas must be; by default 100,000 rows.
        at_once: compactions that run side by side; the next is asked for when one has ended.
        wait_seconds: the longest wait for one compaction; None: ask, and do not wait.
        progress: is called with a line of text when something changes.

    Raises:
        ConfigurationError: the kind is not known here, or a partition does not exist.
        CompactionError: a compaction failed, or did not end in time; others go on in the server.
        ConnectionFailedError, TransactionError: the server could not be asked.
        ReadError: the table's directories contradict each other.
    """
    table = ".".join(split_full_name(table))
    if kind not in KINDS:
        raise ConfigurationError(f"kind={kind!r}: it must be one of {', '.join(KINDS)}")
    if kind == "rebalance" and not metastore.capabilities().has_exclusive_write_lock:
        raise ConfigurationError("rebalance is a kind of compaction of Hive 4; this server is older")
    limit = threshold or CompactionThreshold()
    sizes = read_sizes(metastore, table, counts_rows=limit.rows is not None)
    missing = sorted(set(partitions) - {each.partition for each in sizes})
    if missing:
        raise ConfigurationError(f"table {table} has no partition {', '.join(missing)}")
    chosen = [
        each for each in sizes if each.directory_count and each.partition in (partitions or [each.partition])
    ]
    rows = [each.deltas.row_count for each in chosen]
    delta_rows = None if limit.rows is None else sum(count or 0 for count in rows)
    if kind != "rebalance" and not limit.reached_by(chosen):
        return CompactReport(table, kind, limit, delta_rows, ())
    waiter = _Waiter(metastore, table, CompactionType[kind.upper()], wait_seconds, progress)
    found = tuple(waiter.compact(chosen, at_once))
    after = () if wait_seconds is None else tuple(read_sizes(metastore, table, counts_rows=False))
    return CompactReport(table, kind, limit, delta_rows, found, after)


def read_sizes(
    metastore: MetastoreClient,
    table: str,
    *,
    counts_rows: bool = True,
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
) -> list[DeltaSizes]:
    """Deltas and bases of a table by partition, in a snapshot.

    Raises: as :func:`compact_table`; LockNotAcquiredError: somebody has the table for himself for longer.
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
        """Ask for each in turn, with at most ``at_once`` that have not ended."""
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
        finished = frozenset(each for each in finished if each.state not in _ACTIVE)
        with metastore_errors_as_ours(f"table {self.table}: could not ask for a compaction"):
            is_new = self.metastore.compact(database, name, sizes.partition or None, self.type)
        request = _Request(self.table, sizes, finished, time.monotonic())
        self.progress(
            f"{request.name}: {'asked for' if is_new else 'waiting for the one that is queued:'} "
            f"{self.type.name.lower()} compaction"
        )
        return request

    def _looked_at(self, request: _Request, entries: Sequence[CompactionInfo]) -> str | None:
        """The state in which it ended, None if it has not."""
        of_partition = [each for each in entries if self._is_of(each, request.sizes.partition)]
        active = [each for each in of_partition if each.state in _ACTIVE]
        seconds = time.monotonic() - request.asked_at
        if active:
            self._tell(request, active[-1], seconds)
            return None
        new = [each for each in of_partition if each not in request.finished]
        state = max(new, key=lambda each: (each.id or 0, each.start_time or 0)).state if new else "succeeded"
        if state not in _DONE and not _is_unneeded(state, new):
            raise CompactionError(
                f"{request.name}: the {self.type.name.lower()} compaction {state} after {seconds:.0f} s. "
                f"{self._reason(new)}Its worker's log on the server has more"
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
                f"{seconds:.0f} s, and "
                f"goes on in the server; run the same again to wait for it.{why}"
            )

    def _no_worker(self) -> str:
        threads = self.metastore.get_config_value(_WORKERS, "not told")
        return (
            f"no worker has taken it. The metastore's {_WORKERS} is {threads}: start compactor threads there "
            f"({_WORKERS} > 0 and, on one of several metastores, hive.compactor.initiator.on; Hive 4: "
            "hive.compactor.cleaner.on, and a HiveServer2 where hive.metastore.runworker.in is hs2)"
        )

    def _reason(self, entries: Sequence[CompactionInfo]) -> str:
        """What the server says of the last one."""
        if not entries:
            return ""
        last = max(entries, key=lambda each: (each.id or 0, each.start_time or 0))
        info = self.metastore.get_table(*split_full_name(self.table))
        trouble = compactor_trouble(info.parameters, self.metastore.capabilities())
        if trouble is not None:
            return f"{trouble[0].upper()}{trouble[1:]}. "
        said = f"The server says: {last.error.strip()}. " if last.error.strip() else ""
        return said + (f"Worker: {last.worker_id}. " if last.worker_id else "")

    def _entries(self) -> list[CompactionInfo]:
        database, name = split_full_name(self.table)
        with metastore_errors_as_ours(f"table {self.table}: could not ask for its compactions"):
            found = self.metastore.show_compactions()
        return [each for each in found if (each.database, each.table) == (database, name)]

    def _is_of(self, entry: CompactionInfo, partition: str) -> bool:
        return (entry.partition or "") == partition


def _is_unneeded(state: str, entries: Sequence[CompactionInfo]) -> bool:
    """Whether Hive 4 found nothing to merge, as in a partition with one delta and no base."""
    return state == "refused" and any(_NOT_ENOUGH in each.error for each in entries)


@dataclass
class _Request:
    """A compaction that was asked for. ``finished``: entries of its partition that had ended before."""

    table: str
    sizes: DeltaSizes
    finished: frozenset[CompactionInfo]
    asked_at: float
    told: str = ""
    is_warned: bool = False

    @property
    def name(self) -> str:
        """``database.table/partition``."""
        return f"{self.table}/{self.sizes.partition}" if self.sizes.partition else self.table

    def ended(self, state: str) -> CompactedPartition:
        """How it ended."""
        return CompactedPartition(self.sizes.partition, self.sizes, state, time.monotonic() - self.asked_at)
