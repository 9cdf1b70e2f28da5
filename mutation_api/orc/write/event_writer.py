"""OrcEventWriter: batches of ACID events -> one ORC file, rows in order, with the metadata that Hive's
readers need. For insert-only tables: the rows alone, without events and metadata.

pyarrow encodes, and what is to be compressed by zlib we compress (:mod:`.file_compressor`).
The file is completed while it is being written: from the moment the encoder is closed, everything it emits
(the last stripe and the tail, at most a stripe) is held back, the tail is extended, and only then both are
written. So a file is never read or written twice, and the same code serves storage that cannot overwrite.

Hive loses rows in silence if the key index or the statistics are wrong (measured on 2.3.10: an index 500 keys
off lost 7,500 of 60,000 rows). Therefore both are built from the *finished* tail: the stripes' own row counts
say which row ends each stripe, and its key was noted when it was written; if a stripe ends where no key was
noted, the file is refused.

Values that pyarrow would encode wrongly (:mod:`.stored_values`) make the file change to pyorc:
what was written so far is copied row by row to the beginning of the file, which pyorc continues.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc

from mutation_api.acid.event import Operation, event_schema
from mutation_api.acid.footer import ACID_STATS, ACID_VERSION, KEY_INDEX
from mutation_api.acid.row_id import RowIdArrays
from mutation_api.acid.version import AcidVersion, FileCalendar
from mutation_api.errors import CorruptFileError, DeltaWriteError, RecordValueError
from mutation_api.orc.format.stored_values import holds_dates, hollow, nulled, storable, union_safe
from mutation_api.orc.format.tail import TAIL_CHECKSUM_BYTES, OrcTail, parse_tail, tail_checksum
from mutation_api.orc.format.user_metadata import append_user_metadata
from mutation_api.orc.write.file_compressor import FileCompressor
from mutation_api.orc.write.key_log import KeyLog
from mutation_api.orc.write.pyorc_encoder import PyorcEncoder
from mutation_api.storage.protocol import OutputFile
from mutation_api.table.writer_options import ZLIB, WriterOptions
from mutation_api.types.plain_array import has_union, struct_fields

__all__ = ["EventFileFacts", "OrcEventWriter"]

_ACID_VERSION_2 = b"2"

_PYARROW_CODECS = {
    ZLIB: "UNCOMPRESSED",
    "snappy": "SNAPPY",
    "lz4": "LZ4",
    "zstd": "ZSTD",
    "none": "UNCOMPRESSED",
}
_ENCODER_BATCH_ROWS = 1024
"""A stripe can end only after so many rows of a write; small, so that wide rows stay in bounds."""
_ROW_INDEX_STRIDE = 10_000
_COMPRESSION_BLOCK_BYTES = 64 * 1024
_DICTIONARY_THRESHOLD = 0.8
"""Java's default. Measured: 1 M strings of 300 values shrink to 58 %; unique ones cost nothing more."""
_ALL_DIFFERENT = 0.98
"""Of the first texts of a file; of 10,000 that are drawn from 250,000 so many differ."""
_FEW_ROWS = 500
"""In a first batch: that their texts differ says too little of those that follow."""


@dataclass(frozen=True)
class EventFileFacts:
    """What lies in a finished file. ``tail_crc32`` is :func:`~.tail.tail_checksum` of it."""

    insert_count: int
    update_count: int
    delete_count: int
    byte_count: int
    stripe_count: int
    tail_crc32: int

    @property
    def row_count(self) -> int:
        """Events of all kinds."""
        return self.insert_count + self.update_count + self.delete_count


