"""Rows whose key a message does not show, and columns whose names differ in case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mutation_api.cli.terminal import EXIT_OK
from tests.support.ingested_table import IngestedTable
from tests.support.json_messages import Change, canal, maxwell
from tests.unit.cdc.messages.test_debezium import MYSQL, POSTGRES, envelope

PEOPLE = {"id": "bigint", "email": "string"}
BY_EMAIL = ("--table", "public.orders=default.t:email")
BY_ID = ("--table", "public.orders=default.t:id")

Row = dict[str, Any] | None


@pytest.fixture
def people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine_session: SparkSession | None
) -> IngestedTable:
    return IngestedTable(tmp_path, monkeypatch, PEOPLE, engine_session)


def person(number: int, email: str | None) -> dict[str, Any]:
    return {"id": number, "email": email}


def line(op: str, before: Row, after: Row, at: int, key: Row = None) -> str:
    """A message of PostgreSQL; its key is the primary key."""
    text = envelope(op, before, after, {**POSTGRES, "lsn": at})
    image = after or before
    assert image is not None
    return f"{json.dumps(key or {'id': image['id']})}\t{text}"


CREATED = line("c", None, person(1, "a@x"), 1)


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("lines", "rest"),
    [
        ([line("u", None, person(1, "b@x"), 2)], [person(1, "b@x")]),
        ([line("d", person(1, None), None, 2)], []),
        ([line("d", person(1, ""), None, 2)], []),
        ([line("d", person(1, ""), None, 2), line("c", None, person(2, "a@x"), 3)], [person(2, "a@x")]),
    ],
)
def test_a_key_that_is_not_the_messages_own(
    people: IngestedTable, capsys: pytest.CaptureFixture[str], lines: list[str], rest: list[Row]
) -> None:
    """With the default replica identity an update says nothing of the old value, and a delete has a stand-in.

    It is refused with the advice to follow the messages' own key, which is equal to the source.
    """
    files = people.log("log-1.json", [CREATED, *lines])
    assert people.ingest("debezium", files, *BY_EMAIL) != EXIT_OK
    said = capsys.readouterr().err
    assert "log-1.json, line 2, field before: it is not known which row" in said
    assert "its own key is id" in said
    assert "--trust-key public.orders" in said
    assert people.rows() == []
    assert people.ingest("debezium", files, *BY_ID) == EXIT_OK
    assert people.rows() == rest


def test_messages_without_their_keys(people: IngestedTable, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing says that the named key is the primary key; the user may."""
    lines = [each.partition("\t")[2] for each in (CREATED, line("u", None, person(1, "b@x"), 2))]
    files = people.log("log-1.json", lines)
    assert people.ingest("debezium", files, *BY_ID) != EXIT_OK
    assert "its own key is none" in capsys.readouterr().err
    assert people.ingest("debezium", files, *BY_ID, "--trust-key", "public.orders") == EXIT_OK
    assert people.rows() == [person(1, "b@x")]


def test_a_key_that_the_replica_identity_has(people: IngestedTable) -> None:
    """REPLICA IDENTITY FULL: the row before has all columns."""
    lines = [
        CREATED,
        line("c", None, person(2, "c@x"), 2),
        line("u", person(1, "a@x"), person(1, "b@x"), 3),
        line("d", person(2, "c@x"), None, 4),
    ]
    files = people.log("log-1.json", lines)
    assert people.ingest("debezium", files, *BY_EMAIL) == EXIT_OK
    assert people.rows() == [person(1, "b@x")]


