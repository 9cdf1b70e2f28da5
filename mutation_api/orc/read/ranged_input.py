"""RangedInput: a file of which each read is a request to another machine, so that few and large are made.

ORC's readers ask for a stripe in small pieces, column by column. Here the ranges that will be needed are
fetched beforehand, those that lie close together in one request; the end of the file, where the footer is,
is fetched once and kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from mutation_api.storage.sized_input import SizedInput

__all__ = ["RangedInput"]

END_BYTES = 64 * 1024
"""Of the end of the file, fetched first."""
GAP_BYTES = 512 * 1024
"""What a request more would cost, in bytes that nobody wants."""

_Piece = tuple[int, bytes]
"""Bytes, and where in the file they begin."""


class RangedInput(SizedInput):
    """Reads from a stream what is not in memory.

    Args:
        stream: all of the file.
        size: how many of its bytes count.
    """

    def __init__(self, stream: pa.NativeFile, size: int) -> None:
        super().__init__(size)
        self._stream = stream
        self._pieces: list[_Piece] = []
        self._end: _Piece = (size, b"")
        self.keep_end(END_BYTES)

    def keep_end(self, count: int) -> bytes:
        """The last bytes, so many or all, which are kept from now on."""
        start = max(0, self._size - count)
        if start < self._end[0]:
            self._end = (start, self._bytes_at(start, self._end[0]) + self._end[1])
        return self._end[1]

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Have ranges, each a start and a stop, in memory, in place of those of the last call."""
        end_start = self._end[0]
        wanted = [(start, min(stop, end_start)) for start, stop in ranges if start < end_start]
        self._pieces = [(start, self._bytes_at(start, stop)) for start, stop in _joined(wanted)]

    def close(self) -> None:
        """Close the stream, too."""
        self._stream.close()
        super().close()

    def _bytes_at(self, start: int, stop: int) -> bytes:
        """Bytes of the file; those in one piece, or in one and the end after it, need no request."""
        end_start, end = self._end
        if start >= end_start:
            return end[start - end_start : stop - end_start]
        if stop > end_start:
            return self._bytes_at(start, end_start) + self._bytes_at(end_start, stop)
        for piece_start, piece in self._pieces:
            if piece_start <= start and stop <= piece_start + len(piece):
                return piece[start - piece_start : stop - piece_start]
        data: bytes = self._stream.read_at(stop - start, start) if start < stop else b""
        return data


def _joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges in their order, those close together as one."""
    before: tuple[int, int] | None = None
    for start, stop in sorted(ranges):
        if before is not None and start - before[1] <= GAP_BYTES:
            before = (before[0], max(before[1], stop))
            continue
        if before is not None:
            yield before
        before = (start, stop)
    if before is not None:
        yield before
