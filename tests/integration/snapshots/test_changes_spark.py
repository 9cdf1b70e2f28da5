"""``table_changes``: the changes that the local feed has, read by Spark's tasks."""

from __future__ import annotations

import datetime
import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from judges.hive.judge import HiveJudge
from metastore_client.testing import HIVE_2_3, HIVE_4_1, InMemoryMetastore
from mutation_api import (
    ConfigurationError,
    DirectoryStateError,
    Hive,
    MutatorClientBuilder,
    changes_position,
    connect,
    table_changes,
)
from mutation_api.transaction.mutator_client import MutatorClient
from tests.integration.snapshots.test_changes_judged import Shop, applied
from tests.unit.hive.test_changes import ITEMS, ORDERS, TABLES, make_legacy, position, rows, state, step

pytestmark = pytest.mark.slow

Rows = Counter[tuple[Any, ...]]
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"on": ["id"]},
    {"net": True},
    {"net": True, "on": ["ID"]},
    {"on": ["ID"], "images": "keys"},
)


def shown(found: list[dict[str, Any]]) -> Rows:
    """Rows with all their columns, and how often they occur."""
    return Counter(tuple(str(row[name]) for name in sorted(row)) for row in found)


def of_spark(changes: DataFrame) -> Rows:
    """What tasks read."""
    return shown([row.asDict(recursive=True) for row in changes.collect()])


def of_feed(hive: Hive, name: str, since: Any, **options: Any) -> Rows:
    """What the local feed has."""
    with hive.changes(name, since=since, **options) as feed:
        return shown([row for each in feed for row in each.tables[name].to_arrow().to_pylist()])


def client_of(hive: Hive) -> MutatorClient:
    return MutatorClientBuilder().metastore(hive._metastore).build()


def check(hive: Hive, spark: SparkSession, since: Any, *options: dict[str, Any]) -> None:
    """Both engines have the same changes, in both tables."""
    with client_of(hive) as client, client.open_snapshot(*TABLES) as view:
        for name in TABLES:
            for each in options or OPTIONS:
                found = of_spark(table_changes(view, name, since, **each))
                assert found == of_feed(hive, name, since, **each), (name, since, each)


HIVE_2 = [pytest.param(name, marks=pytest.mark.long) for name in ("2.3", "2.3 legacy")]


