"""NOT NULL, CHECK and DEFAULT: a row that Hive's statements refuse is refused, and defaults are stored."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from judges.errors import HiveError
from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import open_client
from mutation_api import LocalOptions, MutatorClientBuilder, Transaction, apply_changes, connect, merge_into
from mutation_api.cdc import LogOptions, MaxwellSource, TableMapping, ingest
from mutation_api.errors import (
    ConfigurationError,
    ConstraintViolationError,
    RecordLayoutError,
    TableNotMutableError,
)
from mutation_api.format.hive_type import arrow_type, parse_hive_type
from mutation_api.table.evaluation import evaluate
from mutation_api.table.hive_sql import hive_condition
from tests.support.change_source import Entry, ListSource
from tests.support.json_messages import Change, maxwell, write_log

pytestmark = [pytest.mark.slow, pytest.mark.tasks, pytest.mark.timeout(900)]

LINES = pytest.mark.parametrize(
    "hive_line", [pytest.param("3.1", marks=pytest.mark.long), "4.1"], indirect=True
)
ACID = "stored as orc tblproperties ('transactional'='true')"
TYPES = dict.fromkeys(("id", "v", "w", "n"), pa.int32()) | dict.fromkeys(("s", "z"), pa.string())
SOUND = {"s": "b", "v": 2, "w": 2}
BROKEN = {
    "NOT NULL of column s": {"s": None},
    r"CHECK \S+ \(.*v.* > 0": {"v": -5},
    r"CHECK sums \(": {"w": 99},
}
"""What the error names -> the value that breaks it."""
WAYS = ("append", "update", "merge", "merge_new")


class Table:
    """A table that both engines change: ``id`` and other columns, one row with the id 1."""

    def __init__(self, judge: HiveJudge, name: str, spark: SparkSession | None, columns: str) -> None:
        self.judge, self.name, self.spark = judge, name, spark
        judge.sql(f"create table {name} (id int, {columns}) clustered by (id) into 2 buckets {ACID}")

    def rows(self) -> list[list[Any]]:
        """As Hive reads them."""
        return self.judge.sql(f"select * from {self.name} order by id")

    def change(self, way: str, values: dict[str, Any]) -> None:
        """Commit one row with values, as a new row of id 2 or as the row of id 1; or delete that of id 2."""
        row_id = 2 if way in ("append", "merge_new", "delete") else 1
        row = pa.table(
            {name: pa.array([value], TYPES[name]) for name, value in {"id": row_id, **values}.items()}
        )
        if way in ("append", "update", "delete"):
            self._apply("insert" if way == "append" else way, row)
        else:
            self._merge(row)

    def _apply(self, operation: str, row: pa.Table) -> None:
        with connect(self.judge.uri) as hive, hive.transaction(self.name) as tx:
            table = tx.table(self.name)
            found = table.scan(["id"], where=pc.field("id") == row["id"][0], row_ids=True).to_arrow()
            if operation != "insert":
                row = row.append_column("ROW__ID", found["ROW__ID"])
            if self.spark is None:
                {"insert": table.append, "update": table.update, "delete": table.delete}[operation](row)
                return
        changes = row.append_column("operation", pa.array([operation]))
        frame = self.spark.createDataFrame(changes)
        with self._transaction() as transaction:
            apply_changes(transaction, self.name, frame)

    def _merge(self, row: pa.Table) -> None:
        if self.spark is None:
            with connect(self.judge.uri) as hive, hive.transaction(self.name) as tx:
                merge = tx.table(self.name).merge(row, on=["id"])
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
            return
        with self._transaction() as transaction:
            merge_of = merge_into(transaction, self.name, source=self.spark.createDataFrame(row), on=["id"])
            merge_of.whenMatched().updateAll().whenNotMatched().insertAll().execute()

    def _transaction(self) -> Any:
        builder = MutatorClientBuilder().metastore(self.judge.uri)
        return _begun(builder.add_sink_table(*self.name.split(".")))


@contextlib.contextmanager
def _begun(builder: MutatorClientBuilder) -> Iterator[Transaction]:
    with builder.build() as client, client.new_transaction() as transaction:
        yield transaction


@pytest.fixture
def table(hive_line: HiveJudge, line_database: str, engine_session: SparkSession | None) -> Table:
    """With constraints of a column, of two columns, and one that is disabled."""
    table = Table(
        hive_line,
        f"{line_database}.t",
        engine_session,
        "s string not null enable, v int check (v > 0), w int, "
        "constraint sums check (v + w < 100 or w is null), "
        "constraint off check (id < 0) disable novalidate",
    )
    hive_line.sql(f"insert into {table.name} select 1, 'a', 1, 1")
    return table


@pytest.mark.long
@pytest.mark.feature("NOT NULL and CHECK constraints, DEFAULT")
@LINES
@pytest.mark.parametrize("way", WAYS)
def test_a_row_that_breaks_a_constraint_is_refused(table: Table, way: str) -> None:
    """By Hive's statement and by ours, whichever constraint it is; a NULL passes a CHECK."""
    before = table.rows()
    for named, value in BROKEN.items():
        row = SOUND | value
        texts = ["null" if each is None else repr(each) for each in row.values()]
        with pytest.raises(HiveError):
            if way in ("append", "merge_new"):
                table.judge.sql(f"insert into {table.name} select 2, {', '.join(texts)}")
            else:
                pairs = ", ".join(f"{name} = {text}" for name, text in zip(row, texts, strict=True))
                table.judge.sql(f"update {table.name} set {pairs} where id = 1")
        with pytest.raises(ConstraintViolationError, match=f"{table.name}.*bucket.*{named}"):
            table.change(way, row)
        assert table.rows() == before
    table.change(way, SOUND | {"v": None})
    assert [2, "b", None, 2] in table.rows() or [1, "b", None, 2] in table.rows()


