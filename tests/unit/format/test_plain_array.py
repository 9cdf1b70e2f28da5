"""What types hold, and the plain form of arrays of every encoding."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from mutation_api.format.hive_type import UnfitTypeError
from mutation_api.format.plain_array import has_timestamp, plain_array, refused_type

CLOCK = pa.timestamp("us")


@pytest.mark.parametrize(
    "arrow",
    [
        CLOCK,
        pa.list_(CLOCK),
        pa.map_(pa.string(), pa.struct([("a", pa.list_(CLOCK))])),
        pa.map_(CLOCK, pa.int8()),
        pa.dense_union([pa.field("a", pa.int8()), pa.field("b", CLOCK)]),
    ],
    ids=str,
)
def test_a_timestamp_is_found_at_any_depth(arrow: pa.DataType) -> None:
    """In lists, keys and values of maps, structs and unions."""
    assert has_timestamp(arrow)


@pytest.mark.parametrize(
    "arrow", [pa.date64(), pa.time64("us"), pa.list_(pa.string()), pa.struct([("a", pa.int64())])], ids=str
)
def test_other_types_have_none(arrow: pa.DataType) -> None:
    """Not even those that tell days or times of day."""
    assert not has_timestamp(arrow)


ONE, TWO = uuid.UUID(int=1), uuid.UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
UUIDS = pa.array([ONE.bytes, None, TWO.bytes], pa.uuid())
TEXTS = ["a", None, "b"]
VIEWS = pa.array(TEXTS, pa.string_view())
NUMBERS = [Decimal("1.50"), None, Decimal("-2.00")]
PLAIN: dict[str, tuple[pa.Array, list[Any]]] = {
    "uuid": (UUIDS, [str(ONE), None, str(TWO)]),
    "json": (pa.array(['{"a": 1}', None, "3"], pa.json_(pa.large_string())), ['{"a": 1}', None, "3"]),
    "bool8": (
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, None, 5], pa.int8())),
        [False, None, True],
    ),
    "dictionary": (pa.array(TEXTS).dictionary_encode(), TEXTS),
    "dictionary of views": (pa.DictionaryArray.from_arrays([0, None, 2], VIEWS), TEXTS),
    "dictionary of uuids": (pa.DictionaryArray.from_arrays([2, 1, 2], UUIDS), [str(TWO), None, str(TWO)]),
    "dictionary of dictionaries": (
        pa.DictionaryArray.from_arrays([0, 1, 2], pa.array(TEXTS).dictionary_encode()),
        TEXTS,
    ),
    "runs of views": (pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int16()), VIEWS), TEXTS),
    "runs of uuids": (
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int64()), UUIDS[1:]),
        [None, str(TWO), str(TWO)],
    ),
    "string_view": (VIEWS, TEXTS),
    "binary_view": (pa.array([b"a", None, b"b"], pa.binary_view()), [b"a", None, b"b"]),
    "list_view": (pa.array([["a"], None, []], pa.list_view(pa.string_view())), [["a"], None, []]),
    "large_list_view": (pa.array([["a"], None, []], pa.large_list_view(pa.string())), [["a"], None, []]),
    "decimal32": (pa.array(NUMBERS, pa.decimal32(5, 2)), NUMBERS),
    "decimal64": (pa.array(NUMBERS, pa.decimal64(12, 2)), NUMBERS),
    "halffloat": (pa.array([1.5, None, -2.0], pa.float16()), [1.5, None, -2.0]),
}


@pytest.mark.parametrize("name", PLAIN)
def test_every_encoding_has_a_plain_form(name: str) -> None:
    """Alone, sliced, in chunks, and in lists, structs and maps with nulls."""
    array, expected = PLAIN[name]
    plain = plain_array(array)
    assert plain.to_pylist() == expected
    assert plain_array(plain) is plain
    assert plain_array(array[1:]).to_pylist() == expected[1:]
    assert plain_array(array[:0]).type == plain.type == plain_array(pa.nulls(0, array.type)).type
    assert plain_array(pa.chunked_array([array, array[2:]])).to_pylist() == expected + expected[2:]
    offsets = pa.array([0, None, 2, 3], pa.int32())
    wanted = [expected[:2], None, expected[2:]]
    lists = pa.ListArray.from_arrays(offsets, array)
    assert plain_array(lists).to_pylist() == wanted
    assert plain_array(lists[1:]).to_pylist() == wanted[1:]
    structs = pa.StructArray.from_arrays([array], names=["f"], mask=pa.array([True, False, False]))
    assert plain_array(structs).to_pylist() == [None, {"f": expected[1]}, {"f": expected[2]}]
    maps = pa.MapArray.from_arrays(pa.array([0, None, 2, 3], pa.int32()), pa.array([1, 2, 3]), array)
    pairs = [[(1, expected[0]), (2, expected[1])], None, [(3, expected[2])]]
    assert plain_array(maps).to_pylist() == pairs
    assert plain_array(maps[1:]).to_pylist() == pairs[1:]
    assert plain_array(pa.nulls(0, maps.type)).type == plain_array(maps).type


def test_many_uuids_are_sliced_rightly() -> None:
    """The bytes of the slice, not of the whole."""
    many = [uuid.UUID(int=number * 0x1234567890ABCDEF1234567) for number in range(100)]
    array = pa.array([each.bytes for each in many], pa.uuid())
    assert plain_array(array[37:]).to_pylist() == [str(each) for each in many[37:]]


STORED = pa.array([[1, 2]], pa.list_(pa.int32(), 2))
REFUSED: dict[str, pa.Array] = {
    "opaque": pa.ExtensionArray.from_storage(pa.opaque(pa.binary(), "bignum", "DuckDB"), pa.array([b"5"])),
    "tensor": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), [2]), STORED),
    "refused": pa.nulls(1, refused_type("BIT", "a BIT is not binary")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_storage_of_another_extension_type_is_not_its_value(name: str) -> None:
    """At any depth; the message has the type."""
    array = REFUSED[name]
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), array)
    for each in (array, pa.DictionaryArray.from_arrays([0], array), pa.chunked_array([array])):
        with pytest.raises(UnfitTypeError, match="is not"):
            plain_array(each)
    with pytest.raises(UnfitTypeError) as caught:
        plain_array(pa.StructArray.from_arrays([lists], names=["f"]))
    assert caught.value.path == ", field 'f', element"


def test_an_extension_type_that_only_metadata_name() -> None:
    """So comes a type that is not registered in this process."""
    point = {b"ARROW:extension:name": b"geoarrow.point"}
    with pytest.raises(UnfitTypeError, match=r"extension<geoarrow\.point>"):
        plain_array(pa.array([b"x"]), point)
    nested = pa.list_(pa.field("item", pa.binary(), metadata=point))
    with pytest.raises(UnfitTypeError, match=r"geoarrow\.point.*stored as binary"):
        plain_array(pa.array([[b"x"]], nested))
    known = {b"ARROW:extension:name": b"arrow.bool8"}
    assert plain_array(pa.array([0, 2], pa.int8()), known).to_pylist() == [False, True]
