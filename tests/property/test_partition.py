"""Properties of partition names: no value gets two names, no two values share one."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metastore_client.partition_name import DEFAULT_PARTITION_NAME, escape_path_name, unescape_path_name
from mutation_api.format.hive_type import HiveType, arrow_type
from mutation_api.format.layout import AcidVersion
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.partition import (
    canonical_partition_name,
    parse_partition_name,
    partition_name,
    partition_names,
    partition_texts,
)
from mutation_api.table.partition_value import partition_value
from tests.property.strategies import scalar_types, scalar_values, texts

KEY_TYPES = scalar_types().filter(lambda t: t.kind != "binary")


@st.composite
def keys(draw: st.DrawFn) -> tuple[HiveType, list[object]]:
    hive_type = draw(KEY_TYPES)
    if hive_type.kind in ("char", "varchar"):
        hive_type = dataclasses.replace(hive_type, length=min(hive_type.length, 100))
    return hive_type, draw(st.lists(st.none() | scalar_values(hive_type), max_size=6))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaping_is_undone_by_unescaping(text: str) -> None:
    """Every text survives the path, and nothing that means something in a path stays in it."""
    escaped = escape_path_name(text)
    assert unescape_path_name(escaped) == (text or DEFAULT_PARTITION_NAME)
    assert not set(escaped) & set("/=:\\\"'*?#[]^{\n\x7f")


@given(keys())
def test_a_text_reads_back_as_its_value(drawn: tuple[HiveType, list[object]]) -> None:
    """What is written into a partition's name is read back as the same typed value."""
    hive_type, values = drawn
    array = pa.array(values, arrow_type(hive_type, timestamp_unit="us"))
    for text, value in zip(partition_texts(array, hive_type, column="c").to_pylist(), values, strict=True):
        found = partition_value(text, hive_type)
        if text == DEFAULT_PARTITION_NAME:
            assert value in (None, "", DEFAULT_PARTITION_NAME)
            continue
        expected = value.rstrip(" ") if hive_type.kind == "char" and isinstance(value, str) else value
        assert found == expected or found != found
        assert partition_texts(pa.array([found], array.type), hive_type, column="c").to_pylist() == [text]


@given(keys())
def test_our_own_names_are_canonical(drawn: tuple[HiveType, list[object]]) -> None:
    """Canonicalising changes nothing that we wrote ourselves."""
    hive_type, values = drawn
    array = pa.array(values, arrow_type(hive_type, timestamp_unit="us"))
    columns = [AcidColumn("k", hive_type.text)]
    for text in partition_texts(array, hive_type, column="c").to_pylist():
        name = partition_name(["k"], [text])
        assert parse_partition_name(name) == (text,)
        assert canonical_partition_name(columns, name) == name


@given(st.lists(st.tuples(texts(20), st.none() | st.integers(-99, 99))), st.integers(0, 3))
def test_names_of_rows_are_those_of_their_values(rows: list[tuple[str, int | None]], skipped: int) -> None:
    """The vectorised names equal the names made row by row; slices and dictionaries do not matter."""
    keys = (AcidColumn("ds", "string"), AcidColumn("hr", "int"))
    table = AcidTable("db", "t", "/t", (), keys, 1, (), AcidVersion.V1_LEGACY)
    words = pa.array([word for word, _ in rows], pa.string()).dictionary_encode()[skipped:]
    hours = pa.array([hour for _, hour in rows], pa.int64())[skipped:]
    expected = [
        partition_name(["ds", "hr"], [word, "" if hour is None else str(hour)])
        for word, hour in rows[skipped:]
    ]
    assert partition_names(table, {"DS": words, "hr": hours}).to_pylist() == expected
