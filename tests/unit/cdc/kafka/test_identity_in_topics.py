"""Messages of another server, connector or database in topics: what the order of partitions tells, and what
is refused. The broker is in memory; tests/integration/ingests has real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mutation_api.cdc import DebeziumSource, KafkaTopics, LogOptions, PositionSource
from mutation_api.cdc.kafka.offsets import ReadingPlan, TopicState
from mutation_api.cdc.messages.events import NewSnapshot
from mutation_api.cdc.source import LocalBatch, Position, SourceTable
from mutation_api.errors import ConfigurationError, ContradictionError, InputFormatError, SourcePositionError
from tests.support.json_messages import small_table
from tests.support.kafka_messages import read, rows_of
from tests.support.message_logs import debezium_ddl, debezium_message

ORDERS = SourceTable("shop.t", small_table(("id", "int"), ("v", "string")), ("id",))


class MemoryBroker:
    """Partitions of one topic; fulfils what KafkaTopics asks of a broker."""

    def __init__(self, count: int) -> None:
        self.partitions: list[list[str]] = [[] for _ in range(count)]

    def send(self, *messages: str, partition: int = 0) -> None:
        """Append messages to a partition."""
        self.partitions[partition] += messages

    def cluster_id(self) -> str:
        """See Broker."""
        return "cluster"

    def topics(self, names: Sequence[str]) -> list[TopicState]:
        """See Broker."""
        firsts = tuple(0 for _ in self.partitions)
        return [TopicState(name, "id", firsts, tuple(map(len, self.partitions))) for name in names]

    def read(self, plan: ReadingPlan, add: Callable[..., None]) -> None:
        """See Broker."""
        for number, messages in enumerate(self.partitions):
            for offset in range(plan.firsts[number], plan.ends[number]):
                add(number, offset, None, messages[offset].encode())


Make = Callable[..., tuple[MemoryBroker, Callable[..., LocalBatch]]]


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a topic, and what reads it."""

    def make(count: int = 1) -> tuple[MemoryBroker, Callable[..., LocalBatch]]:
        broker = MemoryBroker(count)
        topics = KafkaTopics("none:1", "t")
        monkeypatch.setattr(topics, "_broker", lambda source_id: broker)

        def run(after: Position | None = None, table: SourceTable = ORDERS, **options: Any) -> LocalBatch:
            source = DebeziumSource(topics, "erp", options=LogOptions(**options))
            return read(source, None if after is None else {table.name: after}, tables=(table,))

        return broker, run

    return make


def mysql(op: str, identifier: int, value: str, file: int, pos: int, **source: Any) -> str:
    return debezium_message(op, identifier, value, file=f"mysql-bin.{file:06}", pos=pos, **source)


BY_MESSAGE = {"positions": PositionSource.MESSAGE}


@pytest.mark.parametrize("source", [{"server_id": 2}, {"gtid": "4f22fa47-71ca-11e1-9e33-c80aa9429562:1"}, {}])
def test_a_server_that_takes_over(topic: Make, source: Any) -> None:
    """The order of the partition is right; that of positions is refused, and leaving it out is the way on."""
    broker, run = topic()
    gtid = {"gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:9"} if "gtid" in source else {}
    broker.send(mysql("c", 1, "old", 50, 100, **gtid), mysql("u", 1, "new", 3, 100, **source))
    said = "several servers.*Leave out --positions message|not in the order of their positions.*leave out"
    with pytest.raises((SourcePositionError, ContradictionError), match=said):
        rows_of(run(**BY_MESSAGE))
    assert rows_of(run()) == [("update", 1, "new")]


def test_a_server_that_takes_over_between_runs(topic: Make) -> None:
    """Offsets count between runs, whatever orders the messages of one."""
    broker, run = topic()
    broker.send(mysql("c", 1, "old", 50, 100))
    first = run(**BY_MESSAGE)
    broker.send(mysql("u", 1, "new", 3, 100, server_id=2))
    for options in ({}, BY_MESSAGE):
        assert rows_of(run(first.position, **options)) == [("update", 1, "new")]


SNAPSHOT = [mysql("r", 1, "read", 60, 4, snapshot="true"), mysql("r", 2, "read", 60, 4, snapshot="last")]


