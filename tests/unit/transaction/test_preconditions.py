"""Which tables are refused, and that the refusal names the table and the rule."""

import dataclasses

import pytest

from metastore_client.capabilities import Capabilities
from metastore_client.model import ColumnInfo
from mutation_api.errors import TableNotMutableError
from mutation_api.format.layout import AcidVersion
from mutation_api.table.acid_table import BloomFilters, TableRole
from mutation_api.transaction.descriptors import describe
from mutation_api.transaction.preconditions import bloom_filters_of, check_mutable, compression_of
from tests.support.client_support import table_info

HIVE_2 = Capabilities(version="3.0", has_write_ids=False)
HIVE_3 = Capabilities(version="3.0", has_write_ids=True)
HIVE_4 = Capabilities(version="4.1.0", has_write_ids=True, has_exclusive_write_lock=True)
LINES = {"2": HIVE_2, "3": HIVE_3, "4": HIVE_4}
ACID = {"transactional": "true"}
TEXT_FORMAT = "org.apache.hadoop.mapred.TextInputFormat"

REFUSED = {
    "not transactional": ({"parameters": {}}, "transactional"),
    "transactional=false": ({"parameters": {"transactional": "false"}}, "transactional"),
    "external by type": ({"table_type": "EXTERNAL_TABLE"}, "managed"),
    "external by property": ({"parameters": {**ACID, "EXTERNAL": "TRUE"}}, "managed"),
    "view": ({"table_type": "VIRTUAL_VIEW"}, "managed"),
    "unknown layout": ({"parameters": {**ACID, "transactional_properties": "hash"}}, "'hash' is not known"),
    "replica": ({"parameters": {**ACID, "repl.last.id": "17"}}, "replication"),
    "not ORC": ({"input_format": TEXT_FORMAT}, "ORC"),
    "other serde": ({"serde": "org.apache.hadoop.hive.serde2.OpenCSVSerde"}, "ORC"),
    "made external by the server": (
        {"table_type": "EXTERNAL_TABLE", "parameters": {"TRANSLATED_TO_EXTERNAL": "TRUE"}},
        "managed table, but it is EXTERNAL_TABLE: Hive 4 creates",
    ),
    "replication": ({"parameters": {**ACID, "hive.repl.ckpt.key": "x"}}, "replication"),
    "buckets without columns": ({"bucket_columns": ()}, "bucketed"),
    "columns without buckets": ({"num_buckets": 0}, "bucketed into 0 by id"),
    "too many buckets": ({"num_buckets": 4097}, "4097 buckets"),
    "unknown bucket column": ({"bucket_columns": ("nothere",)}, "clustered by nothere"),
    "sorted": ({"sort_columns": ("id",)}, "sorted"),
    "skewed": ({"skewed_columns": ("id",)}, "skewed"),
    "doubled column": ({"columns": (ColumnInfo("id", "int"), ColumnInfo("ID", "int"))}, "more than once"),
    "zoned timestamp": (
        {"columns": (ColumnInfo("id", "int"), ColumnInfo("t", "timestamp with local time zone"))},
        "'t' has type",
    ),
    "unknown type": ({"columns": (ColumnInfo("id", "int"), ColumnInfo("x", "geometry"))}, "'x' has type"),
    "binary key": ({"partition_keys": (ColumnInfo("k", "binary"),)}, "partition key 'k'"),
    "nested key": ({"partition_keys": (ColumnInfo("k", "array<int>"),)}, "partition key 'k'"),
}


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_table_and_rule(case: str, line: str) -> None:
    """A table that breaks a rule is refused on every release; the message names both."""
    changes, rule = REFUSED[case]
    with pytest.raises(TableNotMutableError, match=rule) as refusal:
        check_mutable(table_info("broken", **changes), LINES[line], TableRole.SINK)
    assert "default.broken" in str(refusal.value)


