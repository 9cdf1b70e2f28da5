"""Mutator: writes the one or two files of one (partition, bucket) group of one transaction.

=========  ======================================  ===================================================
operation  v1 legacy                               v1 split and v2
=========  ======================================  ===================================================
insert     delta: op 0, own id, counted row_id     the same
update     delta: op 1, its ROW__ID, the new row   delete_delta: op 2, its ROW__ID; and
                                                   delta: op 0, own id, counted row_id, the new row
delete     delta: op 2, its ROW__ID, no row        delete_delta: op 2, its ROW__ID, no row
=========  ======================================  ===================================================

The own id is the transaction's id, in v2 the write id. The bucket of new rows is the plain id, in v2 the
bucket property with the number of the statement. The bucket of existing rows is copied unchanged. The counter
starts at 0 and counts inserts and the new versions of updates in the order of writing. Files of insert-only
tables hold only the rows.

Source: Hive's OrcRecordUpdater (2.3, 3.1, 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import DeltaWriteError, RecordValueError
from mutation_api.format.column_summary import RowSummary, summarised_families
from mutation_api.format.event import Operation, RowIdArrays, bucket_property
from mutation_api.format.layout import bucket_file_name
from mutation_api.orc.write.event_writer import EventFileFacts, OrcEventWriter
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import OutputFile
from mutation_api.table.acid_table import NO_BLOOM_FILTERS, AcidTable, WriterOptions
from mutation_api.table.partition import parse_partition_name
from mutation_api.transaction.manifest import DeltaManifest, FileKind, relative_path


@dataclass(frozen=True)
class MutatorGroup:
    """One group and the locations of its files. Their names in ``directory`` begin with ``hidden_prefix``."""

    table: AcidTable
    partition_name: str
    bucket_id: int
    partition_location: Location
    directory: Location
    hidden_prefix: str
    writer_id: str
    attempt_id: str

    def __str__(self) -> str:
        """Return the table, partition and bucket, for messages."""
        partition = f", partition {self.partition_name!r}" if self.table.partition_keys else ""
        return f"table {self.table.full_name}{partition}, bucket {self.bucket_id}"

    def hidden(self, kind: FileKind) -> Location:
        """Return the location to which the file is written, if the storage publishes by renaming."""
        return self.directory / f"{self.hidden_prefix}_{kind.value}_{bucket_file_name(self.bucket_id)}"

    def target(self, kind: FileKind) -> Location:
        """Return the location at which the committer publishes the file."""
        table = self.table
        own_id, statement_id = table.required_write_id(), table.statement_id
        path = relative_path(kind, own_id, self.bucket_id, table.version, statement_id)
        return self.partition_location / path


class Mutator:
    """Writes the events of one group. Each file is created with its first event.

    Args:
        group: the group and its locations.
        row_type: the struct of the data columns in ``rows``.
        options: options of the files.
    """

    def __init__(self, group: MutatorGroup, row_type: pa.StructType, options: WriterOptions) -> None:
        self.group = group
        self._row_type = row_type
        self._options = options
        self._own_id = group.table.required_write_id()
        encodes, statement_id = group.table.version.encodes_buckets, group.table.statement_id
        self._bucket = bucket_property(group.bucket_id, statement_id) if encodes else group.bucket_id
        self._next_row_id = 0
        self._files: dict[FileKind, _StagedFile] = {}
        gathers = options.column_statistics and group.table.version.uses_write_ids
        self._summary = RowSummary(summarised_families(group.table.columns)) if gathers else None

    def write(
        self,
        operations: NDArray[np.int8],
        row_ids: RowIdArrays,
        rows: pa.StructArray | None,
    ) -> None:
        """Append n records, which have been checked and are in order.

        Args:
            operations: codes of the user's operations, shape (n,).
            row_ids: ROW__IDs of n records. Those of inserts are ignored.
            rows: n rows of the row type. May be None if all records are deletes.

        Raises:
            DeltaWriteError: If a file cannot be written.
            RecordValueError: If ORC cannot hold a value.
        """
        if self.group.table.version.splits_updates:
            self._write_split(operations, row_ids, rows)
        else:
            self._write_legacy(operations, row_ids, rows)

    def finish(self) -> tuple[FinishedFile, ...]:
        """Write the rest of the files, which the caller must close. Raises DeltaWriteError."""
        summary = "" if self._summary is None else self._summary.to_json()
        return tuple(
            staged.finish(summary if kind is FileKind.DELTA else "") for kind, staged in self._files.items()
        )

    def discard(self) -> None:
        """Delete the files. Raises OSError if a file cannot be deleted."""
        for staged in self._files.values():
            staged.discard()

    def _write_legacy(
        self,
        operations: NDArray[np.int8],
        row_ids: RowIdArrays,
        rows: pa.StructArray | None,
    ) -> None:
        inserts = operations == Operation.INSERT
        if inserts.any():
            txns = np.where(inserts, self._own_id, row_ids.original_txns)
            buckets = np.where(inserts, self._bucket, row_ids.buckets)
            numbers = row_ids.row_ids.astype(np.int64, copy=True)
            numbers[inserts] = self._numbers(int(inserts.sum()))
            row_ids = RowIdArrays(txns, buckets, numbers)
        self._file(FileKind.DELTA).write(operations, operations, row_ids, rows)

    def _write_split(
        self,
        operations: NDArray[np.int8],
        row_ids: RowIdArrays,
        rows: pa.StructArray | None,
    ) -> None:
        old = operations != Operation.INSERT
        new = operations != Operation.DELETE
        if old.any():
            meant = operations[old]
            events = np.full(len(meant), Operation.DELETE, np.int8)
            self._file(FileKind.DELETE_DELTA).write(events, meant, row_ids.take(old), None)
        if new.any():
            assert rows is not None, "the caller checks that inserts and updates have rows"
            meant = operations[new]
            count = len(meant)
            events = np.full(count, Operation.INSERT, np.int8)
            kept = rows if count == len(rows) else rows.filter(pa.array(new))
            if self._summary is not None:
                self._summary.add(kept)
            self._file(FileKind.DELTA).write(events, meant, self._new_row_ids(count), kept)

    def _new_row_ids(self, count: int) -> RowIdArrays:
        own_ids = np.full(count, self._own_id, np.int64)
        return RowIdArrays(own_ids, np.full(count, self._bucket, np.int32), self._numbers(count))

    def _numbers(self, count: int) -> NDArray[np.int64]:
        first = self._next_row_id
        self._next_row_id += count
        return np.arange(first, first + count, dtype=np.int64)

    def _file(self, kind: FileKind) -> _StagedFile:
        if kind not in self._files:
            self._files[kind] = _StagedFile(self.group, kind, self._row_type, self._options)
        return self._files[kind]


class _StagedFile:
    """One file being written, with counts of the user's operations. It wraps errors of the storage."""

    def __init__(
        self, group: MutatorGroup, kind: FileKind, row_type: pa.StructType, options: WriterOptions
    ) -> None:
        self._group = group
        self._kind = kind
        self._meant = np.zeros(len(Operation), np.int64)
        try:
            self._file = storage_at(group.directory).stage(group.hidden(kind), group.target(kind))
        except OSError as error:
            raise _failed(group, group.hidden(kind), "created", error) from error
        self._writer = OrcEventWriter(
            self._file,
            row_type,
            version=group.table.version,
            own_id=group.table.required_write_id(),
            options=options,
            bloom=NO_BLOOM_FILTERS if kind is FileKind.DELETE_DELTA else group.table.bloom_filters,
        )

    def write(
        self,
        events: NDArray[np.int8],
        meant: NDArray[np.int8],
        row_ids: RowIdArrays,
        rows: pa.StructArray | None,
    ) -> None:
        try:
            self._writer.write(events, row_ids, rows)
        except RecordValueError as error:
            raise RecordValueError(f"{self._group}: {error}") from error
        except (OSError, pa.ArrowException) as error:
            raise _failed(self._group, self._file.staged.location, "written", error) from error
        self._meant += np.bincount(meant, minlength=len(Operation))

    def finish(self, summary: str) -> FinishedFile:
        try:
            facts = self._writer.finish()
        except (OSError, pa.ArrowException) as error:
            raise _failed(self._group, self._file.staged.location, "completed", error) from error
        return FinishedFile(self._group, self._kind, self._file, facts, self._meant, summary)

    def discard(self) -> None:
        self._writer.discard()


