"""``hive-mutate ingest debezium``, ``maxwell`` and ``canal``: arguments, and a small log."""

from __future__ import annotations

import argparse
import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.cdc.kafka.topics import KafkaTopics
from mutation_api.cdc.messages.debezium_flat import FlattenedMessages
from mutation_api.cdc.messages.debezium_values import DebeziumValues
from mutation_api.cdc.messages.events import LogOptions, PositionSource
from mutation_api.cli.ingest import canal as ingest_canal
from mutation_api.cli.ingest import command as ingest
from mutation_api.cli.ingest import debezium as ingest_debezium
from mutation_api.cli.ingest import maxwell as ingest_maxwell
from mutation_api.cli.ingest.log_arguments import REGISTRY_PASSWORD_VARIABLE
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_OK
from mutation_api.errors import ConfigurationError
from mutation_api.storage.location import Location
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.support.json_messages import Change, maxwell, write_log


def parsed(module: ModuleType, *texts: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args(texts)


@pytest.mark.parametrize("module", [ingest_debezium, ingest_maxwell, ingest_canal])
def test_defaults(module: ModuleType) -> None:
    """The name of a log is the location of its files; keys are those of the messages."""
    arguments = parsed(module, "--files", "/data/log", "--table", "shop.orders=sales.orders")
    log = module.source_from(arguments)
    assert log.files == (Location.given("/data/log"),)
    assert log.source_id == f"{log.format.name}:/data/log"
    assert log.options == LogOptions()
    assert module.tables_from(arguments) == [("shop.orders", "sales.orders", ())]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("/data//log/", "/data/log"),
        ("/data/../log", "/data/../log"),
        ("file:/data/log", "/data/log"),
        ("file:///data/log/", "/data/log"),
        ("/a b%3A", "/a b%3A"),
        ("hdfs://Cluster/data/log/", "hdfs://cluster/data/log"),
        ("hdfs://node:8020/log", "hdfs://node/log"),
        ("hdfs:///log", "hdfs:///log"),
        ("hdfs:/log", "hdfs:///log"),
        ("s3://bucket/log", "s3a://bucket/log"),
    ],
)
def test_a_log_is_named_by_its_place(given: str, name: str) -> None:
    """In the watermarks: a local one by its plain path, as ever, others by their locations."""
    log = ingest_maxwell.source_from(parsed(ingest_maxwell, "--files", given, "--table", "s.t=s.u"))
    assert log.source_id == f"maxwell:{name}"
    if given.startswith("/"):
        assert name == str(Path(given).absolute())


def test_a_log_is_named_by_its_whole_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Wherever the command was called."""
    monkeypatch.chdir(tmp_path)
    for given in ("log", "./log", "log/"):
        log = ingest_maxwell.source_from(parsed(ingest_maxwell, "--files", given, "--table", "s.t=s.u"))
        assert log.source_id == f"maxwell:{tmp_path}/log"


def test_places_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage; the message shows the form of a location."""
    with pytest.raises(SystemExit):
        parsed(ingest_canal, "--files", "file://otherhost/x", "--table", "s.t=s.u")
    assert "'file://otherhost/x': a local location must not name another host" in capsys.readouterr().err


def test_all_arguments_of_a_log() -> None:
    """Every argument reaches the log, and tables their keys."""
    texts = "--files a --files b --table shop.orders=sales.orders:id,part --table s.t=s.u"
    texts += " --name erp --positions line --ignore-column shop.orders.note"
    texts += " --null-if-missing s.t.new --accept-schema-changes --apply-truncates --trust-key s.t"
    arguments = parsed(ingest_maxwell, *texts.split())
    log = ingest_maxwell.source_from(arguments)
    assert log.files == (Location.given("a"), Location.given("b"))
    assert log.source_id == "maxwell:erp"
    assert log.options == LogOptions(
        positions=PositionSource.LINE,
        ignored_columns=frozenset({"shop.orders.note"}),
        null_if_missing=frozenset({"s.t.new"}),
        trusted_keys=frozenset({"s.t"}),
        accepts_schema_changes=True,
        applies_truncates=True,
    )
    assert ingest_maxwell.tables_from(arguments) == [
        ("shop.orders", "sales.orders", ("id", "part")),
        ("s.t", "s.u", ()),
    ]


