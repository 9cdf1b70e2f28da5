"""Columns are added, renamed and widened at once, or nothing is changed."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import pyarrow as pa
import pytest

from metastore_client.model import ColumnInfo, ColumnStatistics, ConstraintInfo, ConstraintKind, LockType
from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.errors import (
    ConfigurationError,
    LockNotAcquiredError,
    RecordLayoutError,
    TableNotFoundError,
    TableNotMutableError,
)
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.orc.read.type_changes import CHANGES
from mutation_api.table.acid_table import TableRole
from mutation_api.transaction.catalog import Catalog, TableSpec
from mutation_api.transaction.lock import Lock, LockedTable, Marks, lock_components
from mutation_api.upkeep.alter_acid_table import AlteredTable, added_columns, alter_acid_table, is_wider
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.fixtures.fix_clock import FakeClock

LINES = {"2.3": HIVE_2_3, "3.1": HIVE_3_1, "4.1": HIVE_4_1}
NAME = "default.t"
COLUMNS = (
    ColumnInfo("id", "int"),
    ColumnInfo("n", "int", "how many"),
    ColumnInfo("v", "varchar(5)"),
    ColumnInfo("s", "struct<a:int>"),
)


def made(
    line: str = "4.1", *, configuration: dict[str, str] | None = None, **properties: str
) -> InMemoryMetastore:
    """A metastore with a table in two buckets by id and two partitions."""
    metastore = InMemoryMetastore(capabilities=LINES[line], configuration=configuration)
    create_acid_table(
        metastore,
        NAME,
        COLUMNS,
        [ColumnInfo("day", "date")],
        clustered_by=["id"],
        num_buckets=2,
        properties=properties,
    )
    metastore.add_partitions("default", "t", [["2024-01-01"], ["2024-01-02"]])
    return metastore


def columns(metastore: InMemoryMetastore) -> tuple[ColumnInfo, ...]:
    """The data columns of the table."""
    return metastore.get_table("default", "t").columns


def test_all_changes_at_once() -> None:
    """The report says what was done, as a string and as JSON; comments and other columns stay."""
    metastore = made()
    statistics = [ColumnStatistics(name, "long", 0) for name in ("id", "n", "v")]
    metastore.set_column_statistics("default", "t", "day=2024-01-01", statistics)
    before = metastore.get_table("default", "t")
    report = alter_acid_table(
        metastore,
        "Default.T",
        add="Extra double precision, m map<string,int>",
        rename={"N": "Pieces"},
        widen={" n": " BIGINT", "V": "string"},
    )
    assert report == AlteredTable(
        NAME,
        {"extra": "double", "m": "map<string,int>"},
        {"n": "pieces"},
        {"n": ("int", "bigint"), "v": ("varchar(5)", "string")},
        2,
    )
    after = metastore.get_table("default", "t")
    assert after.columns == (
        ColumnInfo("id", "int"),
        ColumnInfo("pieces", "bigint", "how many"),
        ColumnInfo("v", "string"),
        ColumnInfo("s", "struct<a:int>"),
        ColumnInfo("extra", "double"),
        ColumnInfo("m", "map<string,int>"),
    )
    assert dataclasses.replace(after, columns=before.columns) == before
    told = metastore.get_column_statistics("default", "t", ["day=2024-01-01"], ["id", "n", "v", "pieces"])
    assert [each.column for each in told["day=2024-01-01"]] == ["id"]
    assert str(report).splitlines() == [
        "default.t: altered, with its 2 partitions",
        "renamed n to pieces",
        "widened n from int to bigint",
        "widened v from varchar(5) to string",
        "added extra double",
        "added m map<string,int>",
    ]
    assert json.loads(json.dumps(report.to_dict())) == {
        "table": NAME,
        "added": {"extra": "double", "m": "map<string,int>"},
        "renamed": {"n": "pieces"},
        "widened": {
            "n": {"from": "int", "to": "bigint"},
            "v": {"from": "varchar(5)", "to": "string"},
        },
        "partition_count": 2,
        "dry_run": False,
    }


@pytest.mark.parametrize(
    "add",
    [
        {"X": "BIGINT", "y": "array<int>"},
        "x bigint, y array<int>",
        pa.schema({"x": pa.int64(), "Y": pa.list_(pa.int32())}),
        [ColumnInfo("x", "bigint"), ColumnInfo("y", "array<int>")],
    ],
)
@pytest.mark.parametrize("line", LINES)
def test_the_forms_of_new_columns(line: str, add: Any) -> None:
    """Hive's types by name, columns as in SQL, an Arrow schema, and columns; on each release."""
    metastore = made(line)
    assert alter_acid_table(metastore, NAME, add=add).added == {"x": "bigint", "y": "array<int>"}
    assert columns(metastore) == (*COLUMNS, ColumnInfo("x", "bigint"), ColumnInfo("y", "array<int>"))


