"""Row indexes of an ORC file's columns, and the keys of the rows at which an encoder may end a stripe. Pure.

An index describes streams that became chunks. It contains the start of each row group: for every stream of
its column a byte, followed by numbers (the value within a run, the bit within a byte). In a compressed
stream, the byte is replaced by the chunk's position and a byte within the chunk's content.

Source: the ORC v1 specification (row index: positions of each kind of stream), orc_proto.proto.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyorc
from numpy.typing import NDArray

from mutation_api.errors import CorruptFileError
from mutation_api.format.event import RecordIdentifier, RowIdArrays
from mutation_api.format.varint import varint
from mutation_api.orc.format.protobuf import (
    STREAM_KIND_PRESENT,
    as_bytes,
    bytes_field,
    fields_of,
    numbers_in,
    raw_fields_of,
)
from mutation_api.orc.format.row_groups import positioned_streams
from mutation_api.orc.format.stripe_sections import Encoding

_INDEX_ENTRY, _ENTRY_POSITIONS = 1, 1

_KINDS: Sequence[tuple[Callable[[pa.DataType], bool], pyorc.TypeKind]] = (
    (pa.types.is_boolean, pyorc.TypeKind.BOOLEAN),
    (pa.types.is_int8, pyorc.TypeKind.BYTE),
    (pa.types.is_integer, pyorc.TypeKind.LONG),
    (pa.types.is_date, pyorc.TypeKind.DATE),
    (pa.types.is_floating, pyorc.TypeKind.DOUBLE),
    (pa.types.is_timestamp, pyorc.TypeKind.TIMESTAMP),
    (pa.types.is_decimal, pyorc.TypeKind.DECIMAL),
    (pa.types.is_union, pyorc.TypeKind.UNION),
    (pa.types.is_struct, pyorc.TypeKind.STRUCT),
    (pa.types.is_list, pyorc.TypeKind.LIST),
    (pa.types.is_map, pyorc.TypeKind.MAP),
    (pa.types.is_string, pyorc.TypeKind.STRING),
    (pa.types.is_binary, pyorc.TypeKind.BINARY),
)
"""The kinds of columns, of which those with the same streams count as one."""


class MovedRowIndex:
    """Converts row indexes of a file from positions in streams to positions in their chunks.

    Args:
        schema: the file's schema.
        block_bytes: the number of bytes of a stream in each chunk.
    """

    def __init__(self, schema: pa.Schema, block_bytes: int) -> None:
        self._kinds = _kinds_of_columns(schema)
        self._block_bytes = block_bytes

    def moved(
        self,
        index: bytes,
        column: int,
        encodings: Sequence[int],
        chunks: Mapping[tuple[int, int], Sequence[int]],
    ) -> bytes:
        """Return the row index of a column, for compressed streams.

        Args:
            index: the row index for uncompressed streams.
            column: the number of the column in the tree of types.
            encodings: the encodings of all columns of the stripe.
            chunks: the start of each chunk in bytes, by kind of stream and column.

        Raises:
            CorruptFileError: If the index has other positions than a column of its type should have.
        """
        has_nulls = (STREAM_KIND_PRESENT, column) in chunks
        streams = positioned_streams(self._kinds[column], Encoding(encodings[column], 0), has_nulls=has_nulls)
        parts = [(chunks.get((each.kind, column), ()), each.count(0)) for each in streams]
        return b"".join(
            bytes_field(_INDEX_ENTRY, _moved_entry(as_bytes(entry), parts, self._block_bytes))
            for _, entry in fields_of(index)
        )


def _moved_entry(entry: bytes, parts: Sequence[tuple[Sequence[int], int]], block_bytes: int) -> bytes:
    """Return an entry of a row index, for streams in chunks.

    Args:
        entry: message RowIndexEntry.
        parts: for each stream, the starts of its chunks and the count of numbers after its byte.
        block_bytes: the number of bytes of a stream in each chunk.
    """
    position_count = sum(1 + count for _, count in parts)
    # Most files have one row group, which starts where its streams start.
    begins = bytes_field(_ENTRY_POSITIONS, bytes(position_count))
    if entry.startswith(begins):
        return bytes_field(_ENTRY_POSITIONS, bytes(position_count + len(parts))) + entry[len(begins) :]
    old = numbers_in(as_bytes(dict(fields_of(entry)).get(_ENTRY_POSITIONS, b"")))
    if len(old) != position_count:
        raise CorruptFileError(f"a row index has {len(old)} positions for {len(parts)} streams")
    new = b""
    at = 0
    for starts, count in parts:
        chunk = min(old[at] // block_bytes, max(0, len(starts) - 1))
        new += varint(starts[chunk] if starts else 0) + varint(old[at] - chunk * block_bytes)
        new += b"".join(map(varint, old[at + 1 : at + 1 + count]))
        at += 1 + count
    rest = b"".join(raw for field, _, raw in raw_fields_of(entry) if field != _ENTRY_POSITIONS)
    return bytes_field(_ENTRY_POSITIONS, new) + rest


@functools.lru_cache
def _kinds_of_columns(schema: pa.Schema) -> Sequence[int]:
    """Return the kinds of all columns of a file, in the order of ORC's numbers.

    Each column comes before those nested in it.
    """
    return tuple(_kinds_within(pa.struct(list(schema))))


def _kinds_within(arrow: pa.DataType) -> Iterator[int]:
    yield int(next(kind for is_type, kind in _KINDS if is_type(arrow)))
    if pa.types.is_map(arrow):
        inner = [arrow.key_type, arrow.item_type]
    elif pa.types.is_list(arrow):
        inner = [arrow.value_type]
    else:
        inner = [arrow.field(i).type for i in range(arrow.num_fields)]
    for each in inner:
        yield from _kinds_within(each)


class KeyLog:
    """ROW__IDs, by the number of rows up to and including the row. Each entry takes 28 to 32 bytes."""

    def __init__(self) -> None:
        self._ends: list[NDArray[np.int64]] = []
        self._keys: list[RowIdArrays] = []

    def note(self, ends: NDArray[np.int64], keys: RowIdArrays) -> None:
        """Add entries. ``ends`` must ascend over all calls."""
        self._ends.append(ends)
        self._keys.append(keys)

    def at(self, ends: NDArray[np.int64]) -> list[RecordIdentifier]:
        """Return the ROW__IDs of the rows at these ends. Raises KeyError if one was not recorded."""
        if not len(ends):
            return []
        known = np.concatenate(self._ends) if self._ends else np.zeros(1, np.int64)
        indices = np.minimum(np.searchsorted(known, ends), len(known) - 1)
        missing = ends[known[indices] != ends]
        if len(missing):
            raise KeyError(int(missing[0]))
        txns, buckets, numbers = (
            np.concatenate(parts)[indices].tolist()
            for parts in zip(*((k.original_txns, k.buckets, k.row_ids) for k in self._keys), strict=True)
        )
        return [RecordIdentifier(*key) for key in zip(txns, buckets, numbers, strict=True)]
