"""Arguments of the commands that ingest logs of JSON messages, from files or from Kafka topics.

The commands differ only in the format.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from mutation_api.cdc.kafka.topics import (
    BEGINNING,
    END,
    REGISTRY_SETTING,
    TIMEOUT_SECONDS_DEFAULT,
    KafkaTopics,
)
from mutation_api.cdc.messages.events import LogOptions, NewSnapshot, PositionSource
from mutation_api.cdc.messages.message_source import MessageSource
from mutation_api.cli.parsers import AnyParser, add_flag, add_repeatable
from mutation_api.cli.table_arguments import listed_names, location_from
from mutation_api.errors import ConfigurationError
from mutation_api.format.printable import check_no_secret
from mutation_api.format.text_values import BinaryEncoding

TABLE_MAP_FORM = "NAME=DB.TABLE[:A,B]"

_FORM = re.compile(r"(?P<source>[^=]+)=(?P<target>[^=:]+)(?::(?P<key>[^=:]+))?")


def table_map(text: str) -> tuple[str, str, tuple[str, ...]]:
    """Parse an argument in TABLE_MAP_FORM into the source's name, the Hive table, and its key columns.

    Raises:
        argparse.ArgumentTypeError: If the string has another form.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {TABLE_MAP_FORM}")
    return found["source"], found["target"], listed_names(found["key"] or "")


REGISTRY_PASSWORD_VARIABLE = "HIVE_MUTATE_SCHEMA_REGISTRY_PASSWORD"

_SECRETS = (
    *("password", "passwd", "passphrase", "pass", "secret", "token", "key.pem", "jaas.config"),
    *("sasl.oauthbearer.config", "basic.auth.user.info"),
    *("access.key", "account.key", "credential", "credentials"),
)
"""Settings whose names end with one of these, in any case, contain secrets."""

_DEFAULTS: dict[str, Any] = {
    "topic": [],
    "start": BEGINNING,
    "kafka_conf": [],
    "kafka_conf_file": None,
    "kafka_timeout": TIMEOUT_SECONDS_DEFAULT,
    "spill": None,
    "schema_registry": None,
}
"""The arguments that require ``--kafka``, and their defaults."""


def add_kafka_arguments(parser: argparse.ArgumentParser, *, may_be_avro: bool = False) -> None:
    """Declare the arguments that require ``--kafka``; ``may_be_avro``: True if messages may be in Avro."""
    group = parser.add_argument_group(
        "Kafka topics",
        "A run reads each partition from the watermark to the end that it had when the run began; the "
        "offsets are committed with the rows. Messages about one key must be in one partition.",
    )
    add_repeatable(group, "--topic", "TOPIC", "topic to read (repeatable; if repeated, --name is required)")
    group.add_argument(
        "--from",
        dest="start",
        default=BEGINNING,
        type=_start,
        metavar=f"{BEGINNING}|{END}|TIME",
        help="where to start reading for a table without a watermark: beginning, end, or the TIME of the "
        "first message, such as 2026-11-25T08:00:00Z (default: %(default)s)",
    )
    add_kafka_settings(group)
    add_spill_argument(group, "messages")
    if may_be_avro:
        group.add_argument(
            "--schema-registry",
            metavar="URL",
            help="schema registry for messages in Avro, https://[USER@]HOST[:PORT]; the password is read "
            f"from the environment variable {REGISTRY_PASSWORD_VARIABLE}. Settings in --kafka-conf that "
            f"begin with {REGISTRY_SETTING} configure its client, such as "
            f"{REGISTRY_SETTING}ssl.ca.location=FILE",
        )


def add_kafka_settings(group: argparse._ArgumentGroup) -> None:
    """Declare the arguments for the settings of Kafka's client."""
    add_repeatable(
        group,
        "--kafka-conf",
        "NAME=VALUE",
        "librdkafka setting, such as security.protocol=SASL_SSL (repeatable)",
        type=setting_parser("--kafka-conf-file"),
    )
    group.add_argument(
        "--kafka-conf-file",
        type=Path,
        metavar="FILE",
        help="file with librdkafka settings, one per line, including passwords; # begins a comment",
    )
    group.add_argument(
        "--kafka-timeout",
        type=float,
        default=TIMEOUT_SECONDS_DEFAULT,
        metavar="SECONDS",
        help="timeout for responses from brokers (default: %(default)g)",
    )


