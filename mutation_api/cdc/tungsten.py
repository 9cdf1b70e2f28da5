r"""Tungsten Replicator's staging files for Hadoop, as a change source.

The files are ``STAGING/service/database/table/table-<number>.csv``, or in directories below ``table`` if the
replicator partitions them. The number is that of the first event in the file. A record is::

    operation, sequence number, row id, commit timestamp, primary key, column, column, ...

Fields are separated by 0x01 and a record ends with a newline. NULL is ``\N``, and a backslash comes before a
0x01 or a backslash that is part of a value. An update is a delete of the old row and an insert of the new
one. A delete may have NULL in all columns except those of the key. Operations apply in the order of sequence
number and row id; if both are equal, the delete comes before the insert. Records may lack the key field
(HEADER_WITHOUT_KEY), or have other fields in front.

A run lists the files once, when it begins, and reads them up to their size at that time; the next run reads
what is added later. A file that does not end with a whole record is refused, as is a file with an unknown
name. Names that begin with ``.`` or ``_`` or end with ``._COPYING_`` are ignored; Hadoop adds the latter to
files that are being written. The files are on HDFS, in an object store, or on a disk that the driver and the
tasks have mounted.

Each table has its own position, since the files of one batch arrive one by one. The text of the watermark
has the positions of all tables; its order is the greatest of them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import pyarrow as pa

from mutation_api.cdc.delimited_text import DamagedRecordError, DelimitedText
from mutation_api.cdc.record_files import FileColumns, RecordFile
from mutation_api.cdc.source import LocalBatch, LocalOperations, OperationParts, Position, SourceTable
from mutation_api.cdc.source_url import entry_at, located, opened, readable
from mutation_api.cdc.tungsten_files import (
    HEADER_DEFAULT,
    HEADER_WITHOUT_KEY,
    POSITION_PARTS,
    TEXT_DEFAULT,
    CommitColumn,
    HeaderField,
    RecordLayout,
    StagingFile,
    by_folder,
    folders,
    last_record,
    outstanding_files,
    splits,
    staging_files,
)
from mutation_api.errors import ConfigurationError, InputFormatError, RecordLayoutError, SourcePositionError
from mutation_api.format.text_values import BinaryEncoding
from mutation_api.storage.location import Location, LocationLike

_TABLES_SHOWN = 20

_Reached = tuple[int, int]
"""The sequence number and row id of the last record that was applied, or will be applied."""


@dataclass(frozen=True)
class TungstenSource:
    """The staging files of one replication service.

    Args:
        staging: directory with a directory for each service, on any storage.
        service: name of the replication service.
        text: format of the records.
        header: the fields before the table's columns, in their order.
        columns: names of a table's columns in the files' order, by the table's name in the source.
        metadata: JSON file that describes tables, as written by Tungsten's Hadoop tools: ``{"tables":
            [{"schema", "name", "keys": [name, ...], "columns": [{"name"}, ...]}, ...]}``. It defines columns
            of tables that are missing from ``columns``, and keys that are not given. If a table is in
            neither, its files have the target's columns in its order, with partition columns last.
        commit_columns: columns of the target that are computed from the commit timestamp: column name to
            ``strftime`` format. If the format is None, the usual form of a date or timestamp.
        binary: format of binary values in the files; required for tables with binary columns.

    Raises:
        ConfigurationError: If the header lacks a required field, or has a field twice.
    """

    staging: LocationLike
    service: str
    _: KW_ONLY
    text: DelimitedText = TEXT_DEFAULT
    header: tuple[HeaderField, ...] = HEADER_DEFAULT
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    metadata: LocationLike | None = None
    commit_columns: Mapping[str, str | None] = field(default_factory=dict)
    binary: BinaryEncoding | None = None

    def __post_init__(self) -> None:
        needed = [*HEADER_WITHOUT_KEY[:3], *([HeaderField.COMMIT_TIMESTAMP] if self.commit_columns else [])]
        if not set(needed) <= set(self.header) or len(set(self.header)) < len(self.header):
            raise ConfigurationError(
                f"header {', '.join(each.value for each in self.header)}: it must have the fields "
                f"{', '.join(each.value for each in needed)}, and no field twice"
            )

    @property
    def source_id(self) -> str:
        """The name of this source in the watermarks: ``tungsten:`` and the service."""
        return f"tungsten:{self.service}"

    def full_name(self, name: str) -> str:
        """Return the ``database.table`` of a table; ``table`` is enough if only one database has it.

        Raises:
            ConfigurationError: If the service does not have such a table, or has several.
            InputError: If the directory cannot be listed.
        """
        service = self._folder()
        with readable(self.source_id):
            if not _is_folder(service):
                raise ConfigurationError(
                    f"directory {service.shown} does not exist; it must have the service's staging files"
                )
            known = [f"{d.name}.{t.name}" for d in folders(service) for t in folders(d)]
        found = [each for each in known if name in (each, each.partition(".")[2])]
        if len(found) == 1:
            return found[0]
        if found:
            raise ConfigurationError(f"{service.shown}: several tables are named {name}: {', '.join(found)}")
        if not known and name.count(".") == 1:
            return name
        shown = ", ".join(known[:_TABLES_SHOWN]) or "no tables yet, so name the database too"
        raise ConfigurationError(f"{service.shown} does not have a table {name}; it has {shown}")

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """Read the operations after the watermarks. See :class:`~mutation_api.cdc.source.LocalChangeSource`.

        The tables of the batch have the keys from the metadata. Errors within the files are raised when the
        operations are evaluated.

        Raises:
            ConfigurationError: If there is no such table, or if it has no key.
            InputFormatError: If a file has a wrong name or a damaged end, or if the metadata cannot be read.
            InputError: If the files cannot be read.
            SourcePositionError: If the files end before the position that was applied.
            RecordLayoutError: If the files' columns and the target's differ.
        """
        known = {name: _own_position(name, position) for name, position in after.items()}
        reached = {name: position for name, position in known.items() if position is not None}
        found = []
        for table in tables:
            with readable(self.source_id):
                new = self._parts(table, reached.get(table.name))
            if new is not None:
                reached[table.name], parts = new
                keyed = dataclasses.replace(table, key=parts.layout.key)
                found.append(LocalOperations(keyed, parts))
        if not found:
            return LocalBatch((), None)
        order = max([*(position.order for position in after.values()), *reached.values()])
        return LocalBatch(tuple(found), Position(order, _position_text(reached)))

    def _folder(self) -> Location:
        return located(self.staging) / self.service

    def _parts(self, table: SourceTable, after: _Reached | None) -> tuple[_Reached, _Parts] | None:
        """Return the position of a table's last record, and the parts with new records.

        None if there are no records.
        """
        name = self.full_name(table.name)
        layout = self._layout(table, name)
        outstanding = self._outstanding(name, layout, after)
        if outstanding is None:
            return None
        last, files = outstanding
        parts = [(i, *part) for i, file in enumerate(files) for part in splits(file, self.text)]
        return last, _Parts(layout, tuple(files), self.text, after, tuple(parts))

    def _layout(self, table: SourceTable, name: str) -> RecordLayout:
        metadata = {} if self.metadata is None else _read_metadata(located(self.metadata))
        described = metadata.get(name.lower())
        key = tuple(k.lower() for k in table.key) or (described.key if described else ())
        if not key:
            raise ConfigurationError(
                f"table {name} of {self.source_id} has no primary key, so the row of an operation is not "
                "known. Name the columns that identify a row, or metadata that defines them"
            )
        given = {self.full_name(each): columns for each, columns in self.columns.items()}
        names = given.get(name, described.columns if described else None)
        formats = {column.lower(): chosen for column, chosen in self.commit_columns.items()}
        columns = FileColumns.of(table.target, names, binary=self.binary, elsewhere=formats)
        unknown = [k for k in key if k not in columns.names]
        if unknown:
            raise RecordLayoutError(
                f"table {name} of {self.source_id}: key columns {', '.join(unknown)} are not in the files, "
                f"which have {', '.join(columns.names)}"
            )
        known = {c.name: c for c in table.target.all_columns}
        from_commit = tuple(CommitColumn(known[n], chosen) for n, chosen in formats.items())
        has_times = table.wants_times and HeaderField.COMMIT_TIMESTAMP in self.header
        return RecordLayout(tuple(known), self.header, key, columns, from_commit, self.service, has_times)

    def _outstanding(
        self, name: str, layout: RecordLayout, after: _Reached | None
    ) -> tuple[_Reached, list[StagingFile]] | None:
        """Return the position of a table's last record, and the files with new records.

        None if there are no records.
        """
        database, _, table = name.partition(".")
        folder = self._folder() / database / table
        files = [f for f in staging_files(folder, table) if f.size] if _is_folder(folder) else []
        if not files:
            return None
        last = max(_last_position(group[-1], self.text, layout) for group in by_folder(files))
        if after is not None and last < after:
            raise SourcePositionError(
                f"{folder.shown}: the last record has {_shown(last)}, but {_shown(after)} has already been "
                "applied. If the service's sequence numbers were restarted, give the service another "
                "name, or remove the table's watermark"
            )
        return None if last == after else (last, outstanding_files(files, after))


@dataclass(frozen=True)
class _Parts(OperationParts):
    """Ranges of files, with operations after a position; ``ranges``: index of the file, first byte, end."""

    layout: RecordLayout
    files: tuple[StagingFile, ...]
    text: DelimitedText
    after: _Reached | None
    ranges: tuple[tuple[int, int, int], ...]

    @property
    def part_count(self) -> int:
        return len(self.ranges)

    @property
    def byte_count(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def locations(self) -> Sequence[Location]:
        return [file.location for file in self.files]

    @property
    def position(self) -> Sequence[str]:
        return POSITION_PARTS

    @property
    def has_times(self) -> bool:
        return self.layout.has_times

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        index, start, end = self.ranges[number]
        staged = self.files[index]
        file = RecordFile(staged.location, start, end, self.text, self.layout.field_names)
        yield from self.layout.batches(file, staged.number, self.after)


def _is_folder(location: Location) -> bool:
    entry = entry_at(location)
    return entry is not None and entry.is_directory


def _last_position(file: StagingFile, text: DelimitedText, layout: RecordLayout) -> _Reached:
    """Return the position of the last record. Raises InputFormatError if the file ends within a record."""
    records = RecordFile(file.location, 0, file.size, text, layout.field_names)
    try:
        offset, fields = last_record(file, text)
        seqno, row_id = (
            _number(offset, fields, layout.field_index(each))
            for each in (HeaderField.SEQNO, HeaderField.ROW_ID)
        )
    except DamagedRecordError as damaged:
        raise records.damaged(damaged) from damaged
    return seqno, row_id


def _number(offset: int, fields: Sequence[str | None], number: int) -> int:
    value = fields[number] if number < len(fields) else None
    if value is None or not (value.isascii() and value.isdigit()):
        raise DamagedRecordError(offset, number, f"is {value!r}, expected a number")
    return int(value)


@dataclass(frozen=True)
class _Described:
    """A table in the metadata."""

    columns: tuple[str, ...]
    key: tuple[str, ...]


def _read_metadata(location: Location) -> dict[str, _Described]:
    """Read the tables, by ``database.table`` in lower case."""
    try:
        with opened(location) as file:
            tables: list[dict[str, Any]] = json.loads(file.read())["tables"]
        return {
            f"{table['schema']}.{table['name']}".lower(): _Described(
                tuple(column["name"].lower() for column in table["columns"]),
                tuple(name.lower() for name in table["keys"]),
            )
            for table in tables
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputFormatError(
            f"{location.shown}: cannot read table metadata ({type(error).__name__}: {error}); "
            'expected JSON such as {"tables": [{"schema": "db", "name": "t", "keys": ["id"], "columns": '
            '[{"name": "id"}]}]}'
        ) from error


def _position_text(reached: Mapping[str, _Reached]) -> str:
    tables = {name: {"seqno": seqno, "row_id": row_id} for name, (seqno, row_id) in reached.items()}
    return json.dumps({"tables": tables}, sort_keys=True)


def _own_position(name: str, position: Position) -> _Reached | None:
    """Return a table's own position in a watermark; None if it had no records yet.

    Raises SourcePositionError if the watermark does not belong to this source.
    """
    try:
        own = json.loads(position.text)["tables"].get(name)
        return None if own is None else (int(own["seqno"]), int(own["row_id"]))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SourcePositionError(
            f"the watermark of table {name} is {position.text!r}, which does not belong to this source"
        ) from error


def _shown(position: _Reached) -> str:
    return f"sequence number {position[0]} and row id {position[1]}"
