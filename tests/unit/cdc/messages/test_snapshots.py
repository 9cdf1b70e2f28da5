"""Snapshots in a log: the first one, a second one, and incremental ones among changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.message_logs import MessageLogs, debezium_message, maxwell_message

LINES = ("--positions", "line")


def mysql(op: str, identifier: int, value: str, pos: int, **source: Any) -> str:
    return debezium_message(op, identifier, value, pos=pos, **source)


def postgres(op: str, identifier: int, value: str, commit: int | None, lsn: int, **source: Any) -> str:
    last = "null" if commit is None else f'"{commit}"'
    block = {"connector": "postgresql", "db": "erp", "schema": "shop", "server_id": None}
    block |= {"file": None, "pos": None, "lsn": lsn, "sequence": f'[{last},"{lsn}"]'}
    return debezium_message(op, identifier, value, **{**block, **source})


INCREMENTAL = {"snapshot": "incremental"}

WINDOWS = {
    "mysql": [
        mysql("c", 1, "inserted", 100),
        mysql("r", 5, "read", 300, **INCREMENTAL),
        mysql("r", 6, "read", 300, **INCREMENTAL),
        mysql("u", 5, "changed", 400),
        mysql("d", 6, "read", 500),
        mysql("r", 7, "read in the next window", 600, **INCREMENTAL),
    ],
    "an event at the end of the window": [
        mysql("c", 1, "inserted", 100),
        mysql("r", 5, "read", 400, **INCREMENTAL),
        mysql("r", 6, "read", 400, **INCREMENTAL),
        mysql("u", 5, "changed", 400),
        mysql("d", 6, "read", 500),
        mysql("r", 7, "read in the next window", 600, **INCREMENTAL),
    ],
    "postgresql": [
        postgres("c", 1, "inserted", 900, 910),
        postgres("r", 5, "read", 920, 930, **INCREMENTAL),
        postgres("r", 6, "read", 920, 930, **INCREMENTAL),
        postgres("u", 5, "changed", 940, 950),
        postgres("d", 6, "read", 960, 970),
        postgres("r", 7, "read in the next window", 980, 990, **INCREMENTAL),
    ],
}
ROWS = {1: "inserted", 5: "changed", 7: "read in the next window"}


@pytest.mark.long
@pytest.mark.parametrize("case", WINDOWS)
@pytest.mark.parametrize("cut", range(1, 6))
def test_rows_of_an_incremental_snapshot_are_ordered_among_changes(
    logs: MessageLogs, case: str, cut: int
) -> None:
    """By the position at which the tool wrote them; in one file, in two, and in two runs."""
    messages = WINDOWS[case]
    logs.write("log-1.json", *messages)
    logs.run("debezium")
    assert logs.rows() == ROWS
    logs.write("log-1.json", *messages[:cut])
    logs.write("log-2.json", *messages[cut:])
    logs.run("debezium", "--name", "two files")
    assert logs.rows() == ROWS
    (logs.folder / "log-2.json").unlink()
    logs.run("debezium", "--name", "two runs")
    logs.write("log-2.json", *messages[cut:])
    logs.run("debezium", "--name", "two runs")
    assert logs.rows() == ROWS


def test_the_first_snapshot_lies_before_all_changes(logs: MessageLogs) -> None:
    """Also of a transaction that began before it and ended after it, whose LSN is lower."""
    snapshot = [postgres("r", n, "read", None, 9000, snapshot=s) for n, s in ((1, "first"), (2, "last"))]
    logs.write(
        "log-1.json", *snapshot, postgres("u", 1, "new", None, 8990), postgres("u", 2, "n", 9010, 9020)
    )
    logs.run("debezium")
    assert logs.rows() == {1: "new", 2: "n"}
    logs.append("log-1.json", postgres("c", 3, "x", 9030, 9040))
    logs.run("debezium")
    assert logs.rows() == {1: "new", 2: "n", 3: "x"}


def again(pos: int) -> list[str]:
    """A second snapshot of MySQL, without the row 3."""
    return [mysql("r", n, "read again", pos, snapshot="true", server_id=0) for n in (1, 2)]


@pytest.mark.thorough
@pytest.mark.parametrize("runs", [1, 2])
def test_a_second_snapshot_among_lines(logs: MessageLogs, runs: int) -> None:
    """Refused, since row 3 may have been deleted meanwhile; replaces all rows, or is merged, if chosen."""
    logs.write("log-1.json", *[mysql("c", n, "first", 100 + n) for n in (1, 2, 3)])
    if runs == 2:
        logs.run("debezium", *LINES)
    logs.append("log-1.json", *again(300), mysql("c", 4, "later", 400))
    error = logs.refused("debezium", *LINES)
    assert "line 4: the log has a snapshot of the table (at mysql-bin.000050:300), and changes" in error
    logs.run("debezium", *LINES, "--new-snapshot", "merge")
    merged = {1: "read again", 2: "read again", 3: "first", 4: "later"}
    assert logs.rows() == merged
    assert logs.run("debezium", *LINES)["position"] is None
    logs.run("debezium", *LINES, "--new-snapshot", "replace", "--name", "replaced")
    del merged[3]
    assert logs.rows() == merged
    logs.append("log-1.json", mysql("c", 5, "last", 500))
    logs.run("debezium", *LINES, "--new-snapshot", "replace", "--name", "replaced")
    assert logs.rows() == {**merged, 5: "last"}


@pytest.mark.thorough
def test_the_rest_of_a_snapshot_is_not_a_second_one(logs: MessageLogs) -> None:
    """Rows of one snapshot come in several runs, then changes."""
    first, second = again(300)
    logs.write("log-1.json", first)
    for words in ((), LINES):
        logs.write("log-1.json", first)
        name = ("--name", words[-1] if words else "message")
        logs.run("debezium", *words, *name)
        logs.append("log-1.json", second)
        logs.run("debezium", *words, *name)
        logs.append("log-1.json", mysql("u", 1, "new", 400))
        logs.run("debezium", *words, *name)
        assert logs.rows() == {1: "new", 2: "read again"}


def test_a_bootstrap_of_maxwell_is_among_changes(logs: MessageLogs) -> None:
    """It is read while changes are logged."""
    logs.write(
        "log-1.json",
        maxwell_message("insert", 1, "a"),
        maxwell_message("bootstrap-start", 0, None, data={}),
        maxwell_message("bootstrap-insert", 1, "b", position=None),
        maxwell_message("bootstrap-complete", 0, None, data={}),
        maxwell_message("update", 1, "c"),
    )
    error = logs.refused("maxwell")
    assert "has no position in the source's log" in error
    logs.run("maxwell", *LINES, "--name", "again")
    assert logs.rows() == {1: "c"}
