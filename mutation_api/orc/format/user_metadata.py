"""User metadata, added to the tail of a finished ORC file.

pyarrow's writer cannot write user metadata, and Hive's ACID readers need two entries. So the finished file's
tail is extended. Protobuf allows a repeated field anywhere in a message, so the serialised entries are
appended to the footer as separate chunks (marked "not compressed"), and the postscript's footer length grows.
The writer's own bytes are not parsed and written again, so they cannot change. Refused alternative: rewriting
the footer, which requires knowledge of every field that a future writer puts there.

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
        tail: :func:`~.tail.parse_tail` of ``end``.
        mark_proleptic: also say that days are counted in the proleptic Gregorian calendar. If a field occurs
            twice, protobuf takes the last one.

    Returns:
        The bytes that replace ``end`` at the end of the file.

    Raises:
        ValueError: a name exists already, or the postscript would exceed its 255 bytes.
    """
    doubled = sorted(set(entries) & set(tail.user_metadata))
    if doubled:
        raise ValueError(f"the file already has user metadata {doubled}")
    items = _serialised(entries)
    if mark_proleptic:
        items += number_field(FOOTER_CALENDAR, PROLEPTIC_GREGORIAN)
    added = items if tail.compression is Compression.NONE else original_chunks(items, tail.block_bytes)
    start = len(end) - 1 - tail.postscript_length
    # Every other byte of the postscript is unchanged.
    postscript = with_numbers(end[start:-1], {POSTSCRIPT_FOOTER_LENGTH: tail.footer_length + len(added)})
    if len(postscript) > _MAX_POSTSCRIPT_BYTES:
        raise ValueError(
            f"the postscript would have {len(postscript)} bytes; the limit is {_MAX_POSTSCRIPT_BYTES}"
        )
    return end[:start] + added + postscript + bytes([len(postscript)])


def _serialised(entries: Mapping[str, bytes]) -> bytes:
    """Serialise entries as fields of a footer."""
    items = (
        bytes_field(METADATA_NAME, name.encode()) + bytes_field(METADATA_VALUE, value)
        for name, value in entries.items()
    )
    return b"".join(bytes_field(FOOTER_METADATA, item) for item in items)
