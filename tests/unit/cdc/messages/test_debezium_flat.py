"""Flattened messages of Debezium, in the forms in which ExtractNewRecordState writes them."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mutation_api.cli.terminal import EXIT_OK
from tests.support.ingested_table import IngestedTable
from tests.support.recorded_messages import Recorded, recorded_messages

PEOPLE = {"id": "bigint", "name": "string"}
TABLE = ("--table", "shop.people=default.t", "--flattened")

Row = dict[str, Any] | None


@pytest.fixture
def people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine_session: SparkSession | None
) -> IngestedTable:
    return IngestedTable(tmp_path, monkeypatch, PEOPLE, engine_session)


def person(number: int, name: str | None) -> dict[str, Any]:
    return {"id": number, "name": name}


def schema_of(row: dict[str, Any], name: str) -> dict[str, Any]:
    types = {int: "int64", str: "string"}
    fields = [
        {"field": each, "type": types.get(type(value), "string"), "optional": True}
        for each, value in row.items()
    ]
    return {"type": "struct", "fields": fields, "optional": False, "name": name}


def line(key: Row, value: Row, *, schema: str | None = None) -> str:
    """Key and message as the console consumer prints them; ``schema``: the table's name in schemas."""
    if schema is None:
        return f"{json.dumps(key)}\t{json.dumps(value)}" if key else json.dumps(value)
    whole = {"schema": schema_of(value or person(0, ""), f"{schema}.Value"), "payload": value}
    if key is None:
        return json.dumps(whole)
    return f"{json.dumps({'schema': schema_of(key, f'{schema}.Key'), 'payload': key})}\t{json.dumps(whole)}"


def rewritten(code: str, row: dict[str, Any], **others: Any) -> dict[str, Any]:
    """A row of ``delete.tombstone.handling.mode=rewrite`` and ``add.fields=op,table,db``."""
    named = {"__op": code, "__table": "people", "__db": "shop", **others}
    return {**row, **named, "__deleted": "true" if code == "d" else "false"}


LIFE = [
    ("r", person(1, "Ada")),
    ("c", person(2, "Bob")),
    ("u", person(1, "Eve")),
    ("d", person(2, "Bob")),
    ("c", person(3, "Dan")),
    ("d", person(3, "Dan")),
    ("c", person(4, "Dan")),
]
"""The last two are an update of the key."""

LEFT = [person(1, "Eve"), person(4, "Dan")]


@pytest.mark.parametrize("schema", [None, "erp.shop.people"])
def test_deletes_that_are_rewritten(people: IngestedTable, schema: str | None) -> None:
    """Each with its operation and table; messages of other tables are others."""
    lines = [line({"id": row["id"]}, rewritten(code, row), schema=schema) for code, row in LIFE]
    other = rewritten("c", person(9, "no"), __table="orders")
    lines.append(line({"id": 9}, other, schema=None if schema is None else "erp.shop.orders"))
    assert people.ingest("debezium", people.log("log-1.json", lines), *TABLE) == EXIT_OK
    assert people.rows() == LEFT


@pytest.mark.thorough(1)
@pytest.mark.parametrize("schema", [None, "erp.shop.people"])
@pytest.mark.parametrize("keeps_op", [True, False])
def test_deletes_that_are_tombstones(people: IngestedTable, schema: str | None, *, keeps_op: bool) -> None:
    """The default: no value deletes the row of the key; a schema may be left."""
    lines = []
    for code, row in LIFE:
        value = {**row, **({"__op": code} if keeps_op else {})}
        lines.append(line({"id": row["id"]}, None if code == "d" else value, schema=schema))
    files = people.log("log-1.json", lines)
    assert people.ingest("debezium", files, *TABLE) == EXIT_OK
    assert people.rows() == LEFT


