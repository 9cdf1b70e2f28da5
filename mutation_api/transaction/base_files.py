"""Further steps of a commit besides publishing new files: base files, the check for old events, row counts.

In the legacy layout of Hive 2, buckets without a base file get an empty one. If a bucket has no file in the
base, Hive 2.3 reads the bucket's deltas once per base file. So rows appear twice or more in queries for which
Hive reads by stripes (``hive.exec.orc.split.strategy``: ETL, which the default chooses for few or large
files). A file of length 0 counts as missing; a file without rows does not. Hive's own compaction leaves such
gaps in a base if no delta had a file for a bucket. In plain tables, empty buckets cause them. A base with one
file is not changed: the rows of the other buckets are read once, with that file. A second file would
duplicate the rows of all further buckets until they have files too.

No reader sees a difference after an empty ORC file is added, so it needs no transaction. It appears in one
step and stays if the transaction aborts. Split update does not need it.

The module also detects update and delete events that Hive 2 wrote into a table that is now served by a later
Hive. Hive 3 and 4 treat every event of a delta as an insert. So they show updated rows of such a table twice
and deleted rows as nulls, until Hive 2 has compacted the old files. A change before that would make the
damage permanent. The check is cheap: it opens only deltas without the mark of the new format, and reads the
files' tails first.

The number of rows in the metastore is kept correct, as Hive's own statements do, because Hive 4 answers
``count(*)`` from it (:mod:`metastore_client.valid_ids`). A number that is not marked as accurate is counted
again from the files.

If writers gathered statistics of columns, they are all of the statistics of a new or replaced partition.
Elsewhere the server adds them to the recorded ones, as for Hive's INSERT. They stay accurate only if the
transaction does not delete rows there. Statistics of decimals are not added to others: Hive's metastore
compares their bytes and scales, not the numbers.

Source: for base files, Hive 2.3.10, including tables written only by its own SQL; for old events, Hive's
    upgrade notes for ACID tables and 3.1.3 (both versions of an updated row are read); for row counts, 4.1.0;
    for statistics, set_aggr_stats_for (3.1 to 4.2).
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow.compute as pc

from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError
from metastore_client.model import ColumnStatistics, TableInfo
from metastore_client.valid_ids import CountRows
from mutation_api.errors import MutationError, TableNotMutableError
from mutation_api.format.column_summary import LENGTHS, ColumnSummary, RowSummary
from mutation_api.format.event import ACID_STATS, ACID_VERSION, OPERATION
from mutation_api.format.hive_type import TypeFamily
from mutation_api.format.layout import (
    ACID_VERSION_FILE,
    BUCKET_PREFIX,
    DELTA_PREFIX,
    AcidVersion,
    BaseDirectory,
    bucket_file_name,
    is_hidden,
    parse_bucket_file_name,
    parse_directory_name,
    parse_original_file_name,
    plain_file_name,
)
from mutation_api.orc.format.checked_file import faults_of, open_orc
from mutation_api.orc.format.tail import read_tail
from mutation_api.orc.write.event_writer import OrcEventWriter
from mutation_api.read.key_groups import count_rows
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry, Storage
from mutation_api.storage.tree import Directories, directories_below, side_by_side
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.row_type import row_type
from mutation_api.transaction.manifest import TableOutput, staging_of
from mutation_api.transaction.staging import children_of

_DOUBLING_FILES = 2
"""The number of base files from which the rows of the other buckets are read more than once."""

_DAY, _MOMENT = date(1970, 1, 1), datetime(1970, 1, 1)
_WITHOUT_ESTIMATE = (TypeFamily.BOOLEAN, TypeFamily.BINARY)

_log = logging.getLogger(__name__)


def complete_base(table: AcidTable, location: Location) -> None:
    """Create the missing bucket files of one partition's newest base, or of its original files.

    All buckets without a file get one, since Hive's own deltas have gaps too. Two concurrent calls do no
    harm.

    Raises:
        OSError: If the directory cannot be read or written.
        DirectoryStateError: If it contains a directory that makes Hive fail.
    """
    storage = storage_at(location)
    base = _newest_base(storage, location, table.version)
    if len(base.buckets) < _DOUBLING_FILES:
        return
    for bucket_id in sorted(set(range(table.num_buckets)) - base.buckets):
        name = base.file_name(bucket_id)
        _create_empty(storage, base.location / name, base.version, table)
        why = f"without it, Hive reads the rows of bucket {bucket_id} several times"
        _log.info("table %s: created the empty file %s/%s: %s", table.full_name, base.location, name, why)


@dataclass(frozen=True)
class _Base:
    """The location of the base files, and the buckets that have a nonempty file."""

    location: Location
    version: AcidVersion
    buckets: frozenset[int]

    def file_name(self, bucket_id: int) -> str:
        return bucket_file_name(bucket_id) if self.version.has_row_ids else plain_file_name(bucket_id)


def _newest_base(storage: Storage, location: Location, version: AcidVersion) -> _Base:
    entries = [entry for entry in children_of(storage, location) if not is_hidden(entry.name)]
    directories = [parse_directory_name(e.name, version) for e in entries if e.is_directory]
    bases = [directory for directory in directories if isinstance(directory, BaseDirectory)]
    if bases:
        newest = location / max(bases, key=lambda base: base.last).name
        files = [(parse_bucket_file_name(e.name, version), e) for e in storage.list(newest)]
        return _Base(newest, version, _with_content(files))
    files = [(parse_original_file_name(e.name, version).bucket_id, e) for e in entries if not e.is_directory]
    return _Base(location, version.of_original_files, _with_content(files))


def _with_content(files: Iterable[tuple[int | None, FileEntry]]) -> frozenset[int]:
    return frozenset(bucket_id for bucket_id, entry in files if bucket_id is not None and entry.size)


def _create_empty(storage: Storage, target: Location, version: AcidVersion, table: AcidTable) -> None:
    """Create a file that appears in one step and replaces an existing file of length 0."""
    is_renamed = storage.publishes_by_rename
    hidden = _staging_of(target, table) / f"{uuid.uuid4().hex}_{target.name}"
    if is_renamed:
        storage.create_directory(hidden.parent)
    file = storage.create(hidden if is_renamed else target)
    own_id = table.required_txn_id()
    writer = OrcEventWriter(file, row_type(table.columns), version=version, own_id=own_id)
    try:
        writer.finish()
        found = storage.stat(target)
        if found is not None and not found.size:
            storage.delete_file(target)
        file.close()
        if is_renamed:
            storage.publish(file.staged, target)
    except FileExistsError:
        writer.discard()  # another transaction came first
    except BaseException:
        _discard_quietly(writer, target)
        raise


def _staging_of(target: Location, table: AcidTable) -> Location:
    """Return a directory inside the transaction's staging directory, which is removed with it."""
    return staging_of(table, target.parent, table.required_txn_id()) / "base_files" / "0"


