"""``hive-mutate watermarks``: show the positions of change sources, with the transaction and its time.

A position is the point up to which a source has been applied to a table. It is shown with the transaction
that applied it and the time. The default of --watermark-table is the table mutation_watermarks in the
database of --table. Consumers of change feeds have the source consumer:NAME. Their position is the point up
to which they have read the table.

With --remove, a source is applied again from its beginning, and a consumer starts over:

  hive-mutate watermarks --table sales.orders --source consumer:search-index --remove
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence

import pyarrow.compute as pc

from metastore_client.client import MetastoreClient
from mutation_api.cdc.ingest_report import list_watermarks
from mutation_api.cdc.watermark import Watermark
from mutation_api.cli.parsers import add_flag, describe
from mutation_api.cli.table_arguments import add_metastore_arguments, metastore_from
from mutation_api.cli.terminal import say, text_table
from mutation_api.hive.connect import connect
from mutation_api.transaction.catalog import normal_full_name
from mutation_api.upkeep.watermark_table import watermark_table_beside

_HEADER = ("SOURCE", "SOURCE TABLE", "TABLE", "POSITION", "TXN", "APPLIED (UTC)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    describe(parser, __doc__, fills_lines=True)
    parser.add_argument("--table", metavar="DB.TABLE", help="show only watermarks of this target table")
    parser.add_argument(
        "--source", metavar="ID", help="show only watermarks of this source, such as tungsten:alpha"
    )
    parser.add_argument(
        "--watermark-table",
        metavar="DB.TABLE",
        help="watermark table (default: mutation_watermarks in the database of --table)",
    )
    add_flag(parser, "--remove", "remove the watermarks of --source, and show what was removed")
    add_flag(parser, "--json", "print one JSON object per line")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a table, or one JSON object per line. Return 0, even if there are no watermarks."""
    if arguments.table is None and arguments.watermark_table is None:
        arguments.refuse_usage("use --table, --watermark-table, or both")
    name = arguments.watermark_table or watermark_table_beside(arguments.table)
    if arguments.remove and arguments.source is None:
        arguments.refuse_usage("--remove requires --source")
    with metastore_from(arguments) as metastore:
        found = list_watermarks(metastore, name, target=arguments.table, source_id=arguments.source)
        if arguments.remove and found:
            _remove(metastore, name, arguments.source, arguments.table)
    for line in _json_lines(found) if arguments.json else _table(found, name):
        say(line)
    return 0


def _remove(metastore: MetastoreClient, name: str, source_id: str, target: str | None) -> None:
    where = pc.field("source_id") == source_id
    if target is not None:
        where &= pc.field("target_table") == normal_full_name(target)
    with connect(metastore) as hive:
        hive.table(name).delete(where=where)


def _json_lines(marks: Sequence[Watermark]) -> Iterable[str]:
    return (json.dumps(_plain(mark), ensure_ascii=False) for mark in marks)


def _plain(mark: Watermark) -> dict[str, object]:
    return {
        "source": mark.source_id,
        "source_table": mark.source_table,
        "table": mark.target,
        "position": mark.shown,
        "order": list(mark.order),
        "txn_id": mark.txn_id,
        "applied_at": f"{mark.applied_at.isoformat(timespec='seconds')}Z",
    }


def _table(marks: Sequence[Watermark], name: str) -> Iterable[str]:
    if not marks:
        return [f"no watermarks in {name}"]
    return text_table(_HEADER, [_cells(mark) for mark in marks])


def _cells(mark: Watermark) -> tuple[str, ...]:
    applied = mark.applied_at.isoformat(sep=" ", timespec="seconds")
    return (mark.source_id, mark.source_table, mark.target, mark.shown, str(mark.txn_id), applied)
