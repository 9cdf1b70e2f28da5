"""Values of pyorc, which reads what pyarrow cannot, in the form in which Arrow takes them."""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyorc

from mutation_api.errors import RecordValueError
from mutation_api.orc.read.column_reader import FINE_TIMESTAMPS, ReadOptions, TimestampForm
from mutation_api.types.calendar import proleptic_from_hybrid_timestamps
from mutation_api.types.wall_clock import wall_clock_of_instant

__all__ = ["NULL_KEY", "can_be_sought", "combined", "converters", "plain_value"]

NULL_KEY = "a map has a key that is NULL; Hive reads it, and Arrow cannot hold it"

_NANOS_PER_SECOND = 10**9
_EPOCH = datetime.datetime(1970, 1, 1)


def plain_value(value: Any, data_type: pa.DataType) -> Any:
    """A value of pyorc in the form that ``pa.array`` accepts: maps become lists of pairs.

    Raises:
        RecordValueError: the key of a map is NULL.
    """
    if value is None:
        return None
    if pa.types.is_map(data_type):
        if None in value:
            raise RecordValueError(NULL_KEY)
        return [
            (plain_value(k, data_type.key_type), plain_value(v, data_type.item_type))
            for k, v in value.items()
        ]
    if pa.types.is_list(data_type):
        return [plain_value(v, data_type.value_type) for v in value]
    if pa.types.is_struct(data_type):
        return {f.name: plain_value(value[f.name], f.type) for f in data_type}
    return value


def converters(
    options: ReadOptions, zone: zoneinfo.ZoneInfo | None, is_proleptic: bool
) -> dict[pyorc.TypeKind, Any]:
    """What makes values of timestamps and dates.

    Args:
        options: the form of timestamps.
        zone: of the writer, if pyorc gives instants; None if it gives wall clocks.
        is_proleptic: whether the file counts days in the proleptic calendar.
    """

    def timestamp(seconds: int, nanos: int) -> int | str:
        if zone is not None:
            seconds = wall_clock_of_instant(seconds, zone)
        if not is_proleptic:
            seconds = int(proleptic_from_hybrid_timestamps(np.asarray([seconds], dtype=np.int64), "s")[0])
        return _timestamp(seconds, nanos, options)

    return {
        pyorc.TypeKind.TIMESTAMP: _converter(timestamp),
        pyorc.TypeKind.DATE: _converter(lambda days: days),
    }


def _converter(convert: Callable[..., Any]) -> Any:
    class Converter:
        @staticmethod
        def from_orc(*values: Any) -> Any:
            return convert(*(v for v in values if isinstance(v, int)))

        @staticmethod
        def to_orc(*_values: Any) -> Any:
            raise NotImplementedError("this converter only reads")

    return Converter


def _timestamp(seconds: int, nanos: int, options: ReadOptions) -> int | str:
    """One timestamp in the wanted form; ``nanos`` counts up from ``seconds``, also before 1970."""
    if options.timestamp_form is TimestampForm.NANOSECONDS:
        return seconds * _NANOS_PER_SECOND + nanos
    if options.timestamp_form is TimestampForm.TEXT:
        moment = (_EPOCH + datetime.timedelta(seconds=seconds)).isoformat()
        return f"{moment}.{nanos:09d}".rstrip("0") if nanos else moment
    if nanos % 1000 and not options.truncate_nanoseconds:
        raise RecordValueError(
            f"a timestamp has more than six digits of a second ({nanos} ns): {FINE_TIMESTAMPS}"
        )
    return seconds * 10**6 + nanos // 1000


def can_be_sought(data_type: pa.DataType) -> bool:
    """Whether pyorc finds single values of a type in a stripe."""
    tests = (pa.types.is_primitive, pa.types.is_decimal, pa.types.is_string, pa.types.is_binary)
    return any(test(data_type) for test in tests)


def combined(parts: pa.RecordBatch | None, read: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Combine the columns that pyarrow and pyorc have read into one batch, and the fields of each struct."""
    columns: dict[str, pa.Array] = {}
    if parts is not None:
        columns.update(zip(parts.schema.names, parts.columns, strict=True))
    structs: dict[str, dict[str, pa.Array]] = {}
    for name, array in read.items():
        outer, _, inner = name.partition(".")
        if inner:
            structs.setdefault(outer, {})[inner] = array
        else:
            columns[outer] = array
    for outer, fields in structs.items():
        present = columns.get(outer)
        if present is not None:
            fields = dict(zip((f.name for f in present.type), present.flatten(), strict=True)) | fields
        columns[outer] = pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
    return pa.RecordBatch.from_pydict(columns)
