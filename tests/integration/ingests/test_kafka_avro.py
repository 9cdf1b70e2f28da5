"""Debezium's messages in Avro, in topics of a real Kafka, with their schemas in a real registry.

The messages are those that a real connector wrote (``tests/golden/debezium``), once in JSON and once in Avro.
"""

from __future__ import annotations

import argparse
import base64
import http.server
import itertools
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from judges.hive.judge import HiveJudge
from judges.kafka import Kafka
from judges.schema_registry import SchemaRegistry
from metastore_client.model import ColumnInfo
from metastore_client.remote.thrift_client import open_client
from mutation_api import LocalOptions
from mutation_api.cdc import DebeziumSource, KafkaTopics, LogOptions, TableMapping, ingest
from mutation_api.cdc.kafka import registry as registry_module
from mutation_api.cli.ingest import debezium as command
from mutation_api.cli.ingest.log_arguments import REGISTRY_PASSWORD_VARIABLE
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK
from mutation_api.errors import ConnectionFailedError, InputFormatError
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.support.avro_messages import framed, in_avro
from tests.support.kafka_messages import ORDERS, debezium, read, read_rows, rows_of
from tests.support.recorded_messages import Recorded, recorded_messages

pytestmark = pytest.mark.slow

LONG = pytest.mark.long
PATIENT_SECONDS = 120.0
"""No broker of a test is silent for so long."""
TLS_FILES = Path(__file__).parents[2] / "golden" / "tls"

COLUMNS = (
    ("id", "bigint"),
    ("small", "smallint"),
    ("amount", "int"),
    ("big", "bigint"),
    ("price", "decimal(12,4)"),
    ("wide", "decimal(38,10)"),
    ("loose", "decimal(20,4)"),
    ("single", "float"),
    ("double", "double"),
    ("is_open", "boolean"),
    ("note", "string"),
    ("code", "varchar(10)"),
    ("fixed", "char(4)"),
    ("photo", "binary"),
    ("day", "date"),
    ("placed", "timestamp"),
    ("placed_ms", "string"),
    ("seen", "timestamp"),
    ("clock", "string"),
    ("tag", "string"),
    ("extra", "string"),
    ("mood", "string"),
    ("words", "string"),
    ("bits", "int"),
    ("flag", "boolean"),
    ("at", "string"),
    ("state", "string"),
    ("order_no", "int"),
    ("later", "decimal(5,2)"),
)
"""Of the recorded table ``public.orders``. ``order-no`` has the name that Avro allows, and ``later``
was added between two messages.
"""
OPTIONS = LogOptions(null_if_missing=frozenset({"public.orders.later"}))


def registered(registry: SchemaRegistry, topic: str, part: str) -> Callable[[str], int]:
    """Registers schemas under the subject that converters use."""
    return lambda schema: registry.register(f"{topic}-{part}", schema)


def send_recorded(
    kafka: Kafka, registry: SchemaRegistry | None, topic: str, messages: list[Recorded]
) -> None:
    """Write messages in Avro, or without a registry in JSON."""
    producer = kafka.producer()
    for each in messages:
        parts: list[bytes | str | None] = []
        for name, part in (("key", each.key), ("value", each.value)):
            if part is None or registry is None:
                parts.append(None if part is None else part.json)
            else:
                parts.append(part.in_avro(registered(registry, topic, name)))
        key, value = parts
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0


def source_of(kafka: Kafka, topic: str, registry: str | None, **options: Any) -> DebeziumSource:
    log = options.pop("log", LogOptions())
    topics = KafkaTopics(
        kafka.servers, topic, schema_registry=registry, **{"timeout_seconds": PATIENT_SECONDS, **options}
    )
    return DebeziumSource(topics, "erp", options=log)


