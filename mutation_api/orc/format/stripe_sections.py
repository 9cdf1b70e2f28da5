"""Sections of an ORC file about each stripe: statistics of its columns, and positions of its streams.

The tail says where both sections lie. :mod:`.stripe_ranges` interprets the statistics.

Source: orc_proto.proto and the ORC v1 specification (stripe statistics, stripe footer).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator
from typing import NamedTuple

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.compression import DAMAGE, unpacked
from mutation_api.orc.format.orc_proto import (
    STREAM_COLUMN,
    STREAM_KIND,
    STREAM_LENGTH,
    STRIPE_STREAM,
    STRIPE_WRITER_ZONE,
)
from mutation_api.orc.format.protobuf import as_bytes, as_number, fields_of
from mutation_api.orc.format.tail import OrcTail, StripeInfo
from mutation_api.orc.format.time_zones import is_zone_name

__all__ = ["Encoding", "Stream", "StripeFooter", "parse_statistics", "parse_stripe_footer"]

_STATISTICS_STRIPE = 1
_STATISTICS_COLUMN = 1
_STRIPE_ENCODING = 2
_ENCODING_KIND, _DICTIONARY_SIZE = 1, 2
_DIRECT_V2 = 2
_STREAM_KINDS = 16
"""More than ORC has."""


class Stream(NamedTuple):
    """One stream: the code of its kind, its column in the tree of types, and where it lies in the file."""

    kind: int
    column: int
    start: int
    stop: int


class Encoding(NamedTuple):
    """Code of an encoding, and number of texts in the dictionary, 0 without one."""

    kind: int
    dictionary_size: int

    @property
    def has_runs_of_version_2(self) -> bool:
        """Whether integers are in runs of version 2."""
        return self.kind >= _DIRECT_V2


class StripeFooter(NamedTuple):
    """What the footer of a stripe says.

    Attributes:
        streams: in the order in which they lie in the stripe.
        encodings: of each column.
        zone: time zone of the writer; empty if it has none.
    """

    streams: tuple[Stream, ...]
    encodings: tuple[Encoding, ...]
    zone: str


def parse_statistics(section: bytes, tail: OrcTail, columns: Collection[int]) -> list[dict[int, bytes]]:
    """Statistics of some columns in each stripe.

    Args:
        section: the ``statistics_length`` bytes before the footer.
        tail: of the same file.
        columns: numbers of columns in the tree of types, in pre-order from the root, which is 0.

    Returns:
        For each stripe (fewer if the writer kept them for some only) the serialised ColumnStatistics by
        column, without columns that the file does not have.

    Raises:
        CorruptFileError: the bytes are not such a section.
    """
    try:
        plain = unpacked(section, tail.compression, tail.block_bytes)
        stripes = (as_bytes(value) for field, value in fields_of(plain) if field == _STATISTICS_STRIPE)
        found = list(itertools.islice(stripes, len(tail.stripes) + 1))
        if len(found) > len(tail.stripes):
            raise ValueError(f"statistics of more than the {len(tail.stripes)} stripes")
        return [dict(_statistics_of(stripe, columns, len(tail.types))) for stripe in found]
    except DAMAGE as error:
        raise CorruptFileError(f"the statistics of ORC stripes cannot be parsed: {error}") from error


def parse_stripe_footer(section: bytes, tail: OrcTail, stripe: StripeInfo) -> StripeFooter:
    """The footer of a stripe, whose numbers fit the stripe.

    Args:
        section: the ``footer_length`` bytes at the end of the stripe.
        tail: of the same file.
        stripe: the stripe.

    Raises:
        CorruptFileError: the bytes are not the footer of a stripe; a stream is of no column of the file, or
            ends behind the stripe's data; a zone has no name of one.
    """
    try:
        return _stripe_footer(unpacked(section, tail.compression, tail.block_bytes), tail, stripe)
    except DAMAGE as error:
        raise CorruptFileError(f"the footer of an ORC stripe cannot be parsed: {error}") from error


def _stripe_footer(message: bytes, tail: OrcTail, stripe: StripeInfo) -> StripeFooter:
    end, stop = stripe.offset, stripe.end - stripe.footer_length
    column_count = len(tail.types)
    streams: list[Stream] = []
    encodings: list[Encoding] = []
    zone = ""
    for field, value in fields_of(message):
        if field == STRIPE_STREAM:
            kind, column, length = _stream(as_bytes(value))
            start, end = end, end + length
            if end > stop or column >= column_count or len(streams) > column_count * _STREAM_KINDS:
                raise ValueError(
                    f"stream {len(streams)} of column {column} ends at byte {end}; the stripe's data end at "
                    f"{stop}, and the file has {column_count} columns"
                )
            streams.append(Stream(kind, column, start, end))
        elif field == _STRIPE_ENCODING:
            encodings.append(_encoding(as_bytes(value)))
            if len(encodings) > column_count:
                raise ValueError(f"more encodings than the {column_count} columns of the file")
        elif field == STRIPE_WRITER_ZONE:
            zone = as_bytes(value).decode()
            if not is_zone_name(zone):
                raise ValueError(f"{zone[:80]!r} is no name of a time zone")
    return StripeFooter(tuple(streams), tuple(encodings), zone)


@functools.lru_cache(maxsize=4096)
def _stream(message: bytes) -> tuple[int, int, int]:
    """Kind, column and length. Small files have the same streams, so most are known."""
    found = {number: as_number(each) for number, each in fields_of(message)}
    return found.get(STREAM_KIND, 0), found.get(STREAM_COLUMN, 0), found.get(STREAM_LENGTH, 0)


@functools.lru_cache(maxsize=1024)
def _encoding(message: bytes) -> Encoding:
    found = dict(fields_of(message))
    return Encoding(as_number(found.get(_ENCODING_KIND, 0)), as_number(found.get(_DICTIONARY_SIZE, 0)))


def _statistics_of(stripe: bytes, columns: Collection[int], column_count: int) -> Iterator[tuple[int, bytes]]:
    found = (value for field, value in fields_of(stripe) if field == _STATISTICS_COLUMN)
    for number, value in enumerate(found):
        if number >= column_count:
            raise ValueError(f"statistics of more than the {column_count} columns")
        if number in columns:
            yield number, as_bytes(value)
