"""Messages in the spool: each keeps its place, and damage stays damage."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from mutation_api.cdc.kafka.offsets import KafkaMark, ReadingPlan, TopicMark, TopicState, reading_plan
from mutation_api.cdc.kafka.spool import MessageSpool, spooled_log
from mutation_api.cdc.messages.avro import WriterSchema
from mutation_api.cdc.messages.debezium import DebeziumFormat
from mutation_api.cdc.messages.debezium_flat import FlattenedMessages
from mutation_api.cdc.messages.events import Event, LoggedEvent, Place, PositionSource
from mutation_api.errors import InputFormatError
from mutation_api.storage.location import Location
from tests.support.avro_messages import framed
from tests.support.recorded_messages import recorded_messages

TOPIC = TopicState("t", "id", (0, 0), (100, 100))


def plan_of(*nexts: int) -> ReadingPlan:
    """A plan from these offsets on."""
    mark = KafkaMark("c", {"t": TopicMark("id", nexts)}).to_position()
    return reading_plan("s:x", "c", [TOPIC], ["shop.orders"], {"shop.orders": mark}, {})


def message(identifier: int, op: str = "c", *, indent: int | None = None) -> bytes:
    """One of Debezium."""
    row = {"id": identifier, "note": "tab\t \n end"}
    source = {"db": "shop", "table": "orders", "file": "bin.1", "pos": 4, "row": 0}
    return json.dumps({"before": None, "after": row, "source": source, "op": op}, indent=indent).encode()


def events(
    folder: Path,
    plan: ReadingPlan,
    *messages: tuple[int, int, bytes | None, bytes | None],
    registry: Any = None,
) -> list[LoggedEvent]:
    """The events of messages: partition, offset, key, value."""
    spool = MessageSpool(Location.given(folder), plan, registry)
    for each in messages:
        spool.add(*each)
    spool.close()
    log = spooled_log(
        spool.written(), plan, DebeziumFormat(), PositionSource.AUTO, is_private=True, schemas=spool.schemas
    )
    log = pickle.loads(pickle.dumps(log))
    return [each for number in range(len(log.ranges)) for some in log.events(number) for each in some]


def test_messages_keep_their_places_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if ranges of the file are read, and the file is written in small pieces."""
    monkeypatch.setattr("mutation_api.cdc.messages.json_lines.RANGE_BYTES", 97)
    monkeypatch.setattr("mutation_api.cdc.kafka.spool.WRITE_BYTES", 50)
    places = [(1, 5), (0, 3), (1, 9), (0, 4)]
    given = [(*place, b'{"id": 1}', message(n, indent=n % 2)) for n, place in enumerate(places)]
    found = events(tmp_path, plan_of(3, 5), *given)
    assert sorted(each.place for each in found) == sorted(Place(*place) for place in places)
    by_place = {each.place: each.event for each in found}
    for number, place in enumerate(places):
        event = by_place[Place(*place)]
        assert event.rows[0].after == {"id": str(number), "note": "tab\t \n end"}
        assert event.key == {"id": "1"}


def test_messages_before_a_tables_watermark_are_left_out(tmp_path: Path) -> None:
    plan = plan_of(3, 5)
    found = events(
        tmp_path, plan, (0, 2, None, message(1)), (0, 3, None, message(2)), (1, 4, None, message(3))
    )
    assert [each.place for each in found] == [Place(0, 3)]


@pytest.mark.parametrize(
    "key", [None, b"Struct{id=1}", b"Struct{a=1,b=2}", b'"text"', b"\xff\xfe", b'{"id"\t:\n1}']
)
def test_a_key_that_is_no_object_is_left_out(tmp_path: Path, key: bytes | None) -> None:
    (found,) = events(tmp_path, plan_of(0, 0), (0, 0, key, message(1)))
    assert found.event.kind == "row"
    is_known = key is not None and (b":" in key or key == b"Struct{id=1}")
    assert found.event.key == ({"id": "1"} if is_known else None)