def kafka_settings_from(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the settings of Kafka's client. Raises ConfigurationError if their file is invalid."""
    return {
        **settings_in(arguments.kafka_conf_file, "--kafka-conf-file"),
        **dict(arguments.kafka_conf),
    }


def kafka_topics_from(arguments: argparse.Namespace) -> KafkaTopics | None:
    """Return the topics that the arguments name, or None if they name files.

    Raises:
        ConfigurationError: If arguments contradict each other, or are invalid.
    """
    if arguments.kafka is None:
        given = [name for name, default in _DEFAULTS.items() if getattr(arguments, name, default) != default]
        if given:
            option = "from" if given[0] == "start" else given[0].replace("_", "-")
            raise ConfigurationError(f"--{option} requires --kafka and cannot be used with --files")
        return None
    if not arguments.topic:
        raise ConfigurationError("--kafka requires --topic, which names the topics to read")
    settings = kafka_settings_from(arguments)
    registry, login = _registry(getattr(arguments, "schema_registry", None))
    return KafkaTopics(
        arguments.kafka,
        arguments.topic,
        start=arguments.start,
        settings={**settings, **login},
        timeout_seconds=arguments.kafka_timeout,
        spill_directory=arguments.spill,
        schema_registry=registry,
    )


def only_topic(topics: KafkaTopics) -> str:
    """Return the topic, which is the name of the log. Raises ConfigurationError if there are several."""
    if len(topics.topics) > 1:
        raise ConfigurationError(
            "several topics require --name, so that their watermarks are found even if topics are added"
        )
    return topics.topics[0]


def _start(text: str) -> str | datetime:
    if text in (BEGINNING, END):
        return text
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected {BEGINNING}, {END} or a time: {error}"
        ) from error
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone; write {text}Z or {text}+02:00")
    return found


def _registry(text: str | None) -> tuple[str | None, dict[str, str]]:
    """Return the registry's address without the user, and the setting with user and password.

    Raises:
        ConfigurationError: If the address contains a password, or a user but no password was given.
    """
    if text is None:
        return None, {}
    for each in text.split(","):
        check_no_secret(
            each,
            what="--schema-registry",
            because="since other users can see a program's arguments. Pass it in the environment variable "
            f"{REGISTRY_PASSWORD_VARIABLE}",
        )
    parts = urlsplit(text)
    if parts.username is None:
        return text, {}
    password = os.environ.get(REGISTRY_PASSWORD_VARIABLE)
    if password is None:
        raise ConfigurationError(
            f"--schema-registry contains a user: pass the password in {REGISTRY_PASSWORD_VARIABLE}"
        )
    address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    login = f"{unquote(parts.username)}:{password}"
    return address, {f"{REGISTRY_SETTING}basic.auth.user.info": login}


def setting_parser(file_option: str) -> Callable[[str], tuple[str, str]]:
    """Return a parser of NAME=VALUE for an option, which refuses secrets.

    ``file_option`` is the option for a file that may contain them.
    """

    def setting(text: str) -> tuple[str, str]:
        name, separator, value = text.partition("=")
        if not (separator and name):
            raise argparse.ArgumentTypeError(
                "expected NAME=VALUE (the argument is not shown, since it may be a secret)"
            )
        if _is_secret(name):
            raise argparse.ArgumentTypeError(
                f"{name.strip()} is a secret, and other users can see a program's arguments. Pass it in "
                f"{file_option}"
            )
        return name, value

    return setting


def _is_secret(name: str) -> bool:
    return name.strip().lower().replace("_", ".").replace("-", ".").endswith(_SECRETS)


def settings_in(path: Path | None, option: str) -> dict[str, str]:
    """Return the settings in a properties file that an option names.

    Raises:
        ConfigurationError: If it is invalid.
    """
    if path is None:
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{option} {path}: cannot read the file: {error}") from error
    settings = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, separator, value = text.partition("=")
        if not (separator and name.strip()):
            raise ConfigurationError(f"{option} {path}, line {number}: expected NAME=VALUE")
        settings[name.strip()] = value.strip()
    return settings


Log = TypeVar("Log", bound=MessageSource)


def add_source_schema_argument(parser: AnyParser, source: str) -> None:
    """Declare ``--schema``; ``source`` is the subject of the first sentence of its help."""
    parser.add_argument(
        "--schema",
        choices=["exact", "add"],
        default="exact",
        help=f"add: columns that {source} and a Hive table lacks are added to it first, as by hive-mutate "
        "alter-table, unless the table also has a column that the source lacks; exact: refuse such columns "
        "(default: exact)",
    )


def add_spill_argument(parser: AnyParser, what: str) -> None:
    """Declare ``--spill``."""
    parser.add_argument(
        "--spill",
        type=location_from,
        metavar="DIR",
        help=f"directory for {what} until they are applied, such as hdfs:///tmp; all Spark machines must be "
        "able to read it (default: the directory for temporary files, for Spark on one machine)",
    )


