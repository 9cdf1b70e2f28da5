"""Arguments of the commands that ingest logs of JSON messages; only the formats differ."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from mutation_api.cli.arguments.files import location_from
from mutation_api.cli.ingest.kafka_arguments import add_kafka_arguments, kafka_topics_from, only_topic
from mutation_api.cli.ingest.table_map import TABLE_MAP_FORM, table_map
from mutation_api.inputs.messages.log_options import LogOptions, NewSnapshot, Positions
from mutation_api.inputs.messages.message_source import MessageSource

__all__ = ["add_log_arguments", "log_from", "tables_from"]

Log = TypeVar("Log", bound=MessageSource)


def add_log_arguments(parser: argparse.ArgumentParser, *, may_be_avro: bool = False) -> None:
    """Declare the arguments for the log's location, its tables, and how it is read.

    ``may_be_avro``: whether messages of topics may be in Avro.
    """
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument(
        "--files",
        action="append",
        type=location_from,
        metavar="PATH",
        help="file, or folder of files, with one message a line, compressed if its name ends in .gz or .zst: "
        "a path that all of Spark's machines can read, or hdfs://…, s3a://…; may be repeated",
    )
    place.add_argument(
        "--kafka",
        metavar="HOST:PORT,…",
        help="brokers of Kafka to ask first; --topic names what is read (see below)",
    )
    parser.add_argument(
        "--table",
        required=True,
        action="append",
        type=table_map,
        metavar=TABLE_MAP_FORM,
        help="table of the source, the table that follows it, and its key columns (default: those that the "
        "messages name); may be repeated",
    )
    parser.add_argument(
        "--name",
        help="name of the log in the watermarks (default: the first of --files, as an absolute path or "
        "as its location; or the --topic, if there is only one)",
    )
    parser.add_argument(
        "--positions",
        choices=[each.value for each in Positions],
        default=Positions.AUTO.value,
        help="order of operations: by their positions in the source's log, given in the messages; by the "
        "numbers in the names of files, and lines; or by the first if messages have it (default: auto). "
        "Messages of Kafka are in the order of their partition unless you say message",
    )
    parser.add_argument(
        "--ignore-column",
        action="append",
        default=[],
        metavar="NAME.COLUMN",
        help="a column of the source's table that the Hive table does not have; may be repeated",
    )
    parser.add_argument(
        "--null-if-missing",
        action="append",
        default=[],
        metavar="NAME.COLUMN",
        help="a column that is NULL in messages that lack it, such as those from before it was added; may be "
        "repeated",
    )
    parser.add_argument(
        "--default-if-missing",
        action="append",
        default=[],
        metavar="NAME.COLUMN",
        help="a column that has the value of its DEFAULT constraint in messages that lack it, also in rows "
        "that they update; may be repeated",
    )
    parser.add_argument(
        "--trust-key",
        action="append",
        default=[],
        metavar="NAME",
        help="table whose source logs the key columns of --table with each change of them, because they are "
        "its primary key or replica identity, though messages do not show it; may be repeated (default: such "
        "updates and deletes are refused)",
    )
    parser.add_argument(
        "--accept-schema-changes",
        action="store_true",
        help="skip messages that report a changed table; the Hive table has been changed accordingly",
    )
    parser.add_argument(
        "--apply-truncates",
        action="store_true",
        help="if the source truncated a table, delete the rows of the Hive table that no later operation "
        "writes (default: refuse)",
    )
    parser.add_argument(
        "--new-snapshot",
        choices=[each.value for each in NewSnapshot],
        default=NewSnapshot.REFUSE.value,
        help="what a snapshot of a table means that comes after changes of it, as one of a new connector: "
        "all its rows, so that others are deleted (replace); rows among others (merge) (default: refuse)",
    )
    parser.add_argument(
        "--shard-column",
        metavar="COLUMN",
        help="column of the Hive table that holds the source's name of the table, if NAME has * or ?, as in "
        "'shop_*.orders', and fits several tables; it belongs to the key (default: refuse such a NAME)",
    )
    add_kafka_arguments(parser, may_be_avro=may_be_avro)


def log_from(arguments: argparse.Namespace, source: Callable[..., Log]) -> Log:
    """The log that the arguments describe; ``source`` makes it from files or topics, name and options.

    Raises ConfigurationError: arguments contradict each other, or are not valid.
    """
    options = LogOptions(
        positions=Positions(arguments.positions),
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
    """The source's name of each table, the table that follows it, and its key columns if given."""
    return list(arguments.table)
