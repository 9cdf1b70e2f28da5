"""``hive-mutate delete``, ``update-rows``, ``upsert``, ``overwrite``, ``track``, ``truncate``: change rows.

Each command is one transaction. With --attempts, it is repeated if another writer commits first:

  hive-mutate delete sales.orders --where "day < date '2024-01-01'"
  hive-mutate update-rows sales.orders --set "price = price * 1.1" --where "item = 'tea'"
  hive-mutate upsert sales.orders new.csv --key id
  hive-mutate overwrite sales.orders may.parquet --partitions dynamic
  hive-mutate track sales.prices changes.csv --key item --sequence updated_at
  hive-mutate truncate sales.orders

Conditions and values are SQL over the table's columns, with the functions and operators that "hive-mutate
merge --help" lists. A row for which a condition is NULL is not changed. Files have the table's columns in any
order and case, as for "hive-mutate merge". With --dry-run, nothing is written.

"track" keeps the history of keys, one row per version, with its interval in valid_from and valid_to. Its
files have the columns of a version, the column of --sequence, and possibly an operation for deletes.

With --engine auto, Spark does the work that the local engine refuses: conditions with other SQL, and rows
that need more memory than --local-memory.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from types import MappingProxyType

from mutation_api.cli.cluster_arguments import add_cluster_arguments
from mutation_api.cli.engine_arguments import (
    ENGINE_OPTIONS,
    VerbTable,
    add_engine_argument,
    add_memory_argument,
    by_engine,
    local_options,
    opened_commands,
)
from mutation_api.cli.parsers import add_flag, add_repeatable, describe, in_option_names
from mutation_api.cli.table_arguments import (
    add_format_argument,
    add_key_argument,
    add_metastore_arguments,
    input_format,
    key_columns,
    key_values,
    listed_names,
    location_from,
    metastore_from,
    optional_names,
)
from mutation_api.cli.terminal import Report, say_report
from mutation_api.cli.write_arguments import (
    add_columns_of,
    add_interval_arguments,
    add_operation_column_argument,
    add_schema_argument,
    add_write_arguments,
    writing_client,
)
from mutation_api.errors import ConfigurationError
from mutation_api.format.hive_type import parse_hive_type, spark_type
from mutation_api.merge.file_rules import RowColumns, existing_file
from mutation_api.transaction.attempts import Attempts
from mutation_api.transaction.catalog import split_full_name

_OPTIONS = {"on": "--key", "partitions": "--partitions", "where": "--where", **ENGINE_OPTIONS}
_FROM_FILES = ("upsert", "overwrite", "track")
_BY_CONDITION = ("delete", "update-rows", "overwrite")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command, which is the last word of the parser's name."""
    command = parser.prog.split()[-1]
    describe(parser, __doc__)
    parser.add_argument("table", metavar="DB.TABLE", help="table to change")
    if command in _FROM_FILES:
        files = "files or directories of rows; all have the same columns"
        parser.add_argument("files", nargs="+", type=location_from, metavar="FILE", help=files)
        add_format_argument(parser, "format of the files (default: by each file's extension)")
    if command == "upsert":
        add_key_argument(
            parser, "columns that identify a row (default: the table's primary key)", is_required=False
        )
        add_schema_argument(parser)
    if command == "track":
        _add_history_arguments(parser)
    if command == "update-rows":
        parser.add_argument(
            "--set",
            required=True,
            action="append",
            metavar="COLUMN=SQL",
            help='new value of a column, such as "price = price * 1.1" (repeatable)',
        )
    if command in _BY_CONDITION:
        parser.add_argument(
            "--where",
            required=command == "delete",
            metavar="SQL",
            help="condition of the rows to change (to delete all rows, use truncate)"
            if command == "delete"
            else "condition of the rows to change (default: all rows)",
        )
    if command == "overwrite":
        parser.add_argument(
            "--partitions",
            choices=["dynamic"],
            help="replace the partitions to which the new rows belong (default: replace the whole table)",
        )
        add_repeatable(
            parser,
            "--partition",
            "COLUMN=VALUE[,COLUMN=VALUE]",
            "replace the partitions with these values (repeatable)",
        )
    add_flag(parser, "--dry-run", "report what would be done, but write nothing")
    add_write_arguments(parser)
    add_engine_argument(parser)
    add_cluster_arguments(parser)
    add_memory_argument(parser)
    add_flag(parser, "--json", "print the report as one JSON object")
    add_metastore_arguments(parser)


