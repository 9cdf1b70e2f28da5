"""Ranges of a column's values in the stripes of an ORC file, as its writer recorded them.

They show which stripes cannot hold a key. Ranges that cannot be trusted or compared are left out: floats (a
NaN is in no range), timestamps (recorded in milliseconds, by some writers in their zone), char and varchar
(stored differently than they are read), days before 1582-10-15 (hybrid or not).

Source: orc_proto.proto (ColumnStatistics) and the ORC v1 specification; compared with files of Hive 2.3, 3.1
and 4.1, and of our own writer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.protobuf import as_bytes, as_number, fields_of, signed
from mutation_api.types.calendar import FIRST_GREGORIAN_DAY
from mutation_api.types.hive_type import INTEGER_KINDS, HiveType

__all__ = ["column_count", "column_id", "comparable_range"]

Range = tuple[Any, Any]
"""Smallest and largest value, in the form of :meth:`mutation_api.orc.read.key_filter.KeyFilter.meets`."""

_REPLACEMENT = "\ufffd".encode()
_INTEGERS, _TEXTS, _DECIMALS, _DATES = 2, 4, 6, 7
"""Fields of ColumnStatistics."""
_MINIMUM, _MAXIMUM = 1, 2
_LOWER_BOUND, _UPPER_BOUND = 4, 5
"""Fields for bounds of texts that are too long to be recorded in full."""


def column_id(schema: pa.Schema, name: str) -> int:
    """Number of a column of a file; ``row.x`` is field ``x`` of struct ``row``.

    Raises:
        KeyError: the file does not have this column.
    """
    outer, _, inner = name.partition(".")
    number, data_type = _child(list(schema), outer)
    if not inner:
        return 1 + number
    return 2 + number + _child(list(data_type), inner)[0]


def comparable_range(statistics: bytes, file_type: pa.DataType, hive_type: HiveType) -> Range | None:
    """Range of all values but NULL of a column in a stripe; None if it is unknown.

    Args:
        statistics: serialised ColumnStatistics of the column in the stripe.
        file_type: the column's type in the file.
        hive_type: the table column's type, as which it is read.

    Raises:
        CorruptFileError: the bytes are not statistics.
    """
    known = _RANGES.get(hive_type.kind)
    if known is None or not _is_read_unchanged(file_type, hive_type):
        return None
    kind, read = known
    try:
        found = dict(fields_of(statistics)).get(kind)
        ends = None if found is None else read(dict(fields_of(as_bytes(found))))
    except (ValueError, IndexError, InvalidOperation) as error:
        raise CorruptFileError(f"the statistics of an ORC column cannot be parsed: {error}") from error
    return ends if ends is not None and ends[0] <= ends[1] else None


def _child(fields: list[pa.Field], name: str) -> tuple[int, pa.DataType]:
    """Number of columns before a field, nested ones included, and its type."""
    before = 0
    for field in fields:
        if field.name == name:
            return before, field.type
        before += column_count(field.type)
    raise KeyError(name)


def column_count(data_type: pa.DataType) -> int:
    """Number of columns of a file for one of this type: itself, and those nested in it."""
    if pa.types.is_map(data_type):
        return 1 + column_count(data_type.key_type) + column_count(data_type.item_type)
    return 1 + sum(column_count(data_type.field(i).type) for i in range(data_type.num_fields))


def _is_read_unchanged(file_type: pa.DataType, hive_type: HiveType) -> bool:
    """Whether reading keeps each value, or makes it NULL."""
    if hive_type.kind in INTEGER_KINDS:
        return bool(pa.types.is_signed_integer(file_type))
    if hive_type.kind == "decimal":
        return bool(file_type == pa.decimal128(hive_type.precision, hive_type.scale))
    return bool(file_type == (pa.date32() if hive_type.kind == "date" else pa.string()))


def _integers(fields: Mapping[int, int | bytes]) -> Range | None:
    if _MINIMUM not in fields or _MAXIMUM not in fields:
        return None
    return signed(as_number(fields[_MINIMUM])), signed(as_number(fields[_MAXIMUM]))


def _dates(fields: Mapping[int, int | bytes]) -> Range | None:
    days = _integers(fields)
    return days if days is not None and days[0] >= FIRST_GREGORIAN_DAY else None


def _texts(fields: Mapping[int, int | bytes]) -> Range | None:
    low = fields.get(_MINIMUM, fields.get(_LOWER_BOUND))
    high = fields.get(_MAXIMUM, fields.get(_UPPER_BOUND))
    if low is None or high is None:
        return None
    ends = as_bytes(low), as_bytes(high)
    # Java records this for bytes that are not UTF-8, and bytes of valid texts may lie beyond it.
    return None if any(_REPLACEMENT in end for end in ends) else ends


def _decimals(fields: Mapping[int, int | bytes]) -> Range | None:
    texts = _texts(fields)
    return None if texts is None else (Decimal(texts[0].decode()), Decimal(texts[1].decode()))


_RANGES: dict[str, tuple[int, Callable[[Mapping[int, int | bytes]], Range | None]]] = {
    **dict.fromkeys(INTEGER_KINDS, (_INTEGERS, _integers)),
    "string": (_TEXTS, _texts),
    "decimal": (_DECIMALS, _decimals),
    "date": (_DATES, _dates),
}
