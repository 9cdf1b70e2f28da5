"""ingest: rows, history and changes of one source table move together, whatever the cut into runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import LocalOptions, connect
from mutation_api.cdc import (
    ChangesMapping,
    HistoryMapping,
    IngestReport,
    TableMapping,
    ingest,
)
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.support.change_source import Entry, ListSource, moment
from tests.support.history_model import Change, Version, current_rows, versions

pytestmark = pytest.mark.slow

ROWS, HISTORY, CHANGES = "default.orders", "default.orders_history", "default.orders_changes"
COLUMNS = {"id": "bigint", "msg": "string"}
INTERVAL = {"log_position": "string", "valid_from": "timestamp", "valid_to": "timestamp"}
LOGGED = {"operation": "string", "changed_at": "timestamp", "log_position": "string"}
ALL = (
    TableMapping("orders", ROWS, ("id",)),
    HistoryMapping("orders", HISTORY, current="is_last"),
    ChangesMapping("orders", CHANGES),
)


class Warehouse:
    """A metastore in memory with the three tables, and the engine that ingests."""

    def __init__(self, place: Path, engine: dict[str, Any]) -> None:
        self.metastore = InMemoryMetastore(place, capabilities=HIVE_4_1)
        self.engine = engine
        self.create(ROWS, COLUMNS)
        self.create(HISTORY, {**COLUMNS, **INTERVAL, "is_last": "boolean"})
        self.create(CHANGES, {**COLUMNS, **LOGGED})

    def create(self, name: str, columns: dict[str, str]) -> None:
        infos = [ColumnInfo(column, kind) for column, kind in columns.items()]
        create_acid_table(self.metastore, name, infos, clustered_by=["id"], num_buckets=2)

    def ingest(self, log: Sequence[Entry], *mappings: Any, **options: Any) -> IngestReport:
        source = ListSource(log, **{"has_times": True, "key": ("id",), **options.pop("source", {})})
        return ingest(self.metastore, mappings or ALL, source, **options, **self.engine)

    def read(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        with connect(self.metastore) as hive, hive.snapshot(name) as view:
            found = view.table(name).scan(list(columns) or None).to_arrow().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=repr)

    def check(self, log: Sequence[Entry]) -> None:
        """Compare all three tables with what plain Python makes of the log."""
        changes = changes_of(log)
        rows = current_rows(changes)
        assert self.read(ROWS) == in_order((key, row) for key, row in rows.items())
        found = self.read(HISTORY, "id", "msg", "valid_from", "valid_to", "is_last")
        wanted = versions(changes)
        assert found == in_order(map(stored, wanted))
        assert in_order(each[:2] for each in found if each[4]) == self.read(ROWS)
        listed = [(e.values["id"], e.values.get("msg"), e.operation, moment(e.at)) for e in log]
        assert self.read(CHANGES, "id", "msg", "operation", "changed_at") == in_order(listed)


def stored(version: Version) -> tuple[Any, ...]:
    """A version as a row of the history."""
    last = None if version.last is None else moment(version.last)
    return version.key, version.row, moment(version.first), last, version.last is None


def changes_of(log: Sequence[Entry]) -> list[Change]:
    """The changes of a log."""
    return [Change(e.values["id"], e.at, None if e.operation == "delete" else e.values["msg"]) for e in log]


def in_order(rows: Any) -> list[Any]:
    return sorted(rows, key=repr)


def random_log(seed: int, count: int) -> list[Entry]:
    """Changes of a few keys, some of which change their key; the clock runs, stands and is set back."""
    rng = random.Random(seed)
    log: list[Entry] = []
    alive: set[int] = set()
    at = 1_700_000_000
    for seqno in range(count):
        at += rng.choice([0, 0, 1, 5, -3])
        key, text = rng.randrange(6), f"v{seqno}"
        if key not in alive:
            alive.add(key)
            log.append(Entry(seqno, "orders", "insert", {"id": key, "msg": text}, at))
        elif rng.random() < 0.3:
            alive.remove(key)
            log.append(Entry(seqno, "orders", "delete", {"id": key}, at))
        elif rng.random() < 0.2 and (free := sorted(set(range(6)) - alive)):
            alive ^= {key, free[0]}
            log.append(Entry(seqno, "orders", "delete", {"id": key}, at))
            log.append(Entry(seqno, "orders", "insert", {"id": free[0], "msg": text}, at))
        else:
            log.append(Entry(seqno, "orders", "update", {"id": key, "msg": text}, at))
    return log


@pytest.fixture(params=["local", "spark"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """Empty tables, and each engine."""
    is_local = request.param == "local"
    engine = {"local": LocalOptions()} if is_local else {"spark": request.getfixturevalue("spark")}
    return Warehouse(tmp_path, engine)


@pytest.mark.parametrize("seed", [3, *[pytest.param(n, marks=pytest.mark.long) for n in range(4, 10)]])
def test_random_logs_in_random_runs(warehouse: Warehouse, seed: int) -> None:
    """After each run all three tables are those of the log so far; a log read again changes nothing."""
    rng = random.Random(seed)
    log = random_log(seed, 60)
    last = log[-1].seqno
    for end in [*sorted(rng.sample(range(last), 3)), last]:
        seen = [each for each in log if each.seqno <= end]
        warehouse.ingest(seen)
        warehouse.check(seen)
    again = warehouse.ingest(log, source={"source_id": "list:again"})
    (history,), (changes,) = again.histories, again.changes
    assert (history.history.inserted, history.history.updated, history.history.deleted) == (0, 0, 0)
    assert changes.merge.total.inserted == 0 and changes.operation_count == len(log)
    warehouse.check(log)
    assert warehouse.ingest(log).position is None
