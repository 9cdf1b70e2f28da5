"""The staged output of one writer of a table: its hidden directories, its partitions, and its removal.

:mod:`mutation_api.transaction.manifest` defines the names and marks. The committer publishes the staged
files; :mod:`mutation_api.transaction.staging` removes files that are never published.

Write permission is checked once for each partition. Without this check the commit would fail after all the
work is done.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from metastore_client.model import LockInfo
from mutation_api.errors import (
    ConfigurationError,
    DeltaWriteError,
    MutationError,
    RowIdNotFoundError,
    TransactionStateError,
    listed,
)
from mutation_api.read.table_view import partition_names
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Storage
from mutation_api.storage.tree import Background, KnowsPermissions
from mutation_api.table.acid_table import AcidTable, SnapshotView, TableRole
from mutation_api.transaction.manifest import (
    DeltaManifest,
    attempt_mark,
    delta_names,
    staging_directory,
    staging_of,
)

logger = logging.getLogger(__name__)


class OpenTransaction(SnapshotView, Protocol):
    """The part of :class:`mutation_api.transaction.transaction.Transaction` that a writer needs."""

    def on_lost(self, callback: Callable[[Exception], None]) -> None:
        """Register a callback that is called if the lock or the transaction is lost."""
        ...

    def changing(self, table: str) -> contextlib.AbstractContextManager[None]:
        """Return the block in which a table receives its changes; a table has one such block."""
        ...

    def add_manifests(self, table: str, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
        """Add the manifests of a writer's staged files; the commit publishes the files."""
        ...

    def settle(self, table: str) -> None:
        """Write the deletes of an overwrite, if any. Call it before the next step of the table."""
        ...


class LookingTransaction(OpenTransaction, Protocol):
    """The part of a transaction that a merge, its preview and an overwrite need."""

    def merging(self, table: str, keys: Sequence[str] | None, *, inserts: bool) -> None:
        """Announce that rows will be merged by these columns, before the table is read."""
        ...

    def may_replace(self, table: str) -> bool:
        """Return True if the next change set may replace partitions without deleting their rows."""
        ...

    def replace(self, table: str, rows: Mapping[str, int], as_deletes: Callable[[], None]) -> None:
        """Record that the last change set replaces partitions.

        Args:
            table: ``database.table``.
            rows: the numbers of old rows by (escaped) partition.
            as_deletes: writes the deletes of these rows, if another step of the table follows.
        """
        ...

    def other_locks(self, table: str) -> Sequence[LockInfo]:
        """Return the write locks on a table that other transactions hold or wait for."""
        ...


def raise_if_lost(transaction: OpenTransaction, error: MutationError) -> None:
    """Raise the error about the loss of the transaction in place of an error that the loss caused.

    Do nothing if the transaction is not lost.
    """
    try:
        transaction.check()
    except MutationError as loss:
        raise loss from error


def check_sink(table: AcidTable) -> None:
    """Raise TransactionStateError if the table is only read in this transaction."""
    if table.role is not TableRole.SINK:
        raise TransactionStateError(
            f"table {table.full_name} is only a source of this transaction and cannot be written; "
            "add it with add_sink_table()"
        )


def check_partitions_exist(
    transaction: OpenTransaction, table: AcidTable, manifests: Sequence[DeltaManifest]
) -> None:
    """Refuse updates and deletes in partitions that do not exist, since such rows cannot exist."""
    if table.partition_keys:
        names = {m.partition_name for m in manifests if m.update_count or m.delete_count}
        check_known_partitions(transaction, table, sorted(names))


def check_known_partitions(transaction: OpenTransaction, table: AcidTable, names: Sequence[str]) -> None:
    """Raise RowIdNotFoundError if the table lacks one of these partitions."""
    if not table.partition_keys:
        return
    existing = {*partition_names(transaction, table.full_name)}
    unknown = [name for name in names if name not in existing]
    if unknown:
        raise RowIdNotFoundError(
            f"table {table.full_name}: the change set updates or deletes rows in partitions that do not "
            f"exist: {listed(unknown)}; check the partition columns of the changes"
        )


def table_roots(table: AcidTable) -> Sequence[Location]:
    """Return the locations of the table and of each partition outside it."""
    return tuple(dict.fromkeys((table.location, *table.partition_locations.values())))


def _writer_directories(table: AcidTable, writer_id: str) -> Iterator[tuple[Storage, Location]]:
    """Yield the writer's directories in the table and in each partition outside it."""
    for root in table_roots(table):
        yield storage_at(root), staging_directory(root, table.required_txn_id()) / writer_id


