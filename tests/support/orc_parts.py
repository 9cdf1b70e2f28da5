"""The parts of an ORC file, to be changed one by one and put together again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from mutation_api.orc.format.compression import Compression, original_chunks, unpacked
from mutation_api.orc.format.protobuf import bytes_field, fields_of, number_field
from mutation_api.orc.format.tail import parse_tail

Tree = list[tuple[int, int | bytes]]
"""Fields of a message: number and value, in their order."""


@dataclasses.dataclass
class OrcParts:
    """``body``: all before the statistics. The other parts are not compressed."""

    body: bytes
    statistics: bytes
    footer: bytes
    postscript: Tree
    compression: Compression
    block_bytes: int

    def packed(self, section: bytes) -> bytes:
        """A section in chunks that are not compressed."""
        if self.compression is Compression.NONE:
            return section
        return original_chunks(section, min(self.block_bytes, 1 << 22))

    def joined(self, *, footer: bytes | None = None, lengths: bool = True) -> bytes:
        """The file.

        Args:
            footer: as it is to lie there; None: the part.
            lengths: whether the postscript's lengths are those of the parts.
        """
        there = self.packed(self.footer) if footer is None else footer
        statistics = self.packed(self.statistics)
        known = {1: len(there), 5: len(statistics)} if lengths else {}
        postscript = message((field, known.get(field, value)) for field, value in self.postscript)
        return self.body + statistics + there + postscript + bytes([len(postscript)])


def parts_of(file: bytes) -> OrcParts:
    """The parts of a sound file."""
    tail = parse_tail(file)
    end = len(file) - 1 - tail.postscript_length
    middle = end - tail.footer_length
    start = middle - tail.statistics_length

    def plain(section: bytes) -> bytes:
        return unpacked(section, tail.compression, tail.block_bytes)

    return OrcParts(
        body=file[:start],
        statistics=plain(file[start:middle]),
        footer=plain(file[middle:end]),
        postscript=tree_of(file[end:-1]),
        compression=tail.compression,
        block_bytes=tail.block_bytes,
    )


def tree_of(text: bytes) -> Tree:
    """The fields of a message."""
    return list(fields_of(text))


def message(fields: Iterable[tuple[int, int | bytes]]) -> bytes:
    """A message of these fields."""
    return b"".join(
        number_field(field, value) if isinstance(value, int) else bytes_field(field, value)
        for field, value in fields
    )
