"""A database and its copy, which Hive's own REPL DUMP and REPL LOAD keep: on two metastores, or on one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from judges.hive.hive_judges import Hive4
from judges.hive.model import HiveRow
from metastore_client.model import ColumnInfo
from metastore_client.remote.thrift_client import ThriftMetastoreClient
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.fixtures.fix_judge import new_database

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))
BY_DAY = (ColumnInfo("ds", "string"),)
BY_STATISTICS = {"hive.compute.query.using.stats": "true"}
FAILOVER = {"hive.repl.failover.start": "true"}


class Side:
    """One of the two databases."""

    def __init__(self, judge: Hive4, database: str, hive: Hive) -> None:
        self.judge = judge
        self.database = database
        self.hive = hive

    @property
    def metastore(self) -> ThriftMetastoreClient:
        client = self.hive.metastore
        assert isinstance(client, ThriftMetastoreClient)
        return client

    @property
    def properties(self) -> Mapping[str, str]:
        """Those of the database."""
        return self.metastore.get_database_parameters(self.database)

    def set_property(self, name: str, value: str) -> None:
        self.judge.sql(f"ALTER DATABASE {self.database} SET DBPROPERTIES ('{name}'='{value}')")

    def tables(self) -> list[str]:
        return self.metastore.get_all_tables(self.database)

    def rows(self, table: str) -> list[HiveRow]:
        """By both of Hive's readers, with ROW__IDs where the table has them; in order."""
        info = self.metastore.get_table(self.database, table)
        has_ids = info.parameters["transactional_properties"] == "default"
        rows = self.judge.table_rows(f"{self.database}.{table}", row_ids=has_ids)
        return sorted(rows, key=lambda row: (row.partition, row.row_id or (), repr(row.values)))

    def count(self, table: str) -> int:
        """What Hive answers from statistics, where it trusts them."""
        text = f"SELECT count(*) FROM {self.database}.{table}"
        [[number]] = self.judge.sql(text, settings=BY_STATISTICS)
        return int(number)

    def files(self, table: str) -> list[str]:
        """All files of a table that Hive does not overlook."""
        location = self.metastore.get_table(self.database, table).location
        folder = Path(location.removeprefix("file:"))
        found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        return sorted(str(p) for p in found if not any(part[0] in "._" for part in p.parts))

    def create(self, name: str, *, by_day: bool = False, **how: Any) -> None:
        keys = BY_DAY if by_day else ()
        create_acid_table(self.metastore, f"{self.database}.{name}", COLUMNS, keys, **how)

    def name(self, table: str) -> str:
        return f"{self.database}.{table}"

    def append(self, table: str, *ids: int, ds: str | None = None) -> None:
        """One transaction with new rows."""
        with self.hive.transaction(self.name(table), create_partitions=True) as transaction:
            transaction.table(self.name(table)).append(rows(*ids, ds=ds))


class Replicated:
    """A source and its target.

    ``where``: what is given with every REPL statement, as an operator would who shares one folder of dumps.
    """

    def __init__(self, source: Side, target: Side, dumps: Path) -> None:
        self.source = source
        self.target = target
        self.where = {"hive.repl.rootdir": f"file:{dumps}"}

    def dump(self, settings: Mapping[str, str] | None = None) -> int | None:
        """The last event of the dump; None: the last dump was not loaded yet, or ended in a fail-over."""
        return self._repl(self.source, f"REPL DUMP {self.source.database}", settings or {})

    def load(self, settings: Mapping[str, str] | None = None) -> None:
        text = f"REPL LOAD {self.source.database} INTO {self.target.database}"
        self._repl(self.target, text, settings or {})

    def cycle(self) -> int:
        """Dump and load; the last event."""
        event = self.dump()
        assert event is not None
        self.load()
        return event

    def status(self) -> int:
        """The last event that the target has."""
        [[event]] = self.target.judge.sql(f"REPL STATUS {self.target.database}")
        return int(event)

    def turned(self, dumps: Path) -> Replicated:
        """The replication of the other direction."""
        return Replicated(self.target, self.source, dumps)

    def check(self, *tables: str) -> None:
        """The same tables, partitions, rows and ROW__IDs; and statistics are true on both sides."""
        names = sorted(tables) or self.source.tables()
        assert tables or self.target.tables() == names
        for name in names:
            expected = self.source.rows(name)
            assert self.target.rows(name) == expected, name
            assert self.source.count(name) == self.target.count(name) == len(expected), name
            assert self._partitions(self.target, name) == self._partitions(self.source, name), name

    @staticmethod
    def _partitions(side: Side, name: str) -> list[str]:
        if not side.metastore.get_table(side.database, name).partition_keys:
            return []
        return side.metastore.get_partition_names(side.database, name)

    def _repl(self, side: Side, text: str, settings: Mapping[str, str]) -> int | None:
        given = ", ".join(f"'{name}'='{value}'" for name, value in {**self.where, **settings}.items())
        answer = side.judge.sql(f"{text} WITH ({given})")
        return int(answer[0][1]) if answer else None


@contextmanager
def replicated(source: Hive4, target: Hive4, folder: Path) -> Iterator[Replicated]:
    """A new database that is a source, and the name of one that the first load makes."""
    with new_database(source) as database, connect(source.uri) as of_source, connect(target.uri) as of_target:
        pair = Replicated(
            Side(source, database, of_source), Side(target, f"{database}_copy", of_target), folder / "dumps"
        )
        pair.source.set_property("repl.source.for", "test")
        try:
            yield pair
        finally:
            for side in (pair.source, pair.target):
                forget(side)
            target.time_out_transactions(0)
            target.sql(f"DROP DATABASE IF EXISTS {pair.target.database} CASCADE")


def forget(side: Side) -> None:
    """Hive does not drop a database that is a source."""
    if [side.database] in side.judge.sql("SHOW DATABASES"):
        side.set_property("repl.source.for", "")


def commit_nothing(side: Side, table: str) -> None:
    """A transaction of Hive's own with a write id of the table and no rows."""
    side.judge.sql(f"DELETE FROM {side.name(table)} WHERE false")


def rows(*ids: int, ds: str | None = None, msg: str = "new") -> pa.Table:
    """Rows of our tables."""
    columns: dict[str, Sequence[object]] = {"id": ids, "msg": [f"{msg}{id}" for id in ids]}
    if ds is not None:
        columns["ds"] = [ds] * len(ids)
    return pa.table({name: list(values) for name, values in columns.items()})
