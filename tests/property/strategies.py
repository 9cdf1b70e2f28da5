"""Hypothesis strategies: Hive types, values of them, tables."""

from __future__ import annotations

import datetime
import string
from decimal import Decimal

from hypothesis import strategies as st

from mutation_api.format.hive_type import HiveType
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable, TableRole

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


@st.composite
def decimal_types(draw: st.DrawFn) -> HiveType:
    """decimal(p,s) with every legal p and s."""
    precision = draw(st.integers(1, 38))
    return HiveType("decimal", precision=precision, scale=draw(st.integers(0, precision)))


def scalar_types() -> st.SearchStrategy[HiveType]:
    """Every type that is not nested."""
    plain = [*INTEGER_BITS, "boolean", "float", "double", "string", "binary", "date", "timestamp"]
    return st.one_of(
        st.sampled_from(plain).map(HiveType),
        st.integers(1, 255).map(lambda n: HiveType("char", length=n)),
        st.integers(1, 65535).map(lambda n: HiveType("varchar", length=n)),
        decimal_types(),
    )


def _nested(inner: st.SearchStrategy[HiveType]) -> st.SearchStrategy[HiveType]:
    names = st.text(string.ascii_lowercase + "_0123456789", min_size=1, max_size=8)

    @st.composite
    def structs(draw: st.DrawFn) -> HiveType:
        found = draw(st.lists(names, min_size=1, max_size=3, unique=True))
        return HiveType("struct", children=tuple(draw(inner) for _ in found), field_names=tuple(found))

    return st.one_of(
        inner.map(lambda t: HiveType("array", children=(t,))),
        st.tuples(scalar_types(), inner).map(lambda pair: HiveType("map", children=pair)),
        structs(),
        st.lists(inner, min_size=1, max_size=3).map(lambda ts: HiveType("uniontype", children=tuple(ts))),
    )


def hive_types() -> st.SearchStrategy[HiveType]:
    """Types nested up to a few levels."""
    return st.recursive(scalar_types(), _nested, max_leaves=5)


def scalar_values(hive_type: HiveType) -> st.SearchStrategy[object]:
    """Python values that the type holds exactly."""
    kind = hive_type.kind
    if kind in INTEGER_BITS:
        limit = 2 ** (INTEGER_BITS[kind] - 1)
        return st.integers(-limit, limit - 1)
    if kind == "decimal":
        bound = 10**hive_type.precision - 1
        return st.integers(-bound, bound).map(lambda n: exact_decimal(n, hive_type.scale))
    return {
        "boolean": st.booleans(),
        "float": st.floats(width=32),
        "double": st.floats(),
        "string": texts(),
        "char": texts(hive_type.length),
        "varchar": texts(hive_type.length),
        "binary": st.binary(max_size=40),
        "date": st.dates(),
        "timestamp": st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)),
    }[kind]


def exact_decimal(unscaled: int, scale: int) -> Decimal:
    """``unscaled * 10**-scale`` whatever the context's precision."""
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def texts(longest: int = 40) -> st.SearchStrategy[str]:
    """Texts of all planes, with blanks at their ends more often than chance would have."""
    body = st.text(st.characters(exclude_categories=["Cs"]), max_size=min(longest, 40))
    return st.tuples(body, st.integers(0, 3)).map(lambda pair: (pair[0] + " " * pair[1])[:longest])


def locations(name: st.SearchStrategy[str]) -> st.SearchStrategy[Location]:
    """Places in several file systems, with whatever may stand in their paths."""
    scheme = st.sampled_from(["/", "file:/", "hdfs://nn:9000/", "hdfs:/", "s3a://bucket/", "gs://b/"])
    return st.builds(lambda start, path: Location.parse(start + path.strip("/")), scheme, name)


@st.composite
def acid_tables(draw: st.DrawFn) -> AcidTable:
    """Descriptors with whatever may stand in their fields."""
    name = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    columns = st.lists(st.builds(AcidColumn, name, hive_types().map(lambda t: t.text)), max_size=4).map(tuple)
    return AcidTable(
        database=draw(name),
        name=draw(name),
        location=draw(locations(name)),
        columns=draw(columns),
        partition_keys=draw(columns),
        num_buckets=draw(st.integers(1, 4096)),
        bucket_columns=tuple(draw(st.lists(name, max_size=3))),
        version=draw(st.sampled_from(AcidVersion)),
        bucketing_version=draw(st.sampled_from([1, 2])),
        role=draw(st.sampled_from(TableRole)),
        create_partitions=draw(st.booleans()),
        txn_id=draw(st.none() | st.integers(1, 2**62)),
        compression=draw(st.sampled_from(["zlib", "none"])),
        partition_spellings=draw(st.dictionaries(name, name, max_size=3)),
        partition_locations=draw(st.dictionaries(name, locations(name), max_size=3)),
        time_zone=draw(st.none() | st.just("UTC")),
    )
