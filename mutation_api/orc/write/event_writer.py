"""OrcEventWriter: write batches of ACID events to one ORC file with the metadata that Hive's readers need.

Files of insert-only tables hold plain rows, without events and metadata.

Rows of events are first given the form in which a file stores them. Rows of deletes become NULL. Days and
local timestamps are converted to the file's calendar, timestamps to its unit
(:mod:`mutation_api.orc.format.stored_values`). Arrays that pyarrow 26 would encode incorrectly or crash on
(slices under NULL structs, validity above unions) are rebuilt.

The file is completed while it is written. From the moment the encoder (:mod:`.encoders`) is closed,
everything it emits (the last stripe and the tail, at most a stripe) is held back. The tail is extended, and
only then both are written. So a file is never read or written twice, and the same code works for storage that
cannot overwrite.

The extension is user metadata: pyarrow's writer cannot write it, and Hive's ACID readers need two entries.
Protobuf allows a repeated field anywhere in a message, so the serialised entries are appended to the footer
as separate chunks (marked "not compressed"), and the postscript's footer length grows. The writer's own bytes
are not parsed and written again, so they cannot change. Rejected alternative: rewriting the footer, which
requires knowledge of every field that a future writer may put there.

Hive silently loses rows if the key index or the statistics are wrong (measured on 2.3.10: an index that was
off by 500 keys lost 7,500 of 60,000 rows). Therefore both are built from the *finished* tail. The stripes'
own row counts determine which row ends each stripe, and its key was recorded when it was written. If a stripe
ends at a row without a recorded key, the file is rejected.

If pyarrow would encode a value incorrectly (:mod:`mutation_api.orc.format.stored_values`), the writer changes
to pyorc: the rows written so far are copied one by one to the beginning of the file, and pyorc continues it.

Source: orc_proto.proto and the ORC v1 specification (file tail, compression chunks).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import CorruptFileError, DeltaWriteError, RecordValueError
from mutation_api.format.event import (
    ACID_STATS,
    ACID_VERSION,
    KEY_INDEX,
    ROW,
    Operation,
    RowIdArrays,
    event_schema,
)
from mutation_api.format.layout import AcidVersion, FileCalendar
from mutation_api.format.plain_array import has_union, struct_fields
from mutation_api.orc.format.compression import Compression, original_chunks
from mutation_api.orc.format.protobuf import (
    FOOTER_CALENDAR,
    FOOTER_METADATA,
    METADATA_NAME,
    METADATA_VALUE,
    POSTSCRIPT_FOOTER_LENGTH,
    PROLEPTIC_GREGORIAN,
    bytes_field,
    number_field,
    with_numbers,
)
from mutation_api.orc.format.stored_values import Storable, holds_dates, hollow, nulled, storable, union_safe
from mutation_api.orc.format.tail import OrcTail, parse_tail
from mutation_api.orc.write.encoders import PyarrowEncoder, PyorcEncoder, TailHoldingSink
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import OutputFile
from mutation_api.table.acid_table import NO_BLOOM_FILTERS, ZLIB, BloomFilters, WriterOptions


class EventRows:
    """Converts the rows of one file to their stored form.

    Args:
        row_type: the struct of the data columns.
        is_hybrid: True if the file's days before 1582-10-15 are hybrid.
        location: the file's location, for messages.
    """

    def __init__(self, row_type: pa.StructType, *, is_hybrid: bool, location: Location) -> None:
        self._row_type = row_type
        self._is_hybrid = is_hybrid
        self._location = location
        self._date_columns = [i for i, field in enumerate(row_type) if holds_dates(field.type)]
        self._union_columns = [i for i, field in enumerate(row_type) if has_union(field.type)]

    def storable(self, operations: NDArray[np.integer], rows: pa.StructArray | None) -> Storable:
        """Convert n rows for encoding. Their type differs from the file's only if pyorc is needed.

        Args:
            operations: the codes of the operations, shape (n,).
            rows: n rows. None if all events are deletes.

        Raises:
            RecordValueError: If ORC cannot hold a timestamp, or the row of an insert or update is NULL.
        """
        stored = self._stored(operations, rows)
        if stored.values.type != self._row_type and not stored.needs_pyorc:
            stored = self._in_unit_of_file(stored.values)
        # Make a copy without offsets: if a struct with nulls, or a child of it, is a slice, pyarrow 26
        # encodes the wrong rows.
        return Storable(pa.concat_arrays([stored.values]), stored.needs_pyorc)

    def _stored(self, operations: NDArray[np.integer], rows: pa.StructArray | None) -> Storable:
        """Return the rows with deletes as NULL and dates as Hive stores them."""
        deletes = operations == Operation.DELETE
        if rows is None or deletes.all():
            # With unions, rows cannot be NULL. Hive ignores the rows of deletes (measured on 2.3.10).
            return Storable(hollow(self._row_type, len(operations)), False)
        if rows.null_count and (~deletes & rows.is_null().to_numpy(zero_copy_only=False)).any():
            raise RecordValueError(
                f"{self._location}: the row of an insert or update is NULL; Hive fails on such a row"
            )
        any_deletes = bool(deletes.any())
        if not self._date_columns and not self._union_columns and not any_deletes:
            return Storable(rows, False)
        children = struct_fields(rows)
        needs_pyorc = False
        for index in self._date_columns:
            column = nulled(children[index], deletes) if any_deletes else children[index]
            stored = storable(column, rows.type.field(index).name, hybrid=self._is_hybrid)
            children[index] = stored.values
            needs_pyorc |= stored.needs_pyorc
        for index in self._union_columns:
            children[index] = union_safe(children[index], rows.type.field(index).name)
        mask = pa.array(deletes) if any_deletes and not self._union_columns else None
        return Storable(pa.StructArray.from_arrays(children, fields=list(rows.type), mask=mask), needs_pyorc)

    def _in_unit_of_file(self, rows: pa.StructArray) -> Storable:
        """Convert timestamps to the file's unit: by a cast if it is exact, otherwise by pyorc."""
        try:
            return Storable(rows.cast(self._row_type), False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return Storable(rows, True)


_MAX_POSTSCRIPT_BYTES = 255


def append_user_metadata(
    end: bytes, entries: Mapping[str, bytes], tail: OrcTail, *, mark_proleptic: bool = False
) -> bytes:
    """Return the tail with user metadata added.

    Args:
        end: the last bytes of a finished file, at least footer and postscript.
        entries: values by name. The file must not have these names yet.
        tail: the result of :func:`~mutation_api.orc.format.tail.parse_tail` for ``end``.
        mark_proleptic: True to also mark days as counted in the proleptic Gregorian calendar. If a field
            occurs twice, protobuf takes the last one.

    Returns:
        The bytes that replace ``end`` at the end of the file.

    Raises:
        ValueError: If a name exists already, or the postscript would exceed its 255 bytes.
    """
    doubled = sorted(set(entries) & set(tail.user_metadata))
    if doubled:
        raise ValueError(f"the file already has user metadata {doubled}")
    items = _serialised(entries)
    if mark_proleptic:
        items += number_field(FOOTER_CALENDAR, PROLEPTIC_GREGORIAN)
    added = items if tail.compression is Compression.NONE else original_chunks(items, tail.block_bytes)
    start = len(end) - 1 - tail.postscript_length
    # All other bytes of the postscript are unchanged.
    postscript = with_numbers(end[start:-1], {POSTSCRIPT_FOOTER_LENGTH: tail.footer_length + len(added)})
    if len(postscript) > _MAX_POSTSCRIPT_BYTES:
        raise ValueError(
            f"the postscript would have {len(postscript)} bytes; the limit is {_MAX_POSTSCRIPT_BYTES}"
        )
    return end[:start] + added + postscript + bytes([len(postscript)])


def _serialised(entries: Mapping[str, bytes]) -> bytes:
    """Serialise entries as fields of a footer."""
    items = (
        bytes_field(METADATA_NAME, name.encode()) + bytes_field(METADATA_VALUE, value)
        for name, value in entries.items()
    )
    return b"".join(bytes_field(FOOTER_METADATA, item) for item in items)


_ACID_VERSION_2 = b"2"


@dataclass(frozen=True)
class EventFileFacts:
    """The facts of a finished file.

    ``tail_crc32`` is its :func:`mutation_api.orc.format.tail.tail_checksum`.
    """

    insert_count: int
    update_count: int
    delete_count: int
    byte_count: int
    stripe_count: int
    tail_crc32: int

    @property
    def row_count(self) -> int:
        """The number of events of all kinds."""
        return self.insert_count + self.update_count + self.delete_count


class OrcEventWriter:
    """Writes one file of a table. Not thread-safe; holds about one stripe in memory.

    The caller is responsible for the order of the events, and closes the file after :meth:`finish`. After an
    error the writer cannot be used; call :meth:`discard`.

    Args:
        file: the created, empty file.
        row_type: the struct of the data columns, ``row_type`` of the table (timestamps of any single unit).
        version: the layout of the table's files.
        own_id: the value of ``currentTransaction``: the write id, in v1 the transaction's id.
        options: stripe size and compression. A compression of None means zlib.
        bloom: the Bloom filters of the file.
    """

    def __init__(
        self,
        file: OutputFile,
        row_type: pa.StructType,
        *,
        version: AcidVersion,
        own_id: int,
        options: WriterOptions | None = None,
        bloom: BloomFilters = NO_BLOOM_FILTERS,
    ) -> None:
        options = options or WriterOptions()
        self._file = file
        self._location = file.staged.location
        self._version = version
        self._schema = _file_schema(row_type, version)
        self._row_type = row_type
        is_hybrid = version.calendar is FileCalendar.HYBRID
        self._rows = EventRows(row_type, is_hybrid=is_hybrid, location=self._location)
        self._own_id = own_id
        self._compression = (options.compression or ZLIB).lower()
        self._stripe_bytes = options.stripe_bytes
        root = f"{ROW}." if version.has_row_ids else ""
        self._bloom = replace(bloom, columns=tuple(f"{root}{name}" for name in bloom.columns))
        self._counts = np.zeros(len(Operation), np.int64)
        self._sink = TailHoldingSink(file)
        self._encoder: PyarrowEncoder | PyorcEncoder = self._pyarrow_encoder()

    @property
    def row_count(self) -> int:
        """The number of events written so far."""
        return int(self._counts.sum())

    def write(
        self,
        operations: NDArray[np.integer],
        row_ids: RowIdArrays,
        rows: pa.StructArray | None,
        own_ids: NDArray[np.int64] | None = None,
    ) -> None:
        """Append n events.

        Args:
            operations: int8 or wider, shape (n,), codes of :class:`Operation`.
            row_ids: n ROW__IDs as they are stored, including those of inserts.
            rows: n rows of ``row_type``. Rows of deletes are always written as NULL. None if all events are
                deletes.
            own_ids: n values of ``currentTransaction``. If None, all are the file's ``own_id``.

        Raises:
            RecordValueError: If ORC cannot hold a timestamp, or the row of an insert or update is NULL.
                Nothing of the batch was written.
            OSError: If the file cannot be written.
        """
        count = len(operations)
        if not count:
            return
        stored = self._rows.storable(operations, rows)
        if stored.needs_pyorc and not isinstance(self._encoder, PyorcEncoder):
            self._change_to_pyorc()
        table = self._table(operations, row_ids, stored.values, own_ids)
        with self._encoding():
            if isinstance(self._encoder, PyorcEncoder):
                self._encoder.write(table)
            else:
                self._encoder.write(table, row_ids)
        self._counts += np.bincount(operations, minlength=len(Operation))

    def finish(self) -> EventFileFacts:
        """Write the rest of the file: last stripe, metadata, tail. The caller closes the file.

        A file without events is also valid.

        Raises:
            DeltaWriteError: If the finished file does not hold the written events. It must not be used.
            OSError: If the file cannot be written.
        """
        self._sink.hold()
        with self._encoding():
            self._encoder.close()
        held = self._sink.held()
        tail = self._checked_tail(held)
        is_marked = self._version.calendar is FileCalendar.MARKED_PROLEPTIC
        held = append_user_metadata(held, self._metadata(tail), tail, mark_proleptic=is_marked)
        self._sink.finish(held)
        return EventFileFacts(
            insert_count=int(self._counts[Operation.INSERT]),
            update_count=int(self._counts[Operation.UPDATE]),
            delete_count=int(self._counts[Operation.DELETE]),
            byte_count=self._sink.byte_count,
            stripe_count=len(tail.stripes),
            tail_crc32=self._sink.checksum(),
        )

    def discard(self) -> None:
        """Discard the file. Raises OSError if that fails."""
        self._sink.drop()
        self._file.discard()

    def _table(
        self,
        operations: NDArray[np.integer],
        row_ids: RowIdArrays,
        rows: pa.StructArray,
        own_ids: NDArray[np.int64] | None,
    ) -> pa.Table:
        """Return the rows of the file: events around the rows, or the plain rows."""
        schema = _file_schema(rows.type, self._version)
        if not self._version.has_row_ids:
            return pa.Table.from_arrays(struct_fields(rows), schema=schema)
        return pa.Table.from_arrays(
            [
                pa.array(operations, pa.int32()),
                pa.array(row_ids.original_txns, pa.int64()),
                pa.array(row_ids.buckets, pa.int32()),
                pa.array(row_ids.row_ids, pa.int64()),
                pa.array(np.full(len(operations), self._own_id, np.int64) if own_ids is None else own_ids),
                rows,
            ],
            schema=schema,
        )

    def _pyarrow_encoder(self) -> PyarrowEncoder:
        return PyarrowEncoder(self._sink, self._schema, self._compression, self._stripe_bytes, self._bloom)

    def _change_to_pyorc(self) -> None:
        """Continue with pyorc after copying the rows that have already been written."""
        unions = [field.name for field in self._row_type if has_union(field.type)]
        if unions:
            raise RecordValueError(
                f"{self._location}: a table with union columns ({', '.join(unions)}) cannot hold "
                "timestamps before 1970 with a fraction of a second, or timestamps of several units; use "
                "whole seconds and one unit"
            )
        with self._encoding():
            self._encoder.close()
        written = self._file.restart()
        self._sink = TailHoldingSink(self._file)
        encoder = PyorcEncoder(
            self._sink,
            self._schema,
            self._compression,
            self._stripe_bytes,
            self._bloom,
            has_keys=self._version.has_row_ids,
        )
        if self.row_count:
            encoder.copy_from(written)
        self._encoder = encoder

    @contextlib.contextmanager
    def _encoding(self) -> Iterator[None]:
        """Convert an error about an unknown layout of the encoder's file to one that names the file."""
        try:
            yield
        except CorruptFileError as error:
            raise DeltaWriteError(
                f"{self._location}: this version does not support the layout of the encoder's file: "
                f"{error}; the file must not be used. A codec other than zlib may work: "
                "WriterOptions(compression=...)"
            ) from error

    def _checked_tail(self, held: bytes) -> OrcTail:
        try:
            tail = parse_tail(held)
        except CorruptFileError as error:
            raise DeltaWriteError(
                f"{self._location}: the encoder wrote a file without a readable tail: {error}"
            ) from error
        rows_in_stripes = sum(stripe.row_count for stripe in tail.stripes)
        if not tail.row_count == rows_in_stripes == self.row_count:
            raise DeltaWriteError(
                f"{self._location}: {self.row_count} events were written, but the file has "
                f"{tail.row_count} rows according to its footer and {rows_in_stripes} in its stripes; the "
                "file must not be used"
            )
        return tail

    def _metadata(self, tail: OrcTail) -> dict[str, bytes]:
        if not self._version.has_row_ids:
            return {}
        ends = np.cumsum([stripe.row_count for stripe in tail.stripes], dtype=np.int64)
        try:
            keys = self._encoder.keys.at(ends)
        except KeyError as error:
            raise DeltaWriteError(
                f"{self._location}: a stripe ends after row {error}, whose key was not recorded. This "
                "version does not support the way in which the encoder cuts stripes; the file must not be "
                "used"
            ) from error
        index = "".join(f"{key.original_txn},{key.bucket},{key.row_id};" for key in keys)
        stats = ",".join(str(int(self._counts[operation])) for operation in Operation)
        metadata = {KEY_INDEX: index.encode(), ACID_STATS: stats.encode()}
        return {**metadata, ACID_VERSION: _ACID_VERSION_2} if self._version.uses_write_ids else metadata


def _file_schema(row_type: pa.StructType, version: AcidVersion) -> pa.Schema:
    return event_schema(row_type) if version.has_row_ids else pa.schema(list(row_type))
