"""``hive-mutate show``: show transactions, locks or compactions of a metastore.

A lock on many partitions has a line for each partition. Lines of one lock and table that differ only in the
partition are shown as one, with the number of partitions (``812 partitions``). --all and --json show each
line.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from metastore_client.client import MetastoreClient
from mutation_api.cli.arguments.metastore_arguments import add_metastore_arguments, metastore_from
from mutation_api.cli.text_table import text_table

__all__ = ["add_arguments", "run"]

_SOURCES: dict[str, Callable[[MetastoreClient], Sequence[Any]]] = {
    "txns": lambda client: client.get_open_txns().txns,
    "locks": lambda client: client.show_locks(),
    "compactions": lambda client: client.show_compactions(),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "what", choices=sorted(_SOURCES), help="txns lists the open ones, and aborted ones not yet cleaned"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--all", action="store_true", help="locks: a line for each partition")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a table, or JSON lines."""
    with metastore_from(arguments) as client:
        rows = [_row(value) for value in _SOURCES[arguments.what](client)]
    if arguments.what == "locks" and not (arguments.json or arguments.all):
        rows = _folded(rows)
    for line in map(json.dumps, rows) if arguments.json else _table(rows, arguments.what):
        print(line)
    return 0


def _folded(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Locks that differ only in the partition become one row; the others are unchanged."""
    groups: dict[object, list[dict[str, object]]] = {}
    for number, row in enumerate(rows):
        rest = tuple((name, value) for name, value in row.items() if name != "partition")
        groups.setdefault(rest if row["partition"] else number, []).append(row)
    return [g[0] if len(g) == 1 else {**g[0], "partition": f"{len(g):,} partitions"} for g in groups.values()]


def _row(value: Any) -> dict[str, object]:
    """Fields of a value as plain JSON: names of enum members, times as ISO text."""
    return {field.name: _plain(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)}


def _plain(name: str, value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.name.lower()
    if name.endswith("_time") and isinstance(value, int):
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="seconds")
    return value


def _table(rows: Sequence[dict[str, object]], what: str) -> Iterable[str]:
    if not rows:
        return [f"no {what}"]
    cells = [["-" if value in (None, "") else str(value) for value in row.values()] for row in rows]
    return text_table([name.upper() for name in rows[0]], cells)