def _add_history_arguments(parser: argparse.ArgumentParser) -> None:
    add_key_argument(parser, "columns that identify a key")
    parser.add_argument(
        "--sequence",
        required=True,
        metavar="A,B",
        help="column that orders the changes of a key; further columns decide ties",
    )
    parser.add_argument("--columns", metavar="A,B", help="columns of a version (default: all others)")
    add_interval_arguments(parser)
    add_operation_column_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Change the rows and print the report.

    Return 0 if the transaction is committed, or if it was a dry run.
    """
    split_full_name(arguments.table)
    arguments.files = files = [existing_file(file) for file in getattr(arguments, "files", ())]
    for file in files:
        input_format(file, arguments.format)
    if arguments.subcommand == "upsert" and arguments.schema == "add":
        with in_option_names(_OPTIONS), metastore_from(arguments) as metastore:
            add_columns_of(metastore, arguments, files)
    with in_option_names(_OPTIONS):
        engine, report = by_engine(arguments.engine, files, lambda engine: _changed(engine, arguments))
    say_report(report, as_json=arguments.json, engine=engine)
    return 0


def _changed(engine: str, arguments: argparse.Namespace) -> Report:
    """Change the rows with an engine, in one transaction."""
    app_name = f"hive-mutate {arguments.subcommand}"
    change = _CHANGES[arguments.subcommand]
    with opened_commands(engine, app_name) as commands:

        def attempt(_: int) -> Report:
            with (
                metastore_from(arguments) as metastore,
                writing_client(metastore, arguments) as client,
                commands.open_table(
                    client, arguments.table, local_options(arguments), is_dry_run=arguments.dry_run
                ) as table,
            ):
                return change(table, arguments)

        return Attempts(arguments.attempts).run(app_name, attempt)


def _delete(table: VerbTable, arguments: argparse.Namespace) -> Report:
    return table.verbs.delete(where=arguments.where, dry_run=arguments.dry_run)


def _update(table: VerbTable, arguments: argparse.Namespace) -> Report:
    values = {}
    for each in arguments.set:
        column, sign, value = each.partition("=")
        if not (sign and column.strip() and value.strip()):
            arguments.refuse_usage(f"argument --set: expected COLUMN=SQL, got {each!r}")
        if column.strip().lower() in values:
            arguments.refuse_usage(f"argument --set: column {column.strip()} is set twice")
        values[column.strip().lower()] = value.strip()
    return table.verbs.update(set=values, where=arguments.where, dry_run=arguments.dry_run)


def _upsert(table: VerbTable, arguments: argparse.Namespace) -> Report:
    key = None if arguments.key is None else key_columns(arguments.key)
    return table.verbs.upsert(_rows(table, arguments), key, dry_run=arguments.dry_run)


def _track(table: VerbTable, arguments: argparse.Namespace) -> Report:
    sequence = listed_names(arguments.sequence)
    types = {column.name: column.type for column in table.verbs.descriptor.all_columns}
    point = types.get(arguments.valid_from.lower(), "string")  # a missing column is refused later
    others = {
        arguments.operation_column: "string",
        **dict.fromkeys(sequence[:1], spark_type(parse_hive_type(point))),
    }
    rows = _rows(
        table,
        arguments,
        {name: kind for name, kind in others.items() if name.lower() not in types},
        keeps_unknown=arguments.columns is not None,
    )
    return table.verbs.track(
        rows,
        key_columns(arguments.key),
        sequence,
        columns=optional_names(arguments.columns),
        deletes=arguments.deletes,
        operation_column=arguments.operation_column,
        valid_from=arguments.valid_from,
        valid_to=arguments.valid_to,
        current=arguments.current,
        dry_run=arguments.dry_run,
    )


def _overwrite(table: VerbTable, arguments: argparse.Namespace) -> Report:
    named = [dict(key_values("--partition", each.split(","))) for each in arguments.partition]
    if arguments.partitions and named:
        raise ConfigurationError("pass either --partitions or --partition, not both")
    partitions = arguments.partitions or named or None
    return table.verbs.overwrite(
        _rows(table, arguments), partitions=partitions, where=arguments.where, dry_run=arguments.dry_run
    )


def _truncate(table: VerbTable, arguments: argparse.Namespace) -> Report:
    return table.verbs.truncate(dry_run=arguments.dry_run)


_CHANGES: dict[str, Callable[[VerbTable, argparse.Namespace], Report]] = {
    "delete": _delete,
    "update-rows": _update,
    "upsert": _upsert,
    "overwrite": _overwrite,
    "track": _track,
    "truncate": _truncate,
}


def _rows(
    table: VerbTable,
    arguments: argparse.Namespace,
    others: Mapping[str, str] = MappingProxyType({}),
    *,
    keeps_unknown: bool = False,
) -> object:
    """Return the rows of the files. ``others`` are further columns and their Spark types."""
    columns = RowColumns(table.verbs.descriptor, others, keeps_unknown=keeps_unknown)
    return table.read(columns, arguments.files, arguments.format)
