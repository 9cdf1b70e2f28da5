"""PyorcEncoder: the slow encoder, for values that pyarrow would write wrongly.

pyorc works on Python objects, row by row. Dates are passed as day numbers and timestamps as (seconds,
nanoseconds), since Python's own classes hold neither nanoseconds nor every day. Unions cannot be written:
pyorc chooses the alternative by the value's class.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pyorc

from mutation_api.acid.row_id import RowIdArrays
from mutation_api.orc.write.encoder_settings import BATCH_ROWS, COMPRESSION_BLOCK_BYTES, ROW_INDEX_STRIDE
from mutation_api.orc.write.key_log import KeyLog
from mutation_api.types.calendar import UNITS_PER_SECOND
from mutation_api.types.plain_array import map_parts, rebased_list

__all__ = ["PyorcEncoder"]

_COMPRESSION_KINDS = {
    "zlib": pyorc.CompressionKind.ZLIB,
    "snappy": pyorc.CompressionKind.SNAPPY,
    "lz4": pyorc.CompressionKind.LZ4,
    "zstd": pyorc.CompressionKind.ZSTD,
    "none": pyorc.CompressionKind.NONE,
}
_KEY_FIELDS = slice(1, 4)
"""Positions of original transaction, bucket and row id in an event."""
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
    """A timestamp as (seconds, nanoseconds), the seconds rounded down."""

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
    """pyorc's writer over a sink; ``keys`` records each row at which a stripe may end, if rows have keys."""

    def __init__(
        self, sink: Any, schema: pa.Schema, compression: str, stripe_bytes: int, *, has_keys: bool
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
    """Python objects as the converters above expect them; None for null."""
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
