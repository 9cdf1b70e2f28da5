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
import json
from contextlib import AbstractContextManager, ExitStack
from time import sleep
from types import ModuleType
from typing import Any

from mutation_api.cdc.choice import EngineBySize
from mutation_api.cdc.engine import AnySource, Engine
from mutation_api.cdc.ingest import IngestOptions, TableMapping, ingest_by
from mutation_api.cdc.ingest_report import IngestReport
from mutation_api.cdc.local_engine import LocalEngine
from mutation_api.cli import engine_arguments
from mutation_api.cli.cluster_arguments import add_cluster_arguments
from mutation_api.cli.engine_arguments import LOCAL, SPARK, chosen_engine, engine_module
from mutation_api.cli.parsers import parser_of_modules
from mutation_api.cli.table_arguments import (
    ReportLoss,
    add_attempts_argument,
    add_lock_timeout_argument,
    add_metastore_arguments,
    metastore_from,
)
from mutation_api.cli.terminal import progress, say
from mutation_api.errors import StoppedAtStatementError
from mutation_api.transaction.attempts import Attempts

__all__ = ["KINDS", "add_arguments", "run"]

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
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (__doc__ or "").partition("\n\n")[2]
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
    is_by_spark = chosen_engine(arguments.engine, ()) == SPARK
    # Do this before creating any array, since it prevents the import of pandas.
    here: LocalEngine | None = None if is_by_spark else engine_module(LOCAL).ENGINE
    source: AnySource = module.source_from(arguments)
    with ExitStack() as stack:
        if isinstance(source, AbstractContextManager):
            stack.enter_context(source)
        metastore = stack.enter_context(metastore_from(arguments))
        engine = _opened_engine(arguments.engine, here, stack)
        engine.check(source)
        attempts = Attempts(arguments.attempts)
        once = functools.partial(
            ingest_by, engine, metastore, _tables(module, arguments, engine), source, _options(arguments)
        )

        def ingest() -> IngestReport:
            return attempts.run(APP_NAME, lambda _: once())

        try:
            _print(ingest(), arguments)
            while arguments.follow is not None:
                sleep(arguments.follow)
                report = ingest()
                if report.position is not None:
                    _print(report, arguments)
        except StoppedAtStatementError as stopped:
            if isinstance(stopped.report, IngestReport) and stopped.report.position is not None:
                _print(stopped.report, arguments)
            raise
    return 0


def _opened_engine(given: str, here: LocalEngine | None, stack: ExitStack) -> Engine:
    """Return the engine; Spark starts when it is first needed, and stays for the runs that follow.

    ``here`` is the engine of this process, or None if Spark was requested.
    """

    @functools.cache
    def spark() -> Any:
        return stack.enter_context(engine_module(SPARK).open_ingest(APP_NAME))

    if here is None:
        engine: Engine = spark()
        return engine
    if given == LOCAL or not engine_arguments.has_spark():
        return here
    return EngineBySize(here, engine_arguments.LOCAL_FILE_BYTES_MAX, spark)


def _tables(module: ModuleType, arguments: argparse.Namespace, engine: Engine) -> list[TableMapping]:
    """Return the tables; for this, a source may list its files."""
    look = functools.partial(module.tables_from, arguments)
    found = engine.reaching(look) if isinstance(engine, EngineBySize) else look()
    return [TableMapping(*each) for each in found]


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how operations are applied")
    group.add_argument(
        "--watermark-table",
        metavar="DB.TABLE",
        help="table that stores the watermarks; created if missing (default: mutation_watermarks in the "
        "database of the tables). Runs that share it wait for each other",
    )
    group.add_argument(
        "--strict",
        action="store_true",
        help="refuse inserts of existing keys, and updates and deletes of missing keys",
    )
    group.add_argument(
        "--create-partitions",
        action="store_true",
        help="create partitions that do not exist (default: refuse)",
    )
    add_lock_timeout_argument(group, "another run or another writer of the tables")
    add_attempts_argument(group)
    group.add_argument(
        "--follow",
        type=float,
        metavar="SECONDS",
        help="after each run, wait SECONDS and look for new operations, until interrupted",
    )
    engine_arguments.add_engine_argument(group, "if at most {} MiB of the log are new")
    group.add_argument(
        "--dry-run", action="store_true", help="report what would be done without writing anything"
    )
    group.add_argument("--json", action="store_true", help="print the report of each run as one JSON object")
    group.add_argument("--quiet", action="store_true", help="do not report each step on standard error")
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


def _print(report: IngestReport, arguments: argparse.Namespace) -> None:
    say(json.dumps(report.to_dict()) if arguments.json else report, flush=True)
