"""A table of a metastore in memory, and the command that brings it up to a log of messages."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import connect
from mutation_api.cli import spark_engine
from mutation_api.cli.ingest import command
from mutation_api.cli.main import main
from mutation_api.upkeep.create_acid_table import create_acid_table


def engine_of_commands(patch: pytest.MonkeyPatch, spark: SparkSession | None) -> str:
    """What ``--engine`` is; commands by Spark use this session, which stays open."""
    if spark is None:
        return "local"
    patch.setattr(spark_engine, "spark_session", lambda name: contextlib.nullcontext(spark))
    return "spark"


class IngestedTable:
    """``default.t``, and the engine of the command: a session, which stays open, or none."""

    def __init__(
        self,
        folder: Path,
        patch: pytest.MonkeyPatch,
        columns: Mapping[str, str],
        spark: SparkSession | None = None,
    ) -> None:
        self.folder = folder
        self._engine = engine_of_commands(patch, spark)
        self.metastore = InMemoryMetastore(folder / "warehouse", capabilities=HIVE_4_1)
        patch.setattr(command, "metastore_from", lambda arguments: contextlib.nullcontext(self.metastore))
        self._columns = [ColumnInfo(name, kind) for name, kind in columns.items()]
        self._create()

    def _create(self, name: str = "t") -> None:
        first = self._columns[0].name
        create_acid_table(
            self.metastore, f"default.{name}", self._columns, clustered_by=[first], num_buckets=1
        )

    def also(self, name: str) -> None:
        """Make another table of these columns."""
        self._create(name)

    def empty(self) -> None:
        """Make it anew, as somebody who reads the source once more does."""
        self.metastore.drop_table("default", "t", delete_data=True)
        self._create()

    def log(self, name: str, lines: Sequence[str | bytes]) -> str:
        """Write a file of these lines."""
        path = self.folder / name
        path.write_bytes(
            b"".join((each if isinstance(each, bytes) else each.encode()) + b"\n" for each in lines)
        )
        return str(path)

    def ingest(self, tool: str, files: str, *words: str) -> int:
        """Run the command; returns its exit code."""
        given = ("--metastore", "thrift://n:1", "--quiet", "--engine", self._engine)
        return main(["ingest", tool, "--files", files, *words, *given])

    def rows(self) -> list[dict[str, Any]]:
        """The rows, in the order of their texts."""
        with connect(self.metastore) as hive, hive.snapshot("default.t") as view:
            found = view.table("default.t").scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: json.dumps(row, default=str))
