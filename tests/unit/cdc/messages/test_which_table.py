"""Which table a name means: several of one name, shards in one table, and names that no message has."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.message_logs import MessageLogs, canal_message, debezium_message, maxwell_message


def sql_server(database: str, identifier: int, value: str, **source: Any) -> str:
    """A message of a SQL Server connector with several ``database.names``."""
    block = {"connector": "sqlserver", "server_id": None, "file": None, "pos": None, "row": None}
    block |= {"db": database, "schema": "dbo", "commit_lsn": "00000027:00000758:0005", "change_lsn": None}
    return debezium_message("c", identifier, value, **{**block, **source})


BOTH = [sql_server("a", 1, "of a"), sql_server("b", 1, "of b"), sql_server("b", 2, "of b")]
OF_A, OF_B = {1: "of a"}, {1: "of b", 2: "of b"}


@pytest.mark.parametrize("runs", [1, 2])
def test_tables_of_two_databases_are_not_one(logs: MessageLogs, runs: int) -> None:
    """The refusal names both, and the names that pick one of them; across runs as well."""
    table = "dbo.t=default.t:id"
    if runs == 2:
        logs.write("log-1.json", BOTH[0])
        logs.run("debezium", table=table)
        (logs.folder / "log-1.json").unlink()
        logs.write("log-2.json", *BOTH[1:])
    else:
        logs.write("log-2.json", *BOTH)
    error = logs.refused("debezium", table=table)
    assert "database a and database b" in error
    assert "a.dbo.t, b.dbo.t" in error
    assert logs.rows() == (OF_A if runs == 2 else {})
    logs.create("default.b", ("id", "int"), ("v", "string"))
    logs.run("debezium", table="b.dbo.t=default.b:id")
    assert logs.rows("default.b") == OF_B


def test_both_tables_may_be_followed(logs: MessageLogs) -> None:
    logs.create("default.b", ("id", "int"), ("v", "string"))
    logs.write("log-1.json", *BOTH)
    logs.run("debezium", table="a.dbo.t=default.t:id b.dbo.t=default.b:id")
    assert (logs.rows(), logs.rows("default.b")) == (OF_A, OF_B)


@pytest.mark.parametrize(
    ("first", "second", "owners", "names"),
    [
        ({"name": "erp1"}, {"name": "erp2"}, "connector erp1 and connector erp2", "erp1.shop.t, erp2.shop.t"),
        (
            {"db": "x", "schema": "public"},
            {"db": "y", "schema": "public"},
            "database x and database y",
            "x.public.t, y.public.t",
        ),
    ],
)
def test_one_name_of_several_connectors_and_databases(
    logs: MessageLogs, first: Any, second: Any, owners: str, names: str
) -> None:
    logs.write("log-1.json", debezium_message("c", 1, "a", **first), debezium_message("c", 1, "b", **second))
    name = "public.t" if "schema" in first else "shop.t"
    error = logs.refused("debezium", "--positions", "line", table=f"{name}=default.t:id")
    assert owners in error
    assert names in error
    chosen = names.partition(", ")[0]
    logs.run("debezium", "--positions", "line", table=f"{chosen}=default.t:id")
    assert logs.rows() == {1: "a"}


def shard(kind: str, database: str, operation: str, identifier: int, value: str, pos: int) -> str:
    if kind == "canal":
        row = {"id": identifier, "v": value}
        return canal_message(operation.upper(), row, database=database)
    if kind == "maxwell":
        position = f"mysql-bin.000050:{pos}"
        return maxwell_message(operation, identifier, value, database=database, position=position)
    op = {"insert": "c", "update": "u", "delete": "d"}[operation]
    return debezium_message(op, identifier, value, db=database, pos=pos)


@pytest.mark.thorough(1)
@pytest.mark.parametrize("key", [":id", ""])
@pytest.mark.parametrize("kind", ["debezium", "maxwell", "canal"])
def test_shards_go_into_one_table_when_asked_for(logs: MessageLogs, kind: str, key: str) -> None:
    """A column tells them apart, and belongs to the key; deletes and new shards as well."""
    logs.create("default.all", ("id", "int"), ("v", "string"), ("shard", "string"))
    if kind == "debezium" and not key:
        key = ":id"
    words = ("--shard-column", "shard")
    table = f"shop_*.t=default.all{key}"
    logs.write(
        "log-1.json",
        shard(kind, "shop_1", "insert", 1, "a", 100),
        shard(kind, "shop_2", "insert", 1, "b", 200),
        shard(kind, "shop_2", "insert", 2, "c", 300),
        shard(kind, "other", "insert", 9, "z", 350),
    )
    logs.run(kind, *words, table=table)
    logs.append(
        "log-1.json",
        shard(kind, "shop_2", "update", 1, "d", 400),
        shard(kind, "shop_1", "delete", 1, "a", 500),
        shard(kind, "shop_3", "insert", 7, "e", 600),
    )
    logs.run(kind, *words, table=table)
    assert logs.rows("default.all") == {1: ["d", "shop_2.t"], 2: ["c", "shop_2.t"], 7: ["e", "shop_3.t"]}


def test_shards_of_tables_and_of_schemas(logs: MessageLogs) -> None:
    logs.create("default.all", ("id", "int"), ("v", "string"), ("shard", "string"))
    logs.write(
        "log-1.json", *(sql_server("a", n, "x", table=f"t_{n}") for n in (1, 2)), sql_server("b", 3, "y")
    )
    logs.run("debezium", "--shard-column", "shard", table="a.dbo.t_?=default.all:id")
    assert logs.rows("default.all") == {1: ["x", "a.dbo.t_1"], 2: ["x", "a.dbo.t_2"]}
    logs.run("debezium", "--shard-column", "shard", "--name", "n", table="*.dbo.t=default.all:id")
    assert logs.rows("default.all") == {
        1: ["x", "a.dbo.t_1"],
        2: ["x", "a.dbo.t_2"],
        3: ["y", "b.dbo.t"],
    }


def test_what_is_refused_of_shards(logs: MessageLogs) -> None:
    """A pattern without the column, the column without a pattern, a column that the source has, truncates."""
    logs.create("default.all", ("id", "int"), ("v", "string"), ("shard", "string"))
    table = "shop_*.t=default.all:id"
    logs.write("log-1.json", shard("canal", "shop_1", "insert", 1, "a", 1))
    assert "--shard-column COLUMN" in logs.refused("canal", table=table)
    assert "no table has a name with * or ?" in logs.refused("canal", "--shard-column", "shard")
    assert "the source's table has a column with this name" in logs.refused(
        "canal", "--shard-column", "v", table=table
    )
    assert "lacks key columns which" in logs.refused("canal", "--shard-column", "which", table=table)
    logs.append("log-1.json", canal_message("TRUNCATE", database="shop_1"))
    error = logs.refused("canal", "--shard-column", "shard", "--apply-truncates", table=table)
    assert "one of several shards" in error
    logs.write("log-1.json", shard("canal", "shop_1", "insert", 1, "a", 1))
    logs.append("log-1.json", canal_message("ALTER", database="SHOP_1", sql="ALTER TABLE t ADD c int"))
    assert "schema change of SHOP_1.t" in logs.refused("canal", "--shard-column", "shard", table=table)


NEAR = [
    ("shop.T", "did you mean shop.t?"),
    ("SHOP.T", "did you mean shop.t?"),
    ('"shop"."t"', "did you mean shop.t?"),
    ("`shop`.`t`", "did you mean shop.t?"),
    ("t", "did you mean shop.t?"),
    ("mydb.shop.t", "did you mean shop.t?"),
    ("shop.tt", "did you mean shop.t?"),
    ("nothing.alike", "they name shop.t"),
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "said"), NEAR)
@pytest.mark.parametrize("kind", ["debezium", "maxwell", "canal"])
def test_a_table_that_no_message_names_is_warned_of(
    logs: MessageLogs, kind: str, name: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In each run, in the report and the log, with the names that may be meant."""
    logs.write("log-1.json", shard(kind, "shop", "insert", 1, "a", 100))
    for _ in range(2):
        caplog.clear()
        report = logs.run(kind, table=f"{name}=default.t:id")
        (warning,) = report["warnings"]
        assert re.fullmatch(rf"no message names table {re.escape(name)}; {re.escape(said)}", warning)
        assert warning in caplog.text
    logs.run(kind, table="shop.t=default.t:id")
    assert logs.rows() == {1: "a"}


def test_a_table_that_messages_named_before_is_not_warned_of(logs: MessageLogs) -> None:
    """It had no changes; nor is one whose other spelling is followed too."""
    logs.write("log-1.json", shard("canal", "shop", "insert", 1, "a", 100))
    assert logs.run("canal")["warnings"] == []
    logs.write("log-2.json", shard("canal", "other", "insert", 1, "a", 100))
    (logs.folder / "log-1.json").unlink()
    assert logs.run("canal")["warnings"] == []
    logs.append("log-2.json", shard("canal", "SHOP", "insert", 2, "b", 200))
    (warning,) = logs.run("canal")["warnings"]
    assert warning == "messages also name table SHOP.t, which is not shop.t and is not read"


def test_the_report_for_people_has_the_warning(logs: MessageLogs) -> None:
    logs.write("log-1.json", shard("canal", "shop", "insert", 1, "a", 100))
    report = logs.run("canal", table="shop.T=default.t:id")
    assert json.dumps(report["warnings"]) == '["no message names table shop.T; did you mean shop.t?"]'
