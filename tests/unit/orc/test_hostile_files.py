"""Files that claim what would end a decoder, or take all memory, are refused before it sees them."""

from __future__ import annotations

import io
import tracemalloc
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyorc
import pytest

from mutation_api.errors import CorruptFileError, ReadError, RecordValueError
from mutation_api.format.varint import varint
from mutation_api.orc.format.compression import DAMAGE, Compression, chunk_header, unpacked
from mutation_api.orc.format.tail import parse_tail, read_tail
from mutation_api.orc.format.type_tree import DEEPEST
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from tests.support.orc_parts import OrcParts, Tree, message, parts_of, tree_of
from tests.unit.orc.encoded_files import orc_file

BLOCK = 256 * 1024
LARGE = 64 * 1024 * 1024
TEXT = 7
"""Code of the kind of a type."""


def _deflated(count: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(bytes(count)) + packer.flush()


def _lz4_zeros(count: int) -> bytes:
    """One literal, and a match as long as wanted."""
    rest = count - 5 - 15
    return b"\x1f\x00\x01\x00" + b"\xff" * (rest // 255) + bytes([rest % 255])


BOMBS = {
    Compression.ZLIB: _deflated,
    Compression.ZSTD: lambda count: pa.compress(bytes(count), "zstd", asbytes=True),
    Compression.LZ4: _lz4_zeros,
    Compression.SNAPPY: lambda count: pa.compress(bytes(count), "snappy", asbytes=True),
}


@pytest.mark.parametrize("codec", BOMBS)
def test_a_chunk_has_no_more_content_than_a_block(codec):
    chunk = BOMBS[codec](LARGE)
    data = chunk_header(len(chunk), is_original=False) + chunk
    tracemalloc.start()
    try:
        with pytest.raises(DAMAGE, match="block"):
            unpacked(data, codec, BLOCK)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * BLOCK


@pytest.mark.parametrize("codec", BOMBS)
def test_a_full_block_is_read(codec):
    chunk = BOMBS[codec](BLOCK)
    assert unpacked(chunk_header(len(chunk), is_original=False) + chunk, codec, BLOCK) == bytes(BLOCK)


def test_many_small_chunks_are_no_large_section():
    """Each of 600 chunks is sound for blocks of 8 MiB; together they are gigabytes."""
    chunk = _deflated(1 << 23)
    data = (chunk_header(len(chunk), is_original=False) + chunk) * 600
    with pytest.raises(ValueError, match="no section can have"):
        unpacked(data, Compression.ZLIB, 1 << 23)


def test_a_declared_length_takes_no_memory():
    chunk = varint(1 << 31) + b"\x00a"
    with pytest.raises(ValueError, match="block"):
        unpacked(chunk_header(len(chunk), is_original=False) + chunk, Compression.SNAPPY, BLOCK)


def _nested(depth: int) -> list[bytes]:
    lists = [message([(1, 10), (2, varint(number + 1))]) for number in range(1, depth)]
    return [message([(1, 12), (2, b"\1"), (3, b"a")]), *lists, message([(1, 3)])]


def _field(kind: int, *children: int, **named: int) -> list[bytes]:
    numbers = {"precision": 5, "scale": 6}
    inner = [message([(1, 3)]) for _ in children]
    one = message(
        [(1, kind), (2, b"".join(map(varint, children))), *((numbers[n], v) for n, v in named.items())]
    )
    return [message([(1, 12), (2, b"\1"), (3, b"a")]), one, *inner]


TYPES = {
    "deeper-than-decoders": _nested(50_000),
    "deeper-than-read": _nested(DEEPEST + 1),
    "child-is-itself": _field(10, 1),
    "child-is-the-root": _field(10, 0),
    "child-beyond-the-end": _field(10, 9),
    "two-in-a-list": _field(10, 2, 3),
    "one-in-a-map": _field(11, 2),
    "none-in-a-union": _field(13),
    "many-in-a-union": _field(13, *range(2, 202)),
    "in-no-type": [*_field(3), message([(1, 3)])],
    "digits": _field(14, precision=1 << 31, scale=2),
    "digits-39": _field(14, precision=39, scale=2),
    "scale": _field(14, precision=5, scale=6),
    "kind": _field(77),
    "names-missing": [message([(1, 12), (2, b"\1")]), message([(1, 3)])],
    "names-alike": [message([(1, 12), (2, b"\1\2"), (3, b"a"), (3, b"a")]), *[message([(1, 3)])] * 2],
    "name-is-no-text": [message([(1, 12), (2, b"\1"), (3, b"\xff\xfe")]), message([(1, 3)])],
    "no-types": [],
}


@pytest.mark.thorough(1)
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("codec", ["uncompressed", "zlib"])
def test_types_that_are_no_tree(tmp_path, name, codec):
    parts = parts_of(orc_file(codec))
    tree = [(field, value) for field, value in tree_of(parts.footer) if field != 4]
    parts.footer = message([*tree, *((4, each) for each in TYPES[name])])
    _assert_refused(tmp_path, parts.joined())


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "zstd"])
@pytest.mark.parametrize("block_bytes", [(1 << 23) + 1, 1 << 31, 1 << 40])
def test_blocks_that_no_writer_makes(tmp_path, codec, block_bytes):
    parts = parts_of(orc_file(codec))
    parts.postscript = _with(parts.postscript, 3, block_bytes)
    _assert_refused(tmp_path, parts.joined(), "compression blocks")