@pytest.mark.long
@LINES
def test_a_row_that_broke_a_constraint_before(table: Table) -> None:
    """Hive's UPDATE of another column fails for it, and so does ours; a change that mends it does not."""
    table.judge.sql(f"update {table.name} set w = null")
    table.judge.sql(f"alter table {table.name} change column w w int not null enable")
    with pytest.raises(HiveError):
        table.judge.sql(f"update {table.name} set v = 3")
    with pytest.raises(ConstraintViolationError, match="NOT NULL of column w"):
        table.change("merge", {"v": 3})
    table.change("merge", {"w": 3})
    assert table.rows() == [[1, "a", 1, 3]]


DEFAULTS = {
    "s string default 'it\\'s \"é\"'": 'it\'s "é"',
    "i int default 5": 5,
    "l bigint default 5L": 5,
    "t tinyint default 5Y": 5,
    "m decimal(10,2) default cast(1.5 as decimal(10,2))": None,
    "m1 decimal(2,1) default 1.5": None,
    "d double default 1.0E2": 100.0,
    "f float default cast(1.5 as float)": 1.5,
    "b boolean default true": True,
    "c varchar(3) default cast('xyzab' as varchar(3))": "xyz",
    "k char(5) default cast('xy' as char(5))": "xy   ",
    "day date default date '2020-01-02'": None,
    "at timestamp default timestamp '2020-01-01 10:00:00'": None,
    "e string default ''": "",
    "n int default 7 disable novalidate": None,
    "q string default cast(5 as string)": "5",
    "u string default current_user()": None,
    "today date default current_date()": None,
}


@pytest.mark.long
@pytest.mark.feature("NOT NULL and CHECK constraints, DEFAULT")
@LINES
@pytest.mark.parametrize("way", ["append", "merge_new"])
def test_missing_columns_get_their_default(
    hive_line: HiveJudge, line_database: str, engine_session: SparkSession | None, way: str
) -> None:
    """The same as Hive's own INSERT that names no other column stores."""
    columns = ", ".join(DEFAULTS)
    table = Table(hive_line, f"{line_database}.t", engine_session, f"{columns}, z string")
    hive_line.sql(f"insert into {table.name} (id) select 1")
    table.change(way, {"n": None, "z": None} if way == "append" else {})
    first, second = table.rows()
    assert second[1:] == first[1:]
    given = {column.split()[0]: value for column, value in DEFAULTS.items() if value is not None}
    named = dict(zip([column.split()[0] for column in DEFAULTS], second[1:], strict=False))
    assert {name: named[name] for name in given} == given
    if way == "append":
        with pytest.raises(RecordLayoutError, match="an update needs the whole"):
            table.change("update", {"n": None, "z": "only this"})
    table.change("merge", {"z": "only this"})
    assert table.rows()[0] == [*first[:-1], "only this"]


