"""StripeDecoder: decodes columns of stripes with pyarrow, or with pyorc what pyarrow cannot hold.

pyarrow cannot hold ORC timestamps outside the years 1678 to 2261 (they are common as "no date" and "no end"),
maps with NULL as a key, and uses other offsets of time zones before 1900 than Java. pyorc reads such columns,
value by value. Its values are converted to the form that Arrow accepts.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyorc

from mutation_api.errors import MutationError, ReadError, RecordValueError
from mutation_api.format.plain_array import has_timestamp
from mutation_api.format.timestamps import proleptic_from_hybrid_timestamps, wall_clock_of_instant
from mutation_api.orc.format.checked_file import FAULTS, fault_of
from mutation_api.orc.format.stored_values import column_id, column_type_in
from mutation_api.orc.format.stripe_sections import StripeFooter
from mutation_api.orc.format.time_zones import add_zone, missing_zone, named_zone, uses_early_offsets
from mutation_api.orc.read.column_reader import (
    FINE_TIMESTAMPS,
    ReadOptions,
    TimestampForm,
    replace_timestamps,
)
from mutation_api.orc.read.type_changes import NOT_UTF8, may_be_padded, without_padding
from mutation_api.storage.location import Location

_OUT_OF_RANGE = "out of range for nanosecond"

NULL_KEY = "a map has a NULL key; Hive can read it, but Arrow cannot hold it"

_NANOS_PER_SECOND = 10**9
_EPOCH = datetime.datetime(1970, 1, 1)


class StripeDecoder:
    """Decodes stripes of one file, and copies of parts of its stripes.

    Args:
        location: the file, for messages.
        schema: the file's columns.
        char_columns: the numbers of the columns of type char.
        options: the form in which timestamps may be returned that nanoseconds cannot hold, and the calendar
            of the file.
    """

    def __init__(
        self, location: Location, schema: pa.Schema, char_columns: frozenset[int], options: ReadOptions
    ) -> None:
        self._location = location
        self._schema = schema
        self._char_columns = char_columns
        self._options = options
        self._needs_pyorc = False

    def decode(
        self,
        file: pa.orc.ORCFile,
        source: Callable[[], Any],
        stripes: Sequence[int],
        columns: Sequence[str],
        footer: StripeFooter,
        unsafe: Sequence[str] = (),
    ) -> list[pa.RecordBatch]:
        """Return columns of stripes, of which all have the same types.

        Args:
            file: the file, or a copy of parts of one of its stripes.
            source: returns the bytes of ``file``.
            stripes: the numbers of the stripes in ``file``.
            columns: the names of the columns. ``row.x`` is field ``x`` of struct ``row``.
            footer: a footer with the time zone of the stripes' writer.
            unsafe: the names of columns with maps whose keys may be NULL, on which pyarrow ends the process.

        Raises:
            CorruptFileError: If a stripe cannot be decoded.
            RecordValueError: If Arrow, or the requested form, cannot hold a value.
            ReadError: If this machine cannot decode it.
        """
        has_moments = any(has_timestamp(column_type_in(self._schema, name)) for name in columns)
        found = []
        for index in stripes:
            rows = None
            if not unsafe and not (self._needs_pyorc and has_moments):
                rows = self._read_with_pyarrow(file, index, columns, footer)
            if rows is None:
                return [
                    self._read_with_pyorc(file, source(), each, columns, footer, unsafe) for each in stripes
                ]
            found.append(rows)
        return found

    def _read_with_pyarrow(
        self, file: pa.orc.ORCFile, index: int, columns: Sequence[str], footer: StripeFooter
    ) -> pa.RecordBatch | None:
        """Return the values that pyarrow reads; None if it fails, or uses other zone offsets than Java."""
        try:
            found = self._unpadded(self._decoded(file, index, columns))
        except pa.ArrowInvalid as error:
            if _OUT_OF_RANGE not in str(error):
                raise decoding_fault(error, self._location) from error
            self._needs_pyorc = True
            return None
        except MutationError:
            raise
        except FAULTS as error:
            raise decoding_fault(error, self._location) from error
        is_sure = not any(map(uses_early_offsets, found.columns)) or named_zone(footer.zone) is None
        return found if is_sure else None

    def _decoded(self, file: Any, index: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Return the values that pyarrow decodes.

        Try again if it did not find the time zone of the stripe's writer.
        """
        try:
            return file.read_stripe(index, columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            zone = missing_zone(error)
            if zone is None or not add_zone(zone):
                raise
        return file.read_stripe(index, columns=list(columns))

    def _read_with_pyorc(
        self,
        file: pa.orc.ORCFile,
        source: Any,
        index: int,
        columns: Sequence[str],
        footer: StripeFooter,
        unsafe: Sequence[str],
    ) -> pa.RecordBatch:
        """Return the values. pyorc reads timestamps and the ``unsafe`` columns."""
        names = [n for n in columns if n in unsafe or has_timestamp(column_type_in(self._schema, n))]
        rest = [n for n in columns if n not in names]
        try:
            types = {name: column_type_in(self._schema, name) for name in names}
            read = _pyorc_columns(source, index, types, self._options, named_zone(footer.zone))
            parts = file.read_stripe(index, columns=rest) if rest else None
            return self._unpadded(_combined(parts, read))
        except RecordValueError as error:
            raise RecordValueError(f"{self._location}, {error}") from error
        except MutationError:
            raise
        except UnicodeDecodeError as error:
            raise RecordValueError(f"{self._location}, columns {', '.join(names)}: {NOT_UTF8}") from error
        except FAULTS as error:
            raise decoding_fault(error, self._location) from error

    def _unpadded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows without padding in the values of char columns."""
        chars = self._char_columns
        if not chars or not any(map(may_be_padded, batch.columns)):
            return batch
        columns = [
            without_padding(array, self._schema.field(name).type, column_id(self._schema, name), chars)
            for name, array in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def decoding_fault(error: Exception, location: Location) -> ReadError:
    """Return the error to raise: an error of the file, or of this machine if the file may be intact."""
    zone = missing_zone(error)
    if zone is not None:
        return ReadError(
            f"{location}: this machine does not have {zone!r}, the time zone in which the file "
            "was written, and neither does the package tzdata. Install the newest tzdata, or set "
            "TZDIR to a directory that has it"
        )
    return fault_of(error, location)


def _pyorc_columns(
    source: Any,
    index: int,
    types: Mapping[str, pa.DataType],
    options: ReadOptions,
    zone: zoneinfo.ZoneInfo | None,
) -> dict[str, pa.Array]:
    """Return columns of a stripe, value by value.

    Args:
        source: the file.
        index: the number of the stripe.
        types: the types of the columns, by name, as pyarrow reads them.
        options: the form of timestamps, and the calendar of the file.
        zone: the time zone of the stripe's writer, if pyorc returns instants. None if it returns local
            timestamps.

    Raises:
        RecordValueError: If Arrow, or the requested form, cannot hold a value. The message names the column.
        UnicodeDecodeError: If a string is not UTF-8.
        pyorc.errors.ORCError, OSError: If the stripe cannot be decoded.
    """
    reader = pyorc.Reader(
        source,
        column_names=list(types),
        timezone=zone or zoneinfo.ZoneInfo("UTC"),  # the writer's: ORC returns instants unchanged
        struct_repr=pyorc.StructRepr.DICT,
        converters=_converters(options, zone),
    )
    rows = list(reader.read_stripe(index))
    return {name: _array(rows, name, data_type, options) for name, data_type in types.items()}


def _array(
    rows: Sequence[Mapping[str, Any]], name: str, data_type: pa.DataType, options: ReadOptions
) -> pa.Array:
    target = replace_timestamps(data_type, options.timestamp_form.arrow)
    outer, _, inner = name.partition(".")
    values = (row[outer] for row in rows)
    if inner:
        values = (None if value is None else value[inner] for value in values)
    try:
        return pa.array([_plain_value(value, target) for value in values], type=target)
    except RecordValueError as error:
        raise RecordValueError(
            f"column {name!r}: {error}. Do not read the column, or let Hive write these rows again with "
            "other keys"
        ) from error
    except (OverflowError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RecordValueError(
            f"column {name!r}: a timestamp does not fit {options.timestamp_form.name.lower()} ({error})"
        ) from error


def _plain_value(value: Any, data_type: pa.DataType) -> Any:
    """Return a value of pyorc in the form that ``pa.array`` accepts: maps become lists of pairs.

    Raises:
        RecordValueError: If the key of a map is NULL.
    """
    if value is None:
        return None
    if pa.types.is_map(data_type):
        if None in value:
            raise RecordValueError(NULL_KEY)
        return [
            (_plain_value(k, data_type.key_type), _plain_value(v, data_type.item_type))
            for k, v in value.items()
        ]
    if pa.types.is_list(data_type):
        return [_plain_value(v, data_type.value_type) for v in value]
    if pa.types.is_struct(data_type):
        return {f.name: _plain_value(value[f.name], f.type) for f in data_type}
    return value


def _converters(options: ReadOptions, zone: zoneinfo.ZoneInfo | None) -> dict[pyorc.TypeKind, Any]:
    """Return converters that create timestamps and dates. For the arguments see :func:`_pyorc_columns`."""

    def timestamp(seconds: int, nanos: int) -> int | str:
        if zone is not None:
            seconds = wall_clock_of_instant(seconds, zone)
        if not options.is_proleptic:
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
            raise NotImplementedError("this converter can only read")

    return Converter


def _timestamp(seconds: int, nanos: int, options: ReadOptions) -> int | str:
    """Return one timestamp in the requested form. ``nanos`` is added to ``seconds``, even before 1970."""
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


def _combined(parts: pa.RecordBatch | None, read: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Combine the columns, and the fields of each struct, that pyarrow and pyorc have read into one batch."""
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
