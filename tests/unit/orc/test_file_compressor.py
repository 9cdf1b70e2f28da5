"""Files that were compressed while they were written: whole, and from the middle by their row index."""

from __future__ import annotations

import datetime
import decimal
import io
import itertools
import random

import pyarrow as pa
import pyarrow.orc as orc
import pyorc
import pytest

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.compression import Compression
from mutation_api.orc.format.protobuf import bytes_field, number_field
from mutation_api.orc.format.stripe_sections import parse_statistics
from mutation_api.orc.format.tail import parse_tail
from mutation_api.orc.write.file_compressor import KEPT_BYTES_DEFAULT, FileCompressor

BLOCK_BYTES = 1024
STRIDE = 500
ROWS = 6_000

_random = random.Random(20_261_122)
_INNER = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string())), ("z", pa.bool_())])


def _nulls(values: list) -> list:
    """Every tenth missing, and two row groups in which all are."""
    return [None if n % 10 == 3 or 2 * STRIDE <= n < 4 * STRIDE else value for n, value in enumerate(values)]


def _many(make) -> list:
    return [make(n) for n in range(ROWS)]


COLUMNS = {
    "bigint": pa.array(_many(lambda n: _random.getrandbits(40))),
    "int": pa.array(_many(lambda n: n // 7), pa.int32()),
    "tinyint": pa.array(_many(lambda n: n % 100 - 50), pa.int8()),
    "boolean": pa.array(_many(lambda n: _random.random() < 0.3)),
    "float": pa.array(_many(lambda n: n / 4), pa.float32()),
    "double": pa.array(_many(lambda n: _random.random())),
    "decimal": pa.array(_many(lambda n: decimal.Decimal(n) / 8), pa.decimal128(12, 3)),
    "long decimal": pa.array(_many(lambda n: decimal.Decimal(n) * 10**20), pa.decimal128(38, 3)),
    "text": pa.array(_many(lambda n: f"text {_random.getrandbits(30)}")),
    "few texts": pa.array(_many(lambda n: _random.choice(["red", "green", "blue"]))),
    "binary": pa.array(_many(lambda n: n.to_bytes(3, "big") * (n % 4))),
    "date": pa.array(_many(lambda n: datetime.date(2000, 1, 1) + datetime.timedelta(n))),
    "timestamp": pa.array(
        _many(lambda n: datetime.datetime(2020, 1, 1) + datetime.timedelta(seconds=n, microseconds=n)),
        pa.timestamp("us"),
    ),
    "list": pa.array(_many(lambda n: [n] * (n % 4)), pa.list_(pa.int64())),
    "map": pa.array(_many(lambda n: [(f"k{n}", n / 2)] * (n % 2)), pa.map_(pa.string(), pa.float64())),
    "struct": pa.array(_many(lambda n: {"x": n, "y": [f"y{n}"] * (n % 3), "z": n % 2 == 0}), _INNER),
    "same": pa.array([7] * ROWS),
    "no values": pa.array([None] * ROWS, pa.int64()),
}


def compressed(table: pa.Table, *, stripe_size: int = 64 * 1024 * 1024, rows_a_write: int = ROWS) -> bytes:
    """The file of a table."""
    sink = io.BytesIO()
    compressor = FileCompressor(sink, table.schema, BLOCK_BYTES, kept_bytes=0)
    encode(table, compressor, stripe_size=stripe_size, rows_a_write=rows_a_write)
    compressor.finish()
    return sink.getvalue()


def encode(table: pa.Table, sink, *, stripe_size: int, rows_a_write: int) -> None:
    """Let pyarrow write a table without compression."""
    writer = opened(sink, stripe_size=stripe_size)
    for start in range(0, max(1, table.num_rows), rows_a_write):
        # A copy: of a struct with nulls pyarrow writes the wrong rows if it is a slice.
        rows = range(start, min(start + rows_a_write, table.num_rows))
        writer.write(table.take(pa.array(rows, pa.int64())))
    writer.close()


def opened(sink, *, stripe_size: int) -> orc.ORCWriter:
    """Pyarrow's writer without compression."""
    return orc.ORCWriter(
        pa.PythonFile(sink, mode="w"),
        batch_size=256,
        stripe_size=stripe_size,
        compression="UNCOMPRESSED",
        compression_block_size=64 * 1024,
        row_index_stride=STRIDE,
        dictionary_key_size_threshold=0.8,
    )


def plain(table: pa.Table) -> bytes:
    """The file of a table as pyarrow writes it."""
    kept = Kept()
    encode(table, kept, stripe_size=64 * 1024 * 1024, rows_a_write=ROWS)
    return kept.bytes()


def read_from(file: bytes, row: int, count: int) -> list:
    """Values of the one column, of rows from some one on, found by the row index."""
    reader = pyorc.Reader(io.BytesIO(file))
    reader.seek(row)
    return [values[0] for _, values in zip(range(count), reader, strict=False)]


def row_groups(file: bytes) -> list[int]:
    """First rows of all. From within one pyorc's reader fails, if it then skips texts that are all empty."""
    stripes = parse_tail(file).stripes
    ends = itertools.accumulate(stripe.row_count for stripe in stripes)
    return [
        row
        for end, stripe in zip(ends, stripes, strict=True)
        for row in range(end - stripe.row_count, end, STRIDE)
    ]


def test_unions_read_back_from_any_row_group() -> None:
    """Their tags have positions, too."""
    tags = pa.array([n % 2 for n in range(ROWS)], pa.int8())
    offsets = pa.array([n // 2 for n in range(ROWS)], pa.int32())
    values = pa.UnionArray.from_dense(tags, offsets, [COLUMNS["bigint"], COLUMNS["text"]], ["a", "b"])
    kept = io.BytesIO()
    compressor = FileCompressor(kept, pa.schema([("c", values.type)]), BLOCK_BYTES, kept_bytes=0)
    writer = opened(compressor, stripe_size=64 * 1024 * 1024)
    writer.write(pa.table({"c": values}))
    writer.close()
    compressor.finish()
    file = kept.getvalue()
    assert orc.read_table(io.BytesIO(file))["c"].to_pylist() == values.to_pylist()
    whole = read_from(file, 0, ROWS)
    for row in row_groups(file):
        assert read_from(file, row, 2 * STRIDE) == whole[row : row + 2 * STRIDE], row


@pytest.mark.thorough(1)
@pytest.mark.parametrize("stripe_size", [1, 64 * 1024 * 1024])
@pytest.mark.parametrize("has_nulls", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_reads_back_from_the_start_and_from_any_row(name, has_nulls, stripe_size) -> None:
    """A reader that begins in the middle finds the row group by its position in each stream."""
    values = COLUMNS[name]
    if has_nulls:
        values = pa.array(_nulls(values.to_pylist()), values.type)
    table = pa.table({"c": values})
    file = compressed(table, stripe_size=stripe_size, rows_a_write=2_000)
    tail = parse_tail(file)
    assert (tail.compression, tail.block_bytes, tail.row_count) == (Compression.ZLIB, BLOCK_BYTES, ROWS)
    assert (len(tail.stripes) > 2) is (stripe_size == 1)
    assert orc.read_table(io.BytesIO(file)).equals(orc.read_table(io.BytesIO(plain(table))))
    whole = read_from(file, 0, ROWS)
    assert whole == read_from(plain(table), 0, ROWS)
    for row in row_groups(file):
        assert read_from(file, row, 2 * STRIDE) == whole[row : row + 2 * STRIDE], row


def test_streams_that_do_not_shrink_are_stored_as_they_are() -> None:
    """No chunk becomes longer than its block."""
    table = pa.table({"c": pa.array([_random.randbytes(40) for _ in range(ROWS)])})
    file = compressed(table)
    assert orc.read_table(io.BytesIO(file)).equals(table)
    assert ROWS * 40 < len(file) < ROWS * 43


@pytest.mark.parametrize(("rows", "is_kept"), [(0, True), (10, True), (ROWS, False)])
def test_a_file_that_fits_a_block_of_the_disk_is_left_as_it_is(rows, is_kept) -> None:
    """Byte for byte; a larger one is compressed."""
    table = pa.table({"c": COLUMNS["text"]}).slice(0, rows)
    sink, kept = io.BytesIO(), Kept()
    compressor = FileCompressor(sink, table.schema, BLOCK_BYTES)
    for target in (compressor, kept):
        encode(table, target, stripe_size=64 * 1024 * 1024, rows_a_write=ROWS)
    compressor.finish()
    assert (len(kept.bytes()) <= KEPT_BYTES_DEFAULT) is is_kept
    assert (sink.getvalue() == kept.bytes()) is is_kept
    assert orc.read_table(io.BytesIO(sink.getvalue())).equals(table)


def test_a_file_without_rows() -> None:
    """It has no stripe, and is compressed all the same."""
    table = pa.table({"c": pa.array([], pa.int64())})
    file = compressed(table)
    assert parse_tail(file).compression is Compression.ZLIB
    assert orc.read_table(io.BytesIO(file)).equals(table)


def test_what_a_stripe_holds_is_that_of_the_plain_file() -> None:
    """Rows, statistics and types are the encoder's own."""
    table = pa.table({"a": COLUMNS["bigint"], "b": COLUMNS["few texts"], "c": COLUMNS["struct"]})
    sink = Kept()
    encode(table, sink, stripe_size=1, rows_a_write=1_000)
    file = compressed(table, stripe_size=1, rows_a_write=1_000)
    ours, theirs = parse_tail(file), parse_tail(sink.bytes())
    read, plainly_read = orc.ORCFile(io.BytesIO(file)), orc.ORCFile(io.BytesIO(sink.bytes()))
    assert read.schema == plainly_read.schema
    assert statistics_of(file) == statistics_of(sink.bytes())
    assert [s.row_count for s in ours.stripes] == [s.row_count for s in theirs.stripes]
    assert read.row_index_stride == plainly_read.row_index_stride == STRIDE


def statistics_of(file: bytes) -> list[dict[int, bytes]]:
    """Of all columns in each stripe, as they are stored."""
    tail = parse_tail(file)
    end = len(file) - 1 - tail.postscript_length - tail.footer_length
    found = parse_statistics(file[end - tail.statistics_length : end], tail, range(8))
    assert len(found) == len(tail.stripes) > 2
    assert all(len(stripe) == 8 for stripe in found)
    return found


class Kept:
    """A sink that keeps what it is given, piece by piece."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> int:
        self.pieces.append(bytes(data))
        return len(data)

    def tell(self) -> int:
        return sum(map(len, self.pieces))

    def flush(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""

    def bytes(self) -> bytes:
        return b"".join(self.pieces)


def test_memory_holds_one_stripe() -> None:
    """What came before the last stripe's end has been passed on."""
    table = pa.table({"c": COLUMNS["double"]})
    sink = Kept()
    compressor = FileCompressor(sink, table.schema, BLOCK_BYTES, kept_bytes=0)
    encode(table, compressor, stripe_size=1, rows_a_write=1_000)
    before = sink.tell()
    compressor.finish()
    assert before > 0.9 * sink.tell()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda pieces: [*pieces[:-3], pieces[-3] + pieces[-2] + pieces[-1]], None),
        (lambda pieces: [b"".join(pieces[:3]), *pieces[3:]], "its footer has"),
        (lambda pieces: [*pieces[:4], pieces[4] + pieces[5], *pieces[6:]], None),
        (lambda pieces: [pieces[0], b"".join(pieces[1:])], "its footer has"),
        (lambda pieces: pieces[:-1], "not an ORC tail"),
        (lambda pieces: [*pieces[:-4], b"more", *pieces[-4:]], "its footer has"),
    ],
)
def test_an_encoder_that_writes_in_other_pieces_is_understood_or_refused(change, message) -> None:
    """A file is refused if the end of a stripe is missed, or seen where there is none."""
    table = pa.table({"c": COLUMNS["double"], "t": COLUMNS["text"]})
    kept = Kept()
    encode(table, kept, stripe_size=64 * 1024 * 1024, rows_a_write=ROWS)
    sink = io.BytesIO()
    compressor = FileCompressor(sink, table.schema, BLOCK_BYTES, kept_bytes=0)
    for piece in change(kept.pieces):
        compressor.write(piece)
    if message:
        with pytest.raises(CorruptFileError, match=message):
            compressor.finish()
    else:
        compressor.finish()
        assert orc.read_table(io.BytesIO(sink.getvalue())).equals(table)


def test_positions_of_another_number_than_the_streams_have_are_refused() -> None:
    """A schema that says text where the file has numbers stands for an encoder with another layout."""
    table = pa.table({"c": COLUMNS["double"]})
    kept = Kept()
    encode(table, kept, stripe_size=64 * 1024 * 1024, rows_a_write=ROWS)
    compressor = FileCompressor(io.BytesIO(), pa.schema([("c", pa.string())]), BLOCK_BYTES)
    with pytest.raises(CorruptFileError, match="a row index has 1 positions for 2 streams"):
        for piece in kept.pieces:
            compressor.write(piece)


def test_bytes_that_look_like_a_stripes_footer_are_refused_in_the_end() -> None:
    """A stream whose last block happens to list streams of the right lengths."""
    table = pa.table({"c": COLUMNS["double"]})
    kept = Kept()
    encode(table, kept, stripe_size=64 * 1024 * 1024, rows_a_write=ROWS)
    stream = number_field(1, 1) + number_field(2, 1) + number_field(3, 5)
    compressor = FileCompressor(io.BytesIO(), table.schema, BLOCK_BYTES)
    for piece in [kept.pieces[0], b"12345", bytes_field(1, stream) + bytes_field(2, b""), *kept.pieces[1:]]:
        compressor.write(piece)
    with pytest.raises(CorruptFileError, match="its footer has 1 stripes"):
        compressor.finish()
