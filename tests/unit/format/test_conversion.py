"""Conversion to a column's type: what each type accepts, and how refusals read."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.format.bucket_hash import hash_columns
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.hive_type import arrow_type, parse_hive_type

NS = pa.timestamp("ns")
UNION = pa.UnionArray.from_sparse(
    pa.array([0, 1, 1, 0], pa.int8()), [pa.array([1, 2, 3, 4]), pa.array(["w", "x", "yy", "z"])]
)

NARROW_UNION = pa.UnionArray.from_sparse(
    pa.array([0, 1, 1, 0], pa.int8()), [pa.array([1, 2, 3, 4], pa.int32()), pa.array(["w", "x", "yy", "z"])]
)


def convert(
    values: object, hive_type: str, arrow: pa.DataType | None = None, unit: str = "ns"
) -> list[object]:
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, arrow)
    parsed = parse_hive_type(hive_type)
    found = convert_to_column(array, parsed, column="c", timestamp_unit=unit)
    found.validate(full=True)
    assert found.type == arrow_type(parsed, timestamp_unit=unit)
    return found.to_pylist()


@pytest.mark.parametrize(
    ("hive_type", "values", "arrow", "expected"),
    [
        ("boolean", [True, None], None, [True, None]),
        ("int", [Decimal("12.00"), None], None, [12, None]),
        ("bigint", [1.0 - 2.0**53], None, [1 - 2**53]),
        ("smallint", [7], pa.uint64(), [7]),
        ("float", [0.1], pa.float64(), [0.10000000149011612]),
        ("double", [Decimal("1.5"), None], None, [1.5, None]),
        ("double", [Decimal("999999999.999")], pa.decimal128(12, 3), [999999999.999]),
        ("double", [2**60], pa.int64(), [2.0**60]),
        ("decimal(10,2)", [Decimal("1.005"), Decimal("-1.005")], None, [Decimal("1.01"), Decimal("-1.01")]),
        ("decimal(38,0)", [Decimal("9" * 38)], None, [Decimal("9" * 38)]),
        ("decimal(5,2)", [Decimal("1E+2")], None, [Decimal("100.00")]),
        ("decimal(3,2)", [7, None], pa.int8(), [Decimal("7.00"), None]),
        ("string", [12, None], pa.int64(), ["12", None]),
        ("string", [datetime.date(2020, 1, 2)], None, ["2020-01-02"]),
        ("string", ["a", "b", "a"], pa.large_string(), ["a", "b", "a"]),
        ("string", ["a"], pa.string_view(), ["a"]),
        ("varchar(2)", ["é😀x"], None, ["é😀"]),
        ("char(4)", ["ab  cd", "ab  "], None, ["ab", "ab"]),
        ("binary", [b"ab", None], pa.binary(2), [b"ab", None]),
        ("date", [datetime.datetime(2020, 1, 2), None], NS, [datetime.date(2020, 1, 2), None]),
        ("date", [datetime.date(2020, 1, 2)], pa.date64(), [datetime.date(2020, 1, 2)]),
        ("map<string,int>", [[{"value": 1, "key": "a"}], None, []], None, [[("a", 1)], None, []]),
        (
            "map<string,int>",
            [[("a", 1), ("b", None)]],
            pa.map_(pa.string(), pa.int64()),
            [[("a", 1), ("b", None)]],
        ),
        ("struct<a:int,c:string>", [{"C": None, "A": 1}, None], None, [{"a": 1, "c": None}, None]),
        ("array<array<tinyint>>", [[[1], None], []], None, [[[1], None], []]),
        ("uniontype<int,string>", [None, None], pa.null(), [None, None]),
        ("map<int,int>", [None], pa.null(), [None]),
    ],
)
def test_accepted(
    hive_type: str, values: list[object], arrow: pa.DataType | None, expected: list[object]
) -> None:
    """Values that the column holds without loss, from every family of types."""
    assert convert(values, hive_type, arrow) == expected


def test_timestamps() -> None:
    """Wall clocks of any unit and dates; the unit of the result is the caller's choice."""
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, 6)
    assert convert([moment], "timestamp", pa.timestamp("us")) == [moment]
    assert convert([datetime.date(2020, 1, 2)], "timestamp") == [datetime.datetime(2020, 1, 2)]
    edges = [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)]
    assert convert(edges, "timestamp", unit="us") == edges


