"""The values of a column whose type ALTER TABLE has changed since a file was written. Pure.

``CHANGES`` is the rule: kind in the file, kind of the table, and the conversion. Every change that Hive's
ALTER allows by default has an entry. Other changes are rejected: Hive allows them only if its check was
disabled, and a value that is read incorrectly would be written back permanently.

Values of char columns lose their padding. A file holds them padded with blanks to the length of the type.
Hive drops the blanks even if the table's type has changed: ``HiveChar`` compares, hashes and converts the
stripped value. Arrow's type of such a column is a string, so the types in the file's footer show which
columns these are.

Strings whose bytes are not UTF-8 are found here. Hive writes and shows them, and pyarrow accepts them from a
file, but Arrow cannot really hold them: code that uses the string fails later, far from the file.

Source: ORC's SchemaEvolution and ConvertTreeReaderFactory; each conversion was compared with Hive 2.3.10,
3.1.3 and 4.1.0 reading the same files, by its row reader and its vectorised one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import RecordValueError, TableNotMutableError
from mutation_api.format.hive_type import (
    DECIMALS_OF_INTEGERS,
    FLOAT_KINDS,
    INTEGER_KINDS,
    TEXT_KINDS,
    HiveType,
    arrow_type,
    primitive_of_arrow,
)
from mutation_api.format.number_text import doubles_of_java, java_texts, texts_of_decimals
from mutation_api.format.plain_array import list_offsets, map_parts, rebased_list, text_arrays
from mutation_api.format.timestamps import proleptic_from_hybrid_days, proleptic_from_hybrid_timestamps
from mutation_api.orc.format.stored_values import column_count

_Converter = Callable[[pa.Array, HiveType, int], pa.Array]


def converted(array: pa.Array, hive_type: HiveType, release: int) -> pa.Array:
    """Convert the values of a file's column to another type, that of the table's column.

    Args:
        array: n values as in the file, with dates counted in Arrow's calendar.
        hive_type: the table column's type, which is not nested.
        release: the major version of the Hive whose strings of numbers and times are used: 2, 3 or 4.

    Returns:
        n values of ``arrow_type(hive_type)``.

    Raises:
        TableNotMutableError: If there is no rule for this change. The message contains both types.
    """
    kind = _kind_of(array.type)
    change = CHANGES.get((kind, hive_type.kind))
    if change is None or (kind == "string" and hive_type.kind == "double" and release > _LAST_TEXT_TO_DOUBLE):
        raise TableNotMutableError(
            f"the file has type {_shown(array.type)}, but the table has type {hive_type.text}: the "
            f"column's type was changed after the file was written, and values of {_shown(array.type)} are "
            f"not read as {hive_type.text}, because no Hive {release} makes this change unless its check "
            "(hive.metastore.disallow.incompatible.col.type.changes) is off. Change the type back, or "
            "leave the column out"
        )
    return change(array, hive_type, release)


_LAST_TEXT_TO_DOUBLE = 3
"""The last release in which ALTER changes a string to a double. Hive 4 and later reject this change."""


def _kind_of(found: pa.DataType) -> str:
    """Return Hive's kind of a file's column. Char and varchar count as strings."""
    if pa.types.is_timestamp(found):
        return "timestamp"
    known = primitive_of_arrow(found)
    return str(found) if known is None else known.kind


def _shown(found: pa.DataType) -> str:
    if pa.types.is_decimal(found):
        return f"decimal({found.precision},{found.scale})"
    return _kind_of(found)


# -- numbers -------------------------------------------------------------------------------------------------
def _integer(array: pa.Array, hive_type: HiveType, _release: int) -> pa.Array:
    target = arrow_type(hive_type)
    if array.type.bit_width > target.bit_width:
        low, high = np.iinfo(target.to_pandas_dtype()).min, np.iinfo(target.to_pandas_dtype()).max
        fits = pc.and_(pc.greater_equal(array, int(low)), pc.less_equal(array, int(high)))
        array = pc.if_else(fits, array, pa.scalar(None, array.type))
    return array.cast(target)


def _number(array: pa.Array, hive_type: HiveType, _release: int) -> pa.Array:
    return array.cast(arrow_type(hive_type), safe=False)


def _widened_float(array: pa.Array, hive_type: HiveType, release: int) -> pa.Array:
    """Widen floats. Hive 3 reads the float's string as a double (0.1), other releases its value.

    The value of the float 0.1 is 0.10000000149011612.
    """
    if release == 3:
        array = pc.replace_substring(java_texts(array, is_float=True), "Infinity", "inf")
    return array.cast(arrow_type(hive_type), safe=False)


def _decimal(array: pa.Array, hive_type: HiveType, _release: int) -> pa.Array:
    """Convert to decimals, rounded half up. Values with too many digits become NULL."""
    target = arrow_type(hive_type)
    if pa.types.is_signed_integer(array.type):
        array = array.cast(DECIMALS_OF_INTEGERS[array.type])
    wide = array.cast(pa.decimal256(76, max(array.type.scale, hive_type.scale)))
    rounded = pc.round(wide, hive_type.scale, "half_towards_infinity")
    whole_digits = hive_type.precision - hive_type.scale
    limit = pa.scalar(10**whole_digits, pa.decimal256(40, 0))
    fits = pc.less(pc.abs(rounded), limit.cast(pa.decimal256(76, wide.type.scale)))
    return pc.if_else(fits, rounded, pa.scalar(None, rounded.type)).cast(target)


def _number_of_decimal(array: pa.Array, hive_type: HiveType, _release: int) -> pa.Array:
    """Convert decimals by their strings, because Arrow's own conversion does not round to the nearest."""
    return texts_of_decimals(array).cast(arrow_type(hive_type))


