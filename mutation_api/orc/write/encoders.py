"""Encoders of ORC files: pyarrow, and pyorc for values that pyarrow would write incorrectly.

pyarrow is fast; for zlib, :mod:`.file_compressor` does the compression. pyorc works on Python objects, row by
row. Dates are passed to it as day numbers and timestamps as (seconds, nanoseconds), because Python's own
classes hold neither nanoseconds nor every day. Unions cannot be written, because pyorc chooses the
alternative by the value's class.

The destination that both write to holds back the end of the file until it is extended.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pyorc

from mutation_api.format.event import RowIdArrays
from mutation_api.format.plain_array import map_parts, rebased_list, struct_fields
from mutation_api.format.timestamps import UNITS_PER_SECOND
from mutation_api.orc.format.stored_values import column_id
from mutation_api.orc.format.tail import TAIL_CHECKSUM_BYTES, tail_checksum
from mutation_api.orc.write.file_compressor import FileCompressor
from mutation_api.orc.write.row_index import KeyLog
from mutation_api.table.acid_table import ZLIB, BloomFilters

BATCH_ROWS = 1024
"""A stripe can end only after a multiple of this number of rows. It is small, to limit the memory for wide
rows.
"""
ROW_INDEX_STRIDE = 10_000
"""The number of rows of a row group, as in Hive's files."""
BYTES_PER_GIVING_BACK = 4 * 1024 * 1024
"""The number of bytes written between two calls of :func:`give_back`.

A call takes 1 to 4 ms, 1 % of the writing time.
"""
COMPRESSION_BLOCK_BYTES = 64 * 1024
"""The number of bytes of a stream that are compressed together. pyarrow does not accept fewer."""


_COMPRESSION_KINDS = {
    "zlib": pyorc.CompressionKind.ZLIB,
    "snappy": pyorc.CompressionKind.SNAPPY,
    "lz4": pyorc.CompressionKind.LZ4,
    "zstd": pyorc.CompressionKind.ZSTD,
    "none": pyorc.CompressionKind.NONE,
}
_KEY_FIELDS = slice(1, 4)
"""The positions of original transaction, bucket and row id in an event."""
_NANOS_PER_SECOND = 10**9

_ORC_NAMES = {
    pa.bool_(): pyorc.Boolean,
    pa.int8(): pyorc.TinyInt,
    pa.int16(): pyorc.SmallInt,
    pa.int32(): pyorc.Int,
    pa.int64(): pyorc.BigInt,
    pa.float32(): pyorc.Float,
    pa.float64(): pyorc.Double,
    pa.string(): pyorc.String,
    pa.binary(): pyorc.Binary,
    pa.date32(): pyorc.Date,
}


class _StoredDate(pyorc.converters.ORCConverter):
    """A date as its day number."""

    @staticmethod
    def from_orc(*args: Any, **_: Any) -> Any:
        return args[0]

    @staticmethod
    def to_orc(*args: Any, **_: Any) -> Any:
        return args[0]


class _StoredTimestamp(pyorc.converters.ORCConverter):
    """A timestamp as (seconds, nanoseconds), with the seconds rounded down."""

    @staticmethod
    def from_orc(*args: Any, **_: Any) -> Any:
        return args[0], args[1]

    @staticmethod
    def to_orc(*args: Any, **_: Any) -> Any:
        return args[0]


_CONVERTERS: dict[pyorc.TypeKind, type[pyorc.converters.ORCConverter]] = {
    pyorc.TypeKind.DATE: _StoredDate,
    pyorc.TypeKind.TIMESTAMP: _StoredTimestamp,
}


class PyorcEncoder:
    """pyorc's writer over a sink. If rows have keys, ``keys`` records each row at which a stripe may end."""

    def __init__(
        self,
        sink: Any,
        schema: pa.Schema,
        compression: str,
        stripe_bytes: int,
        bloom: BloomFilters,
        *,
        has_keys: bool,
    ) -> None:
        self.keys = KeyLog()
        self._has_keys = has_keys
        self._rows = 0
        self._last: tuple[Any, ...] | None = None
        self._writer: pyorc.Writer[Any] = pyorc.Writer(
            sink,
            _orc_type(pa.struct(list(schema))),
            batch_size=BATCH_ROWS,
            stripe_size=stripe_bytes,
            row_index_stride=ROW_INDEX_STRIDE,
            compression=_COMPRESSION_KINDS[compression],
            compression_block_size=COMPRESSION_BLOCK_BYTES,
            bloom_filter_columns=_bloom_ids(bloom, schema),
            bloom_filter_fpp=bloom.fpp,
            struct_repr=pyorc.StructRepr.TUPLE,
            converters=_CONVERTERS,
        )

    def write(self, events: pa.Table) -> None:
        """Append rows of the schema."""
        columns = [_stored_objects(column.combine_chunks()) for column in events.columns]
        for row in zip(*columns, strict=True):
            self._write_row(row)

    def copy_from(self, stream: pa.NativeFile) -> None:
        """Append all rows of an ORC file of the same schema."""
        for row in pyorc.Reader(stream, struct_repr=pyorc.StructRepr.TUPLE, converters=_CONVERTERS):
            self._write_row(row)

    def close(self) -> None:
        """Write the last stripe and the tail."""
        self._note_last()
        self._writer.close()

    def _write_row(self, row: tuple[Any, ...]) -> None:
        self._writer.write(row)
        self._rows += 1
        self._last = row
        if self._rows % BATCH_ROWS == 0:
            self._note_last()

    def _note_last(self) -> None:
        if self._last is None or not self._has_keys:
            return
        key = (np.array([number]) for number in self._last[_KEY_FIELDS])
        self.keys.note(np.array([self._rows]), RowIdArrays(*key))
        self._last = None


