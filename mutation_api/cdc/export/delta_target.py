"""Targets in the format of Delta Lake, through the package ``deltalake``.

A data file is in the log with the unit in its path. A commit adds and removes files by name, so it depends on
no predicate. It is not repeated after a lost race: ``deltalake`` would place it after a stranger's commit.
The record is in the commit's ``commitInfo``, and the number of the export's commits in its transaction
identifier.

Commits of VACUUM change no rows, so they may follow an export's commit.

Source: the Delta transaction log protocol; deltalake 1.6 (``create_write_transaction``).
"""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.fs
from deltalake import CommitProperties, DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction, Transaction

from mutation_api.cdc.export.exported_types import DELTA, ROW_ID_NAMES
from mutation_api.cdc.export.target import (
    ExportRecord,
    NewFile,
    Target,
    TargetChange,
    TargetFile,
    file_id,
    foreign_commit,
)
from mutation_api.cdc.export.units import Unit
from mutation_api.errors import ConfigurationError, LockLostError

_HARMLESS = ("VACUUM START", "VACUUM END")
_HISTORY = 100
"""The number of commits among which the last one of an export must be."""
_TEXT_LIMIT = 32
"""Longer strings are left out of the statistics, in which they would be cut."""


class _DeltaTarget(Target):
    kind = DELTA

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.name = f"{DELTA}:{url}"
        self._url = url
        self._options = dict(options)
        self._table: DeltaTable | None = None
        self._record: ExportRecord | None = None
        self._filesystem: pa.fs.FileSystem | None = None

    @property
    def _loaded(self) -> DeltaTable:
        assert self._table is not None, "load() or create() comes first"
        return self._table

    def load(self) -> ExportRecord | None:
        """See :class:`Target`."""
        try:
            self._table = DeltaTable(self._url, storage_options=self._options)
        except TableNotFoundError:
            self._table = self._record = None
            return None
        self._record = self._last_record(self._table)
        return self._record

    def _last_record(self, table: DeltaTable) -> ExportRecord:
        for count in (1, _HISTORY):  # mostly the last one is that of the export
            for commit in table.history(count):
                record = ExportRecord.from_properties(commit)
                if record is not None:
                    return record
                if commit.get("operation") not in _HARMLESS:
                    what = f"version {commit.get('version')} ({commit.get('operation', 'unknown operation')})"
                    raise foreign_commit(self.name, what)
        raise foreign_commit(self.name, f"any of the last {_HISTORY} commits")

    def create(self, schema: pa.Schema, partition_by: Sequence[str], record: ExportRecord) -> None:
        """See :class:`Target`."""
        DeltaTable.create(
            self._url,
            Schema.from_arrow(schema),
            partition_by=list(partition_by),
            storage_options=self._options,
            commit_properties=_properties(record),
        )
        self.load()

    def schema(self) -> pa.Schema:
        """See :class:`Target`."""
        return pa.schema(self._loaded.schema().to_arrow())

    def partition_columns(self) -> tuple[str, ...]:
        """See :class:`Target`."""
        return tuple(self._loaded.metadata().partition_columns)

    def files(self) -> list[TargetFile]:
        """See :class:`Target`."""
        actions = pa.table(self._loaded.get_add_actions())
        partitions = actions["partition"].to_pylist() if self.partition_columns() else [{}] * len(actions)
        found = []
        for path, size, count, values in zip(
            actions["path"].to_pylist(),
            actions["size_bytes"].to_pylist(),
            actions["num_records"].to_pylist(),
            partitions,
            strict=True,
        ):
            unit = Unit.of_path(path)
            if unit is None:
                raise foreign_commit(self.name, f"file {path}")
            texts = {name: _partition_text(value) for name, value in values.items()}
            found.append(TargetFile(unit, count, size, (path, texts)))
        return found

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """See :class:`Target`. The values of partition columns are in the log."""
        return pa.schema([field for field in schema if field.name not in self.partition_columns()])

    def new_path(self, unit: Unit) -> str:
        """See :class:`Target`."""
        return unit.path(file_id())

    @contextlib.contextmanager
    def create_file(self, path: str) -> Iterator[BinaryIO]:
        """See :class:`Target`."""
        filesystem = self._files()
        filesystem.create_dir(path.rpartition("/")[0])
        with filesystem.open_output_stream(path) as stream:
            yield stream

    def open_file(self, file: TargetFile) -> contextlib.AbstractContextManager[BinaryIO]:
        """See :class:`Target`."""
        found: contextlib.AbstractContextManager[BinaryIO] = self._files().open_input_file(file.handle[0])
        return found

    def _files(self) -> pa.fs.FileSystem:
        if self._filesystem is None:
            if "://" in self._url:
                self._filesystem = pa.fs.PyFileSystem(DeltaStorageHandler(self._url, self._options))
            else:
                # Much faster for a directory of this machine.
                self._filesystem = pa.fs.SubTreeFileSystem(self._url, pa.fs.LocalFileSystem())
        return self._filesystem

    def _add_columns(self, fields: Sequence[pa.Field]) -> None:
        assert self._record is not None
        with self._as_lost():
            self._loaded.alter.add_columns(
                [Field.from_arrow(field) for field in fields], commit_properties=_properties(self._record)
            )

    def commit(self, change: TargetChange) -> None:
        """See :class:`Target`."""
        if change.new_columns:
            # A commit of its own, with the old position: these columns are NULL in all rows of the target.
            self._add_columns(change.new_columns)
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(file.handle[0], True, now, file.byte_count, file.handle[1])
            for file in change.removed
        ]
        actions += [_add_action(file, now) for file in change.added]
        table = self._loaded
        with self._as_lost():
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                list(self.partition_columns()),
                commit_properties=_properties(change.record),
            )

    @contextlib.contextmanager
    def _as_lost(self) -> Iterator[None]:
        try:
            yield
        except CommitFailedError as error:
            raise LockLostError(
                f"target {self.name}: another commit came first, after version {self._loaded.version()}. "
                "Nothing of this run is visible in the target. Let only one export run at a time"
            ) from error
        except DeltaError as error:
            raise ConfigurationError(f"target {self.name}: {error}") from error

    def read(self) -> Iterator[pa.RecordBatch]:
        """See :class:`Target`."""
        yield from self._loaded.to_pyarrow_dataset().to_batches()


