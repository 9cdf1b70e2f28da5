"""Behaviours of tables, partitions, statistics and compaction requests, in memory and on real Hives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from metastore_client.client import MetastoreClient
from metastore_client.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    MetastoreError,
    NoSuchObjectError,
    UnsupportedByServerError,
)
from metastore_client.model import (
    ColumnInfo,
    ColumnStatistics,
    CompactionType,
    ConstraintInfo,
    ConstraintKind,
    TableInfo,
)
from metastore_client.partition_name import (
    DEFAULT_PARTITION_NAME,
    make_partition_name,
    parse_partition_name,
)
from metastore_client.remote.thrift_client import ThriftMetastoreClient
from metastore_client.testing import InMemoryMetastore
from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList, accurate_columns
from tests.fixtures.fix_judge import FIXTURES
from tests.fixtures.fix_metastore import CAPABILITIES, acid_table_info
from tests.fixtures.fix_newest import HIVE_4

MakeTable = Callable[..., TableInfo]
ASCII = [chr(code) for code in range(1, 128)]
COLUMN_STATS_ACCURATE = "COLUMN_STATS_ACCURATE"


def test_a_server_shows_what_it_can_do(metastore: MetastoreClient, line: str) -> None:
    """Probed on the server, not derived from its version, which 2.3 and 3.1 share."""
    assert metastore.capabilities() == CAPABILITIES[line]


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
        parameters={"transactional": "True", "transactional_properties": "default", "x": "y"},
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
    """A caller that cannot write such tables must be able to recognise them."""
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


def test_properties_of_a_database_are_told(metastore: MetastoreClient, database: str) -> None:
    """In any case of its name; a database that is not there is an error."""
    assert metastore.get_database_parameters(database.upper()) == {}
    name = f"{database}_source"
    metastore.create_database(name, parameters={"repl.source.for": "nightly"})
    assert metastore.get_database_parameters(name)["repl.source.for"] == "nightly"
    with pytest.raises(NoSuchObjectError):
        metastore.get_database_parameters("no_such_database")


def test_a_table_needs_its_database(metastore: MetastoreClient) -> None:
    """A missing database is an error of the request."""
    with pytest.raises(MetastoreError):
        metastore.create_table(acid_table_info("no_such_database", "t"))
    assert metastore.get_all_tables("no_such_database") == []
    with pytest.raises(NoSuchObjectError):
        metastore.get_table("no_such_database", "t")


def test_a_transactional_table_without_buckets(metastore: MetastoreClient, database: str, line: str) -> None:
    """Hive 2.3 creates none; later releases do, and report it as a full ACID table."""
    table = replace(acid_table_info(database, "t"), bucket_columns=(), num_buckets=-1)
    if line == "2.3":
        with pytest.raises(InvalidRequestError, match="must be bucketed"):
            metastore.create_table(table)
        assert metastore.get_all_tables(database) == []
        return
    metastore.create_table(table)
    told = metastore.get_table(database, "t")
    assert (told.num_buckets, told.bucket_columns, told.table_type) == (-1, (), "MANAGED_TABLE")
    assert told.parameters["transactional_properties"] == "default"
    assert "bucketing_version" not in told.parameters  # that is for the creator to say


def test_an_insert_only_table_is_made_and_shown(metastore: MetastoreClient, database: str, line: str) -> None:
    """A server may ask for capabilities for both; 2.3 has no such tables."""
    parameters = {"transactional": "true", "transactional_properties": "insert_only"}
    table = replace(acid_table_info(database, "t"), bucket_columns=(), num_buckets=-1, parameters=parameters)
    if line == "2.3":
        with pytest.raises(InvalidRequestError):
            metastore.create_table(table)
        return
    metastore.create_table(table)
    told = metastore.get_table(database, "t")
    assert {key: told.parameters[key] for key in parameters} == parameters
    assert (told.num_buckets, told.table_type) == (-1, "MANAGED_TABLE")


def test_a_managed_table_that_is_not_transactional(
    metastore: MetastoreClient, database: str, line: str
) -> None:
    """Hive 4 makes it an external table without an error."""
    metastore.create_table(replace(acid_table_info(database, "t"), parameters={}))
    told = metastore.get_table(database, "t")
    if line in HIVE_4:
        assert told.table_type == "EXTERNAL_TABLE"
        assert told.parameters["TRANSLATED_TO_EXTERNAL"] == "TRUE"
    else:
        assert told.table_type == "MANAGED_TABLE"
        assert "TRANSLATED_TO_EXTERNAL" not in told.parameters


def test_columns_are_added_renamed_and_widened(
    metastore: MetastoreClient, database: str, make_table: MakeTable
) -> None:
    """All at once; everything else of the table and its partitions stays as it is."""
    before = make_table("t", "ds", x="y")
    metastore.add_partitions(database, "t", [("a",)])
    columns = (
        ColumnInfo("Id", "decimal(19,0)"),
        ColumnInfo("text", "string"),
        ColumnInfo("n", "array<int>", "new"),
    )
    metastore.set_columns(database.upper(), "T", columns)
    after = metastore.get_table(database, "t")
    assert after.columns == (replace(columns[0], name="id"), *columns[1:])
    changed_at = "transient_lastDdlTime"
    assert {k: v for k, v in after.parameters.items() if k != changed_at} == {
        k: v for k, v in before.parameters.items() if k != changed_at
    }
    assert replace(after, columns=before.columns, parameters=before.parameters) == before
    assert metastore.get_partition_names(database, "t") == ["ds=a"]
    with pytest.raises(InvalidRequestError, match="together"):
        metastore.set_columns(database, "t", columns, write_id=1)
    metastore.set_columns(database, "t", after.columns)  # a client repeats it after a broken connection
    assert metastore.get_table(database, "t").columns == after.columns


def test_missing_tables_are_named(metastore: MetastoreClient, database: str) -> None:
    """Every call that needs a table says which one is missing."""
    for call in (
        lambda: metastore.get_table(database, "nope"),
        lambda: metastore.get_partition_names(database, "nope"),
        lambda: metastore.get_partitions_by_names(database, "nope", ["ds=a"]),
        lambda: metastore.add_partitions(database, "nope", [("a",)]),
        lambda: metastore.drop_table(database, "nope", delete_data=False),
        lambda: metastore.set_columns(database, "nope", [ColumnInfo("a", "int")]),
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


class Writer(NamedTuple):
    """A transaction that changes statistics, with the ids that such calls take."""

    write_id: int | None = None
    valid_write_ids: ValidWriteIdList | None = None


@pytest.fixture
def writer(metastore: MetastoreClient, database: str) -> Writer:
    """A writer of the table ``t``, with the ids that the release gives it."""
    if not metastore.capabilities().has_write_ids:
        return Writer()
    txn_id = metastore.open_txn("user", "host", "agent")
    write_id = metastore.allocate_write_id(txn_id, database, "t")
    txns = ValidTxnList.from_open_txns(metastore.get_open_txns(), txn_id, has_write_ids=True)
    return Writer(write_id, metastore.get_valid_write_ids([f"{database}.t"], txns)[f"{database}.t"])


def set_parameters(
    metastore: MetastoreClient,
    database: str,
    partition: str | None,
    parameters: dict[str, str],
    writer: Writer,
) -> None:
    """Change what is stored behind the client's back, as Hive's ANALYZE does."""
    if isinstance(metastore, InMemoryMetastore):
        metastore.set_parameters(database, "t", partition, parameters)
        return
    assert isinstance(metastore, ThriftMetastoreClient)
    state = {}
    if writer.valid_write_ids is not None:
        state = {"writeId": writer.write_id, "validWriteIdList": writer.valid_write_ids.to_text()}
    if partition is None:
        raw: Any = metastore.get_table(database, "t").sent
        raw.parameters = parameters
        metastore._alter_raw_table(raw, state)
    else:
        (found,) = metastore._get_partitions(metastore.get_table(database, "t"), [partition])
        raw = found.struct()
        raw.parameters = parameters
        metastore._alter_raw_partitions(database, "t", [raw], state)


class _Counted:
    """Gives numbers of rows, and keeps what it was asked."""

    def __init__(self, **counts: int | None) -> None:
        self.counts, self.asked = counts, {}

    def __call__(self, recorded: Mapping[str, int | None]) -> Mapping[str, int | None]:
        self.asked = dict(recorded)
        return {name: self.counts[name.replace("=", "_") or "table"] for name in recorded}


ACCURATE = {COLUMN_STATS_ACCURATE: '{"BASIC_STATS":"true","COLUMN_STATS":{"id":"true"}}', "numRows": "7"}
ONLY_ROWS = '{"BASIC_STATS":"true"}'


@pytest.mark.parametrize("tells_writer", [True, False])
def test_row_counts_of_partitions(
    metastore: MetastoreClient, database: str, make_table: MakeTable, writer: Writer, tells_writer: bool
) -> None:
    """Only where statistics are used; elsewhere only the claim goes, in the partitions named."""
    make_table("t", "ds")
    metastore.add_partitions(database, "t", [("a",), ("b",), ("c",)])
    for partition in ("ds=a", "ds=c"):
        set_parameters(metastore, database, partition, {**ACCURATE, "mine": "kept"}, writer)
    told = writer._asdict() if tells_writer else {}
    records = metastore.capabilities().answers_from_statistics and tells_writer
    count = _Counted(ds_a=9, ds_b=1)
    changed = metastore.record_row_counts(database, "t", ["ds=a", "ds=b", "ds=nope"], count, **told)
    assert changed == (2 if records else 1)
    assert count.asked == ({"ds=a": 7, "ds=b": None} if records else {})
    a, b, c = metastore.get_partitions_by_names(database, "t", ["ds=a", "ds=b", "ds=c"])
    assert (a.parameters["mine"], a.parameters["numRows"]) == ("kept", "9" if records else "7")
    assert a.parameters.get(COLUMN_STATS_ACCURATE) == (ONLY_ROWS if records else None)
    assert b.parameters.get("numRows") == ("1" if records else None)
    assert c.parameters[COLUMN_STATS_ACCURATE] == ACCURATE[COLUMN_STATS_ACCURATE]
    count = _Counted(ds_a=None, ds_b=None)
    metastore.record_row_counts(database, "t", ["ds=a", "ds=b"], count, **told)
    assert count.asked == ({"ds=a": 9, "ds=b": 1} if records else {})
    for partition in metastore.get_partitions_by_names(database, "t", ["ds=a", "ds=b"]):
        assert COLUMN_STATS_ACCURATE not in partition.parameters


@pytest.mark.parametrize("tells_writer", [True, False])
def test_row_counts_of_a_table(
    metastore: MetastoreClient, database: str, make_table: MakeTable, writer: Writer, tells_writer: bool
) -> None:
    """All other properties of the table stay."""
    made = make_table("t")
    told = writer._asdict() if tells_writer else {}
    metastore.record_row_counts(database, "t", None, _Counted(table=None), **told)
    set_parameters(metastore, database, None, {**made.parameters, **ACCURATE}, writer)
    before = metastore.get_table(database, "t")
    assert COLUMN_STATS_ACCURATE in before.parameters
    count = _Counted(table=0)
    assert metastore.record_row_counts(database.upper(), "T", None, count, **told) == 1
    after = metastore.get_table(database, "t")
    records = metastore.capabilities().answers_from_statistics and tells_writer
    assert count.asked == ({"": 7} if records else {})
    assert after.parameters.get(COLUMN_STATS_ACCURATE) == (ONLY_ROWS if records else None)
    assert after.parameters["numRows"] == ("0" if records else "7")
    assert after.parameters["transactional"] == "true"
    assert replace(before, parameters={}) == replace(after, parameters={})
    assert metastore.record_row_counts(database, "t", None, _Counted(table=0), **told) == 0


def test_columns_without_statistics(
    metastore: MetastoreClient, database: str, make_table: MakeTable, writer: Writer
) -> None:
    """Nothing is answered, for known and unknown columns and partitions; a missing table is an error.

    What Hive records is compared in tests/integration/upkeep.
    """
    make_table("t", "ds")
    make_table("flat")
    metastore.add_partitions(database, "t", [("a",)])
    valid = {"valid_write_ids": writer.valid_write_ids}
    assert metastore.get_column_statistics(database, "T", ["ds=a", "ds=b"], ["id", "none"], **valid) == {}
    assert metastore.get_column_statistics(database, "flat", None, ["ID"]) == {}
    with pytest.raises(NoSuchObjectError):
        metastore.get_column_statistics(database, "missing", None, ["id"])


def test_statistics_of_new_rows_are_added(
    metastore: MetastoreClient, database: str, make_table: MakeTable, writer: Writer
) -> None:
    """They replace the recorded ones, or are added to them: nulls, ranges, and the higher estimate."""
    make_table("t", "ds")
    metastore.add_partitions(database, "t", [("a",), ("b",)])
    told = {"write_id": writer.write_id, "valid_write_ids": writer.valid_write_ids}
    first = ColumnStatistics("id", "bigint", 1, low=3, high=9, distinct_count=5)
    metastore.merge_column_statistics(
        database.upper(), "T", {"ds=a": [first], "ds=b": [first]}, replaces=True, **told
    )
    more = ColumnStatistics("id", "bigint", 2, low=-4, high=7, distinct_count=4)
    both = replace(first, null_count=3, low=-4, high=9)
    if metastore.capabilities().answers_from_statistics:
        metastore.merge_column_statistics(database, "t", {"ds=a": [more]}, **told)
    else:
        both = first
        with pytest.raises(UnsupportedByServerError):
            metastore.merge_column_statistics(database, "t", {"ds=a": [more]}, **told)
    assert metastore.get_column_statistics(database, "t", ["ds=a", "ds=b"], ["id"]) == {
        "ds=a": (both,),
        "ds=b": (first,),
    }
    metastore.merge_column_statistics(database, "t", {"ds=a": [more]}, replaces=True, **told)
    assert metastore.get_column_statistics(database, "t", ["ds=a"], ["id"]) == {"ds=a": (more,)}
    with pytest.raises(NoSuchObjectError):
        metastore.merge_column_statistics(database, "missing", {"": [first]}, replaces=True, **told)


def test_statistics_are_added_where_they_are_accurate(
    metastore: MetastoreClient, database: str, make_table: MakeTable, writer: Writer
) -> None:
    """In one call with partitions where they are not, before and after them by name."""
    if not metastore.capabilities().answers_from_statistics:
        return  # they are never added
    make_table("t", "ds")
    metastore.add_partitions(database, "t", [(name,) for name in "abcd"])
    names = [f"ds={name}" for name in "abcd"]
    told = {"write_id": writer.write_id, "valid_write_ids": writer.valid_write_ids}
    first = ColumnStatistics("id", "bigint", 1, low=3, high=9, distinct_count=5)
    metastore.merge_column_statistics(database, "t", {name: [first] for name in names}, replaces=True, **told)
    accurate = {"ds=b", "ds=d"}
    kept = dict.fromkeys(accurate, ("id",))
    metastore.record_row_counts(database, "t", names, lambda _: dict.fromkeys(names, 7), **told, columns=kept)
    more = ColumnStatistics("id", "bigint", 2, low=-4, high=7, distinct_count=4)
    metastore.merge_column_statistics(database, "t", {name: [more] for name in names}, **told)
    both = replace(first, null_count=3, low=-4, high=9)
    assert metastore.get_column_statistics(database, "t", names, ["id"]) == {
        name: (both if name in accurate else first,) for name in names
    }
    found = metastore.get_partitions_by_names(database, "t", names)
    assert {each.name for each in found if accurate_columns(each.parameters)} == accurate


def test_a_range_stays_if_the_new_statistics_have_none(
    metastore: MetastoreClient, database: str, make_table: MakeTable, writer: Writer
) -> None:
    """No column of the server's tables is set to NULL."""
    make_table("t", "ds")
    metastore.add_partitions(database, "t", [("a",)])
    told = {"write_id": writer.write_id, "valid_write_ids": writer.valid_write_ids}
    first = ColumnStatistics("id", "bigint", 1, low=3, high=9, distinct_count=5)
    metastore.merge_column_statistics(database, "t", {"ds=a": [first]}, replaces=True, **told)
    none = ColumnStatistics("id", "bigint", 4, distinct_count=1)
    metastore.merge_column_statistics(database, "t", {"ds=a": [none]}, replaces=True, **told)
    kept = replace(none, low=3, high=9)
    assert metastore.get_column_statistics(database, "t", ["ds=a"], ["id"]) == {"ds=a": (kept,)}


