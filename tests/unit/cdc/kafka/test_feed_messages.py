"""The messages of a change feed: a second table that follows them equals the first one."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_client.testing import HIVE_2_3, HIVE_4_1, InMemoryMetastore
from mutation_api.cdc import DebeziumSource, TableMapping, ingest
from mutation_api.cdc.kafka.feed_messages import DebeziumMessages, FeedMessage, FeedTopics, JsonMessages
from mutation_api.cdc.messages.events import LogOptions
from mutation_api.errors import ConfigurationError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.write.local_plan import LocalOptions

SOURCE, TARGET = "default.orders", "default.copies"
COLUMNS = (
    "id bigint, ok boolean, t tinyint, s smallint, i int, f float, d double, price decimal(20,4), "
    "big decimal(38,0), name string, code char(4), word varchar(9), data binary, born date, at timestamp, "
    "tags array<string>, parts struct<a:int,b:decimal(5,2),c:timestamp>, counts map<string,bigint>"
)


@pytest.fixture(params=[HIVE_2_3, HIVE_4_1], ids=["2.3", "4.1"])
def hive(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Two empty tables with columns of every type."""
    metastore = InMemoryMetastore(tmp_path, capabilities=request.param)
    with connect(metastore) as connected:
        for name in (SOURCE, TARGET):
            connected.create_table(
                name,
                COLUMNS,
                clustered_by=["id"],
                num_buckets=2,
                properties={"transactional_properties": "default"},
            )
        yield connected


def row(number: int, **changed: Any) -> dict[str, Any]:
    """A row with a value in every column, at the edges of their types for small numbers."""
    edge = (-1) ** number
    return {
        "id": number,
        "ok": number % 2 == 0,
        "t": -128 if edge < 0 else 127,
        "s": edge * 32767,
        "i": edge * (2**31 - 1),
        "f": [float("nan"), 0.1, float("-inf")][number % 3],
        "d": edge * 1e-300,
        "price": Decimal(edge * 128).scaleb(-4),
        "big": Decimal(edge * (10**38 - 1)),
        "name": f'"é\n\t{number}',
        "code": "ab",
        "word": "",
        "data": bytes(range(number % 5)),
        "born": datetime.date(1, 1, 1) if edge < 0 else datetime.date(9999, 12, 31),
        "at": datetime.datetime(2024, 5, 1, 12, 0, 0, 123456 + number),
        "tags": ["a", None, '"'],
        "parts": {"a": None, "b": Decimal("1.50"), "c": datetime.datetime(2000, 2, 29, 1, 2, 3)},
        "counts": [("k", number)],
        **changed,
    }


def nothing(number: int) -> dict[str, Any]:
    """A row of NULLs, but for the key."""
    return {**dict.fromkeys(row(1)), "id": number}


def stored(hive: Hive, name: str) -> list[str]:
    """The rows of a table, as text, since NaN is not equal to itself."""
    with hive.snapshot(name) as view:
        return sorted(map(str, view.table(name).scan().to_arrow().to_pylist()))


def appended(hive: Hive, *rows: dict[str, Any]) -> None:
    schema = hive.table(SOURCE).schema
    hive.table(SOURCE).append(pa.Table.from_pylist(list(rows), schema))


def debezium(hive: Hive, since: str) -> tuple[list[FeedMessage], str]:
    form = DebeziumMessages(FeedTopics("hive"), {SOURCE: ("id",)}, "hive", lambda: 7)
    with hive.changes(SOURCE, since=since, on=["id"]) as feed:
        return [each for found in feed for each in form.messages(found)], feed.position


def followed(hive: Hive, messages: Sequence[FeedMessage], folder: Path, number: int) -> None:
    """Apply the messages of the table to the copy."""
    folder.mkdir(exist_ok=True)
    lines = [
        f"{(each.key or b'null').decode()}\t{(each.value or b'null').decode()}\n"
        for each in messages
        if each.topic == f"hive.{SOURCE}"
    ]
    (folder / f"0-{number}.txt").write_text("".join(lines), encoding="utf-8")
    source = DebeziumSource([str(folder)], "feed", options=LogOptions())
    ingest(hive.metastore, [TableMapping(SOURCE, TARGET)], source, local=LocalOptions())