def remove_losing_attempts(table: AcidTable, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
    """Remove the files of losing task attempts.

    Uploads do not name their attempt, so the commit removes those of losing attempts, with their marks.
    """
    winners = {m.attempt_id for m in manifests}
    for storage, directory in _writer_directories(table, writer_id):
        if storage.publishes_by_rename:
            with contextlib.suppress(FileNotFoundError):
                for entry in storage.list(directory):
                    if entry.name not in winners:
                        logger.info("removing the files of a losing task attempt: %s", entry.location)
                        storage.delete_directory(entry.location)


def remove_writer(table: AcidTable, writer_id: str) -> None:
    """Remove everything that a writer wrote.

    On an object store this also removes the uploads of other writers of the same statement. Manifests of
    those uploads will be refused.
    """
    names = delta_names(table.required_write_id(), table.statement_id)
    for storage, directory in _writer_directories(table, writer_id):
        try:
            if not storage.publishes_by_rename:
                uploads = storage.unfinished(directory.parent.parent)
                storage.abandon(each for each in uploads if each.location.parent.name in names)
            storage.delete_directory(directory)
        except OSError:
            logger.exception("removing %s failed; it is hidden, and the abort will try again", directory)


class AttemptStaging:
    """Creates the directories of an attempt on demand, and removes them.

    Args:
        table: a table that is bound to a transaction.
        writer_id: the name of the writer's directory.
        attempt_id: the name of the attempt's directory, below the writer's.

    Raises:
        ConfigurationError: If an id is not a valid directory name.
    """

    def __init__(self, table: AcidTable, writer_id: str, attempt_id: str) -> None:
        self.writer_id = _directory_name("writer_id", writer_id)
        self.attempt_id = _directory_name("attempt_id", attempt_id)
        self._table = table
        self._txn_id = table.required_txn_id()
        self._mark_name = attempt_mark(table.required_write_id())
        self._directories: set[Location] = set()

    def directory(self, partition_location: Location) -> Location:
        """Return the directory in which files of a partition are staged, and create it if necessary.

        It lies near the partition, so that publishing is a rename. If the storage stages files as uploads
        instead, a mark in the directory records that this attempt has begun.

        Raises:
            DeltaWriteError: If the directory cannot be created.
        """
        staging = staging_of(self._table, partition_location, self._txn_id)
        directory = staging / self.writer_id / self.attempt_id
        if directory not in self._directories:
            try:
                storage = storage_at(directory)
                storage.create_directory(directory)
                self._directories.add(directory)
                if not storage.publishes_by_rename:
                    storage.create(directory / self._mark_name).close()
            except OSError as error:
                raise self._failed(directory, "created", error) from error
        return directory

    def check_marks(self) -> None:
        """Check that the transaction has not ended in the meantime.

        The process that ends a transaction removes the marks, and the uploads that exist by then. This
        attempt may be a duplicate whose result is not needed, so it must remove its later uploads itself.

        Raises:
            DeltaWriteError: If a mark is gone.
        """
        for directory in self._directories:
            storage = storage_at(directory)
            if not storage.publishes_by_rename and storage.stat(directory / self._mark_name) is None:
                raise DeltaWriteError(
                    f"table {self._table.full_name}, transaction {self._txn_id}: the mark of this attempt "
                    f"in {directory} is gone. The transaction has ended without the changes of this attempt"
                )

    def delete(self, *, keeps_marks: bool) -> None:
        """Delete the directories.

        Args:
            keeps_marks: True to keep directories that hold marks. A sweep needs the mark to find the
                remaining uploads.

        Raises:
            DeltaWriteError: If a directory cannot be deleted.
        """
        for directory in self._directories:
            storage = storage_at(directory)
            if keeps_marks and not storage.publishes_by_rename:
                continue
            try:
                storage.delete_directory(directory)
            except OSError as error:
                raise self._failed(directory, "deleted", error) from error

    def _failed(self, directory: Location, step: str, error: OSError) -> DeltaWriteError:
        return DeltaWriteError(f"table {self._table.full_name}: {directory} could not be {step}: {error}")


def _directory_name(what: str, value: str) -> str:
    if not value or "/" in value or value in (".", ".."):
        raise ConfigurationError(f"{what} {value!r} is not a valid directory name")
    return value


class WritePermissions:
    """Checks permissions in the background while data is written, on storages that can report them.

    Args:
        table_name: the table of the partitions, for messages.
        background: runs the checks. Its next call raises DeltaWriteError if a partition may not be written
            to.
    """

    def __init__(self, table_name: str, background: Background) -> None:
        self._table_name = table_name
        self._background = background
        self._asked_for: set[Location] = set()

    def ask(self, partition_location: Location) -> None:
        """Start the check of a partition, once. Raises the error of earlier background work."""
        if partition_location in self._asked_for:
            return
        self._asked_for.add(partition_location)
        storage = storage_at(partition_location)
        if isinstance(storage, KnowsPermissions):
            work = partial(self._check, storage, partition_location)
            self._background.submit(work, 0, storage.threads)

    def _check(self, storage: KnowsPermissions, location: Location) -> None:
        refusal: OSError | None
        try:
            refusal = storage.refusal(location)
        except OSError as error:
            refusal = error
        if refusal is not None:
            raise DeltaWriteError(
                f"table {self._table_name}: {location} cannot be written to: {refusal}"
            ) from refusal
