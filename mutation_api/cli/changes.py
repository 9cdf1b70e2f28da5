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

An update is a delete and an insert. With --on, a delete and an insert of one key in one transaction are
update_before and update_after. Values have the form of "hive-mutate read --json".

A major compaction or an overwrite removes deletes from the files. If one lies above the position, the
command refuses to go on. Begin again with --since beginning.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from metastore_client.client import MetastoreClient
from mutation_api.cli.engine_arguments import add_memory_argument, local_options
from mutation_api.cli.parsers import in_option_names, option_names
from mutation_api.cli.table_arguments import (
    add_lock_timeout_argument,
    add_metastore_arguments,
    listed_names,
    metastore_from,
    point_in_time,
)
from mutation_api.cli.terminal import say
from mutation_api.errors import ConfigurationError
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.format.json_values import json_texts
from mutation_api.hive.change_feed import BEGINNING, NOW, ChangedTransaction, ChangeFeed, Since
from mutation_api.merge.row_changes import CHANGE_COLUMN, WRITE_ID_COLUMN
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.clock import SystemClock

__all__ = ["add_arguments", "run"]

_OPTIONS = option_names("since", "on", "columns")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (__doc__ or "").partition("\n\n")[2]
    parser.set_defaults(refuse_usage=parser.error)
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
    parser.add_argument("--on", metavar="A,B", help="key columns that make a delete and an insert an update")
    parser.add_argument("--columns", metavar="A,B", help="columns to print (default: all)")
    parser.add_argument(
        "--net", action="store_true", help="print all changes together, without rows that came and went"
    )
    parser.add_argument(
        "--follow",
        type=float,
        metavar="SECONDS",
        help="go on, and look again after this time (default: end)",
    )
    add_lock_timeout_argument(parser, "an exclusive lock on a table, such as that of DDL")
    add_memory_argument(parser)
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the changes; return 0 when all are printed."""
    file = arguments.position_file
    if arguments.since is None and (file is None or not file.exists()):
        arguments.refuse_usage("--since is required, unless --position-file names a file with a position")
    if arguments.follow is not None and arguments.follow <= 0:
        arguments.refuse_usage("--follow requires seconds above 0")
    since = _since(arguments)
    with metastore_from(arguments) as metastore, in_option_names(_OPTIONS):
        while True:
            since = _printed(metastore, since, arguments)
            if arguments.follow is None:
                return 0
            SystemClock().sleep(arguments.follow)


def _printed(metastore: MetastoreClient, since: Since, arguments: argparse.Namespace) -> str:
    """Print what changed since a position, and return the position after it."""
    builder = MutatorClientBuilder().metastore(metastore)
    client = builder.lock_timeout_seconds(arguments.lock_timeout).build()
    feed = ChangeFeed(
        client,
        arguments.tables,
        since,
        on=None if arguments.on is None else listed_names(arguments.on),
        net=arguments.net,
        columns=None if arguments.columns is None else listed_names(arguments.columns),
        local=local_options(arguments),
    )
    with feed:
        for transaction in feed:
            for line in _lines(transaction):
                say(line)
            _keep(transaction.position, arguments.position_file)
        if since in (BEGINNING, NOW):
            _keep(feed.position, arguments.position_file)
        return feed.position


def _lines(transaction: ChangedTransaction) -> Iterator[str]:
    for name, table in transaction.tables.items():
        start = json.dumps({"transaction": transaction.txn_id, "table": name})[:-1]
        for batch in table.to_batches():
            given = dict(zip(batch.schema.names, batch.columns, strict=True))
            kinds, writes = (given.pop(each).to_pylist() for each in (CHANGE_COLUMN, WRITE_ID_COLUMN))
            row_ids = given.pop(ROW_ID_COLUMN).to_pylist() if ROW_ID_COLUMN in given else [None] * len(kinds)
            texts = json_texts(pa.record_batch(given).to_struct_array())
            for kind, write_id, row_id, text in zip(kinds, writes, row_ids, texts, strict=True):
                facts = {"change": kind, "write_id": write_id}
                if row_id is not None:
                    facts[ROW_ID_COLUMN] = row_id
                yield f'{start}, {json.dumps(facts, ensure_ascii=False)[1:-1]}, "row": {text}}}'


def _keep(position: str, file: Path | None) -> None:
    """Print a position, and replace the file that keeps it."""
    say(json.dumps({"position": position}), flush=True)
    if file is not None:
        new = file.with_name(f".{file.name}.new")
        with new.open("w", encoding="utf-8") as stream:
            stream.write(position)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(file)


def _since(arguments: argparse.Namespace) -> Since:
    file: Path | None = arguments.position_file
    if file is not None and file.exists():
        text = file.read_text(encoding="utf-8").strip()
        if not text:
            raise ConfigurationError(f"{file} is empty, so it holds no position: remove it, and pass --since")
        return text
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
