"""Tables that real Hive changes and compacts, and their copies, whatever kills the export.

Hive's SQL reads the tables. deltalake, pyiceberg and DuckDB read the copies.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from judges.errors import HiveError
from judges.hive.judge import HiveJudge
from mutation_api import ConfigurationError, Hive, LockNotAcquiredError, connect
from mutation_api.cdc import Export
from tests.support.dying_targets import Died, Mortal
from tests.support.lakes import KINDS, Lake

pytestmark = pytest.mark.slow

COLUMNS = (
    "id bigint, item string, price decimal(12,3), at timestamp, data binary, tags array<string>, "
    "part struct<a:int,b:string>, small tinyint, code char(4)"
)
SHOWN = (
    "id, item, cast(price AS string), cast(at AS string), hex(data), tags[0], size(tags), part.a, part.b, "
    "small, rtrim(cast(code AS string)), cast(day AS string)"
)


class Shop:
    """A partitioned table and an unpartitioned one, changed by Hive and by this library; and their copies."""

    def __init__(self, judge: HiveJudge, hive: Hive, database: str, lake: Lake, rng: random.Random) -> None:
        self.judge, self.hive, self.lake, self.rng = judge, hive, lake, rng
        self.names = (f"{database}.orders", f"{database}.items")
        properties = (
            "STORED AS ORC TBLPROPERTIES ('transactional'='true', 'transactional_properties'='default')"
        )
        buckets = "CLUSTERED BY (id) INTO 2 BUCKETS"
        judge.sql(
            f"CREATE TABLE {self.names[0]} ({COLUMNS}) PARTITIONED BY (day date) {buckets} {properties}"
        )
        plain = buckets if judge.line == "2.3" else ""
        judge.sql(f"CREATE TABLE {self.names[1]} ({COLUMNS}, day date) {plain} {properties}")
        self._number = 0

    def export(self) -> Export:
        """The export of both tables."""
        return Export(
            self.hive,
            *self.names,
            to=self.lake.address("{table}"),
            options=self.lake.options,
            tables_together=True,
        )

    def rows_of_hive(self, name: str) -> list[str]:
        """The rows of a table, as Hive's SQL reads them."""
        return sorted(map(str, map(tuple, self.judge.sql(f"SELECT {SHOWN} FROM {name}"))))

    def rows_of_copy(self, name: str) -> list[str]:
        """The rows of its copy in the same form."""
        return sorted(str(shown(row)) for row in self.lake.arrow(name.split(".")[1]).to_pylist())

    def check(self) -> None:
        """The copies equal the tables."""
        for name in self.names:
            assert self.rows_of_copy(name) == self.rows_of_hive(name)

    def _day(self) -> str:
        return f"2024-05-0{self.rng.randrange(1, 4)}"

    def step(self) -> None:
        """A change of one table or of both."""
        name = self.rng.choice(self.names)
        is_partitioned = name == self.names[0]
        self._number += 10
        match self.rng.randrange(9):
            case 0 | 1 | 2:
                self._insert(name, self._day())
            case 3:
                self.judge.sql(
                    f"UPDATE {name} SET item = concat(item, 'u'), at = NULL WHERE id % 3 = "
                    f"{self.rng.randrange(3)}"
                )
            case 4:
                self.judge.sql(f"DELETE FROM {name} WHERE id % 7 = {self.rng.randrange(7)}")
            case 5:
                self.compact(name, self.rng.choice(["minor", "major"]))
            case 6:
                self.judge.sql(f"TRUNCATE TABLE {name}")
            case 7:
                self._overwrite_or_drop(name, is_partitioned=is_partitioned)
            case _:
                rows = [{"id": self._number + at, "item": "o", "day": None} for at in range(3)]
                with self.hive.transaction(*self.names, create_partitions=True) as tx:
                    for each in self.names:
                        table = tx.table(each)
                        table.append(pa.Table.from_pylist(rows, table.schema))

    def _insert(self, name: str, day: str) -> None:
        partition, last = (f"PARTITION (day='{day}')", "") if name == self.names[0] else ("", f", '{day}'")
        self.judge.sql(
            f"INSERT INTO {name} {partition} SELECT {self._number}, 'a\\t\"é', 12.345, "
            f"'2024-05-01 12:00:00.123456', unhex('00FF{self._number:04}'), "
            f"array('x', cast(NULL AS string)), named_struct('a', 1, 'b', 'y'), 7, 'ab'{last}"
        )

    def _overwrite_or_drop(self, name: str, *, is_partitioned: bool) -> None:
        if is_partitioned and self.rng.random() < 0.5:
            self.judge.sql(f"ALTER TABLE {name} DROP IF EXISTS PARTITION (day='{self._day()}')")
        elif self.judge.line != "2.3":  # which refuses it for ACID tables
            partition = f"PARTITION (day='{self._day()}')" if is_partitioned else ""
            columns = COLUMNS if is_partitioned else f"{COLUMNS}, day date"
            names = ", ".join(column.split(" ")[0] for column in columns.split(", "))
            self.judge.sql(
                f"INSERT OVERWRITE TABLE {name} {partition} SELECT {names} FROM {name} WHERE id % 2 = 0"
            )

    def compact(self, name: str, kind: str) -> None:
        """Compact a table; its old files stay until the cleaner runs, or not."""
        clean = self.rng.random() < 0.5
        partitions: list[str | None] = [None]
        if name == self.names[0]:
            named = [str(partition) for (partition,) in self.judge.sql(f"SHOW PARTITIONS {name}")]
            partitions = ["{}='{}'".format(*each.split("=")) for each in named]
        for partition in partitions:
            if self.judge.line == "2.3":
                # If it compacts a range twice, it moves the second result into the first, as
                # delta_1_3/delta_1_3, and its own MapReduce jobs fail there. A new row makes another range.
                # Its cleaner fails on the second of two compactions that wait for it.
                self.judge.clean(name)
                self._insert(name, "2024-05-01" if partition is None else partition.split("'")[1])
            try:
                self.judge.compact(name, kind, partition=partition, clean=clean)
            except HiveError as error:
                if not self.judge.cannot_compact(error):
                    raise


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of a copy, in the form of SHOWN."""
    tags, part = row["tags"], row["part"] or {"a": None, "b": None}
    texts = {name: None if row[name] is None else str(row[name]) for name in ("price", "at", "day")}
    data = None if row["data"] is None else row["data"].hex().upper()
    first = None if not tags else tags[0]
    count = -1 if tags is None else len(tags)
    fields = (part["a"], part["b"], row["small"], row["code"])
    return (row["id"], row["item"], texts["price"], texts["at"], data, first, count, *fields, texts["day"])


@pytest.fixture
def shop(hive_line: HiveJudge, line_database: str, tmp_path: Path, kind: str, seed: int) -> Iterator[Shop]:
    """Two empty tables, and a place for their copies."""
    with connect(hive_line.uri) as hive:
        yield Shop(hive_line, hive, line_database, Lake(tmp_path / "lake", kind), random.Random(seed))


@pytest.mark.parametrize("hive_line", ["4.1", "3.1", "2.3"], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 9))])
def test_random_histories_of_exports(shop: Shop) -> None:
    """After random changes, compactions and deaths, each copy has the rows that Hive reads."""
    deaths = 0
    for _ in range(8):
        for _ in range(shop.rng.randrange(1, 4)):
            shop.step()
        for last in (shop.rng.randrange(1, 7), None):
            export = shop.export()
            for target in export.targets:
                Mortal(target, last)
            try:
                export.run()
            except Died:
                deaths += 1
        shop.check()
        assert not shop.export().run().is_changed
        assert export.verify().is_equal
    assert deaths
    for name in shop.names:
        counts = shop.lake.by_duckdb("count(*), count(DISTINCT id), sum(id)", name.split(".")[1])
        assert counts == [
            list(each) for each in shop.judge.sql(f"SELECT count(*), count(DISTINCT id), sum(id) FROM {name}")
        ]


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["4.1", "3.1", "2.3"], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [3])
def test_a_cutover_keeps_others_out(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can read or change the tables while both sides are compared; afterwards Hive shows the mark."""
    for _ in range(4):
        shop.step()
    export = shop.export()
    refused = []
    compare = export._verified

    def while_locked(snapshot: Any, name: str) -> Any:
        with connect(shop.judge.uri, lock_timeout_seconds=1) as other:
            for act in (
                lambda: other.snapshot(name).open().close(),
                lambda: other.table(name).delete(where="id = 1"),
            ):
                with pytest.raises(LockNotAcquiredError):
                    act()
                refused.append(name)
        return compare(snapshot, name)

    monkeypatch.setattr(export, "_verified", while_locked)
    report = export.cutover()
    assert len(refused) == 2 * len(shop.names)
    assert report.verified.is_equal
    shop.check()
    for name in shop.names:
        shown_mark = str(shop.judge.sql(f"SHOW TBLPROPERTIES {name}('{report.mark}')"))
        assert f"{shop.lake.kind}:" in shown_mark
        with pytest.raises(ConfigurationError, match="was moved to"):
            shop.export().run()
    shop.judge.sql(f"DELETE FROM {shop.names[1]} WHERE id = -1")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [4])
def test_killed_processes_lose_and_repeat_nothing(shop: Shop) -> None:
    """The command is killed at random times, again and again; no run after it is told about it."""
    words = ["export", *shop.names, "--to", shop.lake.address("{table}"), *shop.lake.words]
    words += ["--tables-together", "--metastore", shop.judge.uri]
    command = [sys.executable, "-m", "mutation_api.cli.main", *words]
    shop.step()
    begun = time.monotonic()
    subprocess.run(command, check=True)
    seconds = time.monotonic() - begun
    killed = 0
    for _ in range(25):
        for _ in range(2):
            shop.step()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                process.wait(shop.rng.uniform(0.3, 1) * seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                killed += 1
        for txn in shop.hive.metastore.get_open_txns().txns:  # they would end by themselves, later
            shop.hive.metastore.abort_txn(txn.id)
    assert killed > 5
    subprocess.run(command, check=True)
    shop.check()
    assert shop.export().verify().is_equal
