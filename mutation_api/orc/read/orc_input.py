"""OrcInput: one ORC file, read stripe by stripe as Arrow.

A stripe may be decoded as a whole, or some of its row groups alone. :mod:`.stripe_decoder` decodes them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
from numpy.typing import NDArray

from mutation_api.errors import CorruptFileError, DirectoryStateError, MutationError
from mutation_api.format.hive_type import HiveType
from mutation_api.orc.format.bloom_filters import HASHED_KINDS, BloomFilter, parse_bloom_filters
from mutation_api.orc.format.checked_file import FAULTS, check_values, checked_stripe, null_keys
from mutation_api.orc.format.plain_stripe import PlainStripes, plain_stripe
from mutation_api.orc.format.protobuf import STREAM_KIND_BLOOM_FILTER_UTF8, STREAM_KIND_ROW_INDEX
from mutation_api.orc.format.row_groups import (
    RowGroups,
    plain_groups,
    ranges_of_groups,
)
from mutation_api.orc.format.stored_values import Range, column_id, column_type_in, comparable_range
from mutation_api.orc.format.stripe_sections import (
    IndexEntry,
    Stream,
    StripeFooter,
    parse_row_index,
    parse_statistics,
)
from mutation_api.orc.format.tail import OrcTail
from mutation_api.orc.format.time_zones import find_zones
from mutation_api.orc.format.type_tree import column_numbers, numbers_of_columns
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.open_files import (
    SMALL_FILES,
    OpenFile,
    ParsedFile,
    open_file,
    open_stream,
    with_columns,
)
from mutation_api.orc.read.stripe_decoder import StripeDecoder, decoding_fault
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Storage

logger = logging.getLogger(__name__)

_Ranged = Mapping[int, tuple[str, pa.DataType, HiveType]]
"""Columns by number: their names, their types in the file, and the types that they will be read as."""

_WHOLE_STRIPE_BYTES = 1024 * 1024
"""A stripe up to this size is fetched as a whole, in one request instead of two or three."""


@dataclass(frozen=True)
class _Known:
    """The footer of one stripe, and the parts of its row index that were read, as in the file and parsed."""

    index: int
    footer: StripeFooter
    sections: dict[int, bytes] = field(default_factory=dict)
    entries: dict[int, tuple[IndexEntry, ...]] = field(default_factory=dict)


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
        self._parsed: ParsedFile | None = None
        self._last: _Known | None = None
        self.is_proleptic = options.is_proleptic
        find_zones()
        self._opened = self._open()
        self._readings = 1
        parsed = self._parsed
        self.schema: pa.Schema = pa.schema([]) if parsed is None else parsed.schema
        self.stripe_count = 0 if parsed is None else len(parsed.tail.stripes)
        if parsed is not None and parsed.tail.has_moments:
            marked = parsed.tail.is_proleptic
            self.is_proleptic = self.is_proleptic if marked is None else marked
        self._form = dataclasses.replace(options, is_proleptic=self.is_proleptic)
        chars = frozenset[int]() if parsed is None else parsed.tail.char_columns
        self._decoder = StripeDecoder(location, self.schema, chars, self._form)
        self._leave()

    def read_stripe(
        self, index: int, columns: Sequence[str], groups: NDArray[np.int64] | None = None
    ) -> pa.RecordBatch:
        """Return columns of one stripe.

        Args:
            index: 0 <= index < stripe_count.
            columns: the names of the columns. ``row.x`` is field ``x`` of struct ``row``.
            groups: the row groups to return, ascending. If None, all.

        Returns:
            The stripe's rows, with timestamps in nanoseconds or, if those cannot hold them, in the requested
            form.

        Raises:
            CorruptFileError: If the stripe cannot be decoded.
            RecordValueError: If Arrow, or the requested form, cannot hold a value.
        """
        if groups is not None:
            rows = self._read_groups(index, columns, groups) if len(groups) else None
            if rows is not None:
                return rows
            return self.read_stripe(index, columns).take(pa.array(self.row_groups(index).positions(groups)))
        kept = self._selected(index, tuple(columns))
        return self._read_stripe(index, columns) if kept is None else kept

    def _selected(self, index: int, columns: tuple[str, ...]) -> pa.RecordBatch | None:
        """Return columns of a stripe of a small file, all of whose columns are decoded once.

        None if the file is not kept, or a column cannot be decoded, which may not be a requested one.
        """
        parsed = self._parsed
        if parsed is None or not parsed.is_kept:
            return None
        found = parsed.selections.get((index, self._form, columns))
        if found is None:
            with contextlib.suppress(MutationError):
                whole = parsed.stripes.get((index, self._form))
                if whole is None:
                    whole = self._read_stripe(index, self.schema.names)
                    SMALL_FILES.keep(parsed, (index, self._form), whole)
                found = parsed.selections[index, self._form, columns] = with_columns(whole, columns)
        return found

    def _read_stripe(self, index: int, columns: Sequence[str]) -> pa.RecordBatch:
        with self._reading() as opened:
            footer = self._stripe_footer(opened, index)
            self._fetch(opened, index, columns, footer)
            numbers, unsafe = self._numbers(columns), self._with_null_keys(columns, footer)
            plain = plain_stripe(opened.stream, self._tail, footer, index, numbers)
            if plain is not None:
                return self._decoded_copy(plain, columns, unsafe)[0]
            check_values(opened.stream, self._tail, footer, numbers)

            def source() -> Any:
                if opened.content is not None:
                    return pa.BufferReader(opened.content)
                return opened.ranged or open_stream(self._storage, self.location, self._length)

            return self._decoder.decode(opened.file, source, [index], columns, footer, unsafe)[0]

    def _decoded_copy(
        self, copy: PlainStripes, columns: Sequence[str], unsafe: Sequence[str] = ()
    ) -> list[pa.RecordBatch]:
        """Return columns of a copy of a stripe, or of parts of it."""
        for footer in copy.footers:
            check_values(pa.BufferReader(copy.file), copy.tail, footer, self._numbers(columns))
        file, indices = pa.orc.ORCFile(pa.BufferReader(copy.file)), range(len(copy.footers))

        def source() -> Any:
            return pa.BufferReader(copy.file)

        return self._decoder.decode(file, source, indices, columns, copy.footers[0], unsafe)

    def _stripe_footer(self, opened: OpenFile, index: int) -> StripeFooter:
        """Return the footer of a stripe. A small stripe is fetched together with it."""
        stripe = self._tail.stripes[index]
        is_small = stripe.end - stripe.offset <= _WHOLE_STRIPE_BYTES
        is_known = self._last is not None and self._last.index == index
        if opened.ranged is not None and (is_small or not is_known):
            start = stripe.offset if is_small else stripe.end - stripe.footer_length
            opened.ranged.fetch([(start, stripe.end)])
        if self._last is None or not is_known:
            self._last = _Known(index, checked_stripe(opened.stream, self._tail, index))
        return self._last.footer

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
        """Return columns of some rows of one stripe. If possible, only the row groups of these are decoded.

        Args:
            index: 0 <= index < stripe_count.
            columns: the names of the columns, as for :meth:`read_stripe`.
            positions: the positions of the rows in the stripe, in any order.
            stripe_rows: the number of rows of the stripe, which the caller has read in part. Parsing the tail
                for it would take longer than reading a small file.

        Returns:
            One row per position, with the types of :meth:`read_stripe`.
        """
        if len(positions) == stripe_rows and np.array_equal(positions, np.arange(stripe_rows)):
            return self.read_stripe(index, columns)
        groups = self.row_groups(index)
        found = groups.holding(positions)
        if groups.are_few(found):
            rows = self.read_stripe(index, columns, found)
            return rows.take(pa.array(groups.places(found, positions)))
        return self.read_stripe(index, columns).take(pa.array(positions))

    def row_groups(self, index: int) -> RowGroups:
        """Return the row groups of one stripe."""
        return RowGroups.of(self._tail.stripes[index].row_count, self._tail.stride)

    def group_ranges(self, index: int, columns: Mapping[str, HiveType]) -> list[dict[str, Range]]:
        """Return the ranges of columns in the row groups of a stripe; see :meth:`stripe_ranges`.

        Returns an empty list if none of them is known.
        """
        known = self._ranged(columns)
        with self._reading() as opened:
            entries = self._row_index(opened, index, self._stripe_footer(opened, index), known)
            groups = range(self.row_groups(index).count if entries else 0)
            found = [{number: own[group].statistics for number, own in entries.items()} for group in groups]
            return [_ranges(each, known) for each in found]

    def bloom_filters(self, index: int, column: str, hive_type: HiveType) -> list[BloomFilter]:
        """Return the Bloom filters of a column in the row groups of a stripe.

        Args:
            index: the number of the stripe.
            column: the name of the column, as for :meth:`read_stripe`.
            hive_type: the type that it will be read as.

        Returns:
            One filter for each group. Nothing if there are none, or if such values are not looked up.

        Raises:
            CorruptFileError: If the filters cannot be parsed.
        """
        number = column_id(self.schema, column)
        if self._tail.nodes[number].kind not in HASHED_KINDS.get(hive_type.kind, ()):
            return []
        with self._reading() as opened:
            footer = self._stripe_footer(opened, index)
            streams = [
                s for s in footer.streams if (s.kind, s.column) == (STREAM_KIND_BLOOM_FILTER_UTF8, number)
            ]
            sections = self._sections(opened, index, streams) if streams else {}
            found = parse_bloom_filters(sections[number], self._tail) if sections else []
        return found if len(found) == self.row_groups(index).count else []

    def _read_groups(
        self, index: int, columns: Sequence[str], groups: NDArray[np.int64]
    ) -> pa.RecordBatch | None:
        """Return columns of some row groups of one stripe; None if they cannot be read without the others."""
        with self._reading() as opened:
            footer = self._stripe_footer(opened, index)
            entries = self._row_index(opened, index, footer, self._numbers(columns))
            if not entries:
                return None
            spans, stripe = RowGroups.spans(groups), self._tail.stripes[index]
            self._load(opened, index, ranges_of_groups(self._tail, footer, entries, spans))
            plain = plain_groups(opened.stream, self._tail, footer, stripe, entries, spans)
            if plain is None:
                return None
            copy, extra_rows = plain
            parts = self._decoded_copy(copy, columns)
        own = [part.slice(extra) for part, extra in zip(parts, extra_rows, strict=True)]
        return own[0] if len(own) == 1 else pa.concat_batches(own)

    def _row_index(
        self, opened: OpenFile, index: int, footer: StripeFooter, columns: Collection[int]
    ) -> dict[int, tuple[IndexEntry, ...]]:
        """Return the row index of some columns of a stripe; nothing if it has one group, or no such index."""
        count = self.row_groups(index).count
        streams = [s for s in footer.streams if s.kind == STREAM_KIND_ROW_INDEX]
        assert self._last is not None, "the footer was read before"
        sections, entries = self._last.sections, self._last.entries
        if count < 2 or not {stream.column for stream in streams}.issuperset(columns):
            return {}
        if not sections.keys() >= set(columns):
            if opened.ranged is None:
                streams = [stream for stream in streams if stream.column in columns]
            sections.update(self._sections(opened, index, streams))
        for column in columns:
            if column not in entries:
                entries[column] = parse_row_index(sections[column], self._tail)
        found = {column: entries[column] for column in columns}
        return found if all(len(own) == count for own in found.values()) else {}

    def _sections(self, opened: OpenFile, index: int, streams: Sequence[Stream]) -> dict[int, bytes]:
        """Return streams of a stripe's index as in the file, by column."""
        self._load(opened, index, ((stream.start, stream.stop) for stream in streams))
        found = {}
        for stream in streams:
            opened.stream.seek(stream.start)
            found[stream.column] = opened.stream.read(stream.stop - stream.start)
        return found

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
        known = self._ranged(columns)
        try:
            stripes = parse_statistics(section, tail, known)
            return [_ranges(stripe, known) for stripe in stripes]
        except CorruptFileError as error:
            raise decoding_fault(error, self.location) from error

    def _ranged(self, columns: Mapping[str, HiveType]) -> _Ranged:
        """Return the columns whose ranges can be used."""
        numbers = {column_id(self.schema, name): name for name in columns}
        # The strings of char columns are recorded with their padding.
        return {
            number: (name, column_type_in(self.schema, name), columns[name])
            for number, name in numbers.items()
            if number not in self._tail.char_columns
        }

    def _fetch(self, opened: OpenFile, index: int, columns: Sequence[str], footer: StripeFooter) -> None:
        """Load the streams of a stripe's columns."""
        stripe = self._tail.stripes[index]
        wanted = self._numbers(columns)
        data_start = stripe.offset + stripe.index_length
        streams = (s for s in footer.streams if s.column in wanted and s.start >= data_start)
        ranges = ((s.start, s.stop) for s in streams)
        self._load(opened, index, [*ranges, (stripe.end - stripe.footer_length, stripe.end)])

    def _load(self, opened: OpenFile, index: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Load parts of a stripe into memory, unless the file is local or the whole stripe was loaded."""
        stripe = self._tail.stripes[index]
        if opened.ranged is not None and stripe.end - stripe.offset > _WHOLE_STRIPE_BYTES:
            opened.ranged.fetch(ranges)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[OpenFile]:
        """Yield the open file, and close it afterwards if too many are open. Errors of reading name it."""
        opened = self._enter()
        try:
            yield opened
        except CorruptFileError as error:
            if str(self.location) in str(error):
                raise
            raise decoding_fault(error, self.location) from error
        except OSError as error:
            raise decoding_fault(error, self.location) from error
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
            opened = open_file(self._storage, self.location, self._length)
            if opened is None:
                logger.warning("%s is empty: read as a file without rows, as Hive does", self.location)
            elif self._parsed is None:
                self._parsed = SMALL_FILES.parsed(opened)
            elif opened.content is None:
                _ = opened.file  # a file that cannot be opened again is reported here
        except FileNotFoundError as error:
            raise DirectoryStateError(
                f"{self.location} was removed after its directory was listed. Without a lock, Hive's "
                "cleaner may remove the files of a reader; take a new snapshot within a transaction"
            ) from error
        except (CorruptFileError, *FAULTS) as error:
            raise decoding_fault(error, self.location) from error
        return opened

    @property
    def _tail(self) -> OrcTail:
        assert self._parsed is not None, f"{self.location} was not opened"
        return self._parsed.tail


def _ranges(statistics: Mapping[int, bytes], columns: _Ranged) -> dict[str, Range]:
    """Return the known ranges by name, given recorded statistics by column."""
    ranges = {}
    for number, text in statistics.items():
        name, stored, hive_type = columns[number]
        known = comparable_range(text, stored, hive_type)
        if known is not None:
            ranges[name] = known
    return ranges