@pytest.mark.parametrize("field", [1, 5])
@pytest.mark.parametrize("length", [1 << 20, 1 << 40, (1 << 64) - 1])
def test_sections_longer_than_the_file(tmp_path, field, length):
    parts = parts_of(orc_file("zlib"))
    parts.joined()
    parts.postscript = _with(parts.postscript, field, length)
    _assert_refused(tmp_path, parts.joined(lengths=False))


@pytest.mark.parametrize("field", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("number", [1 << 30, 1 << 40, (1 << 64) - 1])
def test_stripes_that_are_not_in_the_file(tmp_path, field, number):
    """Offset, lengths of index, data and footer, and rows."""
    parts = parts_of(orc_file("zlib"))
    parts.footer = _with_stripe(parts, field, number)
    _assert_refused(tmp_path, parts.joined())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param({"stream": (3, 1 << 40)}, "ends at byte", id="length"),
        pytest.param({"stream": (2, 77)}, "columns", id="column"),
        pytest.param({"stream": (1, 200)}, "of kind 200", id="kind"),
        pytest.param({"encoding": 128}, "has encoding 128", id="encoding"),
        pytest.param({"zone": b"../../../dev/zero"}, "time zone", id="zone"),
        pytest.param({"dictionary": 1 << 32}, "cannot hold", id="dictionary"),
    ],
)
def test_stripe_footers_that_do_not_fit_their_stripe(tmp_path, change, text):
    data = orc_file("uncompressed")
    parts, stripe = parts_of(data), parse_tail(data).stripes[0]
    start = stripe.end - stripe.footer_length
    tree = tree_of(data[start : stripe.end])
    if "stream" in change:
        at = next(i for i, (field, _) in enumerate(tree) if field == 1)
        tree[at] = (1, message(_with(tree_of(tree[at][1]), *change["stream"])))
    elif "dictionary" in change:
        kinds = iter(node.kind for node in parse_tail(data).nodes)
        dictionary = message([(1, 3), (2, change["dictionary"])])
        tree = [(f, dictionary if f == 2 and next(kinds) == TEXT else v) for f, v in tree]
    elif "encoding" in change:
        tree = [(f, message([(1, change["encoding"])]) if f == 2 else v) for f, v in tree]
    else:
        tree = _with(tree, 3, change["zone"])
    footer = message(tree)
    parts.body = parts.body[:start] + footer
    parts.footer = _with_stripe(parts, 4, len(footer))
    _assert_refused(tmp_path, parts.joined(), text)


def _with(tree: Tree, field: int, value: int | bytes) -> Tree:
    return [*((f, v) for f, v in tree if f != field), (field, value)]


def _with_stripe(parts: OrcParts, field: int, number: int) -> bytes:
    tree = tree_of(parts.footer)
    at = next(i for i, (each, _) in enumerate(tree) if each == 3)
    tree[at] = (3, message(_with(tree_of(tree[at][1]), field, number)))
    return message(tree)


def _assert_refused(folder: Path, data: bytes, text: str = "ORC") -> None:
    path = folder / "bucket_00000"
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match=text) as error:
        _read(path)
    assert str(path) in str(error.value)


def _read(path: Path, *columns: str) -> pa.RecordBatch:
    source = OrcInput(LocalStorage(), Location.parse(str(path)), None, ReadOptions())
    return source.read_stripe(0, columns or source.schema.names)


def _with_maps(folder: Path, rows: list[tuple[object, ...]]) -> Path:
    sink = io.BytesIO()
    kinds = "struct<id:int,m:map<string,int>,deep:array<map<int,timestamp>>>"
    with pyorc.Writer(sink, kinds, struct_repr=pyorc.StructRepr.TUPLE) as writer:
        writer.writerows(rows)
    path = folder / "bucket_00000"
    path.write_bytes(sink.getvalue())
    return path


@pytest.mark.parametrize(
    ("row", "column"), [((1, {None: 1, "a": 2}, []), "m"), ((1, {}, [{None: None}]), "deep")]
)
def test_a_null_key_names_file_and_column(tmp_path, row, column):
    """Pyarrow ends the process when it decodes one. The other columns are read."""
    path = _with_maps(tmp_path, [row, (2, {"b": 3}, [])])
    with pytest.raises(RecordValueError, match=rf"bucket_00000, column '{column}': a map has a NULL key"):
        _read(path)
    rest = ["id", "deep" if column == "m" else "m"]
    assert _read(path, *rest).column("id").to_pylist() == [1, 2]


def test_keys_that_might_be_null_and_are_not(tmp_path):
    """Below a NULL map, or in a stripe of a writer that always says which values are there."""
    path = _with_maps(tmp_path, [(1, None, None), (2, {"b": 3}, [{7: None}])])
    assert _read(path).to_pylist() == [
        {"id": 1, "m": None, "deep": None},
        {"id": 2, "m": [("b", 3)], "deep": [[(7, None)]]},
    ]


def test_dense_columns_are_read(tmp_path):
    """A sound stripe may have very many rows in few bytes."""
    sink = io.BytesIO()
    rows = 3_000_000
    orc.write_table(
        pa.table({"a": pa.array([7], pa.int32()).take(pa.array([0] * rows))}), sink, compression="zlib"
    )
    path = tmp_path / "bucket_00000"
    path.write_bytes(sink.getvalue())
    assert len(sink.getvalue()) < rows // 64
    assert _read(path).num_rows == rows


def test_a_tail_is_refused_with_the_files_name(tmp_path):
    path = tmp_path / "bucket_00000"
    path.write_bytes(orc_file("zlib")[:-3])
    with pytest.raises(ReadError, match="bucket_00000"):
        read_tail(LocalStorage(), Location.parse(str(path)))
