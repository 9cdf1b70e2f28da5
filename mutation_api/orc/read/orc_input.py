"""OrcInput: one ORC file, read stripe by stripe as Arrow.

pyarrow decodes it. pyarrow cannot hold ORC timestamps outside the years 1678 to 2261 (they are common as "no
date" and "no end"), so pyorc reads columns with such values again, value by value.
"""

from __future__ import annotations

import contextlib
import logging
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyorc
from numpy.typing import NDArray

from mutation_api.errors import (
    CorruptFileError,
    DirectoryStateError,
    MutationError,
    ReadError,
    RecordValueError,
)
from mutation_api.format.hive_type import HiveType
from mutation_api.format.plain_array import has_timestamp
from mutation_api.orc.format.checked_file import FAULTS, check_values, checked_stripe, fault_of, null_keys
from mutation_api.orc.format.plain_stripe import plain_stripe
from mutation_api.orc.format.stored_values import Range, column_id, comparable_range
from mutation_api.orc.format.stripe_sections import StripeFooter, parse_statistics
from mutation_api.orc.format.tail import OrcTail, tail_length, tail_of
from mutation_api.orc.format.time_zones import (
    add_zone,
    find_zones,
    missing_zone,
    named_zone,
    uses_early_offsets,
)
from mutation_api.orc.format.type_tree import column_numbers, numbers_of_columns
from mutation_api.orc.read.column_reader import (
    ReadOptions,
    can_be_sought,
    combined,
    converters,
    plain_value,
    replace_timestamps,
)
from mutation_api.orc.read.open_files import OpenFile, RangedInput
from mutation_api.orc.read.type_changes import NOT_UTF8, may_be_padded, without_padding
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Storage

__all__ = ["OrcInput"]

logger = logging.getLogger(__name__)

_OUT_OF_RANGE = "out of range for nanosecond"
_ROWS_DECODED_PER_SOUGHT = 16384
"""The rows that pyarrow decodes in the time in which pyorc seeks one row, which blocks other threads."""
_WHOLE_STRIPE_BYTES = 1024 * 1024
"""A stripe up to this size is fetched as a whole, in one request instead of two or three."""