def _discard_quietly(writer: OrcEventWriter, target: Location) -> None:
    try:
        writer.discard()
    except OSError as error:
        _log.warning("could not remove the hidden file for %s: %s", target, error)


def refuse_old_events(table: AcidTable, partition_names: Iterable[str]) -> None:
    """Raise an error if partitions ('' for an unpartitioned table) contain such events.

    Raises:
        TableNotMutableError: If such events were found; the message names partition and file.
        CorruptFileError: If a file is not an ORC file.
        OSError: If a directory could not be read.
    """
    names = list(partition_names)
    directories = directories_below(table.partition_location(name) for name in names)
    threads = storage_at(table.location).threads
    side_by_side(functools.partial(_refuse, table, directories), names, threads)


def _refuse(table: AcidTable, directories: Directories, name: str) -> None:
    location = table.partition_location(name)
    for file in _unmarked_files(directories, location):
        if _holds_changes(storage_at(location), file):
            where = f" partition {name}" if name else ""
            raise TableNotMutableError(
                f"table {table.full_name}{where} cannot be changed: {file} holds updates or deletes in "
                "the format of Hive 2, which this server's Hive reads as inserts. Compact it with Hive 2 "
                "(ALTER TABLE … COMPACT 'major') before the upgrade, or rewrite its rows"
            )


def _unmarked_files(storage: Directories, location: Location) -> Iterator[Location]:
    for directory in _children(storage, location):
        if directory.is_directory and directory.name.startswith(DELTA_PREFIX):
            files = [f for f in _children(storage, directory.location) if not f.is_directory]
            if all(f.name != ACID_VERSION_FILE for f in files):
                yield from (f.location for f in files if f.name.startswith(BUCKET_PREFIX) and f.size)


