"""Facts of ORC tails."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.orc as orc
import pyorc
import pytest

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.compression import Compression
from mutation_api.orc.format.tail import TAIL_CHECKSUM_BYTES, parse_tail, read_tail, tail_checksum
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from tests.unit.orc.encoded_files import CODECS, orc_file

KINDS = {"uncompressed": "NONE", "zlib": "ZLIB", "snappy": "SNAPPY", "lz4": "LZ4", "zstd": "ZSTD"}


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
    assert tail.block_bytes == 65536
    assert dict(tail.user_metadata) == {}


def test_metadata_of_another_writer_is_read():
    """Files that Hive or pyorc wrote keep their entries inside the footer's own chunks."""
    sink = io.BytesIO()
    with pyorc.Writer(sink, "struct<a:int>", struct_repr=pyorc.StructRepr.TUPLE) as writer:
        writer.set_user_metadata(**{"hive.acid.stats": b"1,0,0"})
        writer.write((1,))
    assert parse_tail(sink.getvalue()).user_metadata == {"hive.acid.stats": b"1,0,0"}


def test_the_end_of_a_file_is_enough():
    """The front of a file that is being written is not in memory any more."""
    data = orc_file("zlib", rows=10_000)
    tail = parse_tail(data)
    end = data[-(tail.footer_length + tail.postscript_length + 1) :]
    assert parse_tail(end) == tail
    with pytest.raises(CorruptFileError):
        parse_tail(end[1:])


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
    """The whole file and its end alone give the same number; a flipped bit changes it."""
    data = bytes(range(256)) * 100
    assert tail_checksum(data) == tail_checksum(data[-TAIL_CHECKSUM_BYTES:])
    assert tail_checksum(data) != tail_checksum(data[:-10] + b"\x00" * 10)
    assert tail_checksum(b"") == 0