def test_a_rewritten_delete_may_have_a_tombstone_behind_it(people: IngestedTable) -> None:
    """rewrite-with-tombstone; the next run goes on with the tombstone alone."""
    delete = line({"id": 1}, rewritten("d", person(1, "Ada")))
    lines = [line({"id": 1}, rewritten("c", person(1, "Ada"))), delete]
    assert people.ingest("debezium", people.log("log-1.json", lines), *TABLE) == EXIT_OK
    assert people.rows() == []
    files = people.log(
        "log-1.json", [*lines, line({"id": 1}, None), line({"id": 2}, rewritten("c", LEFT[1]))]
    )
    assert people.ingest("debezium", files, *TABLE) == EXIT_OK
    assert people.rows() == LEFT[1:]


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([line({"id": 1}, {**LEFT[0], "__schema": "shop", "__table": "people"})], ()),
        ([line({"id": 1}, {**LEFT[0], "__source_schema": "shop", "__source_table": "people"})], ()),
        (
            [
                line({"id": 1}, LEFT[0], schema="a.erp.shop.people"),
                line({"id": 9}, LEFT[1], schema="e.x.people"),
            ],
            (),
        ),
        ([json.dumps({"topic": "erp.shop.people", "offset": 0, "key": {"id": 1}, "payload": LEFT[0]})], ()),
        ([json.dumps({"topic": "erp.shop.orders", "offset": 0, "key": {"id": 9}, "payload": LEFT[1]})], None),
        (
            [
                json.dumps(
                    {"topic": "routed", "offset": 0, "key": '{"id": 1}', "payload": json.dumps(LEFT[0])}
                )
            ],
            (),
        ),
        (
            [json.dumps({"topic": "a.b.c", "offset": 0, "key": {"id": 1}, "payload": LEFT[0]})],
            ("shop.people",),
        ),
        (
            [line({"id": 1}, {**LEFT[0], "__table": "people"}), line({"id": 9}, {**LEFT[1], "__table": "x"})],
            (),
        ),
        ([line({"id": 1}, {**LEFT[0], "m_table": "people", "m_db": "shop"})], ("--add-fields-prefix", "m_")),
    ],
)
def test_whose_row_a_message_is(
    people: IngestedTable, lines: list[str], words: tuple[str, ...] | None
) -> None:
    """By the fields that were added, the schema, the topic; or because one table is followed."""
    assert people.ingest("debezium", people.log("log-1.json", lines), *TABLE, *(words or ())) == EXIT_OK
    assert people.rows() == ([] if words is None else LEFT[:1])


POSTGRES = {"__table": "people", "__db": "erp", "__lsn": 5}


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("added", "topic", "followed", "words"),
    [
        ({**POSTGRES, "__schema": "public"}, None, "public.people", ("--flattened",)),
        (POSTGRES, "erp.public.people", "public.people", ("--flattened",)),
        (POSTGRES, None, "public.people", ("--flattened", "public.people")),
        ({"__table": "people", "__db": "shop"}, "kafka.routed.people", "shop.people", ("--flattened",)),
        (
            {"__table": "people", "__db": "shop", "__file": "b.1", "__pos": 4},
            "a.b.people",
            "shop.people",
            ("--flattened",),
        ),
    ],
)
def test_a_database_is_not_a_schema(
    people: IngestedTable, added: Row, topic: str | None, followed: str, words: tuple[str, ...]
) -> None:
    """A table of PostgreSQL is named by its schema, one of MySQL by its database."""
    row = {**LEFT[0], **(added or {})}
    message = line({"id": 1}, row)
    if topic is not None:
        message = json.dumps({"topic": topic, "offset": 0, "key": {"id": 1}, "payload": row})
    files = people.log("log-1.json", [message])
    words = ("--table", f"{followed}=default.t", "--positions", "line", *words)
    assert people.ingest("debezium", files, *words) == EXIT_OK
    assert people.rows() == LEFT[:1]


def test_a_schema_that_is_not_told(people: IngestedTable, capsys: pytest.CaptureFixture[str]) -> None:
    """Two schemas may have tables of one name."""
    files = people.log("log-1.json", [line({"id": 1}, {**LEFT[0], **POSTGRES})])
    assert people.ingest("debezium", files, "--table", "public.people=default.t", "--flattened") != EXIT_OK
    assert "field __schema: the message names its table and database" in capsys.readouterr().err
    assert people.rows() == []


def test_several_tables_need_their_names(people: IngestedTable, capsys: pytest.CaptureFixture[str]) -> None:
    """Read one by one they need none."""
    files = people.log("log-1.json", [line({"id": 1}, LEFT[0])])
    words = ("--table", "shop.people=default.t", "--table", "shop.orders=default.u", "--flattened")
    people.also("u")
    assert people.ingest("debezium", files, *words) != EXIT_OK
    said = capsys.readouterr().err
    assert "line 1, field __table: the message does not name its table" in said
    assert "add.fields=table,db" in said
    assert people.ingest("debezium", files, *TABLE) == EXIT_OK
    assert people.rows() == LEFT[:1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([line(None, LEFT[0])], "field __deleted: the message has neither __deleted nor a key"),
        (
            [line(None, {**LEFT[0], "__op": "c"})],
            "field __deleted: the message has neither __deleted nor a key",
        ),
        (["null"], "field __deleted: the message has no value and no key"),
        ([line({"id": 1}, {**LEFT[0], "__deleted": "maybe"})], "field __deleted: is maybe"),
        ([line({"id": 1}, {**LEFT[0], "__deleted": "true", "__op": "c"})], "is true, but the operation is c"),
        ([line({"id": 1}, {**LEFT[0], "__op": "x"})], "field op: unknown operation x"),
        (["1"], "the message is not a row"),
        ([line({"id": 1}, {**LEFT[0], "odd": 1})], "field odd: default.t does not have this column"),
        ([line({"code": 1}, None)], "field id: the message does not have this column of default.t"),
    ],
)
def test_what_is_not_told_is_refused(
    people: IngestedTable, capsys: pytest.CaptureFixture[str], texts: list[str], said: str
) -> None:
    """Nothing is applied; the same log with keys, or deletes that are rewritten, is."""
    files = people.log("log-1.json", texts)
    assert people.ingest("debezium", files, "--table", "shop.people=default.t:id", "--flattened") != EXIT_OK
    assert said in capsys.readouterr().err
    assert people.rows() == []
    told = {**LEFT[0], "__op": "c", "__deleted": "false"}
    for name, again in (("keys", line({"id": 1}, LEFT[0])), ("deletes", line(None, told))):
        people.empty()
        words = (*TABLE, "--name", name)
        if name == "deletes":
            words = ("--table", "shop.people=default.t:id", "--flattened", "--name", name)
        assert people.ingest("debezium", people.log("log-1.json", [again]), *words) == EXIT_OK
        assert people.rows() == LEFT[:1]