class OrcEventWriter:
    """Writes one file of a table. Not safe from several threads; holds about one stripe in memory.

    The caller is responsible for the order of the events, and closes the file after :meth:`finish`. After an
    error it is unusable: :meth:`discard` it.

    Args:
        file: created and empty.
        row_type: struct of the data columns, ``row_type`` of the table (timestamps of any one unit).
        version: of the table's files.
        own_id: value of ``currentTransaction``: the write id, in v1 the transaction's.
        options: stripe size and compression (None counts as zlib).
    """

    def __init__(
        self,
        file: OutputFile,
        row_type: pa.StructType,
        *,
        version: AcidVersion,
        own_id: int,
        options: WriterOptions | None = None,
    ) -> None:
        options = options or WriterOptions()
        self._file = file
        self._place = file.staged.location
        self._version = version
        self._schema = _file_schema(row_type, version)
        self._row_type = row_type
        self._date_columns = [i for i, field in enumerate(row_type) if holds_dates(field.type)]
        self._union_columns = [i for i, field in enumerate(row_type) if has_union(field.type)]
        self._own_id = own_id
        self._compression = (options.compression or ZLIB).lower()
        self._stripe_bytes = options.stripe_bytes
        self._counts = np.zeros(len(Operation), np.int64)
        self._sink = _TailHoldingSink(file)
        self._encoder: _PyarrowEncoder | PyorcEncoder = self._pyarrow_encoder()

    @property
    def row_count(self) -> int:
        """Events written so far."""
        return int(self._counts.sum())

    def write(
        self,
        operations: np.ndarray,
        row_ids: RowIdArrays,
        rows: pa.StructArray | None,
    ) -> None:
        """Append n events.

        Args:
            operations: int8 or wider, shape (n,), codes of :class:`Operation`.
            row_ids: n identities as they are to be stored, those of inserts too.
            rows: n rows of ``row_type``; rows of deletes are written as NULL whatever they hold. None if all
                are deletes.

        Raises:
            RecordValueError: a timestamp that ORC cannot hold, or a NULL row that is no delete's; nothing of
                the batch was written.
            OSError: the file cannot be written.
        """
        count = len(operations)
        if not count:
            return
        rows, needs_pyorc = self._storable_rows(operations, rows)
        if rows.type != self._row_type:
            rows, needs_pyorc = self._in_unit_of_file(rows, needs_pyorc)
        if needs_pyorc and not isinstance(self._encoder, PyorcEncoder):
            self._change_to_pyorc()
        # A copy without offsets: of a struct with nulls pyarrow 26 encodes the wrong rows if it, or a child
        # of it, is a slice.
        rows = pa.concat_arrays([rows])
        table = self._table(operations, row_ids, rows)
        with self._encoding():
            if isinstance(self._encoder, PyorcEncoder):
                self._encoder.write(table)
            else:
                self._encoder.write(table, row_ids)
        self._counts += np.bincount(operations, minlength=len(Operation))

    def finish(self) -> EventFileFacts:
        """Write the rest of the file: last stripe, metadata, tail. Closing it is the caller's. Without events
        it is a file that holds none.

        Raises:
            DeltaWriteError: the finished file does not hold what was written; it must not be used.
            OSError: the file cannot be written.
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

    def _table(self, operations: np.ndarray, row_ids: RowIdArrays, rows: pa.StructArray) -> pa.Table:
        """What the file holds: events around the rows, or the rows alone."""
        schema = _file_schema(rows.type, self._version)
        if not self._version.has_row_ids:
            return pa.Table.from_arrays(struct_fields(rows), schema=schema)
        return pa.Table.from_arrays(
            [
                pa.array(operations, pa.int32()),
                pa.array(row_ids.original_txns, pa.int64()),
                pa.array(row_ids.buckets, pa.int32()),
                pa.array(row_ids.row_ids, pa.int64()),
                pa.array(np.full(len(operations), self._own_id, np.int64)),
                rows,
            ],
            schema=schema,
        )

    def _pyarrow_encoder(self) -> _PyarrowEncoder:
        return _PyarrowEncoder(self._sink, self._schema, self._compression, self._stripe_bytes)

    def _storable_rows(
        self, operations: np.ndarray, rows: pa.StructArray | None
    ) -> tuple[pa.StructArray, bool]:
        """Rows with deletes as NULL and dates as Hive stores them, and whether pyarrow cannot encode them."""
        deletes = operations == Operation.DELETE
        if rows is None or deletes.all():
            # With unions no NULL rows; Hive does not look into the rows of deletes (measured on 2.3.10).
            return hollow(self._row_type, len(operations)), False
        if rows.null_count and (~deletes & rows.is_null().to_numpy(zero_copy_only=False)).any():
            raise RecordValueError(f"{self._place}: the row of an insert or update is NULL; Hive fails on it")
        any_deletes = bool(deletes.any())
        if not self._date_columns and not self._union_columns and not any_deletes:
            return rows, False
        children = struct_fields(rows)
        needs_pyorc = False
        hybrid = self._version.calendar is FileCalendar.HYBRID
        for index in self._date_columns:
            column = nulled(children[index], deletes) if any_deletes else children[index]
            stored = storable(column, rows.type.field(index).name, hybrid=hybrid)
            children[index] = stored.values
            needs_pyorc |= stored.needs_pyorc
        for index in self._union_columns:
            children[index] = union_safe(children[index], rows.type.field(index).name)
        mask = pa.array(deletes) if any_deletes and not self._union_columns else None
        return pa.StructArray.from_arrays(children, fields=list(rows.type), mask=mask), needs_pyorc

    def _in_unit_of_file(self, rows: pa.StructArray, needs_pyorc: bool) -> tuple[pa.StructArray, bool]:
        """Rows with timestamps of another unit than the file's: cast if that is exact, else for pyorc."""
        if needs_pyorc:
            return rows, True
        try:
            return rows.cast(self._row_type), False
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return rows, True

    def _change_to_pyorc(self) -> None:
        """Go on with pyorc: directly if nothing is written yet, else after copying what is."""
        unions = [field.name for field in self._row_type if has_union(field.type)]
        if unions:
            raise RecordValueError(
                f"{self._place}: in a table with union columns ({', '.join(unions)}) no timestamp before "
                "1970 with a fraction of a second can be written, nor timestamps of several units: use whole "
                "seconds, one unit"
            )
        with self._encoding():
            self._encoder.close()
        written = self._file.restart()
        self._sink = _TailHoldingSink(self._file)
        encoder = PyorcEncoder(
            self._sink,
            self._schema,
            self._compression,
            self._stripe_bytes,
            has_keys=self._version.has_row_ids,
        )
        if self.row_count:
            encoder.copy_from(written)
        self._encoder = encoder

    @contextlib.contextmanager
    def _encoding(self) -> Iterator[None]:
        """Name the file if what its encoder makes is not what we know."""
        try:
            yield
        except CorruptFileError as error:
            raise DeltaWriteError(
                f"{self._place}: the encoder lays out its file in another way than this version "
                f"knows: {error}; the file must not be used. With another codec than zlib it may work: "
                "WriterOptions(compression=...)"
            ) from error

    def _checked_tail(self, held: bytes) -> OrcTail:
        try:
            tail = parse_tail(held)
        except CorruptFileError as error:
            raise DeltaWriteError(
                f"{self._place}: the encoder made a file without a readable tail: {error}"
            ) from error
        rows_in_stripes = sum(stripe.row_count for stripe in tail.stripes)
        if not tail.row_count == rows_in_stripes == self.row_count:
            raise DeltaWriteError(
                f"{self._place}: {self.row_count} events were written, but the file says {tail.row_count} "
                f"rows and {rows_in_stripes} in its stripes; the file must not be used"
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
                f"{self._place}: a stripe ends after row {error}, whose key was not noted; "
                "the encoder cuts stripes in another way than this version knows; the file must not be used"
            ) from error
        index = "".join(f"{key.original_txn},{key.bucket},{key.row_id};" for key in keys)
        stats = ",".join(str(int(self._counts[operation])) for operation in Operation)
        metadata = {KEY_INDEX: index.encode(), ACID_STATS: stats.encode()}
        return {**metadata, ACID_VERSION: _ACID_VERSION_2} if self._version.uses_write_ids else metadata


