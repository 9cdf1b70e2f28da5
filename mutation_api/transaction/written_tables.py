"""The tables that a transaction writes, the manifests of their writers, and the partitions that it creates.

Partitions are added to the metastore in bulk; this is safe when several clients race.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from metastore_client.client import MetastoreClient
from metastore_client.errors import AlreadyExistsError, InvalidRequestError, NoSuchObjectError
from metastore_client.model import PartitionInfo
from mutation_api.errors import (
    ConfigurationError,
    ManifestError,
    PartitionCreationError,
    TransactionStateError,
    listed,
)
from mutation_api.format.event import MAX_STATEMENT_ID
from mutation_api.format.layout import BUCKET_PREFIX, base_directory_name
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.storage.connect import storage_at
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.table.partition import canonical_partition_name, check_may_create
from mutation_api.transaction.catalog import OpenTable
from mutation_api.transaction.committer import wants_notifications
from mutation_api.transaction.lease import Lease
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.manifest import DeltaManifest, Replacement, TableOutput


@dataclass(frozen=True)
class _Replaced:
    """Rows of partitions that are replaced: their numbers, and a function that deletes them one by one."""

    rows: Mapping[str, int]
    as_deletes: Callable[[], None]


class WrittenTables:
    """The output for the tables of one transaction; names are ``database.table``."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._being_changed: set[str] = set()
        self._statements: Counter[str] = Counter()
        self._writers: dict[str, set[str]] = {}
        self._manifests: dict[str, list[DeltaManifest]] = {}
        self._inserted_by_key: set[str] = set()
        self._replaced: dict[str, _Replaced] = {}

    def statement_id(self, name: str) -> int:
        """Return the number of a table's next change set, from 0."""
        return self._statements[name]

    @contextlib.contextmanager
    def changing(self, table: AcidTable) -> Iterator[None]:
        """Return the block in which a table receives a change set; a block that raises does not count.

        Raises:
            TransactionStateError: If the table is receiving another change set, or cannot receive one more:
                files of Hive 2 do not record a statement number.
        """
        name = table.full_name
        with self._mutex:
            if name in self._being_changed:
                raise TransactionStateError(
                    f"table {name} is receiving another change set in this transaction; wait for its end"
                )
            self._check_one_more(table)
            if name in self._replaced:
                raise TransactionStateError(
                    f"table {name} was overwritten: call settle() before the next step"
                )
            self._being_changed.add(name)
        try:
            yield
            self._statements[name] += 1
        finally:
            self._being_changed.discard(name)

    def _check_one_more(self, table: AcidTable) -> None:
        count = self._statements[table.full_name]
        if count and not table.version.uses_write_ids:
            raise TransactionStateError(
                f"table {table.full_name} already has its changes in this transaction, and Hive 2 allows one "
                "change set per table: combine all of them in one DataFrame (unionByName) and apply it once"
            )
        if count > MAX_STATEMENT_ID:
            raise TransactionStateError(
                f"table {table.full_name} has {count} change sets in this transaction; a ROW__ID cannot "
                "number more: combine changes, or use several transactions"
            )

    def may_replace(self, opened: OpenTable, lease: Lease, metastore: MetastoreClient) -> bool:
        """Return True if the next change set of a table may replace partitions by a base.

        It must be the first, since a base hides all deltas of its write id. Only on Hive 4 can the name of a
        directory contain the transaction that determines whether readers see it. An upload cannot be
        published under another name. No row may appear below the write id, since the base would hide it.
        The files must not be copied to another metastore, where transactions have other ids.

        Raises ConnectionFailedError, TransactionError if the metastore failed.
        """
        table, name = opened.table, opened.table.full_name
        roots = (table.location, *table.partition_locations.values())
        if (
            not table.version.is_hive_4
            or opened.spec.insert_only
            or self._manifests.get(name)
            or not all(storage_at(root).publishes_by_rename for root in roots)
        ):
            return False
        with metastore_errors_as_ours(f"could not ask for the write ids of table {name}"):
            return lease.is_complete_below(name) and not wants_notifications(metastore)

    def replace(self, name: str, rows: Mapping[str, int], as_deletes: Callable[[], None]) -> None:
        """Record that the change set just written replaces partitions of a table.

        Args:
            name: the table.
            rows: the numbers of old rows by (escaped) partition; '' if the table is not partitioned.
            as_deletes: writes the deletes of these rows, as a change set.
        """
        self._replaced[name] = _Replaced(rows, as_deletes)

    def replaced(self, name: str) -> Mapping[str, int]:
        """Return the numbers of replaced rows of a table, by partition."""
        return self._replaced[name].rows if name in self._replaced else {}

    def settle(self, name: str) -> None:
        """Delete, one by one, the rows that an overwrite replaced, since another step of the table follows.

        Raises:
            MutationError: If that failed. The rows are then still to be replaced.
        """
        replaced = self._replaced.pop(name, None)
        if replaced is None:
            return
        try:
            replaced.as_deletes()
        except BaseException:
            self._replaced[name] = replaced
            raise

    def merge(self, opened: OpenTable, keys: Sequence[str] | None, *, inserts: bool) -> None:
        """Record that rows are merged into a table by key.

        Args:
            opened: the table.
            keys: the columns that are compared. If None, a condition is used.
            inserts: True if rows whose key the table lacks are inserted.

        Raises:
            ConfigurationError: If other transactions may insert the same keys in the meantime.
        """
        name = opened.table.full_name
        if opened.spec.insert_only:
            raise ConfigurationError(
                f"table {name}: the transaction was created with insert_only=True, so others may insert at "
                "the same time, and a merge would not see their keys: create it without insert_only"
            )
        if inserts and not set(opened.table.partition_key_names) <= set(keys or ()):
            self._inserted_by_key.add(name)

    def add(self, table: AcidTable, txn_id: int, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
        """Add the manifests of one writer for a table.

        Raises:
            ConfigurationError: If the table is not a sink.
            ManifestError: If manifests of this writer were added before.
        """
        name = table.full_name
        if table.role is not TableRole.SINK:
            raise ConfigurationError(
                f"table {name} is a source of this transaction; add it with add_sink_table()"
            )
        writers = self._writers.setdefault(name, set())
        if writer_id in writers:
            raise ManifestError(
                f"table {name}, transaction {txn_id}: manifests of writer {writer_id!r} were added twice"
            )
        writers.add(writer_id)
        self._manifests.setdefault(name, []).extend(manifests)
        if name in self._replaced:  # written by a coordinator, which announces no change set
            used = [m.statement_id + 1 for m in manifests]
            self._statements[name] = max(self._statements[name], *used)
            self.settle(name)

    def writers(self, name: str) -> frozenset[str]:
        """Return the ids of the writers that handed in manifests for a table."""
        return frozenset(self._writers.get(name, ()))

    def manifests(self, name: str) -> tuple[DeltaManifest, ...]:
        """Return the manifests of a table."""
        return tuple(self._manifests.get(name, ()))

    def output(
        self,
        opened: OpenTable,
        table: AcidTable,
        lease: Lease,
        *,
        is_optimistic: bool,
    ) -> TableOutput:
        """Return the output for a table.

        Args:
            opened: the table as it was when the transaction began.
            table: its descriptor, bound.
            lease: the transaction.
            is_optimistic: True if others may change it at the same time and the first to commit wins.

        Hive 4 reads the base of the smallest open write id before its transaction commits. Under a guard that
        write id is the guard's. Otherwise the base names its transaction, as those of compactions do, which
        hides it until that has committed. It then counts if no smaller write id is open, which is certain.
        """
        name = table.full_name
        is_checked = is_optimistic and not opened.spec.insert_only
        return TableOutput(
            table=table,
            description=opened.description,
            writers=self.writers(name),
            manifests=self.manifests(name),
            partitions_at_begin=frozenset(opened.partition_names),
            insert_only=opened.insert_only,
            valid_write_ids=lease.valid_write_ids.get(name),
            valid_txns=lease.valid_txn_list,
            depends_on_reads=is_checked,
            depends_on_all_partitions=is_checked and name in self._inserted_by_key,
            replacement=self._replacement(table, lease.has_guard),
        )

    def _replacement(self, table: AcidTable, has_guard: bool) -> Replacement | None:
        rows = self.replaced(table.full_name)
        txn_id = 0 if has_guard else table.required_txn_id()
        return Replacement(base_directory_name(table.required_write_id(), txn_id), rows) if rows else None

    def files(self, name: str) -> dict[str, list[EventFile]]:
        """Return the staged files of a table as a reader of the same transaction needs them.

        Returns:
            The files by (escaped) partition. An overwrite is settled first.

        Raises:
            TransactionStateError: If a file is an upload, which cannot be read before it is completed.
        """
        self.settle(name)
        found: dict[str, list[EventFile]] = {}
        for manifest in self._manifests.get(name, ()):
            if manifest.staged.upload_id:
                raise TransactionStateError(
                    f"table {name} has changes of this transaction at {manifest.target}, and this storage "
                    "shows files only after the commit: read the table before you change it, or read it in "
                    "another transaction"
                )
            found.setdefault(manifest.partition_name, []).append(_as_event_file(manifest))
        return found

    def is_written(self, name: str) -> bool:
        """Return True if there is anything to publish for a table."""
        return bool(self._manifests.get(name)) or name in self._replaced

    @property
    def has_output(self) -> bool:
        """True if there is anything to publish for any table."""
        return bool(self._replaced) or any(self._manifests.values())


def _as_event_file(manifest: DeltaManifest) -> EventFile:
    kind = EventFileKind(manifest.kind.value)
    if not manifest.target.name.startswith(BUCKET_PREFIX):
        kind = EventFileKind.ORIGINAL  # the table is insert-only
    return EventFile(
        manifest.staged.location,
        kind,
        manifest.bucket_id,
        manifest.write_id,
        manifest.write_id,
        manifest.statement_id,
        None,
        manifest.byte_count,
    )


class PartitionCreator:
    """Finds the partitions that a transaction has touched, and creates missing ones.

    A partition that another client creates at the same moment is used as if this object had created it.
    """

    def __init__(self, metastore: MetastoreClient) -> None:
        self._metastore = metastore

    def ensure(
        self, table: AcidTable, values: Mapping[str, tuple[str, ...]]
    ) -> tuple[Mapping[str, PartitionInfo], tuple[str, ...]]:
        """Make sure that partitions exist.

        Args:
            table: states whether partitions may be created.
            values: escaped name -> unescaped strings, one per partition key. Empty for an unpartitioned
                table.

        Returns:
            All partitions by name, and the names of those created here.

        Raises:
            PartitionCreationError: If partitions are missing and may not be created, exist under another
                spelling of the same values, or were refused by the server.
            MetastoreError: If the server could not be queried.
        """
        found = self._find(table, values)
        missing = sorted(values.keys() - found.keys())
        if not missing:
            return found, ()
        self._check_may_create(table, missing)
        created = self._create(table, missing, values)
        found |= created
        found |= self._find(table, values.keys() - found.keys())
        lacking = sorted(values.keys() - found.keys())
        if lacking:
            raise PartitionCreationError(
                f"table {table.full_name}: partitions {listed(lacking)} were created but cannot be found; "
                "another client dropped them, or the server spells their names differently"
            )
        return found, tuple(sorted(created))

    def _find(self, table: AcidTable, names: Collection[str]) -> dict[str, PartitionInfo]:
        if not names:
            return {}
        infos = self._metastore.get_partitions_by_names(table.database, table.name, sorted(names))
        return {p.name: p for p in infos}

    def _check_may_create(self, table: AcidTable, missing: Sequence[str]) -> None:
        check_may_create(table, missing)
        existing = self._metastore.get_partition_names(table.database, table.name)
        keys, null_text = table.partition_keys, table.null_partition_text
        spelled = {canonical_partition_name(keys, name, null_text): name for name in existing}
        for name in missing:
            canonical = canonical_partition_name(keys, name, null_text)
            if spelled.get(canonical, name) != name:
                raise PartitionCreationError(
                    f"table {table.full_name}: partition {name} was created as {spelled[canonical]} after "
                    "this transaction began. Run the job again"
                )

    def _create(
        self, table: AcidTable, missing: Sequence[str], values: Mapping[str, tuple[str, ...]]
    ) -> dict[str, PartitionInfo]:
        _make_directories(table, missing)
        try:
            created = self._metastore.add_partitions(
                table.database, table.name, [values[name] for name in missing]
            )
        except AlreadyExistsError:
            return {}
        except (InvalidRequestError, NoSuchObjectError) as error:
            raise PartitionCreationError(
                f"table {table.full_name}: partitions {listed(missing)} could not be created: {error}"
            ) from error
        return {partition.name: partition for partition in created}


def _make_directories(table: AcidTable, names: Sequence[str]) -> None:
    """Create the directories of partitions, so that the server does not.

    A server that loses a race for a partition removes the directory that it created, with the files that the
    winner has written there in the meantime. It keeps a directory that existed before the request.

    Source: observed on Hive 2.3.10 (HiveMetaStore.add_partitions_core). In 77 of 80 races between three
    clients files were lost; none were lost when the directories had been created before.
    """

    def make(name: str) -> None:
        location = table.partition_location(name)
        storage_at(location).create_directory(location)

    try:
        side_by_side(make, names, storage_at(table.location).threads)
    except OSError as error:
        raise PartitionCreationError(
            f"table {table.full_name}: directories of partitions {listed(names)} could not be created: "
            f"{error}"
        ) from error
