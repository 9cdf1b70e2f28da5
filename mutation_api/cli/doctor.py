"""``hive-mutate doctor``: show the server's release, and which tables of a database can be changed.

The command prints the server's release, capabilities and settings. Then it prints each table with the layout
of its files, the constraints that its rows must satisfy, who compacts it, and which compactions wait or have
failed, or with the reason why it cannot be changed. One possible reason is that this user cannot reach, read
or write its directory. To check this, the command creates a hidden empty file there and removes it. Nothing
else is changed. The exit code is 0 if all tables can be changed, otherwise 1, including for a database that
does not exist. To check only one table, pass DB.TABLE.

With --replication the command checks whether changes will reach the replicas that Hive's REPL DUMP and REPL
LOAD maintain. It prints each required setting of the metastore and each required property of the database,
its value, and what to do if it is missing. It also prints tables in which a first load would hide rows, or
has hidden some. In this mode, it creates no files. The exit code is 0 if nothing is missing, otherwise 1.
"""

from __future__ import annotations

import argparse
import json

from mutation_api.cli.parsers import add_flag, describe
from mutation_api.cli.table_arguments import add_metastore_arguments, metastore_from
from mutation_api.cli.terminal import say
from mutation_api.upkeep.doctor import DoctorReport, TableReport, constraint_text, doctor
from mutation_api.upkeep.replication import (
    ReplicatedTable,
    ReplicationReport,
    ReplicationRule,
    replication_of,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    describe(parser, __doc__, fills_lines=True)
    parser.add_argument("name", metavar="DB[.TABLE]", help="database to check, or one of its tables")
    add_flag(parser, "--json", "print one JSON object")
    add_flag(parser, "--replication", "check whether changes in the database will be replicated")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the report. Return 0 if all tables can be changed, or will be replicated, otherwise 1."""
    if arguments.replication:
        with metastore_from(arguments) as metastore:
            replication = replication_of(metastore, arguments.name)
        say(json.dumps(replication.to_dict()) if arguments.json else _replication_text(replication))
        return int(not replication.is_replicated)
    with metastore_from(arguments) as metastore:
        report = doctor(metastore, arguments.name)
    say(json.dumps(report.to_dict()) if arguments.json else _text(report))
    return int(any(table.version is None for table in report.tables))


def _text(report: DoctorReport) -> str:
    width = max(len(word) for word, _ in report.server)
    lines = [f"{word.ljust(width)}  {value}" for word, value in report.server]
    lines.append("")
    lines += [_line(table) for table in report.tables] or ["the database has no tables"]
    lines += [f"warning: {each}" for each in report.warnings]
    return "\n".join(lines)


def _line(table: TableReport) -> str:
    if table.version is not None:
        but = "" if table.reason is None else f", but {table.reason}"
        trouble = "" if table.trouble is None else f"; {table.trouble}"
        can = "can be changed" if table.version.has_row_ids else "can be inserted into"
        hive = table.version.hive_release
        below = [*map(constraint_text, table.constraints), *table.compactions]
        rules = "".join(f"\n    {each}" for each in below)
        return f"{table.table}: {can} (layout of Hive {hive}: {table.version.value}){but}{trouble}{rules}"
    return f"{table.table}: NO: {table.reason}"


_MARKS = {True: "yes", False: "NO ", None: "   "}


def _replication_text(report: ReplicationReport) -> str:
    lines = [f"database {report.database}: {report.role.value}", ""]
    lines += [_rule_line(rule, max(len(each.name) for each in report.rules)) for rule in report.rules]
    lines += ["", *map(_replicated_line, report.tables)]
    will = "will be replicated" if report.is_replicated else "will NOT be replicated, or only in part"
    return "\n".join([*lines, "", f"changes in this database {will}"])


def _rule_line(rule: ReplicationRule, width: int) -> str:
    says = "" if rule.is_met else f"  {rule.what_to_do}"
    return f"{_MARKS[rule.is_met]}  {rule.name.ljust(width)}  {rule.found}{says}"


def _replicated_line(table: ReplicatedTable) -> str:
    but = f"\n     but {table.warning}" if table.warning else ""
    return (f"NO   {table.reason}" if table.reason else f"yes  {table.table}") + but
