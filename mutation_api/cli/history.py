"""``hive-mutate history``: show the history of a table, one write id per line.

Hive keeps no log. States and transactions come from the metastore, which forgets old ones. Numbers of events
come from the footers of the files. Times are the modification times of the files, shortly before the commit.
A minor compaction loses the times, and a major compaction keeps only the rows. In tables of Hive 3
and 4, and of Hive 2 with transactional_properties=default, an update counts as a delete and an insert.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime

from mutation_api.cli.parsers import add_flag, describe
from mutation_api.cli.table_arguments import add_metastore_arguments, metastore_from
from mutation_api.cli.terminal import say, text_table
from mutation_api.errors import ReadError
from mutation_api.format.printable import one_line
from mutation_api.upkeep.history import EventCounts, HistoryEntry, TableHistory, table_history

_HEADER = (*("ID", "TXN", "STATE", "WRITTEN", "WHO", "PARTITION"), *("INSERTS", "UPDATES", "DELETES"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    describe(parser, __doc__, fills_lines=True)
    parser.add_argument("table", metavar="DB.TABLE", help="table whose history is shown")
    add_flag(parser, "--by-partition", "print one line for each partition of a write id")
    add_flag(parser, "--json", "print one JSON object")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the history. Return 0."""
    with metastore_from(arguments) as metastore:
        try:
            history = table_history(metastore, arguments.table)
        except OSError as error:
            raise ReadError(f"the directories of {arguments.table} cannot be read: {error}") from error
    if arguments.json:
        say(json.dumps(history.to_dict()))
        return 0
    for line in _lines(history, by_partition=arguments.by_partition):
        say(one_line(line))
    return 0


def _lines(history: TableHistory, *, by_partition: bool) -> Iterator[str]:
    rows = [row for entry in history.entries for row in _rows(entry, by_partition=by_partition)]
    if rows:
        yield from text_table(_HEADER, rows)
    else:
        yield f"{history.table}: no write ids are known"
    if history.forgotten_through:
        yield f"ids up to {history.forgotten_through} are in bases, and their writers are no longer known"
    for each in history.rewritten:
        where = f"{each.partition}/" if each.partition else ""
        yield f"{where}{each.name}: ids up to {each.last}, written {_time(each.written)}"
    for compaction in history.compactions:
        where = f" of {compaction.partition}" if compaction.partition else ""
        yield f"compaction {compaction.id}{where}: {compaction.type.name.lower()}, {compaction.state}"
    for problem in history.problems:
        yield f"could not read: {problem}"


def _rows(entry: HistoryEntry, *, by_partition: bool) -> Iterator[list[str]]:
    who = f"{entry.user}@{entry.hostname}" if entry.user else "-"
    txn = "-" if entry.txn_id is None else str(entry.txn_id)
    head = [str(entry.id), txn, entry.state.value, _time(entry.written), who]
    if by_partition and entry.partitions:
        for name, counts in sorted(entry.partitions.items()):
            yield [*head, name or "-", *_counts(counts)]
        return
    names = [name for name in entry.partitions if name]
    shown = names[0] if len(names) == 1 else f"{len(names)} partitions" if names else "-"
    yield [*head, shown, *_counts(entry.total)]


def _counts(counts: EventCounts) -> list[str]:
    return [f"{number:,}" for number in (counts.inserts, counts.updates, counts.deletes)]


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
