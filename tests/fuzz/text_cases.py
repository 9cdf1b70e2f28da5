"""Manifests, descriptors, messages, files of rows, events of a binary log."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import random
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pymysqlreplication.constants import FIELD_TYPE

from mutation_api.cdc.messages.avro import AvroError, AvroMessageParser, line_part, schema_number
from mutation_api.cdc.messages.canal import CanalFormat
from mutation_api.cdc.messages.debezium import DebeziumFormat
from mutation_api.cdc.messages.events import PositionSource
from mutation_api.cdc.messages.maxwell import MaxwellFormat
from mutation_api.cdc.mysql.row_events import LoggedColumn, RowDecoder
from mutation_api.merge.arrow_change_files import ArrowFiles
from mutation_api.merge.file_rules import RowColumns
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Staged
from mutation_api.table.acid_table import AcidTableSerializer
from mutation_api.transaction.manifest import DeltaManifest, FileKind
from tests.fuzz.damage import damaged_bytes, damaged_json, damaged_text, nested
from tests.support.avro_messages import in_avro
from tests.support.json_messages import CHANGES, canal, debezium, events_of, maxwell, write_log
from tests.unit.cdc.messages.test_avro_messages import Schemas
from tests.unit.merge.files.test_change_files import HEAD, TABLE, TYPED

MANIFEST = DeltaManifest(
    *("d", "t", 7, 5, "ds=x", ("x",), 3, FileKind.DELTA, "w", "a"),
    Staged(Location.parse("file:/w/t/_mutation_7/w/a/f"), "u", ("1",)),
    Location.parse("file:/w/t/ds=x/delta_0000005_0000005_0000/bucket_00003"),
    *(1, 2, 0, 3, 400, 1, 77),
)
SPLIT = {
    "partition_name": "ds=x",
    "location": "file:/w/t/ds=x",
    "bucket_id": 1,
    "files": [
        {
            "name": "base_5/bucket_00001",
            "kind": "base",
            "bucket_id": 1,
            "ids": [0, 5, None],
            "length": None,
            "bytes": 7,
        }
    ],
}


def _json(random: random.Random, text: str) -> str:
    """A text of JSON, damaged as text or as values."""
    if random.random() < 0.05:
        return nested(random, *random.choice((("[", "]"), ('{"a":', "}"))))
    if random.random() < 0.4:
        return damaged_text(random, text).decode(errors="replace")
    try:
        return json.dumps(damaged_json(random, json.loads(text)))
    except RecursionError:
        return text


def _manifest(random: random.Random) -> None:
    DeltaManifest.from_json(_json(random, MANIFEST.to_json()))


def _split(random: random.Random) -> None:
    SnapshotSplit.from_json(_json(random, json.dumps(SPLIT)))


def _descriptor(random: random.Random) -> None:
    """A text cut or changed, or one whose sum fits what it says."""
    text = AcidTableSerializer.encode(TABLE)
    start, version, payload, _ = text.split(":")
    if random.random() < 0.3:
        AcidTableSerializer.decode(damaged_text(random, text).decode(errors="replace"))
        return
    plain = zlib.decompress(base64.urlsafe_b64decode(payload)).decode()
    packed = base64.urlsafe_b64encode(zlib.compress(_json(random, plain).encode(errors="replace"))).decode()
    AcidTableSerializer.decode(f"{start}:{version}:{packed}:{zlib.crc32(packed.encode()):08x}")


def _messages(random: random.Random, form: Any, write: Callable[[Any], str]) -> None:
    """A log of sound messages and damaged ones; what is wrong with one is its problem."""
    lines: list[bytes] = []
    for change in CHANGES:
        key, tab, value = write(change).rpartition("\t")
        damaged = _json(random, value).replace("\n", " ") if random.random() < 0.5 else value
        lines.append(f"{key}{tab}{damaged}".encode(errors="replace"))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        events_of(write_log(Path(folder) / "log", lines), form, PositionSource.AUTO)


def _avro(random: random.Random) -> None:
    schemas = Schemas()
    message = in_avro(debezium(random.choice(CHANGES)).split("\t")[1], schemas.register)
    damaged = damaged_bytes(random, message)
    if schema_number(damaged) in schemas:  # a registry refuses the others
        with contextlib.suppress(AvroError):
            AvroMessageParser(schemas).parsed(line_part(damaged).decode())


def _rows(random: random.Random, name: str, text: str) -> None:
    columns = RowColumns(TYPED, {"operation": "string"}, has_row_ids=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / name
        path.write_bytes(damaged_text(random, text))
        for batch in ArrowFiles(columns).read(Location.given(path), None):
            batch.to_pylist()


ROW = 'insert,1,0,0,1,"a, ""b""",1.25,2024-02-29,x,2024-01-02 03:04:05.678,1.5\n'
CSV = f"{HEAD.strip()},at,ratio\n{ROW * 3}"
JSON = '{"operation":"insert","id":1,"msg":"a","price":1.25,"day":"2024-02-29","ds":"x","ratio":1e3}'


def _binary_log(random: random.Random) -> None:
    columns = [
        LoggedColumn(name, SimpleNamespace(type=code, unsigned=False, **meta), "utf8mb4", labels)
        for name, code, labels, meta in _LOGGED
    ]
    data = (
        bytes.fromhex("0000") + b"\x01\0\0\0" + bytes.fromhex("810DFB38D204D2") + b"\3\0abc" + b"\2\0\0\0xy"
    )
    data += bytes.fromhex("99B2C4A1C4") + b"\x65\0\0\0" + b"\1"
    decoder = RowDecoder("s.t", columns, [column.name for column in columns])
    list(decoder.rows(damaged_bytes(random, data * 3), [b"\xff\xff"]))


_LOGGED: Sequence[tuple[str, int, tuple[str, ...] | None, dict[str, Any]]] = (
    ("i", FIELD_TYPE.LONG, None, {}),
    ("d", FIELD_TYPE.NEWDECIMAL, None, {"precision": 14, "decimals": 4}),
    ("s", FIELD_TYPE.VARCHAR, None, {"max_length": 400}),
    ("b", FIELD_TYPE.BLOB, None, {"length_size": 4}),
    ("at", FIELD_TYPE.DATETIME2, None, {"fsp": 0}),
    ("ts", FIELD_TYPE.TIMESTAMP2, None, {"fsp": 0}),
    ("t", FIELD_TYPE.TINY, None, {}),
)


TEXT_CASES: dict[str, Callable[[random.Random], None]] = {
    "manifest": _manifest,
    "split": _split,
    "descriptor": _descriptor,
    "maxwell": functools.partial(_messages, form=MaxwellFormat(), write=maxwell),
    "canal": functools.partial(_messages, form=CanalFormat(), write=canal),
    "debezium": functools.partial(_messages, form=DebeziumFormat(), write=debezium),
    "avro": _avro,
    "csv": functools.partial(_rows, name="rows.csv", text=CSV),
    "json": functools.partial(_rows, name="rows.json", text=f"{JSON}\n{JSON}\n"),
    "binary-log": _binary_log,
}
