"""Hive's Murmur3, 32 bit, over many keys at once. Pure.

It is the published x86_32 variant with seed 104729 and one deviation: each byte of the tail (length modulo
4) is sign extended before it is shifted. So if a byte of a tail is above 0x7f, no library's murmur3 gives
Hive's hash.

Source: org.apache.hive.common.util.Murmur3.hash32; golden values in tests/golden/bucket_hash.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "murmur_big_endian_16",
    "murmur_big_endian_32",
    "murmur_big_endian_64",
    "murmur_bytes",
    "murmur_padded",
]

_SEED = np.uint32(104729)
_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_CHUNK_ROWS = 1 << 14
"""Rows per step; the data of a step stays in the processor's cache."""


def murmur_big_endian_16(values: NDArray[np.int16]) -> NDArray[np.uint32]:
    """Hash 16-bit integers as two bytes, high byte first.

    Args:
        values: int16, shape (n,).

    Returns:
        uint32, shape (n,).
    """
    high = (values >> 8).astype(np.int32)
    low = values.astype(np.int8).astype(np.int32)
    tail = ((low << 8) ^ high).view(np.uint32)
    return _finish(_seeds(len(values)) ^ _scramble(tail), 2)


def murmur_big_endian_32(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Hash 32-bit values as four bytes, high byte first; uint32, shape (n,), in and out."""
    return _finish(_mix(_seeds(len(values)), values.byteswap()), 4)


def murmur_big_endian_64(values: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Hash 64-bit values as eight bytes, high byte first; uint64, shape (n,), in and uint32 out."""
    swapped = values.byteswap()
    hashes = _mix(_seeds(len(values)), swapped.astype(np.uint32))
    return _finish(_mix(hashes, (swapped >> np.uint64(32)).astype(np.uint32)), 8)


def murmur_bytes(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Hash byte strings.

    Args:
        data: uint8, the bytes of all strings; may hold others too.
        starts: int64, shape (n,), where each string begins.
        lengths: int64, shape (n,), in bytes.

    Returns:
        uint32, shape (n,).
    """
    hashes = np.empty(len(starts), np.uint32)
    for first in range(0, len(starts), _CHUNK_ROWS):
        chunk = slice(first, first + _CHUNK_ROWS)
        hashes[chunk] = _murmur_chunk(data, starts[chunk], lengths[chunk])
    return hashes


def murmur_padded(data: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Hash short byte strings that are padded to one width: less work than `murmur_bytes`.

    Args:
        data: uint8, shape (n, room); room is a multiple of four, and the bytes after each string are zero.
        lengths: int64, shape (n,), in bytes; less than room.

    Returns:
        uint32, shape (n,).
    """
    words = data.view("<u4")
    hashes = _seeds(len(lengths))
    if not len(lengths):
        return hashes
    blocks = lengths >> 2
    for block in range(int(blocks.max())):
        mixed = _mix(hashes, words[:, block])
        hashes = np.where(blocks > block, mixed, hashes)
    rows = np.flatnonzero(lengths & 3)
    tails = words[rows, blocks[rows]].view(np.int8).reshape(-1, 4).astype(np.int32)
    hashes[rows] ^= _scramble((tails[:, 0] ^ tails[:, 1] << 8 ^ tails[:, 2] << 16).view(np.uint32))
    return _finish(hashes, lengths)


def _murmur_chunk(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    # Longest first: the rows that still have a block are always a prefix.
    shorter_by = lengths.max() - lengths
    if shorter_by.max() < 1 << 16:
        shorter_by = shorter_by.astype(np.uint16)  # sorted in linear time
    order = np.argsort(shorter_by, kind="stable")
    starts, lengths = starts[order], lengths[order]
    hashes = _seeds(len(starts))
    blocks = lengths >> 2
    ascending = -blocks
    words = _words(data)
    for block in range(int(blocks[0])):
        rows = int(np.searchsorted(ascending, -block, "left"))
        hashes[:rows] = _mix(hashes[:rows], words[starts[:rows] + 4 * block])
    hashes = _finish(hashes ^ _scramble(_tails(data, starts + 4 * blocks, lengths & 3)), lengths)
    unsorted = np.empty_like(hashes)
    unsorted[order] = hashes
    return unsorted


def _words(data: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """The little-endian word at every byte position, as a view."""
    data = np.ascontiguousarray(data)
    return (
        np.ndarray((max(len(data) - 3, 0),), "<u4", buffer=data, strides=(1,))
        if len(data)
        else data.view("<u4")
    )


def _tails(
    data: NDArray[np.uint8], positions: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Tails of up to three bytes each, sign extended and combined as Hive does."""
    signed = data.view(np.int8)
    tails = np.zeros(len(positions), np.int32)
    for index in range(3):
        rows = np.flatnonzero(lengths > index)
        tails[rows] ^= signed[positions[rows] + index].astype(np.int32) << (8 * index)
    return tails.view(np.uint32)


def _seeds(count: int) -> NDArray[np.uint32]:
    return np.full(count, _SEED)


def _scramble(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    scrambled: NDArray[np.uint32] = _rotate(words * _C1, 15) * _C2
    return scrambled


def _mix(hashes: NDArray[np.uint32], words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    mixed: NDArray[np.uint32] = _rotate(hashes ^ _scramble(words), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    return mixed


def _finish(hashes: NDArray[np.uint32], lengths: NDArray[np.int64] | int) -> NDArray[np.uint32]:
    finished: NDArray[np.uint32] = hashes ^ np.asarray(lengths).astype(np.uint32)
    finished = (finished ^ (finished >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    finished = (finished ^ (finished >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    last: NDArray[np.uint32] = finished ^ (finished >> np.uint32(16))
    return last


def _rotate(words: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    rotated: NDArray[np.uint32] = (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
    return rotated
