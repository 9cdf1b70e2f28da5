"""SizedInput: a readable file of known size, over a function that returns bytes by their positions."""

from __future__ import annotations

import abc
import errno
import io
import os
from typing import Any

__all__ = ["SizedInput"]


class SizedInput(io.RawIOBase, abc.ABC):
    """Subclasses fetch the bytes; they are never asked for bytes outside of the file.

    Args:
        size: of the file, in bytes.
        name: of the file, for errors.
    """

    def __init__(self, size: int, name: str | None = None) -> None:
        super().__init__()
        self._size = size
        self._name = name
        self._position = 0

    @abc.abstractmethod
    def _bytes_at(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to before ``stop``, at least one. Raises OSError."""

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The position."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position, also past the end, and return it. Raises OSError."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, "a position before the beginning", self._name)
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Up to ``size`` bytes; the rest of the file if it is negative; none at the end. Raises OSError."""
        left = max(0, self._size - self._position)
        count = left if size is None or size < 0 else min(size, left)
        if not count:
            return b""
        data = self._bytes_at(self._position, self._position + count)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """The rest of the file."""
        return self.read()

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes; returns their number."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
