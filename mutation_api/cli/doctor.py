"""``hive-mutate doctor``: show what the server is, and which tables of a database can be mutated.

Prints the server's release, capabilities and settings. Then prints each table with the layout of its files,
or with the reason why it cannot be mutated. One reason is that this user cannot reach, read or write its
directory: to check this, a hidden empty file is created there and removed. Nothing else is changed. The exit
code is 0 if all tables can be mutated, else 1. Name DB.TABLE to check one table only.
"""

from __future__ import annotations

import argparse
import json

from mutation_api.cli.arguments.metastore_arguments import add_metastore_arguments, metastore_from
from mutation_api.upkeep.doctor import DoctorReport, TableReport, examine

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (__doc__ or "").partition("\n\n")[2]
    parser.add_argument("name", metavar="DB[.TABLE]", help="a database, or one of its tables")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the report; 0 if every table in it can be mutated, else 1."""
    database, dot, table = arguments.name.partition(".")
    with metastore_from(arguments) as metastore:
        report = examine(metastore, database, table if dot else None)
    print(_json(report) if arguments.json else _text(report))
    return int(any(table.version is None for table in report.tables))


def _text(report: DoctorReport) -> str:
    width = max(len(word) for word, _ in report.server)
    lines = [f"{word.ljust(width)}  {value}" for word, value in report.server]
    lines.append("")
    lines += [_line(table) for table in report.tables] or ["the database has no tables, or does not exist"]
    return "\n".join(lines)


def _line(table: TableReport) -> str:
    if table.version is not None:
        but = "" if table.reason is None else f", but {table.reason}"
        trouble = "" if table.trouble is None else f"; {table.trouble}"
        return f"{table.table}: can be mutated ({table.version.value}){but}{trouble}"
    return f"{table.table}: NO: {table.reason}"


def _json(report: DoctorReport) -> str:
    each = [
        {
            "table": t.table,
            "layout": None if t.version is None else t.version.value,
            "reason": t.reason,
            "trouble": t.trouble,
        }
        for t in report.tables
    ]
    return json.dumps({"server": dict(report.server), "tables": each})