def test_how_debezium_writes_values() -> None:
    """What the connector was configured with, and single columns."""
    texts = "--files a --table s.t=s.u --decimals precise --binary hex --times connect"
    texts += " --column-type s.t.n=org.apache.kafka.connect.data.Decimal(2) --unavailable-value gone"
    log = ingest_debezium.source_from(parsed(ingest_debezium, *texts.split()))
    columns = {"s.t.n": "org.apache.kafka.connect.data.Decimal(2)"}
    assert log.values == DebeziumValues(
        decimals="precise", binary="hex", times="connect", column_types=columns, placeholder="gone"
    )


def test_flattened_messages() -> None:
    """With the table of those that do not name it, and the prefix of what was added."""
    words = ("--files", "a", "--table", "s.t=s.u")
    assert ingest_debezium.source_from(parsed(ingest_debezium, *words)).flattened is None
    plain = ingest_debezium.source_from(parsed(ingest_debezium, *words, "--flattened"))
    assert plain.flattened == FlattenedMessages()
    named = (*words, "--flattened", "s.t", "--add-fields-prefix", "m_")
    assert ingest_debezium.source_from(parsed(ingest_debezium, *named)).flattened == FlattenedMessages(
        table="s.t", prefix="m_"
    )
    with pytest.raises(ConfigurationError, match="requires --flattened"):
        ingest_debezium.source_from(parsed(ingest_debezium, *words, "--add-fields-prefix", "m_"))


@pytest.mark.parametrize("text", ["shop.orders", "=a.b", "a.b=c.d:", "a.b=c.d=e", "a.b=c.d:e:f"])
def test_table_maps_that_are_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong mapping ends the command as wrong usage, and shows the form."""
    with pytest.raises(SystemExit):
        parsed(ingest_canal, "--files", "a", "--table", text)
    assert "NAME=DB.TABLE" in capsys.readouterr().err


def test_semantic_types_that_are_none() -> None:
    """An unknown type is refused; the message names the known ones."""
    arguments = parsed(
        ingest_debezium, "--files", "a", "--table", "s.t=s.u", "--column-type", "s.t.c=io.debezium.Odd"
    )
    with pytest.raises(ConfigurationError, match=r"s\.t\.c.*io\.debezium\.Odd.*MicroTimestamp"):
        ingest_debezium.source_from(arguments)


def test_a_small_log_is_applied_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command, which says so; what was applied is not applied again."""
    made = InMemoryMetastore(tmp_path / "warehouse", capabilities=HIVE_4_1)
    columns = (ColumnInfo("id", "bigint"), ColumnInfo("note", "string"))
    create_acid_table(made, "default.t", columns, clustered_by=["id"], num_buckets=1)
    monkeypatch.setattr(ingest, "metastore_from", lambda arguments: contextlib.nullcontext(made))
    row = {"id": 1, "note": "a"}
    changes = [Change("insert", None, row, 1, 4), Change("update", row, {**row, "note": "b"}, 1, 5)]
    log = write_log(tmp_path / "log", [maxwell(change) for change in changes])
    words = ("ingest", "maxwell", "--files", str(log), "--table", "shop.orders=default.t", "--json")
    assert main([*words, "--metastore", "thrift://n:1", "--quiet"]) == EXIT_OK
    report = json.loads(capsys.readouterr().out)
    assert (report["engine"], report["tables"][0]["inserted"]) == ("local", 1)
    assert main([*words, "--metastore", "thrift://n:1", "--quiet"]) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["position"] is None


KAFKA = ("--kafka", "b1:9092,b2:9092", "--table", "s.t=s.u")