def test_layouts() -> None:
    """Dictionaries, runs, chunks and slices hold the same values."""
    assert convert(pa.array(["a", None, "a"]).dictionary_encode(), "string") == ["a", None, "a"]
    assert convert(pa.chunked_array([[1], [None, 3]]), "int") == [1, None, 3]
    assert convert(pa.chunked_array([], pa.int64()), "int") == []
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["x", "y"])
    assert convert(runs, "string") == ["x", "x", "y"]
    assert convert(UNION[1:], "uniontype<int,varchar(1)>") == ["x", "y", 4]
    assert convert(pa.array([[1], [2, 3], None], pa.list_view(pa.int64()))[1:], "array<int>") == [
        [2, 3],
        None,
    ]


@pytest.mark.parametrize(
    ("hive_type", "values", "arrow", "message"),
    [
        ("tinyint", [1, None, 300], None, "row 2: value 300 is not a whole number from -128 to 127"),
        ("bigint", [2**63], pa.uint64(), "row 0: value 9223372036854775808 "),
        ("int", [float("nan")], None, "row 0: value nan"),
        ("int", [None, Decimal("1.5")], None, r"row 1: value Decimal\('1.5'\)"),
        ("float", [1.0, 1e300], None, "row 1: value 1e[+]300 is too large for a float"),
        ("bigint", [1.0, 2.0**53], None, r"row 1: value 9007199254740992.0 may be a rounded number"),
        ("bigint", [-(2.0**24)], pa.float32(), r"represents integers exactly only below 2\*\*24"),
        ("decimal(38,2)", [2.0**60], None, "row 0: .*may be a rounded number"),
        ("array<bigint>", [[1.0], [2.0**63]], None, "row 1, element: value"),
        ("array<bigint>", [[1.0], [2.0**60]], None, "row 1, element: .*may be a rounded number"),
        ("double", [2**53 + 1], None, "row 0: value 9007199254740993 is not exact as a double"),
        ("decimal(4,2)", [Decimal("99.994"), Decimal("99.995")], None, "row 1: .*2 digits before the point"),
        ("decimal(38,38)", [7], None, "row 0: value 7 has more than 0 digits"),
        ("decimal(10,2)", [1.005], None, "row 0: value 1.005 is not exact .*round it first"),
        ("decimal(10,2)", [float("inf")], None, "row 0: value inf"),
        ("date", [datetime.datetime(2020, 1, 2, 1)], None, "row 0: .*not at midnight"),
        ("timestamp", [datetime.datetime(9999, 12, 31)], None, "row 0: .*years 1678 to 2261"),
        ("array<tinyint>", [[1], None, [2, 300]], None, "row 2, element: value 300"),
        ("struct<a:array<tinyint>>", [None, {"a": [400]}], None, "row 1, field 'a', element: value 400"),
        (
            "map<tinyint,string>",
            [[], [{"key": 1, "value": "x"}, {"key": 200, "value": "y"}]],
            None,
            "row 1, key: value 200",
        ),
        ("map<string,tinyint>", [[{"key": "x", "value": 200}]], None, "row 0, value: value 200"),
        ("map<string,int>", [[], [{"key": None, "value": 1}]], None, "row 1: value null cannot be the key"),
    ],
)
def test_values_that_do_not_fit(
    hive_type: str, values: list[object], arrow: pa.DataType | None, message: str
) -> None:
    """The message names the column, its type, the first bad row (of the outermost level) and the value."""
    with pytest.raises(RecordValueError, match=message) as caught:
        convert(values, hive_type, arrow)
    assert str(caught.value).startswith(f"column 'c' ({hive_type}): ")


def test_days_beyond_the_years_1_to_9999_are_refused() -> None:
    """Beyond them Hive releases disagree; Python cannot even print such a date."""
    days = pa.array([0, 2932897], pa.int32()).view(pa.date32())
    with pytest.raises(
        RecordValueError, match=r"row 1: value 2932897 .*9999-12-31.*; rows of the batch are counted from 0$"
    ):
        convert(days, "date")
    with pytest.raises(RecordValueError, match="row 0"):
        convert(pa.array([-719163], pa.int32()).view(pa.date32()), "date")
    with pytest.raises(RecordValueError, match=r"row 0.*years 1 to 9999"):
        convert(pa.array([253402300800], pa.timestamp("s")), "timestamp", unit="us")


