"""Committer: makes staged files part of the tables, or removes every trace of them.

The order of the steps makes a crash harmless:

1. Check everything that can be checked. Nothing has changed so far.
2. Create missing partitions.
3. Register every touched partition with the transaction.
4. Record the numbers of rows, from which Hive 4 answers ``count(*)`` (see ``row_counts``).
5. In the legacy layout, give all buckets a base file (see ``base_files``). Give the files their final names.
6. Send the names of the files to the server, if it requires them for replication.

Step 3 must come before step 5: a metastore of Hive 2.3 or 3.1 forgets an aborted transaction that has
registered nothing. From then on, readers consider its files to be committed data (observed on 2.3.10 and
3.1.3). The caller does the commit itself.
"""

from __future__ import annotations

import errno
import functools
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from metastore_client.client import MetastoreClient
from metastore_client.errors import NoSuchObjectError
from metastore_client.model import PartitionInfo, TableInfo, WriteNotification
from metastore_client.partition_name import make_partition_name
from mutation_api.errors import (
    DeltaWriteError,
    RowIdNotFoundError,
    TableNotFoundError,
    TableNotMutableError,
    listed,
)
from mutation_api.format.layout import ACID_VERSION_FILE, AcidVersion, plain_file_name
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Staged, Storage
from mutation_api.storage.tree import refused, side_by_side
from mutation_api.table.acid_table import AcidTable
from mutation_api.transaction.base_files import (
    complete_base,
    record_row_counts,
    refuse_old_events,
    take_back_row_counts,
)
from mutation_api.transaction.manifest import TableOutput
from mutation_api.transaction.manifest_checks import check_manifests, check_staged
from mutation_api.transaction.staging import list_staged, remove_staging

DML_EVENTS = "hive.metastore.dml.events"
V1_MARK = bytes(4)
"""Content of the mark that Hive 2.3 writes next to the deltas of a partition: version 0, as four bytes."""
V2_MARK = b"2"
"""Content of the mark that Hive 3 and 4 write into each delta and delete delta."""

_log = logging.getLogger(__name__)


_Ensured = tuple[Mapping[str, PartitionInfo], tuple[str, ...]]
"""Partitions by name, and the names of the new partitions."""


class PartitionSource(Protocol):
    """Finds partitions, and creates missing ones if that is allowed."""

    def ensure(
        self, table: AcidTable, values: Mapping[str, tuple[str, ...]]
    ) -> tuple[Mapping[str, PartitionInfo], tuple[str, ...]]:
        """Return all partitions of ``values`` (escaped name -> unescaped strings) by name, and the new names.

        Raises:
            PartitionCreationError: If a partition may not be created, before anything is created.
        """
        ...


@dataclass(frozen=True)
class PublishedTable:
    """The result of publishing one table's files: names of the touched and of the created partitions."""

    partitions_touched: tuple[str, ...]
    partitions_created: tuple[str, ...]


@dataclass(frozen=True)
class _Directory:
    """A final directory and its files."""

    storage: Storage
    location: Location
    version: AcidVersion
    files: list[_File]


@dataclass(frozen=True)
class _File:
    """A staged file and its final location; locations are unique."""

    storage: Storage
    staged: Staged
    target: Location