def add_binary_argument(parser: AnyParser) -> None:
    """Declare ``--binary`` for files of separated fields."""
    parser.add_argument(
        "--binary",
        choices=[form.value for form in BinaryEncoding],
        help="encoding of binary columns in the files; required if there are any",
    )


def add_log_arguments(parser: argparse.ArgumentParser, *, may_be_avro: bool = False) -> None:
    """Declare the arguments for the log's location, its tables, and how to read it.

    ``may_be_avro``: True if messages of topics may be in Avro.
    """
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument(
        "--files",
        action="append",
        type=location_from,
        metavar="PATH",
        help="file, or directory of files, with one message per line, compressed if its name ends in .gz or "
        ".zst: a path that all Spark machines can read, or hdfs://…, s3a://… (repeatable)",
    )
    place.add_argument(
        "--kafka",
        metavar="HOST:PORT,…",
        help="Kafka brokers to contact first; --topic names the topics (see below)",
    )
    add_repeatable(
        parser,
        "--table",
        TABLE_MAP_FORM,
        "source table, Hive table to apply its changes to, and key columns (default: the key that the "
        "messages name; repeatable)",
        type=table_map,
    )
    parser.add_argument(
        "--name",
        help="name of the log in the watermarks (default: the first of --files, as an absolute path or as "
        "its location; or the --topic, if there is only one)",
    )
    parser.add_argument(
        "--positions",
        choices=[each.value for each in PositionSource],
        default=PositionSource.AUTO.value,
        help="order of operations: message orders by the positions in the source's log that messages "
        "contain, and line by the numbers in file names, then by line; auto is message if messages have "
        "positions, otherwise line (default: auto). Messages from Kafka are in the order of their "
        "partition unless you choose message",
    )
    add_repeatable(
        parser,
        "--ignore-column",
        "NAME.COLUMN",
        "source column that the Hive table does not have (repeatable)",
    )
    add_repeatable(
        parser,
        "--null-if-missing",
        "NAME.COLUMN",
        "column to set to NULL if a message lacks it, as messages do that are older than the column "
        "(repeatable)",
    )
    add_repeatable(
        parser,
        "--default-if-missing",
        "NAME.COLUMN",
        "column to set to the value of its DEFAULT constraint if a message lacks it, including in "
        "rows that the message updates (repeatable)",
    )
    add_repeatable(
        parser,
        "--trust-key",
        "NAME",
        "table whose source logs every change of the key columns of --table, because they are its "
        "primary key or replica identity, although messages do not show this (repeatable; default: refuse "
        "such updates and deletes)",
    )
    add_flag(
        parser,
        "--accept-schema-changes",
        "skip messages that report a changed table, after you have changed the Hive table accordingly",
    )
    add_flag(
        parser,
        "--apply-truncates",
        "if the source truncated a table, delete the rows of the Hive table that no later operation "
        "writes (default: refuse)",
    )
    parser.add_argument(
        "--new-snapshot",
        choices=[each.value for each in NewSnapshot],
        default=NewSnapshot.REFUSE.value,
        help="treatment of a snapshot that follows changes of the same table, such as the snapshot of a new "
        "connector: replace if it contains all rows, so that other rows are deleted; merge if it contains "
        "only some rows (default: refuse)",
    )
    parser.add_argument(
        "--shard-column",
        metavar="COLUMN",
        help="column of the Hive table that stores the name of the source table; required if NAME has * or "
        "?, as in 'shop_*.orders', and matches several tables. It is part of the key (default: refuse such "
        "a NAME)",
    )
    add_kafka_arguments(parser, may_be_avro=may_be_avro)


def log_from(arguments: argparse.Namespace, source: Callable[..., Log]) -> Log:
    """Return the log that the arguments describe.

    ``source`` creates it from files or topics, a name, and options.

    Raises:
        ConfigurationError: If arguments contradict each other, or are invalid.
    """
    options = LogOptions(
        positions=PositionSource(arguments.positions),
        ignored_columns=frozenset(arguments.ignore_column),
        null_if_missing=frozenset(arguments.null_if_missing),
        default_if_missing=frozenset(arguments.default_if_missing),
        trusted_keys=frozenset(arguments.trust_key),
        accepts_schema_changes=arguments.accept_schema_changes,
        applies_truncates=arguments.apply_truncates,
        new_snapshot=NewSnapshot(arguments.new_snapshot),
        shard_column=None if arguments.shard_column is None else arguments.shard_column.lower(),
    )
    topics = kafka_topics_from(arguments)
    if topics is not None:
        return source(topics, arguments.name or only_topic(topics), options=options)
    files = tuple(arguments.files)
    return source(files, arguments.name or files[0].shown, options=options)


def tables_from(arguments: argparse.Namespace) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the source's name of each table, the Hive table, and its key columns if given."""
    return list(arguments.table)