def open_target(name: str, options: Mapping[str, str]) -> Target:
    """Return the target whose name is a URL, or a path of this machine."""
    return _DeltaTarget(name, options)


def _properties(record: ExportRecord) -> CommitProperties:
    return CommitProperties(
        custom_metadata=dict(record.to_properties()),
        max_commit_retries=0,
        app_transactions=[Transaction(record.app_id, record.sequence)],
    )


def _add_action(file: NewFile, now: int) -> AddAction:
    texts = {name: _partition_text(value.as_py()) for name, value in file.partition.items()}
    stats = json.dumps(_statistics(file))
    return AddAction(file.path, file.byte_count, texts, now, True, stats)


def _partition_text(value: Any) -> str | None:
    """Return a value of a partition column as the log writes it.

    Source: Partition Value Serialization of the protocol.
    """
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case datetime.datetime():
            return value.isoformat(sep=" ", timespec="microseconds")
        case Decimal():
            return format(value, "f")
        case _:
            return str(value)


def _statistics(file: NewFile) -> dict[str, Any]:
    """Return the number of rows, and ranges of integers, dates and short strings, for readers that skip
    files.

    Ranges of other types are left out: floating-point numbers may be NaN, and timestamps are cut in the log.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    left_out: set[str] = set()
    for group in range(file.metadata.num_row_groups):
        row_group = file.metadata.row_group(group)
        for at in range(row_group.num_columns):
            column = row_group.column(at)
            name, found = column.path_in_schema, column.statistics
            if name in ROW_ID_NAMES:
                continue
            if "." in name or found is None or not found.has_null_count:
                left_out.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + found.null_count
            if found.num_values == 0:
                continue
            bounds = _bounds(found) if found.has_min_max else None
            if bounds is None:
                left_out.add(name)
                continue
            low[name] = min(low.get(name, bounds[0]), bounds[0])
            high[name] = max(high.get(name, bounds[1]), bounds[1])
    return {
        "numRecords": file.row_count,
        "minValues": {name: value for name, value in low.items() if name not in left_out},
        "maxValues": {name: value for name, value in high.items() if name not in left_out},
        "nullCount": {name: count for name, count in nulls.items() if "." not in name},
    }


def _bounds(found: Any) -> tuple[Any, Any] | None:
    try:
        low, high = found.min, found.max
    except (ValueError, OverflowError):  # a date beyond Python's calendar
        return None
    if isinstance(low, bool):
        return None
    if isinstance(low, int) and found.logical_type.type in ("NONE", "INT"):
        return low, high
    if isinstance(low, datetime.date) and not isinstance(low, datetime.datetime):
        return low.isoformat(), high.isoformat()
    if isinstance(low, str) and max(len(low), len(high)) <= _TEXT_LIMIT:
        return low, high
    return None