class Recording:
    """The recorded messages in two topics, in Avro and in JSON, and a table of Hive that follows each."""

    def __init__(
        self, kafka: Kafka, registry: SchemaRegistry, topic: str, judge: HiveJudge, database: str
    ) -> None:
        self.kafka = kafka
        self.registry = registry
        self.judge = judge
        self.topics = {"avro": topic, "json": f"{topic}.json"}
        self.tables = {kind: f"{database}.{kind}" for kind in self.topics}
        columns = [ColumnInfo(*each) for each in COLUMNS]
        with open_client(judge.uri) as metastore:
            for kind, name in self.topics.items():
                kafka.create_topic(name)
                create_acid_table(metastore, self.tables[kind], columns, clustered_by=["id"], num_buckets=2)

    def send(self, messages: list[Recorded]) -> None:
        """Write some in both topics."""
        send_recorded(self.kafka, self.registry, self.topics["avro"], messages)
        send_recorded(self.kafka, None, self.topics["json"], messages)

    def ingest(self, kind: str, **engine: Any) -> None:
        registry = self.registry.url if kind == "avro" else None
        source = source_of(self.kafka, self.topics[kind], registry, log=OPTIONS)
        with open_client(self.judge.uri) as metastore:
            ingest(metastore, [TableMapping("public.orders", self.tables[kind])], source, **engine)

    def command(self) -> int:
        """The command that follows the topic in Avro."""
        words = ["ingest", "debezium", "--kafka", self.kafka.servers, "--topic", self.topics["avro"]]
        words += ["--schema-registry", self.registry.url, "--name", "erp", "--engine", "local", "--json"]
        words += ["--null-if-missing", "public.orders.later", "--metastore", self.judge.uri]
        return main([*words, "--table", f"public.orders={self.tables['avro']}"])

    def rows(self) -> list[dict[str, Any]]:
        """What Hive's SQL reads of the one, which is what it reads of the other."""
        found = {
            kind: sorted(self.judge.sql(f"SELECT * FROM {table}")) for kind, table in self.tables.items()
        }
        assert found["avro"] == found["json"]
        return [dict(zip([name for name, _ in COLUMNS], row, strict=True)) for row in found["avro"]]


@pytest.fixture
def recording(
    kafka: Kafka, schema_registry: SchemaRegistry, topic: str, hive_line: HiveJudge, line_database: str
) -> Recording:
    return Recording(kafka, schema_registry, topic, hive_line, line_database)


def check_rows(rows: list[dict[str, Any]]) -> None:
    """What PostgreSQL had at the end."""
    assert [row["id"] for row in rows] == [1, 2, 5, 6]
    first, second, _, last = rows
    assert (first["big"], first["note"], first["price"]) == (2**63 - 1, "new", "-12345678.9012")
    assert (first["wide"], first["loose"]) == ("1234567890123456789012345678.0123456789", "3.14")
    assert (first["placed"], first["placed_ms"]) == (
        "2024-02-29 23:59:59.123456",
        "1969-12-31 23:59:59.999000",
    )
    assert (second["big"], second["photo"]) == (-(2**63), None)
    assert (last["double"], last["later"], last["order_no"]) == (1e22, "-0.01", 7)