def test_topics_of_kafka(tmp_path: Path) -> None:
    """Settings of the file, then those of the command; the only topic is the name."""
    file = tmp_path / "client.properties"
    file.write_text("# the login\nsasl.password = a=b\nclient.id=x\n\n", encoding="utf-8")
    words = ("--topic", "erp", "--kafka-conf", "client.id=y", "--kafka-conf-file", str(file))
    arguments = parsed(ingest_maxwell, *KAFKA, *words, "--from", "2026-11-25T08:00:00+01:00")
    source = ingest_maxwell.source_from(arguments)
    assert source.source_id == "maxwell:erp"
    topics = source.files
    assert isinstance(topics, KafkaTopics)
    assert (topics.servers, topics.topics) == ("b1:9092,b2:9092", ("erp",))
    assert topics.settings == {"sasl.password": "a=b", "client.id": "y"}
    assert topics.start == datetime(2026, 11, 25, 7, tzinfo=UTC)
    assert source.byte_count() == 0
    several = parsed(ingest_debezium, *KAFKA, "--topic", "b", "--topic", "a", "--name", "n", "--from", "end")
    source = ingest_debezium.source_from(several)
    assert (source.source_id, source.files.topics, source.files.start) == ("debezium:n", ("a", "b"), "end")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (KAFKA, "--kafka requires --topic"),
        ((*KAFKA, "--topic", "a", "--topic", "b"), "several topics require --name"),
        ((*KAFKA, "--topic", "a", "--topic", "a"), "topics=a, a: name each topic once"),
        (
            ("--files", "x", "--table", "s.t=s.u", "--topic", "a"),
            "--topic requires --kafka and cannot be used with --files",
        ),
        (("--files", "x", "--table", "s.t=s.u", "--from", "end"), "--from requires --kafka"),
        ((*KAFKA, "--topic", "a", "--kafka-conf-file", "/no/such"), "/no/such: cannot read the file"),
    ],
)
def test_arguments_of_kafka_that_do_not_fit(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ingest_maxwell.source_from(parsed(ingest_maxwell, *words))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "yesterday"), "expected beginning, end or a time"),
        (("--from", "2026-11-25T08:00:00"), "has no time zone"),
        (("--kafka-conf", "client.id"), "expected NAME=VALUE"),
        (("--kafka-conf", "sasl.password=x"), "is a secret, and other users can see"),
        (("--kafka-conf", "Sasl.Password =x"), "is a secret, and other users can see"),
        (("--kafka-conf", "a.passphrase=x"), "is a secret, and other users can see"),
        (("--files", "x"), "not allowed with argument"),
    ],
)
def test_wrong_usage_of_kafka(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(ingest_maxwell, *KAFKA, "--topic", "a", *words)
    assert said in capsys.readouterr().err


def test_a_damaged_file_of_settings(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=x\nwhat\n", encoding="utf-8")
    arguments = parsed(ingest_maxwell, *KAFKA, "--topic", "a", "--kafka-conf-file", str(file))
    with pytest.raises(ConfigurationError, match="line 2: expected NAME=VALUE"):
        ingest_maxwell.source_from(arguments)


def test_a_schema_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """User and password are the client's setting, others come with those of Kafka."""
    monkeypatch.setenv(REGISTRY_PASSWORD_VARIABLE, "se:cret@")
    words = ("--topic", "a", "--schema-registry", "https://the%20reader@r.example:8081/x,https://s.example")
    setting = ("--kafka-conf", "schema.registry.ssl.ca.location=/ca.pem", "--kafka-conf", "client.id=y")
    topics = ingest_debezium.source_from(parsed(ingest_debezium, *KAFKA, *words, *setting)).files
    assert topics.schema_registry == "https://r.example:8081/x,https://s.example"
    assert topics.settings == {"client.id": "y"}
    login = {"basic.auth.user.info": "the reader:se:cret@", "ssl.ca.location": "/ca.pem"}
    assert topics.registry_settings == login


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            (*KAFKA, "--topic", "a", "--schema-registry", "http://u:p@r"),
            "must not contain a password.*HIVE_MUTATE_SCHEMA_REGISTRY_PASSWORD",
        ),
        (
            (*KAFKA, "--topic", "a", "--schema-registry", "http://u@r"),
            "contains a user: pass the password in HIVE_",
        ),
        (
            (*KAFKA, "--topic", "a", "--kafka-conf", "schema.registry.timeout=3"),
            "schema.registry.timeout: pass the address of the registry in its own argument",
        ),
        (
            (
                *KAFKA,
                "--topic",
                "a",
                "--schema-registry",
                "http://r",
                "--kafka-conf",
                "schema.registry.url=x",
            ),
            "schema.registry.url: pass the address of the registry in its own argument",
        ),
        (
            ("--files", "x", "--table", "s.t=s.u", "--schema-registry", "http://r"),
            "--schema-registry requires --kafka",
        ),
    ],
)
def test_a_schema_registry_that_does_not_fit(
    words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REGISTRY_PASSWORD_VARIABLE, raising=False)
    with pytest.raises(ConfigurationError, match=said):
        ingest_debezium.source_from(parsed(ingest_debezium, *words))