def test_what_lies_under_a_null_is_not_looked_at() -> None:
    """Arrow leaves garbage in the slots of nulls and behind slices; it must not make a batch fail."""
    hidden = pa.StructArray.from_arrays([pa.array([300, 1])], ["a"], mask=pa.array([True, False]))
    assert convert(hidden, "struct<a:tinyint>") == [None, {"a": 1}]
    assert convert(pa.array([300, 1])[1:], "tinyint") == [1]
    masked = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x02"), pa.array([300, 1]).buffers()[1]])
    assert convert(masked, "tinyint") == [None, 1]


def test_a_bad_alternative_of_a_union_is_named_by_its_row() -> None:
    """Row 2 holds alternative 0 with a value that does not fit."""
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1, 0], pa.int8()), [pa.array([1, 999, 300]), pa.array(list("abc"))]
    )
    with pytest.raises(RecordValueError, match="row 2, alternative 0: value 300"):
        convert(union, "uniontype<tinyint,string>")


@pytest.mark.parametrize(
    ("hive_type", "values", "arrow", "message"),
    [
        ("boolean", [1], None, "int64 cannot become boolean"),
        ("int", ["1"], None, "string cannot become int"),
        ("int", [True], None, "bool cannot become int"),
        ("double", ["1"], None, "cannot become double"),
        ("decimal(5,2)", ["1"], None, "cannot become decimal"),
        ("string", [True], None, "bool cannot become string"),
        ("string", [1.5], None, "double cannot become string"),
        ("string", [b"x"], None, "binary cannot become string"),
        ("binary", ["x"], None, "string cannot become binary"),
        ("date", ["2020-01-01"], None, "string cannot become date"),
        ("date", [datetime.datetime(2020, 1, 1)], pa.timestamp("us", "UTC"), "are instants"),
        ("timestamp", [datetime.datetime(2020, 1, 1)], pa.timestamp("us", "Europe/Berlin"), "are instants"),
        ("timestamp", [1], None, "cannot become timestamp"),
        ("array<int>", [1], None, "cannot become an array"),
        ("array<int>", [["x"]], None, r"\(array<int>\), element: .*cannot become int"),
        ("map<int,int>", [[1]], None, "not pairs"),
        ("map<int,int>", [{"a": 1}], None, "cannot become a map"),
        ("struct<a:int>", [1], None, "cannot become a struct"),
        ("struct<a:int>", [{"a": 1, "z": 1}], None, r"no field \['z'\]; it has \['a'\]"),
        ("struct<a:int>", [{"a": 1, "A": 1}], None, "duplicate field names"),
        ("struct<a:int,b:int>", [{"a": 1}], None, r"lack fields of the struct: \['b'\]"),
        ("array<struct<a:int,b:int>>", [[{"b": 1}]], None, r"element: the values lack .*\['a'\]"),
        ("map<double,double>", [[{"lat": 1.0, "lon": 2.0}]], None, "not pairs"),
        ("uniontype<int,string>", [1], None, "cannot become a union"),
        ("uniontype<int>", UNION, None, "2 alternatives, the column's has 1"),
    ],
)
def test_types_that_never_fit(
    hive_type: str, values: object, arrow: pa.DataType | None, message: str
) -> None:
    """A type that would need a guess (text to number, instant to wall clock) is refused as such."""
    with pytest.raises(RecordLayoutError, match=message):
        convert(values, hive_type, arrow)


