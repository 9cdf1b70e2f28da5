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
from collections.abc import Sequence
from types import ModuleType
from typing import Protocol

import pyarrow as pa

from mutation_api.change_set.apply_summary import ApplySummary
from mutation_api.changes.files.file_sizes import files_at
from mutation_api.client.transaction import Transaction
from mutation_api.errors import ConfigurationError
from mutation_api.storage.location import Location

__all__ = [
    "AUTO",
    "LOCAL",
    "LOCAL_FILE_BYTES_MAX",
    "SPARK",
    "ApplyFile",
    "add_engine_argument",
    "chosen_engine",
    "engine_module",
]

AUTO, LOCAL, SPARK = "auto", "local", "spark"
LOCAL_FILE_BYTES_MAX = 64 << 20
"""Bytes of files up to which the local engine is chosen. Spark needs seconds to start."""


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


def add_engine_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--engine``."""
    parser.add_argument(
        "--engine",
        choices=(AUTO, SPARK, LOCAL),
        default=AUTO,
        help=f"what does the work: Spark, or this process alone, without Java (local). The default, auto, is "
        f"local for files of at most {LOCAL_FILE_BYTES_MAX >> 20} MiB, and where pyspark is not installed",
    )


def chosen_engine(given: str, files: Sequence[Location]) -> str:
    """LOCAL or SPARK: the given engine, or for AUTO the one that suits the files.

    Files that the local engine cannot list are left to Spark, which may be configured otherwise.

    Raises:
        ConfigurationError: Spark was given, and pyspark is not installed.
    """
    has_spark = importlib.util.find_spec("pyspark") is not None
    if given == SPARK and not has_spark:
        raise ConfigurationError(
            "--engine spark: pyspark is not installed: pip install hive-mutation-api[spark]"
        )
    if given == AUTO:
        return LOCAL if not has_spark or _are_small(files) else SPARK
    return given


def engine_module(command: str, engine: str) -> ModuleType:
    """The module that does the work of a subcommand by an engine."""
    if engine == LOCAL:
        _keep_pandas_out()
    return importlib.import_module(f"mutation_api.cli.engines.{command}_by_{engine}")


def _are_small(files: Sequence[Location]) -> bool:
    try:
        sizes = [entry.size for file in files for entry in files_at(file)]
    except ConfigurationError:
        return False
    return sum(sizes) <= LOCAL_FILE_BYTES_MAX


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
