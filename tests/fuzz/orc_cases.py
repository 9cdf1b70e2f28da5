"""ORC files of sound tables, one of them damaged: a scan gives the same rows, or verify has a finding."""

from __future__ import annotations

import functools
import random
import shutil
import tempfile
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import MutationError
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.format.compression import Compression, chunk_header, original_chunks, unpacked
from mutation_api.orc.format.protobuf import as_bytes, fields_of
from mutation_api.orc.format.tail import parse_tail
from mutation_api.read.directory_scan import open_directory
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import TableView
from mutation_api.upkeep.verify.verify import verify_view
from tests.fuzz.damage import damaged_bytes, damaged_message, odd_number
from tests.support.golden_tables import GOLDEN_TABLES, GoldenTable
from tests.support.orc_parts import message, parts_of, tree_of
from tests.support.orc_stripes import changed_stripe, damaged_row_index
from tests.unit.upkeep.verify.damages import with_rows
from tests.unit.upkeep.verify.sound_tables import LAYOUTS, SoundTable, view_of, write_file

FileDamage = Callable[[random.Random, bytes], bytes]


class UnseenDamageError(Exception):
    """Other rows than before, and verify calls the table sound."""


def orc_case(random: random.Random, damage: FileDamage) -> None:
    """Damage one file of a table, scan it and verify it."""
    name = random.choice((*GOLDEN_TABLES, *(version.value for version in LAYOUTS), *_WIDE * 4))
    sound = _sound(name)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        root = Path(folder) / "t"
        shutil.copytree(sound.root, root)
        path = root / random.choice(sound.files)
        before = path.read_bytes()
        after = damage(random, before)
        path.write_bytes(after)
        view = sound.view(root)
        try:
            rows: pa.Table | None = _rows(view)
            error = ""
        except MutationError as found:
            rows, error = None, str(found)
        report = verify_view(view, threads=1)
        if not report.is_sound or after == before:
            return
        if rows is None:
            if any(f.rule_name == "not-read-here" for f in report.findings):
                return
            raise UnseenDamageError(
                f"{name}, {path.relative_to(root)}: sound for verify, but a scan says {error}"
            )
        differs = _difference(sound.rows, rows) if _has_groups(before) else ""
        if differs:
            raise UnseenDamageError(f"{name}, {path.relative_to(root)}: {differs}")


def _has_groups(file: bytes) -> bool:
    """Whether a file has groups of rows: Hive's minor compactions before 4 write none, and record nothing."""
    return bool(dict(tree_of(parts_of(file).footer)).get(8, 0))


class _Sound:
    """A sound table, and its rows."""

    def __init__(self, name: str) -> None:
        if name in GOLDEN_TABLES:
            golden = GoldenTable(name)
            self.root, self.view = golden.folder / "data", golden.view
        elif name in _WIDE:
            self.root = Path(tempfile.mkdtemp(prefix="fuzz-sound-"))
            _write_wide(self.root, name.removeprefix("wide-"))
            self.view = lambda root: open_directory(root, WIDE_COLUMNS, num_buckets=1, acid_version="2")
        else:
            version = next(each for each in LAYOUTS if each.value == name)
            self.root = Path(tempfile.mkdtemp(prefix="fuzz-sound-"))
            SoundTable(self.root, version)
            self.view = lambda root: view_of(root, version)
        self.rows = _rows(self.view(self.root))
        self.files = sorted(
            str(path.relative_to(self.root))
            for path in self.root.rglob("*")
            if path.is_file() and path.read_bytes()[:3] == b"ORC"
        )


_WIDE = ("wide-uncompressed", "wide-zlib", "wide-snappy", "wide-lz4", "wide-zstd")
WIDE_COLUMNS = (
    "b boolean, t tinyint, i int, l bigint, f float, d double, e decimal(9,2), g decimal(38,10), s string, "
    "k string, day date, at timestamp, x binary, a array<int>, m map<string,bigint>, r struct<y:int,z:string>"
)


def wide_rows() -> pa.Table:
    """Rows of :data:`WIDE_COLUMNS`, some with nulls; column l is 7 times the row's number."""
    rows = [_wide_row(random.Random(number), number) for number in range(2500)]
    columns = dict(zip(_WIDE_TYPES.names, zip(*rows, strict=True), strict=True))
    arrays = [pa.array(values, _WIDE_TYPES.field(name).type) for name, values in columns.items()]
    return pa.Table.from_arrays(arrays, schema=_WIDE_TYPES)