def _bloom_ids(bloom: BloomFilters, schema: pa.Schema) -> list[int]:
    """Return the numbers of the columns with Bloom filters in a file; a column's name may be struct.field."""
    return [column_id(schema, name) for name in bloom.columns]


def _orc_type(arrow: pa.DataType) -> pyorc.TypeDescription:
    if pa.types.is_timestamp(arrow):
        return pyorc.Timestamp()
    if pa.types.is_decimal(arrow):
        return pyorc.Decimal(arrow.precision, arrow.scale)
    if pa.types.is_map(arrow):
        return pyorc.Map(_orc_type(arrow.key_type), _orc_type(arrow.item_type))
    if pa.types.is_list(arrow):
        return pyorc.Array(_orc_type(arrow.value_type))
    if pa.types.is_struct(arrow):
        return pyorc.Struct(**{field.name: _orc_type(field.type) for field in arrow})
    return _ORC_NAMES[arrow]()


def _stored_objects(array: pa.Array) -> list[Any]:
    """Return Python objects in the form that the converters above accept; a null becomes None."""
    arrow = array.type
    if pa.types.is_timestamp(arrow):
        return _seconds_and_nanos(array)
    if pa.types.is_date32(arrow):
        return list(array.cast(pa.int32()).to_pylist())
    if pa.types.is_struct(arrow):
        fields = [_stored_objects(child) for child in array.flatten()]
        return _under(array, zip(*fields, strict=True) if fields else iter(()))
    if pa.types.is_map(arrow):
        offsets, keys, items = map_parts(array)
        pairs = list(zip(_stored_objects(keys), _stored_objects(items), strict=True))
        return _under(array, (dict(pairs[start:stop]) for start, stop in itertools.pairwise(offsets)))
    if pa.types.is_list(arrow):
        offsets, values = rebased_list(array)
        objects = _stored_objects(values)
        return _under(array, (objects[start:stop] for start, stop in itertools.pairwise(offsets)))
    return list(array.to_pylist())


def _under(array: pa.Array, objects: Any) -> list[Any]:
    valid = array.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(objects, valid, strict=True)]


