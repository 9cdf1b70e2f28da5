"""Which engine does the work of a subcommand.

The modules of :mod:`mutation_api.cli.engines` are imported here, by name and when their engine was chosen:
pyspark alone takes longer than a small change set needs from the prompt to its commit.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Protocol, TypeVar

import pyarrow as pa

from mutation_api.change_set.apply_summary import ApplySummary
from mutation_api.changes.files.file_sizes import files_at
from mutation_api.changes.keyed_rows.limits import READ_BYTES_MAX
from mutation_api.client.transaction import Transaction
from mutation_api.errors import ConfigurationError, LocalEngineError
from mutation_api.local.local_options import MEMORY_BYTES_DEFAULT, LocalOptions
from mutation_api.storage.location import Location

__all__ = [
    "AUTO",
    "ENGINE_OPTIONS",
    "LOCAL",
    "LOCAL_FILE_BYTES_MAX",
    "SPARK",
    "ApplyFile",
    "add_engine_argument",
    "add_memory_argument",
    "by_engine",
    "chosen_engine",
    "engine_module",
    "has_spark",
    "local_options",
    "read_bytes_max",
]

AUTO, LOCAL, SPARK = "auto", "local", "spark"
LOCAL_FILE_BYTES_MAX = 64 << 20
"""Bytes of files up to which the local engine is chosen. Spark needs seconds to start."""


ENGINE_OPTIONS: Mapping[str, str] = {"LocalOptions(memory_bytes=…)": "--local-memory"}
"""Names in the library's messages, and the options."""

_INSTALL = "pyspark is not installed: pip install hive-mutation-api[spark]"

_T = TypeVar("_T")


class ApplyFile(Protocol):
    """Applies a file of changes to a table in an open transaction, by one of the engines."""

    def __call__(
        self,
        transaction: Transaction,
        table_name: str,
        file: Location,
        format_name: str,
        *,
        operation_column: str,
        verify_row_ids: bool,
    ) -> ApplySummary: ...


def add_engine_argument(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, small: str = "for files of at most {} MiB"
) -> None:
    """Declare ``--engine``; ``small``: when AUTO is local, ``{}`` being the limit."""
    parser.add_argument(
        "--engine",
        choices=(AUTO, SPARK, LOCAL),
        default=AUTO,
        help=f"what does the work: Spark, or this process alone, without Java (local). The default, auto, is "
        f"local {small.format(LOCAL_FILE_BYTES_MAX >> 20)}, and where pyspark is not installed",
    )


def add_memory_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--local-memory``."""
    parser.add_argument(
        "--local-memory",
        type=_mebibytes,
        default=MEMORY_BYTES_DEFAULT >> 20,
        metavar="MIB",
        help="what the local engine may hold in memory; what does not fit is left to Spark, or refused with "
        "--engine local (default: %(default)s)",
    )


def local_options(arguments: argparse.Namespace) -> LocalOptions:
    """What the options say of the local engine."""
    return LocalOptions(memory_bytes=arguments.local_memory << 20)


def chosen_engine(
    given: str, files: Sequence[Location], *, table_bytes: int = 0, only_spark: str | None = None
) -> str:
    """LOCAL or SPARK: the given engine, or for AUTO the one that suits the files.

    Files that the local engine cannot list are left to Spark, which may be configured otherwise.

    Args:
        given: AUTO, LOCAL or SPARK.
        files: the user's files that are read.
        table_bytes: size of a table's files that are read, too.
        only_spark: why only Spark can do it; None if both can.

    Raises:
        ConfigurationError: Spark was given or is needed, and pyspark is not installed; or LOCAL was given,
            and Spark is needed.
    """
    is_installed = has_spark()
    if given == SPARK and not is_installed:
        raise ConfigurationError(f"--engine spark: {_INSTALL}")
    if only_spark is not None and given == LOCAL:
        raise ConfigurationError(f"--engine local: {only_spark}. Change that, or leave it to --engine spark")
    if only_spark is not None and not is_installed:
        raise ConfigurationError(f"{only_spark}. Change that, or let Spark do it; {_INSTALL}")
    if given == AUTO:
        is_local = not is_installed or (only_spark is None and _are_small(files, table_bytes))
        return LOCAL if is_local else SPARK
    return given


def by_engine(
    given: str, files: Sequence[Location], work: Callable[[str], _T], *, table_bytes: int = 0
) -> tuple[str, _T]:
    """Do the work of a subcommand by the engine that suits it.

    For AUTO Spark does what the local engine turns out to leave to it. That is known before anything is
    written, so ``work`` may begin anew.

    Args:
        given: as of :func:`chosen_engine`.
        files: likewise.
        work: does it by LOCAL or SPARK, in a transaction of its own.
        table_bytes: as of :func:`chosen_engine`.

    Returns:
        The engine, and what the work returned.

    Raises:
        ConfigurationError: see :func:`chosen_engine`. Others as the work.
    """
    engine = chosen_engine(given, files, table_bytes=table_bytes)
    try:
        return engine, work(engine)
    except LocalEngineError as error:
        if engine == SPARK:
            raise
        try:
            engine = chosen_engine(given, files, only_spark=str(error))
        except ConfigurationError as refused:
            raise refused from error
    return engine, work(engine)


def read_bytes_max(given: str) -> int | None:
    """Size of a table's files that the local engine reads by itself; None: any, as nobody else may."""
    return READ_BYTES_MAX if given == AUTO and has_spark() else None


def engine_module(command: str, engine: str) -> ModuleType:
    """The module that does the work of a subcommand by an engine."""
    if engine == LOCAL:
        _keep_pandas_out()
    return importlib.import_module(f"mutation_api.cli.engines.{command}_by_{engine}")


def _mebibytes(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of MiB, at least 1")
    return int(text)


def has_spark() -> bool:
    """Whether pyspark is installed."""
    return importlib.util.find_spec("pyspark") is not None


def _are_small(files: Sequence[Location], table_bytes: int) -> bool:
    try:
        sizes = [entry.size for file in files for entry in files_at(file)]
    except ConfigurationError:
        return False
    return sum(sizes) + table_bytes <= LOCAL_FILE_BYTES_MAX


class _WithoutPandas(importlib.abc.MetaPathFinder):
    """Pandas looks as if it were not installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raise ModuleNotFoundError for it, and find nothing else."""
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is not wanted yet", name=fullname)


def _keep_pandas_out() -> None:
    """Keep pyarrow from importing pandas when it makes its first array, to see whether it is given a Series.

    Measured: that takes 0.23 s, a quarter of a small command. It still imports pandas where it is needed.
    """
    if "pandas" not in sys.modules:
        finder = _WithoutPandas()
        sys.meta_path.insert(0, finder)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(finder)
