"""Files of a log between runs: replaced, shortened, deleted, renamed, appended to, or completed late."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.support.message_logs import MessageLogs, canal_message, debezium_message

ORDERS = "shop.t=default.t"


def insert(identifier: int, value: str, **others: object) -> str:
    """A message without a position."""
    return canal_message("INSERT", {"id": identifier, "v": value}, **others)


OLD = [insert(1, "a"), insert(2, "b")]


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    "new",
    [
        [insert(3, "c")],
        [insert(3, "c"), insert(4, "d"), insert(5, "e")],
        [OLD[0], insert(3, "c")],
        [OLD[0]],
        [insert(1, "z"), OLD[1], insert(3, "c")],
        [insert(3, "a" * 200_000), *OLD],
    ],
    ids=["shorter", "longer", "same beginning", "cut off", "as long", "much longer"],
)
def test_a_file_that_was_replaced_is_refused(logs: MessageLogs, new: list[str]) -> None:
    """Whatever the length of the other one; another source name is the way on."""
    logs.write("log-1.json", *OLD)
    logs.run("canal", table=ORDERS)
    logs.write("log-1.json", *new)
    error = logs.refused("canal", table=ORDERS)
    assert "file log-1.json is not the one that was read up to" in error
    assert "identity" not in error
    assert logs.rows() == {1: "a", 2: "b"}
    expected = {1: "a", 2: "b"}
    for each in new:
        row = json.loads(each)["data"][0]
        expected[int(row["id"])] = row["v"]
    logs.run("canal", "--name", "again", table=ORDERS)
    assert logs.rows() == dict(sorted(expected.items()))
    assert logs.run("canal", "--name", "again", table=ORDERS)["position"] is None


def test_the_way_on_by_a_greater_number(logs: MessageLogs) -> None:
    logs.write("log-1.json", *OLD)
    logs.run("canal", table=ORDERS)
    logs.write("log-1.json", insert(3, "c"))
    assert "a greater number in its name" in logs.refused("canal", table=ORDERS)
    (logs.folder / "log-1.json").rename(logs.folder / "log-2.json")
    logs.run("canal", table=ORDERS)
    assert logs.rows() == {1: "a", 2: "b", 3: "c"}


@pytest.mark.thorough
def test_files_that_only_grow_go_on_working(logs: MessageLogs) -> None:
    """Appended, added, and deleted when they were read; large ones too."""
    filler = [insert(1, "x" * 1000) for _ in range(100)]
    logs.write("log-1.json", *filler, *OLD)
    logs.run("canal", table=ORDERS)
    logs.append("log-1.json", insert(3, "c"))
    logs.run("canal", table=ORDERS)
    logs.write("log-2.json", insert(4, "d"))
    logs.append("log-2.json", "")
    logs.run("canal", table=ORDERS)
    (logs.folder / "log-1.json").unlink()
    assert logs.run("canal", table=ORDERS)["position"] is None
    logs.append("log-2.json", insert(5, "e"))
    logs.run("canal", table=ORDERS)
    logs.write("log-3.json", insert(6, "f"))
    (logs.folder / "log-2.json").unlink()
    logs.run("canal", table=ORDERS)
    assert logs.rows() == {1: "a", 2: "b", 3: "c", 4: "d", 5: "e", 6: "f"}


def test_a_file_before_the_watermark_that_comes_late_is_refused(logs: MessageLogs) -> None:
    """A new file with a lower number, and lines appended to an older one, counted as applied."""
    logs.write("log-1.json", insert(1, "a"))
    logs.write("log-3.json", insert(3, "c"))
    logs.run("canal", table=ORDERS)
    logs.write("log-2.json", insert(2, "b"))
    assert "log-2.json, line 1: the message lies at or before" in logs.refused("canal", table=ORDERS)
    (logs.folder / "log-2.json").unlink()
    logs.append("log-1.json", insert(4, "d"))
    assert "log-1.json, line 2: the message lies at or before" in logs.refused("canal", table=ORDERS)
    logs.run("canal", "--positions", "line", "--name", "again", table=ORDERS)
    assert logs.rows() == {1: "a", 3: "c", 4: "d"}


def test_rotation_that_changes_numbers_is_refused(logs: MessageLogs) -> None:
    """As logrotate does: the newest file has no number, and the others move up."""
    logs.write("app.log", *OLD)
    logs.run("canal", table=ORDERS)
    (logs.folder / "app.log").rename(logs.folder / "app.log.1")
    logs.write("app.log", insert(1, "new"))
    assert "app.log" in logs.refused("canal", table=ORDERS)
    assert logs.rows() == {1: "a", 2: "b"}


def at(identifier: int, value: str, pos: int, op: str = "c") -> str:
    """A message with a position."""
    return debezium_message(op, identifier, value, pos=pos)


def test_files_of_messages_with_positions_may_be_renamed_joined_and_repeated(logs: MessageLogs) -> None:
    """Their positions order them; messages that a tool delivers again are those that were read."""
    table = "shop.t=default.t:id"
    logs.write("app.log", at(1, "a", 100), at(2, "b", 200))
    logs.run("debezium", table=table)
    (logs.folder / "app.log").rename(logs.folder / "app.log.1")
    logs.write("app.log", at(1, "a", 100), at(2, "b", 200), at(3, "c", 300))
    logs.run("debezium", table=table)
    assert logs.rows() == {1: "a", 2: "b", 3: "c"}
    logs.append("app.log", at(2, "b", 200), at(1, "z", 400, "u"))
    logs.run("debezium", table=table)
    assert logs.rows() == {1: "z", 2: "b", 3: "c"}


def test_a_slower_partition_is_refused(logs: MessageLogs) -> None:
    """Its message lies before the watermark, and was never applied; the positions are right."""
    table = "shop.t=default.t:id"
    logs.write("0-1.json", at(1, "a", 300))
    logs.run("debezium", table=table)
    logs.write("1-2.json", at(2, "b", 200))
    error = logs.refused("debezium", table=table)
    assert "no run has read it (its position is [50, 200, 0], server_id 1)" in error
    logs.run("debezium", "--name", "again", table=table)
    assert logs.rows() == {1: "a", 2: "b"}


@pytest.mark.thorough(1)
@pytest.mark.parametrize("kind", ["canal", "debezium"])
def test_a_watermark_of_an_earlier_version_is_continued(
    logs: MessageLogs, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds no identity: nothing is compared with it, and the next one has it."""
    first, second = (
        (insert(1, "a"), insert(2, "b")) if kind == "canal" else (at(1, "a", 100), at(2, "b", 200))
    )
    logs.write("log-1.json", first)
    with monkeypatch.context() as patched:
        patched.setattr(
            "mutation_api.cdc.messages.table_names.LogIdentity.added_to",
            lambda identity, position: position,
        )
        logs.run(kind)
    logs.append("log-1.json", second)
    logs.run(kind)
    assert logs.rows() == {1: "a", 2: "b"}
    assert logs.run(kind)["position"] is None


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["canal", "debezium"])
def test_a_file_may_be_compressed_when_it_was_read(logs: MessageLogs, kind: str) -> None:
    """As rotation does: the bytes before the compression are those that were read."""
    first = OLD if kind == "canal" else [at(1, "a", 100), at(2, "b", 200)]
    later = insert(3, "c") if kind == "canal" else at(3, "c", 300)
    logs.write("log-1.json", *first)
    logs.run(kind)
    plain = logs.folder / "log-1.json"
    packed = logs.folder / "log-1.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    logs.write("log-2.json", later)
    logs.run(kind)
    assert logs.rows() == {1: "a", 2: "b", 3: "c"}
    assert logs.run(kind)["position"] is None
    packed.write_bytes(gzip.compress(f"{first[1]}\n".encode()))
    if kind == "canal":
        assert "file log-1.json.gz is not the one that was read" in logs.refused(kind)