@pytest.mark.thorough
def test_a_second_table_equals_the_first(hive: Hive, tmp_path: Path) -> None:
    """All types, NULLs, updates, deletes and moved keys, after the rows with which the feed begins."""
    appended(hive, *map(row, range(6)), nothing(6))
    messages, position = debezium(hive, "beginning")
    assert {json.loads(each.value or b"")["payload"]["op"] for each in messages} == {"r"}
    followed(hive, messages, tmp_path / "log", 0)
    assert stored(hive, TARGET) == stored(hive, SOURCE)
    hive.table(SOURCE).update(set={"name": "'new'", "price": "NULL"}, where="id in (1, 6)")
    hive.table(SOURCE).delete(where="id = 2")
    appended(hive, row(7, name="seven"))
    messages, position = debezium(hive, position)
    followed(hive, messages, tmp_path / "log", 1)
    assert stored(hive, TARGET) == stored(hive, SOURCE)
    assert len(stored(hive, SOURCE)) == 7


@pytest.mark.thorough
def test_the_form_of_envelopes(hive: Hive) -> None:
    """An update has both rows, a delete a tombstone, a transaction its beginning and its end with counts."""
    appended(hive, row(1), row(2))
    _, position = debezium(hive, "now")
    hive.table(SOURCE).update(set={"name": "'new'"}, where="id = 1")
    hive.table(SOURCE).delete(where="id = 2")
    messages, _ = debezium(hive, position)
    topics = [each.topic.rpartition(".")[2] for each in messages]
    assert topics == [
        "transaction",
        "orders",
        "transaction",
        "transaction",
        "orders",
        "orders",
        "transaction",
    ]
    begin, update, end, _, delete, tombstone, _ = [
        each.value and json.loads(each.value)["payload"] for each in messages
    ]
    assert (begin["status"], begin["event_count"], begin["data_collections"]) == ("BEGIN", None, None)
    assert (end["status"], end["id"], end["event_count"]) == ("END", begin["id"], 1)
    assert end["data_collections"] == [{"data_collection": SOURCE, "event_count": 1}]
    assert (update["op"], update["before"]["id"], update["after"]["name"]) == ("u", 1, "new")
    assert update["transaction"] == {"id": begin["id"], "total_order": 1, "data_collection_order": 1}
    source = update["source"]
    assert (source["db"], source["table"], str(source["txId"])) == ("default", "orders", begin["id"])
    assert source["write_id"] > 0 and source["snapshot"] == "false"
    assert (delete["op"], delete["before"]["id"], delete["after"], tombstone) == ("d", 2, None, None)
    assert json.loads(messages[5].key or b"")["payload"] == {"id": 2}
    fields = {each["field"]: each for each in json.loads(messages[1].value or b"")["schema"]["fields"]}
    assert fields["after"]["name"] == "hive.default.orders.Value"
    assert {each["field"] for each in fields["source"]["fields"]} == source.keys()


def test_lines_as_messages(hive: Hive) -> None:
    """Each is a line of the command; the key columns are the key."""
    _, position = debezium(hive, "now")
    appended(hive, row(1))
    for on, key in ((("id", "born"), b'{"id":1,"born":"0001-01-01"}'), ((), None)):
        with hive.changes(SOURCE, since=position) as feed:
            (message,) = JsonMessages(FeedTopics("all", "all"), {SOURCE: on}).messages(next(iter(feed)))
        assert (message.topic, message.key) == ("all", key)
        line = json.loads(message.value or b"")
        assert (line["table"], line["change"], line["row"]["price"]) == (SOURCE, "insert", "-0.0128")


def test_key_columns_that_are_left_out(hive: Hive) -> None:
    """The message names the column."""
    appended(hive, row(1))
    form = DebeziumMessages(FeedTopics("hive"), {SOURCE: ("id",)}, "hive", lambda: 7)
    with (
        hive.changes(SOURCE, since="beginning", on=["id"], columns=["name"]) as feed,
        pytest.raises(ConfigurationError, match="must contain the key column id"),
    ):
        list(form.messages(next(iter(feed))))
