"""StrictCsv: the bytes of a CSV file, refused where two readers might understand them differently.

pyarrow reads fast and leniently: it continues a field after its closing quote, and ends rows at a CR. Spark's
reader does otherwise, and so do other programs. What they might read differently is refused here, before
pyarrow sees it; so the rest means the same to all.
"""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from mutation_api.errors import ConfigurationError

__all__ = ["StrictCsv"]

_MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8."""
_QUOTE, _CR, _LF, _COMMA = b'"\r\n,'
_FIELD_BORDERS = np.frombuffer(b",\r\n", np.uint8)


class StrictCsv(io.RawIOBase):
    """Passes on the bytes of a stream, without a byte order mark.

    Args:
        source: the stream.
        shown: name of the file, for messages.
    """

    def __init__(self, source: io.BufferedIOBase, shown: str) -> None:
        super().__init__()
        self._source = source
        self._shown = shown
        head = source.read(len(_MARK))
        self._offset = len(head) if head == _MARK else 0
        self._head = b"" if head == _MARK else head
        self._previous = _LF
        self._is_quoted = False
        self._is_at_end = False

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill a buffer with the next bytes; returns their number.

        Raises:
            ConfigurationError: a quote or line end has no certain meaning, or a byte is no text.
        """
        view = memoryview(buffer)  # type: ignore[arg-type]
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        """Up to ``size`` bytes, none at the end; raises as :meth:`readinto`."""
        if size is None or size < 0:
            data, self._head = self._head + self._source.read(), b""
        else:
            head, self._head = self._head[:size], self._head[size:]
            data = head + self._source.read(size - len(head))
        start = self._offset
        self._offset += len(data)
        if data:
            self._check(data, start)
        elif size and not self._is_at_end:
            self._is_at_end = True
            if self._is_quoted:
                raise self._refused(self._offset, "a quoted field has no closing quote")
            if self._previous == _CR:
                raise self._refused(self._offset, "a carriage return without a line feed behind it")
        return data

    def _check(self, data: bytes, start: int) -> None:
        if b"\0" in data or b"\1" in data:
            at = min(at for at in (data.find(b"\0"), data.find(b"\1")) if at >= 0)
            raise self._refused(start + at, "a byte 0 or 1, which is no text")
        found = np.frombuffer(data, np.uint8)
        before = np.concatenate([np.array([self._previous], np.uint8), found[:-1]])
        quotes = np.flatnonzero(found == _QUOTE)
        self._check_quotes(found, before, quotes, start)
        if b"\r" in data or self._previous == _CR:
            self._check_line_ends(found, before, quotes, start)
        self._is_quoted ^= bool(len(quotes) % 2)
        self._previous = int(found[-1])

    def _check_quotes(
        self,
        found: NDArray[np.uint8],
        before: NDArray[np.uint8],
        quotes: NDArray[np.int64],
        start: int,
    ) -> None:
        """A quote opens a field at its begin, and closes it at its end; two within a quoted field are one."""
        opens = np.arange(len(quotes)) % 2 == int(self._is_quoted)
        opening = quotes[opens]
        follows = np.isin(before[opening], _FIELD_BORDERS) | (before[opening] == _QUOTE)
        if not follows.all():
            at = int(opening[~follows][0])
            raise self._refused(start + at, "a quote within a field that does not begin with a quote")
        after_closing = quotes[~opens] + 1
        after_closing = after_closing[after_closing < len(found)]
        if self._previous == _QUOTE and not self._is_quoted:
            after_closing = np.concatenate([np.zeros(1, np.int64), after_closing])
        ends = np.isin(found[after_closing], _FIELD_BORDERS) | (found[after_closing] == _QUOTE)
        if not ends.all():
            at = int(after_closing[~ends][0])
            raise self._refused(start + at, "text behind the closing quote of a field")

    def _check_line_ends(
        self,
        found: NDArray[np.uint8],
        before: NDArray[np.uint8],
        quotes: NDArray[np.int64],
        start: int,
    ) -> None:
        """Outside of quotes a CR must have an LF behind it."""
        after = np.flatnonzero((before == _CR) & (found != _LF))
        is_quoted = (np.searchsorted(quotes, after) + int(self._is_quoted)) % 2 == 1
        if not is_quoted.all():
            at = int(after[~is_quoted][0])
            raise self._refused(start + at, "a carriage return without a line feed behind it")

    def _refused(self, at: int, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self._shown} cannot be read as csv: byte {at + 1:,}: {what}. Write fields that hold commas, "
            "quotes or line ends in quotes, and each quote within them twice"
        )