def test_deleting_statistics_that_do_not_exist(
    metastore: MetastoreClient, database: str, make_table: MakeTable
) -> None:
    """They are skipped; a missing table is an error, and so is any deletion on Hive 4.

    What Hive recorded is deleted in tests/integration.
    """
    make_table("t", "ds")
    make_table("flat")
    metastore.add_partitions(database, "t", [("a",)])
    if not metastore.capabilities().deletes_column_statistics:
        with pytest.raises(UnsupportedByServerError):
            metastore.delete_column_statistics(database, "flat", None, "id")
        return
    metastore.delete_column_statistics(database, "T", ["ds=a", "ds=b"], "ID")
    metastore.delete_column_statistics(database, "flat", None, "id")
    with pytest.raises(NoSuchObjectError):
        metastore.delete_column_statistics(database, "missing", None, "id")


def test_a_partition_is_dropped_with_its_files(
    metastore: MetastoreClient, database: str, make_table: MakeTable
) -> None:
    """The other partitions stay; a missing one is an error."""
    make_table("t", "ds")
    metastore.add_partitions(database, "t", [("a b",), ("c",)])
    dropped, kept = metastore.get_partitions_by_names(database, "t", ["ds=a b", "ds=c"])
    metastore.drop_partition(database, "T", "ds=a b")
    assert metastore.get_partition_names(database, "t") == ["ds=c"]
    assert not Path(dropped.location.removeprefix("file:")).exists()
    is_in_memory = isinstance(metastore, InMemoryMetastore)
    assert is_in_memory or Path(kept.location.removeprefix("file:")).exists()
    with pytest.raises(NoSuchObjectError):
        metastore.drop_partition(database, "t", "ds=a b")
    with pytest.raises(NoSuchObjectError):
        metastore.drop_partition(database, "missing", "ds=c")


