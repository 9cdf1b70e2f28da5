"""TailHoldingSink: destination of an encoder; holds back the end of the file until it is extended."""

from __future__ import annotations

from typing import Protocol

from mutation_api.orc.format.tail import TAIL_CHECKSUM_BYTES, tail_checksum

__all__ = ["TailHoldingSink"]


class _Writable(Protocol):
    """What takes the bytes."""

    def write(self, data: bytes) -> object:
        """Append bytes."""
        ...


class TailHoldingSink:
    """File object for an encoder: passes bytes on until :meth:`hold`, then keeps them as the file's end."""

    def __init__(self, file: _Writable) -> None:
        self._file = file
        self._held: list[bytes] | None = None
        self._recent = b""
        self.byte_count = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Write bytes. They are copied if kept, since the encoder's buffer may change afterwards."""
        self.byte_count += len(data)
        if self._held is not None:
            self._held.append(bytes(data))
        else:
            self._pass_on(data)
        return len(data)

    def hold(self) -> None:
        """Keep all bytes that are written from now on."""
        self._held = []

    def held(self) -> bytes:
        """The kept bytes."""
        return b"".join(self._held or ())

    def finish(self, end: bytes) -> None:
        """Write the end of the file, instead of the kept bytes."""
        self.byte_count += len(end) - sum(map(len, self._held or ()))
        self._pass_on(end)

    def checksum(self) -> int:
        """Checksum of the end of the file."""
        return tail_checksum(self._recent)

    def drop(self) -> None:
        """Drop all later bytes. A discarded encoder still writes its tail, and crashes if it cannot."""
        self._held = []

    def tell(self) -> int:
        """Bytes written so far."""
        return self.byte_count

    def flush(self) -> None:
        """Do nothing: encoders call it, but half a file is useless."""

    def close(self) -> None:
        """Do nothing: encoders call it, but the file stays open for its tail."""

    def _pass_on(self, data: bytes) -> None:
        self._file.write(data)
        recent = bytes(data[-TAIL_CHECKSUM_BYTES:])
        self._recent = (self._recent + recent)[-TAIL_CHECKSUM_BYTES:]
