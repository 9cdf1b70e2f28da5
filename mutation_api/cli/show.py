"""``hive-mutate show``: show transactions, locks or compactions of a metastore.

A lock on many partitions consists of one entry per partition. Entries of the same lock and table that differ
only in the partition are shown as one line, with the number of partitions (``812 partitions``).

Transactions are listed in this order: the open ones, then the ten latest aborted ones that are not yet
cleaned. The other aborted ones are only counted. --all and --json print each entry on its own line.
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
from metastore_client.model import TxnState
from mutation_api.cli.parsers import add_flag
from mutation_api.cli.table_arguments import add_metastore_arguments, metastore_from
from mutation_api.cli.terminal import say, text_table
from mutation_api.format.printable import one_line

ABORTED_SHOWN = 10
"""The number of aborted transactions to show.

A server that compacts nothing keeps aborted transactions for weeks; they must not hide the open ones.
"""

_SOURCES: dict[str, Callable[[MetastoreClient], Sequence[Any]]] = {
    "txns": lambda client: client.get_open_txns().txns,
    "locks": lambda client: client.show_locks(),
    "compactions": lambda client: client.show_compactions(),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "what",
        choices=sorted(_SOURCES),
        help="what to list; txns lists open transactions, then aborted ones that are not yet cleaned",
    )
    add_flag(parser, "--json", "print one JSON object per line")
    add_flag(parser, "--all", "list all partitions of locks and all aborted transactions")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a table, or one JSON object per line."""
    with metastore_from(arguments) as client:
        rows = [_row(value) for value in _SOURCES[arguments.what](client)]
    left_out = 0
    is_short = not (arguments.json or arguments.all)
    if arguments.what == "locks" and is_short:
        rows = _folded(rows)
    if arguments.what == "txns":
        opened, aborted = _open_first(rows)
        left_out = max(0, len(aborted) - ABORTED_SHOWN) if is_short else 0
        rows = [*opened, *aborted[: len(aborted) - left_out]]
    for line in map(json.dumps, rows) if arguments.json else _table(rows, arguments.what):
        say(one_line(line))
    if left_out:
        say(f"and {left_out:,} older aborted transactions that are not yet cleaned: use --all to show them")
    return 0


def _open_first(
    rows: Sequence[dict[str, object]],
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Split transactions into the open ones, oldest first, and the aborted ones, latest first."""
    by_id = sorted(rows, key=lambda row: int(str(row["id"])))
    is_open = TxnState.OPEN.name.lower()
    opened = [row for row in by_id if row["state"] == is_open]
    return opened, [row for row in reversed(by_id) if row["state"] != is_open]


def _folded(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Combine locks that differ only in the partition into one row. Leave the others unchanged."""
    groups: dict[object, list[dict[str, object]]] = {}
    for number, row in enumerate(rows):
        rest = tuple((name, value) for name, value in row.items() if name != "partition")
        groups.setdefault(rest if row["partition"] else number, []).append(row)
    return [g[0] if len(g) == 1 else {**g[0], "partition": f"{len(g):,} partitions"} for g in groups.values()]


def _row(value: Any) -> dict[str, object]:
    """Return the fields of a value as plain JSON: enum members as names, times as ISO strings."""
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
