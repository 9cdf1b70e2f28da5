"""``hive-mutate watermarks``: show the positions of change sources, with the transaction and its time.

A position is the point up to which a source has been applied to a table. It is shown with the transaction
that applied it and the time. The default of --watermark-table is the table mutation_watermarks in the
database of --table. To apply a source again from its beginning, delete its rows there with Hive's SQL (DELETE
FROM … WHERE source_id = '…').
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence

from mutation_api.cdc.ingest_report import list_watermarks
from mutation_api.cdc.watermark import Watermark, watermark_table_beside
from mutation_api.cli.table_arguments import add_metastore_arguments, metastore_from
from mutation_api.cli.terminal import say, text_table

__all__ = ["add_arguments", "run"]

_HEADER = ("SOURCE", "SOURCE TABLE", "TABLE", "POSITION", "TXN", "APPLIED (UTC)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (__doc__ or "").partition("\n\n")[2]
    parser.set_defaults(refuse_usage=parser.error)
    parser.add_argument("--table", metavar="DB.TABLE", help="show only watermarks of this target table")
    parser.add_argument(
        "--source", metavar="ID", help="show only watermarks of this source, such as tungsten:alpha"
    )
    parser.add_argument(
        "--watermark-table",
        metavar="DB.TABLE",
        help="table of watermarks (default: mutation_watermarks in the database of --table)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a table, or one JSON object per line. Return 0, even if there are no watermarks."""
    if arguments.table is None and arguments.watermark_table is None:
        arguments.refuse_usage("give --table, --watermark-table, or both")
    name = arguments.watermark_table or watermark_table_beside(arguments.table)
    with metastore_from(arguments) as metastore:
        found = list_watermarks(metastore, name, target=arguments.table, source_id=arguments.source)
    for line in _json_lines(found) if arguments.json else _table(found, name):
        say(line)
    return 0


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
