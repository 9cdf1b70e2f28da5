"""diff: the changes between two states of a table, applied in plain Python, give the second state."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from mutation_api.acid.version import AcidVersion
from mutation_api.changes.spark_merge.diff import count_operations, diff
from mutation_api.errors import ConfigurationError, DuplicateKeyError, RecordLayoutError, RecordValueError
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable

pytestmark = pytest.mark.slow

TABLE = AcidTable(
    database="default",
    name="t",
    location=Location.parse("/warehouse/t"),
    columns=(
        AcidColumn("id", "int"),
        AcidColumn("sub", "string"),
        AcidColumn("price", "decimal(6,2)"),
        AcidColumn("tags", "map<string,int>"),
        AcidColumn("ratio", "double"),
    ),
    partition_keys=(AcidColumn("ds", "string"),),
    num_buckets=4,
    bucket_columns=("price",),
    version=AcidVersion.V1_LEGACY,
)
ROW = "id int, sub string, price decimal(6,2), tags map<string,int>, ratio double, ds string"
ROW_ID = "struct<transactionid:bigint,bucketid:int,rowid:bigint,partition:string>"
NEW = (
    "RATIO double, ROW__ID string, ds string, Id bigint, sub string, tags map<string,int>, price decimal(9,3)"
)
Row = tuple[Any, ...]
NAN = float("nan")


def old_state(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """A snapshot of these rows; row n has the row id n."""
    ids = [(7, n % 4, n, f"ds={row[-1]}") for n, row in enumerate(rows)]
    return spark.createDataFrame(
        [(i, *row) for i, row in zip(ids, rows, strict=True)], f"ROW__ID {ROW_ID}, {ROW}"
    )


def new_state(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """The rows in another order, of wider types, with a meaningless ROW__ID."""
    shuffled = [(r[4], "?", r[5], r[0], r[1], r[3], r[2]) for r in rows]
    return spark.createDataFrame(shuffled, NEW)


def applied(rows: list[Row], changes: list[Row]) -> list[Row]:
    """The rows after the changes; each row may be changed once, and an update may not move it."""
    state = dict(enumerate(rows))
    met: set[int] = set()
    inserted = []
    for operation, row_id, *values in changes:
        if operation == "insert":
            assert row_id is None
            inserted.append(tuple(values))
            continue
        number = row_id["rowid"]
        assert number not in met, "a row is changed twice"
        met.add(number)
        before = state.pop(number)
        if operation == "delete":
            assert repr(tuple(values)) == repr(before)
        else:
            assert operation == "update"
            assert (values[2], values[5]) == (before[2], before[5]), "an update moves a row"
            assert repr(tuple(values)) != repr(before), "an update changes nothing"
            inserted.append(tuple(values))
    return [*state.values(), *inserted]


def some_rows(dice: random.Random) -> list[Row]:
    """Rows of few keys, NULLs among them, and few values."""
    keys = dice.sample([(n, sub) for n in (None, 1, 2, 3, 4) for sub in (None, "", "a")], dice.randint(0, 12))
    return [
        (
            *key,
            dice.choice([None, Decimal("1.50"), Decimal("2.00")]),
            dice.choice([None, {}, {"x": 1}, {"x": 1, "y": None}]),
            dice.choice([None, 0.5, NAN]),
            dice.choice(["u", "v"]),
        )
        for key in keys
    ]


@pytest.mark.parametrize("seed", range(3))
def test_the_changes_lead_from_one_state_to_the_other(spark: SparkSession, seed: int) -> None:
    """Random states: applied to the first, the changes give the second, and touch no row without need."""
    dice = random.Random(seed)
    old, new = some_rows(dice), some_rows(dice)
    new = [
        dice.choice([row for row in old if row[:2] == each[:2]] or [each]) if dice.random() < 0.4 else each
        for each in new
    ]
    changes = diff(TABLE, old_state(spark, old), new_state(spark, new), ["ID", "sub"])
    assert changes.columns == ["operation", "ROW__ID", "id", "sub", "price", "tags", "ratio", "ds"]
    found = [tuple(row) for row in changes.collect()]
    counts = count_operations(changes)
    changes.unpersist()
    assert list(counts) == ["insert", "update", "delete"]
    assert Counter(counts) == Counter(operation for operation, *_ in found)
    assert sorted(map(repr, applied(old, found))) == sorted(map(repr, new))
    assert len(found) <= 2 * len(set(map(repr, old)) ^ set(map(repr, new)))
    assert not diff(TABLE, old_state(spark, new), new_state(spark, new), ["id", "sub"]).collect()


def test_values_are_compared_as_they_would_be_stored(spark: SparkSession) -> None:
    """A value rounded to the stored one is not a change; one that does not fit is reported with its key."""
    old = old_state(spark, [(1, "a", Decimal("1.50"), None, 0.0, "u")])
    rounded = new_state(spark, [(1, "a", Decimal("1.501"), None, -0.0, "u")])
    assert not diff(TABLE, old, rounded, ["id"]).collect()
    too_big = new_state(spark, [(1, "a", Decimal("99999.5"), None, 0.0, "u")])
    with pytest.raises(RecordValueError, match=r'row \{"id":1\}: column .price.'):
        diff(TABLE, old, too_big, ["id"])


def test_keys_that_occur_twice_are_named(spark: SparkSession) -> None:
    """In the table or in the other state; NULL counts as a key like others."""
    once = [(1, "a", None, None, None, "u"), (None, "b", None, None, None, "u")]
    twice = [*once, (None, "c", None, None, None, "v")]
    with pytest.raises(DuplicateKeyError) as caught:
        diff(TABLE, old_state(spark, twice), new_state(spark, once), ["id"])
    assert str(caught.value) == (
        'table default.t: the key id is not unique in the table: {"id":null} in 2 rows. Choose a unique key, '
        "or keep one row for each"
    )
    with pytest.raises(DuplicateKeyError, match=r"not unique in what it is compared with: .* in 2 rows"):
        diff(TABLE, old_state(spark, once), new_state(spark, twice), ["id"])


def test_what_cannot_be_compared_is_refused(spark: SparkSession) -> None:
    """Unknown or doubled keys, maps as keys, an operation named like a column, other columns, no ROW__ID."""
    old, new = old_state(spark, []), new_state(spark, [])
    for keys in ([], ["nix"], ["id", "ID"]):
        with pytest.raises(ConfigurationError, match="cannot be its key: name at least one of its columns"):
            diff(TABLE, old, new, keys)
    with pytest.raises(ConfigurationError, match="maps cannot be keys: tags"):
        diff(TABLE, old, new, ["tags"])
    with pytest.raises(
        ConfigurationError, match="has a column 'Sub' itself; give the operation another name"
    ):
        diff(TABLE, old, new, ["id"], operation_column="Sub")
    for other in (new.drop("ratio"), new.withColumnRenamed("sub", "more")):
        with pytest.raises(RecordLayoutError, match="what it is compared with must have the same, found"):
            diff(TABLE, old, other, ["id"])
    insert_only = dataclasses.replace(TABLE, version=AcidVersion.INSERT_ONLY_HIVE4)
    with pytest.raises(RecordLayoutError, match="insert-only: its rows have no ROW__ID"):
        diff(insert_only, old.drop("ROW__ID"), new, ["id"])
