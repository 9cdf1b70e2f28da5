"""What a line holds, in the forms in which tools print messages."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mutation_api.cdc.messages.json_text import MessageParser
from mutation_api.cdc.messages.unwrap import LineError, key_of_struct, message_of
from mutation_api.cli.terminal import EXIT_OK
from tests.support.ingested_table import IngestedTable
from tests.unit.cdc.messages.test_debezium import POSTGRES, envelope

KEY = '{"id":1}'
VALUE = '{"op":"c"}'
WHOLE = ({"id": "1"}, {"op": "c"})


def read(text: str, *, is_row: bool = False) -> tuple[object, object] | None:
    found = message_of(text, MessageParser(), is_row=is_row)
    if found is None:
        return None
    key = json.loads(json.dumps(found.key), parse_int=str) if isinstance(found.key, dict) else found.key
    return ({name: str(each) for name, each in key.items()} if isinstance(key, dict) else key), found.value


@pytest.mark.parametrize(
    "text",
    [
        f"{KEY}\t{VALUE}",
        f"CreateTime:1700000000000\t{KEY}\t{VALUE}",
        f"LogAppendTime:1700000000000\tPartition:0\tOffset:12\t{KEY}\t{VALUE}",
        f"CreateTime:1\tPartition:0\tOffset:12\tNO_HEADERS\t{KEY}\t{VALUE}",
        f"NO_TIMESTAMP\tPartition:0\t__debezium.newkey:x,trace:a b\t{KEY}\t{VALUE}",
        f"NO_HEADERS\t{KEY}\t{VALUE}",
        f"trace:a b\t{KEY}\t{VALUE}",
        f"Struct{{id=1}}\t{VALUE}",
        f"CreateTime:1\tStruct{{id=1}}\t{VALUE}",
        f'{{"key":{KEY},"value":{VALUE}}}',
        json.dumps({"key": KEY, "value": VALUE}),
        json.dumps({"topic": "t", "partition": 0, "offset": 1, "key": KEY, "payload": VALUE}),
        json.dumps({"topic": "t", "partition": 0, "offset": 1, "key": "Struct{id=1}", "payload": VALUE}),
        json.dumps({"topic": "t", "key": KEY, "value": VALUE, "timestamp": 1, "partition": 0, "offset": 3}),
    ],
)
def test_a_key_and_a_message(text: str) -> None:
    """As the console consumer, kcat and rpk print them; the same if messages are rows."""
    assert read(text) == WHOLE
    assert read(text, is_row=True) == WHOLE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (VALUE, (None, {"op": "c"})),
        (f"CreateTime:1\t{VALUE}", (None, {"op": "c"})),
        (f"CreateTime:1\tnull\t{VALUE}", (None, {"op": "c"})),
        (f"null\t{VALUE}", (None, {"op": "c"})),
        (f"Struct{{a=1,b=2}}\t{VALUE}", (None, {"op": "c"})),
        (json.dumps({"key": "plain", "value": VALUE}), (None, {"op": "c"})),
        (f"{KEY}\tnull", ({"id": "1"}, None)),
        (f"{KEY}\tNULL", ({"id": "1"}, None)),
        ("Struct{id=1}\tnull", ({"id": "1"}, None)),
        ("Processed a total of 42 messages", None),
        ("% Reached end of topic erp.shop.orders [0] at offset 7", None),
    ],
)
def test_messages_without_one_of_them(text: str, expected: object) -> None:
    """A key that is not known, a tombstone, and what a tool says when it ends."""
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Struct{before=null,after=Struct{id=1}}",
            "the message is a Struct as a string.*value.converter=org.apache",
        ),
        (f"{KEY}\tStruct{{id=1}}", "the message is a Struct as a string"),
        (json.dumps({"key": None, "value": "Struct{id=1}"}), "the message is a Struct as a string"),
        (
            f"abc\t{VALUE}",
            "the text before the tab is not a JSON key, but 'abc'.*key.converter=org.apache",
        ),
        (f"CreateTime:1\tabc\t{VALUE}", "the text before the tab is not a JSON key"),
        (f"[{VALUE},{VALUE}]", "begins a JSON array; write each of its messages on its own line"),
        ("[", "begins a JSON array"),
        ("{", "is spread over several lines, or cut off; write each on one line: jq -c"),
    ],
)
def test_what_is_known_is_named(text: str, said: str) -> None:
    """With what to do."""
    with pytest.raises(LineError, match=said):
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{KEY}\t",
        f'{{"id":1\t{VALUE}',
        f"{KEY}\t{VALUE}\t{VALUE}",
        f"{KEY}\t{KEY}\t{VALUE}",
        f"{KEY}|{VALUE}",
        f"Offset:1\tOffset:2\t{KEY}\t{VALUE}\t",
        "CreateTime:1",
        "Partition:0\tOffset:1",
    ],
)
def test_other_lines_are_no_message(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError):
        read(text)


def test_structs() -> None:
    """Of one field, whose value is neither an object of Java nor part of another field."""
    assert key_of_struct("Struct{code=a b}") == {"code": "a b"}
    for other in (
        "Struct{}",
        "Struct{a=1,b=2}",
        "Struct{a=Struct{b=1}}",
        "Struct{a=java.nio.Buf}",
        "Struct{a=1",
    ):
        assert key_of_struct(other) is None


@pytest.fixture
def parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine_session: SparkSession | None
) -> IngestedTable:
    return IngestedTable(tmp_path, monkeypatch, {"id": "bigint", "part": "int"}, engine_session)


def test_the_advice_for_a_key_that_is_needed(
    parts: IngestedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    """A delete of a Struct of several fields is refused; with keys as JSON it is applied."""
    row = {"id": 1, "part": 2}
    insert = envelope("c", None, row, {**POSTGRES, "lsn": 1})
    delete = envelope("d", None, None, {**POSTGRES, "lsn": 2})
    words = ("--table", "public.orders=default.t:id,part")
    files = parts.log("log-1.json", [f"Struct{{id=1,part=2}}\t{text}" for text in (insert, delete)])
    assert parts.ingest("debezium", files, *words) != EXIT_OK
    assert "a key that is a JSON object (print.key=true, key.converter=org" in capsys.readouterr().err
    files = parts.log("log-1.json", [f"{json.dumps(row)}\t{text}" for text in (insert, delete)])
    assert parts.ingest("debezium", files, *words) == EXIT_OK
    assert parts.rows() == []


CREATED = json.loads(envelope("c", None, {"id": 1, "part": 2}, {**POSTGRES, "lsn": 1}))
MOVED = json.loads(envelope("c", None, {"id": 2, "part": 3}, {**POSTGRES, "lsn": 2}))
ONE_A_LINE = "".join(f"{json.dumps(each)}\n" for each in (CREATED, MOVED))


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("wrong", "said", "right"),
    [
        (json.dumps([CREATED, MOVED]), "line 1: the line begins a JSON array", ONE_A_LINE),
        (json.dumps([CREATED, MOVED], indent=2), "line 1: the line begins a JSON array", ONE_A_LINE),
        (json.dumps(CREATED, indent=2), "line 1: a message is spread over several lines", ONE_A_LINE),
        ("Struct{before=null}\n", "line 1: the message is a Struct as a string", ONE_A_LINE),
        (f"one\t{ONE_A_LINE}", "line 1: the text before the tab is not a JSON key", ONE_A_LINE),
        (ONE_A_LINE.encode("utf-16"), "is encoded in UTF-16; convert it", ONE_A_LINE),
        (gzip.compress(ONE_A_LINE.encode()), "its name must end in .gz", gzip.compress(ONE_A_LINE.encode())),
        (
            bz2.compress(ONE_A_LINE.encode()),
            "decompress it, or compress it",
            gzip.compress(ONE_A_LINE.encode()),
        ),
    ],
)
def test_the_advice_is_followed(
    parts: IngestedTable,
    capsys: pytest.CaptureFixture[str],
    wrong: str | bytes,
    said: str,
    right: str | bytes,
) -> None:
    """Nothing is applied before; then all is."""
    words = ("--table", "public.orders=default.t:id", "--name", "log")
    path = parts.folder / "log-1.json"
    path.write_bytes(wrong if isinstance(wrong, bytes) else wrong.encode())
    assert parts.ingest("debezium", str(path), *words) != EXIT_OK
    assert said in capsys.readouterr().err
    assert parts.rows() == []
    path = parts.folder / ("log-1.json.gz" if isinstance(right, bytes) else "log-1.json")
    path.write_bytes(right if isinstance(right, bytes) else right.encode())
    assert parts.ingest("debezium", str(path), *words) == EXIT_OK
    assert parts.rows() == [{"id": 1, "part": 2}, {"id": 2, "part": 3}]
