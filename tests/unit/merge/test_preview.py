"""What a dry run shows beside counts: rows before and after, and the locks of others."""

from __future__ import annotations

from typing import Any

import pyspark.sql.functions as sf
import pytest
from pyspark.sql import DataFrame, SparkSession

from metastore_client.model import LockInfo, LockState, LockType
from mutation_api.merge.preview import ForeignLock, SampleRow, foreign_locks
from mutation_api.merge.spark_evaluator import sample_rows

pytestmark = pytest.mark.tasks


def lock(partition: str | None, txn_id: int | None = 7, **changes: Any) -> LockInfo:
    values = {"state": LockState.ACQUIRED, "type": LockType.SHARED_WRITE} | changes
    return LockInfo(1, "d", "t", partition, txn_id=txn_id, user="etl", hostname="host", **values)


def test_locks_that_cover_a_touched_partition() -> None:
    """Locks on the partition, on the table and on the first partition keys; each once."""
    locks = [
        lock("ds=a/hr=1"),
        lock("ds=a/hr=1"),
        lock("ds=a"),
        lock("ds=a/hr=11"),
        lock("ds=b"),
        lock(None, None, type=LockType.EXCLUSIVE, state=LockState.WAITING),
    ]
    found = foreign_locks(locks, {"ds=a/hr=1", "ds=c/hr=1"})
    assert found == (
        ForeignLock(None, "etl", "host", "EXCLUSIVE", "WAITING", None),
        ForeignLock(7, "etl", "host", "SHARED_WRITE", "ACQUIRED", "ds=a"),
        ForeignLock(7, "etl", "host", "SHARED_WRITE", "ACQUIRED", "ds=a/hr=1"),
    )
    assert str(found[0]) == "a client without a transaction (etl@host) waits for EXCLUSIVE on the whole table"


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (
            SampleRow("updated", "", '{"id":5}', {"id": 5, "n": "1.5"}, {"id": 5, "n": None}),
            'updated {"id":5}: n "1.5" → NULL',
        ),
        (SampleRow("updated", "", '{"id":5}', {"id": 5}, {"id": 5, "n": "b"}), 'updated {"id":5}: n → "b"'),
        (
            SampleRow("inserted", "ds=a", None, None, {"d": "2024-01-02", "s": "x" * 99}),
            f'inserted in ds=a: d "2024-01-02", s "{"x" * 58}…',
        ),
        (SampleRow("deleted", "", '{"id":5}', {}, None), 'deleted {"id":5}'),
        (
            SampleRow("inserted", "", "k", None, {f"c{n}": n for n in range(10)}),
            f"inserted k: {', '.join(f'c{n} {n}' for n in range(8))}, … and 2 more columns",
        ),
    ],
)
def test_a_sample_row_as_text(row: SampleRow, text: str) -> None:
    """What differs; a value that was not read has nothing before its arrow."""
    assert str(row) == text


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(200).selectExpr(
        "element_at(array('inserted', 'updated', 'deleted', 'moved', 'unchanged'), "
        "1 + cast(id % 5 AS int)) kind",
        "concat('ds=', id % 3) partition",
        "IF(id < 100, to_json(named_struct('id', id)), '{}') key",
        "IF(id % 5 = 0, NULL, named_struct('id', id, 'n', 1.5bd, 'when', date '2024-01-02', "
        "'late', make_date(12000, 1, 1), 'tags', map('k', array(X'ff')))) before",
        "IF(id % 5 = 2, NULL, named_struct('id', id, 'by_key', map(named_struct('a', 1), 2))) after",
    )


@pytest.mark.slow
def test_samples_are_the_same_each_time(spark: SparkSession) -> None:
    """However the rows lie, also those whose key is not their own; values are those of JSON files."""
    found = sample_rows(rows(spark), 3)
    assert found == sample_rows(rows(spark).orderBy("key").repartition(7), 3)
    assert [row.kind for row in found] == [
        k for k in ("inserted", "updated", "deleted", "moved") for _ in "123"
    ]
    assert all(row.before is None for row in found[:3])
    deleted = found[6]
    assert deleted.after is None
    assert deleted.before is not None
    id_ = deleted.before["id"]
    assert (id_ % 5, deleted.partition) == (2, f"ds={id_ % 3}")
    assert (deleted.before["n"], deleted.before["when"]) == ("1.5", "2024-01-02")
    assert deleted.before["tags"] == {"k": ["/w=="]}
    assert deleted.before["late"] == "12000-01-01"
    assert found[0].after == {"id": found[0].after["id"], "by_key": [[{"a": 1}, 2]]}  # type: ignore[index]
    assert sample_rows(rows(spark), 0) == ()
    unread = rows(spark).withColumn("before", sf.lit(None).cast("string")).where("kind = 'deleted'")
    assert [(row.kind, row.before, row.after) for row in sample_rows(unread, 1)] == [("deleted", None, None)]
