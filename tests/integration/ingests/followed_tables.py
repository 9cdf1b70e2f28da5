"""Tables of a real MariaDB, followed by tables of a metastore in memory through the command.

What an error asks for is done as a user would do it: by options of the command, and by changes of rows in
Hive.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from judges.mysql import MySqlJudge
from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import ROW_ID_COLUMN, connect
from mutation_api.cdc.mysql.server import PASSWORD_VARIABLE
from mutation_api.cdc.update.database import PASSWORD_VARIABLE as SOURCE_PASSWORD_VARIABLE
from mutation_api.cdc.update.sources import SOURCE_VARIABLE
from mutation_api.cli.ingest import command
from mutation_api.cli.main import main
from mutation_api.cli.update import enable, extract
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.support.ingested_table import engine_of_commands

Row = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What the command said; ``code`` is its exit code."""

    code: int
    out: str
    err: str

    @property
    def seen_words(self) -> list[str]:
        """All words of --seen-to that the error gives."""
        return self.err.partition(" (in Python seen_to")[0].rpartition(" run with ")[2].split()

    @property
    def seen_to(self) -> str:
        """The position that the error gives for --seen-to."""
        found = re.search(r"--seen-to (\S+:[\d+]+)", self.err)
        assert found, self.err
        return found[1]


class FollowedTables:
    """A database of MariaDB and the tables that follow its tables."""

    def __init__(
        self,
        server: MySqlJudge,
        database: str,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        spark: SparkSession | None,
    ) -> None:
        self._engine = engine_of_commands(monkeypatch, spark)
        self.server = server
        self.database = database
        self.metastore = InMemoryMetastore(folder / "warehouse", capabilities=HIVE_4_1)
        self.connection = server.connect(database)
        self._capsys = capsys
        self._columns: dict[str, dict[str, str]] = {}
        monkeypatch.setenv(PASSWORD_VARIABLE, server.password)
        monkeypatch.setenv(SOURCE_PASSWORD_VARIABLE, server.password)
        self.url = f"mysql://{server.user}@127.0.0.1:{server.port}/{database}"
        monkeypatch.setenv(SOURCE_VARIABLE, self.url)
        for module in (command, enable, extract):
            monkeypatch.setattr(module, "metastore_from", lambda _: contextlib.nullcontext(self.metastore))

    def run(self, *statements: str) -> None:
        """Run statements at the source, on one session."""
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def create(self, table: str, columns: Mapping[str, str], key: str = "id") -> None:
        """Create a table in Hive."""
        self._columns[table] = dict(columns)
        infos = [ColumnInfo(name, kind) for name, kind in columns.items()]
        create_acid_table(self.metastore, f"default.{table}", infos, clustered_by=[key], num_buckets=1)

    def ingest(self, *words: str, tables: Sequence[str] | None = None) -> Answer:
        """Run the command."""
        server = self.server
        source = f"mysql://{server.user}@127.0.0.1:{server.port}/{self.database}"
        names = ",".join(self._columns if tables is None else tables)
        given = ["ingest", "mysql", "--source", source, "--tables", names, "--database", "default"]
        return self.command(*given, *words)

    def update(self, action: str, *words: str) -> Answer:
        """Run ``update``."""
        return self.command("update", action, *words)

    def command(self, *words: str) -> Answer:
        """Run a command by the engine of these tables."""
        engine = () if words[:2] == ("update", "enable") else ("--engine", self._engine)
        self._capsys.readouterr()
        code = main([*words, *engine, "--metastore", "memory"])
        said = self._capsys.readouterr()
        return Answer(code, said.out, said.err)

    def follow(self, *words: str, tables: Sequence[str] | None = None) -> Answer:
        """Run the command, which must succeed, and compare all its tables."""
        answer = self.ingest(*words, tables=tables)
        assert answer.code == 0, answer.err
        for table in self._columns if tables is None else tables:
            assert self.hive(table) == self.source(table)
        return answer

    def stop(self, *words: str, tables: Sequence[str] | None = None) -> Answer:
        """Run the command, which must stop at a statement."""
        answer = self.ingest(*words, tables=tables)
        assert answer.code == 1, answer.out
        assert "StoppedAtStatementError" in answer.err, answer.err
        return answer

    def hive(self, table: str) -> list[tuple[Any, ...]]:
        """The rows in Hive, sorted."""
        return in_order(tuple(row[name] for name in self._columns[table]) for row in self._rows(table))

    def source(self, table: str) -> list[tuple[Any, ...]]:
        """The rows at the source, of the columns that Hive has; NULL for one that the source lacks."""
        with self.server.connect(self.database) as connection, connection.cursor() as cursor:
            cursor.execute(f"SHOW COLUMNS FROM `{table}`")
            has = {name.lower() for name, *_ in cursor.fetchall()}
            names = [f"`{name}`" if name in has else "NULL" for name in self._columns[table]]
            cursor.execute(f"SELECT {', '.join(names)} FROM `{table}`")
            kinds = self._columns[table].values()
            return in_order(
                tuple(
                    str(value) if kind == "string" and value is not None else value
                    for value, kind in zip(row, kinds, strict=True)
                )
                for row in cursor.fetchall()
            )

    def columns(self, table: str) -> dict[str, str]:
        """The columns in Hive, with their types."""
        return dict(self._columns[table])

    def edit(self, table: str, change: Callable[[Row], Row | None]) -> None:
        """Change or remove each row in Hive."""
        rows = [change(dict(row)) for row in self._rows(table)]
        name = f"default.{table}"
        with connect(self.metastore) as hive, hive.transaction(name) as transaction:
            found = transaction.table(name)
            if rows:
                found.delete(found.scan(row_ids=True).to_arrow().select([ROW_ID_COLUMN]))
        self._append(table, [row for row in rows if row is not None])

    def change_columns(
        self, table: str, columns: Mapping[str, str], change: Callable[[Row], Row] = lambda row: row
    ) -> None:
        """Give a table in Hive other columns, and change each row."""
        self._recreate(table, columns, [change(dict(row)) for row in self._rows(table)])

    def added(self, table: str, columns: Mapping[str, str]) -> None:
        """Note that the next run gives a table in Hive more columns."""
        self._columns[table] |= columns

    def _rows(self, table: str) -> list[Row]:
        with connect(self.metastore) as hive, hive.snapshot(f"default.{table}") as view:
            found: list[Row] = view.table(f"default.{table}").scan().to_arrow().to_pylist()
            return found

    def _recreate(self, table: str, columns: Mapping[str, str], rows: list[Row]) -> None:
        """As ALTER TABLE and UPDATE would leave it."""
        self.metastore.drop_table("default", table, delete_data=True)
        self.create(table, columns)
        self._append(table, rows)

    def _append(self, table: str, rows: list[Row]) -> None:
        if not rows:
            return
        columns, name = self._columns[table], f"default.{table}"
        with connect(self.metastore) as hive, hive.transaction(name) as transaction:
            sink = transaction.table(name)
            sink.append(pa.Table.from_pylist([{c: row.get(c) for c in columns} for row in rows], sink.schema))

    def close(self) -> None:
        """Disconnect."""
        self.connection.close()


def in_order(rows: Any) -> list[tuple[Any, ...]]:
    """Rows sorted by their text."""
    return sorted((tuple(row) for row in rows), key=repr)
