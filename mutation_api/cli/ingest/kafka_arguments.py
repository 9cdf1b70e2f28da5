"""Arguments that name topics of Kafka as the place of a log of messages."""

from __future__ import annotations

import argparse
import os
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from mutation_api.cli.arguments.files import location_from
from mutation_api.errors import ConfigurationError
from mutation_api.inputs.kafka.topics import (
    BEGINNING,
    END,
    REGISTRY_SETTING,
    TIMEOUT_SECONDS_DEFAULT,
    KafkaTopics,
)
from mutation_api.inputs.url_secrets import check_no_secret

__all__ = ["REGISTRY_PASSWORD_VARIABLE", "add_kafka_arguments", "kafka_topics_from", "only_topic"]

REGISTRY_PASSWORD_VARIABLE = "HIVE_MUTATE_SCHEMA_REGISTRY_PASSWORD"

_SECRETS = (
    *("password", "passwd", "passphrase", "pass", "secret", "token", "key.pem", "jaas.config"),
    *("sasl.oauthbearer.config", "basic.auth.user.info"),
)
"""Settings whose names end so, in any case, have secrets in them."""

_DEFAULTS: dict[str, Any] = {
    "topic": [],
    "start": BEGINNING,
    "kafka_conf": [],
    "kafka_conf_file": None,
    "kafka_timeout": TIMEOUT_SECONDS_DEFAULT,
    "spill": None,
    "schema_registry": None,
}
"""The arguments that only go with ``--kafka``, and their defaults."""


def add_kafka_arguments(parser: argparse.ArgumentParser, *, may_be_avro: bool = False) -> None:
    """Declare the arguments that go with ``--kafka``; ``may_be_avro``: whether messages may be in Avro."""
    group = parser.add_argument_group(
        "topics of Kafka",
        "A run reads each partition from the watermark to the end that it had when the run began; the "
        "offsets are committed with the rows. Messages about one key must be in one partition.",
    )
    group.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="a topic that is read; may be repeated, then give --name too",
    )
    group.add_argument(
        "--from",
        dest="start",
        default=BEGINNING,
        type=_start,
        metavar=f"{BEGINNING}|{END}|TIME",
        help="where a table begins that was never read; TIME is that of the first message, such as "
        "2026-11-25T08:00:00Z (default: %(default)s)",
    )
    group.add_argument(
        "--kafka-conf",
        action="append",
        default=[],
        type=_setting,
        metavar="NAME=VALUE",
        help="a setting of librdkafka, such as security.protocol=SASL_SSL; may be repeated",
    )
    group.add_argument(
        "--kafka-conf-file",
        type=Path,
        metavar="FILE",
        help="file of such settings, one a line, for passwords too; # begins a comment",
    )
    group.add_argument(
        "--kafka-timeout",
        type=float,
        default=TIMEOUT_SECONDS_DEFAULT,
        metavar="SECONDS",
        help="how long brokers may stay silent (default: %(default)g)",
    )
    group.add_argument(
        "--spill",
        type=location_from,
        metavar="DIR",
        help="directory of messages until they are applied, such as hdfs:///tmp; all of Spark's machines "
        "must read it (default: the folder for temporary files, for Spark on one machine)",
    )
    if may_be_avro:
        group.add_argument(
            "--schema-registry",
            metavar="URL",
            help="registry that has the schemas of messages in Avro, https://[USER@]HOST[:PORT]; the "
            f"password comes from the environment variable {REGISTRY_PASSWORD_VARIABLE}. Settings in "
            f"--kafka-conf that begin with {REGISTRY_SETTING} are its client's, such as "
            f"{REGISTRY_SETTING}ssl.ca.location=FILE",
        )


def kafka_topics_from(arguments: argparse.Namespace) -> KafkaTopics | None:
    """The topics that the arguments name; None if they name files.

    Raises ConfigurationError: arguments contradict each other, or are not valid.
    """
    if arguments.kafka is None:
        given = [name for name, default in _DEFAULTS.items() if getattr(arguments, name, default) != default]
        if given:
            option = "from" if given[0] == "start" else given[0].replace("_", "-")
            raise ConfigurationError(f"--{option} goes with --kafka, not with --files")
        return None
    if not arguments.topic:
        raise ConfigurationError("--kafka: name what is read with --topic")
    settings = {**_settings_in(arguments.kafka_conf_file), **dict(arguments.kafka_conf)}
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
    """The topic, as the name of the log. Raises ConfigurationError: there are several."""
    if len(topics.topics) > 1:
        raise ConfigurationError(
            "several topics need a --name, by which their watermarks are found also if topics are added"
        )
    return topics.topics[0]


def _start(text: str) -> str | datetime:
    if text in (BEGINNING, END):
        return text
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {BEGINNING}, {END} or a time: {error}") from error
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone: write {text}Z, or {text}+02:00")
    return found


def _registry(text: str | None) -> tuple[str | None, dict[str, str]]:
    """The registry's address without the user, and the setting of user and password.

    Raises ConfigurationError: it has a password, or a user without a password.
    """
    if text is None:
        return None, {}
    for each in text.split(","):
        check_no_secret(
            each,
            what="--schema-registry",
            because="since other users can see a program's arguments: give it in the environment variable "
            f"{REGISTRY_PASSWORD_VARIABLE}",
        )
    parts = urlsplit(text)
    if parts.username is None:
        return text, {}
    password = os.environ.get(REGISTRY_PASSWORD_VARIABLE)
    if password is None:
        raise ConfigurationError(
            f"--schema-registry has a user: give the password in {REGISTRY_PASSWORD_VARIABLE}"
        )
    address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    login = f"{unquote(parts.username)}:{password}"
    return address, {f"{REGISTRY_SETTING}basic.auth.user.info": login}


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (separator and name):
        raise argparse.ArgumentTypeError("it is not NAME=VALUE (it is not shown, since it may be a secret)")
    if _is_secret(name):
        raise argparse.ArgumentTypeError(
            f"{name.strip()} is a secret, and other users can see a program's arguments: give it in "
            "--kafka-conf-file"
        )
    return name, value


def _is_secret(name: str) -> bool:
    return name.strip().lower().replace("_", ".").endswith(_SECRETS)


def _settings_in(path: Path | None) -> dict[str, str]:
    """The settings in a file of properties. Raises ConfigurationError."""
    if path is None:
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--kafka-conf-file {path}: it cannot be read: {error}") from error
    settings = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, separator, value = text.partition("=")
        if not (separator and name.strip()):
            raise ConfigurationError(f"--kafka-conf-file {path}, line {number}: it is not NAME=VALUE")
        settings[name.strip()] = value.strip()
    return settings
