"""The table of docs/guides/ingest.md: what a run does when something happens at the source, row by row."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.doc_blocks import DOCS
from tests.support.message_logs import (
    MessageLogs,
    canal_message,
    debezium_ddl,
    debezium_message,
    maxwell_message,
)

GUIDE = DOCS / "guides" / "ingest.md"
HEADING = "## What happens at the source of a log of messages"
NEW = ("--positions", "line", "--name", "NEW")
ANEW = ("--name", "NEW")
Act = Callable[[MessageLogs], None]


def mysql(op: str, identifier: int, value: str, pos: int, **source: Any) -> str:
    return debezium_message(op, identifier, value, pos=pos, **source)


def ddl(kind: str, statement: str, table: str = "t", **others: Any) -> str:
    change = {"type": kind, "id": f'"shop"."{table}"', "table": {}, **others}
    return debezium_ddl(statement, change, pos=300)


FIRST = [mysql("c", 1, "a", 100), mysql("c", 2, "b", 200)]
LATER = mysql("u", 1, "later", 400)
BEFORE, BEHIND = {1: "a", 2: "b"}, {1: "later", 2: "b"}
CANAL = [canal_message("INSERT", {"id": 1, "v": "a"}, {"id": 2, "v": "b"})]
CANAL_LATER = canal_message("UPDATE", {"id": 1, "v": "later"})


def appended(*messages: str) -> Act:
    """A log that goes on with these messages in its file."""
    return lambda logs: logs.append("log-1.json", *messages)


def added(*messages: str, name: str = "log-2.json") -> Act:
    """A log that goes on with these messages in another file."""
    return lambda logs: logs.write(name, *messages)


def renamed(logs: MessageLogs) -> None:
    (logs.folder / "log-1.json").rename(logs.folder / "old-1.json")
    logs.write("log-2.json", LATER)


def deleted(logs: MessageLogs) -> None:
    (logs.folder / "log-1.json").unlink()
    logs.write("log-2.json", LATER)


@dataclass(frozen=True)
class Row:
    """A row of the table: what happens, what a run says (None: it goes on), the way on, and the rows then."""

    happens: Act
    said: str | None = None
    way: tuple[str, ...] = ()
    rows: Any = None
    first: tuple[str, ...] = tuple(FIRST)
    kind: str = "debezium"
    table: str = "shop.t=default.t:id"


SNAPSHOT = [mysql("r", 1, "later", 500, snapshot="true", server_id=0)]
ACCEPT = ("--accept-schema-changes",)

ROWS: dict[str, list[Row]] = {
    "`ADD COLUMN`, `DROP COLUMN`, a changed type or key": [
        Row(appended(ddl("ALTER", "ALTER TABLE t MODIFY v text"), LATER), "schema change of shop.t", ACCEPT)
    ],
    "`RENAME` of the table, or of another one to its name; `EXCHANGE PARTITION`": [
        Row(appended(ddl("ALTER", "RENAME u TO t", "u", previousId='"shop"."t"'), LATER), "schema ch", ACCEPT)
    ],
    "`DROP TABLE`, `DROP DATABASE`, `CREATE OR REPLACE`": [
        Row(appended(ddl("DROP", "DROP TABLE t"), LATER), "schema change of shop.t", ACCEPT),
        Row(appended(debezium_ddl("DROP DATABASE shop", pos=300), LATER), "schema change", ACCEPT),
    ],
    "`CREATE TABLE`, an index, statements about other tables": [
        Row(appended(ddl("CREATE", "CREATE TABLE t (id int)"), ddl("DROP", "DROP TABLE u", "u"), LATER))
    ],
    "`TRUNCATE`, reported by Debezium and Canal": [
        Row(
            appended(mysql("t", 0, None, 300), LATER),
            "truncate of shop.t",
            ("--apply-truncates",),
            {1: "later"},
        ),
        Row(
            appended(canal_message("TRUNCATE"), CANAL_LATER),
            "truncate of shop.t",
            ("--apply-truncates",),
            {1: "later"},
            tuple(CANAL),
            "canal",
        ),
    ],
    "fail-over to another server": [
        Row(added(mysql("u", 1, "later", 4, file="mysql-bin.000003", server_id=2)), "several servers", NEW)
    ],
    "the server is restored": [
        Row(added(mysql("u", 1, "later", 4, file="mysql-bin.000003")), "no run has read it", NEW)
    ],
    "a new connector, or a snapshot that is started again": [
        Row(
            appended(*SNAPSHOT),
            "a snapshot of the table",
            (*NEW, "--new-snapshot", "replace"),
            {1: "later"},
        )
    ],
    "a blocking snapshot of single rows": [
        Row(appended(*SNAPSHOT), "a snapshot of the table", (*NEW, "--new-snapshot", "merge"))
    ],
    "an incremental snapshot": [Row(appended(mysql("r", 1, "later", 500, snapshot="incremental")))],
    "a bootstrap of Maxwell": [
        Row(
            appended(maxwell_message("bootstrap-insert", 1, "later", position=None)),
            "has no position in the source's log",
            NEW,
            {1: "later"},
            (maxwell_message("insert", 1, "a"),),
            "maxwell",
        )
    ],
    "a file is appended to, added, or deleted after it was read": [
        Row(appended(LATER)),
        Row(added(LATER)),
        Row(deleted),
    ],
    "a file is renamed": [
        Row(renamed),
        Row(
            lambda logs: (logs.folder / "log-1.json").rename(logs.folder / "log-2.json"),  # type: ignore[arg-type,return-value]
            "its number is now 2",
            ANEW,
            BEFORE,
            tuple(CANAL),
            "canal",
        ),
    ],
    "a file is replaced": [
        Row(
            added(CANAL_LATER, name="log-1.json"),
            "is not the one that was read",
            ANEW,
            None,
            tuple(CANAL),
            "canal",
        )
    ],
    "a file arrives late, with messages before the watermark": [
        Row(added(mysql("c", 3, "c", 50)), "no run has read it", ANEW, {**BEFORE, 3: "c"})
    ],
    "two databases, schemas or connectors have a table with this name": [
        Row(
            appended(mysql("c", 1, "later", 500, schema="dbo", db="b")),
            "database a and database b",
            ("b.dbo.t=default.t:id",),
            {1: "later"},
            (mysql("c", 1, "a", 100, schema="dbo", db="a"),),
            table="dbo.t=default.t:id",
        )
    ],
}
WARNED = "no message names the table"


def test_each_row_of_the_guide_has_a_case() -> None:
    text = GUIDE.read_text(encoding="utf-8").partition(HEADING)[2]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    found = [line.split(" | ")[0].removeprefix("| ") for line in table[0].splitlines()[2:]]
    assert found == [*ROWS, WARNED]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, rows in ROWS.items() for number in range(len(rows))]
)
def test_what_the_guide_says(name: str, number: int, logs: MessageLogs) -> None:
    """After a first run the log goes on; the next run does, or it is refused, and the way on leads there."""
    row = ROWS[name][number]
    logs.write("log-1.json", *row.first)
    logs.run(row.kind, table=row.table)
    before = logs.rows()
    row.happens(logs)
    if row.said is not None:
        assert row.said in logs.refused(row.kind, table=row.table)
        assert logs.rows() == before
        is_table = row.way[0][:2] != "--"
        logs.run(row.kind, *(() if is_table else row.way), table=row.way[0] if is_table else row.table)
    else:
        logs.run(row.kind, table=row.table)
    assert logs.rows() == (BEHIND if row.rows is None else row.rows)
