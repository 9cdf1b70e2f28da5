"""Properties of the bucket hash: independent models, and no influence of how Arrow lays the values out."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mutation_api.format.bucket_hash import bucket_ids, hash_columns
from mutation_api.format.hive_type import HiveType, arrow_type, parse_hive_type
from tests.property.strategies import scalar_types, scalar_values

MASK = 0xFFFFFFFF


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def polynomial(values: list[int], seed: int) -> int:
    result = seed
    for value in values:
        result = (31 * result + value) & MASK
    return signed(result)


def rotate(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (32 - bits))) & MASK


def murmur(key: bytes) -> int:
    """Hive's Murmur3 one byte string at a time, written from its description."""
    result = 104729

    def scrambled(word: int) -> int:
        return rotate(word * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK

    whole = len(key) // 4 * 4
    for place in range(0, whole, 4):
        result ^= scrambled(int.from_bytes(key[place : place + 4], "little"))
        result = (rotate(result, 13) * 5 + 0xE6546B64) & MASK
    tail = 0
    for place, byte in enumerate(key[whole:]):
        tail ^= signed(byte, 8) << (8 * place)
    if len(key) > whole:
        result ^= scrambled(tail & MASK)
    result ^= len(key)
    result = (result ^ result >> 16) * 0x85EBCA6B & MASK
    result = (result ^ result >> 13) * 0xC2B2AE35 & MASK
    return signed(result ^ result >> 16)


def hashes(array: pa.Array | pa.ChunkedArray, hive_type: HiveType, version: int) -> list[int]:
    return hash_columns([array], [hive_type], version, "UTC").tolist()


@given(st.lists(st.binary(max_size=30)), st.integers(0, 5))
def test_strings_of_bytes_hash_as_the_models_say(values: list[bytes], skipped: int) -> None:
    """Version 1 is a polynomial over signed bytes (binary: from 1), version 2 murmur with the signed tail."""
    array = pa.array([b"skipped"] * skipped + values, pa.binary())[skipped:]
    binary = HiveType("binary")
    assert hashes(array, binary, 1) == [polynomial([signed(b, 8) for b in value], 1) for value in values]
    texts = [value.decode("latin-1") for value in values]
    expected = [murmur(text.encode("utf-8")) for text in texts]
    assert hashes(pa.array(texts, pa.string()), HiveType("string"), 2) == expected


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_bigints_hash_as_the_models_say(values: list[int]) -> None:
    """Version 1 folds the halves, version 2 is murmur over eight bytes, high byte first."""
    array = pa.array(values, pa.int64())
    assert hashes(array, HiveType("bigint"), 1) == [signed(v ^ (v & 2**64 - 1) >> 32) for v in values]
    assert hashes(array, HiveType("bigint"), 2) == [murmur(v.to_bytes(8, "big", signed=True)) for v in values]


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_decimals_hash_without_the_zeros_of_their_fraction(unscaled: int, scale: int) -> None:
    """1.5, 1.50 and 1.500 have one hash; version 2 hashes the shortest two's complement of the digits."""
    array = pa.array([unscaled.to_bytes(16, "little", signed=True)], pa.binary(16)).view(
        pa.decimal128(38, scale)
    )
    while scale and unscaled % 10 == 0:
        unscaled, scale = unscaled // 10, scale - 1
    magnitude = abs(unscaled)
    words = [magnitude >> shift & MASK for shift in (96, 64, 32, 0)]
    sign = -1 if unscaled < 0 else 1
    first = signed(31 * sign * polynomial(words, 0) + (scale if unscaled else 0))
    length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    second = murmur(unscaled.to_bytes(length, "big", signed=True))
    hive_type = HiveType("decimal", precision=38, scale=array.type.scale)
    assert (hashes(array, hive_type, 1), hashes(array, hive_type, 2)) == ([first], [second])


@st.composite
def columns(draw: st.DrawFn) -> tuple[HiveType, list[object]]:
    hive_type = draw(scalar_types())
    return hive_type, draw(st.lists(st.none() | scalar_values(hive_type), max_size=12))


@pytest.mark.thorough
@pytest.mark.parametrize("version", [1, 2])
@given(columns(), st.integers(0, 4))
def test_layout_of_the_array_does_not_matter(
    version: int, drawn: tuple[HiveType, list[object]], skipped: int
) -> None:
    """Slices, chunks, dictionaries and 64-bit offsets hash like the plain array; a null hashes to 0."""
    hive_type, values = drawn
    if hive_type.kind == "binary" and version == 2:
        return
    plain = pa.array(values, arrow_type(hive_type, timestamp_unit="us"))
    expected = hashes(plain, hive_type, version)
    assert all(found == 0 for found, value in zip(expected, values, strict=True) if value is None)
    assert hashes(plain[skipped:], hive_type, version) == expected[skipped:]
    assert (
        hashes(pa.chunked_array([plain[:skipped], plain[skipped:]], plain.type), hive_type, version)
        == expected
    )
    assert hashes(plain.dictionary_encode(), hive_type, version) == expected
    if pa.types.is_string(plain.type):
        assert hashes(plain.cast(pa.large_string()), hive_type, version) == expected
        assert hashes(plain.cast(pa.string_view()), hive_type, version) == expected


@given(
    st.lists(st.none() | st.lists(st.none() | st.text(max_size=6), max_size=5), max_size=8), st.integers(0, 3)
)
def test_arrays_combine_the_hashes_of_their_elements(
    rows: list[list[str | None] | None], skipped: int
) -> None:
    """An array is the polynomial over its elements' hashes, for lists of every layout."""
    element, hive_type = HiveType("string"), parse_hive_type("array<string>")
    for version in (1, 2):
        expected = [
            0
            if row is None
            else polynomial(hashes(pa.array(row, pa.string()), element, version) if row else [], 0)
            for row in rows[skipped:]
        ]
        for kind in (pa.list_, pa.large_list, pa.list_view):
            assert hashes(pa.array(rows, kind(pa.string()))[skipped:], hive_type, version) == expected


@given(st.lists(st.none() | st.dictionaries(st.integers(-9, 9), st.none() | st.text(max_size=3)), max_size=6))
def test_the_order_of_a_map_does_not_matter(rows: list[dict[int, str | None] | None]) -> None:
    """A map is a sum over its entries, so its order is of no account."""
    hive_type = parse_hive_type("map<int,string>")
    forth = pa.array([None if row is None else list(row.items()) for row in rows], arrow_type(hive_type))
    back = pa.array([None if row is None else list(row.items())[::-1] for row in rows], arrow_type(hive_type))
    for version in (1, 2):
        assert hashes(forth, hive_type, version) == hashes(back, hive_type, version)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(-(2**31), 2**31 - 1), st.text(max_size=4))),
    st.integers(0, 3),
)
def test_a_union_hashes_the_value_that_it_holds(rows: list[tuple[int, int, str]], skipped: int) -> None:
    """Sparse and dense unions hash alike; the tag is not part of it."""
    hive_type = parse_hive_type("uniontype<int,string>")
    tags = pa.array([tag for tag, _, _ in rows], pa.int8())
    numbers, words = (
        pa.array([n for _, n, _ in rows], pa.int32()),
        pa.array([w for *_, w in rows], pa.string()),
    )
    sparse = pa.UnionArray.from_sparse(tags, [numbers, words])
    dense = pa.UnionArray.from_dense(tags, pa.array(range(len(rows)), pa.int32()), [numbers, words])
    for version in (1, 2):
        held = [hashes(numbers, HiveType("int"), version), hashes(words, HiveType("string"), version)]
        expected = [held[tag][row] for row, (tag, _, _) in enumerate(rows)][skipped:]
        assert hashes(sparse[skipped:], hive_type, version) == expected
        assert hashes(dense[skipped:], hive_type, version) == expected