def _children(storage: Directories, location: Location) -> list[FileEntry]:
    """Return a directory's entries; none if an abort or a cleaner has removed it."""
    try:
        return storage.list(location)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _holds_changes(storage: Storage, file: Location) -> bool:
    try:
        with faults_of(file):
            metadata = read_tail(storage, file).user_metadata
            if ACID_VERSION in metadata or not _counts_changes(metadata.get(ACID_STATS, b"").decode()):
                return False
            # Hive 2.3 sometimes puts the counts of a delete delta into its insert delta: the events decide.
            with storage.open_input(file) as stream:
                operations = open_orc(stream).read(columns=[OPERATION]).column(OPERATION)
            return bool(pc.any(pc.not_equal(operations, 0)).as_py())
    except FileNotFoundError:
        return False  # removed meanwhile


def _counts_changes(statistics: str) -> bool:
    """Return True if the counts ``inserts,updates,deletes`` include updates or deletes."""
    _, _, changes = statistics.partition(",")
    return any(int(n) for n in changes.split(",") if n)


def record_row_counts(
    metastore: MetastoreClient, output: TableOutput, created: Collection[str], described: TableInfo | None
) -> None:
    """Add the inserted and deleted rows of a transaction to the recorded numbers of rows.

    Statistics of columns stay accurate if the writers gathered those of the new rows.

    Args:
        metastore: the metastore where they are recorded.
        output: the written files, which do not have their final names yet.
        created: names of the partitions that the transaction created.
        described: the table as it was just read. If None, it is read again.

    Raises:
        MetastoreError: See :class:`MetastoreClient`.
    """
    changes = output.row_count_changes
    columns = merge_column_statistics(metastore, output, created)

    def new_counts(recorded: Mapping[str, int | None]) -> Mapping[str, int | None]:
        known = {name: 0 if name in created else rows for name, rows in recorded.items()}
        counted = _counted(output, [name for name, rows in known.items() if rows is None])
        return {
            name: None if rows is None else rows + changes[name] for name, rows in (known | counted).items()
        }

    # The server has changed the parameters of what it merged.
    _record(metastore, output, new_counts, None if columns else described, columns)


def take_back_row_counts(metastore: MetastoreClient, output: TableOutput) -> None:
    """Subtract the numbers that :func:`record_row_counts` added, for a transaction that never commits.

    Hive does not treat the number of an aborted transaction as accurate, but continues to add to it. A
    failure is only logged: the next transaction of this library counts such rows again.
    """
    changes = output.row_count_changes

    def old_counts(recorded: Mapping[str, int | None]) -> Mapping[str, int | None]:
        return {name: None if rows is None else rows - changes[name] for name, rows in recorded.items()}

    try:
        _record(metastore, output, old_counts)
    except (MetastoreError, MutationError) as error:
        _log.warning("table %s: the recorded row counts stay too high: %s", output.table.full_name, error)


def _record(
    metastore: MetastoreClient,
    output: TableOutput,
    count: CountRows,
    described: TableInfo | None = None,
    columns: Mapping[str, Collection[str]] | None = None,
) -> None:
    table = output.table
    metastore.record_row_counts(
        table.database,
        table.name,
        sorted(output.partition_values) if table.partition_keys else None,
        count,
        write_id=output.write_id,
        valid_write_ids=output.valid_write_ids,
        described=described,
        columns=columns,
    )


def _counted(output: TableOutput, names: Sequence[str]) -> dict[str, int | None]:
    """Count the rows of partitions from their files, without those of this transaction."""
    if not names:
        return {}
    table = output.table
    directories = directories_below([table.partition_location(name) for name in names])
    count = functools.partial(_count, output, directories)
    return dict(zip(names, side_by_side(count, names, storage_at(table.location).threads), strict=True))


def _count(output: TableOutput, directories: Directories, name: str) -> int | None:
    """Count the rows of one partition; None if its files cannot be read (the commit continues)."""
    table = output.table
    assert output.valid_write_ids is not None, "a server with statistics has write ids"
    try:
        return count_rows(
            directories,
            table,
            table.partition_location(name),
            output.valid_write_ids,
            output.valid_txns,
        )
    except (MutationError, OSError) as error:
        _log.warning(
            "table %s, partition %r: its rows cannot be counted, so queries must read its files: %s",
            table.full_name,
            name,
            error,
        )
        return None


