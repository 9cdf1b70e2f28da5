"""Positions of another server, of a restored one, of a new connector, and bytes of another file.

Each is refused before anything is visible, or ordered rightly. The way on that the refusal names is followed,
and the target equals the source then.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mutation_api.cdc import DebeziumSource
from mutation_api.cdc.reduce import open_log_reduction
from mutation_api.cdc.source import OPERATION, POSITION, SourceTable
from mutation_api.errors import ContradictionError
from tests.support.json_messages import small_table, write_log
from tests.support.message_logs import MessageLogs, debezium_message, maxwell_message

LINES = ("--positions", "line", "--name", "again")
REPLACE = (*LINES, "--new-snapshot", "replace")

Write = Callable[..., str]


def postgres(op: str, identifier: int, value: str, commit: int | None, lsn: int, **source: Any) -> str:
    """A message of a PostgreSQL connector."""
    last = "null" if commit is None else f'"{commit}"'
    block = {"connector": "postgresql", "schema": "public", "server_id": None, "file": None, "pos": None}
    return debezium_message(
        op, identifier, value, **block, lsn=lsn, sequence=f'[{last},"{lsn}"]', **{"txId": 555, **source}
    )


def mysql(op: str, identifier: int, value: str, file: int, pos: int, **source: Any) -> str:
    """A message of a MySQL connector at a place of the binary log."""
    return debezium_message(op, identifier, value, file=f"mysql-bin.{file:06}", pos=pos, **source)


def maxwell(kind: str, identifier: int, value: str, file: int, pos: int, **others: Any) -> str:
    """A message of Maxwell at a place of the binary log."""
    return maxwell_message(kind, identifier, value, position=f"mysql-bin.{file:06}:{pos}", **others)


UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "4f22fa47-71ca-11e1-9e33-c80aa9429562"

FAILOVERS: dict[str, tuple[str, str, list[str], list[str], str, tuple[str, ...]]] = {
    "debezium, server_id": (
        "debezium",
        "shop.t",
        [mysql("c", 1, "old", 50, 100)],
        [mysql("u", 1, "new", 3, 100, server_id=2), mysql("c", 2, "x", 3, 200, server_id=2)],
        "several servers.*server_id 1, 2",
        LINES,
    ),
    "debezium, GTID of the same server_id": (
        "debezium",
        "shop.t",
        [mysql("c", 1, "old", 50, 100, gtid=f"{UUID}:23")],
        [mysql("u", 1, "new", 3, 100, gtid=f"{OTHER}:1"), mysql("c", 2, "x", 3, 200, gtid=f"{OTHER}:2")],
        f"several servers.*server UUID {UUID}, {OTHER}",
        LINES,
    ),
    "debezium, a higher file": (
        "debezium",
        "shop.t",
        [mysql("c", 1, "old", 3, 100)],
        [mysql("u", 1, "new", 50, 100, server_id=2), mysql("c", 2, "x", 50, 200, server_id=2)],
        "several servers",
        LINES,
    ),
    "debezium, restored with the same id": (
        "debezium",
        "shop.t",
        [mysql("c", 1, "old", 50, 100)],
        [mysql("u", 1, "new", 1, 100), mysql("c", 2, "x", 1, 200)],
        "another server take over|not in the order of their positions in the log",
        LINES,
    ),
    "maxwell, server_id": (
        "maxwell",
        "shop.t",
        [maxwell("insert", 1, "old", 50, 100)],
        [maxwell("update", 1, "new", 3, 100, server_id=2), maxwell("insert", 2, "x", 3, 200, server_id=2)],
        "several servers.*server_id 1, 2",
        LINES,
    ),
    "maxwell, GTID": (
        "maxwell",
        "shop.t",
        [maxwell("insert", 1, "old", 50, 100, gtid=f"{UUID}:1-23", server_id=None)],
        [
            maxwell("update", 1, "new", 3, 100, gtid=f"{OTHER}:1", server_id=None),
            maxwell("insert", 2, "x", 3, 200, gtid=f"{OTHER}:2", server_id=None),
        ],
        "several servers.*server UUID",
        LINES,
    ),
    "maxwell, without ids": (
        "maxwell",
        "shop.t",
        [maxwell("insert", 1, "old", 50, 100, server_id=None)],
        [
            maxwell("update", 1, "new", 3, 100, server_id=None),
            maxwell("insert", 2, "x", 3, 200, server_id=None),
        ],
        "another server take over|not in the order of their positions in the log",
        LINES,
    ),
    "PostgreSQL restored": (
        "debezium",
        "public.t",
        [postgres("c", 1, "old", 9000, 9100)],
        [postgres("u", 1, "new", 100, 110), postgres("c", 2, "x", 120, 130)],
        "another server take over|not in the order of their positions in the log",
        LINES,
    ),
    "PostgreSQL, a new connector": (
        "debezium",
        "public.t",
        [postgres("c", 1, "old", 8000, 8100), postgres("c", 3, "gone", 8100, 8200)],
        [
            postgres("r", 1, "new", None, 9000, snapshot="first"),
            postgres("r", 2, "x", None, 9000, snapshot="last"),
        ],
        "a snapshot of the table .at 9000., and changes of the table before it",
        REPLACE,
    ),
    "PostgreSQL, a new connector of a restored server": (
        "debezium",
        "public.t",
        [postgres("c", 1, "old", 10000, 10100), postgres("c", 3, "gone", 10100, 10200)],
        [
            postgres("r", 1, "new", None, 9000, snapshot="first"),
            postgres("r", 2, "x", None, 9000, snapshot="last"),
        ],
        "a snapshot of the table .at 9000., and changes|another server take over",
        REPLACE,
    ),
    "MySQL, a new connector": (
        "debezium",
        "shop.t",
        [
            mysql("r", 1, "oldest", 50, 50, snapshot="true", server_id=0),
            mysql("u", 1, "old", 50, 100),
            mysql("c", 3, "gone", 50, 120),
        ],
        [
            mysql("r", 1, "new", 50, 300, snapshot="true", server_id=0),
            mysql("r", 2, "x", 50, 300, snapshot="last", server_id=0),
        ],
        "a snapshot of the table .at mysql-bin.000050:300., and",
        REPLACE,
    ),
    "a snapshot that was begun twice": (
        "debezium",
        "shop.t",
        [
            mysql("r", 1, "old", 50, 50, snapshot="true", server_id=0),
            mysql("r", 3, "gone", 50, 50, snapshot="true", server_id=0),
        ],
        [
            mysql("r", 1, "new", 50, 300, snapshot="true", server_id=0),
            mysql("r", 2, "x", 50, 300, snapshot="last", server_id=0),
        ],
        "a snapshot of the table .at mysql-bin.000050:300., and another snapshot",
        REPLACE,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("case", FAILOVERS)
@pytest.mark.parametrize("runs", ["one run", "two runs", "two runs, the old file deleted", "one file"])
def test_what_counts_positions_changes(logs: MessageLogs, case: str, runs: str) -> None:
    """A server that takes over, a restored one, a new connector: noticed in one run and across runs."""
    kind, name, old, new, said, way = FAILOVERS[case]
    table = f"{name}=default.t:id"
    before = {}
    if runs == "one file":
        logs.write("log-1.json", *old, *new)
    else:
        logs.write("log-1.json", *old)
        if runs != "one run":
            logs.run(kind, table=table)
            before = logs.rows()
        logs.write("log-2.json", *new)
        if "deleted" in runs:
            (logs.folder / "log-1.json").unlink()
    error = logs.refused(kind, table=table)
    assert re.search(said, error), error
    assert logs.rows() == before
    logs.run(kind, *way, table=table)
    assert logs.rows() == {1: "new", 2: "x"}


@pytest.mark.slow
def test_tasks_of_spark_notice_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Lines that contradict positions, within a key; other keys may be in any order."""
    table = SourceTable("shop.t", small_table(("id", "int"), ("v", "string")), ("id",))
    lines = [mysql("c", 1, "old", 50, 100), mysql("u", 1, "new", 1, 100), mysql("c", 2, "x", 1, 50)]
    reduced = functools.partial(open_log_reduction, operation_column=OPERATION)
    others = DebeziumSource(write_log(tmp_path / "others", lines[:1] + lines[2:]), "test")
    (found,) = others.read(spark, [table], {}).tables
    with reduced(found.operations, ["id"], POSITION) as log:
        assert log.key_count == 2
    restored = DebeziumSource(write_log(tmp_path / "restored", lines), "test")
    (found,) = restored.read(spark, [table], {}).tables
    said = "two operations on key .* are not in the order of their positions in the log"
    with pytest.raises(ContradictionError, match=said), reduced(found.operations, ["id"], POSITION):
        pass