@given(st.lists(st.integers(-(2**31), 2**31 - 1)), st.integers(1, 4096))
def test_buckets_are_in_range(values: list[int], num_buckets: int) -> None:
    """0 <= bucket < num_buckets, by Java's rule."""
    found = bucket_ids(hash_columns([pa.array(values, pa.int32())], [HiveType("int")], 1), num_buckets)
    assert found.tolist() == [(value & 0x7FFFFFFF) % num_buckets for value in values]


def test_long_values_cross_the_steps_of_the_polynomial() -> None:
    """A value longer than a step, among short ones, hashes like the model."""
    values = [b"x", bytes(range(256)) * 200, b"", b"yz" * 40_000, b"end"]
    expected = [polynomial([signed(b, 8) for b in value], 1) for value in values]
    assert hashes(pa.array(values), HiveType("binary"), 1) == expected


def test_many_values_cross_the_steps_of_the_polynomial() -> None:
    """Runs that touch, runs with gaps between them and lists, over many steps, hash like the model."""
    lengths = [place * 7919 % 61 for place in range(5_000)]
    texts = [("\u00e9x " * length)[:length] for length in lengths]
    stripped = [text.rstrip(" ").encode() for text in texts]
    char = parse_hive_type("char(60)")
    assert hashes(pa.array(texts), HiveType("string"), 1) == [
        polynomial([signed(b, 8) for b in text.encode()], 0) for text in texts
    ]
    assert hashes(pa.array(texts), char, 1) == [
        polynomial([signed(b, 8) for b in text], 1) for text in stripped
    ]
    numbers = [list(range(-length, length)) for length in lengths]
    assert hashes(pa.array(numbers, pa.list_(pa.int32())), parse_hive_type("array<int>"), 1) == [
        polynomial(row, 0) for row in numbers
    ]