def merge_column_statistics(
    metastore: MetastoreClient, output: TableOutput, created: Collection[str]
) -> Mapping[str, Collection[str]]:
    """Record the statistics of new rows, if the writers gathered them.

    Args:
        metastore: the metastore where they are recorded.
        output: the written files.
        created: names of the partitions that the transaction created.

    Returns:
        By partition ('' if unpartitioned), the columns whose statistics may stay accurate.

    Raises:
        MetastoreError: See :class:`MetastoreClient`.
    """
    summaries = output.summaries
    whole = {name for name in summaries if name in created or name in output.replaced}
    if not metastore.capabilities().answers_from_statistics:
        summaries = {name: each for name, each in summaries.items() if name in whole}
    recorded = _recorded_decimals(metastore, output.table, [name for name in summaries if name not in whole])
    new = {
        name: _statistics_of(output.table, summary, recorded.get(name, frozenset()))
        for name, summary in summaries.items()
    }
    for replaces in (True, False):
        chosen = {name: found for name, found in new.items() if (name in whole) is replaces}
        if chosen:
            metastore.merge_column_statistics(
                output.table.database,
                output.table.name,
                chosen,
                replaces=replaces,
                write_id=output.write_id,
                valid_write_ids=output.valid_write_ids,
            )
    return {
        name: frozenset(
            each.column for each in found if name not in output.replaced or _replaces_everything(each)
        )
        for name, found in new.items()
        if name not in output.changed_partitions
    }


def _replaces_everything(statistics: ColumnStatistics) -> bool:
    """Return False for a column that may have a range but no value: the server keeps the old range."""
    ends = (statistics.low, statistics.true_count, statistics.max_length)
    return any(each is not None for each in ends)


def _recorded_decimals(
    metastore: MetastoreClient, table: AcidTable, names: Sequence[str]
) -> dict[str, frozenset[str]]:
    """Return the decimal columns for which statistics are recorded, by partition."""
    decimals = [column.name for column in table.columns if column.type.startswith("decimal")]
    if not decimals or not names:
        return {}
    partitions = names if table.partition_keys else None
    found = metastore.get_column_statistics(table.database, table.name, partitions, decimals)
    return {name: frozenset(each.column for each in columns) for name, columns in found.items()}


def _statistics_of(table: AcidTable, summary: RowSummary, without: Collection[str]) -> list[ColumnStatistics]:
    """Return the statistics of rows as the metastore records them, of the columns that have a summary."""
    found = []
    for column in table.columns:
        of_column = summary.columns.get(column.name)
        family = summary.families.get(column.name)
        if of_column is None or family is None or column.name in without:
            continue
        try:
            found.append(_recorded(column.name, column.type, family, of_column))
        except OverflowError:  # outside Python's calendar
            continue
    return found


def _recorded(name: str, type_name: str, family: TypeFamily, summary: ColumnSummary) -> ColumnStatistics:
    is_boolean, has_lengths = family is TypeFamily.BOOLEAN, family in LENGTHS
    is_estimated = family not in _WITHOUT_ESTIMATE
    value_count = summary.row_count - summary.null_count
    return ColumnStatistics(
        name,
        type_name,
        summary.null_count,
        low=_end(summary.low, family),
        high=_end(summary.high, family),
        true_count=summary.true_count if is_boolean else None,
        false_count=value_count - summary.true_count if is_boolean else None,
        distinct_count=summary.sketch.count() if is_estimated else None,
        sketch=summary.sketch.to_bytes() if is_estimated else b"",
        max_length=summary.max_length if has_lengths else None,
        # Hive counts a null as a string without characters.
        average_length=summary.length_sum / max(1, summary.row_count) if has_lengths else None,
    )


def _end(value: Any, family: TypeFamily) -> Any:
    if value is None:
        return None
    if family is TypeFamily.DATE:
        return _DAY + timedelta(days=value)
    return _MOMENT + timedelta(seconds=value) if family is TypeFamily.TIMESTAMP else value