def test_parameters_of_a_table_are_set_and_removed(
    metastore: MetastoreClient, database: str, make_table: MakeTable
) -> None:
    """All others stay, and so do columns and location."""
    made = make_table("t")
    before = metastore.get_table(database, made.name)
    metastore.set_table_parameters(database, made.name, {"x.one": "1", "x.two": '["ä"]'})
    metastore.set_table_parameters(
        database, made.name.upper(), {"x.one": None, "x.three": "3", "x.none": None}
    )
    found = metastore.get_table(database, made.name)
    ours = {name: value for name, value in found.parameters.items() if name.startswith("x.")}
    assert ours == {"x.two": '["ä"]', "x.three": "3"}
    assert found.parameters.items() >= {
        (name, value) for name, value in before.parameters.items() if not name.startswith("transient")
    }
    assert replace(found, parameters={}) == replace(before, parameters={})
    with pytest.raises(NoSuchObjectError):
        metastore.set_table_parameters(database, "missing", {"x": "y"})


def test_a_write_id_for_statistics_needs_its_valid_list(
    metastore: MetastoreClient, database: str, make_table: MakeTable
) -> None:
    """Half of it would make a server believe that the statistics are still right."""
    make_table("t")
    with pytest.raises(InvalidRequestError, match="write_id and valid_write_ids together"):
        metastore.record_row_counts(database, "t", None, _Counted(), write_id=1)


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


