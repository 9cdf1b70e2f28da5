"""Major compactions on Hive 2.3 and 3.1, whose queue other programs cannot serve.

Nobody but this module then knows of the compaction. So it takes the place of the server in each step:

1. The base is written to a hidden directory, and compared with what a snapshot reads.
2. All transactions that were open by then must end. A reader among them may have taken its snapshot when an
   id in the base was still open, and releases before Hive 4 fail on a base that is too new for them. Readers
   that come later see all ids of the base as ended.
3. Under the exclusive lock of the partition, the files must still be the ones that were read. Then one rename
   publishes the base.
4. All transactions that were open by then must end: they may still read the old files. Under the exclusive
   lock again, directories that the base covers are removed.

A reader with a transaction or a lock reads the same rows at all times. If a step cannot be made safe, the
compaction is refused before the rename; after it, the old files are kept, and the next compaction removes
them. If the process dies, only hidden files or obsolete directories are left.

Source: Hive's Cleaner (2.3, 3.1), which waits for the locks of the compacted partition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from metastore_client.client import MetastoreClient
from metastore_client.model import CompactionType, TxnInfo, TxnState
from mutation_api.errors import CompactionError, ConfigurationError, LockNotAcquiredError
from mutation_api.format.directory_state import is_compacted
from mutation_api.format.layout import BaseDirectory, is_hidden, parse_directory_name
from mutation_api.read.partition_files import base_formats
from mutation_api.read.table_view import TableView
from mutation_api.storage.connect import storage_at
from mutation_api.storage.protocol import FileEntry
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT, MutatorClientBuilder
from mutation_api.transaction.catalog import split_full_name
from mutation_api.transaction.clock import Clock, SystemClock
from mutation_api.transaction.exclusive_lock import open_transaction, under_exclusive_lock
from mutation_api.transaction.heartbeat import Heartbeat
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.upkeep.compacted_files import CompactedFile
from mutation_api.upkeep.compaction_terms import CompactedDirectory, CompactionSettings
from mutation_api.upkeep.compaction_view import (
    check_unqueued,
    compactable_view,
    partition_location,
    queued_state,
)
from mutation_api.upkeep.kept_files import (
    KeptFiles,
    check_can_keep,
    keep_files,
    remove_expired,
    removed_after_errors,
)
from mutation_api.upkeep.partition_compaction import PartitionCompaction

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_LOCK_SECONDS = 60.0
"""The longest wait for the exclusive lock. Readers that come meanwhile wait behind it."""
_SHOWN = 3
"""The number of transactions that a message names."""


def compact_unqueued(
    metastore: MetastoreClient,
    table: str,
    partition: str = "",
    *,
    settings: CompactionSettings,
    wait_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
    user: str | None = None,
    clock: Clock | None = None,
) -> CompactedDirectory:
    """Compact one partition of a table of Hive 2.3 or 3.1 now (major), without the server's queue.

    Args:
        metastore: a server older than Hive 4.
        table: ``database.table``.
        partition: the escaped name of the partition; '' for an unpartitioned table.
        settings: how to compact.
        wait_seconds: the longest wait for the end of other transactions. The exclusive lock is waited for at
            most for a minute of it, since new readers wait behind the request.
        user: owner of the locks. If None, this process's user.
        clock: measures the waits. If None, the system's.

    Raises:
        ConfigurationError: If the server has a queue for other programs, Hive's own compactor may work on the
            table, or the storage cannot rename.
        CompactionError: If other transactions stay open for too long, the files changed meanwhile, or the new
            ones differ from the old ones. Nothing has changed.
        LockNotAcquiredError: If others used the partition for too long. Nothing has changed.
        Other errors: See :func:`mutation_api.read.snapshot_reader.read_split` and ``client.open_snapshot``.
    """
    database, name = split_full_name(table)
    work = _Unqueued(metastore, database, name, partition, wait_seconds, user, clock or SystemClock())
    if metastore.capabilities().has_compaction_workers:
        raise ConfigurationError(
            f"{work.where}: the server is of {metastore.capabilities().line}, and this library serves its "
            "queue. Leave out without_queue (--without-queue)"
        )
    with metastore_errors_as_ours(f"{work.where} could not be compacted"):
        work.check_alone()
        with open_transaction(metastore, user, work.clock) as keeper:
            return work.done(keeper, settings)


@dataclass(frozen=True)
class _Unqueued:
    metastore: MetastoreClient
    database: str
    name: str
    partition: str
    wait_seconds: float
    user: str | None
    clock: Clock

    @property
    def where(self) -> str:
        full_name = f"table {self.database}.{self.name}"
        return f"{full_name}, partition {self.partition}" if self.partition else full_name

    def check_alone(self) -> None:
        """Refuse if Hive's own compactor works on the partition, or may begin at any time."""
        check_unqueued(self.metastore, self.database, self.name, self.partition, self.where)

    def _queued(self) -> str | None:
        return queued_state(self.metastore, self.database, self.name, self.partition)

    def done(self, keeper: Heartbeat, settings: CompactionSettings) -> CompactedDirectory:
        """Do all steps. ``keeper`` is the transaction under which files are staged."""
        started = time.monotonic()
        full_name = f"{self.database}.{self.name}"
        builder = MutatorClientBuilder().metastore(self.metastore)
        with builder.build() as client, client.open_snapshot(full_name) as snapshot:
            view = compactable_view(snapshot, full_name, self.partition, settings.up_to)
            if not storage_at(view.locations[self.partition]).has_directories:
                raise ConfigurationError(
                    f"{self.where} is in {view.table.location.scheme}, where no directory can be renamed in "
                    "one step, so readers could see half a base. Let Hive compact it"
                )
            if settings.keep_old is not None:
                check_can_keep(view.locations[self.partition])
            kind = CompactionType.MAJOR
            work = PartitionCompaction.planned(kind, view, self.partition, keeper.txn_id, settings)
            result = CompactedDirectory(full_name, self.partition, kind.name.lower(), None)
            is_needed = work.is_needed and any(file.is_of_delta for file in work.files)
            files, kept = self._prepared(work) if is_needed else ([], None)
        if is_needed:
            work = replace(work, view=replace(view, check=keeper.check))
            try:
                with removed_after_errors(kept):
                    self._publish(keeper, work, files)
            finally:
                work.discard()
            result = replace(
                result,
                directory=work.directories[0].name,
                row_count=sum(file.row_count for file in files),
                byte_count=sum(file.byte_count for file in files),
                byte_count_before=work.byte_count,
                kept_until="" if kept is None else kept.until,
            )
        remove_expired(work.view.locations[self.partition])
        kept_for = self._clean(keeper, work.view)
        return replace(result, kept_for=kept_for, seconds=time.monotonic() - started)

    def _prepared(self, work: PartitionCompaction) -> tuple[list[CompactedFile], KeptFiles | None]:
        """Write the hidden base, and copy the old files if they are to be kept."""
        files, keep_old = work.prepare(), work.settings.keep_old
        try:
            return files, None if keep_old is None else keep_files(work, keep_old)
        except BaseException:
            work.discard()
            raise

    def _publish(self, keeper: Heartbeat, work: PartitionCompaction, files: Sequence[CompactedFile]) -> None:
        (hidden,) = work.directories
        location = work.view.locations[self.partition]
        target, storage = location / hidden.name, storage_at(location)
        sizes = {target / each.target.name: each.byte_count for each in files}
        remaining = self._wait_for(keeper, self._open_txns(keeper))
        if remaining:
            raise CompactionError(
                f"{self.where}: {_named(remaining)} may hold a snapshot from before, even without a lock, "
                "and would fail on a newer base. Nothing has changed. Compact again when it has ended, or "
                "abort it with 'hive-mutate abort TXN' if its client is dead"
            )
        with self._locked():
            self.check_alone()
            if not (self._is_where_it_was(work.view) and work.is_unchanged()):
                raise CompactionError(
                    f"{self.where}: its files or its location changed during the compaction. Nothing has "
                    "changed. Compact again"
                )
            keeper.check()
            storage.publish_directory(hidden, target)
            if self._queued() is not None or not work.is_published(sizes):
                storage.publish_directory(target, hidden)
                raise CompactionError(
                    f"{self.where}: Hive began to compact it at the same time, or other files appeared. The "
                    "new base is withdrawn, and nothing has changed. Compact again"
                )
        _log.info("%s: published %s", self.where, target.name)

    def _locked(self) -> AbstractContextManager[int]:
        return under_exclusive_lock(
            self.metastore,
            self.database,
            self.name,
            self.user,
            min(self.wait_seconds, _LOCK_SECONDS),
            self.clock,
            partition=self.partition or None,
        )

    def _is_where_it_was(self, view: TableView) -> bool:
        """Return True if the partition has the location and the columns that were read."""
        info = self.metastore.get_table(self.database, self.name)
        columns = [(each.name, each.type) for each in info.columns]
        if columns != [(each.name, each.type) for each in view.table.columns]:
            return False
        found = partition_location(self.metastore, self.database, self.name, self.partition)
        return found == view.locations[self.partition]

    def _open_txns(self, keeper: Heartbeat) -> dict[int, TxnInfo]:
        """Return the open transactions of others."""
        return {
            each.id: each
            for each in self.metastore.get_open_txns().txns
            if each.state is TxnState.OPEN and each.id != keeper.txn_id
        }

    def _wait_for(self, keeper: Heartbeat, txns: dict[int, TxnInfo]) -> list[TxnInfo]:
        """Wait for the end of transactions. Return those that are still open when the time is over."""
        deadline = self.clock.now() + self.wait_seconds
        while txns:
            keeper.check()
            still = self._open_txns(keeper)
            txns = {id: each for id, each in txns.items() if id in still}
            if not txns or self.clock.now() >= deadline:
                break
            self.clock.sleep(_POLL_SECONDS)
        return list(txns.values())

    def _clean(self, keeper: Heartbeat, view: TableView) -> str:
        """Remove what the compacted base of the partition covers. Return why it is kept, '' if it is not."""
        if not _obsolete(view, self.partition):
            return ""
        remaining = self._wait_for(keeper, self._open_txns(keeper))
        if remaining:
            return f"{_named(remaining)} may still read them. The next compaction removes them"
        try:
            with self._locked():
                if not self._is_where_it_was(view):
                    return "the table was changed meanwhile. The next compaction removes them"
                keeper.check()
                storage = storage_at(view.locations[self.partition])
                for each in _obsolete(view, self.partition):
                    if each.is_directory:
                        storage.delete_directory(each.location)
                    else:
                        storage.delete_file(each.location)
        except LockNotAcquiredError as error:
            return f"{error}. The next compaction removes them"
        return ""