def _write_wide(root: Path, compression: str) -> None:
    """A table with a column of each type, whose file has several row groups."""
    rows = wide_rows()
    array = rows.to_struct_array().combine_chunks()
    events = [(0, 1, 1 << 29, number, 1, {"id": 0, "msg": ""}) for number in range(len(rows))]
    path = root / "delta_0000001_0000001_0000" / "bucket_00000"
    write_file(path, AcidVersion.V2_HIVE4, events, change=with_rows(lambda _: array), compression=compression)


_WIDE_TYPES = pa.schema(
    [
        *(("b", pa.bool_()), ("t", pa.int8()), ("i", pa.int32()), ("l", pa.int64())),
        *(("f", pa.float32()), ("d", pa.float64()), ("e", pa.decimal128(9, 2)), ("g", pa.decimal128(38, 10))),
        *(("s", pa.string()), ("k", pa.string()), ("day", pa.date32()), ("at", pa.timestamp("ns"))),
        *(("x", pa.binary()), ("a", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int64()))),
        ("r", pa.struct([("y", pa.int32()), ("z", pa.string())])),
    ]
)


def _wide_row(random: random.Random, number: int) -> tuple[Any, ...]:
    small = random.randrange(-100, 100)
    values = (
        *(small > 0, small, random.randrange(-(2**31), 2**31), number * 7, small / 4, random.gauss(0, 1e6)),
        *(Decimal(small) / 100, Decimal(random.randrange(10**20)) / 10**10, f"text {number}", f"key {small}"),
        *(20_000 + small, number * 10**9, random.randbytes(5), list(range(small % 4))),
        *({"a": number, f"b{small}": small}, {"y": small, "z": str(number)}),
    )
    return tuple(None if random.random() < 0.05 else value for value in values)


@functools.cache
def _sound(name: str) -> _Sound:
    return _Sound(name)


def _rows(view: TableView) -> pa.Table:
    return TableScan(view, threads=1, truncate_nanoseconds=True).to_arrow()


def _difference(before: pa.Table, after: pa.Table) -> str:
    """What became of the rows that verify could see; '' if nothing."""
    if len(before) != len(after):
        return f"{len(after)} rows instead of {len(before)}"
    for name in before.schema.names:
        pairs = zip(before.column(name).to_pylist(), after.column(name).to_pylist(), strict=True)
        # A column of another name in the file was dropped from the table, and the table's is new: it is NULL.
        differs = any(new is not None and repr(old) != repr(new) for old, new in pairs)
        if differs and not _has_no_sum(before.column(name)):
            return f"column {name} has other values"
    return ""


def _has_no_sum(column: pa.ChunkedArray) -> bool:
    """Whether a file records no sum of a column, so that values between the least and greatest may change.

    The sum of NaN and anything is NaN.
    """
    data_type = column.type
    if pa.types.is_floating(data_type):
        return pc.all(pc.is_finite(column)).as_py() is False
    tests = (
        pa.types.is_string,
        pa.types.is_binary,
        pa.types.is_date,
        pa.types.is_timestamp,
        pa.types.is_nested,
    )
    return any(test(data_type) for test in tests)


# -- what is done to a file ----------------------------------------------------------------------------------
def _anywhere(random: random.Random, data: bytes) -> bytes:
    return damaged_bytes(random, data)


def _postscript(random: random.Random, data: bytes) -> bytes:
    parts = parts_of(data)
    text = message(parts.postscript)
    changed = damaged_message(random, text)[:255]
    return data[: -1 - len(text)] + changed + bytes([len(changed)])


def _footer(random: random.Random, data: bytes) -> bytes:
    parts = parts_of(data)
    parts.footer = damaged_message(random, parts.footer)
    return parts.joined()


def _statistics(random: random.Random, data: bytes) -> bytes:
    parts = parts_of(data)
    parts.statistics = damaged_message(random, parts.statistics)
    return parts.joined()