@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_defaults_that_only_hive_evaluates(
    hive_line: HiveJudge, line_database: str, engine_session: SparkSession | None
) -> None:
    """They are refused where they would be stored, and nowhere else: deletes need none. 3.1 takes no such."""
    table = Table(hive_line, f"{line_database}.t", engine_session, "s string default concat('a', 'b')")
    with pytest.raises(RecordLayoutError, match=r"DEFAULT concat\('a', ?'b'\) of column s.*Give the column"):
        table.change("append", {})
    table.change("append", {"s": "x"})
    assert table.rows() == [[2, "x"]]
    table.change("delete", {})
    assert table.rows() == []


@pytest.mark.long
@LINES
@pytest.mark.parametrize("text", ["cast(007 as string)", "cast(cast('abcdef' as varchar(3)) as string)"])
def test_a_default_with_casts_is_hives_or_refused(
    hive_line: HiveJudge, line_database: str, text: str
) -> None:
    """What casts do to a value is not left out."""
    table = Table(hive_line, f"{line_database}.t", None, f"s string default {text}")
    hive_line.sql(f"insert into {table.name} (id) select 2")
    with contextlib.suppress(RecordLayoutError):
        table.change("append", {})
    assert {row[1] for row in table.rows()} == {table.rows()[0][1]}


@LINES
def test_a_check_that_only_hive_evaluates(hive_line: HiveJudge, line_database: str) -> None:
    """The table is refused before anything is written, and the message names the part."""
    table = Table(hive_line, f"{line_database}.t", None, "s string, constraint odd check (md5(s) <> 'x')")
    with pytest.raises(TableNotMutableError, match=r"CHECK odd .*MD5\(.*DROP CONSTRAINT odd"):
        table.change("append", {"s": "x"})
    assert table.rows() == []


@pytest.mark.long
@LINES
def test_an_ingest_stops_at_a_row_that_breaks_a_constraint(
    hive_line: HiveJudge, line_database: str, engine_session: SparkSession | None
) -> None:
    """Nothing of it is committed, its position neither; with the row mended it goes on."""
    table = Table(
        hive_line, f"{line_database}.t", engine_session, "msg string not null enable, v int check (v > 0)"
    )
    sound = Entry(1, "orders", "insert", {"id": 1, "msg": "a", "v": 1})
    engine: dict[str, Any] = (
        {"local": LocalOptions()} if engine_session is None else {"spark": engine_session}
    )

    def run(*log: Entry) -> None:
        with open_client(hive_line.uri) as metastore:
            ingest(
                metastore,
                [TableMapping("orders", table.name, ("id",))],
                ListSource([sound, *log]),
                watermark_table=f"{line_database}.marks",
                **engine,
            )

    run()
    for values in ({"msg": None, "v": 2}, {"msg": "b", "v": -5}):
        for operation, id in (("insert", 2), ("update", 1)):
            with pytest.raises(ConstraintViolationError):
                run(Entry(2, "orders", operation, {"id": id, **values}))
            assert table.rows() == [[1, "a", 1]]
    run(Entry(2, "orders", "update", {"id": 1, "msg": "b", "v": None}))
    assert table.rows() == [[1, "b", None]]


