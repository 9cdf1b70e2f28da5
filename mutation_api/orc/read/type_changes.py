"""Columns whose type was altered: conversions, CHAR padding, and invalid strings.

What values become when ALTER TABLE has changed a column's type since a file was written. Pure.

``CHANGES`` is the rule: kind in the file, kind of the table, and the conversion. Every change that Hive's
ALTER allows by default has an entry. Another change is refused: Hive allows it only if somebody switched its
check off, and a value that is read wrongly would be written back for good.

Source: ORC's SchemaEvolution and ConvertTreeReaderFactory; each conversion was compared with Hive 2.3.10,
3.1.3 and 4.1.0 reading the same files, by its row reader and its vectorised one.

Values of char columns without their padding.

A file holds them padded with blanks to the length of the type, and Hive drops the blanks whatever the table's
type is now: ``HiveChar`` compares, hashes and converts the stripped value. Arrow's type of such a column is a
string, so the types in the file's footer tell which columns these are.

Texts whose bytes are not UTF-8: Hive writes and shows them, and Arrow only seems to hold them.

pyarrow takes any bytes of a file as a string; what uses the string fails later, far from the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import RecordValueError, TableNotMutableError
from mutation_api.format.hive_type import DECIMALS_OF_INTEGERS, INTEGER_KINDS, HiveType, arrow_type
from mutation_api.format.number_text import doubles_of_java, java_texts, texts_of_decimals
from mutation_api.format.plain_array import list_offsets, map_parts, rebased_list, text_arrays
from mutation_api.format.timestamps import proleptic_from_hybrid_days, proleptic_from_hybrid_timestamps
from mutation_api.orc.format.stored_values import column_count

__all__ = [
    "NOT_UTF8",
    "converted",
    "cut",
    "first_not_utf8",
    "may_be_padded",
    "texts_of_floats",
    "timestamps_of_texts",
    "without_padding",
]


_Converter = Callable[[pa.Array, HiveType, int], pa.Array]


def converted(array: pa.Array, hive_type: HiveType, release: int) -> pa.Array:
    """Values of a file's column as the table's column, whose type is another one.

    Args:
        array: n values as the file has them, dates counted in Arrow's calendar.
        hive_type: the table column's type; not a nested one.
        release: the major version of the Hive whose text of a number or a time is wanted: 2, 3 or 4.

    Returns:
        n values of ``arrow_type(hive_type)``.

    Raises:
        TableNotMutableError: there is no rule for this change; the message has both types.
    """
    kind = _kind_of(array.type)
    change = CHANGES.get((kind, hive_type.kind))
    if change is None or (kind == "string" and hive_type.kind == "double" and release > _LAST_TEXT_TO_DOUBLE):
        raise TableNotMutableError(
            f"the file holds {_shown(array.type)} and the table says {hive_type.text}: the column's type was "
            f"changed after the file was written, and values of {_shown(array.type)} are not read as "
            f"{hive_type.text} here, since no Hive {release} changes a column so unless its check "
            "(hive.metastore.disallow.incompatible.col.type.changes) is off. Change the type back, or leave "
            "the column out"
        )
    return change(array, hive_type, release)


_LAST_TEXT_TO_DOUBLE = 3
"""From Hive 4 on, ALTER refuses to make a double of a text."""


def _kind_of(found: pa.DataType) -> str:
    """Hive's kind of a file's column; char and varchar are texts as any."""
    if pa.types.is_decimal(found):
        return "decimal"
    if pa.types.is_timestamp(found):
        return "timestamp"
    return _KINDS.get(found, str(found))


def _shown(found: pa.DataType) -> str:
    if pa.types.is_decimal(found):
        return f"decimal({found.precision},{found.scale})"
    return _kind_of(found)


_KINDS = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}


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
    """Hive 3 reads the float's text as a double (0.1), the others its value (0.10000000149011612)."""
    if release == 3:
        array = pc.replace_substring(java_texts(array, is_float=True), "Infinity", "inf")
    return array.cast(arrow_type(hive_type), safe=False)


def _decimal(array: pa.Array, hive_type: HiveType, _release: int) -> pa.Array:
    """Rounded half up; what has too many digits is NULL."""
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
    """By its text: Arrow's own conversion does not round to the nearest."""
    return texts_of_decimals(array).cast(arrow_type(hive_type))


def _double_of_text(array: pa.Array, _hive_type: HiveType, _release: int) -> pa.Array:
    return doubles_of_java(array)


# -- texts ---------------------------------------------------------------------------------------------------
def _as_text(texts_of: Callable[[pa.Array, int], pa.Array]) -> _Converter:
    """Texts, cut to the column's length."""

    def convert(array: pa.Array, hive_type: HiveType, release: int) -> pa.Array:
        return cut(texts_of(array, release), hive_type)

    return convert


