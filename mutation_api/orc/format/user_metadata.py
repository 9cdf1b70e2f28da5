"""User metadata, added to the tail of a finished ORC file.

pyarrow's writer cannot write user metadata, and Hive's ACID readers need two entries. So the finished file's
tail is extended: protobuf lets a repeated field stand anywhere in a message, hence the serialised entries go
behind the footer as chunks of their own (marked "not compressed"), and the postscript's footer length grows.
Nothing that the writer wrote is parsed and printed again, so nothing of it can change. Refused alternative:
rewriting the footer, which would have to know every field that a future writer puts there.

Source: orc_proto.proto and the ORC v1 specification (file tail, compression chunks).
"""

from __future__ import annotations

from collections.abc import Mapping

from mutation_api.orc.format.compression import Compression, original_chunks
from mutation_api.orc.format.orc_proto import (
    FOOTER_CALENDAR,
    FOOTER_METADATA,
    METADATA_NAME,
    METADATA_VALUE,
    POSTSCRIPT_FOOTER_LENGTH,
    PROLEPTIC_GREGORIAN,
)
from mutation_api.orc.format.protobuf import bytes_field, number_field, with_numbers
from mutation_api.orc.format.tail import OrcTail

__all__ = ["append_user_metadata"]

_MAX_POSTSCRIPT_BYTES = 255


def append_user_metadata(
    end: bytes, entries: Mapping[str, bytes], tail: OrcTail, *, mark_proleptic: bool = False
) -> bytes:
    """The same tail with user metadata added.

    Args:
        end: the last bytes of a finished file, at least footer and postscript.
        entries: name to value; names that the file does not have yet.
        tail: what :func:`~.tail.parse_tail` says of ``end``.
        mark_proleptic: also say that days are counted in the proleptic Gregorian calendar; of a field that
            comes twice protobuf takes the last.

    Returns:
        The bytes that replace ``end`` at the end of the file.

    Raises:
        ValueError: a name is there already, or the postscript would exceed its 255 bytes.
    """
    doubled = sorted(set(entries) & set(tail.user_metadata))
    if doubled:
        raise ValueError(f"the file has user metadata {doubled} already")
    items = _serialised(entries)
    if mark_proleptic:
        items += number_field(FOOTER_CALENDAR, PROLEPTIC_GREGORIAN)
    added = items if tail.compression is Compression.NONE else original_chunks(items, tail.block_bytes)
    start = len(end) - 1 - tail.postscript_length
    # Every other byte of it stays as it was.
    postscript = with_numbers(end[start:-1], {POSTSCRIPT_FOOTER_LENGTH: tail.footer_length + len(added)})
    if len(postscript) > _MAX_POSTSCRIPT_BYTES:
        raise ValueError(
            f"the postscript would have {len(postscript)} bytes, {_MAX_POSTSCRIPT_BYTES} is the limit"
        )
    return end[:start] + added + postscript + bytes([len(postscript)])


def _serialised(entries: Mapping[str, bytes]) -> bytes:
    """Fields of a footer."""
    items = (
        bytes_field(METADATA_NAME, name.encode()) + bytes_field(METADATA_VALUE, value)
        for name, value in entries.items()
    )
    return b"".join(bytes_field(FOOTER_METADATA, item) for item in items)
