"""A table that this library's compactor works on, beside Hive."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import ThriftMetastoreClient
from mutation_api import Hive
from mutation_api.format.layout import is_hidden
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.read.table_view import open_table
from mutation_api.storage.location import Location
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.upkeep import compactor
from mutation_api.upkeep.compactor import compact_partition
from mutation_api.upkeep.verify.verify import verify_table
from tests.fixtures.fix_newest import HIVE_4
from tests.support.changes_of_files import changes_since_base

COLUMNS = "id int, item string, price double, at timestamp"


def rows_of(*ids: int, day: str | None = None) -> pa.Table:
    """Rows with these ids."""
    count = len(ids)
    rows = {"id": pa.array(ids, pa.int32()), "item": pa.array([f"i{n}" for n in ids])}
    rows |= {"price": pa.array([float("nan")] * count), "at": pa.nulls(count, pa.timestamp("us"))}
    return pa.table(rows if day is None else {**rows, "day": [day] * count})


class Died(BaseException):
    """The compactor's process is gone."""


def deaths(
    monkeypatch: pytest.MonkeyPatch, steps: Sequence[tuple[Any, str]], compact: Callable[[], object]
) -> Iterator[str]:
    """Let a compactor die at each step, a function by owner and name, and yield the name afterwards."""
    for owner, name in steps:
        kept = getattr(owner, name)

        def die(*_: object, **__: object) -> None:
            raise Died

        monkeypatch.setattr(owner, name, die)
        with pytest.raises(Died):
            compact()
        monkeypatch.setattr(owner, name, kept)
        yield name


def begin_as_dead_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let compactors begin under the number of a process that has ended."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    monkeypatch.setattr(compactor.os, "getpid", lambda: dead.pid)


@dataclass
class Shop:
    """A table and everything that works on it."""

    judge: HiveJudge
    hive: Hive
    metastore: ThriftMetastoreClient
    name: str
    is_insert_only: bool = False

    def create(self, layout: str, properties: str = "default") -> None:
        """Make the table."""
        self.is_insert_only = properties == "insert_only"
        more = f", 'transactional_properties'='{properties}'" if properties else ""
        self.judge.sql(
            f"create table {self.name} ({COLUMNS}) {layout} stored as orc "
            f"tblproperties ('transactional'='true'{more})"
        )

    def fill(self, layout: str, properties: str) -> str:
        """Make the table with some history, in which a transaction is aborted. Return its partition."""
        self.create(layout, properties)
        if self.judge.line not in HIVE_4:  # where a worker of the judge might begin beside the test's
            self.judge.sql(f"alter table {self.name} set tblproperties ('no_auto_compaction'='true')")
        day = "a" if "partitioned" in layout else None
        into = f"{self.name} partition (day='a')" if day else self.name
        self.judge.sql(
            f"insert into {into} values (1,'tea',1.5,'2024-01-01 00:00:00.123456789'),(2,null,-0.0,null)"
        )
        self.append(3, 4, 5, day=day)
        with pytest.raises(Died), self.hive.transaction(self.name) as tx:
            tx.table(self.name).append(rows_of(777, day=day))
            raise Died
        self.change(3)
        return "day=a" if day else ""

    def change(self, id: int) -> None:
        """Change rows by SQL and by the library; in insert-only tables add some."""
        day = "a" if "day=a" in self.directories() else None
        if not self.is_insert_only:
            self.judge.sql(f"update {self.name} set item = 'by sql' where id in ({id}, {id + 1})")
            self.hive.table(self.name).delete(where=f"id = {id}")
        self.append(100 + id, day=day)

    def append(self, *ids: int, day: str | None = None) -> None:
        """Add rows in a transaction of their own."""
        self.hive.table(self.name).append(rows_of(*ids, day=day))

    def rows(self) -> list[list[object]]:
        """What both readers of Hive agree on: ROW__ID, values, partition."""
        found = self.judge.table_rows(self.name, row_ids=not self.is_insert_only)
        return sorted(([each.row_id, *each.values, each.partition] for each in found), key=repr)

    def changes(self) -> list[str]:
        """What a change feed reads since the newest base: id, kind, ROW__ID and values of each row."""
        with (
            MutatorClientBuilder().metastore(self.metastore).build() as client,
            client.open_snapshot(self.name) as snapshot,
        ):
            texts = ReadOptions(TimestampForm.TEXT)
            return sorted(changes_since_base(open_table(snapshot, self.name), texts))

    def compact(self, partition: str = "", kind: str = "major") -> str | None:
        """Compact, and compare what Hive reads. Return the name of the new directory."""
        before = self.rows()
        done = compact_partition(self.metastore, self.name, partition, kind=kind)
        assert self.rows() == before
        self.judge.clean(self.name)
        assert self.rows() == before
        assert verify_table(self.metastore, self.name).is_sound
        return done.directory

    def root(self) -> Path:
        """The table's directory."""
        database, table = self.name.split(".")
        return Path(self.metastore.get_table(database, table).location.removeprefix("file:"))

    def location(self, partition: str = "") -> Location:
        """The location of a partition in the table's directory."""
        root = Location.given(self.root())
        return root / partition if partition else root

    def directories(self, partition: str = "") -> list[str]:
        """The visible names in the partition's directory."""
        names = [each.name for each in (self.root() / partition).iterdir()]
        return sorted(each for each in names if not is_hidden(each))

    def states(self) -> list[str]:
        """The states of the table's compactions."""
        database, table = self.name.split(".")
        return [
            c.state for c in self.metastore.show_compactions() if (c.database, c.table) == (database, table)
        ]
