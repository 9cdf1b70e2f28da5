"""Runs of lengths and tags: what writers make passes, and what would end a decoder does not."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.checked_file import open_orc
from mutation_api.orc.format.run_lengths import check_lengths, check_scales, check_tags, sum_of_lengths
from tests.support.orc_parts import tree_of
from tests.support.orc_stripes import changed_stripe

BAD_2 = {
    "falling below zero": "c1ff 02 03",  # 512 values from 2 by steps of -2
    "falling by other steps": "c402 05 01 ff",
    "a delta of one value": "c400 05 01",
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


@pytest.mark.parametrize(
    ("data", "values", "is_version_2"),
    [
        ("0a2710", [10_000] * 5, True),
        ("5e035ca1ab1edeadbeef", [23713, 43806, 57005, 48879], True),
        (
            "8e13 2b21 07d0 1e0014 7028323c46505a646e78828c96a0aab4be fce8",
            [2030, 2000, 2020, 1_000_000, *range(2040, 2200, 10)],
            True,
        ),
        ("c609 02 02 2242 42 46", [2, 3, 5, 7, 11, 13, 17, 19, 23, 29], True),
        ("c009 14 01", [20 - n for n in range(10)], True),
        ("6100 07", [7] * 100, False),
        ("61ff 64", list(range(100, 0, -1)), False),
        ("fb 02 03 06 07 0b", [2, 3, 6, 7, 11], False),
    ],
)
def test_sums(data, values, is_version_2):
    """The bound is not below the sum."""
    text = bytes.fromhex(data)
    assert sum_of_lengths(text, is_version_2=is_version_2) == sum(values)
    assert check_lengths(text, is_version_2=is_version_2) >= sum(values)


BAD_SCALES = {
    "-11, repeated": ("02 15", True),
    "-1 among others": ("4603 64 16", True),
    "-1 as the last, before padding": ("4402 4880", True),
    "512 from -1": ("c1ff 01 00", True),
    "falling below zero": ("c1ff 08 03", True),
    "a negative base": ("8001 0001 80 00 00", True),
    "of 16 bits": ("5e00 1000", True),
    "4096, repeated": ("08 2000", True),
    "-1 in a literal": ("fe 04 01", False),
    "from -1": ("7f00 01", False),
    "far above 38": ("ff 8020", False),
}


@pytest.mark.parametrize("name", BAD_SCALES)
def test_scales_that_would_keep_a_decoder_busy(name):
    data, is_version_2 = BAD_SCALES[name]
    with pytest.raises(ValueError, match=r"scales from|negative values"):
        check_scales(bytes.fromhex(data), is_version_2=is_version_2)


@pytest.mark.parametrize("data", ["02 14", "4603 6420", "4c0f 993264c993264c993264c993264c", "c1ff 1400"])
def test_scales_of_runs_of_version_2(data):
    """Ten, repeated; some in four bits; some in seven bits; 512 times ten."""
    check_scales(bytes.fromhex(data), is_version_2=True)


@pytest.mark.parametrize("data", ["7f00 14", "fb 02 04 06 08 4c"])
def test_scales_of_runs_of_version_1(data):
    check_scales(bytes.fromhex(data), is_version_2=False)


def test_a_decimal_of_a_negative_scale_is_refused():
    """ORC's C++ library would divide by ten 4 thousand million times, for each value."""
    file = io.BytesIO()
    orc.write_table(pa.table({"a": pa.array([1, 2, 3], pa.decimal128(38, 10))}), file)

    def change(streams):
        return [(h, b"\x00\x15" if h and dict(tree_of(h)).get(1) == 5 else text) for h, text in streams]

    damaged = changed_stripe(random.Random(0), file.getvalue(), change)
    with pytest.raises(CorruptFileError, match="scales from -11 to -11"):
        open_orc(pa.BufferReader(damaged))


@pytest.mark.parametrize("value", [["x", "yz"], [[1], [2, 3]], [[("a", 1)], []]])
def test_lengths_that_add_up_to_more_than_there_is_are_refused(value):
    """ORC's C++ library takes the memory first, and ends the process if it gets none."""
    kinds = {str: pa.string(), int: pa.list_(pa.int64()), tuple: pa.map_(pa.string(), pa.int64())}
    kind = kinds[str if isinstance(value[0], str) else type(value[0][0])]
    sink = io.BytesIO()
    orc.write_table(pa.table({"a": pa.array(value * 5000, kind)}), sink, compression="zlib")

    def change(streams):
        lengths = next(at for at, (h, _) in enumerate(streams) if dict(tree_of(h)).get(1, 0) == 2)
        plain = bytes.fromhex("77ff" + "7fffffff" * 512) * 20  # runs of 512 values
        chunk = (len(plain) << 1 | 1).to_bytes(3, "little") + plain
        return [*streams[:lengths], (streams[lengths][0], chunk), *streams[lengths + 1 :]]

    damaged = changed_stripe(random.Random(0), sink.getvalue(), change)
    with pytest.raises(CorruptFileError, match="the lengths of column 1 add up to 2199"):
        open_orc(pa.BufferReader(damaged))


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
        with pytest.raises(ValueError, match=r"tag \d+ in a union"):
            check_tags(bytes.fromhex(wrong), 2)
