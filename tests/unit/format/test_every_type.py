"""Every type of PRIMITIVES is known to each module that does something of its own with types.

A new row of that table fails here until the modules that CONTRIBUTING's recipe lists have it.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from mutation_api.cdc.update import values as values_of_databases
from mutation_api.format import scalar_conversion, text_values
from mutation_api.format.bucket_hash import hash_columns
from mutation_api.format.conversion import convert_to_column, hive_type_of
from mutation_api.format.hash_v1 import V1_HASHES
from mutation_api.format.hash_v2 import V2_HASHES
from mutation_api.format.hive_type import (
    NESTED_KINDS,
    PRIMITIVES,
    HiveType,
    TypeFamily,
    arrow_type,
    parse_hive_type,
    primitive_of_arrow,
    primitive_of_spark,
    spark_type,
)
from mutation_api.format.json_values import decode_json, from_cells, from_json, json_texts, to_cells
from mutation_api.format.text_values import BinaryEncoding, values_of_texts
from mutation_api.orc.read.type_changes import CHANGES
from mutation_api.table import partition_value as values_of_partitions
from mutation_api.table.partition import partition_texts
from mutation_api.table.partition_value import partition_value

KINDS = tuple(PRIMITIVES)
FAMILIES = set(TypeFamily) - {TypeFamily.NESTED}
UNCHANGED = ("boolean", "binary")
"""The types whose columns ALTER TABLE changes to no other type."""
VALUES: dict[TypeFamily, Any] = {
    TypeFamily.BOOLEAN: True,
    TypeFamily.INTEGER: 7,
    TypeFamily.FLOAT: 1.5,
    TypeFamily.DECIMAL: Decimal("1.5"),
    TypeFamily.TEXT: "é",
    TypeFamily.BINARY: b"\x00\xff",
    TypeFamily.DATE: datetime.date(2024, 2, 29),
    TypeFamily.TIMESTAMP: datetime.datetime(2024, 2, 29, 12, 0, 0, 500_000),
}


def type_of(kind: str) -> HiveType:
    """A type of this kind."""
    given = "(5)" if PRIMITIVES[kind].max_length else "(6,2)" if kind == "decimal" else ""
    return parse_hive_type(kind + given)


def column_of(kind: str) -> tuple[HiveType, pa.Array]:
    """A type, and a column with one of its values."""
    hive_type = type_of(kind)
    return hive_type, pa.array([VALUES[hive_type.family]], arrow_type(hive_type, timestamp_unit="us"))


def test_every_family_has_its_functions() -> None:
    """In each table by family; a table that may lack some says what holds for these."""
    assert set(scalar_conversion._CONVERSIONS) == FAMILIES
    assert set(text_values._PARSERS) == FAMILIES
    assert set(values_of_databases._PREPARED) == FAMILIES
    keys = {facts.family for facts in PRIMITIVES.values() if facts.is_partition_key}
    assert set(values_of_partitions._FORMS) == keys
    assert {facts.family for facts in PRIMITIVES.values()} == FAMILIES == set(VALUES)


def test_every_type_has_its_hashes_and_changes() -> None:
    """Version 2 hashes no binary; a column can become another type, or is named here."""
    assert set(V1_HASHES) == set(KINDS)
    assert {*V2_HASHES, "binary"} == set(KINDS)
    changed = {kind for change in CHANGES for kind in change}
    assert changed.isdisjoint(UNCHANGED)
    assert changed | set(UNCHANGED) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_passes_through_every_form(kind: str) -> None:
    """Conversion, JSON, CSV cells, strings, hashes: the value stays the same."""
    hive_type, column = column_of(kind)
    assert parse_hive_type(hive_type.text) == hive_type
    converted = convert_to_column(column, hive_type, column="c", timestamp_unit="us")
    assert converted.equals(column)
    (text,) = json_texts(column)
    assert from_json([decode_json(text)], hive_type).equals(column)
    assert from_cells(to_cells(column), hive_type).equals(column)
    assert values_of_texts(to_cells(column), hive_type, binary=BinaryEncoding.BASE64).equals(column)
    for version in (1, 2) if kind in V2_HASHES else (1,):
        assert len(hash_columns([column], [hive_type], version, "UTC")) == 1
    assert values_of_databases.to_hive_column("c", hive_type, column.to_pylist()).equals(column)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_column_gets_the_type_back(kind: str) -> None:
    """From Arrow and from Spark; char and varchar hold strings there."""
    hive_type = type_of(kind)
    arrow = arrow_type(hive_type, timestamp_unit="us")
    expected = "string" if hive_type.length else kind
    found = primitive_of_arrow(arrow)
    assert found is not None
    assert (found.kind, hive_type_of(arrow)) == (expected, found)
    assert primitive_of_spark(spark_type(hive_type).partition("(")[0]) == expected
    for other in hive_type.facts.also_from:
        assert hive_type_of(other).kind == expected


@pytest.mark.parametrize("kind", [kind for kind in KINDS if PRIMITIVES[kind].is_partition_key])
def test_a_partition_has_the_value_back(kind: str) -> None:
    """Its name holds the value as a string."""
    hive_type, column = column_of(kind)
    (text,) = partition_texts(column, hive_type, column="c").to_pylist()
    assert partition_value(text, hive_type) == column[0].as_py()


def test_nested_types_have_one_family() -> None:
    """Names of partitions cannot hold their values."""
    for text in ("array<int>", "map<int,int>", "struct<a:int>", "uniontype<int>"):
        facts = parse_hive_type(text).facts
        assert (facts.family, facts.is_partition_key) == (TypeFamily.NESTED, False)
    assert set(NESTED_KINDS).isdisjoint(PRIMITIVES)
