"""Arguments that choose the engine, and the tasks that engines are given.

Which engine does the work of a subcommand.

The modules of :mod:`mutation_api.cli` are imported here, by name and when their engine was chosen:
pyspark alone takes longer than a small change set needs from the prompt to its commit.

What an engine is asked to do.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol, TypeVar

import pyarrow as pa

from mutation_api.errors import ConfigurationError, LocalEngineError
from mutation_api.merge.clauses import MergeRules
from mutation_api.merge.file_rules import files_at
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.source_rows import READ_BYTES_MAX
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable, SnapshotView
from mutation_api.transaction.past_snapshot import PastSnapshot
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.forecast import ApplySummary
from mutation_api.write.local_plan import MEMORY_BYTES_DEFAULT, LocalOptions

__all__ = [
    "AUTO",
    "ENGINE_OPTIONS",
    "LOCAL",
    "LOCAL_FILE_BYTES_MAX",
    "SPARK",
    "ApplyFile",
    "CompareStates",
    "DiffTask",
    "FileState",
    "MergeFiles",
    "MergeTask",
    "TableState",
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


def engine_module(engine: str) -> ModuleType:
    """The module that does the work of a subcommand by an engine."""
    if engine == LOCAL:
        _keep_pandas_out()
    return importlib.import_module(f"mutation_api.cli.{engine}_engine")


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


@dataclass(frozen=True)
class MergeTask:
    """A merge of files into a table.

    Attributes:
        table_name: ``database.table``.
        files: the source; all have the same columns.
        format_name: format of the files; None: what the name of each tells.
        keys: key columns.
        rules: what happens to rows.
        null_safe: see :func:`mutation_api.merge_into`.
        missing_columns: likewise.
        write_unchanged: likewise.
        prune_buckets: likewise.
        is_dry_run: only report.
        read_bytes_max: size of the table's files that the local engine reads; None: any.
        local: settings of the local engine.
    """

    table_name: str
    files: Sequence[Location]
    format_name: str | None
    keys: Sequence[str]
    rules: MergeRules
    null_safe: bool
    missing_columns: str
    write_unchanged: bool
    prune_buckets: bool
    is_dry_run: bool
    read_bytes_max: int | None
    local: LocalOptions


class MergeFiles(Protocol):
    """Merges in an open transaction, or reports what that would do."""

    def __call__(self, transaction: Transaction) -> MergeReport: ...


@dataclass(frozen=True)
class TableState:
    """The rows of a table that an open snapshot sees."""

    view: SnapshotView
    table_name: str


@dataclass(frozen=True)
class FileState:
    """The rows in a file."""

    file: Location
    format_name: str


@dataclass(frozen=True)
class DiffTask:
    """The comparison of two states of a table.

    Attributes:
        table: the table.
        old: its rows; changes name their ROW__IDs.
        new: what it is compared with.
        past: one of the two states, if it is an earlier one: its history is checked when the files to read
            are chosen.
        keys: key columns.
        operation_column: name of the operation column.
        output: file for the changes; None: they are only counted.
        output_format: its format.
        local: settings of the local engine.
    """

    table: AcidTable
    old: TableState
    new: TableState | FileState
    past: PastSnapshot | None
    keys: Sequence[str]
    operation_column: str
    output: Location | None
    output_format: str | None
    local: LocalOptions


class CompareStates(Protocol):
    """Compares, saves the changes if that is wanted, and counts them by operation."""

    def __call__(self, task: DiffTask) -> Mapping[str, int]: ...