def _obsolete(view: TableView, partition: str) -> list[FileEntry]:
    """Return what no reader needs that sees the newest compacted base of a partition.

    Directories of aborted transactions are among it, since no reader sees them.
    """
    location, version = view.locations[partition], view.table.version
    storage = storage_at(location)
    try:
        entries = [each for each in storage.list(location) if not is_hidden(each.name)]
    except FileNotFoundError:
        return []
    names = [each.name for each in entries if each.is_directory]
    formats = base_formats(storage, location, names, version)
    parsed = {name: parse_directory_name(name, version) for name in names}
    bases = [
        each.last
        for each in parsed.values()
        if isinstance(each, BaseDirectory) and is_compacted(each, version, formats, str(location))
    ]
    last = max((each for each in bases if view.valid_ids.is_valid_base(each)), default=None)

    def is_obsolete(entry: FileEntry) -> bool:
        directory = parsed.get(entry.name)
        if directory is None:  # files from before the table was transactional
            return last is not None
        if isinstance(directory, BaseDirectory):
            return last is not None and directory.last < last
        is_covered = last is not None and directory.last <= last
        return is_covered or view.valid_ids.aborted.issuperset(range(directory.first, directory.last + 1))

    return [each for each in entries if is_obsolete(each)]


def _named(txns: Collection[TxnInfo]) -> str:
    shown = ", ".join(f"{each.id} of {each.user}@{each.hostname}" for each in list(txns)[:_SHOWN])
    more = f" and {len(txns) - _SHOWN} more" if len(txns) > _SHOWN else ""
    return f"{'transaction' if len(txns) == 1 else 'transactions'} {shown}{more}"
