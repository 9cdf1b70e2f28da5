"""The reader of ``hive_changes``, asked as Spark asks it: offsets, limits, and the same batch again."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import DateType, IntegerType, LongType, StringType, StructField, StructType

from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.cdc import changes_source
from mutation_api.cdc.changes_source import HiveChangesSource
from mutation_api.errors import ConfigurationError, DirectoryStateError, RecordLayoutError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.feed_position import changes_position
from tests.unit.hive.test_changes import rows, step

NAME = "default.orders"
GOOD = {"table": NAME, "since": "now"}
LINES = {"2.3": HIVE_2_3, "3.1": HIVE_3_1, "4.1": HIVE_4_1}


class Query:
    """What Spark does: it keeps offsets, plans batches, and reads them in tasks."""

    def __init__(self, hive: Hive, **options: str) -> None:
        self._hive, self._options = hive, {"table": NAME, **options}
        self.batches: list[tuple[Any, Any, Counter[Any]]] = []
        self.start()

    def start(self) -> None:
        """Begin, or go on after a restart."""
        id_type = LongType()
        first = "writeid" if self._hive.table(NAME)._table.version.uses_write_ids else "transactionid"
        row_id = [
            StructField(first, id_type),
            StructField("bucketid", IntegerType()),
            StructField("rowid", id_type),
            StructField("partition", StringType()),
        ]
        fields = [
            StructField("_change", StringType()),
            StructField("_write_id", id_type),
            StructField("ROW__ID", StructType(row_id)),
            StructField("id", id_type),
            StructField("item", StringType()),
            StructField("day", DateType()),
        ]
        self.reader: Any = HiveChangesSource(self._options).streamReader(StructType(fields))
        self.reader._client = MutatorClientBuilder().metastore(self._hive._metastore).build().connect()
        self.offset = self.batches[-1][1] if self.batches else self.reader.initialOffset()

    def run(self) -> list[Counter[Any]]:
        """Read all batches that are there."""
        found = []
        limit = self.reader.getDefaultReadLimit()
        while (end := self.reader.latestOffset(self.offset, limit)) != self.offset:
            end = json.loads(json.dumps(end))
            batch = self.read(self.offset, end)
            self.batches.append((self.offset, end, batch))
            self.reader.commit(end)
            self.offset = end
            found.append(batch)
        return found

    def read(self, start: Any, end: Any) -> Counter[Any]:
        """The rows of a batch, and how often they occur."""
        tasks = [pickle.loads(pickle.dumps(each)) for each in self.reader.partitions(start, end)]
        found: Counter[Any] = Counter()
        for task in tasks:
            for batch in self.reader.read(task):
                found.update(str(row) for row in batch.to_pylist())
        return found


@pytest.fixture(params=LINES)
def hive(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A partitioned and bucketed table."""
    metastore = InMemoryMetastore(tmp_path, capabilities=LINES[request.param])
    with connect(metastore) as connected:
        create(connected)
        yield connected


def create(hive: Hive) -> None:
    """The table."""
    hive.create_table(
        NAME,
        "id bigint, item string, day date",
        partitioned_by=["day"],
        properties={"transactional_properties": "default"},
        clustered_by=["id"],
        num_buckets=2,
    )


def of_feed(hive: Hive, since: str) -> Counter[Any]:
    """What the local feed has."""
    with hive.changes(NAME, since=since) as feed:
        return Counter(str(row) for each in feed for row in each.tables[NAME].to_arrow().to_pylist())


def change(hive: Hive, rng: random.Random, times: int = 4) -> None:
    """Random transactions, and an aborted one."""
    for _ in range(times):
        with hive.transaction(NAME, create_partitions=True) as tx:
            step(tx.table(NAME), rng)
            if rng.random() < 0.2:
                tx.abort()


@pytest.mark.thorough
@pytest.mark.parametrize("limits", [{}, {"maxTransactionsPerTrigger": "1"}, {"maxRowsPerTrigger": "4"}])
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 30))])
def test_batches_are_the_changes_once(hive: Hive, seed: int, limits: dict[str, str]) -> None:
    """Over restarts; and each batch can be read again, as it was, much later."""
    rng = random.Random(seed)
    change(hive, rng)
    with hive.changes(NAME, since="now") as feed:
        start = feed.position
    query = Query(hive, since=start, **limits)
    for _ in range(3):
        change(hive, rng)
        query.run()
        query.start()
    together: Counter[Any] = sum((each for _, _, each in query.batches), Counter())
    assert together == of_feed(hive, start)
    assert not limits or len(query.batches) > 3
    for begin, end, batch in query.batches:
        assert query.read(begin, end) == batch
    assert query.run() == []


