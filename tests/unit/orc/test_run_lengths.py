"""Runs of lengths and tags: what writers make passes, and what would end a decoder does not."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from mutation_api.orc.format.checked_file import open_orc
from mutation_api.orc.format.run_lengths import check_lengths, check_tags

BAD_2 = {
    "falling below zero": "c1ff 02 03",  # 512 values from 2 by steps of -2
    "falling by other steps": "c402 05 01 ff",
    "of 64 bits": "7e00 8000000000000000",
    "one of 8 bytes, repeated": "38 8000000000000000",
    "a base of 63 bits": "c002 ffffffffffffffff7f 00",
    "a negative base": "8001 0001 80 00 00",
}
BAD_1 = {
    "falling below zero": "7f80 05",
    "a literal of 63 bits": "ff ffffffffffffffff7f",
    "cut off": "fe 01",
}


@pytest.mark.parametrize("name", BAD_2)
def test_runs_of_version_2_that_are_no_lengths(name):
    with pytest.raises((ValueError, IndexError)):
        check_lengths(bytes.fromhex(BAD_2[name]), is_version_2=True)


@pytest.mark.parametrize("name", BAD_1)
def test_runs_of_version_1_that_are_no_lengths(name):
    with pytest.raises((ValueError, IndexError)):
        check_lengths(bytes.fromhex(BAD_1[name]), is_version_2=False)


def test_the_examples_of_the_specification_pass():
    """Short repeat, direct, patched base and delta of version 2; a run and literals of version 1."""
    check_lengths(bytes.fromhex("0a2710 5e035ca1ab1edeadbeef"), is_version_2=True)
    check_lengths(
        bytes.fromhex("8e13 2b21 07d0 1e0014 70282c32363a40464a50545a5e646869 6e fc e8"), is_version_2=True
    )
    check_lengths(bytes.fromhex("c609 02 02 2242 42 46"), is_version_2=True)
    check_lengths(bytes.fromhex("61 00 07 fb 02 03 06 07 0b"), is_version_2=False)


@pytest.mark.parametrize("seed", range(30))
def test_lengths_of_real_writers_pass(seed):
    """Texts, lists and maps of all sizes, steady, growing, falling and with outliers."""
    choose = random.Random(seed)
    count = choose.choice((1, 3, 600, 3000))
    ways = (
        lambda n: 7,
        lambda n: n % 200,
        lambda n: 3000 - n,
        lambda n: choose.randrange(9),
        lambda n: choose.choice((1, 2, 3, 3, 2, 500 if n % 97 == 0 else 1)),
    )
    way = choose.choice(ways)
    sizes = [way(n) for n in range(count)]
    texts = pa.array(["x" * size if n % 11 else None for n, size in enumerate(sizes)], pa.string())
    lists = pa.array([[1] * (size % 50) for size in sizes], pa.list_(pa.int8()))
    sink = io.BytesIO()
    table = pa.table({"s": texts, "l": lists})
    orc.write_table(table, sink, compression=choose.choice(("zlib", "uncompressed")))
    read = open_orc(pa.BufferReader(sink.getvalue())).read()
    assert read.to_pydict() == table.to_pydict()


def test_tags_of_a_union():
    check_tags(bytes.fromhex("6100 fe0001"), 2)
    for wrong in ("6102", "fe0002", "fe01ff"):
        with pytest.raises(ValueError, match="the tag"):
            check_tags(bytes.fromhex(wrong), 2)