def test_flattened_messages_that_are_not_said_to_be(
    people: IngestedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    """The advice is followed."""
    files = people.log("log-1.json", [line({"id": 1}, LEFT[0])])
    assert people.ingest("debezium", files, *TABLE[:2]) != EXIT_OK
    assert "use --flattened" in capsys.readouterr().err
    assert people.ingest("debezium", files, *TABLE) == EXIT_OK
    assert people.rows() == LEFT[:1]


def test_a_key_that_is_not_the_messages_own(
    people: IngestedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    """An update does not show the row before it."""
    lines = [line({"id": 1}, rewritten("c", person(1, "a"))), line({"id": 1}, rewritten("u", person(1, "b")))]
    files = people.log("log-1.json", lines)
    words = ("--table", "shop.people=default.t:name", "--flattened")
    assert people.ingest("debezium", files, *words) != EXIT_OK
    assert "line 2, field before: it is not known which row had the old key" in capsys.readouterr().err
    assert people.ingest("debezium", files, *TABLE) == EXIT_OK
    assert people.rows() == [person(1, "b")]


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    "places",
    [
        [{"__file": "bin.000002", "__pos": n, "__row": 0, "__source_ts_ms": n} for n in range(4, 11)],
        [
            {"__schema": "shop", "__sequence": f'[null,"{n}"]', "__lsn": n, "__source_ts_ms": n}
            for n in range(4, 11)
        ],
    ],
)
def test_positions_order_messages(people: IngestedTable, places: list[dict[str, Any]]) -> None:
    """Whatever the order of lines, if the times say so too; what was applied is not applied again."""
    lines = [
        line({"id": row["id"]}, rewritten(code, row, **place))
        for (code, row), place in zip(LIFE, places, strict=True)
    ]
    files = people.log("log-1.json", lines[::-1])
    assert people.ingest("debezium", files, *TABLE) == EXIT_OK
    assert people.rows() == LEFT
    assert people.ingest("debezium", people.log("log-1.json", [*lines[::-1], *lines]), *TABLE) == EXIT_OK
    assert people.rows() == LEFT


def test_fields_that_the_target_has_are_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others that were added are left out."""
    kept = IngestedTable(tmp_path, monkeypatch, {**PEOPLE, "__source_ts_ms": "bigint"})
    row = rewritten("c", person(1, "Ada"), __source_ts_ms=5, __txId=7)
    assert kept.ingest("debezium", kept.log("log-1.json", [line({"id": 1}, row)]), *TABLE) == EXIT_OK
    assert kept.rows() == [{**person(1, "Ada"), "__source_ts_ms": 5}]


def test_columns_with_the_names_of_a_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of keys and values, or an outbox."""
    table = IngestedTable(tmp_path, monkeypatch, {"key": "string", "value": "string", "topic": "string"})
    rows = [
        {"key": "a", "value": "b", "topic": "c"},
        {"key": "d", "value": '{"x": 1}', "topic": "e", "__deleted": "false"},
    ]
    wrapped = {"key": json.dumps({"key": "f"}), "value": json.dumps({"key": "f", "value": "g", "topic": "h"})}
    lines = [*(line({"key": row["key"]}, row) for row in rows), json.dumps(rows[1]), json.dumps(wrapped)]
    files = table.log("log-1.json", lines)
    words = ("--table", "shop.people=default.t:key", "--flattened", "--trust-key", "shop.people")
    assert table.ingest("debezium", files, *words) == EXIT_OK
    assert [row["key"] for row in table.rows()] == ["a", "d", "f"]


def test_messages_that_the_transformation_lets_pass(people: IngestedTable) -> None:
    """Heartbeats, marks of transactions, and envelopes."""
    source = {"db": "shop", "table": "people", "connector": "mysql"}
    lines = [
        '{"serverName":"erp"}\t{"ts_ms":1465581029523}',
        '{"id":"571"}\t{"status":"BEGIN","id":"571","ts_ms":1,"event_count":null,"data_collections":null}',
        line({"id": 1}, {"op": "c", "before": None, "after": LEFT[0], "source": source}),
        line({"id": 4}, LEFT[1]),
    ]
    assert people.ingest("debezium", people.log("log-1.json", lines), *TABLE) == EXIT_OK
    assert people.rows() == LEFT


def test_tombstones_beside_positions(people: IngestedTable, capsys: pytest.CaptureFixture[str]) -> None:
    """They have none, so lines order the log, as the message advises."""
    rows = [
        {**row, "__op": code, "__file": "bin.000002", "__pos": at} for at, (code, row) in enumerate(LIFE, 4)
    ]
    lines = [line({"id": row["id"]}, None if row["__op"] == "d" else row) for row in rows]
    files = people.log("log-1.json", lines)
    assert people.ingest("debezium", files, *TABLE) != EXIT_OK
    assert "use --positions line" in capsys.readouterr().err
    assert people.ingest("debezium", files, *TABLE, "--positions", "line") == EXIT_OK
    assert people.rows() == LEFT


def test_rows_that_are_flattened_and_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine_session: SparkSession | None
) -> None:
    """Their columns change their case, with a number as decimal."""
    columns = {"id": "bigint", "price": "decimal(9,2)", "placed": "timestamp"}
    table = IngestedTable(tmp_path, monkeypatch, columns, engine_session)
    rows = [
        {"id": 1, "price": 1.5, "placed": "2024-01-01T10:00:00+02:00"},
        {"ID": 2, "Price": 2.25, "PLACED": "2024-01-01T10:00:00Z"},
        {"Id": 1, "price": 3, "Placed": None},
    ]
    lines = [line({"id": row.get("id", row.get("ID", row.get("Id")))}, row) for row in rows]
    lines.append(line({"iD": 2}, None))
    path = tmp_path / "log-1.json.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    words = (*TABLE, "--decimals", "numeric")
    assert table.ingest("debezium", str(path), *words) == EXIT_OK
    assert table.rows() == [{"id": 1, "price": Decimal("3.00"), "placed": None}]


