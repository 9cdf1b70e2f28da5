"""Convert the values of a JSON log from strings to values of columns, whole Arrow arrays at a time.

A reader defines how a string is interpreted. Formats choose one for each column, from the message's schema,
the user's options or the format's documentation. The columns that can hold its values:

===================  ===========================================  ============================================
reader               string                                       columns
===================  ===========================================  ============================================
``text``             the value itself                             all but binary, see ``text_values``
``flag``             ``true``, ``false``, or a number             boolean, integers
``number``           the same without quotes, except for NaN      integers, float, double
``base64``           bytes                                        binary
``base64-url-safe``  bytes                                        binary
``hex``              bytes                                        binary
``latin1``           bytes, each as the character of its number   binary
``decimal-bytes``    base64 of the unscaled number, two's         decimal, integers, strings
                     complement, high byte first
``decimal-number``   the number itself                            decimal, integers, strings
``decimal-struct``   ``{"scale": 2, "value": base64 of it}``      decimal, integers, strings
``bits``             base64 of bytes, low byte first              integers, decimal, binary
``days``             since 1970-01-01                             date, strings
``millis``, …        since 1970-01-01, without time zone          timestamp, strings
``time-millis``, …   since midnight; may be negative or > 24 h    strings (``-838:59:59.000000``)
``utc``              ``2018-06-20T13:37:03Z``, ``2017-09-15Z``,   timestamp, date, strings
                     ``2018-06-20T15:37:03+02:00``
``json``             JSON, as ``format.json_values`` has it       array, map, struct, uniontype
===================  ===========================================  ============================================

A string column gets a readable value: ``2017-09-15``, ``12.50``, ``13:37:03`` (with six fractional digits if
they are not zero). A string read by ``utc`` is not changed. In a timestamp column, an instant (``utc``) is
converted to UTC, from any offset. A value that would lose nanoseconds, digits or bits is refused.
"""

from __future__ import annotations

import binascii
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.format.hive_type import (
    FLOAT_KINDS,
    INTEGER_KINDS,
    NESTED_KINDS,
    PRIMITIVES,
    TEXT_KINDS,
    HiveType,
    MisfitError,
    TypeFamily,
    arrow_type,
)
from mutation_api.format.json_values import JsonMisfitError, decode_json, from_json
from mutation_api.format.number_text import decimals_of_texts, rescaled, texts_of_decimals
from mutation_api.format.scalar_conversion import MAX_DAYS, MIN_DAYS
from mutation_api.format.text_values import BinaryEncoding, first_refused, shown, values_of_texts


@dataclass(frozen=True)
class Reader:
    """The rule that interprets a JSON value in string form.

    ``scale``: scale of ``decimal-bytes`` and ``decimal-number``. A value of ``decimal-bytes`` may be a JSON
    number, which :meth:`of_numbers` reads.
    """

    name: str
    scale: int = 0

    @property
    def of_numbers(self) -> Reader:
        """The reader of values that are JSON numbers."""
        return Reader("decimal-number", self.scale) if self.name == "decimal-bytes" else self


TEXT = Reader("text")

_NUMBERS = (*INTEGER_KINDS, "decimal")
_SCALARS = tuple(kind for kind in PRIMITIVES if kind != "binary")
_MICROS_PER_DAY = 86_400_000_000


def can_read(reader: Reader, hive_type: HiveType) -> bool:
    """Return True if a column of this type can hold the reader's values."""
    return hive_type.kind in READERS[reader.name].kinds


def is_quoted(reader: Reader) -> bool | None:
    """Return True if the JSON value must be a string, False if it must not be, None if it may be one."""
    return READERS[reader.name].is_quoted


def values_of_json(texts: pa.Array, hive_type: HiveType, reader: Reader) -> pa.Array:
    """Convert JSON values in string form; nulls stay nulls.

    Args:
        texts: n strings, of Arrow's type string; JSON strings without their quotes.
        hive_type: type of the column; the reader must be able to fill it, see :func:`can_read`.
        reader: the rule that interprets the strings.

    Returns:
        n values of ``arrow_type(hive_type, timestamp_unit="us")``.

    Raises:
        MisfitError: If a string is not valid for the reader, or the column cannot hold its value.
    """
    return READERS[reader.name].read(texts, hive_type, reader)


