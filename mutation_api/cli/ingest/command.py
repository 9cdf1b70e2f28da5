"""``hive-mutate ingest``: apply the operations of a change source to Hive tables, exactly once.

The operations become visible in all tables in one transaction, together with the watermark, which is the
position up to which the source has been applied. The next run continues from there. A run that is repeated,
or was killed at any point, therefore neither loses an operation nor applies one twice. "hive-mutate
watermarks" shows the watermarks.

If there is little new data (--engine), this process does the work without Java. Otherwise Spark does it, with
the same result.

KIND is the kind of source; "hive-mutate ingest KIND --help" explains its arguments.
"""

from __future__ import annotations

import argparse
import functools
import importlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from time import sleep
from types import ModuleType

from mutation_api.cdc.choice import EngineBySize
from mutation_api.cdc.engine import AnySource, Engine
from mutation_api.cdc.ingest import IngestOptions, ingest_by
from mutation_api.cdc.ingest_report import IngestReport
from mutation_api.cdc.mappings import (
    POSITION_COLUMN_DEFAULT,
    AnyMapping,
    ChangesMapping,
    HistoryMapping,
    TableMapping,
)
from mutation_api.cdc.source import CHANGED_AT, POSITION
from mutation_api.cli import engine_arguments
from mutation_api.cli.cluster_arguments import add_cluster_arguments
from mutation_api.cli.engine_arguments import engine_opener
from mutation_api.cli.ingest.log_arguments import TABLE_MAP_FORM, table_map
from mutation_api.cli.parsers import add_flag, add_repeatable, describe, parser_of_modules
from mutation_api.cli.table_arguments import (
    ReportLoss,
    add_attempts_argument,
    add_lock_timeout_argument,
    add_metastore_arguments,
    listed_names,
    metastore_from,
)
from mutation_api.cli.terminal import progress, say_report
from mutation_api.cli.write_arguments import add_interval_arguments
from mutation_api.errors import ConfigurationError, StoppedAtStatementError
from mutation_api.transaction.attempts import Attempts

APP_NAME = "hive-mutate ingest"

KINDS = {
    "canal": "flat JSON messages of Canal or TiCDC, in files or Kafka",
    "collector": "raw files of a binlog collector",
    "debezium": "messages of Debezium's connectors, in files or Kafka",
    "maxwell": "messages of Maxwell's daemon, in files or Kafka",
    "mysql": "tables of a MySQL or MariaDB server: first all rows, then its binary log",
    "tungsten": "staging files of Tungsten Replicator's Hadoop applier",
}
"""The name and help of each kind of source.

Its module, ``mutation_api.cli.ingest.…``, has ``add_arguments(parser)``, ``source_from(arguments)`` and
``tables_from(arguments)``, which returns the source's name, DB.TABLE and key columns of each table. It is
imported only when it runs, so that the packages for the other kinds are not needed.
"""

_ENDING = """
The tables must exist. Only the last operation on each key is kept and merged: the row is deleted, updated or
inserted. Operations that contradict each other or the rows of the table are normal if a part of a log is
applied again. They are counted, or refused with --strict.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare a sub-parser for each kind of source."""
    describe(parser, __doc__)
    parser_class = parser_of_modules(_module, "{name}", _add_common_arguments)
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True, parser_class=parser_class)
    for name, help_line in KINDS.items():
        kinds.add_parser(name, help=help_line, epilog=_ENDING)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"mutation_api.cli.ingest.{name}")


def run(arguments: argparse.Namespace) -> int:
    """Ingest and print the report; return 0 if all new operations are committed, or if there are none."""
    if arguments.follow is not None and (arguments.dry_run or arguments.follow <= 0):
        arguments.refuse_usage("--follow requires seconds above 0 and cannot be combined with --dry-run")
    module = _module(arguments.kind)
    with ExitStack() as stack:
        engine_of = engine_opener(arguments.engine, APP_NAME, stack)
        source: AnySource = module.source_from(arguments)
        if isinstance(source, AbstractContextManager):
            stack.enter_context(source)
        metastore = stack.enter_context(metastore_from(arguments))
        engine = engine_of(source)
        attempts = Attempts(arguments.attempts)
        once = functools.partial(
            ingest_by, engine, metastore, _tables(module, arguments, engine), source, _options(arguments)
        )

        def ingest() -> IngestReport:
            return attempts.run(APP_NAME, lambda _: once())

        try:
            say_report(ingest(), as_json=arguments.json)
            while arguments.follow is not None:
                sleep(arguments.follow)
                report = ingest()
                if report.position is not None:
                    say_report(report, as_json=arguments.json)
        except StoppedAtStatementError as stopped:
            if isinstance(stopped.report, IngestReport) and stopped.report.position is not None:
                say_report(stopped.report, as_json=arguments.json)
            raise
    return 0