@dataclass(frozen=True)
class FinishedFile:
    """A file that is written completely, but not closed.

    ``meant`` counts the user's operations by code. ``summary`` has the statistics of the new rows, if any.
    """

    group: MutatorGroup
    kind: FileKind
    file: OutputFile
    facts: EventFileFacts
    meant: NDArray[np.int64]
    summary: str = ""

    def close(self) -> None:
        """Close the file, which may take long. Raises DeltaWriteError."""
        try:
            self.file.close()
        except OSError as error:
            raise _failed(self.group, self.file.staged.location, "completed", error) from error

    def manifest(self) -> DeltaManifest:
        """Return the file's description for the committer. Call it only after :meth:`close`."""
        group, facts = self.group, self.facts
        return DeltaManifest(
            database=group.table.database,
            table=group.table.name,
            txn_id=group.table.required_txn_id(),
            write_id=group.table.required_write_id(),
            statement_id=group.table.statement_id,
            partition_name=group.partition_name,
            partition_values=parse_partition_name(group.partition_name),
            bucket_id=group.bucket_id,
            kind=self.kind,
            writer_id=group.writer_id,
            attempt_id=group.attempt_id,
            staged=self.file.staged,
            target=group.target(self.kind),
            insert_count=int(self.meant[Operation.INSERT]),
            update_count=int(self.meant[Operation.UPDATE]),
            delete_count=int(self.meant[Operation.DELETE]),
            row_count=facts.row_count,
            byte_count=facts.byte_count,
            stripe_count=facts.stripe_count,
            tail_crc32=facts.tail_crc32,
            summary=self.summary,
        )


def _failed(group: MutatorGroup, file: Location, step: str, error: Exception) -> DeltaWriteError:
    return DeltaWriteError(f"{group}: file {file} could not be {step}: {error}")