def test_a_value_that_may_stand_in(people: IngestedTable, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty text of REPLICA IDENTITY FULL cannot be told from one that was not logged; the user may."""
    lines = [line("c", None, person(1, ""), 1), line("d", person(1, ""), None, 2)]
    files = people.log("log-1.json", lines)
    assert people.ingest("debezium", files, *BY_EMAIL) != EXIT_OK
    assert "a row from before the change that may be incomplete" in capsys.readouterr().err
    assert people.ingest("debezium", files, *BY_EMAIL, "--trust-key", "public.orders") == EXIT_OK
    assert people.rows() == []


def test_a_default_may_stand_in(people: IngestedTable, capsys: pytest.CaptureFixture[str]) -> None:
    """A column that is NOT NULL and has a default has it in a row before that was not logged."""
    lines = [CREATED, line("d", person(1, "none"), None, 2)]
    fields = [{"field": "id", "type": "int64"}, {"field": "email", "type": "string", "default": "none"}]
    schema = {"type": "struct", "fields": [{"type": "struct", "fields": fields, "field": "after"}]}
    wrapped = []
    for each in lines:
        key, _, value = each.partition("\t")
        wrapped.append(f'{key}\t{{"schema":{json.dumps(schema)},"payload":{value}}}')
    files = people.log("log-1.json", wrapped)
    assert people.ingest("debezium", files, *BY_EMAIL) != EXIT_OK
    assert "line 2, field before: it is not known which row was deleted" in capsys.readouterr().err
    assert people.ingest("debezium", files, *BY_ID) == EXIT_OK
    assert people.rows() == []


def test_a_replica_identity_that_is_another_index(
    people: IngestedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message's key was not logged then, and has a stand-in; the index is the key to follow."""
    lines = [CREATED, line("d", person(0, "a@x"), None, 2)]
    files = people.log("log-1.json", lines)
    assert people.ingest("debezium", files, *BY_ID) != EXIT_OK
    assert "line 2, field before: it is not known which row was deleted" in capsys.readouterr().err
    assert people.ingest("debezium", files, *BY_EMAIL) == EXIT_OK
    assert people.rows() == []


def test_sources_that_log_whole_rows(people: IngestedTable) -> None:
    """MySQL's messages show the old key, whichever it is."""
    places = [{**MYSQL, "pos": at} for at in (4, 8, 12)]
    lines = [
        envelope("c", None, person(1, "a@x"), places[0]),
        envelope("u", person(1, "a@x"), person(1, "b@x"), places[1]),
    ]
    files = people.log("log-1.json", lines)
    assert people.ingest("debezium", files, "--table", "shop.orders=default.t:email") == EXIT_OK
    assert people.rows() == [person(1, "b@x")]


@pytest.mark.parametrize("tool", ["maxwell", "canal"])
def test_a_key_that_is_not_the_primary_key(people: IngestedTable, tool: str) -> None:
    """Maxwell and Canal name the old values of all columns that an update changes."""
    writer = maxwell if tool == "maxwell" else canal
    changes = [
        Change("insert", None, person(1, "a@x"), 1, 4),
        Change("update", person(1, "a@x"), person(1, "b@x"), 1, 5),
        Change("insert", None, person(2, "a@x"), 1, 6),
        Change("update", person(1, "b@x"), person(3, "b@x"), 1, 7),
        Change("delete", person(2, "a@x"), None, 1, 8),
    ]
    files = people.log("log-1.json", [writer(change) for change in changes])
    assert people.ingest(tool, files, "--table", "shop.orders=default.t:email") == EXIT_OK
    assert people.rows() == [person(3, "b@x")]


MIXED = [
    Change("insert", None, {"ID": 1, "Email": "a@x"}, 1, 4),
    Change("insert", None, {"id": 2, "email": "b@x"}, 1, 5),
    Change("update", {"Id": 1, "EMAIL": "a@x"}, {"Id": 1, "EMAIL": "c@x"}, 1, 6),
    Change("delete", {"iD": 2, "Email": "b@x"}, None, 1, 7),
    Change("update", {"id": 1, "eMail": "c@x"}, {"id": 3, "eMail": "c@x"}, 1, 8),
]


@pytest.mark.thorough(1)
@pytest.mark.parametrize("tool", ["maxwell", "canal", "debezium"])
@pytest.mark.parametrize("key", ["", ":ID"])
def test_a_column_may_change_its_case(people: IngestedTable, tool: str, key: str) -> None:
    """In rows, in their keys, in schemas, and in options."""
    lines = []
    for change in MIXED:
        image = change.after or change.before
        assert image is not None
        own = [next(name for name in image if name.lower() == "id")]
        if tool == "maxwell":
            lines.append(maxwell(change, primary_key_columns=own))
        elif tool == "canal":
            lines.append(canal(change, pkNames=own))
        else:
            lines.append(_with_schema(change, own[0]))
    files = people.log("log-1.json", lines)
    assert people.ingest(tool, files, "--table", f"shop.orders=default.t{key}") == EXIT_OK
    assert people.rows() == [person(3, "c@x")]


def _with_schema(change: Change, key: str) -> str:
    image = change.after or change.before
    assert image is not None
    fields = [
        {"field": name, "type": "int64" if name.lower() == "id" else "string", "optional": True}
        for name in image
    ]
    rows = {"type": "struct", "fields": fields, "optional": True}
    schema = {"type": "struct", "fields": [{**rows, "field": "before"}, {**rows, "field": "after"}]}
    source = {**MYSQL, "pos": change.place}
    op = {"insert": "c", "update": "u", "delete": "d"}[change.operation]
    payload = json.loads(envelope(op, change.before, change.after, source))
    own = {key: (change.before or image)[key]}
    return f"{json.dumps(own)}\t{json.dumps({'schema': schema, 'payload': payload})}"


@pytest.mark.parametrize("tool", ["maxwell", "canal"])
def test_two_columns_that_differ_only_in_case(
    people: IngestedTable, capsys: pytest.CaptureFixture[str], tool: str
) -> None:
    """Both are named; the one that is left out by its spelling is not read."""
    row = {"id": 1, "Email": "no", "email": "yes"}
    writer = maxwell if tool == "maxwell" else canal
    lines = [
        writer(Change("insert", None, row, 1, 4)),
        writer(Change("update", row, {**row, "Email": "x"}, 1, 5)),
    ]
    files = people.log("log-1.json", lines)
    words = ("--table", "shop.orders=default.t")
    assert people.ingest(tool, files, *words) != EXIT_OK
    said = capsys.readouterr().err
    assert "line 1, field Email: columns Email and email differ only in case" in said
    assert "--ignore-column shop.orders.Email" in said
    assert people.rows() == []
    assert people.ingest(tool, files, *words, "--ignore-column", "shop.orders.Email") == EXIT_OK
    assert people.rows() == [person(1, "yes")]


def test_rows_of_many_kinds(people: IngestedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maxwell leaves out NULLs (output_nulls=false); not all kinds of rows are kept."""
    monkeypatch.setattr("mutation_api.cdc.messages.row_fields.KINDS_KEPT", 2)
    rows = [{"id": 1}, {"id": 2, "email": "b"}, {"ID": 3}, {"Id": 4, "Email": "d"}, {"id": 5}]
    lines = [maxwell(Change("insert", None, row, 1, at)) for at, row in enumerate(rows, 4)]
    words = ("--table", "shop.orders=default.t:id", "--null-if-missing", "shop.orders.email")
    assert people.ingest("maxwell", people.log("log-1.json", lines), *words) == EXIT_OK
    assert [row["email"] for row in people.rows()] == [None, "b", None, "d", None]


def test_options_name_columns_in_any_case(people: IngestedTable) -> None:
    """Columns that are left out, may be missing, or have a type."""
    lines = [
        envelope("c", None, {"ID": "1", "Odd": 5}, {**MYSQL, "pos": 4}),
        envelope("c", None, {"id": "2", "ODD": 6, "Email": "b"}, {**MYSQL, "pos": 5}),
    ]
    words = ("--table", "shop.orders=default.t:Id", "--ignore-column", "shop.orders.oDD")
    words += ("--null-if-missing", "shop.orders.EMAIL", "--column-type", "shop.orders.iD=text")
    assert people.ingest("debezium", people.log("log-1.json", lines), *words) == EXIT_OK
    assert people.rows() == [person(1, None), person(2, "b")]