class Committer:
    """Publishes the output of one transaction, once.

    Args:
        metastore: the metastore where partitions are registered.
        partitions: finds partitions and creates missing ones.
        txn_id: the transaction's id.
        check_alive: raises an error if the transaction is lost; called before files become visible.
        in_turn: returns the block in which the descriptions of the tables with these full names are read and
            changed.
    """

    def __init__(
        self,
        metastore: MetastoreClient,
        partitions: PartitionSource,
        txn_id: int,
        check_alive: Callable[[], None],
        in_turn: Callable[[Sequence[str]], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        self._metastore = metastore
        self._partitions = partitions
        self._txn_id = txn_id
        self._check_alive = check_alive
        self._in_turn = in_turn
        self._made: list[_Directory] = []
        self._named: dict[Location, _File] = {}
        self._counted: list[TableOutput] = []

    def publish(
        self, outputs: Sequence[TableOutput], ask_alive: Callable[[], None] = lambda: None
    ) -> dict[str, PublishedTable]:
        """Make the files of all tables part of the transaction; see the module's docstring for the order.

        Args:
            outputs: the output by table.
            ask_alive: queries the server whether the transaction is alive, and raises an error if it is not;
                called before anything is changed.

        Returns:
            The results by ``database.table``.

        Raises:
            ManifestError, RowIdNotFoundError, TableNotMutableError, PartitionCreationError: If a check fails;
                nothing has been changed.
            DeltaWriteError: If a file could not be moved.
            MetastoreError: See :class:`MetastoreClient`.
            After any error, call :meth:`remove_published`.
        """
        written = [o for o in outputs if o.is_written]
        with self._in_turn(sorted(o.table.full_name for o in written)):
            ensured = self._recorded(outputs, written, ask_alive)
        self._check_alive()
        for output, (partitions, _) in zip(written, ensured, strict=True):
            self._move_files(output, partitions)
        self._notify(written, [partitions for partitions, _ in ensured])
        for output in outputs:
            remove_staging(output.table, self._txn_id)
        return {
            o.table.full_name: PublishedTable(tuple(sorted(o.partition_values)), created)
            for o, (_, created) in zip(written, ensured, strict=True)
        }

    def _recorded(
        self, outputs: Sequence[TableOutput], written: Sequence[TableOutput], ask_alive: Callable[[], None]
    ) -> list[_Ensured]:
        """Check everything, report the coming writes to the metastore, and return each table's partitions."""
        reads = [functools.partial(self._read_unchanged, o.description) for o in written]
        # This comes first: a transaction that begins later removes the staged files of a dead one.
        _, *described = self._metastore.together(ask_alive, *reads)
        for output in outputs:
            self._check(output)
        ensured = [self._partitions.ensure(o.table, o.partition_values) for o in written]
        for output in written:
            self._register(output)
        took_long = any(created for _, created in ensured)
        counts = (
            functools.partial(self._count, o, created, None if took_long else table)
            for o, (_, created), table in zip(written, ensured, described, strict=True)
        )
        self._metastore.together(*counts)
        return ensured

    def _count(self, output: TableOutput, created: Collection[str], described: TableInfo | None) -> None:
        record_row_counts(self._metastore, output, created, described)
        self._counted.append(output)

    def remove_published(self) -> None:
        """Remove every directory and file that :meth:`publish` created, if the transaction never commits.

        A failure is only logged: the server has marked the transaction as aborted, so readers ignore the
        rest.
        """
        threads = max((made.storage.threads for made in self._made), default=1)
        side_by_side(
            lambda made: self._remove(made.location, made.storage.delete_directory), self._made, threads
        )
        for file in self._named.values():
            self._remove(file.target, file.storage.delete_file)
        for output in self._counted:
            take_back_row_counts(self._metastore, output)

    def _remove(self, location: Location, delete: Callable[[Location], None]) -> None:
        try:
            delete(location)
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("could not remove %s of transaction %d: %s", location, self._txn_id, error)

    def _check(self, output: TableOutput) -> None:
        table = output.table
        check_manifests(table, output.writers, output.manifests, insert_only=output.insert_only)
        self._check_rows_exist(output)
        with _file_errors(table):
            staged = list_staged(table, self._txn_id)
        check_staged(table, output.writers, output.manifests, staged)
        with _file_errors(table):
            _refuse_where_nothing_may_be_made(output)
        if table.version.encodes_buckets:
            with _file_errors(table):
                refuse_old_events(table, sorted(_known_partitions(output)))

    def _check_rows_exist(self, output: TableOutput) -> None:
        """Raise an error if rows of missing partitions change; their updates could become new rows."""
        names = sorted(output.partitions_without_rows)
        if names:
            raise RowIdNotFoundError(
                f"table {output.table.full_name}, transaction {self._txn_id}: rows are updated or deleted in "
                f"partitions {listed(names)}, which did not exist when the transaction began. It sees no "
                "rows there, so the ROW__IDs belong to other partitions"
            )

    def _read_unchanged(self, before: TableInfo) -> TableInfo:
        """Return the table as it is now. Raises TableNotFoundError or TableNotMutableError."""
        try:
            after = self._metastore.get_table(before.database, before.name)
        except NoSuchObjectError as error:
            raise TableNotFoundError(
                f"table {before.full_name} was dropped while transaction {self._txn_id} was running"
            ) from error
        for what, get in _UNCHANGEABLE.items():
            if get(before) != get(after):
                raise TableNotMutableError(
                    f"table {before.full_name} was altered while transaction {self._txn_id} was running: "
                    f"{what} was {get(before)} and is {get(after)}"
                )
        return after

    def _register(self, output: TableOutput) -> None:
        table = output.table
        names = sorted(output.partition_values)
        if names and output.depends_on_all_partitions:
            # Two transactions may insert a key into different partitions. If both register this partition
            # of nulls, their commits conflict; it need not exist.
            nulls = [table.null_partition_text] * len(table.partition_keys)
            names = sorted({*names, make_partition_name(table.partition_key_names, nulls)})
        if names:
            self._metastore.add_dynamic_partitions(
                self._txn_id, table.database, table.name, names, output.operation, write_id=output.write_id
            )

    def _move_files(self, output: TableOutput, partitions: Mapping[str, PartitionInfo]) -> None:
        with _file_errors(output.table):
            if not output.table.version.splits_updates:
                _complete_bases(output)
            directories = _final_directories(output, partitions)
            threads = max((d.storage.threads for d in directories), default=1)
            side_by_side(self._make, directories, threads)
            # Write the marks first: each is a file that must be closed, which is slow on some storages.
            steps = [functools.partial(self._mark_version, *mark) for mark in _version_marks(directories)]
            steps += [functools.partial(self._name, file) for d in directories for file in d.files]
            steps += [functools.partial(_make_visible, d) for d in directories if not d.files]
            side_by_side(lambda step: step(), steps, threads)
            # Files were forced to disk when they were closed; their names survive a power cut only from here.
            side_by_side(lambda d: d.storage.sync_directory(d.location), directories, threads)

    def _make(self, directory: _Directory) -> None:
        """Create a final directory. On a store without directories, each existing file is refused instead."""
        storage = directory.storage
        if storage.publishes_by_rename:
            if storage.stat(directory.location) is not None:
                raise FileExistsError(errno.EEXIST, "it already exists", str(directory.location))
            self._made.append(directory)
        storage.create_directory(directory.location)

    def _name(self, file: _File) -> None:
        """Publish a file. Record it first: if the response is lost, the outcome is unknown."""
        if not file.storage.publishes_by_rename:
            self._named[file.target] = file
        try:
            file.storage.publish(file.staged, file.target)
        except FileExistsError:
            self._named.pop(file.target, None)
            raise

    def _mark_version(self, storage: Storage, mark: Location, version: AcidVersion) -> None:
        is_of_directory = version.uses_write_ids
        try:
            file = storage.create(mark)
            file.write(V2_MARK if is_of_directory else V1_MARK)
            file.close()
        except FileExistsError:
            return
        if is_of_directory and not storage.publishes_by_rename:
            self._named[mark] = _File(storage, file.staged, mark)

    def _notify(
        self, outputs: Sequence[TableOutput], partitions: Sequence[Mapping[str, PartitionInfo]]
    ) -> None:
        if outputs and wants_notifications(self._metastore):
            pairs = zip(outputs, partitions, strict=True)
            self._metastore.add_write_notifications([n for o, p in pairs for n in _notifications(o, p)])


def wants_notifications(metastore: MetastoreClient) -> bool:
    """Return True if the server requires the names of written files, which a replication copies.

    Raises MetastoreError if it could not be queried.
    """
    if not metastore.capabilities().has_write_notifications:
        return False
    return metastore.get_config_value(DML_EVENTS, "false").strip().lower() == "true"


_UNCHANGEABLE: dict[str, Callable[[TableInfo], object]] = {
    "its location": lambda t: t.location,
    "its columns": lambda t: [(c.name, c.type) for c in t.columns],
    "its partition keys": lambda t: [(c.name, c.type) for c in t.partition_keys],
    "its number of buckets": lambda t: t.num_buckets,
    "CLUSTERED BY": lambda t: t.bucket_columns,
    "its format": lambda t: (t.serde, t.input_format, t.output_format),
    "'transactional'": lambda t: t.parameters.get("transactional"),
    "'transactional_properties'": lambda t: t.parameters.get("transactional_properties"),
    "'bucketing_version'": lambda t: t.parameters.get("bucketing_version"),
}


def _known_partitions(output: TableOutput) -> set[str]:
    """Return the touched partitions that existed at the start; '' for an unpartitioned table."""
    touched = {m.partition_name for m in output.manifests} | output.replaced.keys()
    return touched & (output.partitions_at_begin | {""})


def _refuse_where_nothing_may_be_made(output: TableOutput) -> None:
    """Raise PermissionError if nothing may be created in a touched partition."""
    for error in refused(output.table.partition_location(name) for name in sorted(_known_partitions(output))):
        raise error


def _complete_bases(output: TableOutput) -> None:
    table = output.table
    locations = [table.partition_location(name) for name in sorted(_known_partitions(output))]
    side_by_side(functools.partial(complete_base, table), locations, storage_at(table.location).threads)


def _notifications(
    output: TableOutput, partitions: Mapping[str, PartitionInfo]
) -> Iterator[WriteNotification]:
    """Yield the full names of each partition's data files, including delete deltas."""
    table = output.table
    files: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for manifest in output.manifests:
        name = manifest.partition_name
        location = (partitions[name].location if name else output.description.location).rstrip("/")
        relative = output.final_path(manifest)
        files[name].append((f"{location}/{relative}", relative.partition("/")[0]))
    for name, written in sorted(files.items()):
        values = partitions[name].values if name else ()
        yield WriteNotification(
            table.required_txn_id(),
            table.required_write_id(),
            table.database,
            table.name,
            values,
            tuple(sorted(written)),
        )


def _final_directories(output: TableOutput, partitions: Mapping[str, PartitionInfo]) -> list[_Directory]:
    """Return the final directories with their files.

    The metastore determines a partition's location: another job may just have created it.

    Raises:
        OSError: If a file was uploaded to another location.
    """
    directories: dict[Location, _Directory] = {}

    def directory_of(target: Location) -> _Directory:
        directory = _Directory(storage_at(target), target, output.table.version, [])
        return directories.setdefault(target, directory)

    def root_of(name: str) -> Location:
        return Location.parse(partitions[name].location) if name else output.table.location

    for manifest in output.manifests:
        target = root_of(manifest.partition_name) / output.final_path(manifest)
        directory = directory_of(target.parent)
        directory.files.append(_File(directory.storage, manifest.staged, target))
    if output.replacement is not None:
        for name in output.replaced:  # a base without files hides the old rows
            directory_of(root_of(name) / output.replacement.directory)
    return list(directories.values())


def _version_marks(directories: Sequence[_Directory]) -> list[tuple[Storage, Location, AcidVersion]]:
    """Return the format marks: one in each directory in v2, one next to a partition's directories in v1."""
    marks = {}
    for directory in directories:
        version = directory.version
        if version.has_row_ids:
            location = directory.location if version.uses_write_ids else directory.location.parent
            marks[location / ACID_VERSION_FILE] = (directory.storage, version)
    return [(storage, mark, version) for mark, (storage, version) in marks.items()]


def _make_visible(base: _Directory) -> None:
    """Create the empty file that Hive writes into an empty base of an insert-only table.

    Hive 4.1 ignores a directory without any file. In other tables, the format mark is such a file (measured).
    """
    if not base.version.has_row_ids:
        base.storage.create(base.location / plain_file_name(0)).close()


@contextmanager
def _file_errors(table: AcidTable) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DeltaWriteError(
            f"table {table.full_name}, transaction {table.txn_id}: files could not be published: {error}"
        ) from error
