"""What one writer of a table stages: its directories, which partitions it may touch, and its removal."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from metastore_client.model import LockInfo
from mutation_api.commit.manifest import DeltaManifest, delta_names, staging_directory
from mutation_api.errors import MutationError, RowIdNotFoundError, TransactionStateError, listed
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Storage
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.table.snapshot_view import SnapshotView

__all__ = [
    "LookingTransaction",
    "OpenTransaction",
    "check_known_partitions",
    "check_partitions_exist",
    "check_sink",
    "raise_if_lost",
    "remove_losing_attempts",
    "remove_writer",
    "table_roots",
]

logger = logging.getLogger(__name__)


class OpenTransaction(SnapshotView, Protocol):
    """The part of :class:`mutation_api.client.transaction.Transaction` that a writer needs."""

    def on_lost(self, callback: Callable[[Exception], None]) -> None:
        """Register a callback for the loss of the lock or the transaction."""
        ...

    def changing(self, table_name: str) -> contextlib.AbstractContextManager[None]:
        """The block in which a table gets its changes, once."""
        ...

    def add_manifests(self, table_name: str, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
        """Add the manifests of what a writer staged; the commit publishes it."""
        ...


class LookingTransaction(OpenTransaction, Protocol):
    """The part of :class:`mutation_api.client.transaction.Transaction` that a merge and its preview need."""

    def merging(self, table_name: str, keys: Sequence[str] | None, *, inserts: bool) -> None:
        """Say that rows are merged by these columns, before the table is read for it."""
        ...

    def other_locks(self, table_name: str) -> Sequence[LockInfo]:
        """Locks for writing that others hold or wait for on a table."""
        ...


def raise_if_lost(transaction: OpenTransaction, error: MutationError) -> None:
    """Raise the loss of the transaction, if it is lost: the loss caused the error."""
    try:
        transaction.check()
    except MutationError as loss:
        raise loss from error


def check_sink(table: AcidTable) -> None:
    """Raise TransactionStateError if the table is only read in this transaction."""
    if table.role is not TableRole.SINK:
        raise TransactionStateError(
            f"table {table.full_name} is a source of this transaction and cannot be written; "
            "add it with add_sink_table()"
        )


def check_partitions_exist(
    transaction: OpenTransaction, table: AcidTable, manifests: Sequence[DeltaManifest]
) -> None:
    """Refuse updates and deletes in partitions that do not exist, since their rows cannot exist."""
    if table.partition_keys:
        names = {m.partition_name for m in manifests if m.update_count or m.delete_count}
        check_known_partitions(transaction, table, sorted(names))


def check_known_partitions(transaction: OpenTransaction, table: AcidTable, names: Sequence[str]) -> None:
    """Raise RowIdNotFoundError if a name of the list is none of the table's partitions."""
    if not table.partition_keys:
        return
    existing = {p.name for p in transaction.partitions(table.full_name)}
    unknown = [name for name in names if name not in existing]
    if unknown:
        raise RowIdNotFoundError(
            f"table {table.full_name}: the change set updates or deletes rows in partitions that do not "
            f"exist: {listed(unknown)}; check the partition columns of the changes"
        )


def table_roots(table: AcidTable) -> Sequence[Location]:
    """The locations of the table and of each partition that lies elsewhere."""
    return tuple(dict.fromkeys((table.location, *table.partition_locations.values())))


def _writer_directories(table: AcidTable, writer_id: str) -> Iterator[tuple[Storage, Location]]:
    """The writer's directory in the table and in each partition that lies elsewhere."""
    for root in table_roots(table):
        yield storage_at(root), staging_directory(root, table.required_txn_id()) / writer_id


def remove_losing_attempts(table: AcidTable, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
    """Remove the losing attempts' files.

    Uploads do not show their attempt: the commit removes those of losing attempts, and their marks.
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
    """Remove everything that the writer wrote.

    On an object store this also removes uploads of other writers of the table: their manifests, if any, will
    be refused.
    """
    names = delta_names(table.required_write_id(), table.version)
    for storage, directory in _writer_directories(table, writer_id):
        try:
            if not storage.publishes_by_rename:
                uploads = storage.unfinished(directory.parent.parent)
                storage.abandon(each for each in uploads if each.location.parent.name in names)
            storage.delete_directory(directory)
        except OSError:
            logger.exception("removing %s failed; it is hidden, and the abort tries again", directory)
