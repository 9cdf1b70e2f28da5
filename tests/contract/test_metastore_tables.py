"""Behaviours of tables, partitions, statistics and the compaction queue, in memory and on Hive 2.3.10."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from metastore_client.client import MetastoreClient
from metastore_client.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    MetastoreError,
    NoSuchObjectError,
)
from metastore_client.model import ColumnInfo, CompactionType, TableInfo
from metastore_client.partition_name import (
    DEFAULT_PARTITION_NAME,
    make_partition_name,
    parse_partition_name,
)
from metastore_client.testing import InMemoryMetastore
from metastore_client.thrift_client import ThriftMetastoreClient
from tests.fix_metastore import acid_table_info

MakeTable = Callable[..., TableInfo]
ASCII = [chr(code) for code in range(1, 128)]
COLUMN_STATS_ACCURATE = "COLUMN_STATS_ACCURATE"


def test_the_server_is_a_2_3(metastore: MetastoreClient) -> None:
    """No write ids; asked of the server, not read out of its version."""
    assert not metastore.capabilities().has_write_ids


def test_configuration_is_asked_of_the_server(metastore: MetastoreClient) -> None:
    """A known key has a value; one that is not for clients gives the default."""
    assert metastore.get_config_value("hive.txn.timeout", "?") not in ("?", "")
    assert metastore.get_config_value("hive.txn.manager", "?").endswith("DbTxnManager")
    assert metastore.get_config_value("hive.exec.default.partition.name", "?") == DEFAULT_PARTITION_NAME
    assert metastore.get_config_value("java.secret", "default") == "default"


def test_a_table_comes_back_as_it_was_made(metastore: MetastoreClient, database: str) -> None:
    """Names in lower case, everything that decides about writing as given."""
    wanted = TableInfo(
        database=database.upper(),
        name="Mixed",
        columns=(
            ColumnInfo("Id", "bigint", "the key"),
            ColumnInfo("v", "struct<a:decimal(10,2),B:array<int>>"),
        ),
        partition_keys=(ColumnInfo("Ds", "string"), ColumnInfo("hr", "int")),
        num_buckets=3,
        bucket_columns=("id", "v"),
        parameters={"TRANSACTIONAL": "True", "transactional_properties": "default", "x": "y"},
        owner="someone",
    )
    metastore.create_table(wanted)
    table = metastore.get_table(database, "MIXED")
    assert (table.database, table.name, table.full_name) == (database, "mixed", f"{database}.mixed")
    assert [(c.name, c.comment) for c in table.columns] == [("id", "the key"), ("v", "")]
    assert table.columns[1].type.lower() == wanted.columns[1].type.lower()
    assert [c.name for c in table.partition_keys] == ["ds", "hr"]
    assert (table.num_buckets, table.bucket_columns, table.sort_columns) == (3, ("id", "v"), ())
    assert (table.table_type, table.owner) == ("MANAGED_TABLE", "someone")
    assert table.location.endswith(f"/{database}.db/mixed")
    assert table.serde == wanted.serde and table.input_format == wanted.input_format
    expected = {"transactional": "true", "transactional_properties": "default", "x": "y"}
    assert {k: v for k, v in table.parameters.items() if k in expected} == expected
    assert metastore.get_all_tables(database.upper()) == ["mixed"]


def test_sorting_and_skew_are_told(metastore: MetastoreClient, database: str) -> None:
    """A caller who cannot write such tables has to see that they are such."""
    table = replace(acid_table_info(database, "t"), sort_columns=("id",), skewed_columns=("msg",))
    metastore.create_table(replace(table, parameters={}))
    told = metastore.get_table(database, "t")
    assert (told.sort_columns, told.skewed_columns) == (("id",), ("msg",))


def test_creating_twice_is_refused(metastore: MetastoreClient, database: str, make_table: MakeTable) -> None:
    """Neither a table nor a database is replaced."""
    table = make_table("t")
    with pytest.raises(AlreadyExistsError):
        metastore.create_table(table)
    with pytest.raises(AlreadyExistsError):
        metastore.create_database(database.upper())


def test_a_table_needs_its_database(metastore: MetastoreClient) -> None:
    """A missing database is an error of the request."""
    with pytest.raises(MetastoreError):
        metastore.create_table(acid_table_info("no_such_database", "t"))
    assert metastore.get_all_tables("no_such_database") == []


def test_a_transactional_table_needs_buckets(metastore: MetastoreClient, database: str) -> None:
    """Hive 2.3 makes no transactional table without them."""
    table = replace(acid_table_info(database, "t"), bucket_columns=(), num_buckets=-1)
    with pytest.raises(InvalidRequestError, match="must be bucketed"):
        metastore.create_table(table)
    assert metastore.get_all_tables(database) == []


def test_missing_tables_are_named(metastore: MetastoreClient, database: str) -> None:
    """Every call that needs a table says which one is missing."""
    for call in (
        lambda: metastore.get_table(database, "nope"),
        lambda: metastore.get_partition_names(database, "nope"),
        lambda: metastore.get_partitions_by_names(database, "nope", ["ds=a"]),
        lambda: metastore.add_partitions(database, "nope", [("a",)]),
        lambda: metastore.drop_table(database, "nope", delete_data=False),
    ):
        with pytest.raises(NoSuchObjectError, match="nope"):
            call()


def test_a_dropped_table_is_gone(metastore: MetastoreClient, database: str, make_table: MakeTable) -> None:
    """And its name is free again, without the old partitions."""
    make_table("t", "ds")
    metastore.add_partitions(database, "t", [("a",)])
    metastore.drop_table(database.upper(), "T", delete_data=True)
    assert metastore.get_all_tables(database) == []
    make_table("t", "ds")
    assert metastore.get_partition_names(database, "t") == []


def test_partitions_are_created_once(
    metastore: MetastoreClient, database: str, make_table: MakeTable
) -> None:
    """Existing ones and doubles within the call are skipped; the answer holds the new ones only."""
    table = make_table("t", "ds", "Hr")
    created = metastore.add_partitions(database, "t", [("a", "1"), ("a", "1"), ("b", "2")])
    assert sorted(p.name for p in created) == ["ds=a/hr=1", "ds=b/hr=2"]
    again = metastore.add_partitions(database.upper(), "T", [("b", "2"), ("c", "3")])
    (new,) = again
    assert (new.name, new.values, new.location) == (
        "ds=c/hr=3",
        ("c", "3"),
        f"{table.location}/ds=c/hr=3",
    )
    assert metastore.get_partition_names(database, "t") == ["ds=a/hr=1", "ds=b/hr=2", "ds=c/hr=3"]
    assert metastore.add_partitions(database, "t", []) == []


def test_partitions_are_found_by_name(
    metastore: MetastoreClient, database: str, make_table: MakeTable
) -> None:
    """Missing ones are left out; an unpartitioned table has none."""
    make_table("t", "ds")
    metastore.add_partitions(database, "t", [("a",), ("b",)])
    found = metastore.get_partitions_by_names(database, "t", ["ds=b", "ds=nope", "ds=a", "ds=b"])
    assert [p.name for p in found] == ["ds=a", "ds=b"]
    assert metastore.get_partitions_by_names(database, "t", []) == []
    make_table("plain")
    assert metastore.get_partition_names(database, "plain") == []


def test_every_character_is_escaped_as_the_server_does(
    metastore: MetastoreClient, database: str, make_table: MakeTable
) -> None:
    """Names, values and locations of partitions with each ASCII character, and some beyond."""
    table = make_table("t", "ds")
    values = [f"a{character}b" for character in [*ASCII, "é", "漢", "𝄞"]]
    created = metastore.add_partitions(database, "t", [(value,) for value in values])
    expected = {make_partition_name(["ds"], [value]): value for value in values}
    assert {p.name: p.values[0] for p in created} == expected
    assert {p.location.removeprefix(f"{table.location}/") for p in created} == set(expected)
    assert set(metastore.get_partition_names(database, "t")) == set(expected)
    assert {parse_partition_name(name) for name in expected} == {(("ds", value),) for value in values}
    found = metastore.get_partitions_by_names(database, "t", list(expected))
    assert {p.name: p.values[0] for p in found} == expected


def test_the_null_partition_has_a_name_of_its_own(
    metastore: MetastoreClient, database: str, make_table: MakeTable
) -> None:
    """NULL is sent as that name; an empty value would block it and is refused."""
    make_table("t", "ds")
    (partition,) = metastore.add_partitions(database, "t", [(DEFAULT_PARTITION_NAME,)])
    assert partition.name == f"ds={DEFAULT_PARTITION_NAME}"
    with pytest.raises(InvalidRequestError):
        metastore.add_partitions(database, "t", [("",)])


@pytest.mark.parametrize("values", [(), ("a", "b"), ("x" * 765,)])
def test_a_partition_that_cannot_be_is_refused(
    metastore: MetastoreClient, database: str, make_table: MakeTable, values: tuple[str, ...]
) -> None:
    """Too few values, too many, too long: nothing is created, not even the right ones beside it."""
    make_table("t", "ds")
    with pytest.raises(InvalidRequestError):
        metastore.add_partitions(database, "t", [("right",), values])
    assert metastore.get_partition_names(database, "t") == []


def test_an_unpartitioned_table_takes_no_partition(
    metastore: MetastoreClient, database: str, make_table: MakeTable
) -> None:
    """Neither with nor without values."""
    make_table("t")
    for values in ((), ("a",)):
        with pytest.raises(InvalidRequestError):
            metastore.add_partitions(database, "t", [values])


def set_parameters(
    metastore: MetastoreClient, database: str, partition: str | None, parameters: dict[str, str]
) -> None:
    """Change what is stored behind the client's back, as Hive's ANALYZE does."""
    if isinstance(metastore, InMemoryMetastore):
        metastore.set_parameters(database, "t", partition, parameters)
        return
    assert isinstance(metastore, ThriftMetastoreClient)
    types = metastore._call.__globals__["ttypes"]
    context = types.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})
    if partition is None:
        raw = metastore._get_raw_table(database, "t")
        raw.parameters = parameters
        metastore._call("alter_table_with_environment_context", database, "t", raw, context)
    else:
        (raw,) = metastore._get_raw_partitions(database, "t", [partition])
        raw.parameters = parameters
        metastore._call("alter_partitions_with_environment_context", database, "t", [raw], context)


def test_accurate_statistics_of_partitions_are_cleared(
    metastore: MetastoreClient, database: str, make_table: MakeTable
) -> None:
    """Only the flag goes, only where it is, only in the partitions named."""
    make_table("t", "ds")
    metastore.add_partitions(database, "t", [("a",), ("b",), ("c",)])
    for partition in ("ds=a", "ds=c"):
        accurate = {COLUMN_STATS_ACCURATE: '{"BASIC_STATS":"true"}', "numRows": "7", "mine": "kept"}
        set_parameters(metastore, database, partition, accurate)
    assert metastore.clear_accurate_statistics(database, "t", ["ds=a", "ds=b", "ds=nope"]) == 1
    a, b, c = metastore.get_partitions_by_names(database, "t", ["ds=a", "ds=b", "ds=c"])
    assert COLUMN_STATS_ACCURATE not in a.parameters and a.parameters["mine"] == "kept"
    assert a.parameters["numRows"] == "7"
    assert COLUMN_STATS_ACCURATE not in b.parameters
    assert COLUMN_STATS_ACCURATE in c.parameters


def test_accurate_statistics_of_a_table_are_cleared(
    metastore: MetastoreClient, database: str, make_table: MakeTable
) -> None:
    """What else the table is stays as it was."""
    make_table("t")
    metastore.clear_accurate_statistics(database, "t", None)
    accurate = {COLUMN_STATS_ACCURATE: '{"BASIC_STATS":"true"}', "numRows": "7", "transactional": "true"}
    set_parameters(metastore, database, None, accurate)
    before = metastore.get_table(database, "t")
    assert metastore.clear_accurate_statistics(database.upper(), "T", None) == 1
    after = metastore.get_table(database, "t")
    assert COLUMN_STATS_ACCURATE not in after.parameters
    assert after.parameters["numRows"] == "7" and after.parameters["transactional"] == "true"
    assert replace(before, parameters={}) == replace(after, parameters={})
    assert metastore.clear_accurate_statistics(database, "t", None) == 0


def test_a_compaction_is_queued_once(
    metastore: MetastoreClient, database: str, make_table: MakeTable
) -> None:
    """A second request for the same partition is not accepted while the first waits."""
    make_table("t", "ds")
    metastore.add_partitions(database, "t", [("a",)])
    assert metastore.compact(database.upper(), "T", "ds=a", CompactionType.MAJOR)
    assert not metastore.compact(database, "t", "ds=a", CompactionType.MAJOR)
    (queued,) = [c for c in metastore.show_compactions() if c.database == database]
    assert (queued.table, queued.partition, queued.type) == ("t", "ds=a", CompactionType.MAJOR)
    assert queued.state == "initiated"
