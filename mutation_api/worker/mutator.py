"""Mutator: the one or two files of one (partition, bucket) group of one transaction.

=========  ======================================  ===================================================
operation  v1 legacy                               v1 split and v2
=========  ======================================  ===================================================
insert     delta: op 0, own id, counted row_id     the same
update     delta: op 1, its ROW__ID, the new row   delete_delta: op 2, its ROW__ID; and
                                                   delta: op 0, own id, counted row_id, the new row
delete     delta: op 2, its ROW__ID, no row        delete_delta: op 2, its ROW__ID, no row
=========  ======================================  ===================================================

The own id is the transaction's, in v2 the write id. The bucket of new rows is the plain id, in v2 the bucket
property of statement 0; that of existing rows is copied as it is. The counter starts at 0 and counts inserts
and updates' new versions in the order of writing. Files of insert-only tables hold the rows alone.
Source: Hive's OrcRecordUpdater (2.3, 3.1, 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mutation_api.acid.bucket_codec import bucket_property
from mutation_api.acid.event import Operation
from mutation_api.acid.layout import bucket_file_name
from mutation_api.acid.row_id import RowIdArrays
from mutation_api.commit.manifest import STATEMENT_ID, DeltaManifest, FileKind, relative_path
from mutation_api.errors import DeltaWriteError, RecordValueError
from mutation_api.orc.event_writer import EventFileFacts, OrcEventWriter, WriterOptions
from mutation_api.orc.storage import Storage
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import parse_partition_name

__all__ = ["Mutator", "MutatorGroup"]


@dataclass(frozen=True)
class MutatorGroup:
    """One group and where its files go. ``staged_prefix`` is the staged path up to the file's kind."""

    table: AcidTable
    partition_name: str
    bucket_id: int
    partition_location: str
    staged_prefix: str
    writer_id: str
    attempt_id: str

    def __str__(self) -> str:
        """Table, partition and bucket, for messages."""
        partition = f", partition {self.partition_name!r}" if self.table.partition_keys else ""
        return f"table {self.table.full_name}{partition}, bucket {self.bucket_id}"

    def staged_path(self, kind: FileKind) -> str:
        """Where the file is written."""
        return f"{self.staged_prefix}_{kind.value}_{bucket_file_name(self.bucket_id)}"

    def final_path(self, kind: FileKind) -> str:
        """Where the committer moves it."""
        path = relative_path(kind, self.table.required_write_id(), self.bucket_id, self.table.version)
        return f"{self.partition_location.rstrip('/')}/{path}"


class Mutator:
    """Writes the events of one group; files are created when their first event comes.

    Args:
        group: which group, and where.
        row_type: struct of the data columns that ``rows`` have.
        options: of the files.
    """

    def __init__(self, group: MutatorGroup, row_type: pa.StructType, options: WriterOptions) -> None:
        self.group = group
        self._row_type = row_type
        self._options = options
        self._own_id = group.table.required_write_id()
        encodes = group.table.version.encodes_buckets
        self._bucket = bucket_property(group.bucket_id, STATEMENT_ID) if encodes else group.bucket_id
        self._next_row_id = 0
        self._files: dict[FileKind, _StagedFile] = {}

    def write(
        self,
        operations: np.ndarray,
        row_ids: RowIdArrays,
        rows: pa.StructArray | None,
    ) -> None:
        """Append n records, checked and in order.

        Args:
            operations: codes as the user meant them, shape (n,).
            row_ids: of n records; of inserts ignored.
            rows: n rows of the row type; may be None if all are deletes.

        Raises:
            DeltaWriteError: a file could not be written.
            RecordValueError: a value that ORC cannot hold.
        """
        if self.group.table.version.splits_updates:
            self._write_split(operations, row_ids, rows)
        else:
            self._write_legacy(operations, row_ids, rows)

    def close(self) -> tuple[DeltaManifest, ...]:
        """Complete the files. Raises DeltaWriteError."""
        return tuple(staged.close() for staged in self._files.values())

    def discard(self) -> None:
        """Close and delete what was written. Raises OSError if a file cannot be deleted."""
        for staged in self._files.values():
            staged.discard()

    def _write_legacy(
        self,
        operations: np.ndarray,
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
        operations: np.ndarray,
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
            self._file(FileKind.DELTA).write(events, meant, self._new_row_ids(count), kept)

    def _new_row_ids(self, count: int) -> RowIdArrays:
        own_ids = np.full(count, self._own_id, np.int64)
        return RowIdArrays(own_ids, np.full(count, self._bucket, np.int32), self._numbers(count))

    def _numbers(self, count: int) -> np.ndarray:
        first = self._next_row_id
        self._next_row_id += count
        return np.arange(first, first + count, dtype=np.int64)

    def _file(self, kind: FileKind) -> _StagedFile:
        if kind not in self._files:
            self._files[kind] = _StagedFile(self.group, kind, self._row_type, self._options)
        return self._files[kind]


class _StagedFile:
    """One file being written, with counts of what the user meant; wraps errors of the file system."""

    def __init__(
        self, group: MutatorGroup, kind: FileKind, row_type: pa.StructType, options: WriterOptions
    ) -> None:
        self._group = group
        self._kind = kind
        self._location = group.staged_path(kind)
        self._meant = np.zeros(len(Operation), np.int64)
        try:
            storage = Storage.for_location(self._location)
            self._path = storage.path(self._location)
            self._writer = OrcEventWriter(
                storage,
                self._path,
                row_type,
                version=group.table.version,
                own_id=group.table.required_write_id(),
                options=options,
            )
        except OSError as error:
            raise self._failed("created", error) from error

    def write(
        self,
        events: np.ndarray,
        meant: np.ndarray,
        row_ids: RowIdArrays,
        rows: pa.StructArray | None,
    ) -> None:
        try:
            self._writer.write(events, row_ids, rows)
        except RecordValueError as error:
            raise RecordValueError(f"{self._group}: {error}") from error
        except (OSError, pa.ArrowException) as error:
            raise self._failed("written", error) from error
        self._meant += np.bincount(meant, minlength=len(Operation))

    def close(self) -> DeltaManifest:
        try:
            facts = self._writer.close()
        except (OSError, pa.ArrowException) as error:
            raise self._failed("completed", error) from error
        return self._manifest(facts)

    def discard(self) -> None:
        self._writer.discard()

    def _failed(self, step: str, error: Exception) -> DeltaWriteError:
        return DeltaWriteError(f"{self._group}: file {self._location} could not be {step}: {error}")

    def _manifest(self, facts: EventFileFacts) -> DeltaManifest:
        group = self._group
        return DeltaManifest(
            database=group.table.database,
            table=group.table.name,
            txn_id=group.table.required_txn_id(),
            write_id=group.table.required_write_id(),
            partition_name=group.partition_name,
            partition_values=parse_partition_name(group.partition_name),
            bucket_id=group.bucket_id,
            kind=self._kind,
            writer_id=group.writer_id,
            attempt_id=group.attempt_id,
            staged_path=self._location + facts.path.removeprefix(self._path),
            final_path=group.final_path(self._kind),
            insert_count=int(self._meant[Operation.INSERT]),
            update_count=int(self._meant[Operation.UPDATE]),
            delete_count=int(self._meant[Operation.DELETE]),
            row_count=facts.row_count,
            byte_count=facts.byte_count,
            stripe_count=facts.stripe_count,
            tail_crc32=facts.tail_crc32,
        )