def _file_schema(row_type: pa.StructType, version: AcidVersion) -> pa.Schema:
    return event_schema(row_type) if version.has_row_ids else pa.schema(list(row_type))


class _PyarrowEncoder:
    """pyarrow's ORC writer over a sink; may end a stripe after each _ENCODER_BATCH_ROWS rows of a write."""

    def __init__(
        self, sink: _TailHoldingSink, schema: pa.Schema, compression: str, stripe_bytes: int
    ) -> None:
        self.keys = KeyLog()
        self._compressor = (
            FileCompressor(sink, schema, _COMPRESSION_BLOCK_BYTES) if compression == ZLIB else None
        )
        self._sink = self._compressor or sink
        self._schema = schema
        self._compression = compression
        self._stripe_bytes = stripe_bytes
        self._rows = 0
        self._writer: pa.orc.ORCWriter | None = None

    def write(self, table: pa.Table, keys: RowIdArrays) -> None:
        if self._writer is None:
            self._writer = self._opened(table)
        self._writer.write(table)
        count = table.num_rows
        ends = np.append(np.arange(_ENCODER_BATCH_ROWS, count, _ENCODER_BATCH_ROWS), count)
        self.keys.note(self._rows + ends, keys.take(ends - 1))
        self._rows += count

    def close(self) -> None:
        if self._writer is None:
            empty = self._schema.empty_table()
            self._writer = self._opened(empty)
            self._writer.write(empty)  # otherwise it writes not even a tail
        self._writer.close()
        if self._compressor is not None:
            self._compressor.finish()

    def _opened(self, first: pa.Table) -> pa.orc.ORCWriter:
        return pa.orc.ORCWriter(
            pa.PythonFile(self._sink, mode="w"),
            batch_size=_ENCODER_BATCH_ROWS,
            stripe_size=self._stripe_bytes,
            compression=_PYARROW_CODECS.get(self._compression, "UNCOMPRESSED"),
            compression_block_size=_COMPRESSION_BLOCK_BYTES,
            row_index_stride=_ROW_INDEX_STRIDE,
            dictionary_key_size_threshold=_DICTIONARY_THRESHOLD if _repeats_texts(first) else 0.0,
        )


