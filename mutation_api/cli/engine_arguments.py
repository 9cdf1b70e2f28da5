"""The choice of the engine that does the work of a subcommand, and the tasks that engines receive.

The modules of :mod:`mutation_api.cli` are imported here by name, after their engine was chosen:
importing pyspark alone takes longer than a small change set takes from the prompt to its commit.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

import pyarrow as pa

from mutation_api.cli.parsers import AnyParser
from mutation_api.cli.terminal import Report
from mutation_api.errors import ConfigurationError, UnsupportedLocallyError
from mutation_api.merge.clauses import MergeOptionsDict, MergeRules
from mutation_api.merge.file_rules import RowColumns, files_at
from mutation_api.merge.history import HistoryOptionsDict
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.source_rows import READ_BYTES_MAX
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable, SnapshotView
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.past_snapshot import PastSnapshot
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.forecast import ApplySummary
from mutation_api.write.local_plan import MEMORY_BYTES_DEFAULT, LocalOptions

if TYPE_CHECKING:
    from mutation_api.cdc.engine import AnySource, Engine

AUTO, LOCAL, SPARK = "auto", "local", "spark"
LOCAL_FILE_BYTES_MAX = 64 << 20
"""The size of files, in bytes, up to which the local engine is chosen. Spark takes seconds to start."""


ENGINE_OPTIONS: Mapping[str, str] = {"LocalOptions(memory_bytes=…)": "--local-memory"}
"""The option for each name that the library's messages contain."""

_INSTALL = "pyspark is not installed: pip install hive-mutation-api[spark]"

_T = TypeVar("_T")


class TableVerbs(Protocol):
    """The verbs of one engine for a table of an open transaction; see ``HiveTable``."""

    @property
    def descriptor(self) -> AcidTable:
        """The table's descriptor."""

    def delete(self, *, where: str, dry_run: bool) -> Report:
        """Delete rows by a condition."""

    def update(self, *, set: Mapping[str, str], where: str | None, dry_run: bool) -> Report:
        """Update rows by a condition."""

    def upsert(self, data: Any, on: Sequence[str] | None, *, dry_run: bool) -> Report:
        """Update or insert rows by key."""

    def overwrite(
        self,
        data: Any,
        *,
        partitions: str | Sequence[Mapping[str, object]] | None,
        where: str | None,
        dry_run: bool,
    ) -> Report:
        """Replace rows."""

    def track(
        self,
        changes: Any,
        key: Sequence[str],
        sequence: Sequence[str],
        *,
        dry_run: bool,
        **options: Unpack[HistoryOptionsDict],
    ) -> Report:
        """Add changes to a history."""

    def truncate(self, *, dry_run: bool) -> Report:
        """Delete all rows."""


@dataclass(frozen=True)
class VerbTable:
    """A table in a transaction, with the verbs of one engine.

    ``read`` returns the rows of files in the form that the verbs take.
    """

    verbs: TableVerbs
    read: Callable[[RowColumns, Sequence[Location], str | None], object]


def add_engine_argument(parser: AnyParser, small: str = "for files of at most {} MiB") -> None:
    """Declare ``--engine``.

    Args:
        parser: the parser to which the option is added.
        small: the condition under which AUTO means the local engine. ``{}`` stands for the limit.
    """
    parser.add_argument(
        "--engine",
        choices=(AUTO, SPARK, LOCAL),
        default=AUTO,
        help=f"engine that does the work: spark, or local, which uses this process alone, without Java. auto "
        f"is local {small.format(LOCAL_FILE_BYTES_MAX >> 20)}, or without pyspark (default: auto)",
    )


