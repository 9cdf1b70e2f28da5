"""What stands for a value that was not logged is never stored as a value."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from mutation_api.cdc.messages.debezium import DebeziumSource
from mutation_api.cdc.messages.debezium_values import DebeziumValues
from mutation_api.cdc.messages.events import Unlogged
from mutation_api.cdc.source import SourceTable
from mutation_api.errors import ConfigurationError, RecordValueError
from tests.support.json_messages import in_order, small_table, write_log
from tests.support.message_logs import MessageLogs, debezium_message
from tests.unit.cdc.messages.test_debezium import POSTGRES, envelope

P = "__debezium_unavailable_value"
OWN = "nicht geloggt é"
UUID = str(uuid.UUID(bytes=hashlib.md5(P.encode(), usedforsecurity=False).digest(), version=3))


def forms(placeholder: str) -> list[Any]:
    """The forms of a placeholder, as Debezium's classes make them."""
    data = placeholder.encode()
    name = hashlib.md5(data, usedforsecurity=False).digest()
    signed = [byte - 256 if byte > 127 else byte for byte in data]
    encoded = base64.b64encode(data).decode()
    return [
        placeholder,
        encoded,
        base64.urlsafe_b64encode(data).decode(),
        data.hex(),
        [placeholder],
        [encoded],
        [data.hex()],
        [str(uuid.UUID(bytes=name, version=3))],
        signed,
        {placeholder: placeholder},
        json.dumps({placeholder: placeholder}, separators=(",", ":"), ensure_ascii=False),
        {"wkb": encoded, "srid": None},
        {"scale": 2, "value": encoded},
    ]


CASES = [
    (P, value, hive_type, binary)
    for value in forms(P)
    for hive_type, binary in (("string", None), ("binary", "hex"), ("binary", "base64-url-safe"))
    if isinstance(value, str) or hive_type == "string"
] + [(OWN, value, "string", None) for value in forms(OWN)]


def read(folder: Path, values: DebeziumValues, hive_type: str, *lines: str) -> list[Any]:
    table = small_table(("id", "bigint"), ("tags", hive_type))
    log = DebeziumSource(write_log(folder, lines), "test", values=values)
    (found,) = log.read_local([SourceTable("public.orders", table, ("id",))], {}).tables
    return in_order(found)


@pytest.mark.parametrize(("placeholder", "value", "hive_type", "binary"), CASES)
def test_every_form_is_refused(
    tmp_path: Path, placeholder: str, value: Any, hive_type: str, binary: str | None
) -> None:
    """Whatever the type and the way in which bytes are written; the same column with values is read."""
    values = DebeziumValues(placeholder=placeholder, binary=binary)
    row = {"id": 1, "tags": value}
    line = envelope("u", row, row, POSTGRES)
    with pytest.raises(
        RecordValueError, match=r"line 1, field tags: .* was not logged.*REPLICA IDENTITY FULL"
    ):
        read(tmp_path, values, hive_type, line)
    if hive_type == "string":
        other = [value, "x"] if isinstance(value, str) else "x"
        fine = {**row, "tags": json.dumps(other)}
        assert read(tmp_path, values, hive_type, envelope("c", None, fine, POSTGRES))[0][2] == json.dumps(
            other
        )


def test_the_way_on(tmp_path: Path) -> None:
    """A new snapshot of a table with REPLICA IDENTITY FULL, read under another name, has all values."""
    values = DebeziumValues()
    old = envelope("u", None, {"id": 1, "tags": [P]}, POSTGRES)
    with pytest.raises(RecordValueError, match="another source name"):
        read(tmp_path / "old", values, "string", old)
    row = {"id": 1, "tags": ["a"]}
    snapshot = envelope("r", None, row, {**POSTGRES, "snapshot": "true"})
    update = envelope("u", row, {"id": 1, "tags": ["a", "b"]}, {**POSTGRES, "lsn": 24023130})
    assert read(tmp_path / "new", values, "string", snapshot, update) == [
        ("insert", 1, '["a"]'),
        ("update", 1, '["a","b"]'),
    ]


@pytest.mark.parametrize("value", [["__debezium_unavailable_value"], "__debezium_unavailable_value"])
def test_a_command_refuses_it_with_a_way_on(logs: MessageLogs, value: Any) -> None:
    """Nothing is applied; a log with whole rows is."""
    logs.write("log-1.json", debezium_message("c", 1, "a"), debezium_message("u", 2, value, pos=5))
    assert "REPLICA IDENTITY FULL" in logs.refused("debezium")
    assert logs.rows() == {}
    logs.write("log-1.json", debezium_message("r", 1, "a"), debezium_message("r", 2, "b"))
    logs.run("debezium", "--name", "whole")
    assert logs.rows() == {1: "a", 2: "b"}


def test_a_key_is_never_a_placeholder(tmp_path: Path) -> None:
    """Not even that of a delete."""
    table = small_table(("id", "string"))
    log = DebeziumSource(write_log(tmp_path, [envelope("d", {"id": P}, None, POSTGRES)]), "test")
    (found,) = log.read_local([SourceTable("public.orders", table, ("id",))], {}).tables
    with pytest.raises(RecordValueError, match=r"field id: .* was not logged"):
        in_order(found)


def test_a_placeholder_of_bytes() -> None:
    """Debezium reads what follows hex: as bytes; what is not valid is refused."""
    assert "YWI=" in Unlogged("hex:6162").texts.to_pylist()
    assert "[97,98]" in Unlogged("hex:6162").texts.to_pylist()
    for wrong in ("", "hex:", "hex:6"):
        with pytest.raises(ConfigurationError, match="unavailable value: got"):
            DebeziumValues(placeholder=wrong)
