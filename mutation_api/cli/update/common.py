"""What the actions of ``hive-mutate update`` share: words on standard error, the engine, the tables meant."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from metastore_client.client import MetastoreClient
from mutation_api.cli.arguments import engine_arguments
from mutation_api.cli.arguments.engine_arguments import LOCAL, SPARK, chosen_engine, engine_module
from mutation_api.cli.arguments.lock_arguments import add_lock_timeout_argument
from mutation_api.cli.arguments.metastore_arguments import ReportLoss
from mutation_api.cli.arguments.progress import progress
from mutation_api.errors import ConfigurationError
from mutation_api.inputs.engines.choice import EngineBySize
from mutation_api.inputs.engines.engine import Engine
from mutation_api.update.extract import ExtractOptions
from mutation_api.update.sources import AnyCapture
from mutation_api.update.tables import enabled_tables

__all__ = ["add_run_arguments", "engine_of", "extract_options", "tables_of"]

APP_NAME = "hive-mutate update"


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --engine, --lock-timeout and --quiet."""
    add_lock_timeout_argument(parser, "another extraction, or another writer of the table")
    engine_arguments.add_engine_argument(parser, "if at most {} MiB of rows are new")
    parser.add_argument("--quiet", action="store_true", help="do not report each step on standard error")


def extract_options(arguments: argparse.Namespace, *, dry_run: bool = False) -> ExtractOptions:
    """The options of an extraction."""
    return ExtractOptions(
        dry_run=dry_run,
        user=arguments.user,
        lock_timeout_seconds=arguments.lock_timeout,
        listener=ReportLoss(),
        progress=progress(arguments),
    )


def engine_of(arguments: argparse.Namespace, stack: ExitStack) -> Callable[[AnyCapture], Engine]:
    """Gives the engine for a source; Spark starts when it is first needed, and stays."""

    @functools.cache
    def spark() -> Any:
        return stack.enter_context(engine_module("ingest", SPARK).opened(APP_NAME))

    is_by_spark = chosen_engine(arguments.engine, ()) == SPARK
    here = None if is_by_spark else engine_module("ingest", LOCAL).ENGINE

    def engine(source: AnyCapture) -> Engine:
        found: Engine = spark() if here is None else here
        if here is not None and arguments.engine != LOCAL and engine_arguments.has_spark():
            found = EngineBySize(here, engine_arguments.LOCAL_FILE_BYTES_MAX, spark)
        found.check(source)
        return found

    return engine


def tables_of(arguments: argparse.Namespace, metastore: MetastoreClient) -> list[str]:
    """The tables of --table and --database. Raises ConfigurationError: there are none."""
    if arguments.table:
        return list(arguments.table)
    found = [name for name, _ in enabled_tables(metastore, [arguments.database])]
    if not found:
        raise ConfigurationError(f"no table of database {arguments.database} has incremental update enabled")
    return found
