"""Schema changes as each tool writes them: which tables one concerns, and where a run stops at it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from metastore_client.model import ColumnInfo
from tests.support.message_logs import (
    MessageLogs,
    canal_message,
    debezium_ddl,
    debezium_message,
    maxwell_message,
)


def change(kind: str, identifier: str, **others: Any) -> Mapping[str, Any]:
    """A table of a schema change of Debezium."""
    return {"type": kind, "id": identifier, "table": {}, **others}


AT = {"pos": 150}
SQL_SERVER = {"connector": "sqlserver", "file": None, "pos": None, "schema": "dbo", "db": "a", "table": "t"}
ORACLE = {"connector": "oracle", "file": None, "pos": None, "schema": "SHOP", "db": "ORCL", "table": "T"}


def alter(identifier: str, ddl: str | None = "ALTER TABLE x ADD c int", **others: Any) -> str:
    return debezium_ddl(ddl, change("ALTER", identifier), **{**AT, **others})


DEBEZIUM: dict[str, tuple[str, str]] = {
    "one id": ("shop.t", alter('"shop"."t"')),
    "bare": ("shop.t", alter("shop.t")),
    "backticks": ("shop.t", alter("`shop`.`t`")),
    "upper case": ("shop.t", alter('"SHOP"."T"')),
    "renamed away, both names": ("shop.t", alter('"shop"."t","shop"."t_old"', "RENAME TABLE t TO t_old")),
    "renamed into, both names": ("shop.t", alter('"shop"."t_new","shop"."t"', "RENAME TABLE t_new TO t")),
    "with a blank": ("shop.t", alter('"shop"."t_new", "shop"."t"')),
    "previousId": (
        "shop.t",
        debezium_ddl("RENAME x", change("ALTER", '"shop"."t_old"', previousId='"shop"."t"'), **AT),
    ),
    "renamed into, new name alone": ("shop.t", alter('"shop"."t"', "RENAME TABLE shop.u TO shop.t")),
    "renamed away, new name alone": (
        "shop.t",
        alter('"shop"."t_old"', "RENAME TABLE `shop`.`t` TO shop.t_old"),
    ),
    "swap of two tables": (
        "shop.t",
        debezium_ddl(
            "RENAME TABLE t TO t_old, t_new TO t", change("ALTER", '"shop"."t_new","shop"."t"'), **AT
        ),
    ),
    "from another database": (
        "shop.t",
        alter('"stage"."t"', "ALTER TABLE stage.t RENAME TO shop.t", database="stage"),
    ),
    "tables in the source block": ("shop.t", alter('"shop"."u"', "x", table="u,t")),
    "exchanged partition": ("shop.t", alter('"shop"."u"', "ALTER TABLE u EXCHANGE PARTITION p WITH TABLE t")),
    "dropped": ("shop.t", debezium_ddl("DROP TABLE t", change("DROP", '"shop"."t"'), **AT)),
    "dropped with another": (
        "shop.t",
        debezium_ddl("DROP TABLE u, t", change("DROP", '"shop"."u"'), change("DROP", '"shop"."t"'), **AT),
    ),
    "replaced": (
        "shop.t",
        debezium_ddl("CREATE OR REPLACE TABLE t (id int)", change("CREATE", '"shop"."t"'), **AT),
    ),
    "no tables": ("shop.t", debezium_ddl("DROP DATABASE shop", **AT)),
    "no tables and no database": ("shop.t", debezium_ddl("what", database=None, **AT)),
    "an id that is none": ("shop.t", alter('"shop"."t')),
    "quotes in a name": ('shop.a"b', alter('"shop"."a""b"')),
    "a dot in a name": ("shop.a.b", alter('"shop"."a.b"')),
    "SQL Server, three parts": ("dbo.t", alter('"a"."dbo"."t"', None, **SQL_SERVER)),
    "SQL Server, named with the database": ("a.dbo.t", alter('"a"."dbo"."t"', None, **SQL_SERVER)),
    "SQL Server, two parts": ("dbo.t", alter('"dbo"."t"', None, database="a", **SQL_SERVER)),
    "SQL Server, no tables": ("dbo.t", debezium_ddl("x", database="a", **SQL_SERVER)),
    "Oracle": ("SHOP.T", alter('"ORCL"."SHOP"."T"', "ALTER TABLE", database="ORCL", **ORACLE)),
    "Oracle, in another case": ("Shop.T", alter('"ORCL"."SHOP"."T"', "ALTER TABLE", **ORACLE)),
}


def maxwell_ddl(kind: str, table: str | None, **others: Any) -> str:
    fields = {"type": kind, "database": "shop", "table": table, "ts": 1, "position": "mysql-bin.000050:150"}
    return json.dumps({**fields, **others})


def definition(table: str, database: str = "shop") -> Mapping[str, Any]:
    return {"database": database, "table": table, "charset": "utf8mb4", "columns": []}


MAXWELL: dict[str, tuple[str, str]] = {
    "altered": ("shop.t", maxwell_ddl("table-alter", "t", old=definition("t"), **{"def": definition("t")})),
    "renamed into": (
        "shop.t",
        maxwell_ddl(
            "table-alter", "u", old=definition("u"), **{"def": definition("t")}, sql="RENAME TABLE u TO t"
        ),
    ),
    "renamed away": (
        "shop.t",
        maxwell_ddl("table-alter", "t_old", old=definition("t"), **{"def": definition("t_old")}),
    ),
    "from another database": (
        "shop.t",
        maxwell_ddl(
            "table-alter", "t", database="stage", **{"def": definition("t"), "old": definition("t", "stage")}
        ),
    ),
    "the statement alone": ("shop.t", maxwell_ddl("table-alter", "u", sql="rename table u to t")),
    "upper case": ("shop.t", maxwell_ddl("table-alter", "T")),
    "dropped": ("shop.t", maxwell_ddl("table-drop", "t")),
    "database dropped": ("shop.t", maxwell_ddl("database-drop", None)),
    "replaced": ("shop.t", maxwell_ddl("table-create", "t", sql="CREATE OR REPLACE TABLE t (id int)")),
}


def canal_ddl(kind: str, table: str, sql: str, **others: Any) -> str:
    return canal_message(kind, table=table, sql=sql, **others)


CANAL: dict[str, tuple[str, str]] = {
    "altered": ("shop.t", canal_ddl("ALTER", "t", "ALTER TABLE t ADD c int")),
    "upper case": ("shop.t", canal_ddl("ALTER", "T", "ALTER TABLE T ADD c int")),
    "renamed into": ("shop.t", canal_ddl("RENAME", "u", "RENAME TABLE u TO t")),
    "renamed into from another database": (
        "shop.t",
        canal_ddl("RENAME", "u", "RENAME TABLE u TO shop.t", database="stage"),
    ),
    "dropped with another": ("shop.t", canal_ddl("ERASE", "u", "DROP TABLE u, `t`")),
    "an index and more": (
        "shop.t",
        canal_ddl("CINDEX", "t", "ALTER TABLE t ADD INDEX i (v), ADD c int DEFAULT 5"),
    ),
    "a unique index that removes rows": (
        "shop.t",
        canal_ddl("CINDEX", "t", "ALTER IGNORE TABLE t ADD UNIQUE (v)"),
    ),
    "exchanged partition": (
        "shop.t",
        canal_ddl("ALTER", "u", "ALTER TABLE u EXCHANGE PARTITION p WITH TABLE t"),
    ),
    "replaced": ("shop.t", canal_ddl("CREATE", "t", "CREATE OR REPLACE TABLE t (id int)")),
    "another statement": ("shop.t", canal_ddl("QUERY", "", "what")),
}


def row(kind: str, name: str, identifier: int, value: str, pos: int) -> str:
    """A row of a table that a test follows."""
    *owners, table = name.split(".", 1 if name.count(".") != 2 or name.startswith("shop") else 2)
    if kind == "maxwell":
        return maxwell_message("insert", identifier, value, table=table, position=f"mysql-bin.000050:{pos}")
    if kind == "canal":
        return canal_message("INSERT", {"id": identifier, "v": value}, table=table)
    if (owners == ["shop"] and name != "shop.t") or name == "shop.t":
        return debezium_message("c", identifier, value, table=table, pos=pos)
    source = {**SQL_SERVER, "db": "a", "schema": owners[-1], "table": table}
    return debezium_message("c", identifier, value, **source)


CASES = [
    *(("debezium", case, *found) for case, found in DEBEZIUM.items()),
    *(("maxwell", case, *found) for case, found in MAXWELL.items()),
    *(("canal", case, *found) for case, found in CANAL.items()),
]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "case", "name", "message"), CASES, ids=[f"{a}: {b}" for a, b, *_ in CASES])
def test_a_change_of_a_followed_table_stops_the_run(
    logs: MessageLogs, kind: str, case: str, name: str, message: str
) -> None:
    """All that lies before it is applied; nothing that lies behind it, until the user accepts it."""
    table = f"{name}=default.t:id"
    logs.write("log-1.json", row(kind, name, 1, "a", 100), message, row(kind, name, 2, "b", 200))
    for _ in range(2):
        error = logs.refused(kind, table=table)
        assert "line 2: schema change of" in error
        assert f"It may affect {name}, which is followed" in error
        assert logs.rows() == {1: "a"}
    assert logs.run(kind, "--accept-schema-changes", table=table)["tables"][0]["operation_count"] == 1
    assert logs.rows() == {1: "a", 2: "b"}
    logs.append("log-1.json", row(kind, name, 3, "c", 300))
    logs.run(kind, table=table)
    assert logs.rows() == {1: "a", 2: "b", 3: "c"}


HARMLESS = [
    ("debezium", alter('"shop"."u"')),
    ("debezium", alter('"other"."t"', database="other")),
    ("debezium", alter('"shop"."u"', "ALTER TABLE u ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES t (id)")),
    ("debezium", debezium_ddl("CREATE TABLE t", change("CREATE", '"shop"."t"'), **AT)),
    ("debezium", debezium_ddl("DROP", change("DROP", '"shop"."t"'), snapshot="true", **AT)),
    ("debezium", alter('"shop"."u","shop"."u_old"', "RENAME TABLE u TO u_old")),
    ("maxwell", maxwell_ddl("table-alter", "u", **{"def": definition("v"), "old": definition("u")})),
    ("maxwell", maxwell_ddl("table-create", "t", sql="CREATE TABLE t (id int)")),
    ("maxwell", maxwell_ddl("database-drop", None, database="other")),
    ("canal", canal_ddl("ALTER", "u", "ALTER TABLE u ADD t int")),
    ("canal", canal_ddl("CINDEX", "t", "CREATE UNIQUE INDEX i ON t (v(10), w)")),
    ("canal", canal_ddl("DINDEX", "t", "ALTER TABLE t DROP KEY i")),
    ("canal", canal_ddl("CREATE", "t", "CREATE TABLE t (id int)")),
    ("canal", canal_ddl("ERASE", "u", "DROP TABLE u")),
]


@pytest.mark.thorough(1)
@pytest.mark.parametrize(("kind", "message"), HARMLESS)
def test_changes_of_other_tables_do_not_stop_a_run(logs: MessageLogs, kind: str, message: str) -> None:
    """And tables that are created, and indices."""
    logs.write("log-1.json", row(kind, "shop.t", 1, "a", 100), message, row(kind, "shop.t", 2, "b", 200))
    logs.run(kind)
    assert logs.rows() == {1: "a", 2: "b"}


def test_a_change_that_comes_late_is_refused(logs: MessageLogs) -> None:
    """Its file is read after rows that were written later, which were of another table perhaps."""
    logs.write("0-1.json", row("debezium", "shop.t", 1, "a", 100), row("debezium", "shop.t", 2, "b", 400))
    logs.run("debezium")
    logs.write("1-2.json", alter('"shop"."t_new","shop"."t"', "RENAME TABLE t_new TO t", pos=300))
    assert "schema change of shop.t_new, shop.t" in logs.refused("debezium")
    logs.append("0-1.json", row("debezium", "shop.t", 3, "c", 500))
    logs.refused("debezium")
    assert logs.rows() == {1: "a", 2: "b"}
    logs.run("debezium", "--accept-schema-changes")
    assert logs.rows() == {1: "a", 2: "b", 3: "c"}
    assert logs.run("debezium")["position"] is None


def test_a_table_that_begins_to_follow_later_stops_alone(logs: MessageLogs) -> None:
    """The watermark of a table that lies behind the change stays."""
    logs.create("default.u", ("id", "int"), ("v", "string"))
    both = "shop.t=default.t:id shop.u=default.u:id"
    logs.write("log-1.json", row("debezium", "shop.t", 1, "a", 100), row("debezium", "shop.u", 1, "x", 200))
    logs.append("log-1.json", alter('"shop"."u"', pos=300), row("debezium", "shop.t", 2, "b", 400))
    logs.run("debezium")
    logs.append("log-1.json", row("debezium", "shop.u", 2, "y", 500))
    assert "line 3: schema change of shop.u" in logs.refused("debezium", table=both)
    assert (logs.rows(), logs.rows("default.u")) == ({1: "a", 2: "b"}, {1: "x"})
    logs.run("debezium", "--accept-schema-changes", table=both)
    assert (logs.rows(), logs.rows("default.u")) == ({1: "a", 2: "b"}, {1: "x", 2: "y"})


def test_a_column_that_is_added_with_a_default(logs: MessageLogs) -> None:
    """Rows from before are applied in their old shape, so they get the default as the source's rows do."""
    logs.create("default.s", ("id", "int"), ("v", "string"))
    table = "shop.t=default.s:id"
    ddl = debezium_ddl("ALTER TABLE t ADD s int NOT NULL DEFAULT 5", change("ALTER", '"shop"."t"'), pos=300)
    new = json.loads(debezium_message("c", 3, "c", pos=400))
    new["after"]["s"] = 7
    logs.write("log-1.json", debezium_message("c", 1, "a", pos=100))
    logs.run("debezium", table=table)
    logs.append("log-1.json", debezium_message("c", 2, "b", pos=200), ddl, json.dumps(new))
    error = logs.refused("debezium", table=table)
    assert "ADD s int NOT NULL DEFAULT 5" in error
    assert "Stopped at the statement: everything before it was applied, in transaction" in error
    assert logs.rows("default.s") == {1: "a", 2: "b"}
    info = logs.metastore.get_table("default", "s")
    logs.metastore.drop_table("default", "s", delete_data=False)
    columns = (*info.columns, ColumnInfo("s", "int"))
    logs.metastore.create_table(dataclasses.replace(info, columns=columns))

    def fill(target: Any) -> None:
        old = target.scan(row_ids=True).to_arrow()
        target.update(old.set_column(old.schema.get_field_index("s"), "s", pa.array([5, 5], pa.int32())))

    logs.change("default.s", fill)
    logs.run("debezium", "--accept-schema-changes", table=table)
    assert logs.rows("default.s") == {1: ["a", 5], 2: ["b", 5], 3: ["c", 7]}