def test_only_those_that_are_missing() -> None:
    """The schema of rows may be passed; the second time there is nothing to do, and no lock is taken."""
    metastore = made()
    rows = pa.schema(
        {"ROW__ID": pa.binary(), "ID": pa.uint64(), "day": pa.date32(), "x": pa.int8(), "Y": pa.string()}
    )
    table = Catalog(metastore).read(TableSpec("default", "t", TableRole.SOURCE)).table
    missing = (ColumnInfo("x", "tinyint"), ColumnInfo("y", "string"))
    assert added_columns(table, rows) == missing
    assert alter_acid_table(metastore, NAME, add=rows, missing_only=True).is_changed
    assert columns(metastore) == (*COLUMNS, *missing)
    last = metastore.get_open_txns().high_watermark
    report = alter_acid_table(metastore, NAME, add=rows, missing_only=True)
    assert str(report) == "default.t: no column was changed"
    assert metastore.get_open_txns().high_watermark == last
    with pytest.raises(RecordLayoutError, match=r"column 'z': .*uint64"):
        alter_acid_table(metastore, NAME, add=pa.schema({"z": pa.uint64()}), missing_only=True)


def test_a_dry_run_changes_nothing() -> None:
    """It takes no lock either; what is refused is refused."""
    metastore = made()
    last = metastore.get_open_txns().high_watermark
    report = alter_acid_table(metastore, NAME, add={"x": "int"}, dry_run=True)
    assert str(report).startswith("default.t: would be altered, with its 2 partitions\nadded x int")
    assert report.to_dict()["dry_run"] is True
    with pytest.raises(ConfigurationError, match="'id'"):
        alter_acid_table(metastore, NAME, add={"id": "int"}, dry_run=True)
    assert columns(metastore) == COLUMNS
    assert metastore.get_open_txns().high_watermark == last


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({}, ConfigurationError, "nothing to alter: pass add, rename or widen"),
        ({"add": {"N": "int"}}, ConfigurationError, "already has a column 'n'"),
        ({"add": {"day": "int"}}, ConfigurationError, "already has a column 'day'"),
        ({"add": {"x": "lint"}}, TableNotMutableError, "'lint' is not a Hive type"),
        ({"add": {"x": "timestamp with local time zone"}}, TableNotMutableError, "not supported"),
        ({"add": {"a.b": "int"}}, ConfigurationError, r"called 'a\.b'"),
        ({"add": {"row__id": "int"}}, ConfigurationError, "called 'row__id'"),
        ({"add": [ColumnInfo("x", "int"), ColumnInfo("X", "int")]}, ConfigurationError, "'x' occurs twice"),
        ({"add": 5}, ConfigurationError, "Hive's types by name.* got int"),
        ({"add": {"x": 5}}, ConfigurationError, "got dict"),
        ({"add": pa.schema({"x": pa.null()})}, RecordLayoutError, "null has no Hive type"),
        ({"rename": {"none": "x"}}, ConfigurationError, "has no column 'none': expected one of id, n, v, s"),
        ({"rename": {"n": "V"}}, ConfigurationError, "already has a column 'v'"),
        ({"rename": {"n": "v", "v": "n"}}, ConfigurationError, "even if that column is renamed"),
        ({"rename": {"n": "x", "v": "X"}}, ConfigurationError, "'x' occurs twice"),
        ({"rename": {"n": "x"}, "add": {"x": "int"}}, ConfigurationError, "'x' occurs twice"),
        ({"rename": {"n": "x"}, "add": {"n": "int"}}, ConfigurationError, "already has a column 'n'"),
        ({"rename": {"n": "a:b"}}, ConfigurationError, "called 'a:b'"),
        ({"rename": {"n": "x", "N": "y"}}, ConfigurationError, "'n' occurs twice"),
        ({"rename": {"id": "x"}}, ConfigurationError, "'id' is a bucket column"),
        ({"rename": {"Day": "x"}}, ConfigurationError, "'day' is a partition column"),
        ({"rename": [("n", "x")]}, ConfigurationError, r'rename must be a mapping such as \{"old": "new"\}'),
        ({"widen": "n bigint"}, ConfigurationError, "widen must be a mapping"),
        ({"widen": {"n": pa.int64()}}, ConfigurationError, "widen must be a mapping"),
        ({"widen": {"id": "bigint"}}, ConfigurationError, "'id' is a bucket column"),
        ({"widen": {"day": "timestamp"}}, ConfigurationError, "'day' is a partition column"),
        ({"widen": {"n": "lint"}}, ConfigurationError, "column 'n': .*'lint' is not a Hive type"),
        ({"widen": {"n": "int"}}, ConfigurationError, "'n' cannot be widened: got int, .* than int"),
        (
            {"widen": {"n": "float"}},
            ConfigurationError,
            "got float, .* expected bigint, double, a decimal with at least 10 digits before the point or "
            "string",
        ),
        ({"widen": {"v": "varchar(4)"}}, ConfigurationError, "expected a longer varchar or string"),
        ({"widen": {"s": "struct<a:bigint>"}}, ConfigurationError, "columns of this type cannot be widened"),
    ],
)
def test_what_is_refused_changes_nothing(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    """The message names the column and what would be possible; no transaction stays open."""
    metastore = made()
    for more in ({}, {"dry_run": True}):
        with pytest.raises(error, match=words):
            alter_acid_table(metastore, NAME, **changes, **more)
    assert columns(metastore) == COLUMNS
    assert metastore.get_open_txns().txns == ()


@pytest.mark.parametrize(
    ("line", "properties", "is_refused"),
    [
        ("2.3", {}, True),
        ("3.1", {}, True),
        ("3.1", {"orc.force.positional.evolution": "true"}, True),
        ("2.3", {"orc.force.positional.evolution": "true"}, True),
        ("4.1", {}, False),
        ("4.1", {"orc.bloom.filter.columns": "v, N"}, True),
    ],
)
def test_a_rename_that_readers_would_not_follow(
    line: str, properties: dict[str, str], is_refused: bool
) -> None:
    """By name the column would be NULL in old rows, or after a compaction; by position it is found."""
    metastore = made(line, **properties)
    if is_refused:
        with pytest.raises(ConfigurationError, match="column 'n' cannot be renamed"):
            alter_acid_table(metastore, NAME, rename={"n": "x"})
    else:
        alter_acid_table(metastore, NAME, rename={"n": "x"})
    assert (columns(metastore)[1].name == "n") is is_refused


def test_a_rename_where_a_setting_asks_for_names() -> None:
    """Hive 4 reads by position without it."""
    metastore = made(configuration={"orc.force.positional.evolution": "false"})
    with pytest.raises(ConfigurationError, match=r"with orc\.force\.positional\.evolution=false"):
        alter_acid_table(metastore, NAME, rename={"n": "x"})


@pytest.mark.parametrize(
    "constraint",
    [
        ConstraintInfo(ConstraintKind.NOT_NULL, "c", "n"),
        ConstraintInfo(ConstraintKind.DEFAULT, "c", "n", "5", is_enabled=False),
        ConstraintInfo(ConstraintKind.CHECK, "c", "", "`N` + 1 > length(v)"),
    ],
)
def test_columns_with_constraints_stay(constraint: ConstraintInfo) -> None:
    """The message says how to drop the constraint; other columns can change."""
    metastore = made()
    metastore.set_constraints("default", "t", [constraint])
    message = r"'n' has the constraint c \(.*\).*ALTER TABLE default\.t DROP CONSTRAINT c"
    for changes in ({"widen": {"n": "bigint"}}, {"rename": {"n": "x"}}):
        with pytest.raises(ConfigurationError, match=message):
            alter_acid_table(metastore, NAME, **changes)  # type: ignore[arg-type]
    alter_acid_table(metastore, NAME, add={"x": "int"}, rename={"s": "nn"})


def test_hive_2_widens_within_a_kind() -> None:
    """Its compactor fails on files with another kind of type."""
    metastore = made("2.3")
    for name, new in (("n", "bigint"), ("n", "string"), ("n", "decimal(12,2)"), ("v", "string")):
        with pytest.raises(ConfigurationError, match="the compactor of Hive 2 fails"):
            alter_acid_table(metastore, NAME, widen={name: new})
    assert columns(metastore) == COLUMNS
    report = alter_acid_table(metastore, NAME, widen={"v": "varchar(9)"})
    assert report.widened == {"v": ("varchar(5)", "varchar(9)")}


def test_hive_3_has_no_change_of_a_table_with_constraints() -> None:
    """Its server fails on them."""
    metastore = made("3.1")
    metastore.set_constraints("default", "t", [ConstraintInfo(ConstraintKind.NOT_NULL, "c", "n")])
    with pytest.raises(ConfigurationError, match=r"Hive 3 cannot alter .* DROP CONSTRAINT c"):
        alter_acid_table(metastore, NAME, add={"x": "int"})
    assert columns(metastore) == COLUMNS


def test_tables_that_cannot_be_altered() -> None:
    """Missing ones, and targets of a replication."""
    metastore = made()
    with pytest.raises(TableNotFoundError, match=r"default\.none"):
        alter_acid_table(metastore, "default.none", add={"x": "int"})
    with pytest.raises(ConfigurationError, match=r"expected database\.table"):
        alter_acid_table(metastore, "t", add={"x": "int"})
    metastore.database_parameters["default"]["repl.target.for"] = "policy"
    with pytest.raises(TableNotMutableError, match="target of a replication"):
        alter_acid_table(metastore, NAME, add={"x": "int"})


def test_the_lock_is_that_of_hives_ddl() -> None:
    """Others that use the table keep it out, and it keeps them out; afterwards nothing is held."""
    metastore, clock = made(), FakeClock()
    txn_id = metastore.open_txn("u", "h", "a")
    reader = LockedTable("default", "t", is_partitioned=True, is_sink=False)
    held = Lock(metastore, clock, txn_id, lock_components([reader]), Marks("u", "h", "a"))
    assert held.request()
    with pytest.raises(LockNotAcquiredError, match=r"default\.t \(EXCLUSIVE\) within 7"):
        alter_acid_table(metastore, NAME, add={"x": "int"}, lock_timeout_seconds=7, clock=clock)
    assert columns(metastore) == COLUMNS
    metastore.commit_txn(txn_id)
    seen = []
    set_columns = metastore.set_columns

    def looking(*arguments: Any, **ids: Any) -> None:
        seen.extend(each.type for each in metastore.show_locks("default", "t"))
        set_columns(*arguments, **ids)

    metastore.set_columns = looking  # type: ignore[method-assign]
    alter_acid_table(metastore, NAME, add={"x": "int"})
    assert seen == [LockType.EXCLUSIVE]
    assert (metastore.show_locks(), metastore.get_open_txns().txns) == ([], ())


TYPES = [
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(3,0)", "decimal(12,2)"),
    *("decimal(38,18)", "string", "varchar(3)", "varchar(9)", "char(3)", "char(9)", "binary", "date"),
    *("timestamp", "array<int>", "array<bigint>", "struct<a:int>"),
]
WIDER = {
    "tinyint": "smallint int bigint float double decimal(3,0) decimal(12,2) decimal(38,18) string",
    "smallint": "int bigint float double decimal(12,2) decimal(38,18) string",
    "int": "bigint double decimal(12,2) decimal(38,18) string",
    "bigint": "decimal(38,18) string",
    "float": "double",
    "decimal(3,0)": "decimal(12,2) decimal(38,18) string",
    "decimal(12,2)": "decimal(38,18) string",
    "decimal(38,18)": "string",
    "varchar(3)": "string varchar(9)",
    "varchar(9)": "string",
    "char(3)": "string varchar(3) varchar(9) char(9)",
    "char(9)": "string varchar(9)",
}


def test_wider_types() -> None:
    """Exactly these, all of which the reader of ORC files converts."""
    found: dict[str, list[str]] = {}
    for old, new in itertools.product(TYPES, TYPES):
        before, after = parse_hive_type(old), parse_hive_type(new)
        if is_wider(before, after):
            found.setdefault(old, []).append(new)
            texts = {"varchar", "char", "string"}
            assert (before.kind, after.kind) in CHANGES or {before.kind, after.kind} <= texts
    assert {old: " ".join(new) for old, new in found.items()} == WIDER