@pytest.mark.parametrize("hive_type", ["string", "varchar(3)", "char(3)"])
@pytest.mark.parametrize("arrow", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_text_that_is_not_utf8(hive_type: str, arrow: pa.DataType) -> None:
    """Bytes that no reader can decode are refused, not written; valid rows before them are accepted."""
    made = pa.array([b"a", None, b"\xc3\x28" * 100]).view(pa.string())
    array = made.cast(arrow) if arrow != pa.string() else made
    with pytest.raises(RecordValueError, match=r"row 2: value b'.{1,300} is not UTF-8"):
        convert(array, hive_type)
    assert convert(array.slice(0, 2), hive_type) == ["a", None]


@pytest.mark.parametrize("shape", ["{}", "array<{}>", "map<int,{}>", "struct<x:{}>", "uniontype<{},int>"])
def test_validity_above_a_union_does_no_harm(shape: str) -> None:
    """It makes pyarrow abort the process; filter and take leave such bits though nothing is null."""
    structs = pa.StructArray.from_arrays([NARROW_UNION], names=["u"], mask=pa.array([False] * 4))
    offsets = pa.array([0, 1, 2, 4, 4], pa.int32())
    arrays = {
        "{}": structs,
        "array<{}>": pa.ListArray.from_arrays(offsets, structs),
        "map<int,{}>": pa.MapArray.from_arrays(offsets, pa.array([1, 2, 3, 4], pa.int32()), structs),
        "struct<x:{}>": pa.StructArray.from_arrays([structs], names=["x"], mask=pa.array([False] * 4)),
        "uniontype<{},int>": pa.UnionArray.from_sparse(
            pa.array([0, 1, 1, 0], pa.int8()), [structs, pa.array([1, 2, 3, 4], pa.int32())]
        ),
    }
    hive_type = shape.format("struct<u:uniontype<int,string>>")
    array = arrays[shape]
    expected = array.to_pylist()
    assert convert(array.take(pa.array([3, 1, 0])), hive_type) == [expected[i] for i in (3, 1, 0)]
    assert convert(pa.chunked_array([array, array.slice(2)]), hive_type) == expected + expected[2:]
    hashes = [hash_columns([a], [parse_hive_type(hive_type)], 1) for a in (array, array.take(pa.array([1])))]
    assert hashes[0][1] == hashes[1][0]


def test_a_null_struct_above_a_union_is_refused() -> None:
    """Nor can it be written: the writer would abort the process."""
    nulls = pa.array([False, False, True, False])
    structs = pa.StructArray.from_arrays([NARROW_UNION], names=["u"], mask=nulls)
    with pytest.raises(RecordValueError, match=r"row 2: value null .*union field"):
        convert(structs, "struct<u:uniontype<int,string>>")
    hashes = hash_columns([structs], [parse_hive_type("struct<u:uniontype<int,string>>")], 1)
    assert hashes[2] == 0


MAPS = {
    "equal": (
        "map<string,int>",
        [[("a", 1)], [("b", 1), ("a", 2), ("b", 3)]],
        pa.string(),
        "'b' is a duplicate key",
    ),
    "decimals rounded": (
        "map<decimal(4,1),int>",
        [[], [(Decimal("1.04"), 1), (Decimal("1.01"), 2)]],
        pa.decimal128(5, 2),
        r"Decimal\('1.01'\) is stored as Decimal\('1.0'\), which is a duplicate key",
    ),
    "varchar cut": (
        "map<varchar(2),int>",
        [[], [("abc", 1), ("abd", 2)]],
        pa.string(),
        "'abd' is stored as 'ab'",
    ),
    "char blanks": ("map<char(3),int>", [[], [("a", 1), ("a ", 2)]], pa.string(), "'a ' is stored as 'a'"),
    "two zeros": ("map<double,int>", [[], [(0.0, 1), (-0.0, 2)]], pa.float64(), "is a duplicate key"),
    "two NaN": (
        "map<double,int>",
        [[], [(float("nan"), 1), (float("nan"), 2)]],
        pa.float64(),
        "is a duplicate key",
    ),
    "floats": ("map<float,int>", [[], [(0.1, 1), (0.1 + 1e-12, 2)]], pa.float64(), "is a duplicate key"),
}


@pytest.mark.parametrize("name", MAPS)
def test_a_key_that_occurs_twice_is_refused(name: str) -> None:
    """Also keys that become equal when they are converted; the message has row, key and what it becomes."""
    hive_type, maps, key, message = MAPS[name]
    array = pa.array(maps, pa.map_(key, pa.int32()))
    with pytest.raises(RecordValueError, match=f"row 1, key: value .*{message}"):
        convert(array, hive_type)
    nested = pa.StructArray.from_arrays([array], names=["m"])
    with pytest.raises(RecordValueError, match="row 1, field 'm', key: value"):
        convert(nested, f"struct<m:{hive_type}>")
    assert convert(array.slice(0, 1), hive_type) == maps[:1]


def test_keys_of_different_maps_may_be_equal() -> None:
    """Null maps between them and slices do not matter."""
    maps = [[("a", 1), ("b", 2)], None, [("a", 3)], [], [("b", 4), ("a", 5)]]
    array = pa.array(maps, pa.map_(pa.string(), pa.int32()))
    assert convert(array, "map<string,int>") == maps
    assert convert(array.slice(2), "map<string,int>") == maps[2:]


def test_fields_of_structs_are_found_by_name() -> None:
    """At any depth, whatever their order."""
    given = [[{"y": {"d": "D", "c": 1}, "x": 7}]]
    assert convert(given, "array<struct<x:int,y:struct<c:int,d:string>>>") == [
        [{"x": 7, "y": {"c": 1, "d": "D"}}]
    ]
