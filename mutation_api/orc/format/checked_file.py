"""Checks of an ORC file before a decoder sees it, and the errors raised for a decoder's own errors.

ORC's C++ library, in pyarrow and pyorc, trusts the numbers of a file: it allocates memory for as many rows as
a footer claims, and ends the process if types are nested too deeply. The checks here cost less than opening
the file. Every other error is converted to one that names the file.

A pyarrow older than OLDEST is rejected on import, because it returns wrong values without an error.
Measured with files of real Hive: up to 23, a timestamp that nanoseconds cannot hold (9999-12-31, a common "no
end") is read as another one, and values of unions below lists are lost; 24 ends the process. So a worker that
has its own old pyarrow must not start.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyorc

from mutation_api.errors import ConfigurationError, CorruptFileError, MutationError, ReadError
from mutation_api.orc.format.compression import DAMAGE, holds_bytes, unpacked
from mutation_api.orc.format.protobuf import (
    STREAM_KIND_DATA,
    STREAM_KIND_DICTIONARY,
    STREAM_KIND_LENGTH,
    STREAM_KIND_PRESENT,
    STREAM_KIND_SECONDARY,
)
from mutation_api.orc.format.run_lengths import check_lengths, check_scales, check_tags, sum_of_lengths
from mutation_api.orc.format.stripe_sections import StripeFooter, parse_stripe_footer
from mutation_api.orc.format.tail import OrcTail, tail_of
from mutation_api.orc.format.type_tree import TypeKind, TypeNode, last_within
from mutation_api.storage.protocol import is_fault_of_machine

OLDEST = 25
"""The oldest accepted major version. The package requires the same version."""


def check_version(version: str) -> None:
    """Raise ConfigurationError if a pyarrow is too old.

    Args:
        version: the version, as in ``pyarrow.__version__``.

    Raises:
        ConfigurationError: If it is too old. The message names both versions.
    """
    major = re.match(r"[0-9]+", version)
    if major is not None and int(major[0]) < OLDEST:
        raise ConfigurationError(
            f"pyarrow {version} is too old: it silently reads some timestamps of ORC files as other "
            f"values; install pyarrow {OLDEST} or newer on all machines that run tasks"
        )


check_version(pa.__version__)

FAULTS = (
    *(pa.ArrowException, pyorc.errors.ORCError, OSError, MemoryError),
    *(ValueError, TypeError, LookupError, ArithmeticError, RecursionError),
)
"""The errors that decoding arbitrary bytes or converting the values can raise."""

_VALUE_BYTES = 8
_SMALL_BYTES = 64 * 1024 * 1024
_LARGEST_GROWTH = 64
"""Stripes that use less memory than this number of bytes, or than this multiple of their own size, are not
checked."""
_TEXT_KINDS = (STREAM_KIND_DATA, STREAM_KIND_DICTIONARY)
_ROWS_PER_BYTE = 520
"""The highest density of an ORC stream: bits in runs of 130 bytes, where each run is two bytes long."""


def checked_stripe(stream: Any, tail: OrcTail, index: int) -> StripeFooter:
    """Return the footer of a stripe after checking that its streams can hold the stripe's rows.

    Args:
        stream: the file's bytes.
        tail: the file's tail.
        index: the stripe's index.

    Raises:
        CorruptFileError: If the stripe claims values that it cannot have. The message does not name the file.
        OSError: If the stripe cannot be read.
    """
    stripe = tail.stripes[index]
    stream.seek(stripe.end - stripe.footer_length)
    footer = parse_stripe_footer(stream.read(stripe.footer_length), tail, stripe)
    allowed = max(_SMALL_BYTES, _LARGEST_GROWTH * (stripe.end - stripe.offset))
    entries = max((encoding.dictionary_size for encoding in footer.encodings), default=0)
    if max(stripe.row_count, entries) * _VALUE_BYTES * len(tail.types) > allowed:
        _check_rows(stream, tail, index, footer)
    return footer


def check_values(stream: Any, tail: OrcTail, footer: StripeFooter, columns: Collection[int]) -> None:
    """Check the lengths, tags and scales of a stripe's columns, which a decoder trusts.

    Args:
        stream: the file's bytes.
        tail: the file's tail.
        footer: the stripe's footer.
        columns: the numbers of the columns that will be read.

    Raises:
        CorruptFileError: If there are values that a column cannot have. The message does not name the file.
        OSError: If the stripe cannot be read.
    """
    nodes = tail.nodes
    for found in footer.streams:
        if found.column not in columns:
            continue
        node = nodes[found.column]
        is_tags = found.kind == STREAM_KIND_DATA and node.kind == TypeKind.UNION
        is_scales = found.kind == STREAM_KIND_SECONDARY and node.kind == TypeKind.DECIMAL
        if not (is_tags or is_scales or found.kind == STREAM_KIND_LENGTH):
            continue
        stream.seek(found.start)
        data = stream.read(found.stop - found.start)
        try:
            plain = unpacked(data, tail.compression, tail.block_bytes)
            is_version_2 = footer.encodings[found.column].has_runs_of_version_2
            if is_tags:
                check_tags(plain, len(node.children))
            elif is_scales:
                check_scales(plain, is_version_2=is_version_2)
            else:
                bound = check_lengths(plain, is_version_2=is_version_2)
                if bound * _bytes_of_length(node) > max(_SMALL_BYTES, _LARGEST_GROWTH * len(data)):
                    total = sum_of_lengths(plain, is_version_2=is_version_2)
                    _check_total(stream, tail, footer, found.column, total)
        except DAMAGE as error:
            raise CorruptFileError(f"column {found.column} cannot be decoded: {error}") from error


def _bytes_of_length(node: TypeNode) -> int:
    """Return the memory for one unit of a length: a byte of a string, or a value of a list or map."""
    return _VALUE_BYTES * len(node.children) if node.children else 1


def _check_total(stream: Any, tail: OrcTail, footer: StripeFooter, column: int, total: int) -> None:
    """Check that a column's streams can hold this total of string bytes, or of values in lists or maps.

    Raises CorruptFileError if none of its streams can.
    """
    nodes = tail.nodes
    least = -(-total // _ROWS_PER_BYTE) if nodes[column].children else total
    holders = range(column + 1, last_within(nodes, column) + 1) if nodes[column].children else (column,)
    if not any(
        _holds(stream, tail, s.start, s.stop, least)
        for s in footer.streams
        if s.column in holders and (s.column != column or s.kind in _TEXT_KINDS)
    ):
        raise CorruptFileError(
            f"the lengths of column {column} add up to {total}, which its streams cannot hold"
        )


def _check_rows(stream: Any, tail: OrcTail, index: int, footer: StripeFooter) -> None:
    """Check that the streams of a stripe's columns and dictionaries can hold the claimed number of values."""
    rows = tail.stripes[index].row_count
    nodes = tail.nodes
    needed = {column: encoding.dictionary_size for column, encoding in enumerate(footer.encodings)}
    for column in nodes[0].children:
        if nodes[column].kind != TypeKind.STRUCT:
            needed[column] = max(rows, needed.get(column, 0))
    for column, count in needed.items():
        least = -(-count // _ROWS_PER_BYTE)
        if least and not any(
            _holds(stream, tail, s.start, s.stop, least) for s in footer.streams if s.column == column
        ):
            raise CorruptFileError(
                f"stripe {index} claims {count} values in column {column}, which its streams cannot hold"
            )


def _holds(stream: Any, tail: OrcTail, start: int, stop: int, count: int) -> bool:
    stream.seek(start)
    try:
        return holds_bytes(stream.read(stop - start), tail.compression, tail.block_bytes, count)
    except DAMAGE:
        return False


def null_keys(footer: StripeFooter, tail: OrcTail) -> frozenset[int]:
    """Return the numbers of a stripe's columns that are keys of maps and may be NULL.

    pyarrow ends the process if a key is NULL.
    """
    if not tail.map_keys:
        return frozenset()
    nullable = frozenset(s.column for s in footer.streams if s.kind == STREAM_KIND_PRESENT)
    return nullable & tail.map_keys


def open_orc(stream: Any) -> pa.orc.ORCFile:
    """Return pyarrow's reader of a file after checking all its stripes.

    Raises:
        CorruptFileError: If the file claims values that it cannot have, or if maps may have NULL keys, which
            end the process. The message does not name the file.
        pa.ArrowException, OSError, ValueError: If the file cannot be read.
    """
    tail = tail_of(stream)
    for index in range(len(tail.stripes)):
        footer = checked_stripe(stream, tail, index)
        check_values(stream, tail, footer, range(len(tail.types)))
        if null_keys(footer, tail):
            raise CorruptFileError(f"stripe {index} has maps whose keys may be NULL, which Arrow cannot hold")
    stream.seek(0)
    return pa.orc.ORCFile(stream)


@contextlib.contextmanager
def faults_of(file: object) -> Iterator[None]:
    """Convert errors of reading a file to errors that name it. Errors of this library are passed on.

    Args:
        file: the file, for messages.

    Raises:
        CorruptFileError: If the file itself, and not this machine, causes the error.
        ReadError: If this machine causes it.
        FileNotFoundError: If the file does not exist.
    """
    try:
        yield
    except (MutationError, FileNotFoundError):
        raise
    except FAULTS as error:
        raise fault_of(error, file) from error


def fault_of(error: BaseException, file: object) -> ReadError:
    """Return the error to raise for one of :data:`FAULTS`: an error of the file, or of this machine."""
    if is_fault_of_machine(error):
        return ReadError(f"{file} cannot be read on this machine; the file itself may be intact: {error}")
    if isinstance(error, MemoryError):
        return CorruptFileError(
            f"{file} is not a readable ORC file: it claims values that need more memory than is available "
            f"({error})"
        )
    return CorruptFileError(f"{file} is not a readable ORC file: {error or type(error).__name__}")
