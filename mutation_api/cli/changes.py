"""``hive-mutate changes``: print what changed in tables since a position, transaction by transaction.

Each line is a JSON object with one change (here it is wrapped). A line with "position" follows the changes of
each transaction:

  {"transaction": 17, "table": "sales.orders", "change": "insert",
   "write_id": 4, "ROW__ID": {…}, "row": {…}}
  {"position": "…"}

--since takes such a position, "beginning" (the rows of the tables, as inserts), "now", or a time. With
--position-file, the position is read from a file, if it exists, and replaces it after each transaction whose
lines have been printed. A run that is killed prints the last transaction once more:

  hive-mutate changes sales.orders sales.items --since beginning --position-file orders.position --follow 60

With --consumer, the position is stored in the watermark table instead, under that name, and moves after each
transaction. Only the first run needs --since:

  hive-mutate changes sales.orders --consumer search-index --since beginning

With --kafka, changes are sent to topics, each exactly once: messages and position are in one transaction of
Kafka. Only the first run needs --since. A second run of the same --name ends the first one:

  hive-mutate changes sales.orders --since beginning --on id --kafka broker:9092 --topic-prefix hive

An update is a delete and an insert. With --on, a delete and an insert of one key in one transaction are
update_before and update_after. Values have the form of "hive-mutate read --json".

A major compaction or an overwrite removes deletes from the files. If one happened after the position, the
command refuses to continue. Start over with --since beginning. With --follow and --hold, the files that it
replaced are kept until the next round, and nothing is lost.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from mutation_api.cdc.kafka.change_topics import DEBEZIUM, FORMATS, ChangeTopics
from mutation_api.cdc.kafka.feed_messages import change_lines
from mutation_api.cdc.kafka.topics import TIMEOUT_SECONDS_DEFAULT
from mutation_api.cli.engine_arguments import add_memory_argument, local_options
from mutation_api.cli.ingest.log_arguments import add_kafka_settings, kafka_settings_from
from mutation_api.cli.parsers import add_flag, describe, in_option_names, option_names
from mutation_api.cli.table_arguments import (
    add_lock_timeout_argument,
    add_metastore_arguments,
    metastore_from,
    optional_names,
    point_in_time,
)
from mutation_api.cli.terminal import say
from mutation_api.errors import ConfigurationError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.hive.feed_rules import Images, parsed_keys
from mutation_api.transaction.clock import SystemClock
from mutation_api.transaction.feed_position import BEGINNING, NOW, Since

_OPTIONS = option_names(
    "since",
    "on",
    "columns",
    "images",
    "consumer",
    "watermark_table",
    "topic_prefix",
    "topic",
    "format",
    "hold",
)

_OF_KAFKA: Mapping[str, Any] = {
    "topic_prefix": None,
    "topic": None,
    "format": None,
    "name": None,
    "kafka_conf": [],
    "kafka_conf_file": None,
    "kafka_timeout": TIMEOUT_SECONDS_DEFAULT,
}
"""The arguments that require ``--kafka``, and their defaults."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    describe(parser, __doc__)
    parser.add_argument(
        "tables", nargs="+", metavar="DB.TABLE", help="tables to print the changes of, together"
    )
    parser.add_argument(
        "--since",
        metavar="POSITION|TIME",
        help='position of an earlier run, "beginning", "now", or a time such as 2026-03-01T12:00:00Z',
    )
    parser.add_argument(
        "--position-file",
        type=Path,
        metavar="FILE",
        help="file that keeps the position; if it exists, --since is not needed and not used",
    )
    parser.add_argument(
        "--consumer",
        metavar="NAME",
        help="store the position in the watermark table under this name; only the first run uses --since",
    )
    parser.add_argument(
        "--watermark-table",
        metavar="DB.TABLE",
        help="table of consumers' positions (default: mutation_watermarks in the database of the tables)",
    )
    parser.add_argument(
        "--on",
        action="append",
        metavar="[DB.TABLE=]A,B",
        help="key columns, by which a delete and an insert of the same key are reported as an update, for "
        "all tables or for one (repeatable)",
    )
    parser.add_argument("--columns", metavar="A,B", help="columns to print (default: all)")
    parser.add_argument(
        "--images",
        choices=get_args(Images),
        default="all",
        help="columns to read of deleted rows, and of updated rows as they were before: all, or only those "
        "of --on, which is faster; the others are null (default: all)",
    )
    add_flag(
        parser,
        "--net",
        "print the net effect of all changes, without rows that were both inserted and deleted",
    )
    parser.add_argument(
        "--follow",
        type=float,
        metavar="SECONDS",
        help="keep running, and look for new changes at this interval (default: end after one round)",
    )
    parser.add_argument(
        "--hold",
        type=float,
        metavar="SECONDS",
        help="with --follow: keep Hive's cleaner from removing files until the next round, for at most this "
        "time, so that no changes are lost to a major compaction in between (default: no)",
    )
    _add_kafka_arguments(parser)
    add_lock_timeout_argument(parser, "an exclusive lock on a table, such as that of DDL")
    add_memory_argument(parser)
    add_metastore_arguments(parser)


def _add_kafka_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "Kafka topics",
        "Topics that do not exist are created with the brokers' defaults. The position is kept in the "
        "compacted topic PREFIX.position. Consumers must read with isolation.level=read_committed.",
    )
    group.add_argument(
        "--kafka", metavar="HOST:PORT,…", help="Kafka brokers to contact first (default: print the changes)"
    )
    group.add_argument(
        "--topic-prefix", metavar="PREFIX", help="send the changes of a table to the topic PREFIX.DB.TABLE"
    )
    group.add_argument("--topic", metavar="TOPIC", help="send the changes of all tables to one topic")
    group.add_argument(
        "--format",
        choices=FORMATS,
        help="format of the messages: Debezium's envelopes with schemas, which require --on, or the lines "
        f"that are printed without --kafka (default: {DEBEZIUM})",
    )
    group.add_argument(
        "--name",
        help="name of the feed; only one run with this name sends at a time (default: PREFIX or TOPIC)",
    )
    add_kafka_settings(group)