def _double_of_text(array: pa.Array, _hive_type: HiveType, _release: int) -> pa.Array:
    return doubles_of_java(array)


# -- strings -------------------------------------------------------------------------------------------------
def _as_text(texts_of: Callable[[pa.Array, int], pa.Array]) -> _Converter:
    """Return a converter to strings, cut to the column's length."""

    def convert(array: pa.Array, hive_type: HiveType, release: int) -> pa.Array:
        return cut(texts_of(array, release), hive_type)

    return convert


def cut(texts: pa.Array, hive_type: HiveType) -> pa.Array:
    """Return strings as string, varchar or char: cut to the length, char without trailing blanks."""
    if hive_type.kind == "string":
        return texts
    longest = pc.max(pc.binary_length(texts)).as_py() or 0  # bytes: at least as many as code points
    if longest > hive_type.length:
        texts = pc.utf8_slice_codeunits(texts, 0, hive_type.length)
    return pc.utf8_rtrim(texts, " ") if hive_type.kind == "char" else texts


def _texts_of_integers(array: pa.Array, _release: int) -> pa.Array:
    return array.cast(pa.string())


def texts_of_floats(array: pa.Array, release: int, *, is_shortest: bool = False) -> pa.Array:
    """Return floats as Java prints them; NaN becomes NULL.

    Only Hive 3 prints a float as a float. The other releases print its double.
    """
    is_float = pa.types.is_float32(array.type) and release == 3
    texts = java_texts(array, is_float=is_float, is_shortest=is_shortest)
    return pc.if_else(pc.is_nan(array), pa.scalar(None, pa.string()), texts)


def _texts_of_decimals(array: pa.Array, _release: int) -> pa.Array:
    return texts_of_decimals(array)


def _texts_of_dates(array: pa.Array, release: int) -> pa.Array:
    """Return dates as strings.

    Hive 3 prints the day's name in the Julian calendar before 1582-10-15, although it counts days in the
    other one.
    """
    if release == 3:
        days = pc.fill_null(array.cast(pa.int32()), 0).to_numpy(zero_copy_only=False)
        mask = array.is_null().to_numpy(zero_copy_only=False)
        array = pa.array(proleptic_from_hybrid_days(days), pa.int32(), mask=mask).cast(pa.date32())
    return array.cast(pa.string())


def _texts_of_timestamps(array: pa.Array, release: int) -> pa.Array:
    """Return timestamps as strings, without trailing zeros of the fraction.

    Hive 3 leaves one digit, and counts days as for dates.
    """
    unit = array.type.unit
    if release == 3:
        values = pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        mask = array.is_null().to_numpy(zero_copy_only=False)
        array = pa.array(proleptic_from_hybrid_timestamps(values, unit), pa.int64(), mask=mask).cast(
            array.type
        )
    if not len(array):
        return array.cast(pa.string())
    texts = pc.strftime(array, format="%Y-%m-%d %H:%M:%S")
    texts = pc.replace_substring_regex(texts, r"(\.\d*?[1-9])0+$", r"\1")
    return pc.replace_substring_regex(texts, r"\.0+$", ".0" if release == 3 else "")


def timestamps_of_texts(array: pa.Array) -> pa.Array:
    """Return the timestamps of strings. A snapshot may read timestamps of early or late years as strings.

    Raises RecordValueError if one has more than six digits of a second.
    """
    try:
        return array.cast(pa.timestamp("us"))
    except pa.ArrowInvalid as error:
        raise RecordValueError(f"a timestamp has more than six digits of a second ({error})") from error


CHANGES: dict[tuple[str, str], _Converter] = {
    **{(one, other): _integer for one in INTEGER_KINDS for other in INTEGER_KINDS},
    **{(one, other): _number for one in INTEGER_KINDS for other in FLOAT_KINDS},
    **{(one, "decimal"): _decimal for one in (*INTEGER_KINDS, "decimal")},
    ("float", "double"): _widened_float,
    ("double", "float"): _number,
    ("decimal", "float"): _number_of_decimal,
    ("decimal", "double"): _number_of_decimal,
    ("string", "double"): _double_of_text,
    **{(one, text): _as_text(_texts_of_integers) for one in INTEGER_KINDS for text in TEXT_KINDS},
    **{(one, text): _as_text(texts_of_floats) for one in FLOAT_KINDS for text in TEXT_KINDS},
    **{("decimal", text): _as_text(_texts_of_decimals) for text in TEXT_KINDS},
    **{("date", text): _as_text(_texts_of_dates) for text in TEXT_KINDS},
    **{("timestamp", text): _as_text(_texts_of_timestamps) for text in TEXT_KINDS},
}
"""Conversions by the kind in the file and the kind in the table."""