def _repeats_texts(table: pa.Table) -> bool:
    """Whether the encoder shall try to make dictionaries; it gives up after _ROW_INDEX_STRIDE rows.

    Files with fewer rows pay for the whole attempt (measured: 0.5 s for a million texts that all differ).
    """
    if table.num_rows < _FEW_ROWS:
        return True
    arrays = [column.chunk(0) for column in table.slice(0, _ROW_INDEX_STRIDE).columns]
    fields = [field for a in arrays for field in (struct_fields(a) if pa.types.is_struct(a.type) else [a])]
    is_nested = any(pa.types.is_nested(field.type) for field in fields)
    return is_nested or any(_may_repeat(field) for field in fields if pa.types.is_string(field.type))


def _may_repeat(texts: pa.StringArray) -> bool:
    count: int = len(texts) - texts.null_count
    distinct: int = pc.count_distinct(texts).as_py()
    return distinct < _ALL_DIFFERENT * count


class _TailHoldingSink:
    """File object for an encoder: passes bytes on until :meth:`hold`, then keeps them: the tail grows."""

    def __init__(self, file: OutputFile) -> None:
        self._file = file
        self._held: list[bytes] | None = None
        self._recent = b""
        self.byte_count = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Take bytes; the encoder's buffer may change afterwards, so they are copied if they are kept."""
        self.byte_count += len(data)
        if self._held is not None:
            self._held.append(bytes(data))
        else:
            self._pass_on(data)
        return len(data)

    def hold(self) -> None:
        """Keep what is written from now on."""
        self._held = []

    def held(self) -> bytes:
        """What was kept."""
        return b"".join(self._held or ())

    def finish(self, end: bytes) -> None:
        """Write the end of the file, in place of what was kept."""
        self.byte_count += len(end) - sum(map(len, self._held or ()))
        self._pass_on(end)

    def checksum(self) -> int:
        """Checksum of the end of the file."""
        return tail_checksum(self._recent)

    def drop(self) -> None:
        """Pass nothing on any more: an encoder that is thrown away writes its tail, and dies if it cannot."""
        self._held = []

    def tell(self) -> int:
        """Bytes written so far."""
        return self.byte_count

    def flush(self) -> None:
        """Nothing to do: encoders call it, but a half file is of no use to anybody."""

    def close(self) -> None:
        """Called by encoders; the file stays open for its tail."""

    def _pass_on(self, data: bytes) -> None:
        self._file.write(data)
        recent = bytes(data[-TAIL_CHECKSUM_BYTES:])
        self._recent = (self._recent + recent)[-TAIL_CHECKSUM_BYTES:]