def _tables(module: ModuleType, arguments: argparse.Namespace, engine: Engine) -> list[AnyMapping]:
    """Return the tables; for this, a source may list its files."""
    look = functools.partial(_mappings, module, arguments)
    return engine.reaching(look) if isinstance(engine, EngineBySize) else look()


def _mappings(module: ModuleType, arguments: argparse.Namespace) -> list[AnyMapping]:
    tables: list[AnyMapping] = [TableMapping(*each) for each in module.tables_from(arguments)]
    names = [each.source_table for each in tables]
    for name, target, key in arguments.history:
        tables.append(
            HistoryMapping(
                _followed_name(module, arguments, name, names, f"--history {target}"),
                target,
                key,
                sequence=arguments.history_sequence,
                position=arguments.position_column,
                deletes=arguments.history_deletes,
                valid_from=arguments.history_valid_from,
                valid_to=arguments.history_valid_to,
                current=arguments.history_current,
            )
        )
    for name, target, key in arguments.changes:
        followed = _followed_name(module, arguments, name, names, f"--changes {target}")
        tables.append(ChangesMapping(followed, target, key, position=arguments.position_column))
    return tables


def _followed_name(
    module: ModuleType, arguments: argparse.Namespace, given: str | None, names: Sequence[str], option: str
) -> str:
    """Return the source's name of the table that a history or a table of changes follows."""
    if given is not None:
        full_name = getattr(module, "full_name", None)
        return given if full_name is None else str(full_name(arguments, given))
    if len(names) == 1:
        return names[0]
    raise ConfigurationError(
        f"{option}: which table of the source does it follow? Put its name before the table's, as in "
        f"{TABLE_MAP_FORM}; it can be left out only if the run has one source table (it has "
        f"{', '.join(names) or 'none'})"
    )


def _kept_target(text: str) -> tuple[str | None, str, tuple[str, ...]]:
    """Parse ``[NAME=]DB.TABLE[:A,B]``."""
    if "=" in text:
        return table_map(text)
    target, _, key = text.partition(":")
    return None, target, listed_names(key)


def _add_kept_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments for histories and tables of changes."""
    group = parser.add_argument_group(
        "histories and changes",
        "Beside its table of rows, or instead of it, a source table can feed a history (slowly\nchanging "
        "dimension, type 2) and a table of all changes, in the same transaction.",
    )
    form = f"[{TABLE_MAP_FORM.replace('=', '=]')}"  # NAME= is optional here
    add_repeatable(
        group,
        "--history",
        form,
        "history table that gets a row for each version of the rows of source table NAME; NAME can be "
        "left out if the run has one source table (repeatable)",
        type=_kept_target,
    )
    add_repeatable(
        group,
        "--changes",
        form,
        "table that gets a row for each change of source table NAME, with the columns operation and, if "
        "it has it, changed_at (repeatable)",
        type=_kept_target,
    )
    group.add_argument(
        "--history-sequence",
        default=CHANGED_AT,
        metavar="COLUMN",
        help=f"source column with the point at which a version begins, {CHANGED_AT} for the time at which "
        f"the source made the change (in UTC), or {POSITION} for its position in the log "
        "(default: %(default)s)",
    )
    add_interval_arguments(group, "history-")
    group.add_argument(
        "--position-column",
        default=POSITION_COLUMN_DEFAULT,
        metavar="COLUMN",
        help="string column of histories and tables of changes that gets the position of a change in the log "
        "(default: %(default)s)",
    )


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    _add_kept_arguments(parser)
    group = parser.add_argument_group("how operations are applied")
    group.add_argument(
        "--watermark-table",
        metavar="DB.TABLE",
        help="table that stores the watermarks; created if missing (default: mutation_watermarks in the "
        "database of the tables). Runs that share it wait for each other",
    )
    add_flag(group, "--strict", "refuse inserts of existing keys, and updates and deletes of missing keys")
    add_flag(group, "--create-partitions", "create partitions that do not exist (default: refuse)")
    add_lock_timeout_argument(group, "another run or another writer of the tables")
    add_attempts_argument(group)
    group.add_argument(
        "--follow",
        type=float,
        metavar="SECONDS",
        help="after each run, wait SECONDS and look for new operations, until interrupted",
    )
    engine_arguments.add_engine_argument(group, "if at most {} MiB of the log are new")
    add_flag(group, "--dry-run", "report what would be done without writing anything")
    add_flag(group, "--json", "print the report of each run as one JSON object")
    add_flag(group, "--quiet", "do not report each step on standard error")
    add_cluster_arguments(parser)
    add_metastore_arguments(parser)


def _options(arguments: argparse.Namespace) -> IngestOptions:
    return IngestOptions(
        watermark_table=arguments.watermark_table,
        dry_run=arguments.dry_run,
        strict=arguments.strict,
        create_partitions=arguments.create_partitions,
        schema=getattr(arguments, "schema", "exact"),
        user=arguments.user,
        lock_timeout_seconds=arguments.lock_timeout,
        lock_failure_listener=ReportLoss(),
        progress=progress(arguments),
    )