@pytest.mark.parametrize("runs", [1, 2])
def test_a_snapshot_behind_changes(topic: Make, runs: int) -> None:
    """A new connector: rows that were deleted in between are not reported, so the user says what it means."""
    broker, run = topic()
    broker.send(mysql("c", 1, "a", 50, 100), mysql("c", 3, "gone", 50, 200))
    after = run().position if runs == 2 else None
    broker.send(*SNAPSHOT, mysql("u", 2, "later", 60, 100))
    with pytest.raises(SourcePositionError, match=r"topic t, partition 0, offset 2: the log has a snapshot"):
        run(after)
    found = run(after, new_snapshot=NewSnapshot.REPLACE)
    assert found.tables[0].is_emptied
    assert rows_of(found) == [("insert", 1, "read"), ("update", 2, "later")]
    merged = run(after, new_snapshot=NewSnapshot.MERGE)
    assert not merged.tables[0].is_emptied
    assert run(merged.position).position is None
    broker.send(mysql("c", 5, "x", 60, 200))
    assert rows_of(run(merged.position)) == [("insert", 5, "x")]


def test_snapshots_in_several_partitions(topic: Make) -> None:
    """The first one is in order; what a second one replaces in other partitions is not known."""
    broker, run = topic(2)
    for number, message in enumerate(SNAPSHOT):
        broker.send(message, mysql("c", 10 + number, "x", 60, 50 + number), partition=number)
    first = run()
    assert len(rows_of(first)) == 4
    for number, message in enumerate(SNAPSHOT):
        broker.send(message.replace('"pos": 4', '"pos": 900'), partition=number)
    with pytest.raises(SourcePositionError, match="the log has a snapshot of the table"):
        run(first.position)
    with pytest.raises(InputFormatError, match="Empty the target, and read the table from the snapshot on"):
        run(first.position, new_snapshot=NewSnapshot.REPLACE)
    assert len(rows_of(run(first.position, new_snapshot=NewSnapshot.MERGE))) == 2


def of(database: str, identifier: int) -> str:
    source = {"connector": "sqlserver", "db": database, "schema": "dbo", "file": None, "pos": None}
    return debezium_message("c", identifier, f"of {database}", **source)


@pytest.mark.parametrize("runs", [1, 2])
def test_tables_of_two_databases(topic: Make, runs: int) -> None:
    """In one run, and across runs; the name with the database picks one."""
    broker, run = topic()
    table = SourceTable("dbo.t", ORDERS.target, ("id",))
    broker.send(of("a", 1))
    after = run(table=table).position if runs == 2 else None
    broker.send(of("b", 1), of("b", 2))
    with pytest.raises(ConfigurationError, match=r"database a and database b.*a\.dbo\.t, b\.dbo\.t"):
        run(after, table)
    of_b = SourceTable("b.dbo.t", ORDERS.target, ("id",))
    assert rows_of(run(None, of_b)) == [("insert", 1, "of b"), ("insert", 2, "of b")]


def test_a_schema_change_stops_a_run_whole(topic: Make) -> None:
    """Its order among the rows of other partitions is not known."""
    broker, run = topic()
    change = {"type": "ALTER", "id": '"shop"."t_old"', "previousId": '"shop"."t"', "table": {}}
    broker.send(mysql("c", 1, "a", 50, 100), debezium_ddl("RENAME TABLE t TO t_old", change))
    with pytest.raises(InputFormatError, match=r"offset 1: schema change of shop.t_old: RENAME"):
        run()
    assert rows_of(run(accepts_schema_changes=True)) == [("insert", 1, "a")]


def test_a_table_that_no_message_names(topic: Make) -> None:
    broker, run = topic()
    broker.send(mysql("c", 1, "a", 50, 100))
    found = run(table=SourceTable("shop.T", ORDERS.target, ("id",)))
    assert found.warnings == ("no message names table shop.T; did you mean shop.t?",)
    again = run(found.position, table=SourceTable("shop.T", ORDERS.target, ("id",)))
    assert again.position is None
    broker.send(mysql("c", 2, "a", 50, 200))
    assert run(found.position, table=SourceTable("shop.T", ORDERS.target, ("id",))).warnings == found.warnings