@pytest.mark.thorough(1)
def test_the_beginning_is_one_batch(hive: Hive) -> None:
    """With all rows, whatever the limits; changes follow, and each transaction is whole."""
    hive.table(NAME).append(rows((1, "tea", 1), (2, "milk", 2)), create_partitions=True)
    hive.table(NAME).delete(where="id = 1")
    query = Query(hive, since="beginning", maxRowsPerTrigger="1")
    (first,) = query.run()
    assert [("'insert'" in each, "milk" in each) for each in first] == [(True, True)]
    hive.table(NAME).append(rows((3, "wine", 1), (4, "rum", 2)))
    hive.table(NAME).update(set={"item": "'water'"}, where="id = 3")
    assert [sum(each.values()) for each in query.run()] == [2, 2]


def test_an_open_transaction_comes_later(tmp_path: Path) -> None:
    """Its id is below the end of a batch, which does not have it."""
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    with connect(metastore, write_lock="optimistic") as hive:
        create(hive)
        hive.table(NAME).append(rows((1, "tea", 1), (2, "milk", 2)), create_partitions=True)
        query = Query(hive, since="now")
        slow = hive.transaction(NAME).begin()
        slow.table(NAME).append(rows((3, "wine", 1)))
        hive.table(NAME).append(rows((4, "rum", 2)))
        (first,) = query.run()
        slow.commit()
        query.start()
        (second,) = query.run()
    assert "rum" in str(first) and "wine" in str(second)
    assert sum(first.values()) == sum(second.values()) == 1


def test_a_query_that_ends_with_what_is_there(hive: Hive) -> None:
    """Later changes belong to the next one."""
    hive.table(NAME).append(rows((1, "tea", 1)), create_partitions=True)
    query = Query(hive, since="beginning")
    query.reader.prepareForTriggerAvailableNow()
    hive.table(NAME).append(rows((2, "milk", 1)))
    (first,) = query.run()
    assert sum(first.values()) == 1
    query.start()
    (second,) = query.run()
    assert "milk" in str(second)


def test_limits_can_be_set_aside(hive: Hive) -> None:
    """Spark passes its own limit for some triggers."""
    query = Query(hive, since="now", maxTransactionsPerTrigger="1")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(2**63 - 1)
    for number in range(3):
        hive.table(NAME).append(rows((number, "tea", 1)), create_partitions=True)
    end = query.reader.latestOffset(query.offset, ReadAllAvailable())
    assert sum(query.read(query.offset, end).values()) == 3
    assert Query(hive, since="now").reader.getDefaultReadLimit() == ReadAllAvailable()


def test_files_that_are_gone_are_named(hive: Hive, tmp_path: Path) -> None:
    """A base above the position: the batch can neither be planned nor guessed."""
    hive.table(NAME).append(rows((1, "tea", 1)), create_partitions=True)
    query = Query(hive, since="now")
    hive.table(NAME).append(rows((2, "milk", 1)))
    start = query.offset
    end = query.reader.latestOffset(start, ReadAllAvailable())
    query.reader.stop()
    delta = max(tmp_path.rglob("delta_*"), key=lambda each: each.name)
    delta.rename(delta.with_name("base_" + delta.name.split("_")[2]))
    query.start()
    with pytest.raises(DirectoryStateError, match="no longer complete"):
        query.reader.partitions(start, end)
    with pytest.raises(DirectoryStateError, match="no longer complete"):
        query.reader.latestOffset(start, ReadAllAvailable())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "the option table is missing"),
        ({"table": NAME}, "the option since is missing"),
        ({"table": NAME, "since": "yesterday"}, "is not a position, beginning, now, or a time"),
        ({"table": NAME, "since": "now", "key": "id"}, "has no option key: it has table,"),
        (
            {"table": NAME, "since": "now", "MAXROWSPERTRIGGER": "0"},
            "must be a number above 0",
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    """When the reader is made; the message says what to pass."""
    with pytest.raises(ConfigurationError, match=message):
        HiveChangesSource(options).streamReader(StructType([]))


def test_limits_need_a_spark_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Spark 4.2 a source does not get the start of a batch."""
    monkeypatch.setattr(changes_source, "has_read_limits", lambda: False)
    with pytest.raises(ConfigurationError, match=r"require Spark 4\.2"):
        HiveChangesSource({"table": NAME, "since": "now", "maxRowsPerTrigger": "1"}).streamReader(
            StructType([])
        )


def test_a_column_that_is_gone_is_named(hive: Hive) -> None:
    """A query keeps the columns with which it began."""
    query = Query(hive, since="beginning")
    query.reader._schema = StructType([StructField("gone", StringType())])
    with pytest.raises(RecordLayoutError, match="gone"):
        query.reader.partitions(query.offset, query.reader.latestOffset(query.offset, None))


def test_a_transaction_has_not_seen_its_own_changes(hive: Hive) -> None:
    """The position within it is before them, so the next feed has them."""
    hive.table(NAME).append(rows((1, "tea", 1)), create_partitions=True)
    with hive.transaction(NAME) as tx:
        tx.table(NAME).append(rows((2, "milk", 1)))
        position = changes_position(tx._begun(), NAME)
    found = of_feed(hive, position)
    assert sum(found.values()) == 1 and "milk" in str(found)