_BLANK = " "
_FEW_BYTES = 4096
"""Up to this size, copying and searching the bytes is faster than looking up the ends of strings."""


def may_be_padded(array: pa.Array) -> bool:
    """Return True if a column has strings that end with a blank, at any depth."""
    return any(map(_ends_with_blank, text_arrays(array)))


def _ends_with_blank(array: pa.StringArray) -> bool:
    """Return True if a string ends with a blank.

    For the few rows of a small file, this takes a quarter of the time that Arrow's functions take.
    """
    _, offsets, data = array.buffers()
    if data is None or not data.size or offsets is None:
        return False
    if data.size <= _FEW_BYTES and _BLANK.encode() not in data.to_pybytes():
        return False
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    ends = bounds[1:][bounds[1:] > bounds[:-1]] - 1
    return bool((np.frombuffer(data, np.uint8)[ends] == ord(_BLANK)).any())


def without_padding(array: pa.Array, in_file: pa.DataType, number: int, chars: frozenset[int]) -> pa.Array:
    """Return a column whose char values are stripped, at any depth.

    Args:
        array: n values. A struct may lack fields of the file's struct.
        in_file: the column's type in the file, with all fields.
        number: the column's number in the file.
        chars: the numbers of the columns of type char.

    Returns:
        n values of the same type.
    """
    if chars.isdisjoint(range(number, number + column_count(in_file))):
        return array
    if pa.types.is_string(in_file):
        return pc.utf8_rtrim(array, _BLANK)
    return _NESTED[type(in_file)](array, in_file, number, chars)


def _list(array: pa.Array, in_file: pa.DataType, number: int, chars: frozenset[int]) -> pa.Array:
    offsets, values = rebased_list(array)
    stripped = without_padding(values, in_file.value_type, number + 1, chars)
    return pa.ListArray.from_arrays(list_offsets(offsets, array), stripped).cast(array.type)


def _map(array: pa.Array, in_file: pa.DataType, number: int, chars: frozenset[int]) -> pa.Array:
    offsets, keys, items = map_parts(array)
    behind_keys = number + 1 + column_count(in_file.key_type)
    stripped = [
        without_padding(keys, in_file.key_type, number + 1, chars),
        without_padding(items, in_file.item_type, behind_keys, chars),
    ]
    return pa.MapArray.from_arrays(list_offsets(offsets, array), *stripped)


def _struct(array: pa.Array, in_file: pa.DataType, number: int, chars: frozenset[int]) -> pa.Array:
    numbers, at = {}, number + 1
    for field in in_file:
        numbers[field.name] = (field.type, at)
        at += column_count(field.type)
    children = [
        without_padding(array.field(i), *numbers[field.name], chars) for i, field in enumerate(array.type)
    ]
    # Set no mask if it would be empty: pyarrow aborts the process if a struct above a union has a mask.
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)


def _union(array: pa.Array, in_file: pa.DataType, number: int, chars: frozenset[int]) -> pa.Array:
    children, at = [], number + 1
    for i in range(in_file.num_fields):
        children.append(without_padding(array.field(i), in_file.field(i).type, at, chars))
        at += column_count(in_file.field(i).type)
    names = [in_file.field(i).name for i in range(in_file.num_fields)]
    if isinstance(in_file, pa.SparseUnionType):
        return pa.UnionArray.from_sparse(array.type_codes, children, names)
    return pa.UnionArray.from_dense(array.type_codes, array.offsets, children, names)


_NESTED: dict[type, Callable[[pa.Array, pa.DataType, int, frozenset[int]], pa.Array]] = {
    pa.ListType: _list,
    pa.MapType: _map,
    pa.StructType: _struct,
    pa.DenseUnionType: _union,
    pa.SparseUnionType: _union,
}


NOT_UTF8 = "a string is not UTF-8; Hive can read it, but Arrow cannot hold it"


def first_not_utf8(names: Sequence[str], arrays: Sequence[pa.Array]) -> str | None:
    """Return the name of the first column with a string that is not UTF-8, at any depth.

    Fields of structs are named ``struct.field``. None if all strings are UTF-8.
    """
    for name, array in zip(names, arrays, strict=True):
        kind = array.type
        if pa.types.is_struct(kind):
            fields = [array.field(i) for i in range(kind.num_fields)]
            found = first_not_utf8([f"{name}.{field.name}" for field in kind], fields)
            if found is not None:
                return found
        elif not all(_is_ascii(texts) or _is_valid(texts) for texts in text_arrays(array)):
            return name
    return None


def _is_ascii(array: pa.StringArray) -> bool:
    """Return True if all strings are ASCII, as most are.

    This takes a quarter of the time that Arrow takes.
    """
    data = array.buffers()[2]
    return data is None or not data.size or bool(np.frombuffer(data, np.int8).min() >= 0)


def _is_valid(array: pa.StringArray) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