class OrcInput:
    """One ORC file.

    An empty file counts as a file without rows, as in Hive. This is logged, because the file may also have
    been cut off.

    Args:
        storage: the file's storage.
        location: the file.
        length: the logical length in bytes of a file that is still being written. If None, the file is
            complete.
        options: the form in which :meth:`read_stripe` may return timestamps that nanoseconds cannot hold.

    Attributes:
        location: the file.
        stripe_count: the number of stripes.
        schema: the file's columns; empty for an empty file.
        is_proleptic: True if dates and timestamps count days in the proleptic Gregorian calendar, False if in
            the hybrid one. The footer decides, or ``options`` if the footer does not record it.

    Raises:
        DirectoryStateError: If the file does not exist or was removed.
        CorruptFileError: If it is not a complete ORC file.
    """

    def __init__(
        self, storage: Storage, location: Location, length: int | None, options: ReadOptions
    ) -> None:
        self.location = location
        self._storage = storage
        self._length = length
        self._options = options
        self._needs_pyorc = False
        self._checked: OrcTail | None = None
        self.is_proleptic = options.is_proleptic
        find_zones()
        self._opened = self._open()
        self._readings = 1
        file = None if self._opened is None else self._opened.file
        self.schema: pa.Schema = pa.schema([]) if file is None else file.schema
        self.stripe_count = 0 if file is None else int(file.nstripes)
        if file is not None and self._tail.has_moments:
            marked = self._tail.is_proleptic
            self.is_proleptic = self.is_proleptic if marked is None else marked
        self._leave()

    def read_stripe(self, index: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Return columns of one stripe.

        Args:
            index: 0 <= index < stripe_count.
            columns: the names of the columns. ``row.x`` is field ``x`` of struct ``row``.

        Returns:
            The stripe's rows, with timestamps in nanoseconds or, if those cannot hold them, in the requested
            form.

        Raises:
            CorruptFileError: If the stripe cannot be decoded.
            RecordValueError: If Arrow, or the requested form, cannot hold a value.
        """
        with self._reading() as opened:
            footer = self._stripe_footer(opened, index)
            self._fetch(opened, index, columns, footer)
            numbers = self._numbers(columns)
            unsafe = self._with_null_keys(columns, footer)
            found = None
            if self._needs_pyorc or unsafe:
                check_values(opened.stream, self._tail, footer, numbers)
            elif plain := plain_stripe(opened.stream, self._tail, footer, index, numbers):
                check_values(pa.BufferReader(plain.file), plain.tail, plain.footer, numbers)
                file = pa.orc.ORCFile(pa.BufferReader(plain.file))
                found = self._read_with_pyarrow(file, 0, columns, footer)
            else:
                check_values(opened.stream, self._tail, footer, numbers)
                found = self._read_with_pyarrow(opened.file, index, columns, footer)
            return self._read_with_pyorc(opened, index, columns, footer, unsafe) if found is None else found

    def _stripe_footer(self, opened: OpenFile, index: int) -> StripeFooter:
        """Return the footer of a stripe. A small stripe is fetched together with it."""
        stripe = self._tail.stripes[index]
        if opened.ranged is not None:
            is_small = stripe.end - stripe.offset <= _WHOLE_STRIPE_BYTES
            opened.ranged.fetch(
                [(stripe.offset if is_small else stripe.end - stripe.footer_length, stripe.end)]
            )
        return checked_stripe(opened.stream, self._tail, index)

    def _numbers(self, columns: Sequence[str]) -> frozenset[int]:
        return numbers_of_columns(self._tail.types, tuple(columns))

    def _with_null_keys(self, columns: Sequence[str], footer: StripeFooter) -> list[str]:
        """Return columns with maps whose keys may be NULL; pyarrow ends the process on a NULL key."""
        found = null_keys(footer, self._tail)
        return [
            name for name in columns if found and not found.isdisjoint(column_numbers(self._tail.types, name))
        ]

    def read_rows(
        self, index: int, columns: Sequence[str], positions: NDArray[np.int64], stripe_rows: int
    ) -> pa.RecordBatch:
        """Return columns of some rows of one stripe. A few rows are sought, so that not all are decoded.

        Args:
            index: 0 <= index < stripe_count.
            columns: the names of the columns, as for :meth:`read_stripe`.
            positions: the positions of the rows in the stripe, in any order.
            stripe_rows: the number of rows of the stripe, which the caller has read in part. Parsing the tail
                for it would take longer than reading a small file.

        Returns:
            One row per position, with the types of :meth:`read_stripe`.
        """
        is_worth_it = len(positions) * _ROWS_DECODED_PER_SOUGHT <= stripe_rows
        if len(positions) and is_worth_it and all(can_be_sought(self._type_of(name)) for name in columns):
            # pyorc cannot seek past strings that are all empty, and Arrow accepts any bytes as a string.
            # Reading the whole stripe then reports what is wrong with the file.
            with contextlib.suppress(*FAULTS):
                return self._sought_rows(index, columns, positions)
        rows = self.read_stripe(index, columns)
        return rows if np.array_equal(positions, np.arange(stripe_rows)) else rows.take(pa.array(positions))

    def _read_with_pyarrow(
        self, file: pa.orc.ORCFile, index: int, columns: Sequence[str], footer: StripeFooter
    ) -> pa.RecordBatch | None:
        """Return the values that pyarrow reads; None if it fails, or uses other zone offsets than Java.

        Args:
            file: the file, or a copy of its stripe.
            index: the number of the stripe in ``file``.
            columns: the names of the columns.
            footer: the footer of the stripe.
        """
        try:
            found = self._unpadded(self._decoded(file, index, columns))
        except pa.ArrowInvalid as error:
            if _OUT_OF_RANGE not in str(error):
                raise self._fault(error) from error
            self._needs_pyorc = True
            return None
        except MutationError:
            raise
        except FAULTS as error:
            raise self._fault(error) from error
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

    def stripe_rows(self, index: int) -> int:
        """Return the number of rows of one stripe."""
        return self._tail.stripes[index].row_count

    def stripe_ranges(self, columns: Mapping[str, HiveType]) -> list[dict[str, Range]]:
        """Return the ranges of columns in the stripes, as the writer recorded them.

        Args:
            columns: names of columns of the file, as for :meth:`read_stripe`, and the types that they will be
                read as.

        Returns:
            For each stripe, or only the first ones, the ranges by name. Unknown ranges are missing.

        Raises:
            CorruptFileError: If the statistics cannot be parsed.
        """
        tail = self._tail
        behind = tail.footer_length + tail.postscript_length + 1
        with self._reading() as opened:
            section = opened.last_bytes(tail.statistics_length + behind)[: tail.statistics_length]
        numbers = {column_id(self.schema, name): name for name in columns}
        # The strings of char columns are recorded with their padding.
        names = {number: name for number, name in numbers.items() if number not in tail.char_columns}
        try:
            stripes = parse_statistics(section, tail, names)
            return [self._ranges(stripe, names, columns) for stripe in stripes]
        except CorruptFileError as error:
            raise self._fault(error) from error

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

    def _fetch(self, opened: OpenFile, index: int, columns: Sequence[str], footer: StripeFooter) -> None:
        """Load the streams of a stripe's columns into memory, unless the whole stripe has been loaded."""
        stripe = self._tail.stripes[index]
        if opened.ranged is None or stripe.end - stripe.offset <= _WHOLE_STRIPE_BYTES:
            return
        wanted = self._numbers(columns)
        data_start = stripe.offset + stripe.index_length
        streams = (s for s in footer.streams if s.column in wanted and s.start >= data_start)
        ranges = [(s.start, s.stop) for s in streams]
        opened.ranged.fetch([*ranges, (stripe.end - stripe.footer_length, stripe.end)])

    @contextlib.contextmanager
    def _reading(self) -> Iterator[OpenFile]:
        """Yield the open file, and close it afterwards if too many are open. Errors of reading name it."""
        opened = self._enter()
        try:
            yield opened
        except CorruptFileError as error:
            if str(self.location) in str(error):
                raise
            raise self._fault(error) from error
        except OSError as error:
            raise self._fault(error) from error
        finally:
            self._leave()

    def _enter(self) -> OpenFile:
        if self._opened is None:
            self._opened = self._open()
            assert self._opened is not None, f"{self.location} is empty now"
        self._readings += 1
        return self._opened

    def _leave(self) -> None:
        self._readings -= 1
        if self._opened is not None and not self._readings and not self._opened.may_stay:
            self._opened.close()
            self._opened = None

    def _open(self) -> OpenFile | None:
        """Open the file. Return None if it is empty."""
        try:
            ranged, stream = self._stream()
            if stream is None:
                logger.warning("%s is empty: read as a file without rows, as Hive does", self.location)
                return None
            if self._checked is None:
                self._checked = tail_of(stream)
                stream.seek(0)
            return OpenFile(pa.orc.ORCFile(stream), stream, ranged)
        except FileNotFoundError as error:
            raise DirectoryStateError(
                f"{self.location} was removed after its directory was listed. Without a lock, Hive's "
                "cleaner may remove the files of a reader; take a new snapshot within a transaction"
            ) from error
        except (CorruptFileError, *FAULTS) as error:
            raise self._fault(error) from error

    @property
    def _tail(self) -> OrcTail:
        assert self._checked is not None, f"{self.location} was not opened"
        return self._checked

    def _stream(self) -> tuple[RangedInput | None, Any]:
        """Return the fetcher of ranges, if needed, and the file's committed bytes, if there are any."""
        stream = self._storage.open_input(self.location)
        size = int(stream.size())
        length = size if self._length is None else self._length
        if length > size:
            raise CorruptFileError(
                f"{self.location} has {size} bytes, but according to its side file {length} are committed"
            )
        if length == 0:
            stream.close()
            return None, None
        if length == size and isinstance(stream, pa.OSFile):
            return None, stream
        ranged = RangedInput(stream, length)
        with contextlib.suppress(CorruptFileError):  # decoding it will raise the error
            ranged.keep_end(tail_length(ranged.keep_end(0)))
        return ranged, pa.PythonFile(ranged, mode="r")

    def _read_with_pyorc(
        self,
        opened: OpenFile,
        index: int,
        columns: Sequence[str],
        footer: StripeFooter,
        unsafe: Sequence[str],
    ) -> pa.RecordBatch:
        names = [n for n in columns if n in unsafe or has_timestamp(self._type_of(n))]
        rest = [n for n in columns if n not in names]
        try:
            rows = list(self._pyorc_reader(opened, names, named_zone(footer.zone)).read_stripe(index))
            read = {name: self._array(rows, name) for name in names}
            parts = opened.file.read_stripe(index, columns=rest) if rest else None
            return self._unpadded(combined(parts, read))
        except MutationError:
            raise
        except UnicodeDecodeError as error:
            raise RecordValueError(f"{self.location}, columns {', '.join(names)}: {NOT_UTF8}") from error
        except FAULTS as error:
            raise self._fault(error) from error

    def _unpadded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows without padding in the values of char columns."""
        chars = self._tail.char_columns
        if not chars or not any(map(may_be_padded, batch.columns)):
            return batch
        columns = [
            without_padding(array, self.schema.field(name).type, column_id(self.schema, name), chars)
            for name, array in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def _sought_rows(
        self, index: int, columns: Sequence[str], positions: NDArray[np.int64]
    ) -> pa.RecordBatch:
        ascending, at = np.unique(positions, return_inverse=True)
        with self._reading() as opened:
            footer = self._stripe_footer(opened, index)
            self._fetch(opened, index, columns, footer)
            check_values(opened.stream, self._tail, footer, self._numbers(columns))
            stripe = self._pyorc_reader(opened, columns, named_zone(footer.zone), batch_size=1).read_stripe(
                index
            )
            rows = []
            for position in ascending.tolist():
                stripe.seek(position)
                rows.append(next(stripe))
        found = combined(None, {name: self._array(rows, name) for name in columns})
        return self._unpadded(found.take(pa.array(at)))

    def _pyorc_reader(
        self, opened: OpenFile, names: Sequence[str], zone: zoneinfo.ZoneInfo | None, batch_size: int = 1024
    ) -> pyorc.Reader:
        """Return a reader of the rows of stripes whose writer was in this time zone."""
        source: Any = opened.ranged or self._stream()[1]
        return pyorc.Reader(
            source,
            batch_size=batch_size,
            column_names=names,
            timezone=zone or zoneinfo.ZoneInfo("UTC"),  # the writer's: ORC returns instants unchanged
            struct_repr=pyorc.StructRepr.DICT,
            converters=converters(self._options, zone, self.is_proleptic),
        )

    def _array(self, rows: Sequence[Mapping[str, Any]], name: str) -> pa.Array:
        target = replace_timestamps(self._type_of(name), self._options.timestamp_form.arrow)
        outer, _, inner = name.partition(".")
        values = (row[outer] for row in rows)
        if inner:
            values = (None if value is None else value[inner] for value in values)
        try:
            return pa.array([plain_value(value, target) for value in values], type=target)
        except RecordValueError as error:
            raise RecordValueError(
                f"{self.location}, column {name!r}: {error}. Do not read the column, or let Hive write "
                "these rows again with other keys"
            ) from error
        except (OverflowError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise RecordValueError(
                f"{self.location}, column {name!r}: a timestamp does not fit "
                f"{self._options.timestamp_form.name.lower()} ({error})"
            ) from error

    def _type_of(self, name: str) -> pa.DataType:
        outer, _, inner = name.partition(".")
        data_type = self.schema.field(outer).type
        return data_type.field(inner).type if inner else data_type

    def _fault(self, error: Exception) -> ReadError:
        """Return the error to raise: an error of the file, or of this machine if the file may be intact."""
        zone = missing_zone(error)
        if zone is not None:
            return ReadError(
                f"{self.location}: this machine does not have {zone!r}, the time zone in which the file "
                "was written, and neither does the package tzdata. Install the newest tzdata, or set "
                "TZDIR to a directory that has it"
            )
        return fault_of(error, self.location)
