"""The run of an erasure: the loop over search, deletion, compaction, sweep and wait.

A deleted row stays in old files until a major compaction and the server's cleaner have replaced them, and so
do rows of aborted transactions. So an erasure is a loop: search every file, delete what readers see, compact
the partitions of the files that hold a key, sweep, wait until those files are gone, search again. It ends
when a search finds nothing, or at a limit in time. Each step may be repeated, so a run that was killed is run
again; the journal keeps what was found before the deletion.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from metastore_client.client import MetastoreClient
from metastore_client.model import CompactionType
from mutation_api.errors import CompactionError, ConfigurationError, LockNotAcquiredError, ReadError
from mutation_api.hive.connection import Hive
from mutation_api.hive.erasure_journal import ErasureState, Step, find_state, write_state
from mutation_api.hive.erasure_keys import ErasedKeys, sought_keys
from mutation_api.hive.hive_transaction import HiveTransaction
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import TableRole
from mutation_api.transaction.catalog import Catalog, TableSpec, split_full_name
from mutation_api.transaction.clock import Clock
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.upkeep.compactor import THREADS_DEFAULT, compact_partition
from mutation_api.upkeep.erasure.obstacles import (
    Obstacle,
    compactions_by_age,
    is_below_open_writers,
    obstacles,
)
from mutation_api.upkeep.erasure.outside import not_looked_at, remove_metadata, snapshots
from mutation_api.upkeep.erasure.report import ErasedTable, ErasureReport, found_before
from mutation_api.upkeep.erasure.table_search import TableSearch, search_table
from mutation_api.upkeep.kept_files import remove_kept
from mutation_api.upkeep.sweep import sweep
from mutation_api.upkeep.transaction_files import current_ids
from mutation_api.upkeep.watermark_table import ensure_watermark_table

POLL_SECONDS = 1.0
_ATTEMPTS = 5


class Compactor(enum.Enum):
    """The program that compacts: a worker of Hive, this process by the server's queue, or past the queue."""

    HIVE = "hive"
    QUEUE = "queue"
    PAST_QUEUE = "past queue"


@dataclass(frozen=True)
class KeyedTable:
    """One table, the sought column, and the locations of the partitions; '' in one without."""

    name: str
    column: str
    keys: ErasedKeys
    metastore: MetastoreClient

    @classmethod
    def of(
        cls, metastore: MetastoreClient, name: str, column: str | tuple[str, str], keys: ErasedKeys
    ) -> KeyedTable:
        """Check that rows can be deleted, and that the column can have the keys."""
        table = cls(name, (column if isinstance(column, str) else column[0]).lower(), keys, metastore)
        spec = TableSpec(*split_full_name(name), TableRole.SINK)
        with metastore_errors_as_ours(f"could not look up table {name}"):
            opened = Catalog(metastore).read(spec).table
        if not opened.version.has_row_ids:
            raise ConfigurationError(
                f"table {name} is insert-only, so no row can be deleted from it. Rewrite it without the "
                "rows, for example with hive-mutate overwrite"
            )
        sought_keys(opened, table.column, keys)
        return table

    def search(self, threads: int | None, progress: Callable[[str], None]) -> TableSearch:
        """Search all files."""
        with metastore_errors_as_ours(f"could not look up table {self.name}"):
            catalog = Catalog(self.metastore)
            spec = TableSpec(*split_full_name(self.name), TableRole.SOURCE)
            opened = catalog.with_partitions(catalog.read_with_partition_names(spec))
        table = opened.table
        names: Sequence[str] = opened.partition_names if table.partition_keys else [""]
        locations: dict[str, Location] = {name: table.partition_location(name) for name in names}
        sought = sought_keys(table, self.column, self.keys)
        return search_table(sought, locations, threads=threads, progress=progress)