COPY = "create a transactional table (hive-mutate create-table) and copy the rows by Hive's INSERT … SELECT"
CONVERT = f"{COPY}, or convert this one, for good: ALTER TABLE default.t SET TBLPROPERTIES "


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"parameters": {}}, f"{CONVERT}('transactional'='true')"),
        (
            {
                "table_type": "EXTERNAL_TABLE",
                "parameters": {"EXTERNAL": "TRUE", "TRANSLATED_TO_EXTERNAL": "TRUE"},
            },
            f"as an external one; {CONVERT}('transactional'='true', 'EXTERNAL'='FALSE')",
        ),
        ({"parameters": {}, "input_format": TEXT_FORMAT}, COPY),
        ({"table_type": "EXTERNAL_TABLE", "parameters": {}}, COPY),
        ({"parameters": {"EXTERNAL": "TRUE"}}, COPY),
        ({"table_type": "VIRTUAL_VIEW"}, "but it is VIRTUAL_VIEW"),
    ],
)
def test_a_table_that_is_not_transactional_has_a_way_out(changes: dict[str, object], advice: str) -> None:
    """It can be converted if Hive converts it, and its files are Hive's own; any table can be copied."""
    with pytest.raises(TableNotMutableError) as refusal:
        check_mutable(table_info("t", **changes), HIVE_4, TableRole.SINK)
    assert str(refusal.value).endswith(advice)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, ("V1_LEGACY", "V2_HIVE3", "V2_HIVE4")),
        ({"transactional_properties": "legacy"}, ("V1_LEGACY", None, None)),
        ({"transactional_properties": "default"}, ("V1_SPLIT", "V2_HIVE3", "V2_HIVE4")),
        ({"TRANSACTIONAL_PROPERTIES": "Default"}, ("V1_SPLIT", "V2_HIVE3", "V2_HIVE4")),
        (
            {"transactional_properties": "insert_only"},
            (None, "INSERT_ONLY_HIVE3", "INSERT_ONLY_HIVE4"),
        ),
    ],
)
def test_layout_follows_server_and_properties(
    properties: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    """Names and values in any case; a word that the server does not know is refused."""
    info = table_info(parameters={"Transactional": "TRUE", **properties})
    for capabilities, version in zip(LINES.values(), expected, strict=True):
        if version is None:
            with pytest.raises(TableNotMutableError, match="does not know transactional_properties="):
                check_mutable(info, capabilities, TableRole.SINK)
        else:
            assert check_mutable(info, capabilities, TableRole.SINK) is AcidVersion[version]


@pytest.mark.parametrize("num_buckets", [-1, 0])
def test_tables_without_buckets_need_write_ids(num_buckets: int) -> None:
    """Hive 2 has no such ACID tables; Hive 3 and 4 do, and -1 and 0 mean the same to them."""
    info = table_info(num_buckets=num_buckets, bucket_columns=())
    with pytest.raises(TableNotMutableError, match="must be bucketed"):
        check_mutable(info, HIVE_2, TableRole.SINK)
    assert check_mutable(info, HIVE_3, TableRole.SINK) is AcidVersion.V2_HIVE3
    assert check_mutable(info, HIVE_4, TableRole.SINK) is AcidVersion.V2_HIVE4


@pytest.mark.parametrize(
    ("text", "expected"), [(None, (1, 1, 1)), ("1", (1, 1, 1)), ("2", (1, 2, 2)), ("3", (1, None, None))]
)
def test_the_hash_follows_the_property_where_the_server_knows_it(
    text: str | None, expected: tuple[int | None, ...]
) -> None:
    """Hive 2 hashes the old way whatever the property says; an unknown number is refused elsewhere."""
    parameters = ACID if text is None else {**ACID, "bucketing_version": text}
    info = table_info(parameters=parameters, location="file:/w/t")
    for capabilities, number in zip(LINES.values(), expected, strict=True):
        if number is None:
            with pytest.raises(TableNotMutableError, match="bucketing_version='3'"):
                check_mutable(info, capabilities, TableRole.SINK)
        else:
            version = check_mutable(info, capabilities, TableRole.SINK)
            table = describe(info, version, TableRole.SINK, create_partitions=False, time_zone=None)
            assert table.bucketing_version == number


def test_sources_may_be_sorted() -> None:
    """Order within files matters to writers only."""
    info = table_info(sort_columns=("id",), skewed_columns=("id",))
    assert check_mutable(info, HIVE_2, TableRole.SOURCE) is AcidVersion.V1_LEGACY


def test_all_4096_buckets_are_allowed() -> None:
    """4096 is the last number of buckets that Hive can address."""
    check_mutable(dataclasses.replace(table_info(), num_buckets=4096), HIVE_2, TableRole.SINK)


@pytest.mark.parametrize(
    ("property_text", "codec"),
    [
        (None, "zlib"),
        ("ZLIB", "zlib"),
        ("none", "none"),
        ("SNAPPY", "snappy"),
        ("LZ4", "lz4"),
        ("ZSTD", "zlib"),
        ("LZO", "zlib"),
    ],
)
def test_compression_is_one_that_hive_2_reads(property_text: str | None, codec: str) -> None:
    """ZSTD files are unreadable below Hive 4, so the property does not decide alone."""
    properties = ACID if property_text is None else {**ACID, "orc.compress": property_text}
    assert compression_of(table_info(parameters=properties)) == codec
    assert all(codec in version.compressions for version in AcidVersion)


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({}, BloomFilters()),
        ({"orc.bloom.filter.columns": "MSG, id,other,id"}, BloomFilters(("id", "msg"))),
        ({"orc.bloom.filter.columns": "id", "orc.bloom.filter.fpp": "0.01"}, BloomFilters(("id",), 0.01)),
        ({"orc.bloom.filter.columns": "id", "orc.bloom.filter.fpp": "2"}, BloomFilters(("id",))),
        ({"orc.bloom.filter.columns": "id", "orc.bloom.filter.fpp": "few"}, BloomFilters(("id",))),
    ],
)
def test_bloom_filters_of_properties(properties: dict[str, str], found: BloomFilters) -> None:
    """Columns in the table's order, without names that it does not have; a useless probability is ignored."""
    columns = (ColumnInfo("id", "int"), ColumnInfo("msg", "string"), ColumnInfo("day", "date"))
    table = table_info(columns=columns, parameters={**ACID, **properties})
    assert bloom_filters_of(table) == found


@pytest.mark.parametrize("kind", ["date", "timestamp", "char(3)", "boolean", "binary", "array<int>"])
def test_types_without_bloom_filters(kind: str) -> None:
    """Hive's reader would skip rows by the encoder's filters, or does not use them."""
    properties = {**ACID, "orc.bloom.filter.columns": "c"}
    assert bloom_filters_of(table_info(columns=(ColumnInfo("c", kind),), parameters=properties)).columns == ()