@pytest.mark.parametrize("value", [b'{"a": "line\nend"}', b"{\n", b"", b"{}\n{}", message(1)[:-1]])
def test_damage_stays_damage(tmp_path: Path, value: bytes) -> None:
    (found,) = events(tmp_path, plan_of(0, 0), (0, 7, None, value))
    assert found.place == Place(0, 7)
    assert isinstance(found.event, Event)
    assert found.event.kind == "damaged"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            b"\0\0\0\0\x07rest",
            "topic t, partition 1, offset 8: the message is written with schema 7 of a schema",
        ),
        (b"\x02\xff", "topic t, partition 1, offset 8: the message is not JSON in UTF-8"),
    ],
)
def test_what_is_no_text_is_refused_by_its_place(tmp_path: Path, value: bytes, said: str) -> None:
    with pytest.raises(InputFormatError, match=said):
        events(tmp_path, plan_of(0, 0), (1, 8, None, value))


def test_a_tombstone_needs_its_delete(tmp_path: Path) -> None:
    """But the delete may be the last message of the run before, and a first run knows no row of its key."""
    one, two = b'{"id": 1}', b'{"id": 2}'
    kept = [(0, 5, one, None), (0, 6, one, message(1, "c")), (0, 7, two, message(2, "c")), (0, 8, one, None)]
    assert len(events(tmp_path, plan_of(5, 0), *kept)) == 2
    with pytest.raises(InputFormatError, match=r"offset 9: a tombstone of key .*id.: 2.* without the delete"):
        events(tmp_path / "x", plan_of(5, 0), (0, 6, one, message(1, "d")), (0, 9, two, None))
    first = reading_plan("s:x", "c", [TOPIC], ["shop.orders"], {}, {"t": (0, 0)})
    assert events(tmp_path / "y", first, (0, 9, two, None)) == []


class Schemas(list[str]):
    """Schemas by their numbers; counts how often each is asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def number(self, text: str) -> int:
        if text not in self:
            self.append(text)
        return self.index(text)

    def schema(self, number: int, _where: str) -> WriterSchema:
        self.asked.append(number)
        return WriterSchema(self[number])


def test_messages_in_avro_keep_their_places_among_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each schema is asked for once; a message that its schema does not fit is damaged, and only that."""
    monkeypatch.setattr("mutation_api.cdc.messages.json_lines.RANGE_BYTES", 1000)
    schemas = Schemas()
    recorded = [each for each in recorded_messages("postgres") if each.topic == "erp.public.orders"]
    given: list[tuple[int, int, bytes | None, bytes | None]] = []
    for offset, each in enumerate(recorded):
        assert each.key is not None
        value = None if each.value is None else each.value.in_avro(schemas.number)
        given.append((0, offset, each.key.in_avro(schemas.number), value))
    text_key = framed(schemas.number('"string"'), "string", "k")
    in_json = [(1, 5, text_key, message(1)), (1, 6, b'{"id": 2}', (given[0][3] or b"")[:-1])]
    found = {
        each.place: each.event for each in events(tmp_path, plan_of(0, 0), *given, *in_json, registry=schemas)
    }
    values = [offset for offset, each in enumerate(recorded) if each.value is not None]
    assert sorted(found) == [*(Place(0, offset) for offset in values), Place(1, 5), Place(1, 6)]
    assert all(found[Place(0, offset)].table == "public.orders" for offset in values)
    assert all(found[Place(0, offset)].key_names == ("id",) for offset in values)
    assert (found[Place(1, 5)].kind, found[Place(1, 5)].key) == ("row", None)
    damaged = found[Place(1, 6)]
    assert damaged.problem is not None
    assert "it was not written with this schema" in damaged.problem.text
    assert sorted(schemas.asked) == list(range(len(schemas)))


def test_messages_without_value_are_deletes_of_a_flattened_log(tmp_path: Path) -> None:
    """They need no delete before them, and are of the table that the topic names, or that is followed."""
    plan = plan_of(0, 0)
    spool = MessageSpool(Location.given(tmp_path), plan, keeps_tombstones=True)
    spool.add(0, 0, b'{"id": 1}', b'{"id": 1, "note": "a"}')
    spool.add(0, 1, b'{"id": 1}', None)
    spool.add(1, 0, b"Struct{id=2}", None)
    spool.close()
    flat = DebeziumFormat(flattened=FlattenedMessages(), followed="shop.orders")
    log = spooled_log(spool.written(), plan, flat, PositionSource.AUTO, is_private=True)
    found = [each for some in log.events(0) for each in some]
    assert [each.place for each in found] == [Place(0, 0), Place(0, 1), Place(1, 0)]
    assert [each.event.op for each in found] == ["update", "delete", "delete"]
    assert {each.event.table for each in found} == {"shop.orders"}
    assert found[2].event.key == {"id": "2"}