@dataclass
class ErasureRun:
    """One run of an erasure. ``deadline`` is a time of ``clock``, ``journal`` the watermark table.

    If this process compacts, it does so with ``at_once`` partitions at once; past the queue with one, since a
    compaction there waits for all other transactions.
    """

    metastore: MetastoreClient
    hive: Hive
    tables: Mapping[str, KeyedTable]
    journal: str
    threads: int | None
    compactor: Compactor
    at_once: int
    progress: Callable[[str], None]
    clock: Clock
    deadline: float
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    began_at: datetime = field(default_factory=functools.partial(datetime.now, UTC))

    def dry(self) -> ErasureReport:
        """Search and count, and change nothing."""
        searches = self._search()
        begun = ErasureState.begun(self._keys, self._columns, self.began_at)
        state = _with_findings(begun, searches)
        with self.hive.transaction(*self.tables) as tx:
            for name, deleted in self._deleted(tx, state, dry_run=True).items():
                state = state.with_table(name, rows_deleted=deleted)
            tx.abort()
        return self._report("dry run", state, searches, ())

    def run(self) -> ErasureReport:
        """Go on until nothing is left, or the time is over."""
        ensure_watermark_table(self.metastore, self.journal)
        with self.hive.snapshot(self.journal) as view:
            state = find_state(view.table(self.journal), self._columns, self._keys)
        if state is not None and state.step == Step.ERASED:
            searches = self._search()
            if _are_free(searches):
                self.progress(f"erasure {state.name} is done already, and was checked again")
                return self._ended(state, searches)
            state = None  # the keys were written again since
        if state is None:
            state = ErasureState.begun(self._keys, self._columns, self.began_at)
            self.progress(f"erasure {state.name} begins")
        else:
            self.progress(
                f"erasure {state.name} goes on, begun at {state.began_at.isoformat(timespec='seconds')}"
            )
        state = self._delete(state)  # before the search, which takes longer
        searches = self._search()
        if not state.is_searched:
            state = _with_findings(state, searches)
            self._keep(state)
        while not _are_free(searches):
            state = self._compact(state, searches)
            self._sweep(searches)
            self._wait(searches)
            searches = self._search()
            if _are_free(searches):
                break
            is_late = self.clock.now() >= self.deadline
            if is_late or self.failures or self._is_hopeless(searches):
                return self._report("unfinished", state, searches, self._obstacles(searches))
            state = self._delete(state)
        return self._ended(state, searches)

    def _ended(self, state: ErasureState, searches: dict[str, TableSearch]) -> ErasureReport:
        """Remove keys from the metastore, and note that nothing is left."""
        state, searches, found = self._finished(state, searches)
        if found:
            return self._report("unfinished", state, searches, found)
        state = dataclasses.replace(state, step=Step.ERASED, gone_at=state.gone_at or datetime.now(UTC))
        self._keep(state)
        return self._report("erased", state, searches, ())

    # ---- steps

    def _search(self) -> dict[str, TableSearch]:
        return {name: self._searched(name) for name in self.tables}

    def _searched(self, name: str) -> TableSearch:
        found = self.tables[name].search(self.threads, self.progress)
        self.progress(
            f"{name}: searched {len(found.files):,} files ({found.byte_count:,} bytes): "
            f"{len(found.left):,} hold a key or could not be searched"
        )
        return found

    @property
    def _columns(self) -> dict[str, str]:
        return {name: table.column for name, table in self.tables.items()}

    @property
    def _keys(self) -> dict[str, ErasedKeys]:
        return {name: table.keys for name, table in self.tables.items()}

    def _keep(self, state: ErasureState) -> None:
        def write(tx: HiveTransaction) -> None:
            write_state(tx.table(self.journal), state, tx.txn_id, datetime.now(UTC))

        self.hive.run(write, self.journal, attempts=_ATTEMPTS)

    def _delete(self, state: ErasureState) -> ErasureState:
        """Delete the rows that readers see, and note it in the journal, in one transaction."""

        def delete(tx: HiveTransaction) -> ErasureState:
            found = state
            for name, count in self._deleted(tx, state, dry_run=False).items():
                found = found.with_table(name, rows_deleted=state.tables[name].rows_deleted + count)
            # The time is that of the last statement. It is exact to the length of the commit.
            is_first = state.step < Step.DELETED or found != state
            now = datetime.now(UTC)
            found = dataclasses.replace(
                found, step=Step.DELETED, invisible_at=now if is_first else state.invisible_at
            )
            write_state(tx.table(self.journal), found, tx.txn_id, now)
            return found

        found = self.hive.run(delete, *self.tables, self.journal, attempts=_ATTEMPTS)
        self.progress("the deletion is committed: new readers do not see the rows")
        return found

    def _deleted(self, tx: HiveTransaction, state: ErasureState, *, dry_run: bool) -> dict[str, int]:
        """Delete the rows of each table, and return their numbers."""
        counts = {}
        for name, table in self.tables.items():
            sought = sought_keys(tx.table(name).descriptor, table.column, table.keys)
            merge = tx.table(name).merge(sought.keys.keys, on=[table.column]).when_matched_delete()
            report = merge.dry_run() if dry_run else merge.execute()
            counts[name] = report.total.deleted
            self.progress(f"{name}: {report.total.deleted:,} rows {'would be ' if dry_run else ''}deleted")
        return counts

    def _compact(self, state: ErasureState, searches: Mapping[str, TableSearch]) -> ErasureState:
        """Compact the partitions whose files hold a key. Those that must wait are done by the next round."""
        for name, search in searches.items():
            partitions = search.partitions_to_rewrite
            if not partitions or not self._waits_for_writers(search):
                continue
            work = functools.partial(self._compacted, name)
            at_once = 1 if self.compactor is Compactor.PAST_QUEUE else self.at_once
            is_done = side_by_side(work, partitions, at_once)
            done = [search.masked(each) for each, is_one in zip(partitions, is_done, strict=True) if is_one]
            known = [each for each in state.tables[name].rewritten if each not in done]
            rewritten = tuple(sorted([*known, *done]))
            state = state.with_table(name, rewritten=rewritten)
        return state

    def _waits_for_writers(self, search: TableSearch) -> bool:
        """Wait until all transactions that may write the table are newer than the deletion."""
        table = search.sought.table
        newest = current_ids(self.metastore, table).ids.high_watermark
        return self._until(lambda: not is_below_open_writers(self.metastore, search, newest))

    def _compacted(self, table: str, partition: str) -> bool:
        """Compact a partition after the compactions that are in the queue. Return False if it must wait."""
        if not self._until(lambda: not self._is_queued(table, partition)):
            return False
        where = f"{table}/{partition}" if partition else table
        self.failures.pop((table, partition), None)
        try:
            if self.compactor is not Compactor.HIVE:
                done = compact_partition(
                    self.metastore,
                    table,
                    partition,
                    threads=self.threads or THREADS_DEFAULT,
                    without_queue=self.compactor is Compactor.PAST_QUEUE,
                    wait_seconds=max(0.0, self.deadline - self.clock.now()),
                )
                self.progress(str(done))
                return done.directory is not None
            database, name = split_full_name(table)
            with metastore_errors_as_ours(f"table {where}: cannot request a compaction"):
                self.metastore.compact(database, name, partition or None, CompactionType.MAJOR)
            self.progress(f"{where}: requested a major compaction")
        except LockNotAcquiredError as error:
            self.progress(f"{where}: must wait: {error}")
            return False
        except (CompactionError, ReadError) as error:
            self.progress(f"{where}: not compacted: {error}")
            if not self._is_queued(table, partition):  # another process was faster
                self.failures[table, partition] = str(error)
            return False
        return True

    def _is_queued(self, table: str, partition: str) -> bool:
        return any(
            each.may_change_files and (each.partition or "") == partition
            for each in compactions_by_age(self.metastore, table)
        )

    def _sweep(self, searches: Mapping[str, TableSearch]) -> None:
        """Remove what ended transactions have staged, and files from before compactions that hold a key."""
        for name, search in searches.items():
            for kept in dict.fromkeys(file.kept_in for file in search.left):
                if kept is not None and remove_kept(kept):
                    self.progress(f"{name}: removed old files that a compaction kept: {kept}")
            for swept in sweep(self.metastore, name):
                for each in swept.removed:
                    self.progress(f"{name}: removed staged files: {each.location}")

    def _wait(self, searches: Mapping[str, TableSearch]) -> None:
        """Wait until the files that hold a key are gone, a compaction has failed, or the time is over."""
        files = [f.location for search in searches.values() for f in search.left if f.is_removable]

        def are_gone() -> bool:
            while files and storage_at(files[-1]).stat(files[-1]) is None:
                files.pop()
            return not files or self._has_failed(searches)

        if self.compactor is Compactor.PAST_QUEUE:
            self.clock.sleep(
                0 if are_gone() else POLL_SECONDS
            )  # no cleaner comes: the next round removes them
        else:
            self._until(are_gone)

    def _has_failed(self, searches: Mapping[str, TableSearch]) -> bool:
        """Return True if a compaction has failed, so that waiting for the cleaner is in vain."""
        if self.failures:
            return True
        for name, search in searches.items():
            partitions = search.partitions_to_rewrite
            entries = compactions_by_age(self.metastore, name)
            newest = {each.partition or "": each for each in entries}
            # Hive 2 gives no numbers, so an earlier failure may come after a request that nobody has taken.
            active = {each.partition or "" for each in entries if each.may_change_files}
            for partition, entry in newest.items():
                if partition in partitions and partition not in active and entry.has_failed:
                    self.failures[name, partition] = (
                        entry.error.strip() or f"{entry.state}; the worker's log on the server has the reason"
                    )
        return bool(self.failures)

    def _until(self, condition: Callable[[], bool]) -> bool:
        while not condition():
            if self.clock.now() >= self.deadline:
                return False
            self.clock.sleep(POLL_SECONDS)
        return True

    def _is_hopeless(self, searches: Mapping[str, TableSearch]) -> bool:
        """Return True if only a person can remove what is left."""
        left = [file for search in searches.values() for file in search.left]
        return not any(file.is_removable for file in left)

    def _finished(
        self, state: ErasureState, searches: dict[str, TableSearch]
    ) -> tuple[ErasureState, dict[str, TableSearch], tuple[Obstacle, ...]]:
        """Remove keys from the metastore. Return the last searches, and what is in the way."""
        found: list[Obstacle] = snapshots(list(searches.values()))
        for name, search in searches.items():
            with metastore_errors_as_ours(f"table {name}: could not remove keys from the metastore"):
                removed = remove_metadata(self.metastore, search, self.clock)
            found += removed.obstacles
            state = state.with_table(
                name,
                partitions_dropped=state.tables[name].partitions_dropped + removed.partitions_dropped,
                statistics_removed=state.tables[name].statistics_removed + removed.statistics_removed,
            )
            if removed.partitions_dropped:
                searches = {**searches, name: self._searched(name)}
        return state, searches, tuple(found)

    # ---- report

    def _obstacles(self, searches: Mapping[str, TableSearch]) -> tuple[Obstacle, ...]:
        with metastore_errors_as_ours("could not find out what is in the way"):
            is_past_queue = self.compactor is Compactor.PAST_QUEUE
            return tuple(
                obstacles(self.metastore, list(searches.values()), self.failures, is_past_queue=is_past_queue)
            )

    def _report(
        self,
        result: str,
        state: ErasureState,
        searches: Mapping[str, TableSearch],
        found: Sequence[Obstacle],
    ) -> ErasureReport:
        tables = tuple(
            ErasedTable(
                each.column,
                self.tables[name].keys.hashes(state.salt),
                each.rows_deleted,
                each.before,
                each.rewritten,
                searches[name],
                each.statistics_removed,
                each.partitions_dropped,
            )
            for name, each in state.tables.items()
        )
        return ErasureReport(
            state.name,
            result,
            self.metastore.capabilities().line,
            state.salt,
            state.began_at,
            state.invisible_at,
            state.gone_at,
            datetime.now(UTC),
            tables,
            tuple(found),
            self._not_looked_at(searches),
        )

    def _not_looked_at(self, searches: Mapping[str, TableSearch]) -> tuple[Mapping[str, str], ...]:
        with metastore_errors_as_ours("could not find out what was not searched"):
            return not_looked_at(self.metastore, list(searches.values()))


def _are_free(searches: Mapping[str, TableSearch]) -> bool:
    return all(search.is_free for search in searches.values())


def _with_findings(state: ErasureState, searches: Mapping[str, TableSearch]) -> ErasureState:
    for name, search in searches.items():
        state = state.with_table(name, before=found_before(search))
    return state
