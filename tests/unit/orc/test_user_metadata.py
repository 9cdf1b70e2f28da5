"""User metadata appended to the footer of an ORC file."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.orc as orc
import pyorc
import pytest

from mutation_api.orc.format.tail import parse_tail
from mutation_api.orc.write.event_writer import append_user_metadata
from tests.unit.orc.encoded_files import CODECS, orc_file


def extended_by(end: bytes, entries: dict[str, bytes]) -> bytes:
    return append_user_metadata(end, entries, parse_tail(end))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 70_000, 1_000_000])
def test_added_metadata_is_seen_and_nothing_else_changes(codec, length):
    """Both readers see the same rows and every entry, also beyond one compression block."""
    data = orc_file(codec)
    entries = {"hive.acid.key.index": bytes(i % 251 for i in range(length)), "é": b"\x00\xff"}
    extended = extended_by(data, entries)
    assert parse_tail(extended).user_metadata == entries
    ours = orc.ORCFile(pa.BufferReader(extended))
    assert ours.read().equals(orc.ORCFile(pa.BufferReader(data)).read())
    assert {k.decode(): v for k, v in ours.metadata.items()} == entries
    reader = pyorc.Reader(io.BytesIO(extended))
    assert reader.user_metadata == entries
    assert list(reader) == list(pyorc.Reader(io.BytesIO(data)))


def test_metadata_is_cut_at_the_block_size():
    """A reader's buffer is one compression block: no chunk may be longer."""
    data = orc_file("zlib")
    extended = extended_by(data, {"a": b"x" * 200_000})
    postscript = parse_tail(data).postscript_length + 1
    added = extended[len(data) - postscript : -postscript - 1]
    lengths = []
    while len(added) > 3:
        header = int.from_bytes(added[:3], "little")
        assert header & 1, "an added chunk must be marked as not compressed"
        lengths.append(header >> 1)
        added = added[3 + lengths[-1] :]
    assert max(lengths) == 65536
    assert sum(lengths) > 200_000


def test_a_name_is_not_added_twice():
    """Readers would have to choose between two key indexes."""
    data = extended_by(orc_file("zlib"), {"hive.acid.stats": b"1,0,0"})
    with pytest.raises(ValueError, match=r"hive\.acid\.stats"):
        extended_by(data, {"hive.acid.stats": b"2,0,0"})


def test_the_end_of_a_file_is_enough():
    """The tail is extended while the file is being written; the front is not in memory any more."""
    data = orc_file("zlib", rows=10_000)
    tail = parse_tail(data)
    end = data[-(tail.footer_length + tail.postscript_length + 1) :]
    assert data[: -len(end)] + extended_by(end, {"k": b"v"}) == extended_by(data, {"k": b"v"})