@pytest.mark.long
@pytest.mark.feature("NOT NULL and CHECK constraints, DEFAULT")
@LINES
def test_messages_that_lack_columns_have_their_default(
    hive_line: HiveJudge, line_database: str, engine_session: SparkSession | None, tmp_path: Path
) -> None:
    """A column is refused, or has what Hive's own INSERT stores, if the user chose so; NULL stays NULL."""
    table = Table(hive_line, f"{line_database}.t", engine_session, ", ".join(DEFAULTS))
    hive_line.sql(f"insert into {table.name} (id) select 1")
    (expected,) = table.rows()
    names = [column.split()[0] for column in DEFAULTS]
    log = [({"id": 2}, "insert", 1), ({"id": 1}, "update", 2), ({"id": 3, "e": None, "s": "é"}, "insert", 3)]
    write_log(
        tmp_path / "log", [maxwell(Change(op, {"id": row["id"]}, row, 1, number)) for row, op, number in log]
    )
    engine: dict[str, Any] = (
        {"local": LocalOptions()} if engine_session is None else {"spark": engine_session}
    )

    def run(chosen: list[str]) -> None:
        options = LogOptions(
            default_if_missing=[f"shop.orders.{name}" for name in chosen if name != "n"],
            null_if_missing=["shop.orders.n"],  # its DEFAULT is disabled
        )
        with open_client(hive_line.uri) as metastore:
            ingest(
                metastore,
                [TableMapping("shop.orders", table.name, ("id",))],
                MaxwellSource(tmp_path / "log", "test", options=options),
                watermark_table=f"{line_database}.marks",
                **engine,
            )

    with pytest.raises(RecordLayoutError, match=r"does not have this column.*--default-if-missing"):
        run(names[1:])
    with pytest.raises(ConfigurationError, match="has no DEFAULT for such a column"):
        run(["id", *names])
    assert table.rows() == [expected]
    run(names)
    others = dict(zip(["id", *names], expected, strict=True))
    assert table.rows() == [
        expected,
        [2, *expected[1:]],
        list((others | {"id": 3, "e": None, "s": "é"}).values()),
    ]


COLUMNS = {
    "t": "tinyint",
    "v": "int",
    "w": "int",
    "l": "bigint",
    "m": "decimal(7,2)",
    "d": "double",
    "s": "string",
    "c": "char(4)",
    "x": "varchar(4)",
    "y": "date",
    "z": "timestamp",
    "b": "boolean",
}
VALUES: dict[str, list[Any]] = {
    "t": [1, -3, 127],
    "v": [0, 1, -1, 7, 2147483647],
    "w": [3, -7, 0],
    "l": [0, 5, 9007199254740993, -9223372036854775808],
    "m": [Decimal("0.00"), Decimal("1.50"), Decimal("-12345.67"), Decimal("99999.99")],
    "d": [0.1, -1.5, 1e300, -0.0, 1.0],
    "s": ["", "a", "ab", "é ", "Z", "a%b"],
    "c": ["", "a", "ab", "Z"],
    "x": ["a", "ab ", "abcd"],
    "y": [date(2020, 1, 1), date(1969, 12, 31), date(2024, 2, 29)],
    "z": [datetime(2020, 1, 1), datetime(1950, 5, 5, 5, 5, 5, 500000)],
    "b": [True, False],
}
LITERALS: dict[str, list[str]] = {
    "number": ["0", "1", "-1", "5", "1.5", "0.1", "-12345.67", "9007199254740993", "127"],
    "text": ["'a'", "'ab'", "''", "'Z'", "'b'"],
    "date": ["date '2020-01-01'", "'2020-01-01'", "date '1969-12-31'"],
    "moment": ["timestamp '2020-01-01 00:00:00'", "'1950-05-05 05:05:05'"],
}
AS_WRITTEN = {"hive.cbo.enable": "false", "hive.vectorized.execution.enabled": "false"}
"""Hive 4's planner makes NULL of some conditions that are false, such as ``y = d AND y IS NOT NULL``."""
KINDS = {
    "number": ["t", "v", "w", "l", "m", "d"],
    "text": ["s", "c", "x"],
    "date": ["y"],
    "moment": ["z"],
}