def flattened(recorded: Recorded, mode: str) -> str | None:
    """What ExtractNewRecordState makes of a message of a real connector; None if it drops it."""
    if recorded.value is None or recorded.key is None:
        return None
    whole = json.loads(recorded.value.json)
    envelope = whole["payload"]
    if "op" not in envelope:
        return f"{recorded.key.json}\t{recorded.value.json}"
    (schema,) = (each for each in whole["schema"]["fields"] if each["field"] == "after")
    deleted = {"field": "__deleted", "type": "string", "optional": True}
    fields = [*schema["fields"], {"field": "__op", "type": "string", "optional": True}]
    row = envelope["after"] or envelope["before"]
    value = {**row, "__op": envelope["op"]}
    if mode == "rewrite":
        fields.append(deleted)
        value["__deleted"] = "false" if envelope["after"] else "true"
    elif envelope["after"] is None:
        value = None
    schema = {"type": "struct", "fields": fields, "optional": False, "name": schema["name"]}
    return f"{recorded.key.json}\t{json.dumps({'schema': schema, 'payload': value}, ensure_ascii=False)}"


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["rewrite", "tombstone"])
def test_messages_of_a_real_connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Flattened as the transformation does it, they give the rows that the envelopes give."""
    columns = {"id": "bigint", "note": "string", "price": "decimal(20,4)", "seen": "timestamp"}
    table = IngestedTable(tmp_path, monkeypatch, columns)
    recorded = [each for each in recorded_messages("postgres") if each.topic == "erp.public.orders"]
    names = {
        field["field"]
        for each in recorded
        if each.value is not None
        for image in json.loads(each.value.json)["schema"]["fields"]
        if image["field"] == "after"
        for field in image["fields"]
    }
    words = ["--table", "public.orders=default.t"]
    for name in sorted(names - columns.keys()):
        words += ["--ignore-column", f"public.orders.{name}"]
    plain = [f"{each.key.json}\t{each.value.json}" for each in recorded if each.key and each.value]
    assert table.ingest("debezium", table.log("log-1.json", plain), *words, "--name", "plain") == EXIT_OK
    expected = table.rows()
    assert len(expected) > 1
    table.empty()
    lines = [each for each in (flattened(one, mode) for one in recorded) if each is not None]
    files = table.log("log-2.json", lines)
    assert table.ingest("debezium", files, *words, "--name", mode, "--flattened") == EXIT_OK
    assert table.rows() == expected