def base64_bytes(texts: pa.Array, *, url_safe: bool = False) -> pa.Array:
    """Decode all strings at once: with the padding replaced by data, they form one long base64 string.

    Raises:
        MisfitError: If a string is not base64.
    """
    filled = pc.fill_null(texts, "")
    if url_safe:
        filled = pc.replace_substring(pc.replace_substring(filled, "-", "+"), "_", "/")
    _refuse(texts, pc.invert(pc.match_substring_regex(filled, _BASE64)), "is not base64")
    padding = pc.subtract(pc.binary_length(filled), pc.binary_length(pc.utf8_rtrim(filled, "=")))
    joined = "".join(pc.replace_substring(filled, "=", "A").to_pylist())
    decoded = np.frombuffer(binascii.a2b_base64(joined), np.uint8)
    whole = pc.binary_length(filled).to_numpy().astype(np.int64) // 4 * 3
    lengths = whole - padding.to_numpy()
    index_in_text = np.arange(decoded.size) - np.repeat(np.cumsum(whole) - whole, whole)
    kept = decoded[index_in_text < np.repeat(lengths, whole)]
    return _byte_strings(kept, lengths, texts)


def _byte_strings(data: NDArray[np.uint8], lengths: NDArray[np.int64], texts: pa.Array) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())]
    values = pa.Array.from_buffers(pa.binary(), len(texts), buffers)
    return pc.if_else(pc.is_valid(texts), values, pa.scalar(None, pa.binary()))


def _text(texts: pa.Array, hive_type: HiveType, _reader: Reader) -> pa.Array:
    return values_of_texts(texts, hive_type)


def _flag(texts: pa.Array, hive_type: HiveType, _reader: Reader) -> pa.Array:
    if hive_type.family is TypeFamily.INTEGER:
        texts = pc.if_else(pc.equal(texts, "true"), "1", pc.if_else(pc.equal(texts, "false"), "0", texts))
    return values_of_texts(texts, hive_type)


def _base64(texts: pa.Array, _hive_type: HiveType, _reader: Reader) -> pa.Array:
    return base64_bytes(texts)


def _url_safe_base64(texts: pa.Array, _hive_type: HiveType, _reader: Reader) -> pa.Array:
    return base64_bytes(texts, url_safe=True)


def _hex(texts: pa.Array, hive_type: HiveType, _reader: Reader) -> pa.Array:
    return values_of_texts(texts, hive_type, binary=BinaryEncoding.HEX)


def _latin1(texts: pa.Array, _hive_type: HiveType, _reader: Reader) -> pa.Array:
    """Decode bytes. In UTF-8, each is one byte below 0x80, or 0xC2 or 0xC3 followed by one byte."""
    filled = pc.fill_null(texts, "")
    is_wrong = pc.match_substring_regex(filled, r"[^\x{00}-\x{ff}]")
    _refuse(texts, is_wrong, "contains characters that do not stand for bytes")
    data = np.frombuffer("".join(filled.to_pylist()).encode("latin-1"), np.uint8)
    return _byte_strings(data, pc.utf8_length(filled).to_numpy().astype(np.int64), texts)


