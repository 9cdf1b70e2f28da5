"""restore_table: undo a compaction with the files from before it, which ``keep_old`` kept.

A compaction changes no row. So to undo it means to let readers read the old files again, and no transaction
is lost: deltas that were written since stay above the old files, and ROW__IDs are those that they were. A
later compaction is undone first, if its files were kept as well.

1. The kept files are copied into a hidden directory.
2. Under the exclusive lock of the partition, with nothing in the server's queue, the old directories get
   their names again. The compacted directory covers them, so no reader reads them yet.
3. One rename hides the compacted directory. From then on, readers read the old files.
4. The files are looked for again. The server's cleaner of aborted transactions asks for no lock. If it
   listed the directories between 2 and 3, it removes old ones, and they are copied again.

If the process dies, either readers read the compacted files, or the old ones. A rebalance gives new ROW__IDs
to rows, so it can only be undone while no transaction has written since.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from metastore_client.client import MetastoreClient
from mutation_api.errors import CompactionError, ConfigurationError
from mutation_api.format.layout import is_hidden, parse_directory_name
from mutation_api.read.table_view import TableView
from mutation_api.storage.connect import copy_file, storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Staged
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.transaction.catalog import Catalog, TableSpec, normal_full_name, split_full_name
from mutation_api.transaction.clock import Clock, SystemClock
from mutation_api.transaction.exclusive_lock import open_transaction, under_exclusive_lock
from mutation_api.transaction.heartbeat import Heartbeat
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.manifest import staging_of
from mutation_api.transaction.staging import children_of
from mutation_api.upkeep.compaction_view import check_unqueued, files_read, partition_location, queued_state
from mutation_api.upkeep.kept_files import KeptFiles, find_kept
from mutation_api.upkeep.transaction_files import current_ids, files_below

_log = logging.getLogger(__name__)

RESTORE_WAIT_SECONDS_DEFAULT = 60.0
_SETTLE_SECONDS = 1.0
_SETTLE_ROUNDS = 5


@dataclass(frozen=True)
class RestoredPartition:
    """One partition whose last compaction is undone.

    ``kind`` is that of the compaction, ``hidden`` are its directories, which are kept until ``kept_until``.
    ``restored`` are the names of the directories and files that readers read instead.
    """

    table: str
    partition: str
    kind: str
    hidden: tuple[str, ...]
    restored: tuple[str, ...]
    byte_count: int
    kept_until: str

    def to_dict(self) -> dict[str, object]:
        """Return the result as a JSON-serialisable dict."""
        return dict(vars(self))

    def __str__(self) -> str:
        """Return one line."""
        where = f"{self.table}/{self.partition}" if self.partition else self.table
        return (
            f"{where}: readers read {len(self.restored):,} old directories and files again "
            f"({self.byte_count:,} bytes) instead of {', '.join(self.hidden)}"
        )


def restore_table(
    metastore: MetastoreClient,
    table: str,
    *,
    partitions: Sequence[str] = (),
    wait_seconds: float = RESTORE_WAIT_SECONDS_DEFAULT,
    user: str | None = None,
    clock: Clock | None = None,
) -> tuple[RestoredPartition, ...]:
    """Undo the last compaction of partitions, whose old files ``keep_old`` kept.

    Rows and ROW__IDs stay as they are, including what was written since. Only a rebalance, which changes
    ROW__IDs, is refused if anything was written since.
    A second call undoes the compaction before, if its files are kept as well.

    Args:
        metastore: metastore of the table; stays open.
        table: ``database.table``.
        partitions: names of the partitions (``day=2024-05-01``). Default: all with kept files.
        wait_seconds: the longest wait for the exclusive lock of a partition.
        user: owner of the locks. If None, this process's user.
        clock: measures the wait. If None, the system's.

    Returns:
        One result for each partition.

    Raises:
        ConfigurationError: If a partition has no kept files, or Hive's own compactor may begin at any time
            (before Hive 4).
        CompactionError: If the compaction is not the last one, its cleaning has not ended, the kept files
            have expired or are incomplete, or rows would change. Nothing has changed in that partition.
        LockNotAcquiredError: If others used the partition for too long. Nothing has changed.
        TableNotFoundError, TableNotMutableError: If it is not an ACID table.
        OSError: If a file cannot be copied or renamed.

    Example:
        >>> for each in restore_table(metastore, "sales.orders"):  # doctest: +SKIP
        ...     print(each.hidden)
        ('base_0000004_v0000012',)
    """
    table, clock = normal_full_name(table), clock or SystemClock()
    with metastore_errors_as_ours(f"table {table} could not be restored"):
        catalog = Catalog(metastore)
        spec = TableSpec(*split_full_name(table), TableRole.SOURCE)
        opened = catalog.with_partitions(catalog.read_with_partition_names(spec))
        names = opened.partition_names if opened.table.partition_keys else [""]
        if missing := sorted(set(partitions) - set(names)):
            raise ConfigurationError(f"table {table} does not have the partition {', '.join(missing)}")
        found = {name: _last_kept(opened.table.partition_location(name)) for name in partitions or names}
        kept = {name: each for name, each in found.items() if each is not None}
        if not kept or (partitions and len(kept) < len(found)):
            without = f" of {', '.join(sorted(set(found) - set(kept)))}" if partitions else ""
            raise ConfigurationError(
                f"table {table}: no files from before a compaction are kept{without}. Only compactions with "
                "keep_old (--keep-old) keep them, and only for its time"
            )
        return tuple(
            _Restore(metastore, opened.table, name, each, wait_seconds, user, clock).done()
            for name, each in kept.items()
        )


def _last_kept(location: Location) -> KeptFiles | None:
    """Return the files of the last compaction that is not undone."""
    storage = storage_at(location)
    for each in reversed(find_kept(location)):
        hidden = {entry.name for entry in children_of(storage, each.undone)}
        if not hidden.issuperset(each.results):
            return each
    return None


@dataclass(frozen=True)
class _Restore:
    metastore: MetastoreClient
    table: AcidTable
    partition: str
    kept: KeptFiles
    wait_seconds: float
    user: str | None
    clock: Clock

    @property
    def where(self) -> str:
        full_name = f"table {self.table.full_name}"
        return f"{full_name}, partition {self.partition}" if self.partition else full_name

    @cached_property
    def location(self) -> Location:
        return self.table.partition_location(self.partition)

    def done(self) -> RestoredPartition:
        """Do all steps."""
        if self.kept.is_expired:
            raise CompactionError(
                f"{self.where}: the files from before the compaction were kept until {self.kept.until}, and "
                "may be removed at any time"
            )
        self._check_copies()
        database, name = self.table.database, self.table.name
        with open_transaction(self.metastore, self.user, self.clock) as keeper:
            staging = staging_of(self.table, self.location, keeper.txn_id)
            try:
                self._copy(staging / "restore", self.kept.names)
                with under_exclusive_lock(
                    self.metastore,
                    database,
                    name,
                    self.user,
                    self.wait_seconds,
                    self.clock,
                    partition=self.partition or None,
                ):
                    self._check()
                    self._switch(keeper, staging / "restore")
                    self._settle(staging)
            finally:
                storage_at(staging).delete_directory(staging)
        return RestoredPartition(
            self.table.full_name,
            self.partition,
            self.kept.kind,
            self.kept.results,
            tuple(self.kept.names),
            self.kept.byte_count,
            self.kept.until,
        )

    # ---- checks

    def _check_copies(self) -> None:
        root = self.kept.copies
        found = {each.location.relative_to(root): each.size for each in files_below(root)}
        wrong = sorted(path for path, size in self.kept.files.items() if found.get(path) != size)
        if wrong:
            raise CompactionError(
                f"{self.where}: the copy {root / wrong[0]} has {found.get(wrong[0], 'no')} bytes, expected "
                f"{self.kept.files[wrong[0]]}. Nothing has changed"
            )

    def _view(self) -> TableView:
        """Return what a reader sees that begins now."""
        known = current_ids(self.metastore, self.table)
        return TableView(self.table, {self.partition: self.location}, known.ids, known.txns)

    def _check(self) -> None:
        """Refuse if the compaction is not in effect, or if readers would see other rows without it."""
        database, name = self.table.database, self.table.name
        if not self.metastore.capabilities().has_compaction_workers:
            check_unqueued(self.metastore, database, name, self.partition, self.where)
        elif (state := queued_state(self.metastore, database, name, self.partition)) is not None:
            raise CompactionError(
                f"{self.where}: a compaction is {state}, so files may be removed at any time. Nothing has "
                "changed. Wait until the server's cleaner is done: hive-mutate show compactions"
            )
        if partition_location(self.metastore, database, name, self.partition) != self.location:
            raise CompactionError(f"{self.where}: its location changed. Nothing has changed. Try again")
        view, storage = self._view(), storage_at(self.location)
        hidden = {entry.name for entry in children_of(storage, self.kept.undone)}
        unread = sorted(set(self.kept.results) - hidden - self._names_read())
        if unread:
            raise CompactionError(
                f"{self.where}: readers no longer read {unread[0]}, which replaced the kept files: a later "
                "compaction or overwrite replaced it. Nothing has changed. A compaction can only be undone "
                "after those that came later, if their files were kept as well"
            )
        forgotten = [id for id in self.kept.hidden_ids if view.valid_ids.is_valid(id)]
        if forgotten:
            raise CompactionError(
                f"{self.where}: id {forgotten[0]} was aborted, which the server has forgotten since, so its "
                "rows in the kept files would appear. Nothing has changed"
            )
        if self.kept.kind == "rebalance":
            self._check_nothing_since()

    def _check_nothing_since(self) -> None:
        for entry in children_of(storage_at(self.location), self.location):
            if not entry.is_directory or is_hidden(entry.name):
                continue
            parsed = parse_directory_name(entry.name, self.table.version)
            if parsed is not None and parsed.last > self.kept.last:
                raise CompactionError(
                    f"{self.where}: {entry.name} was written after the rebalance, and may refer to the new "
                    "ROW__IDs. Nothing has changed. A rebalance can only be undone while nothing was written "
                    "since"
                )

    # ---- steps

    def _name(self, file: Location) -> str:
        return file.relative_to(self.location).partition("/")[0]

    def _copy(self, hidden: Location, names: Sequence[str]) -> None:
        """Copy kept directories and files into a hidden directory."""
        storage, wanted = storage_at(hidden), set(names)
        paths = [path for path in self.kept.files if path.partition("/")[0] in wanted]
        for directory in dict.fromkeys((hidden / path).parent for path in paths):
            storage.create_directory(directory)
        side_by_side(lambda path: copy_file(self.kept.copies / path, hidden / path), paths, storage.threads)

    def _missing(self) -> list[str]:
        """Return the names of what is not complete in the partition's directory.

        Raises CompactionError if something else has such a name.
        """
        names = self.kept.names
        below = side_by_side(self._files_of, names, storage_at(self.location).threads)
        found = {path: size for sizes in below for path, size in sizes.items()}
        for path, size in found.items():
            if path in self.kept.files and self.kept.files[path] != size:
                raise CompactionError(
                    f"{self.where}: {self.location / path} has {size:,} bytes, and the kept one had "
                    f"{self.kept.files[path]:,}. No row was changed"
                )
        missing = [path for path in self.kept.files if path not in found]
        return list(dict.fromkeys(path.partition("/")[0] for path in missing))

    def _files_of(self, name: str) -> dict[str, int]:
        storage, location = storage_at(self.location), self.location / name
        entry = storage.stat(location)
        files = files_below(location) if entry is not None and entry.is_directory else [entry]
        return {each.location.relative_to(self.location): each.size for each in files if each is not None}

    def _bring_back(self, hidden: Location, names: Sequence[str]) -> None:
        """Give directories and files their names again. Remains that a cleaner left are removed."""
        storage = storage_at(self.location)
        for name in names:
            if name in self.kept.files:
                storage.publish(Staged(hidden / name), self.location / name)
            else:
                storage.delete_directory(self.location / name)
                storage.publish_directory(hidden / name, self.location / name)

    def _switch(self, keeper: Heartbeat, hidden: Location) -> None:
        """Let readers read the old files."""
        storage = storage_at(self.location)
        before = self._names_read() - set(self.kept.results)
        self._bring_back(hidden, self._missing())
        storage.create_directory(self.kept.undone)
        keeper.check()
        there = {entry.name for entry in children_of(storage, self.location)}
        moved = [name for name in self.kept.results if name in there]
        for name in moved:
            storage.publish_directory(self.location / name, self.kept.undone / name)
        if (found := self._names_read()) != before | set(self.kept.names):
            for name in moved:
                storage.publish_directory(self.kept.undone / name, self.location / name)
            wrong = sorted(found ^ (before | set(self.kept.names)))
            raise CompactionError(
                f"{self.where}: without the compaction, readers would read other files than before it: "
                f"{', '.join(wrong)}. No row was changed, and the compaction is in effect again. Report this"
            )

    def _names_read(self) -> set[str]:
        """Return the names of the directories and files that a reader reads that begins now."""
        return {self._name(each.location) for each in files_read(self._view(), self.partition)}

    def _settle(self, staging: Location) -> None:
        """Bring back what a cleaner removes that had listed the directories before the switch."""
        for number in range(_SETTLE_ROUNDS):
            missing = self._missing()
            if number and not missing:
                return
            if missing:
                _log.warning("%s: %s was removed and is copied again", self.where, missing[0])
                self._copy(staging / f"again{number}", missing)
                self._bring_back(staging / f"again{number}", missing)
            self.clock.sleep(_SETTLE_SECONDS)
        raise CompactionError(
            f"{self.where}: restored files were removed {_SETTLE_ROUNDS} times. Their copies are in "
            f"{self.kept.copies}. Stop the server's cleaner, and copy them by hand"
        )