@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_topics_in_avro_and_in_json_give_one_table(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one by the command, the other from Python; a column is added between two messages."""
    recording.send(recorded_messages("postgres"))
    assert recording.command() == EXIT_OK
    capsys.readouterr()
    recording.ingest("json", local=LocalOptions())
    check_rows(recording.rows())


@LONG
@pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)
def test_message_by_message_by_both_engines(recording: Recording, spark: SparkSession) -> None:
    """In turn; Spark's tasks read Avro, too."""
    messages = recorded_messages("postgres")
    engines: list[dict[str, Any]] = [{"local": LocalOptions()}, {"spark": spark}]
    for number, start in enumerate(range(0, len(messages), 8)):
        recording.send(messages[start : start + 8])
        recording.ingest("avro", **engines[number % 2])
        recording.ingest("json", local=LocalOptions())
        recording.rows()
    check_rows(recording.rows())


ROW = {
    "type": "struct",
    "name": "erp.shop.orders.Value",
    "optional": True,
    "fields": [{"type": "int32", "field": "id"}, {"type": "string", "optional": True, "field": "note"}],
}
SOURCE = {
    "type": "struct",
    "name": "io.debezium.connector.mysql.Source",
    "fields": [
        {"type": "string", "field": "db"},
        {"type": "string", "field": "table"},
        {"type": "string", "field": "file"},
        {"type": "int64", "field": "pos"},
        {"type": "int32", "field": "row"},
    ],
}
ENVELOPE = {
    "type": "struct",
    "name": "erp.shop.orders.Envelope",
    "fields": [
        {**ROW, "field": "before"},
        {**ROW, "field": "after"},
        {**SOURCE, "field": "source"},
        {"type": "string", "field": "op"},
    ],
}
KEY = {"type": "struct", "name": "erp.shop.orders.Key", "fields": [{"type": "int32", "field": "id"}]}


def small(
    registry: SchemaRegistry, topic: str, op: str, identifier: int, note: str | None = None
) -> list[tuple[bytes | None, bytes | None]]:
    """A change of a small row as Debezium sends it."""
    sent: list[tuple[bytes | None, bytes | None]] = []
    for key, value in debezium(op, identifier, note):
        assert key is not None
        found = in_avro(
            json.dumps({"schema": KEY, "payload": json.loads(key)}), registered(registry, topic, "key")
        )
        if value is None:
            sent.append((found, None))
        else:
            message = json.dumps({"schema": ENVELOPE, "payload": json.loads(value)})
            sent.append((found, in_avro(message, registered(registry, topic, "value"))))
    return sent


def send(kafka: Kafka, topic: str, messages: list[tuple[bytes | None, bytes | None]]) -> None:
    producer = kafka.producer()
    for key, value in messages:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0


@LONG
def test_what_the_registry_does_not_have_is_refused_by_its_place(
    kafka: Kafka, schema_registry: SchemaRegistry, topic: str
) -> None:
    """Other messages of the topic, such as in JSON, are read; tombstones are none."""
    kafka.create_topic(topic)
    sent = [*small(schema_registry, topic, "c", 1, "a"), *small(schema_registry, topic, "d", 1, "a")]
    in_json = [(key.encode(), value and value.encode()) for key, value in debezium("c", 2, "b") if key]
    send(kafka, topic, [*sent, *in_json])
    source = source_of(kafka, topic, schema_registry.url)
    first = read(source)
    assert rows_of(first) == [("delete", 1, None), ("insert", 2, "b")]
    proto = schema_registry.register(
        f"{topic}-other", 'syntax = "proto3"; message A { string b = 1; }', kind="PROTOBUF"
    )
    union = {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "int", "string"]}]}
    odd = schema_registry.register(f"{topic}-odd", json.dumps(union))
    text = schema_registry.register(f"{topic}-text", '"string"')
    value = sent[0][1] or b""
    refused = (
        (
            b"\0\0\x0f\x42\x40" + value[5:],
            "did not return schema 1000000.*Check that this is the registry of the connector",
        ),
        (
            b"\0" + proto.to_bytes(4) + b"\0x",
            f"schema {proto} of the registry .*, which is a schema for PROTOBUF",
        ),
        (
            framed(odd, union, {"x": 1}),
            f"schema {odd} of the registry.*field x is a union of null, int, string",
        ),
        (
            framed(text, "string", "a"),
            f"schema {text}, with which the message is written, is not a record schema",
        ),
        (b"\0\0\0", "the message is cut off: it has 3 bytes"),
        (value[:-2], "but it was not written with this schema: "),
        (b"\xff\xfe", "the message is not JSON in UTF-8"),
    )
    for number, (message, said) in enumerate(refused):
        other = f"{topic}.{number}"
        kafka.create_topic(other)
        send(kafka, other, [(None, value), (None, message)])
        where = f"topic {other}, partition 0, offset 1: "
        with pytest.raises(InputFormatError, match=f"{where}.*{said}"):
            read(source_of(kafka, other, schema_registry.url))
    with pytest.raises(InputFormatError, match=r"offset 0: .*name the registry \(--schema-registry"):
        read(source_of(kafka, topic, None))


@LONG
def test_schemas_that_refer_to_others_and_keys_that_are_no_records(
    kafka: Kafka, schema_registry: SchemaRegistry, topic: str
) -> None:
    """The row's schema is registered by itself; a key that is a text is left out, as one of JSON is."""
    kafka.create_topic(topic)
    ((_, message),) = small(schema_registry, topic, "c", 1, "a")
    assert message is not None
    row = {
        "type": "record",
        "name": "Value",
        "namespace": "erp.shop.orders",
        "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": ["null", "string"]}],
    }
    schema_registry.register(f"{topic}-row", json.dumps(row))
    optional = ["null", "erp.shop.orders.Value"]
    place = [{"name": each["field"], "type": _avro(each["type"])} for each in SOURCE["fields"]]
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": "erp.shop.orders",
        "fields": [
            {"name": "before", "type": optional},
            {"name": "after", "type": optional},
            {"name": "source", "type": {"type": "record", "name": "S", "fields": place}},
            {"name": "op", "type": "string"},
        ],
    }
    reference = {"name": "erp.shop.orders.Value", "subject": f"{topic}-row", "version": 1}
    number = schema_registry.register(f"{topic}-value", json.dumps(envelope), references=[reference])
    key = framed(schema_registry.register(f"{topic}-text", '"string"'), "string", "k")
    send(kafka, topic, [(key, b"\0" + number.to_bytes(4) + message[5:])])
    source = source_of(kafka, topic, schema_registry.url)
    found = read(source, tables=[replace(ORDERS, key=("id",))])
    assert rows_of(found) == [("insert", 1, "a")]


