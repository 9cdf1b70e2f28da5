"""ORC tails: facts, and user metadata added behind the footer."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.orc as orc
import pyorc
import pytest

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.tail import (
    TAIL_CHECKSUM_BYTES,
    Compression,
    append_user_metadata,
    parse_tail,
    read_tail,
    tail_checksum,
)
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location

CODECS = ["uncompressed", "zlib", "snappy", "lz4", "zstd"]
KINDS = {"uncompressed": "NONE", "zlib": "ZLIB", "snappy": "SNAPPY", "lz4": "LZ4", "zstd": "ZSTD"}


def orc_file(codec: str, rows: int = 100, stripe_bytes: int = 64 << 20, batch_rows: int = 1024) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"a": range(rows), "s": [f"text {i}" for i in range(rows)]})
    with orc.ORCWriter(sink, compression=codec, stripe_size=stripe_bytes, batch_size=batch_rows) as writer:
        writer.write(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@pytest.mark.parametrize("codec", CODECS)
def test_facts_equal_what_another_reader_finds(codec):
    """Compression, stripes and rows decide the key index: they must be the file's own."""
    data = orc_file(codec, rows=50_000, stripe_bytes=2_000)
    tail = parse_tail(data)
    other = orc.ORCFile(pa.BufferReader(data))
    assert tail.compression.name == KINDS[codec]
    assert tail.row_count == other.nrows == 50_000
    assert [s.row_count for s in tail.stripes] == [
        other.read_stripe(i, columns=["a"]).num_rows for i in range(other.nstripes)
    ]
    assert len(tail.stripes) > 3
    assert (tail.row_index_stride, tail.block_bytes) == (10_000, 65536)
    assert dict(tail.user_metadata) == {}


def test_metadata_of_another_writer_is_read():
    """Files that Hive or pyorc wrote keep their entries inside the footer's own chunks."""
    sink = io.BytesIO()
    with pyorc.Writer(sink, "struct<a:int>", struct_repr=pyorc.StructRepr.TUPLE) as writer:
        writer.set_user_metadata(**{"hive.acid.stats": b"1,0,0"})
        writer.write((1,))
    assert parse_tail(sink.getvalue()).user_metadata == {"hive.acid.stats": b"1,0,0"}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 70_000, 1_000_000])
def test_added_metadata_is_seen_and_nothing_else_changes(codec, length):
    """Both readers see the same rows and every entry, also beyond one compression block."""
    data = orc_file(codec)
    entries = {"hive.acid.key.index": bytes(i % 251 for i in range(length)), "é": b"\x00\xff"}
    extended = append_user_metadata(data, entries)
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
    extended = append_user_metadata(data, {"a": b"x" * 200_000})
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


def test_the_end_of_a_file_is_enough():
    """The tail is extended while the file is being written; the front is long gone then."""
    data = orc_file("zlib", rows=10_000)
    tail = parse_tail(data)
    end = data[-(tail.footer_length + tail.postscript_length + 1) :]
    assert parse_tail(end) == tail
    assert data[: -len(end)] + append_user_metadata(end, {"k": b"v"}) == append_user_metadata(
        data, {"k": b"v"}
    )
    with pytest.raises(CorruptFileError):
        parse_tail(end[1:])


def test_a_name_is_not_added_twice():
    """Readers would have to choose between two key indexes."""
    data = append_user_metadata(orc_file("zlib"), {"hive.acid.stats": b"1,0,0"})
    with pytest.raises(ValueError, match=r"hive\.acid\.stats"):
        append_user_metadata(data, {"hive.acid.stats": b"2,0,0"})


@pytest.mark.parametrize("stripe_bytes", [1 << 20, 200])
def test_read_tail_of_a_stored_file(tmp_path, stripe_bytes):
    """A footer longer than the first read is fetched whole."""
    data = orc_file("uncompressed", rows=150_000, stripe_bytes=stripe_bytes, batch_rows=100)
    (tmp_path / "f").write_bytes(data)
    tail = read_tail(LocalStorage(), Location.given(tmp_path / "f"))
    assert tail == parse_tail(data)
    assert (tail.footer_length > 16 * 1024) == (stripe_bytes == 200)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: b"",
        lambda d: d[:-1],
        lambda d: d[: len(d) // 2],
        lambda d: d[-40:],
        lambda d: b"PAR1" * 100,
        lambda d: d[:-4] + b"X" + d[-3:],
        lambda d: b"\x00" * 500,
        lambda d: b"\xff" * 500,
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, damage):
    """A truncated or foreign file never yields facts; the message names the path."""
    (tmp_path / "f").write_bytes(damage(orc_file("zlib")))
    with pytest.raises(CorruptFileError, match=f"{tmp_path}/f"):
        read_tail(LocalStorage(), Location.given(tmp_path / "f"))


def test_lzo_is_refused_by_name():
    """No library here reads LZO; a wrong guess at the footer would be worse."""
    data = bytearray(orc_file("zlib"))
    postscript = parse_tail(bytes(data)).postscript_length
    at = data.index(b"\x10\x01", len(data) - 1 - postscript)
    data[at + 1] = Compression.LZO
    with pytest.raises(CorruptFileError, match="LZO"):
        parse_tail(bytes(data))


def test_checksum_covers_the_end_of_the_file():
    """Whoever has the whole file or only its end computes the same number; a flipped bit changes it."""
    data = bytes(range(256)) * 100
    assert tail_checksum(data) == tail_checksum(data[-TAIL_CHECKSUM_BYTES:])
    assert tail_checksum(data) != tail_checksum(data[:-10] + b"\x00" * 10)
    assert tail_checksum(b"") == 0