CONSTRAINTS = (
    ConstraintInfo(ConstraintKind.CHECK, "c1", "", "v > 0"),
    ConstraintInfo(ConstraintKind.CHECK, "c2", "", "v < 9", is_enabled=False),
    ConstraintInfo(ConstraintKind.DEFAULT, "", "d", "'x'"),
    ConstraintInfo(ConstraintKind.NOT_NULL, "", "v"),
)


def test_constraints_come_with_their_table(
    metastore: MetastoreClient, line: str, database: str, request: pytest.FixtureRequest
) -> None:
    """Those that Hive enforces on writes, disabled ones too; Hive 2.3 and a missing table have none."""
    name = f"{database}.t"
    assert metastore.get_constraints(database, "t") == ()
    assert metastore.get_primary_key(database, "t") == ()
    if isinstance(metastore, InMemoryMetastore):
        metastore.create_table(acid_table_info(database, "t"))
        if line == "2.3":
            with pytest.raises(UnsupportedByServerError):
                metastore.set_constraints(database, "t", CONSTRAINTS)
        else:
            metastore.set_constraints(database, "T", CONSTRAINTS, primary_key=["D", "v"])
    elif line == "2.3":
        metastore.create_table(acid_table_info(database, "t"))
    else:
        request.getfixturevalue(FIXTURES[line]).sql(
            f"create table {name} (V int not null enable, d string default 'x', "
            "constraint c1 check (v > 0), constraint c2 check (v < 9) disable novalidate, "
            "primary key (D, v) disable novalidate) "
            "stored as orc tblproperties ('transactional'='true')"
        )
    found = [
        replace(
            each,
            name=each.name if each.kind is ConstraintKind.CHECK else "",
            expression=each.expression.strip("()").replace("`", ""),
        )
        for each in metastore.get_constraints(database, "T")
    ]
    assert found == ([] if line == "2.3" else list(CONSTRAINTS))
    assert metastore.get_primary_key(database, "T") == (() if line == "2.3" else ("d", "v"))
