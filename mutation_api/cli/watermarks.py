"""``hive-mutate watermarks``: up to where change sources have been applied, by which transaction, and when.

Without --watermark-table it is the table mutation_watermarks in the database of --table. To apply a source
anew from its beginning, delete its rows there with Hive's SQL (DELETE FROM … WHERE source_id = '…').
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from mutation_api.cli.arguments.metastore_arguments import add_metastore_arguments, metastore_from
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.client.catalog import split_full_name
from mutation_api.inputs.watermark import (
    WATERMARK_TABLE_NAME,
    Watermark,
    Watermarks,
    watermark_table_exists,
)

__all__ = ["add_arguments", "run"]

_HEADER = ("SOURCE", "SOURCE TABLE", "TABLE", "POSITION", "TXN", "APPLIED (UTC)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (__doc__ or "").partition("\n\n")[2]
    parser.set_defaults(refuse_usage=parser.error)
    parser.add_argument("--table", metavar="DB.TABLE", help="only what was applied to this table")
    parser.add_argument("--source", metavar="ID", help="only this source, such as tungsten:alpha")
    parser.add_argument("--watermark-table", metavar="DB.TABLE", help="where the watermarks are kept")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a table, or JSON lines; 0 also if there is no watermark."""
    if arguments.table is None and arguments.watermark_table is None:
        arguments.refuse_usage("give --table, --watermark-table, or both")
    target = None if arguments.table is None else ".".join(split_full_name(arguments.table))
    name = arguments.watermark_table or f"{split_full_name(str(target))[0]}.{WATERMARK_TABLE_NAME}"
    found = [
        mark
        for mark in _read(name, arguments)
        if target in (None, mark.target) and arguments.source in (None, mark.source_id)
    ]
    if arguments.json:
        for mark in found:
            print(json.dumps(_plain(mark), ensure_ascii=False))
    else:
        print(_table(found) if found else f"no watermarks in {name}")
    return 0


def _read(name: str, arguments: argparse.Namespace) -> list[Watermark]:
    with metastore_from(arguments) as metastore:
        if not watermark_table_exists(metastore, name):
            return []
        with MutatorClientBuilder().metastore(metastore).build() as client:
            return list(Watermarks.read(client.open_snapshot(name), name))


def _plain(mark: Watermark) -> dict[str, object]:
    return {
        "source": mark.source_id,
        "source_table": mark.source_table,
        "table": mark.target,
        "position": mark.text,
        "order": list(mark.order),
        "txn_id": mark.txn_id,
        "applied_at": f"{mark.applied_at.isoformat(timespec='seconds')}Z",
    }


def _table(marks: Sequence[Watermark]) -> str:
    """Aligned columns under their names."""
    lines = [_HEADER]
    for mark in marks:
        applied = mark.applied_at.isoformat(sep=" ", timespec="seconds")
        lines.append((mark.source_id, mark.source_table, mark.target, mark.text, str(mark.txn_id), applied))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
