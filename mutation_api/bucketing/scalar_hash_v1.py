"""Hashes of bucketing version 1 for values that are not nested. Every Hive before 3.0 uses it. Pure.

Later releases count the days of a date in the proleptic calendar, so they hash early dates differently
(``proleptic_date``). They hash timestamps as Hive 2.3 does, since they use ``java.sql.Timestamp``, too.

Source: Hive's ObjectInspectorUtils.hashCode and the hashCode of its writables; tests/golden/bucket_hash.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.bucketing.hash_values import (
    Texts,
    normalised_decimals,
    seconds_and_nanos,
    texts,
    texts_without_blanks,
    view,
)
from mutation_api.bucketing.polynomial import polynomial_of_bytes
from mutation_api.types.calendar import hybrid_from_proleptic_days, hybrid_from_proleptic_timestamps
from mutation_api.types.wall_clock import instants_of_wall_clocks

__all__ = ["V1_HASHES", "canonical_double_bits", "canonical_float_bits", "proleptic_date"]


def canonical_float_bits(array: pa.Array) -> NDArray[np.uint32]:
    """Bits of float32 values as uint32, every NaN the same; 0.0 and -0.0 stay different."""
    bits = view(array, np.uint32).copy()
    bits[np.isnan(view(array, np.float32))] = 0x7FC00000
    return bits


def canonical_double_bits(array: pa.Array) -> NDArray[np.uint64]:
    """Bits of float64 values as uint64, every NaN the same; 0.0 and -0.0 stay different."""
    bits = view(array, np.uint64).copy()
    bits[np.isnan(view(array, np.float64))] = 0x7FF8000000000000
    return bits


def _boolean(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    return view(array.cast(pa.int8()), np.int8).astype(np.uint32)


def _narrow_integer(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    signed = view(array, array.type.to_pandas_dtype()).astype(np.int32)
    return signed.view(np.uint32)


def _bigint(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    return _folded(view(array, np.uint64))


def _float(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    return canonical_float_bits(array)


def _double(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    return _folded(canonical_double_bits(array))


def _string(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    return _of_texts(texts(array), 0)


def _varchar_or_binary(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    return _of_texts(texts(array), 1)


def _char(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    return _of_texts(texts_without_blanks(texts(array)), 1)


def _of_texts(found: Texts, seed: int) -> NDArray[np.uint32]:
    return polynomial_of_bytes(found.data, found.starts, found.ends, seed)


def _decimal(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    number = normalised_decimals(array)
    hashes = np.zeros(len(array), np.uint32)
    for half in (number.high, number.low):
        hashes = hashes * np.uint32(31) + (half >> np.uint64(32)).astype(np.uint32)
        hashes = hashes * np.uint32(31) + half.astype(np.uint32)
    hashes[number.negative] = ~hashes[number.negative] + np.uint32(1)
    combined: NDArray[np.uint32] = hashes * np.uint32(31) + number.scale.astype(np.uint32)
    return combined


def proleptic_date(array: pa.Array) -> NDArray[np.uint32]:
    """Hash of dates as Hive 3.1 and 4.1 compute it: uint32, shape (n,)."""
    return view(array, np.int32).view(np.uint32)


def _date(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    # Hive 2.3 hashes the day number that it stores.
    return hybrid_from_proleptic_days(view(array, np.int32)).view(np.uint32)


def _timestamp(array: pa.Array, zone: str | None) -> NDArray[np.uint32]:
    assert zone is not None, "checked before any value is hashed"
    seconds, nanos = seconds_and_nanos(array)
    seconds = hybrid_from_proleptic_timestamps(seconds, "s")
    instants = instants_of_wall_clocks(seconds, zone, array.is_valid().to_numpy(zero_copy_only=False))
    return _folded(((instants << 30) | nanos).view(np.uint64))


def _folded(values: NDArray[np.uint64]) -> NDArray[np.uint32]:
    folded: NDArray[np.uint32] = ((values >> np.uint64(32)) ^ values).astype(np.uint32)
    return folded


V1_HASHES: dict[str, Callable[[pa.Array, str | None], NDArray[np.uint32]]] = {
    "boolean": _boolean,
    "tinyint": _narrow_integer,
    "smallint": _narrow_integer,
    "int": _narrow_integer,
    "bigint": _bigint,
    "float": _float,
    "double": _double,
    "string": _string,
    "varchar": _varchar_or_binary,
    "char": _char,
    "binary": _varchar_or_binary,
    "decimal": _decimal,
    "date": _date,
    "timestamp": _timestamp,
}
"""By kind: n values of the column's Arrow type and the zone of Hive's processes -> uint32, shape (n,)."""
