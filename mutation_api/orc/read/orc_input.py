"""OrcInput: one ORC file, read stripe by stripe as Arrow.

pyarrow decodes. It cannot hold ORC timestamps outside the years 1678 to 2261 (they are common as "no date"
and "no end"), so pyorc reads columns with such values once more, value by value.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyorc
from numpy.typing import NDArray

from mutation_api.errors import CorruptFileError, DirectoryStateError, RecordValueError
from mutation_api.orc.format.stored_values import holds_dates
from mutation_api.orc.format.stripe_ranges import Range, column_id, column_ids, comparable_range
from mutation_api.orc.format.stripe_sections import parse_statistics, parse_streams
from mutation_api.orc.format.tail import OrcTail, parse_tail, tail_length
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm, replace_timestamps
from mutation_api.orc.read.ranged_input import RangedInput
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Storage
from mutation_api.types.calendar import proleptic_from_hybrid_timestamps
from mutation_api.types.hive_type import HiveType
from mutation_api.types.plain_array import has_timestamp

__all__ = ["OrcInput"]

logger = logging.getLogger(__name__)

_OUT_OF_RANGE = "out of range for nanosecond"
_NANOS_PER_SECOND = 10**9
_EPOCH = datetime.datetime(1970, 1, 1)
_ROWS_DECODED_PER_SOUGHT = 4096
"""About as many rows of a stripe are decoded in the time in which one row is sought."""
_WHOLE_STRIPE_BYTES = 1024 * 1024
"""A stripe of at most this size is fetched as a whole: one request instead of two or three."""


class OrcInput:
    """One ORC file.

    An empty file counts as a file without rows, as in Hive. This is logged, because the file may also have
    been cut off.

    Args:
        storage: the file's storage.
        location: the file.
        length: logical length in bytes of a file that is still being written; None for a complete file.
        options: the form in which :meth:`read_stripe` may give timestamps that nanoseconds cannot hold.

    Attributes:
        location: as given.
        is_proleptic: dates and timestamps count days in the proleptic Gregorian calendar, not in the hybrid
            one. The footer decides, or ``options`` if the footer does not say.

    Raises:
        DirectoryStateError: the file does not exist (any more).
        CorruptFileError: it is not a complete ORC file.
    """

    def __init__(
        self, storage: Storage, location: Location, length: int | None, options: ReadOptions
    ) -> None:
        self.location = location
        self._storage = storage
        self._length = length
        self._options = options
        self._needs_pyorc = False
        self.is_proleptic = options.is_proleptic
        self._input: Any = None
        self._ranged: RangedInput | None = None
        self._file = self._open()
        if any(holds_dates(data_type) for data_type in self.schema.types):
            marked = self._tail.is_proleptic
            self.is_proleptic = self.is_proleptic if marked is None else marked

    @property
    def stripe_count(self) -> int:
        """Number of stripes."""
        return 0 if self._file is None else int(self._file.nstripes)

    @property
    def schema(self) -> pa.Schema:
        """The file's columns; empty for an empty file."""
        return pa.schema([]) if self._file is None else self._file.schema

    def read_stripe(self, index: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Columns of one stripe.

        Args:
            index: 0 <= index < stripe_count.
            columns: names; ``row.x`` is field ``x`` of struct ``row``.

        Returns:
            The stripe's rows; timestamps in nanoseconds or, if those cannot hold them, in the wanted form.
        """
        if self._ranged is not None:
            self._fetch(self._ranged, index, columns)
        if self._needs_pyorc:
            return self._read_with_pyorc(index, columns)
        try:
            return self._file.read_stripe(index, columns=list(columns))
        except pa.ArrowInvalid as error:
            if _OUT_OF_RANGE not in str(error):
                raise self._corrupt(error) from error
        except (pa.ArrowException, OSError, ValueError, UnicodeDecodeError) as error:
            raise self._corrupt(error) from error
        self._needs_pyorc = True
        return self._read_with_pyorc(index, columns)

    def read_rows(
        self, index: int, columns: Sequence[str], positions: NDArray[np.int64], stripe_rows: int
    ) -> pa.RecordBatch:
        """Columns of some rows of one stripe; few rows are sought, so that not all are decoded.

        Args:
            index: 0 <= index < stripe_count.
            columns: names, as for :meth:`read_stripe`.
            positions: of the rows in the stripe, in any order.
            stripe_rows: number of rows of the stripe, which the caller has read in part; to parse the tail
                for it takes longer than reading a small file.

        Returns:
            A row for each position; types as :meth:`read_stripe` gives them.
        """
        is_worth_it = len(positions) * _ROWS_DECODED_PER_SOUGHT <= stripe_rows
        if len(positions) and is_worth_it and all(_can_be_sought(self._type_of(name)) for name in columns):
            # pyorc cannot seek behind texts that are all empty, and Arrow takes any bytes as a text.
            with contextlib.suppress(pyorc.errors.ORCError, UnicodeDecodeError):
                return self._sought_rows(index, columns, positions)
        return self.read_stripe(index, columns).take(pa.array(positions))

    def stripe_rows(self, index: int) -> int:
        """Number of rows of one stripe."""
        return self._tail.stripes[index].row_count

    def stripe_ranges(self, columns: Mapping[str, HiveType]) -> list[dict[str, Range]]:
        """Ranges of columns in the stripes, as the writer recorded them.

        Args:
            columns: names, as for :meth:`read_stripe`, of columns of the file, and the types as which they
                will be read.

        Returns:
            For each stripe, or the first ones, the ranges by name; unknown ranges are missing.

        Raises:
            CorruptFileError: the statistics cannot be parsed.
        """
        tail = self._tail
        behind = tail.footer_length + tail.postscript_length + 1
        section = self._last_bytes(tail.statistics_length + behind)[: tail.statistics_length]
        names = {column_id(self.schema, name): name for name in columns}
        try:
            stripes = parse_statistics(section, tail, names)
            return [self._ranges(stripe, names, columns) for stripe in stripes]
        except CorruptFileError as error:
            raise self._corrupt(error) from error

    def _ranges(
        self, statistics: Mapping[int, bytes], names: Mapping[int, str], columns: Mapping[str, HiveType]
    ) -> dict[str, Range]:
        ranges = {}
        for number, text in statistics.items():
            name = names[number]
            known = comparable_range(text, self._type_of(name), columns[name])
            if known is not None:
                ranges[name] = known
        return ranges

    def _fetch(self, ranged: RangedInput, index: int, columns: Sequence[str]) -> None:
        """Load the streams of a stripe's columns into memory."""
        try:
            stripe = self._tail.stripes[index]
            if stripe.end - stripe.offset <= _WHOLE_STRIPE_BYTES:
                ranged.fetch([(stripe.offset, stripe.end)])
                return
            footer_start = stripe.end - stripe.footer_length
            ranged.fetch([(footer_start, stripe.end)])
            ranged.seek(footer_start)
            streams = parse_streams(ranged.read(stripe.footer_length), self._tail, stripe)
        except CorruptFileError:
            return  # decoding it will raise the error
        except OSError as error:
            raise self._corrupt(error) from error
        wanted = frozenset[int]().union(*(column_ids(self.schema, name) for name in columns))
        ranges = [(start, stop) for column, start, stop in streams if column in wanted]
        ranged.fetch([*ranges, (footer_start, stripe.end)])

    def _open(self) -> Any:
        try:
            stream = self._stream()
            if stream is None:
                logger.warning("%s is empty: read as a file without rows, as Hive does", self.location)
                return None
            file = pa.orc.ORCFile(stream)
            self._input = stream
        except FileNotFoundError as error:
            raise DirectoryStateError(
                f"{self.location} was removed after its directory was listed; a reader needs a lock, else "
                "Hive's cleaner may remove its files: take a new snapshot within a transaction"
            ) from error
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._corrupt(error) from error
        return file

    @functools.cached_property
    def _tail(self) -> OrcTail:
        try:
            length = self._file.file_footer_length + self._file.file_postscript_length + 1
            return parse_tail(self._last_bytes(length))
        except CorruptFileError as error:
            raise self._corrupt(error) from error

    def _last_bytes(self, count: int) -> bytes:
        self._input.seek(self._input.size() - count)
        data: bytes = self._input.read(count)
        return data

    def _stream(self) -> Any:
        """The file's committed bytes; None if there are none."""
        stream = self._storage.open_input(self.location)
        size = int(stream.size())
        length = size if self._length is None else self._length
        if length > size:
            raise CorruptFileError(
                f"{self.location} has {size} bytes, but its side file says that {length} are committed"
            )
        if length == 0:
            stream.close()
            return None
        if length == size and isinstance(stream, pa.OSFile):
            return stream
        self._ranged = RangedInput(stream, length)
        with contextlib.suppress(CorruptFileError):  # decoding it will raise the error
            self._ranged.keep_end(tail_length(self._ranged.keep_end(0)))
        return pa.PythonFile(self._ranged, mode="r")

    def _read_with_pyorc(self, index: int, columns: Sequence[str]) -> pa.RecordBatch:
        names = [n for n in columns if has_timestamp(self._type_of(n))]
        rest = [n for n in columns if n not in names]
        try:
            read = self._pyorc_stripe(index, names)
            parts = self._file.read_stripe(index, columns=rest) if rest else None
        except (pa.ArrowException, pyorc.errors.ORCError, OSError, ValueError, TypeError) as error:
            raise self._corrupt(error) from error
        return _combine(parts, read)

    def _sought_rows(
        self, index: int, columns: Sequence[str], positions: NDArray[np.int64]
    ) -> pa.RecordBatch:
        if self._ranged is not None:
            self._fetch(self._ranged, index, columns)
        ascending, at = np.unique(positions, return_inverse=True)
        try:
            stripe = self._pyorc_reader(columns, batch_size=1).read_stripe(index)
            rows = []
            for position in ascending.tolist():
                stripe.seek(position)
                rows.append(next(stripe))
        except OSError as error:
            raise self._corrupt(error) from error
        found = _combine(None, {name: self._array(rows, name) for name in columns})
        return found.take(pa.array(at))

    def _pyorc_stripe(self, index: int, names: Sequence[str]) -> dict[str, pa.Array]:
        rows = list(self._pyorc_reader(names).read_stripe(index))
        return {name: self._array(rows, name) for name in names}

    def _pyorc_reader(self, names: Sequence[str], batch_size: int = 1024) -> pyorc.Reader:
        source: Any = self._ranged or self._stream()
        return pyorc.Reader(
            source,
            batch_size=batch_size,
            column_names=names,
            struct_repr=pyorc.StructRepr.DICT,
            converters=_converters(self._options, self.is_proleptic),
        )

    def _array(self, rows: Sequence[Mapping[str, Any]], name: str) -> pa.Array:
        target = replace_timestamps(self._type_of(name), self._options.timestamp_form.arrow)
        outer, _, inner = name.partition(".")
        values = (row[outer] for row in rows)
        if inner:
            values = (None if value is None else value[inner] for value in values)
        try:
            return pa.array([_plain(value, target) for value in values], type=target)
        except (OverflowError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise RecordValueError(
                f"{self.location}, column {name!r}: a timestamp does not fit "
                f"{self._options.timestamp_form.name.lower()} ({error})"
            ) from error

    def _type_of(self, name: str) -> pa.DataType:
        outer, _, inner = name.partition(".")
        data_type = self.schema.field(outer).type
        return data_type.field(inner).type if inner else data_type

    def _corrupt(self, error: Exception) -> CorruptFileError:
        return CorruptFileError(f"{self.location} is not a readable ORC file: {error}")


def _can_be_sought(data_type: pa.DataType) -> bool:
    tests = (pa.types.is_primitive, pa.types.is_decimal, pa.types.is_string, pa.types.is_binary)
    return any(test(data_type) for test in tests)


def _combine(parts: pa.RecordBatch | None, read: Mapping[str, pa.Array]) -> pa.RecordBatch:
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


def _plain(value: Any, data_type: pa.DataType) -> Any:
    """A value of pyorc in the form that ``pa.array`` accepts: maps become lists of pairs."""
    if value is None:
        return None
    if pa.types.is_map(data_type):
        return [(_plain(k, data_type.key_type), _plain(v, data_type.item_type)) for k, v in value.items()]
    if pa.types.is_list(data_type):
        return [_plain(v, data_type.value_type) for v in value]
    if pa.types.is_struct(data_type):
        return {f.name: _plain(value[f.name], f.type) for f in data_type}
    return value


def _converters(options: ReadOptions, is_proleptic: bool) -> dict[pyorc.TypeKind, Any]:
    def timestamp(seconds: int, nanos: int) -> int | str:
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
            f"a timestamp has more than six digits of a second ({nanos} ns), which Spark cannot hold; "
            "set truncate_nanoseconds=True to drop the rest, or leave the column out"
        )
    return seconds * 10**6 + nanos // 1000