def cut(texts: pa.Array, hive_type: HiveType) -> pa.Array:
    """Texts as string, varchar or char: cut to the length, char without blanks at its end."""
    if hive_type.kind == "string":
        return texts
    longest = pc.max(pc.binary_length(texts)).as_py() or 0  # bytes: at least as many as code points
    if longest > hive_type.length:
        texts = pc.utf8_slice_codeunits(texts, 0, hive_type.length)
    return pc.utf8_rtrim(texts, " ") if hive_type.kind == "char" else texts


def _texts_of_integers(array: pa.Array, _release: int) -> pa.Array:
    return array.cast(pa.string())


def texts_of_floats(array: pa.Array, release: int, *, is_shortest: bool = False) -> pa.Array:
    """As Java prints them; NaN is NULL. Only Hive 3 prints a float as such, the others print its double."""
    is_float = pa.types.is_float32(array.type) and release == 3
    texts = java_texts(array, is_float=is_float, is_shortest=is_shortest)
    return pc.if_else(pc.is_nan(array), pa.scalar(None, pa.string()), texts)


def _texts_of_decimals(array: pa.Array, _release: int) -> pa.Array:
    return texts_of_decimals(array)


def _texts_of_dates(array: pa.Array, release: int) -> pa.Array:
    """Hive 3 prints the day's name in the Julian calendar before 1582-10-15, although it counts otherwise."""
    if release == 3:
        days = pc.fill_null(array.cast(pa.int32()), 0).to_numpy(zero_copy_only=False)
        mask = array.is_null().to_numpy(zero_copy_only=False)
        array = pa.array(proleptic_from_hybrid_days(days), pa.int32(), mask=mask).cast(pa.date32())
    return array.cast(pa.string())


def _texts_of_timestamps(array: pa.Array, release: int) -> pa.Array:
    """Without zeros at the end of the fraction; Hive 3 leaves one digit, and counts as for dates."""
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
    """Timestamps of the texts as which a snapshot in that form reads those of early or late years.

    Raises RecordValueError: one has more than six digits of a second.
    """
    try:
        return array.cast(pa.timestamp("us"))
    except pa.ArrowInvalid as error:
        raise RecordValueError(f"a timestamp has more than six digits of a second ({error})") from error


_TEXTS = ("string", "varchar", "char")

CHANGES: dict[tuple[str, str], _Converter] = {
    **{(one, other): _integer for one in INTEGER_KINDS for other in INTEGER_KINDS},
    **{(one, other): _number for one in INTEGER_KINDS for other in ("float", "double")},
    **{(one, "decimal"): _decimal for one in (*INTEGER_KINDS, "decimal")},
    ("float", "double"): _widened_float,
    ("double", "float"): _number,
    ("decimal", "float"): _number_of_decimal,
    ("decimal", "double"): _number_of_decimal,
    ("string", "double"): _double_of_text,
    **{(one, text): _as_text(_texts_of_integers) for one in INTEGER_KINDS for text in _TEXTS},
    **{(one, text): _as_text(texts_of_floats) for one in ("float", "double") for text in _TEXTS},
    **{("decimal", text): _as_text(_texts_of_decimals) for text in _TEXTS},
    **{("date", text): _as_text(_texts_of_dates) for text in _TEXTS},
    **{("timestamp", text): _as_text(_texts_of_timestamps) for text in _TEXTS},
}
"""By kind in the file and kind of the table."""


_BLANK = " "
_FEW_BYTES = 4096
"""So many bytes are copied and searched more quickly than the ends of texts are looked up."""


def may_be_padded(array: pa.Array) -> bool:
    """Whether a column has texts that end with a blank, at any depth."""
    return any(map(_ends_with_blank, text_arrays(array)))


def _ends_with_blank(array: pa.StringArray) -> bool:
    """In a quarter of the time that Arrow's functions take for the few rows of a small file."""
    _, offsets, data = array.buffers()
    if data is None or not data.size or offsets is None:
        return False
    if data.size <= _FEW_BYTES and _BLANK.encode() not in data.to_pybytes():
        return False
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    ends = bounds[1:][bounds[1:] > bounds[:-1]] - 1
    return bool((np.frombuffer(data, np.uint8)[ends] == ord(_BLANK)).any())


def without_padding(array: pa.Array, in_file: pa.DataType, number: int, chars: frozenset[int]) -> pa.Array:
    """A column whose char values are stripped, at any depth.

    Args:
        array: n values; a struct may lack fields of the file's.
        in_file: the column's type in the file, with all fields.
        number: the column's number in the file.
        chars: numbers of the columns of type char.

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
    # No mask if it would be empty: pyarrow aborts the process when a struct above a union has a mask.
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


NOT_UTF8 = "a text is not UTF-8; Hive reads it, and Arrow cannot hold it"


def first_not_utf8(names: Sequence[str], arrays: Sequence[pa.Array]) -> str | None:
    """Name of the first column with a text that is not UTF-8, at any depth; None if there is none.

    Fields of structs are named ``struct.field``.
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
    """In a quarter of the time that Arrow takes; most texts are."""
    data = array.buffers()[2]
    return data is None or not data.size or bool(np.frombuffer(data, np.int8).min() >= 0)


def _is_valid(array: pa.StringArray) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
