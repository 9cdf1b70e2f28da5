"""Which tables are refused, and that the refusal names the table and the rule."""

import dataclasses

import pytest

from metastore_client.capabilities import Capabilities
from metastore_client.model import ColumnInfo
from mutation_api.acid.version import AcidVersion
from mutation_api.client.preconditions import check_mutable, compression_of
from mutation_api.errors import TableNotMutableError
from mutation_api.table.acid_table import TableRole
from tests.client_support import table_info

HIVE_2 = Capabilities(version="3.0", has_write_ids=False)
HIVE_3 = Capabilities(version="3.0", has_write_ids=True)
ACID = {"transactional": "true"}
TEXT_FORMAT = "org.apache.hadoop.mapred.TextInputFormat"

REFUSED = {
    "not transactional": ({"parameters": {}}, "transactional"),
    "transactional=false": ({"parameters": {"transactional": "false"}}, "transactional"),
    "external by type": ({"table_type": "EXTERNAL_TABLE"}, "managed"),
    "external by property": ({"parameters": {**ACID, "EXTERNAL": "TRUE"}}, "managed"),
    "view": ({"table_type": "VIRTUAL_VIEW"}, "managed"),
    "insert-only": ({"parameters": {**ACID, "transactional_properties": "insert_only"}}, "insert-only"),
    "unknown layout": ({"parameters": {**ACID, "transactional_properties": "hash"}}, "'hash' is not known"),
    "replica": ({"parameters": {**ACID, "repl.last.id": "17"}}, "replication"),
    "not ORC": ({"input_format": TEXT_FORMAT}, "ORC"),
    "other serde": ({"serde": "org.apache.hadoop.hive.serde2.OpenCSVSerde"}, "ORC"),
    "not bucketed": ({"num_buckets": -1, "bucket_columns": ()}, "bucketed"),
    "buckets without columns": ({"bucket_columns": ()}, "bucketed"),
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


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_table_and_rule(case: str) -> None:
    """A table that breaks a rule is refused; the message names both."""
    changes, rule = REFUSED[case]
    with pytest.raises(TableNotMutableError, match=rule) as refusal:
        check_mutable(table_info("broken", **changes), HIVE_2, TableRole.SINK)
    assert "default.broken" in str(refusal.value)


@pytest.mark.parametrize(
    ("properties", "version"),
    [
        ({}, AcidVersion.V1_LEGACY),
        ({"transactional_properties": "legacy"}, AcidVersion.V1_LEGACY),
        ({"transactional_properties": "default"}, AcidVersion.V1_SPLIT),
        ({"TRANSACTIONAL_PROPERTIES": "Default"}, AcidVersion.V1_SPLIT),
        ({"bucketing_version": "2"}, AcidVersion.V1_LEGACY),
    ],
)
def test_layout_follows_transactional_properties(properties: dict[str, str], version: AcidVersion) -> None:
    """Absent and legacy mean one delta, default means split updates; names and values in any case."""
    info = table_info(parameters={"Transactional": "TRUE", **properties})
    assert check_mutable(info, HIVE_2, TableRole.SINK) is version


def test_sources_may_be_sorted() -> None:
    """Order within files matters to writers only."""
    info = table_info(sort_columns=("id",), skewed_columns=("id",))
    assert check_mutable(info, HIVE_2, TableRole.SOURCE) is AcidVersion.V1_LEGACY


def test_all_4096_buckets_are_allowed() -> None:
    """4096 is the last number of buckets that Hive can address."""
    check_mutable(dataclasses.replace(table_info(), num_buckets=4096), HIVE_2, TableRole.SINK)


def test_servers_with_write_ids_are_refused() -> None:
    """Hive 3 reads other files than the ones we write; the refusal says so before anything is opened."""
    with pytest.raises(TableNotMutableError, match="Hive 3 or later"):
        check_mutable(table_info(), HIVE_3, TableRole.SINK)


@pytest.mark.parametrize(
    ("property_text", "codec"),
    [
        (None, "zlib"),
        ("ZLIB", "zlib"),
        ("none", "uncompressed"),
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
