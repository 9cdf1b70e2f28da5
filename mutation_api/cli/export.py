"""``hive-mutate export``: keep copies of tables in Delta Lake or Apache Iceberg in step with them.

The first run copies the tables, and later runs copy what changed since. The position is in the target's own
commit, so a run that is killed at any point and repeated loses and repeats nothing. A commit by another
program to the target is refused, not overwritten:

  hive-mutate export sales.orders --to delta:s3://lake/orders
  hive-mutate export sales.orders --to iceberg:prod.sales.orders --follow 60

For several tables, the address contains {table}, and perhaps {database}. With --tables-together, all tables
are read in one snapshot, and their targets are at one position after each run:

  hive-mutate export sales.orders sales.items --to iceberg:prod.{database}.{table} --tables-together

"verify" compares the targets with the tables as they were at the position, by the number and the hash of the
rows of each partition. "cutover" copies the last changes under an exclusive lock, compares both sides, and
marks the tables by the property hive.export.moved.to:

  hive-mutate export verify sales.orders --to delta:s3://lake/orders
  hive-mutate export cutover sales.orders --to delta:s3://lake/orders

--target-conf contains storage options of deltalake, or properties of pyiceberg's catalog. Catalogs can also
be described in .pyiceberg.yaml.

The exit code is 0 if the work is done, and 1 if it was refused, failed, or "verify" found a difference.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mutation_api.cdc.export.export import Export
from mutation_api.cli.engine_arguments import add_memory_argument, local_options
from mutation_api.cli.ingest.log_arguments import setting_parser, settings_in
from mutation_api.cli.parsers import add_flag, add_repeatable, describe, in_option_names, option_names
from mutation_api.cli.table_arguments import (
    add_lock_timeout_argument,
    add_metastore_arguments,
    metastore_from,
)
from mutation_api.cli.terminal import say_report
from mutation_api.hive.connect import connect

VERIFY, CUTOVER = ACTIONS = ("verify", "cutover")

_CONF_FILE = "--target-conf-file"
_OPTIONS = option_names("tables_together", "unsupported_as_text", "truncate_nanoseconds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    describe(parser, __doc__)
    parser.add_argument(
        "words",
        nargs="+",
        metavar="[verify|cutover] DB.TABLE",
        help="tables to export, or to verify or to cut over if the first word says so",
    )
    parser.add_argument(
        "--to",
        required=True,
        metavar="TARGET",
        help="delta:URL, or iceberg:CATALOG.NAMESPACE.TABLE; {database} and {table} stand for the names of "
        "the table",
    )
    parser.add_argument(
        "--follow",
        type=float,
        metavar="SECONDS",
        help="keep running, and look for changes at this interval (default: end after one run)",
    )
    add_flag(
        parser,
        "--tables-together",
        "read all tables in one snapshot, so that their targets are at one position",
    )
    add_flag(
        parser,
        "--unsupported-as-text",
        "export columns whose type the target lacks as JSON strings (default: refuse them)",
    )
    add_flag(
        parser,
        "--truncate-nanoseconds",
        "cut timestamps to microseconds (default: refuse values with more digits)",
    )
    add_repeatable(
        parser,
        "--target-conf",
        "NAME=VALUE",
        "storage option of deltalake, or property of pyiceberg's catalog (repeatable)",
        type=setting_parser(_CONF_FILE),
    )
    parser.add_argument(
        _CONF_FILE,
        type=Path,
        metavar="FILE",
        help="file with such settings, one per line, including passwords; # begins a comment",
    )
    add_flag(parser, "--json", "print each report as one JSON object")
    add_lock_timeout_argument(parser, "an exclusive lock on a table, such as that of DDL")
    add_memory_argument(parser)
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Export, verify or cut over; return 0 if it is done, and 1 if sides differ."""
    action, tables = None, list(arguments.words)
    if tables[0] in ACTIONS:
        action = tables.pop(0)
    if not tables:
        arguments.refuse_usage("name at least one table")
    if arguments.follow is not None and (action is not None or arguments.follow <= 0):
        arguments.refuse_usage(
            "--follow requires seconds above 0, and cannot be used with verify and cutover"
        )
    with metastore_from(arguments) as metastore, in_option_names(_OPTIONS):
        options = {"lock_timeout_seconds": arguments.lock_timeout, "local": local_options(arguments)}
        with connect(metastore, **options) as hive:
            export = Export(
                hive,
                *tables,
                to=arguments.to,
                options={
                    **settings_in(arguments.target_conf_file, _CONF_FILE),
                    **dict(arguments.target_conf),
                },
                tables_together=arguments.tables_together,
                unsupported_as_text=arguments.unsupported_as_text,
                truncate_nanoseconds=arguments.truncate_nanoseconds,
                local=local_options(arguments),
            )
            return _done(export, action, arguments)


def _done(export: Export, action: str | None, arguments: argparse.Namespace) -> int:
    if action == VERIFY:
        verified = export.verify()
        say_report(verified, as_json=arguments.json)
        return int(not verified.is_equal)
    if action == CUTOVER:
        say_report(export.cutover(), as_json=arguments.json)
    elif arguments.follow is None:
        say_report(export.run(), as_json=arguments.json)
    else:
        for report in export.follow(arguments.follow):
            if report.is_changed:
                say_report(report, as_json=arguments.json)
    return 0
