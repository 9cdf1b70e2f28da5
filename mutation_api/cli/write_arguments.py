"""Options of the subcommands that write one table in one transaction, and rules of ``hive-mutate merge``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from metastore_client.client import MetastoreClient
from mutation_api.cli.parsers import AnyParser, add_flag, add_repeatable, option_names
from mutation_api.cli.table_arguments import ReportLoss, add_attempts_argument, add_lock_timeout_argument
from mutation_api.cli.terminal import say_aside
from mutation_api.merge.arrow_change_files import ArrowFiles
from mutation_api.merge.clauses import MergeRules
from mutation_api.merge.file_rules import RowColumns
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import TableRole
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.catalog import Catalog, TableSpec, split_full_name
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.upkeep.alter_acid_table import alter_acid_table
from mutation_api.write.layout import OPERATION_COLUMN_DEFAULT

WRITE_LOCKS = ("exclusive", "optimistic")


def add_write_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--create-partitions``, ``--write-lock``, ``--lock-timeout`` and ``--attempts``."""
    add_flag(
        parser, "--create-partitions", "create partitions that do not exist (default: refuse the change set)"
    )
    parser.add_argument(
        "--write-lock",
        choices=WRITE_LOCKS,
        default=WRITE_LOCKS[0],
        help="lock on Hive 4: exclusive excludes other writers, optimistic admits them and the first to "
        "commit wins; earlier releases have only one kind of lock (default: exclusive)",
    )
    add_lock_timeout_argument(parser, "another writer of the table")
    add_attempts_argument(parser)


def add_schema_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--schema``."""
    parser.add_argument(
        "--schema",
        choices=["exact", "add"],
        default="exact",
        help="add: first add to the table the columns that only the files have, as hive-mutate alter-table "
        "does (columns of CSV and JSON files as strings); exact: add no columns (default: exact)",
    )


def add_columns_of(
    metastore: MetastoreClient, arguments: argparse.Namespace, files: Sequence[Location]
) -> None:
    """Add the columns of files to the table, if ``--schema add`` is given. A dry run changes nothing.

    Raises:
        ConfigurationError, RecordLayoutError: If the files cannot be read, or a column cannot be added.
        Other errors: See ``alter_acid_table``.
    """
    if arguments.schema != "add" or arguments.dry_run:
        return
    database, name = split_full_name(arguments.table)
    table = Catalog(metastore).read(TableSpec(database, name, TableRole.SOURCE)).table
    found = ArrowFiles(RowColumns(table, keeps_unknown=True)).read(files[0], arguments.format).schema
    altered = alter_acid_table(
        metastore, arguments.table, add=found, missing_only=True, lock_timeout_seconds=arguments.lock_timeout
    )
    if altered.is_changed:
        say_aside(str(altered))


def add_interval_arguments(parser: AnyParser, prefix: str = "") -> None:
    """Declare the options of a history besides its key and sequence; their names begin with ``prefix``."""
    parser.add_argument(
        f"--{prefix}deletes",
        choices=["close", "ignore", "refuse"],
        default="close",
        help="effect of a delete on a history: close ends the version of the key, ignore leaves it as it is, "
        "refuse is an error (default: close)",
    )
    for name, text in (
        ("valid_from", "column where the interval of a version begins"),
        ("valid_to", "column where the interval of a version ends"),
    ):
        option = f"--{prefix}{name.replace('_', '-')}"
        parser.add_argument(option, default=name, metavar="COLUMN", help=f"{text} (default: %(default)s)")
    parser.add_argument(
        f"--{prefix}current",
        metavar="COLUMN",
        help="boolean column that is true for the last version of a key (default: none)",
    )


def add_operation_column_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--operation-column``."""
    parser.add_argument(
        "--operation-column",
        default=OPERATION_COLUMN_DEFAULT,
        metavar="NAME",
        help="column that contains insert, update or delete (default: %(default)s)",
    )


def writing_client(metastore: MetastoreClient, arguments: argparse.Namespace) -> MutatorClient:
    """Return a client that may write one table. A lost transaction is reported immediately.

    The client is not connected yet.

    Raises:
        ConfigurationError: If the argument is not a table name, or the timeout is not greater than 0.
    """
    builder = MutatorClientBuilder().lock_failure_listener(ReportLoss()).write_lock(arguments.write_lock)
    builder.lock_timeout_seconds(arguments.lock_timeout)
    builder.add_sink_table(arguments.table, create_partitions=arguments.create_partitions)
    return builder.metastore(metastore).build()


RULE_OPTIONS = {
    **option_names("delete_when", "first_by", "insert_when"),
    "inserts=False": "--no-insert",
    "on_duplicate=first_by(…)": "--first-by",
}
"""The option for each name that the library's messages contain."""


def add_rule_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that define the rules."""
    group = parser.add_argument_group("what happens to rows")
    group.add_argument(
        "--delete-when", metavar="SQL", help="delete matched rows for which this condition is true"
    )
    group.add_argument(
        "--update-when", metavar="SQL", help="update only matched rows for which this condition is true"
    )
    add_flag(group, "--no-update", "do not update matched rows")
    group.add_argument(
        "--insert-when", metavar="SQL", help="insert only rows for which this condition is true"
    )
    add_flag(group, "--no-insert", "do not insert rows")
    group.add_argument(
        "--delete-missing-when",
        metavar="SQL",
        help="delete rows of the table that are in no file, if this condition is true for them",
    )
    add_flag(group, "--delete-missing", "delete all rows of the table that are in no file")
    add_repeatable(
        group,
        "--first-by",
        "SQL",
        "if several rows have the same key, use the first row in this order, such as 'updated DESC' "
        "(repeatable; default: duplicate keys are an error)",
    )
    add_flag(group, "--null-safe", "treat NULL keys as equal (in SQL they are not)")
    group.add_argument(
        "--missing-columns",
        choices=("null", "error"),
        default="null",
        help="columns that the files lack: null sets them to NULL on insert and keeps them on update, error "
        "refuses the files (default: null)",
    )
    add_flag(
        group,
        "--write-unchanged",
        "write updated rows without comparing them, even if their values do not change",
    )


def check_rule_usage(arguments: argparse.Namespace) -> None:
    """If rules contradict each other, print the usage and exit."""
    refuse: Callable[[str], None] = arguments.refuse_usage
    for action in ("update", "insert"):
        if getattr(arguments, f"no_{action}") and getattr(arguments, f"{action}_when") is not None:
            refuse(f"use either --no-{action} or --{action}-when")
    if arguments.delete_missing and arguments.delete_missing_when is not None:
        refuse("use either --delete-missing or --delete-missing-when")
    deletes = arguments.delete_missing or arguments.delete_missing_when or arguments.delete_when
    if arguments.no_update and arguments.no_insert and not deletes:
        refuse("--no-update and --no-insert leave nothing to do")


def rules_from(arguments: argparse.Namespace) -> MergeRules:
    """Return the rules that the options define."""
    return MergeRules(
        delete_when=arguments.delete_when,
        update_when=arguments.update_when,
        insert_when=arguments.insert_when,
        delete_missing_when=arguments.delete_missing_when,
        updates=not arguments.no_update,
        inserts=not arguments.no_insert,
        deletes_missing=arguments.delete_missing,
        first_by=tuple(arguments.first_by),
    )
