"""``hive-mutate update enable``: capture the changes of a table in the source.

  hive-mutate update enable --source postgresql://reader@db.example/shop --table sales.orders

This creates a log table and triggers next to the table "orders" of the source, which log the keys of changed
rows; --dry-run shows the statements. The first "extract" copies the table, and later ones apply the changes.
The table in Hive must already exist.

Methods: changelog (all changes, by triggers), changelog-insert (only inserts),
row-version and row-version-insert (a monotonically increasing column, --version-column;
no objects in the source), binlog (MySQL's binary log).
"""

from __future__ import annotations

import argparse

from mutation_api.cdc.update.enable import enable_update
from mutation_api.cdc.update.progress_mark import CaptureMethod
from mutation_api.cli.parsers import add_flag, add_repeatable
from mutation_api.cli.table_arguments import listed_names, metastore_from
from mutation_api.cli.terminal import say, say_aside


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--source",
        required=True,
        metavar="URL",
        help="URL of the source database: postgresql://…, mysql://… or sqlite:////…",
    )
    parser.add_argument(
        "--table", required=True, metavar="DB.TABLE", help="Hive table to keep up to date with the source"
    )
    parser.add_argument(
        "--source-table",
        metavar="NAME",
        help="name of the table in the source (default: the name of the Hive table)",
    )
    parser.add_argument(
        "--key", default="", metavar="A,B", help="columns that identify a row (default: the primary key)"
    )
    parser.add_argument(
        "--method",
        choices=[each.value for each in CaptureMethod],
        default=CaptureMethod.CHANGELOG.value,
        help="how changes are captured (default: %(default)s)",
    )
    parser.add_argument(
        "--version-column",
        default="",
        metavar="NAME",
        help="monotonically increasing column for the row-version methods; on PostgreSQL also xmin",
    )
    parser.add_argument(
        "--overlap",
        default="",
        metavar="N",
        help="how far below its last value the version column is read again, so that late rows are found: "
        "a number, or seconds for a column of times",
    )
    add_flag(parser, "--compare-keys", "find deletes by comparing all keys (only for row-version)")
    add_flag(
        parser,
        "--no-verify-version",
        "do not check for versions that were set back, which reads the column of all rows (only for "
        "row-version; default: check, and compare the whole table if one is found)",
    )
    add_flag(
        parser,
        "--no-verify-key",
        "do not require the key to be the primary key (only for insert-only methods)",
    )
    add_flag(
        parser,
        "--loaded-partitions-only",
        "refuse rows of partitions that do not exist (default: create the partitions)",
    )
    add_flag(
        parser,
        "--already-loaded",
        "copy nothing, because the table is loaded by other means after this command",
    )
    add_repeatable(
        parser, "--ignore-column", "NAME", "source column that the Hive table does not have (repeatable)"
    )
    add_repeatable(
        parser,
        "--null-for",
        "COLUMN",
        "store NULL for values of COLUMN that are not a date in the years 1 to 9999, or not a finite "
        "number: infinity, NaN, years BC, zero dates (repeatable; default: refuse them)",
    )
    parser.add_argument(
        "--time-zone",
        default="UTC",
        metavar="ZONE",
        help="time zone used to convert timestamps with time zone to Hive timestamps (default: UTC)",
    )
    add_flag(parser, "--dry-run", "show the statements for the source without running them")


def run(arguments: argparse.Namespace) -> int:
    """Enable; return 0 if changes are captured."""
    with metastore_from(arguments) as metastore:
        report = enable_update(
            metastore,
            arguments.table,
            arguments.source,
            source_table=arguments.source_table,
            key=listed_names(arguments.key),
            method=arguments.method,
            version_column=arguments.version_column,
            overlap=arguments.overlap,
            compare_keys=arguments.compare_keys,
            verify_version=not arguments.no_verify_version,
            verify_key=not arguments.no_verify_key,
            create_partitions=not arguments.loaded_partitions_only,
            is_loaded=arguments.already_loaded,
            ignored_columns=arguments.ignore_column,
            null_for=arguments.null_for,
            time_zone=arguments.time_zone,
            dry_run=arguments.dry_run,
            progress=say_aside,
        )
    say(report)
    return 0
