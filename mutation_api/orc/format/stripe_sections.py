"""The sections of an ORC file about each stripe: column statistics, positions of streams, row index.

:mod:`.stored_values` interprets the statistics, and :mod:`.row_groups` the row index.

Source: orc_proto.proto and the ORC v1 specification (stripe statistics, stripe footer, row index).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.compression import DAMAGE, Compression, unpacked
from mutation_api.orc.format.protobuf import (
    STREAM_COLUMN,
    STREAM_KIND,
    STREAM_KIND_BLOOM_FILTER_UTF8,
    STREAM_KIND_ROW_INDEX,
    STREAM_LENGTH,
    STRIPE_ENCODING,
    STRIPE_STREAM,
    STRIPE_WRITER_ZONE,
    as_bytes,
    as_number,
    cached_if_small,
    fields_of,
    number_field,
    numbers_in,
)
from mutation_api.orc.format.tail import OrcTail, StripeInfo
from mutation_api.orc.format.time_zones import is_zone_name
from mutation_api.orc.format.type_tree import type_nodes

_STATISTICS_STRIPE = 1
_STATISTICS_COLUMN = 1
_ENCODING_KIND, _DICTIONARY_SIZE = 1, 2
_INDEX_ENTRY, _ENTRY_POSITIONS, _ENTRY_STATISTICS = 1, 1, 2
_DIRECT_V2 = 2
_DICTIONARIES = (1, 3)
_SMALL_BYTES = 4096
_SMALL_SECTION_BYTES = 16 * 1024
_LAST_KIND = STREAM_KIND_BLOOM_FILTER_UTF8
"""The last kind of stream. Streams of kinds below the row index contain values; the others belong to the
index."""
_ENCODINGS = {
    **dict.fromkeys((2, 3, 4, 8, 9, 10, 11, 14, 15, 18), (0, 2)),
    **dict.fromkeys((7, 16, 17), (0, 1, 2, 3)),
}
"""The allowed encodings, by the kind of a column. For other kinds, only 0 is allowed."""


class Stream(NamedTuple):
    """One stream: the code of its kind, its column in the tree of types, and its position in the file."""

    kind: int
    column: int
    start: int
    stop: int


class Encoding(NamedTuple):
    """The code of an encoding, and the number of strings in its dictionary; 0 if it does not have one."""

    kind: int
    dictionary_size: int

    @property
    def has_runs_of_version_2(self) -> bool:
        """True if integers are in runs of version 2."""
        return self.kind >= _DIRECT_V2

    @property
    def has_dictionary(self) -> bool:
        """True if strings are in a dictionary."""
        return self.kind in _DICTIONARIES

    @property
    def message(self) -> bytes:
        """The serialised encoding."""
        return number_field(_ENCODING_KIND, self.kind) + number_field(_DICTIONARY_SIZE, self.dictionary_size)


class StripeFooter(NamedTuple):
    """The contents of a stripe's footer.

    Attributes:
        streams: the streams, in the order in which they lie in the stripe.
        encodings: the encoding of each column.
        zone: the time zone of the writer; '' if there is none.
    """

    streams: tuple[Stream, ...]
    encodings: tuple[Encoding, ...]
    zone: str


class IndexEntry:
    """The entry of one group in the row index of a column.

    Args:
        message: the serialised entry, which is parsed when it is used.
    """

    def __init__(self, message: bytes) -> None:
        self._message = message

    @functools.cached_property
    def positions(self) -> tuple[int, ...]:
        """The numbers that form the positions in all streams. Damaged bytes raise various errors."""
        found = (value for field, value in fields_of(self._message) if field == _ENTRY_POSITIONS)
        parts = (numbers_in(value) if isinstance(value, bytes) else [value] for value in found)
        return tuple(itertools.chain.from_iterable(parts))

    @functools.cached_property
    def statistics(self) -> bytes:
        """The serialised statistics. Damaged bytes raise various errors."""
        return as_bytes(dict(fields_of(self._message)).get(_ENTRY_STATISTICS, b""))


def parse_statistics(section: bytes, tail: OrcTail, columns: Collection[int]) -> list[Mapping[int, bytes]]:
    """Return the statistics of some columns in each stripe.

    Args:
        section: the ``statistics_length`` bytes before the footer.
        tail: the tail of the same file.
        columns: numbers of columns in the tree of types, in pre-order from the root, which is 0.

    Returns:
        For each stripe (fewer if the writer kept statistics only for some) the serialised ColumnStatistics by
        column, without columns that the file does not have.

    Raises:
        CorruptFileError: If the bytes are not such a section.
    """
    try:
        how = tail.compression, tail.block_bytes
        return [*_statistics(section, *how, len(tail.stripes), len(tail.types), frozenset(columns))]
    except DAMAGE as error:
        raise CorruptFileError(f"the statistics of ORC stripes cannot be parsed: {error}") from error


@cached_if_small(_SMALL_SECTION_BYTES, 256)
def _statistics(
    section: bytes,
    compression: Compression,
    block_bytes: int,
    stripe_count: int,
    column_count: int,
    columns: frozenset[int],
) -> tuple[Mapping[int, bytes], ...]:
    plain = unpacked(section, compression, block_bytes)
    stripes = (as_bytes(value) for field, value in fields_of(plain) if field == _STATISTICS_STRIPE)
    found = list(itertools.islice(stripes, stripe_count + 1))
    if len(found) > stripe_count:
        raise ValueError(f"there are statistics for more than the {stripe_count} stripes")
    return tuple(dict(_statistics_of(stripe, columns, column_count)) for stripe in found)


def parse_stripe_footer(section: bytes, tail: OrcTail, stripe: StripeInfo) -> StripeFooter:
    """Return the footer of a stripe after checking that it fits the stripe and its columns.

    Decoders rely on the kinds of streams and encodings alone, and ORC's C++ library treats an unknown kind as
    the first one.

    Args:
        section: the ``footer_length`` bytes at the end of the stripe.
        tail: the tail of the same file.
        stripe: the stripe.

    Raises:
        CorruptFileError: If the bytes are not the footer of a stripe. If a stream belongs to a column that
            the file does not have, is of a kind that ORC does not have, or occurs twice. If streams have more
            or fewer bytes than the stripe. If a column has no encoding, or one that its type does not allow.
            If the writer's time zone is not a zone name.

    Source: orc_proto.proto, StreamName and checkEncoding of ORC's TreeReaderFactory.
    """
    try:
        message = unpacked(section, tail.compression, tail.block_bytes)
        return _stripe_footer(message, tail.types, stripe)
    except DAMAGE as error:
        raise CorruptFileError(f"the footer of an ORC stripe cannot be parsed: {error}") from error


@cached_if_small(_SMALL_BYTES, 1024)
def _stripe_footer(message: bytes, types: tuple[bytes, ...], stripe: StripeInfo) -> StripeFooter:
    end, stop = stripe.offset, stripe.end - stripe.footer_length
    column_count = len(types)
    streams: list[Stream] = []
    heads: list[tuple[int, int]] = []
    encodings: list[Encoding] = []
    zone, index_length = "", 0
    for field, value in fields_of(message):
        if field == STRIPE_STREAM:
            (kind, column), length = head, length = _stream(as_bytes(value))
            start, end = end, end + length
            if end > stop or column >= column_count or kind > _LAST_KIND:
                raise ValueError(
                    f"stream {len(streams)} of kind {kind} and column {column} ends at byte {end}; the "
                    f"stripe's data end at {stop}, the last kind is {_LAST_KIND}, and the file has "
                    f"{column_count} columns"
                )
            if kind >= STREAM_KIND_ROW_INDEX:
                index_length += length
            heads.append(head)
            streams.append(Stream(kind, column, start, end))
        elif field == STRIPE_ENCODING:
            encodings.append(_encoding(as_bytes(value)))
            if len(encodings) > column_count:
                raise ValueError(f"there are more encodings than the {column_count} columns of the file")
        elif field == STRIPE_WRITER_ZONE:
            zone = as_bytes(value).decode()
            if not is_zone_name(zone):
                raise ValueError(f"{zone[:80]!r} is not the name of a time zone")
    if end != stop or index_length != stripe.index_length:
        raise ValueError(
            f"the streams have {end - stripe.offset} bytes, {index_length} of them in the index; the "
            f"stripe has {stop - stripe.offset} and {stripe.index_length}"
        )
    fault = _fault(types, tuple(heads), tuple(encodings))
    if fault:
        raise ValueError(fault)
    return StripeFooter(tuple(streams), tuple(encodings), zone)


@functools.lru_cache(maxsize=256)
def _fault(
    types: tuple[bytes, ...], streams: tuple[tuple[int, int], ...], encodings: tuple[Encoding, ...]
) -> str:
    """Return the reason why a stripe cannot have such streams (kind and column of each) and encodings.

    '' if it can.
    """
    if len(set(streams)) < len(streams):
        kind, column = next(each for each in streams if streams.count(each) > 1)
        return f"there are several streams of kind {kind} and column {column}"
    nodes = type_nodes(types)
    if len(encodings) != len(nodes):
        return f"there are {len(encodings)} encodings for {len(nodes)} columns"
    for column, (encoding, node) in enumerate(zip(encodings, nodes, strict=True)):
        allowed = _ENCODINGS.get(node.kind, (0,))
        if encoding.kind not in allowed:
            names = ", ".join(map(str, allowed))
            return f"column {column} has encoding {encoding.kind}; its type allows {names}"
    return ""


@functools.lru_cache(maxsize=4096)
def _stream(message: bytes) -> tuple[tuple[int, int], int]:
    """Return kind and column, and the length. Small files have the same streams, so most are cached."""
    found = {number: as_number(each) for number, each in fields_of(message)}
    return (found.get(STREAM_KIND, 0), found.get(STREAM_COLUMN, 0)), found.get(STREAM_LENGTH, 0)


@functools.lru_cache(maxsize=1024)
def _encoding(message: bytes) -> Encoding:
    found = dict(fields_of(message))
    return Encoding(as_number(found.get(_ENCODING_KIND, 0)), as_number(found.get(_DICTIONARY_SIZE, 0)))


def _statistics_of(stripe: bytes, columns: Collection[int], column_count: int) -> Iterator[tuple[int, bytes]]:
    found = (value for field, value in fields_of(stripe) if field == _STATISTICS_COLUMN)
    for number, value in enumerate(found):
        if number >= column_count:
            raise ValueError(f"there are statistics for more than the {column_count} columns")
        if number in columns:
            yield number, as_bytes(value)


def parse_row_index(section: bytes, tail: OrcTail) -> tuple[IndexEntry, ...]:
    """Return the entries of a column's row index.

    Args:
        section: the stream of the row index, as in the file.
        tail: the file's tail.

    Raises:
        CorruptFileError: If the bytes are not a row index.
    """
    try:
        return _row_index(section, tail.compression, tail.block_bytes)
    except DAMAGE as error:
        raise CorruptFileError(f"the index of an ORC stripe cannot be parsed: {error}") from error


@cached_if_small(_SMALL_SECTION_BYTES, 512)
def _row_index(section: bytes, compression: Compression, block_bytes: int) -> tuple[IndexEntry, ...]:
    index = unpacked(section, compression, block_bytes)
    return tuple(IndexEntry(as_bytes(entry)) for field, entry in fields_of(index) if field == _INDEX_ENTRY)
