"""A log of messages in files, and the command that applies it to a table in memory, run by run."""

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
from mutation_api.cli.ingest import command as ingest
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_OK
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.support.ingested_table import engine_of_commands

Rows = dict[int, Any]
Source = Mapping[str, Any]


class MessageLogs:
    """Files of a log, and the tables that follow it: ``default.t`` with the columns id and v, and others."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        spark: SparkSession | None,
    ) -> None:
        self.folder = folder / "log"
        self.folder.mkdir()
        self.metastore = InMemoryMetastore(folder / "warehouse", capabilities=HIVE_4_1)
        self.create("default.t", ("id", "int"), ("v", "string"))
        made = self.metastore
        monkeypatch.setattr(ingest, "metastore_from", lambda arguments: contextlib.nullcontext(made))
        self._capsys, self._engine = capsys, engine_of_commands(monkeypatch, spark)

    def create(self, table: str, *columns: tuple[str, str]) -> None:
        """Make a table."""
        found = tuple(ColumnInfo(*each) for each in columns)
        create_acid_table(self.metastore, table, found, clustered_by=["id"], num_buckets=1)

    def write(self, name: str, *messages: str) -> None:
        """Write a file of the log anew."""
        (self.folder / name).write_text("".join(f"{each}\n" for each in messages), encoding="utf-8")

    def append(self, name: str, *messages: str) -> None:
        """Append messages to a file of the log."""
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.writelines(f"{each}\n" for each in messages)

    def run(self, kind: str, *words: str, table: str = "shop.t=default.t:id") -> Mapping[str, Any]:
        """The report of a run that succeeds."""
        code, out, error = self._called(kind, table, words)
        assert code == EXIT_OK, error
        report: Mapping[str, Any] = json.loads(out)
        return report

    def refused(self, kind: str, *words: str, table: str = "shop.t=default.t:id") -> str:
        """The error of a run that is refused."""
        code, out, error = self._called(kind, table, words)
        assert code != EXIT_OK, out
        return error

    def _called(self, kind: str, table: str, words: Sequence[str]) -> tuple[int, str, str]:
        tables = [word for each in table.split() for word in ("--table", each)]
        given = ["ingest", kind, "--files", str(self.folder), *tables, "--quiet", "--json", *words]
        code = main([*given, "--engine", self._engine, "--metastore", "thrift://n:1"])
        found = self._capsys.readouterr()
        return code, found.out, found.err

    def rows(self, table: str = "default.t") -> Rows:
        """The rows by id: their other value, or a list of others."""
        with connect(self.metastore) as hive, hive.snapshot(table) as view:
            found = view.table(table).scan().to_arrow().to_pylist()
        values = {row.pop("id"): list(row.values()) for row in found}
        assert len(values) == len(found), found
        return {key: each[0] if len(each) == 1 else each for key, each in sorted(values.items())}

    def change(self, table: str, statement: Any) -> None:
        """Change the target as its owner would."""
        with connect(self.metastore) as hive, hive.transaction(table) as tx:
            statement(tx.table(table))


def debezium_message(op: str, identifier: int, value: str | None, **source: Any) -> str:
    """A message of a MySQL connector; ``source`` overrides its block of that name."""
    row = {"id": identifier, "v": value}
    block = {
        "version": "3.0.0.Final",
        "connector": "mysql",
        "name": "erp",
        "ts_ms": 1700000000000,
        "snapshot": "false",
        "db": "shop",
        "table": "t",
        "server_id": 1,
        "gtid": None,
        "file": "mysql-bin.000050",
        "pos": 4,
        "row": 0,
        **source,
    }
    before, after = (row, None) if op == "d" else (row if op == "u" else None, row)
    return json.dumps({"before": before, "after": after, "source": block, "op": op, "ts_ms": 1700000000001})


def debezium_ddl(ddl: str | None, *changes: Mapping[str, Any], **source: Any) -> str:
    """A message of the schema change topic of a MySQL connector; ``database`` is that of the statement."""
    database = source.pop("database", "shop")
    schema = source.pop("schema", None)
    block = json.loads(debezium_message("c", 1, "", **{"table": "", **source}))["source"]
    fields = {"source": block, "databaseName": database, "schemaName": schema, "ddl": ddl}
    return json.dumps({**fields, "tableChanges": list(changes)})


def maxwell_message(kind: str, identifier: int, value: str | None, **others: Any) -> str:
    """A message of Maxwell's daemon."""
    message = {
        "database": "shop",
        "table": "t",
        "type": kind,
        "ts": 1700000000,
        "position": "mysql-bin.000050:4",
        "xoffset": 0,
        "server_id": 1,
        "primary_key_columns": ["id"],
        "data": {"id": identifier, "v": value},
        **({"old": {"v": "before"}} if kind == "update" else {}),
    }
    return json.dumps({**message, **others})


def canal_message(kind: str, *rows: Mapping[str, Any], **others: Any) -> str:
    """A flat message of Canal."""
    message = {
        "data": [{name: str(value) for name, value in row.items()} for row in rows] or None,
        "database": "shop",
        "id": 9,
        "isDdl": not rows,
        "old": [{} for _ in rows] if kind == "UPDATE" else None,
        "pkNames": ["id"],
        "sql": "",
        "table": "t",
        "type": kind,
    }
    return json.dumps({**message, **others})