def add_memory_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--local-memory``."""
    parser.add_argument(
        "--local-memory",
        type=_mebibytes,
        default=MEMORY_BYTES_DEFAULT >> 20,
        metavar="MIB",
        help="memory that the local engine may use, in MiB; larger work is left to Spark, or refused with "
        "--engine local (default: %(default)s)",
    )


def local_options(arguments: argparse.Namespace) -> LocalOptions:
    """Return the settings of the local engine that the options define."""
    return LocalOptions(memory_bytes=arguments.local_memory << 20)


def chosen_engine(
    given: str, files: Sequence[Location], *, table_bytes: int = 0, only_spark: str | None = None
) -> str:
    """Return LOCAL or SPARK: the given engine, or for AUTO the engine that suits the files.

    Files that the local engine cannot list are left to Spark, whose configuration may differ.

    Args:
        given: AUTO, LOCAL or SPARK.
        files: the user's files to read.
        table_bytes: the size of the table's files that are also read.
        only_spark: the reason why only Spark can do the work. If None, both engines can.

    Raises:
        ConfigurationError: If Spark was given or is needed but pyspark is not installed, or if LOCAL was
            given but Spark is needed.
    """
    is_installed = has_spark()
    if given == SPARK and not is_installed:
        raise ConfigurationError(f"--engine spark: {_INSTALL}")
    if only_spark is not None and given == LOCAL:
        raise ConfigurationError(f"--engine local: {only_spark}. Change this, or use --engine spark")
    if only_spark is not None and not is_installed:
        raise ConfigurationError(f"{only_spark}. Change this, or use Spark; {_INSTALL}")
    if given == AUTO:
        is_local = not is_installed or (only_spark is None and _are_small(files, table_bytes))
        return LOCAL if is_local else SPARK
    return given


def by_engine(
    given: str, files: Sequence[Location], work: Callable[[str], _T], *, table_bytes: int = 0
) -> tuple[str, _T]:
    """Do the work of a subcommand with the engine that suits it.

    For AUTO, if the local engine refuses the work, Spark does it. The local engine refuses before anything
    is written, so ``work`` can start again.

    Args:
        given: AUTO, LOCAL or SPARK. See :func:`chosen_engine`.
        files: the user's files to read.
        work: a function that does the work with LOCAL or SPARK, in its own transaction.
        table_bytes: the size of the table's files that are also read.

    Returns:
        The engine, and the result of ``work``.

    Raises:
        ConfigurationError: If the engine cannot be used. See :func:`chosen_engine`.

    Errors of ``work`` are passed on.
    """
    engine = chosen_engine(given, files, table_bytes=table_bytes)
    try:
        return engine, work(engine)
    except UnsupportedLocallyError as error:
        if engine == SPARK:
            raise
        try:
            engine = chosen_engine(given, files, only_spark=str(error))
        except ConfigurationError as refused:
            raise refused from error
    return engine, work(engine)


def read_bytes_max(given: str) -> int | None:
    """Return the maximum number of bytes that the local engine reads of a table. None means no limit.

    There is a limit only if Spark may do the work instead.
    """
    return READ_BYTES_MAX if given == AUTO and has_spark() else None


def engine_module(engine: str) -> ModuleType:
    """Import the module that does the work of a subcommand with an engine."""
    if engine == LOCAL:
        _keep_pandas_out()
    return importlib.import_module(f"mutation_api.cli.{engine}_engine")


def opened_commands(engine: str, app_name: str) -> AbstractContextManager[Commands]:
    """Open the session of an engine, if it needs one."""
    found: AbstractContextManager[Commands] = engine_module(engine).open_commands(app_name)
    return found


def engine_opener(given: str, app_name: str, stack: ExitStack) -> Callable[[AnySource], Engine]:
    """Return a function from a source to its engine, which refuses sources that the engine cannot read.

    Call this before creating any array, since it prevents the import of pandas. Spark starts when it is first
    needed, and runs until ``stack`` is closed.

    Args:
        given: the value of ``--engine``.
        app_name: the name of the Spark application.
        stack: the stack that ends Spark.
    """

    @functools.cache
    def spark() -> Any:
        return stack.enter_context(engine_module(SPARK).open_ingest(app_name))

    from mutation_api.cdc.choice import EngineBySize  # only change sources need it

    here = None if chosen_engine(given, ()) == SPARK else engine_module(LOCAL).ENGINE

    def engine(source: AnySource) -> Engine:
        found: Engine = spark() if here is None else here
        if here is not None and given != LOCAL and has_spark():
            found = EngineBySize(here, LOCAL_FILE_BYTES_MAX, spark)
        found.check(source)
        return found

    return engine


def _mebibytes(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected an integer number of MiB, at least 1")
    return int(text)


def has_spark() -> bool:
    """Return True if pyspark is installed."""
    return importlib.util.find_spec("pyspark") is not None


def _are_small(files: Sequence[Location], table_bytes: int) -> bool:
    try:
        sizes = [entry.size for file in files for entry in files_at(file)]
    except ConfigurationError:
        return False
    return sum(sizes) + table_bytes <= LOCAL_FILE_BYTES_MAX


class _WithoutPandas(importlib.abc.MetaPathFinder):
    """An import finder that makes pandas appear not to be installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raise ModuleNotFoundError for pandas; leave all other modules to other finders."""
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is not needed yet", name=fullname)


def _keep_pandas_out() -> None:
    """Prevent pyarrow from importing pandas when it creates its first array.

    pyarrow imports pandas to find out whether its input is a Series. That takes 0.23 s (measured), a quarter
    of a small command. pyarrow still imports pandas where it needs it.
    """
    if "pandas" not in sys.modules:
        finder = _WithoutPandas()
        sys.meta_path.insert(0, finder)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(finder)


@dataclass(frozen=True)
class ApplyTask:
    """The file that ``apply`` applies, and the table that it changes."""

    table_name: str
    file: Location
    format_name: str
    operation_column: str


@dataclass(frozen=True)
class MergeTask:
    """A merge of files into a table.

    Attributes:
        table_name: the table, as ``database.table``.
        files: the source files. All have the same columns.
        format_name: the format of the files. If None, inferred from the extension of each file.
        keys: the key columns.
        rules: the rules of the merge.
        options: the options of the merge.
        is_dry_run: True if the merge is only reported.
        read_bytes_max: the maximum number of bytes of the table's files that the local engine reads. If None,
            unlimited.
        local: the settings of the local engine.
    """

    table_name: str
    files: Sequence[Location]
    format_name: str | None
    keys: Sequence[str]
    rules: MergeRules
    options: MergeOptionsDict
    is_dry_run: bool
    read_bytes_max: int | None
    local: LocalOptions


@dataclass(frozen=True)
class TableState:
    """The rows of a table that are visible in an open snapshot."""

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
        old: the rows of the table. Changes refer to them by ROW__ID.
        new: the state that the table is compared with.
        past: the past state, or None. Its history is checked when the files
            to read are chosen.
        keys: the key columns.
        operation_column: the name of the operation column.
        output: the file for the changes. If None, they are only counted.
        output_format: the format of that file.
        local: the settings of the local engine.
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


class Commands(Protocol):
    """The commands of one engine, whose session is open."""

    def apply_file(self, transaction: Transaction, task: ApplyTask, *, verify_row_ids: bool) -> ApplySummary:
        """Apply a file of changes to a table in an open transaction."""

    def compare(self, task: DiffTask) -> Mapping[str, int]:
        """Compare, save the changes if the task has an output, and count them by operation."""

    def check_merge(self, task: MergeTask) -> None:
        """Raise UnsupportedLocallyError if only Spark supports the rules."""

    def merge(self, task: MergeTask, transaction: Transaction) -> MergeReport:
        """Merge in an open transaction, or only report what a merge would do."""

    def open_table(
        self, client: MutatorClient, table_name: str, local: LocalOptions, *, is_dry_run: bool
    ) -> AbstractContextManager[VerbTable]:
        """Open a table in a transaction. The end of the block commits it; a dry run is aborted."""