def _avro(kind: object) -> str:
    return {"int32": "int", "int64": "long"}.get(str(kind), str(kind))


class Front(http.server.ThreadingHTTPServer):
    """Stands before a registry: asks for a password, or answers 503 for a while."""

    def __init__(self, registry: SchemaRegistry) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = registry.url
        self.login: str | None = None
        self.busy = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Front

    def do_GET(self) -> None:
        status, content = 503, b""
        given = self.headers.get("Authorization", "")
        if self.server.busy:
            self.server.busy -= 1
        elif self.server.login and given != "Basic " + base64.b64encode(self.server.login.encode()).decode():
            status, content = 401, b'{"error_code": 40101, "message": "Unauthorized"}'
        else:
            try:
                with urllib.request.urlopen(self.server.behind + self.path) as answer:
                    status, content = answer.status, answer.read()
            except urllib.error.HTTPError as error:
                status, content = error.code, error.read()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def front(schema_registry: SchemaRegistry) -> Iterator[Front]:
    with Front(schema_registry) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@LONG
def test_a_registry_that_is_busy_gone_or_wants_a_password(
    kafka: Kafka,
    schema_registry: SchemaRegistry,
    topic: str,
    front: Front,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kafka.create_topic(topic)
    send(kafka, topic, small(schema_registry, topic, "c", 1, "a"))
    front.busy = 2
    assert read_rows(source_of(kafka, topic, front.url)) == [("insert", 1, "a")]
    front.busy = 1000
    where = f"topic {topic}, partition 0, offset 0: the schema registry {front.url} "
    gone = source_of(kafka, topic, "http://127.0.0.1:1")
    with monkeypatch.context() as patch:
        # The registry's time: it is over after the first attempt.
        late = SimpleNamespace(monotonic=itertools.count(0, 1000).__next__)
        patch.setattr(registry_module, "time", late)
        with pytest.raises(ConnectionFailedError, match=f"{where}did not return schema"):
            read(source_of(kafka, topic, front.url))
        front.busy = 0
        said = r"did not return schema .* for 120 s \(last error: ConnectErr"
        with pytest.raises(ConnectionFailedError, match=said):
            read(gone)
    front.login = "reader:se:cret"
    with pytest.raises(ConnectionFailedError, match=f"{where}.*401.*{REGISTRY_PASSWORD_VARIABLE}"):
        read(source_of(kafka, topic, front.url))
    login = {"schema.registry.basic.auth.user.info": "reader:se:cret"}
    assert read_rows(source_of(kafka, topic, front.url, settings=login)) == [("insert", 1, "a")]
    words = ["ingest", "debezium", "--kafka", kafka.servers, "--topic", topic, "--table", "shop.orders=x.y"]
    words += ["--schema-registry", front.url.replace("//", "//reader@")]
    assert main([*words, "--metastore", "thrift://127.0.0.1:1"]) == EXIT_FAILED
    assert f"pass the password in {REGISTRY_PASSWORD_VARIABLE}" in capsys.readouterr().err
    monkeypatch.setenv(REGISTRY_PASSWORD_VARIABLE, "se:cret")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert read_rows(command.source_from(parser.parse_args(words[2:]))) == [("insert", 1, "a")]


@LONG
def test_a_registry_that_speaks_tls(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    port = SchemaRegistry.free_tls_port()
    options = {
        "quarkus.http.ssl-port": port,
        "quarkus.http.ssl.certificate.files": TLS_FILES / "server.pem",
        "quarkus.http.ssl.certificate.key-files": TLS_FILES / "server.key",
    }
    kafka.create_topic(topic)
    with SchemaRegistry(tmp_path / "registry", options=options, ca=TLS_FILES / "ca.pem") as registry:
        send(kafka, topic, small(registry, topic, "c", 1, "a"))
        trusted = {"schema.registry.ssl.ca.location": str(TLS_FILES / "ca.pem")}
        assert read_rows(source_of(kafka, topic, registry.url, settings=trusted)) == [("insert", 1, "a")]
        other = {"schema.registry.ssl.ca.location": str(TLS_FILES / "other_ca.pem")}
        with pytest.raises(ConnectionFailedError, match="certificate verify failed"):
            read(source_of(kafka, topic, registry.url, settings=other, timeout_seconds=20))