def _seconds_and_nanos(array: pa.Array) -> list[Any]:
    per_second = UNITS_PER_SECOND[array.type.unit]
    nanos_per_unit = _NANOS_PER_SECOND // per_second
    return [
        None if ticks is None else (ticks // per_second, ticks % per_second * nanos_per_unit)
        for ticks in array.cast(pa.int64()).to_pylist()
    ]


class _Writable(Protocol):
    """The destination of the bytes."""

    def write(self, data: bytes) -> object:
        """Append bytes."""
        ...


class TailHoldingSink:
    """A file object for an encoder: passes bytes on until :meth:`hold`, then keeps them as the file's end."""

    def __init__(self, file: _Writable) -> None:
        self._file = file
        self._held: list[bytes] | None = None
        self._recent = b""
        self.byte_count = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Write bytes. They are copied if kept, because the encoder's buffer may change afterwards."""
        self.byte_count += len(data)
        if self._held is not None:
            self._held.append(bytes(data))
        else:
            self._pass_on(data)
        return len(data)

    def hold(self) -> None:
        """Keep all bytes that are written from now on."""
        self._held = []

    def held(self) -> bytes:
        """Return the kept bytes."""
        return b"".join(self._held or ())

    def finish(self, end: bytes) -> None:
        """Write the end of the file, in place of the kept bytes."""
        self.byte_count += len(end) - sum(map(len, self._held or ()))
        self._pass_on(end)

    def checksum(self) -> int:
        """Return the checksum of the end of the file."""
        return tail_checksum(self._recent)

    def drop(self) -> None:
        """Drop all later bytes. A discarded encoder still writes its tail, and crashes if it cannot."""
        self._held = []

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self.byte_count

    def flush(self) -> None:
        """Do nothing. Encoders call it, but half a file is useless."""

    def close(self) -> None:
        """Do nothing. Encoders call it, but the file stays open for its tail."""

    def _pass_on(self, data: bytes) -> None:
        self._file.write(data)
        recent = bytes(data[-TAIL_CHECKSUM_BYTES:])
        self._recent = (self._recent + recent)[-TAIL_CHECKSUM_BYTES:]


_CODECS = {
    ZLIB: "UNCOMPRESSED",
    "snappy": "SNAPPY",
    "lz4": "LZ4",
    "zstd": "ZSTD",
    "none": "UNCOMPRESSED",
}
_DICTIONARY_THRESHOLD = 0.8
"""Java's default. Measured: a million strings with 300 distinct values shrink to 58 %; unique strings cost
nothing extra."""
_ALL_DIFFERENT = 0.98
"""A share of distinct values among the first strings of a file. This is the share if 10,000 strings are drawn
from 250,000 values.
"""
_FEW_ROWS = 500
"""Fewer rows do not show whether strings repeat, so they are held until more rows follow.

A file with so few rows does not get a dictionary, with which encoding would take three times as long.
"""


class PyarrowEncoder:
    """pyarrow's ORC writer over a sink. ``keys`` records each row at which it may end a stripe.

    These are every BATCH_ROWS-th row of a write, and its last row.
    """

    def __init__(
        self,
        sink: TailHoldingSink,
        schema: pa.Schema,
        compression: str,
        stripe_bytes: int,
        bloom: BloomFilters,
    ) -> None:
        self._bloom = bloom
        self.keys = KeyLog()
        self._compressor = (
            FileCompressor(sink, schema, COMPRESSION_BLOCK_BYTES) if compression == ZLIB else None
        )
        self._sink = self._compressor or sink
        self._schema = schema
        self._compression = compression
        self._stripe_bytes = stripe_bytes
        self._rows = 0
        self._waiting: list[pa.Table] = []
        """The first rows, while there are few of them."""
        self._writer: pa.orc.ORCWriter | None = None

    def write(self, table: pa.Table, keys: RowIdArrays) -> None:
        """Append rows of the schema, and record the ROW__IDs at which a stripe may end."""
        count = table.num_rows
        if self._writer is not None:
            self._writer.write(table)
        else:
            self._waiting.append(table)
            if self._rows + count >= _FEW_ROWS:
                self._begin()
        ends = np.append(np.arange(BATCH_ROWS, count, BATCH_ROWS), count)
        self.keys.note(self._rows + ends, keys.take(ends - 1))
        self._rows += count

    def close(self) -> None:
        """Write the last stripe and the tail. If there are no rows, write an empty file."""
        if self._writer is None:
            # Without a write, the file would not even have a tail.
            self._waiting = self._waiting or [self._schema.empty_table()]
            self._begin()
        assert self._writer is not None
        self._writer.close()
        if self._compressor is not None:
            self._compressor.finish()

    def _begin(self) -> None:
        """Open the file, and write the rows that wait."""
        waiting, self._waiting = self._waiting, []
        first = pa.concat_tables(waiting).combine_chunks() if len(waiting) > 1 else waiting[0]
        self._writer = pa.orc.ORCWriter(
            pa.PythonFile(self._sink, mode="w"),
            batch_size=BATCH_ROWS,
            stripe_size=self._stripe_bytes,
            compression=_CODECS[self._compression],
            compression_block_size=COMPRESSION_BLOCK_BYTES,
            row_index_stride=ROW_INDEX_STRIDE,
            bloom_filter_columns=_bloom_ids(self._bloom, self._schema),
            bloom_filter_fpp=self._bloom.fpp,
            dictionary_key_size_threshold=_DICTIONARY_THRESHOLD if _repeats_texts(first) else 0.0,
        )
        for table in waiting:
            self._writer.write(table)


def _repeats_texts(table: pa.Table) -> bool:
    """Return True if the encoder should try dictionaries. It gives up after ROW_INDEX_STRIDE rows.

    Files with fewer rows pay for the whole attempt (measured: 0.5 s for a million distinct strings).
    """
    if table.num_rows < _FEW_ROWS:
        return False
    arrays = [column.chunk(0) for column in table.slice(0, ROW_INDEX_STRIDE).columns]
    fields = [field for a in arrays for field in (struct_fields(a) if pa.types.is_struct(a.type) else [a])]
    is_nested = any(pa.types.is_nested(field.type) for field in fields)
    return is_nested or any(_may_repeat(field) for field in fields if pa.types.is_string(field.type))


def _may_repeat(texts: pa.StringArray) -> bool:
    count: int = len(texts) - texts.null_count
    distinct: int = pc.count_distinct(texts).as_py()
    return distinct < _ALL_DIFFERENT * count


def give_back() -> None:
    """Make Arrow's allocator and the C library return their free memory to the system.

    Otherwise each keeps the peak memory of a file or a task, in pieces into which later requests may not fit.
    A process then grows from file to file, and a long-lived Python process of Spark from task to task.
    """
    pa.default_memory_pool().release_unused()
    _trim()(0)


@functools.cache
def _trim() -> Callable[[int], object]:
    """Return glibc's ``malloc_trim``, or a no-op function where it is missing (macOS, Windows)."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
        return trim
    return lambda _: None