def _decimal_bytes(texts: pa.Array, hive_type: HiveType, reader: Reader) -> pa.Array:
    number = pa.decimal128(38, reader.scale)

    def convert(some: pa.Array) -> pa.Array:
        if pc.any(pc.equal(some, "")).as_py():
            raise pa.ArrowInvalid("a number without bytes")
        unscaled = _sixteen_bytes(base64_bytes(some))
        # pyarrow's if_else would rescale numbers with a negative scale, and overflow.
        present = np.packbits(some.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
        buffers = [pa.py_buffer(present.tobytes()), pa.py_buffer(unscaled.tobytes())]
        values = pa.Array.from_buffers(number, len(some), buffers)
        values.validate(full=True)
        return _of_decimals(values, hive_type)

    return _converted(texts, convert, _NO_DECIMAL.format(reader.scale))


def _decimal_number(texts: pa.Array, hive_type: HiveType, reader: Reader) -> pa.Array:
    number = pa.decimal128(38, reader.scale)

    def convert(some: pa.Array) -> pa.Array:
        return _of_decimals(decimals_of_texts(some, number), hive_type)

    return _converted(texts, convert, _NO_DECIMAL.format(reader.scale))


def _of_decimals(values: pa.Array, hive_type: HiveType) -> pa.Array:
    if hive_type.family is TypeFamily.TEXT:
        return texts_of_decimals(values, keeps_zeros=True)
    if hive_type.family is TypeFamily.INTEGER:
        return rescaled(values, pa.decimal128(38, 0)).cast(arrow_type(hive_type))
    return rescaled(values, arrow_type(hive_type))


def _sixteen_bytes(values: pa.Array) -> NDArray[np.uint8]:
    """Convert numbers in two's complement, high byte first, to decimal128: 16 bytes, low byte first.

    Raises:
        pa.ArrowInvalid: If a number needs more bytes.
    """
    values = pc.fill_null(values, b"")
    lengths = pc.binary_length(values).to_numpy().astype(np.int64)
    width = max(16, int(lengths.max(initial=0)))
    data = np.frombuffer(b"".join(values.to_pylist()), np.uint8)
    ends = np.cumsum(lengths)
    row = np.repeat(np.arange(len(lengths)), lengths)
    column = np.arange(data.size) - np.repeat(ends - lengths, lengths) + np.repeat(width - lengths, lengths)
    first = np.zeros(len(lengths), np.uint8)
    first[lengths > 0] = data[(ends - lengths)[lengths > 0]]
    sign = np.where(first & 0x80, 0xFF, 0).astype(np.uint8)
    matrix = np.repeat(sign[:, None], width, axis=1)
    matrix[row, column] = data
    kept = matrix[:, -16:]
    if (matrix[:, :-16] != sign[:, None]).any() or ((kept[:, 0] ^ sign) & 0x80).any():
        raise pa.ArrowInvalid("a number with more than 16 bytes")
    return np.ascontiguousarray(kept[:, ::-1])


def _decimal_struct(texts: pa.Array, hive_type: HiveType, _reader: Reader) -> pa.Array:
    """Convert the values of each scale together; a column has only a few scales."""
    parts = pc.extract_regex(texts, r'^\{"scale":(?P<scale>-?[0-9]{1,5}),"value":"(?P<value>[^"]*)"\}$')
    _refuse(texts, pc.and_(pc.is_null(parts), pc.is_valid(texts)), "has no scale and value")
    scales, values = pc.struct_field(parts, "scale"), pc.struct_field(parts, "value")
    rows, pieces = [np.flatnonzero(texts.is_null())], [pa.nulls(texts.null_count, arrow_type(hive_type))]
    for scale in scales.drop_null().unique().to_pylist():
        chosen = np.flatnonzero(pc.fill_null(pc.equal(scales, scale), False))
        convert = functools.partial(
            _decimal_bytes, hive_type=hive_type, reader=Reader("decimal-bytes", int(scale))
        )
        rows.append(chosen)
        pieces.append(_moved(chosen, convert, values))
    back = np.argsort(np.concatenate(rows), kind="stable")
    return pa.concat_arrays(pieces).take(pa.array(back))


def _moved(rows: NDArray[np.int64], convert: Callable[[pa.Array], pa.Array], texts: pa.Array) -> pa.Array:
    """Convert some rows; the row index in an error refers to all rows."""
    try:
        return convert(texts.take(pa.array(rows)))
    except MisfitError as error:
        raise MisfitError(int(rows[error.row]), error.value, error.reason) from error


def _bits(texts: pa.Array, hive_type: HiveType, _reader: Reader) -> pa.Array:
    values = base64_bytes(texts)
    if hive_type.kind == "binary":
        return values
    filled = pc.fill_null(values, b"")
    lengths = pc.binary_length(filled).to_numpy().astype(np.int64)
    _refuse(texts, pa.array(lengths > 8), "has more than 64 bits")
    matrix = np.zeros((len(texts), 8), np.uint8)
    row = np.repeat(np.arange(len(lengths)), lengths)
    column = np.arange(row.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    matrix[row, column] = np.frombuffer(b"".join(filled.to_pylist()), np.uint8)
    numbers = pa.array(matrix.view("<u8").ravel()).cast(pa.string())
    numbers = pc.if_else(pc.is_valid(texts), numbers, pa.scalar(None, pa.string()))
    return _converted(texts, lambda some: values_of_texts(some, hive_type), "", numbers)


def _days(texts: pa.Array, hive_type: HiveType, _reader: Reader) -> pa.Array:
    days = values_of_texts(texts, _INT)
    outside = pc.or_(pc.less(days, MIN_DAYS), pc.greater(days, MAX_DAYS))
    _refuse(texts, outside, "is not a number of days since 1970-01-01 within the years 1 to 9999")
    dates = days.cast(pa.date32())
    return dates if hive_type.kind == "date" else dates.cast(pa.string())


def _wall_clock(texts: pa.Array, hive_type: HiveType, reader: Reader) -> pa.Array:
    micros = _micros(texts, reader.name)
    _refuse_other_years(texts, micros)
    values = micros.cast(pa.timestamp("us"))
    if hive_type.kind == "timestamp":
        return values
    return pc.replace_substring_regex(values.cast(pa.string()), r"\.000000$", "")


def _refuse_other_years(texts: pa.Array, micros: pa.Array) -> None:
    outside = pc.or_(
        pc.less(micros, MIN_DAYS * _MICROS_PER_DAY),
        pc.greater_equal(micros, (MAX_DAYS + 1) * _MICROS_PER_DAY),
    )
    _refuse(texts, outside, "is not a time since 1970-01-01 within the years 1 to 9999")


def _time(texts: pa.Array, _hive_type: HiveType, reader: Reader) -> pa.Array:
    micros = _micros(texts, reader.name.removeprefix("time-"))
    left = pc.abs(micros)
    parts = []
    for unit in (3_600_000_000, 60_000_000, 1_000_000, 1):
        count = pc.divide(left, unit)
        left = pc.subtract(left, pc.multiply(count, unit))
        parts.append(count.cast(pa.string()))
    hours, minutes, seconds = (pc.utf8_lpad(part, 2, "0") for part in parts[:3])
    clock = pc.binary_join_element_wise(hours, minutes, seconds, ":")
    fraction = pc.utf8_lpad(parts[3], 6, "0")
    clock = pc.if_else(pc.equal(parts[3], "0"), clock, pc.binary_join_element_wise(clock, fraction, "."))
    return pc.if_else(pc.less(micros, 0), pc.binary_join_element_wise("-", clock, ""), clock)


def _micros(texts: pa.Array, unit: str) -> pa.Array:
    numbers = values_of_texts(texts, _BIGINT)
    if unit == "nanos":
        micros = pc.divide(numbers, 1000)
        lost = pc.not_equal(pc.multiply(micros, 1000), numbers)
        _refuse(texts, lost, "has nanoseconds, but the column holds microseconds")
        return micros
    factor = _MICROS_IN[unit]
    bound = (2**63 - 1) // factor
    _refuse(texts, pc.or_(pc.greater(numbers, bound), pc.less(numbers, -bound)), "is too large for a time")
    return pc.multiply(numbers, factor)


def _utc(texts: pa.Array, hive_type: HiveType, _reader: Reader) -> pa.Array:
    is_right = pc.match_substring_regex(texts, _UTC_TEXT)
    _refuse(
        texts,
        pc.invert(is_right),
        "is not a time or date in UTC such as 2018-06-20T13:37:03.25Z, and has no offset such as +02:00",
    )
    if hive_type.family is TypeFamily.TEXT:
        return texts
    is_offset = pc.invert(pc.ends_with(texts, "Z"))
    plain = pc.replace_substring_regex(pc.replace_substring(texts, "T", " "), r"(Z|[+-]\d\d:[0-9:]+)$", "")
    values = _converted(texts, lambda some: values_of_texts(some, hive_type), "", plain)
    if not pc.any(is_offset).as_py():
        return values
    if hive_type.kind != "timestamp":
        _refuse(texts, is_offset, "has an offset, so its date in UTC may differ")
    micros = pc.subtract(values.cast(pa.int64()), _offset_micros(texts))
    _refuse_other_years(texts, micros)
    return micros.cast(pa.timestamp("us"))


def _offset_micros(texts: pa.Array) -> pa.Array:
    """Return the offsets from UTC at the ends of strings, in microseconds."""
    parts = pc.extract_regex(texts, _OFFSET)
    micros = pa.scalar(0, pa.int64())
    for name, unit in (("hours", 3_600_000_000), ("minutes", 60_000_000), ("seconds", 1_000_000)):
        digits = pc.struct_field(parts, name)
        number = pc.if_else(pc.equal(pc.fill_null(digits, ""), ""), "0", digits).cast(pa.int64())
        micros = pc.add(micros, pc.multiply(number, unit))
    is_behind = pc.equal(pc.struct_field(parts, "sign"), "-")
    return pc.if_else(pc.fill_null(is_behind, False), pc.negate(micros), micros)


def _json(texts: pa.Array, hive_type: HiveType, _reader: Reader) -> pa.Array:
    values = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else decode_json(text))
        except (ValueError, RecursionError) as error:
            raise _misfit(texts, row, f"is not JSON: {error}") from error
    try:
        return from_json(values, hive_type)
    except JsonMisfitError as error:
        raise _misfit(texts, error.row, error.reason or f"is not of type {hive_type.text}") from error


def _refuse(texts: pa.Array, is_wrong: pa.Array, reason: str) -> None:
    """Raise MisfitError for the first string that is wrong; nulls never are."""
    wrong = np.flatnonzero(pc.and_(pc.fill_null(is_wrong, False), pc.is_valid(texts)))
    if wrong.size:
        raise _misfit(texts, int(wrong[0]), reason)


def _misfit(texts: pa.Array, row: int, reason: str) -> MisfitError:
    return MisfitError(row, shown(texts[row].as_py()), reason)


def _converted(
    texts: pa.Array, convert: Callable[[pa.Array], pa.Array], reason: str, changed: pa.Array | None = None
) -> pa.Array:
    """Convert strings; if Arrow refuses one, the error shows the first such string."""
    some = texts if changed is None else changed
    try:
        return convert(some)
    except MisfitError as error:
        raise _misfit(texts, error.row, error.reason) from error
    except pa.ArrowInvalid as error:
        raise _misfit(texts, first_refused(some, convert), reason) from error


@dataclass(frozen=True)
class _Kind:
    kinds: tuple[str, ...]
    read: Callable[[pa.Array, HiveType, Reader], pa.Array]
    is_quoted: bool | None = None


_NO_DECIMAL = "is not a number with scale {} that the column can hold"
_INT, _BIGINT = HiveType("int"), HiveType("bigint")
_MICROS_IN = {"seconds": 1_000_000, "millis": 1000, "micros": 1}
_BASE64 = r"\A(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\z"
_OFFSET_TEXT = r"[+-](?:0\d|1[0-8]):[0-5]\d(?::[0-5]\d)?"
_CLOCK_TEXT = r"T\d\d:\d\d(?::\d\d(?:\.\d+)?)?"
_UTC_TEXT = rf"\A\d{{4}}-\d\d-\d\d(?:Z|{_CLOCK_TEXT}(?:Z|{_OFFSET_TEXT}))\z"
_OFFSET = r"T.*?(?:Z|(?P<sign>[+-])(?P<hours>\d\d):(?P<minutes>\d\d)(?::(?P<seconds>\d\d))?)$"

READERS = {
    "text": _Kind(_SCALARS, _text),
    "flag": _Kind(("boolean", *INTEGER_KINDS), _flag),
    "number": _Kind((*INTEGER_KINDS, *FLOAT_KINDS), _flag, False),
    "base64": _Kind(("binary",), _base64, True),
    "base64-url-safe": _Kind(("binary",), _url_safe_base64, True),
    "hex": _Kind(("binary",), _hex, True),
    "latin1": _Kind(("binary",), _latin1, True),
    "decimal-bytes": _Kind((*_NUMBERS, *TEXT_KINDS), _decimal_bytes),
    "decimal-number": _Kind((*_NUMBERS, *TEXT_KINDS), _decimal_number, False),
    "decimal-struct": _Kind((*_NUMBERS, *TEXT_KINDS), _decimal_struct),
    "bits": _Kind((*_NUMBERS, "binary"), _bits, True),
    "days": _Kind(("date", *TEXT_KINDS), _days),
    **{unit: _Kind(("timestamp", *TEXT_KINDS), _wall_clock) for unit in ("millis", "micros", "nanos")},
    **{f"time-{unit}": _Kind(TEXT_KINDS, _time) for unit in ("millis", "micros", "nanos")},
    "utc": _Kind(("timestamp", "date", *TEXT_KINDS), _utc, True),
    "json": _Kind(NESTED_KINDS, _json, True),
}
"""The readers by name: the kinds of columns that can hold their values, the conversion, and whether the JSON
value must or must not be a string, since a number may look like base64, and base64 like a number."""