def _bomb(random: random.Random, data: bytes) -> bytes:
    """A footer that unpacks to very much."""
    parts = parts_of(data)
    block = random.choice((parts.block_bytes, 1 << 23, 1 << 30))
    kind, chunk = random.choice(_bombs())
    known = {2: kind.value, 3: block}
    parts.postscript = [(f, known.get(f, v)) for f, v in parts.postscript]
    packed = (chunk_header(len(chunk), is_original=False) + chunk) * random.choice((1, 30))
    return parts.joined(footer=packed)


@functools.cache
def _bombs() -> list[tuple[Compression, bytes]]:
    zeros, types = bytes(1 << 23), b"\x22\x00" * (1 << 22)
    found = []
    for content in (zeros, types, b"\x1a\x00" * (1 << 22), b"\x2a\x00" * (1 << 22)):
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        found += [
            (Compression.ZLIB, packer.compress(content) + packer.flush()),
            (Compression.ZSTD, pa.compress(content, "zstd", asbytes=True)),
            (Compression.SNAPPY, pa.compress(content, "snappy", asbytes=True)),
            (Compression.LZ4, pa.compress(content, "lz4_raw", asbytes=True)),
        ]
    return found


def _deep_types(random: random.Random, data: bytes) -> bytes:
    parts = parts_of(data)
    count = sum(field == 4 for field, _ in tree_of(parts.footer))
    depth = random.choice((20, 200, 5_000, 50_000))
    kind = random.choice((10, 12, 13))
    types = [
        message([(1, kind), (2, number + 1), (3, b"a")][: 3 if kind == 12 else 2]) for number in range(depth)
    ]
    tree = [(f, v) for f, v in tree_of(parts.footer) if f != 4 or random.random() < 0.5]
    parts.footer = message([*tree, *((4, each) for each in types), (4, b"\x08\x03")][-depth - count :])
    return parts.joined()


def _stripe_footer(random: random.Random, data: bytes) -> bytes:
    def change(streams: list[Any]) -> list[Any]:
        if random.random() < 0.5:
            return [*streams[:-1], (None, damaged_message(random, streams[-1][1]))]
        at = random.randrange(len(streams) - 1)
        head = damaged_message(random, streams[at][0])
        return (
            [*streams[:at], (head, streams[at][1]), *streams[at + 1 :]]
            if _parses(head)
            else streams[::-1][1:] + streams[-1:]
        )

    return changed_stripe(random, data, change)


def _parses(head: bytes) -> bool:
    try:
        return all(isinstance(value, int) for _, value in fields_of(head))
    except (ValueError, IndexError):
        return False


def _stream(random: random.Random, data: bytes) -> bytes:
    """Values that were changed before they were packed: the decompressor sees nothing wrong."""
    tail = parse_tail(data)

    def change(streams: list[Any]) -> list[Any]:
        at = random.randrange(len(streams) - 1)
        head, packed = streams[at]
        plain = unpacked(packed, tail.compression, tail.block_bytes)
        is_index = dict(tree_of(head)).get(1, 0) == 6
        changed = damaged_message(random, plain) if is_index else damaged_bytes(random, plain)
        if tail.compression is not Compression.NONE:
            changed = original_chunks(changed, tail.block_bytes)
        return [*streams[:at], (head, changed), *streams[at + 1 :]]

    return changed_stripe(random, data, change)


def _place(random: random.Random, data: bytes) -> bytes:
    """A stripe's place, lengths or rows in the footer."""
    parts = parts_of(data)
    tree = tree_of(parts.footer)
    at = [i for i, (field, _) in enumerate(tree) if field == 3]
    if not at:
        return damaged_bytes(random, data)
    stripe = tree_of(as_bytes(tree[chosen := random.choice(at)][1]))
    number = random.randrange(len(stripe))
    field, value = stripe[number]
    stripe[number] = (field, odd_number(random, value if isinstance(value, int) else 0))
    tree[chosen] = (3, message(stripe))
    parts.footer = message(tree)
    return parts.joined()


FILE_DAMAGES: dict[str, FileDamage] = {
    "orc-anywhere": _anywhere,
    "orc-postscript": _postscript,
    "orc-footer": _footer,
    "orc-statistics": _statistics,
    "orc-bomb": _bomb,
    "orc-deep-types": _deep_types,
    "orc-stripe-footer": _stripe_footer,
    "orc-stream": _stream,
    "orc-row-index": damaged_row_index,
    "orc-place": _place,
}