class Conditions:
    """Random conditions over COLUMNS."""

    def __init__(self, choice: random.Random) -> None:
        self._random = choice

    def condition(self, depth: int = 2) -> str:
        pick = self._random.random()
        if depth and pick < 0.35:
            joined = self._random.choice(["and", "or"])
            return f"({self.condition(depth - 1)} {joined} {self.condition(depth - 1)})"
        if depth and pick < 0.45:
            return f"not ({self.condition(depth - 1)})"
        if depth and pick < 0.5:
            return f"case when {self.condition(0)} then {self.condition(0)} else {self.condition(0)} end"
        return self._simple()

    def _simple(self) -> str:
        kind = self._random.choice([*KINDS])
        value = self._value(kind)
        match self._random.randrange(8):
            case 0:
                return f"{self._random.choice([*COLUMNS])} is {self._random.choice(['', 'not '])}null"
            case 1:
                listed = ", ".join(self._random.sample(LITERALS[kind], 2))
                return f"{value} {self._random.choice(['', 'not '])}in ({listed})"
            case 2:
                return f"{value} between {self._literal(kind)} and {self._literal(kind)}"
            case 3:
                return self._random.choice(["b", "not b", "b = true", "b is true", "b is not false"])
            case 4:
                negation = self._random.choice(["", "not "])
                return f"s {negation}like {self._random.choice(['''a%''', '''_''', '''%b''', '''a_'''])!r}"
            case 5:
                return f"{value} <=> {self._literal(kind)}"
            case _:
                operator = self._random.choice(["=", "<>", "!=", "<", "<=", ">", ">="])
                return f"{value} {operator} {self._random.choice([self._literal(kind), self._value(kind)])}"

    def _literal(self, kind: str) -> str:
        return self._random.choice(LITERALS[kind])

    def _value(self, kind: str, depth: int = 1) -> str:
        name = self._random.choice(KINDS[kind])
        if not depth or self._random.random() < 0.5:
            return name
        if kind == "number":
            other = self._random.choice([self._value(kind, 0), self._literal(kind)])
            return self._random.choice(
                [
                    f"({name} + {other})",
                    f"({name} - {other})",
                    f"({name} * {other})",
                    f"abs({name})",
                    f"(- {name})",
                    f"({name} % 3)",
                    f"({name} / 2)",
                    f"coalesce({name}, 1)",
                    f"if(b, {name}, {name})",
                ]
            )
        if kind == "text":
            return self._random.choice([f"trim({name})", f"coalesce({name}, 'a')", name])
        return name


@LINES
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 9))])
def test_random_conditions_mean_what_hive_says(hive_line: HiveJudge, line_database: str, seed: int) -> None:
    """What is evaluated here gives Hive's values on random rows; the rest is refused by name."""
    choice = random.Random(seed)
    name = f"{line_database}.r"
    columns = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items())
    hive_line.sql(f"create table {name} (id int, {columns}) {ACID}")
    types = {column: parse_hive_type(kind) for column, kind in COLUMNS.items()}
    data = pa.table(
        {
            column: pa.array(
                [choice.choice([*VALUES[column], None]) for _ in range(40)],
                arrow_type(kind, timestamp_unit="us"),
            )
            for column, kind in types.items()
        }
    )
    with connect(hive_line.uri) as hive, hive.transaction(name) as tx:
        tx.table(name).append(data.append_column("id", pa.array(range(40), pa.int32())))
    conditions, known, made = Conditions(choice), [], 0
    while len(known) < 60:
        made += 1
        text = conditions.condition()
        try:
            known.append((text, hive_condition(text, types, "CHECK c")))
        except ConfigurationError:
            assert made < 1000
    for start in range(0, len(known), 10):
        some = known[start : start + 10]
        values = ", ".join(text for text, _ in some)
        told = hive_line.sql(f"select id, {values} from {name} order by id", settings=AS_WRITTEN)
        for at, (text, condition) in enumerate(some, 1):
            try:
                found = evaluate(condition.holds, data).to_pylist()
            except pa.ArrowInvalid as error:
                assert "overflow" in str(error), text
                continue
            assert found == [row[at] for row in told], text
