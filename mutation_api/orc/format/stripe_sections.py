"""Sections of an ORC file about each stripe: statistics of its columns, and positions of its streams.

The tail says where both sections lie. :mod:`.stripe_ranges` interprets the statistics.

Source: orc_proto.proto and the ORC v1 specification (stripe statistics, stripe footer).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.compression import DAMAGE, unpacked
from mutation_api.orc.format.orc_proto import (
    STREAM_COLUMN,
    STREAM_LENGTH,
    STRIPE_STREAM,
    STRIPE_WRITER_ZONE,
)
from mutation_api.orc.format.protobuf import as_bytes, as_number, fields_of
from mutation_api.orc.format.tail import OrcTail, StripeInfo

__all__ = ["parse_statistics", "parse_streams", "writer_zone"]

_STATISTICS_STRIPE = 1
_STATISTICS_COLUMN = 1


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
        stripes = [as_bytes(value) for field, value in fields_of(plain) if field == _STATISTICS_STRIPE]
        return [dict(_statistics_of(stripe, columns)) for stripe in stripes]
    except DAMAGE as error:
        raise CorruptFileError(f"the statistics of ORC stripes cannot be parsed: {error}") from error


def parse_streams(section: bytes, tail: OrcTail, stripe: StripeInfo) -> list[tuple[int, int, int]]:
    """Data streams of a stripe, in their order: the column's number in the tree of types, start, stop.

    Args:
        section: the ``footer_length`` bytes at the end of the stripe.
        tail: of the same file.
        stripe: the stripe.

    Raises:
        CorruptFileError: the bytes are not the footer of a stripe.
    """
    try:
        plain = unpacked(section, tail.compression, tail.block_bytes)
        found = [as_bytes(value) for field, value in fields_of(plain) if field == STRIPE_STREAM]
        streams = [dict(fields_of(stream)) for stream in found]
        lengths = [as_number(stream.get(STREAM_LENGTH, 0)) for stream in streams]
        columns = [as_number(stream.get(STREAM_COLUMN, 0)) for stream in streams]
    except DAMAGE as error:
        raise CorruptFileError(f"the footer of an ORC stripe cannot be parsed: {error}") from error
    stops = [stripe.offset + stop for stop in itertools.accumulate(lengths)]
    starts = [stop - length for stop, length in zip(stops, lengths, strict=True)]
    data_start = stripe.offset + stripe.index_length
    return [each for each in zip(columns, starts, stops, strict=True) if each[1] >= data_start]


def writer_zone(section: bytes, tail: OrcTail) -> str:
    """Time zone of the writer of a stripe; empty if it has none.

    Args:
        section: the ``footer_length`` bytes at the end of the stripe.
        tail: of the same file.

    Raises:
        CorruptFileError: the bytes are not the footer of a stripe.
    """
    try:
        plain = unpacked(section, tail.compression, tail.block_bytes)
        zones = [as_bytes(value) for field, value in fields_of(plain) if field == STRIPE_WRITER_ZONE]
        return zones[-1].decode() if zones else ""
    except DAMAGE as error:
        raise CorruptFileError(f"the footer of an ORC stripe cannot be parsed: {error}") from error


def _statistics_of(stripe: bytes, columns: Collection[int]) -> Iterator[tuple[int, bytes]]:
    found = (value for field, value in fields_of(stripe) if field == _STATISTICS_COLUMN)
    for number, value in enumerate(found):
        if number in columns:
            yield number, as_bytes(value)