def run(arguments: argparse.Namespace) -> int:
    """Print or send the changes; return 0 when all are printed or sent."""
    file = arguments.position_file
    _check_kafka(arguments)
    if arguments.watermark_table is not None and arguments.consumer is None:
        arguments.refuse_usage("--watermark-table requires --consumer")
    if arguments.consumer is not None and file is not None:
        arguments.refuse_usage("--position-file cannot be used with --consumer, whose position is in a table")
    keeps = arguments.kafka is not None or arguments.consumer is not None
    if arguments.since is None and not keeps and (file is None or not file.exists()):
        arguments.refuse_usage("--since is required, unless --position-file names a file with a position")
    if arguments.follow is not None and arguments.follow <= 0:
        arguments.refuse_usage("--follow requires seconds above 0")
    if arguments.hold is not None and (arguments.follow is None or arguments.hold <= arguments.follow):
        arguments.refuse_usage("--hold requires --follow with fewer seconds")
    since = _since(arguments)
    with metastore_from(arguments) as metastore, in_option_names(_OPTIONS):
        options = {
            "lock_timeout_seconds": arguments.lock_timeout,
            "local": local_options(arguments),
        }
        with connect(metastore, **options) as hive:
            return _send(hive, since, arguments) if arguments.kafka else _print(hive, since, arguments)


def _check_kafka(arguments: argparse.Namespace) -> None:
    """Refuse options that cannot be used together."""
    if arguments.kafka is None:
        given = [name for name, default in _OF_KAFKA.items() if getattr(arguments, name) != default]
        if given:
            arguments.refuse_usage(f"--{given[0].replace('_', '-')} requires --kafka")
        return
    if (arguments.topic_prefix is None) == (arguments.topic is None):
        arguments.refuse_usage("--kafka requires --topic-prefix or --topic")
    for name in ("position_file", "consumer"):
        if getattr(arguments, name) is not None:
            option = f"--{name.replace('_', '-')}"
            arguments.refuse_usage(f"{option} cannot be used with --kafka, which keeps the position itself")
    if arguments.net:
        arguments.refuse_usage("--net cannot be used with --kafka, which sends whole transactions")


def _send(hive: Hive, since: Since | None, arguments: argparse.Namespace) -> int:
    """Send the changes to topics, and print a line about each round that sent any."""
    topics = ChangeTopics(
        arguments.kafka,
        topic_prefix=arguments.topic_prefix,
        topic=arguments.topic,
        format=arguments.format or DEBEZIUM,
        name=arguments.name,
        settings=kafka_settings_from(arguments),
        timeout_seconds=arguments.kafka_timeout,
    )
    keys, columns = parsed_keys(arguments.on or ()), optional_names(arguments.columns)
    with topics:
        while True:
            sent = topics.send(
                hive,
                *arguments.tables,
                since=since,
                on=keys,
                columns=columns,
                images=arguments.images,
                hold=arguments.hold,
            )
            if sent.message_count or arguments.follow is None:
                counts = {"transactions": sent.transaction_count, "messages": sent.message_count}
                say(json.dumps({**counts, "position": sent.position}), flush=True)
            if arguments.follow is None:
                return 0
            SystemClock().sleep(arguments.follow)


def _print(hive: Hive, since: Since | None, arguments: argparse.Namespace) -> int:
    while True:
        since = _printed(hive, since, arguments)
        if arguments.follow is None:
            return 0
        SystemClock().sleep(arguments.follow)


def _printed(hive: Hive, since: Since | None, arguments: argparse.Namespace) -> str:
    """Print the changes since a position, and return the position after them."""
    keys, columns = parsed_keys(arguments.on or ()), optional_names(arguments.columns)
    with hive.changes(
        *arguments.tables,
        since=since,
        consumer=arguments.consumer,
        on=keys,
        net=arguments.net,
        columns=columns,
        images=arguments.images,
        watermark_table=arguments.watermark_table,
        hold=arguments.hold,
    ) as feed:
        for transaction in feed:
            for name, table in transaction.tables.items():
                for batch in table.to_batches():
                    for line in change_lines(transaction.txn_id, name, batch):
                        say(line)
            _keep(transaction.position, arguments.position_file)
            if arguments.consumer is not None:
                feed.commit()
        if since in (BEGINNING, NOW):
            _keep(feed.position, arguments.position_file)
        return feed.position


def _keep(position: str, file: Path | None) -> None:
    """Print a position, and replace the file that contains it."""
    say(json.dumps({"position": position}), flush=True)
    if file is not None:
        new = file.with_name(f".{file.name}.new")
        with new.open("w", encoding="utf-8") as stream:
            stream.write(position)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(file)


def _since(arguments: argparse.Namespace) -> Since | None:
    file: Path | None = arguments.position_file
    if file is not None and file.exists():
        text = file.read_text(encoding="utf-8").strip()
        if not text:
            raise ConfigurationError(f"{file} is empty, so it holds no position: remove it, and pass --since")
        return text
    if arguments.since is None:
        return None
    text = str(arguments.since)
    if text in (BEGINNING, NOW) or text.lstrip().startswith("{"):
        return text
    try:
        moment = point_in_time(text)
    except argparse.ArgumentTypeError:
        moment = 0
    if isinstance(moment, int):
        arguments.refuse_usage(f"--since {text!r}: expected a position, beginning, now, or a time with zone")
        raise AssertionError("refuse_usage ends the program")
    found: Since = moment
    return found
