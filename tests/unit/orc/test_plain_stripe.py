"""Stripes that are copied without compression are read as the file itself is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from mutation_api.orc.format import plain_stripe as module
from mutation_api.orc.format.checked_file import checked_stripe
from mutation_api.orc.format.compression import Compression
from mutation_api.orc.format.plain_stripe import PlainStripes, plain_stripe
from mutation_api.orc.format.tail import OrcTail, parse_tail, tail_of
from mutation_api.orc.format.type_tree import numbers_of_columns
from tests.unit.orc.encoded_files import CODECS, orc_file

ZLIB = Compression.ZLIB
GOLDEN = Path(__file__).parents[2] / "golden"
FILES = sorted(
    each
    for each in GOLDEN.glob("acid*/**/*")
    if each.is_file()
    and each.read_bytes()[:3] == b"ORC"
    and tail_of(pa.OSFile(str(each))).compression == ZLIB
)


@pytest.fixture(autouse=True)
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also copy small stripes."""
    monkeypatch.setattr(module, "_LEAST_BYTES", 1)


def copied(data: bytes, index: int, columns: list[str]) -> PlainStripes | None:
    """The copy of columns of a stripe."""
    stream = pa.BufferReader(data)
    tail = tail_of(stream)
    numbers = numbers_of_columns(tail.types, tuple(columns))
    return plain_stripe(stream, tail, checked_stripe(stream, tail, index), index, numbers)


def result(file: orc.ORCFile, index: int, names: list[str]) -> pa.RecordBatch | str:
    """The rows of a stripe, or the reason why pyarrow cannot hold them: years that nanoseconds cannot."""
    try:
        return file.read_stripe(index, columns=names)
    except pa.ArrowInvalid as error:
        return str(error)


def stripes(data: bytes) -> Iterator[tuple[int, OrcTail]]:
    """The numbers of the stripes, and the tail."""
    tail = tail_of(pa.BufferReader(data))
    yield from ((index, tail) for index in range(len(tail.stripes)))


def test_the_golden_files_are_there() -> None:
    """Those that Hive 2.3 and 4 wrote."""
    assert {each.relative_to(GOLDEN).parts[0] for each in FILES} == {"acid", "acid_v4"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(GOLDEN)))
def test_stripes_of_hive_are_equal(file: Path) -> None:
    """All columns of the file, and the tail says the same of types, writer and calendar."""
    data = file.read_bytes()
    whole = orc.ORCFile(pa.BufferReader(data))
    names = [each.name for each in whole.schema]
    for index, tail in stripes(data):
        found = copied(data, index, names)
        assert found is not None
        read = orc.ORCFile(pa.BufferReader(found.file))
        assert result(read, 0, names) == result(whole, index, names)
        parsed = parse_tail(found.file.to_pybytes())
        assert (parsed.types, parsed.row_count) == (tail.types, tail.stripes[index].row_count)
        assert (parsed.is_proleptic, parsed.version) == (tail.is_proleptic, tail.version)
        assert (parsed.writer, parsed.writer_version) == (tail.writer, tail.writer_version)
        stream = pa.BufferReader(found.file)
        assert checked_stripe(stream, parsed, 0) == found.footers[0]


@pytest.mark.parametrize("codec", CODECS)
def test_only_zlib_is_copied(codec: str) -> None:
    """Pyarrow decodes the others as fast; a copy has only the wanted columns, each stripe its own rows."""
    data = orc_file(codec, rows=30_000, stripe_bytes=16 * 1024)
    tail = tail_of(pa.BufferReader(data))
    if codec != "zlib":
        assert copied(data, 0, ["s"]) is None
        return
    assert len(tail.stripes) > 2
    whole = orc.ORCFile(pa.BufferReader(data))
    for index, _ in stripes(data):
        found = copied(data, index, ["s"])
        assert found is not None
        assert {each.column for each in found.footers[0].streams} == {2}
        read = orc.ORCFile(pa.BufferReader(found.file)).read_stripe(0, columns=["s"])
        assert read.equals(whole.read_stripe(index, columns=["s"]))


def test_the_memory_of_a_copy_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stripe that may be larger is left to pyarrow, which inflates piece by piece."""
    data = orc_file("zlib", rows=1000)
    assert copied(data, 0, ["a", "s"]) is not None
    block = tail_of(pa.BufferReader(data)).block_bytes
    monkeypatch.setattr(module, "MOST_BYTES", block - 1)
    assert copied(data, 0, ["a", "s"]) is None


@pytest.mark.parametrize("seed", range(40))
def test_damaged_bytes_are_left_to_the_decoder(seed: int) -> None:
    """There is no copy, or it has other values: nothing is raised, and nothing is read outside the stripe."""
    rng = random.Random(seed)
    data = bytearray(orc_file("zlib", rows=2000))
    (stripe,) = tail_of(pa.BufferReader(bytes(data))).stripes
    start = stripe.offset + stripe.index_length
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(start, start + stripe.data_length)] = rng.randrange(256)
    found = copied(bytes(data), 0, ["a", "s"])
    assert found is None or found.tail.row_count == 2000