@pytest.fixture(params=[*HIVE_2, "4.1"])
def hive(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A partitioned and bucketed table, and another one."""
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1 if request.param == "4.1" else HIVE_2_3)
    with connect(metastore) as connected:
        layout: dict[str, Any] = {"properties": {"transactional_properties": "default"}}
        buckets: dict[str, Any] = {"clustered_by": ["id"], "num_buckets": 2}
        columns = "id bigint, item string, day date"
        connected.create_table(ORDERS, columns, partitioned_by=["day"], **layout, **buckets)
        connected.create_table(ITEMS, columns, **layout, **(buckets if "2.3" in request.param else {}))
        if "legacy" in request.param:
            make_legacy(metastore)
        yield connected


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 30))])
def test_changes_are_those_of_the_local_feed(hive: Hive, spark: SparkSession, seed: int) -> None:
    """After random histories, between all positions; keys move between partitions."""
    rng = random.Random(seed)
    seen, states = [position(hive)], [state(hive)]
    for _ in range(3):
        with hive.transaction(*TABLES, create_partitions=True) as tx:
            for _ in range(rng.randrange(1, 4) if hive.table(ITEMS)._table.version.uses_write_ids else 1):
                step(tx.table(rng.choice(TABLES)), rng)
        hive.table(rng.choice(TABLES)).update(set={"item": "'m'"}, where=f"id < {rng.randrange(20)}")
        seen.append(position(hive))
        states.append(state(hive))
    check(hive, spark, "beginning", {})
    for since in (seen[0], seen[2]):
        check(hive, spark, since)
    with client_of(hive) as client, client.open_snapshot(*TABLES) as view:
        for name in TABLES:
            parts = [of_spark(table_changes(view, name, a, b)) for a, b in itertools.pairwise(seen)]
            assert sum(parts, Counter()) == of_feed(hive, name, seen[0])
            for at, before in zip(seen, states, strict=True):
                whole = table_changes(view, name, "beginning", at).select("id", "item", "day")
                assert Counter(map(tuple, whole.collect())) == before[name]
            assert table_changes(view, name, changes_position(view, *TABLES)).isEmpty()


def test_an_update_that_moves_a_row_is_one_update(hive: Hive, spark: SparkSession) -> None:
    """The delete and the insert lie in different partitions, which different tasks read."""
    hive.table(ORDERS).append(rows((1, "tea", 1), (2, "milk", 2)), create_partitions=True)
    since = position(hive)
    with hive.transaction(ORDERS, create_partitions=True) as tx:
        tx.table(ORDERS).update(set={"day": "date '2024-05-05'"}, where="id = 1")
    with client_of(hive) as client, client.open_snapshot(ORDERS) as view:
        changes = table_changes(view, ORDERS, since, on=["id"], columns=["day"])
        assert changes.columns == ["_change", "_write_id", "ROW__ID", "day"]
        found = {row["_change"]: (row["day"], row["ROW__ID"]["partition"]) for row in changes.collect()}
    assert found == {
        "update_before": (datetime.date(2024, 5, 1), "day=2024-05-01"),
        "update_after": (datetime.date(2024, 5, 5), "day=2024-05-05"),
    }


def test_positions_that_do_not_fit_are_refused_at_the_call(hive: Hive, spark: SparkSession) -> None:
    """Not in a task: exchanged positions, other texts, and what a transaction has not committed."""
    start = position(hive)
    hive.table(ITEMS).append(rows((1, "cup", 1)))
    end = position(hive)
    with client_of(hive) as client, client.open_snapshot(ITEMS) as view:
        for since, until in ((end, start), (end, "beginning"), ("now", start)):
            with pytest.raises(ConfigurationError, match="until is not after since"):
                table_changes(view, ITEMS, since, until)
        with pytest.raises(ConfigurationError, match="not a position of a change feed"):
            table_changes(view, ITEMS, "yesterday")
        assert table_changes(view, ITEMS, end, end).isEmpty()
        with pytest.raises(ConfigurationError, match="a client is not a snapshot"):
            table_changes(client, ITEMS, start)  # type: ignore[arg-type]
    with client_of(hive) as client, client.open_snapshot(ITEMS) as view:
        moment = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        assert of_spark(table_changes(view, ITEMS, moment)) == of_feed(hive, ITEMS, start)


@pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_state_and_changes_equal_state(
    hive_line: HiveJudge, line_database: str, spark: SparkSession, seed: int
) -> None:
    """As Hive reads it, before and after a minor compaction; after a major one the call is refused."""
    with connect(hive_line.uri) as hive:
        shop = Shop(hive_line, hive, line_database, random.Random(seed))
        shop.step()
        start, before = shop.position(), shop.state()
        for _ in range(6):
            shop.step()

        def check_here() -> None:
            with client_of(hive) as client, client.open_snapshot(*shop.names) as view:
                tables = {name: _AsTable(table_changes(view, name, start)) for name in shop.names}
                assert applied(before, [_AsTransaction(tables)]) == shop.state()
                for name in shop.names:
                    for options in OPTIONS:
                        found = of_spark(table_changes(view, name, start, **options))
                        assert found == of_feed(hive, name, start, **options)

        check_here()
        shop.compact("minor")
        check_here()
        shop.compact("major")
        hive_line.cleaner()
        with (
            client_of(hive) as client,
            client.open_snapshot(*shop.names) as view,
            pytest.raises(DirectoryStateError, match="no longer complete"),
        ):
            table_changes(view, shop.names[1], start)


class _AsTable:
    """Spark's changes in the form of the local feed."""

    def __init__(self, changes: DataFrame) -> None:
        self._changes = changes

    def to_arrow(self) -> Any:
        return self._changes.toArrow()


class _AsTransaction:
    """All changes as one transaction."""

    def __init__(self, tables: dict[str, _AsTable]) -> None:
        self.tables = tables
