"""merge_into: what it refuses, word for word, and the cases of Hive's own suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from judges.hive.hive_judges import Hive23
from metastore_client.client import MetastoreClient
from mutation_api import MergeCounts, MergeInto, first_by, merge_into
from mutation_api.errors import (
    ClientError,
    DuplicateKeyError,
    MutationError,
    RecordLayoutError,
    RecordValueError,
)
from mutation_api.transaction.mutator_client import MutatorClient
from tests.integration.transactions.live_table import LiveTable

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def numbers(
    hive: Hive23, live_metastore: MetastoreClient, live_database: str
) -> Iterator[tuple[MutatorClient, LiveTable]]:
    """A flat table of two integers."""
    live = LiveTable.create(
        hive,
        live_metastore,
        live_database,
        columns="a int, b int",
        keys="",
        layout="default",
        bucket_columns=("a",),
    )
    with live.client() as client:
        yield client, live


def pairs(spark: SparkSession, *rows: tuple[int | None, int | None], names: str = "a, b") -> DataFrame:
    values = ", ".join(f"({'NULL' if a is None else a}, {'NULL' if b is None else b})" for a, b in rows)
    return spark.sql(f"SELECT * FROM VALUES {values} AS s({names})")


def test_refusals_and_the_cases_of_hive(
    numbers: tuple[MutatorClient, LiveTable], spark: SparkSession
) -> None:
    """Clauses as in Hive's suite; what is refused says why, word for word, and changes nothing."""
    client, live = numbers
    name = live.full_name

    def merge(source: DataFrame, on: Any = ("a",), **options: Any) -> MergeInto:
        return merge_into(transaction, name, source=source, on=on, **options)

    with client.new_transaction() as transaction:
        first = pairs(spark, (2, 1), (4, 3), (5, 6), (7, 8), (7, 9))
        order = first_by(sf.col("source.b"))
        assert merge(first, on_duplicate=order).whenNotMatched().insertAll().execute().total.inserted == 4
    assert live.values() == [(2, 1), (4, 3), (5, 6), (7, 8)]
    before = live.state()
    source = pairs(spark, (2, 2), (4, 44), (5, 5), (11, 11))
    doubled = pairs(spark, (2, 3), (2, 2))
    big = spark.sql("SELECT 2 a, 3000000000L b")
    more = source.withColumn("c", sf.lit(1))
    cases: list[tuple[Callable[[], MergeInto], type[MutationError], str]] = [
        (
            lambda: merge(doubled).whenMatched().updateAll(),
            DuplicateKeyError,
            "1 key has more than one source row that would act, so the result would be ambiguous: (a=2) in 2 "
            'rows: {"a":2,"b":2}, {"a":2,"b":3}. Nothing was written. Keep one source row per key, or '
            "choose which one is used with on_duplicate=first_by(…)",
        ),
        (
            lambda: merge(big).whenMatched().updateAll(),
            RecordValueError,
            "row {\"a\":2}: column 'b' (int): value 3000000000 is not a whole "
            "number from -2147483648 to 2147483647",
        ),
        (
            lambda: merge(source.withColumn("b", sf.array("b"))).whenMatched().updateAll(),
            RecordLayoutError,
            "column 'b' (int) cannot hold array<int> values; cast it in the source",
        ),
        (
            lambda: merge(source.drop("b"), missing_columns="error").whenMatched().updateAll(),
            RecordLayoutError,
            "the source lacks the columns b, which whenMatched().updateAll requires",
        ),
        (
            lambda: merge(more).whenNotMatched().insertAll(),
            RecordLayoutError,
            "the source has columns that are not in the table and that no condition reads: c. The "
            "table's columns are a, b",
        ),
        (
            lambda: merge(source, ["c"]).whenMatched().delete(),
            RecordLayoutError,
            "the table has no key column c. Its columns are a, b",
        ),
        (
            lambda: merge(source.drop("a")).whenMatched().delete(),
            RecordLayoutError,
            "the source has no key column a. Its columns are b",
        ),
        (
            lambda: merge(source).whenMatched("rand() < source.b").delete(),
            RecordLayoutError,
            "the condition of whenMatched(rand() < source.b).delete 'rand() < source.b' is not "
            "deterministic, so a repeated task would write different rows. Make it a column of "
            "the source, and materialise the source",
        ),
        (
            lambda: merge(source).whenMatched().update({"x": "source.b"}),
            RecordLayoutError,
            "whenMatched().update assigns columns that the table does not have: x. The table's columns "
            "are a, b",
        ),
        (
            lambda: merge(source),
            RecordLayoutError,
            "the merge has no clauses. Add one, such as whenMatched() or when_matched_update_all()",
        ),
    ]
    with client.new_transaction() as transaction:
        for begin, error, message in cases:
            with pytest.raises(error) as caught:
                begin().execute()
            assert str(caught.value) == f"table {name}: {message}"
        assert live.state() == before
        plain = merge(doubled).whenMatched().delete().dry_run()
        assert plain.total == MergeCounts(deleted=1)
        on = "source.a = target.a AND source.b <> 44"
        assert merge(source, on).whenMatched().delete().dry_run().total == MergeCounts(deleted=2)
        by_hive = (
            merge(source)
            .whenMatched("source.a < 3")
            .update({"b": "0"})
            .whenMatched("source.a < 5")
            .delete()
            .whenNotMatched()
            .insertAll()
        )
        assert by_hive.execute().total == MergeCounts(inserted=1, updated=1, deleted=1)
    assert live.values() == [(11, 11), (2, 0), (5, 6), (7, 8)]


def test_a_key_is_not_inserted_as_another(
    hive: Hive23, live_metastore: MetastoreClient, live_database: str, spark: SparkSession
) -> None:
    """Cut to fit its column it would be a second row of its key; nor is an unknown table merged into."""
    live = LiveTable.create(
        hive,
        live_metastore,
        live_database,
        columns="k varchar(2), b int",
        keys="",
        layout="default",
        bucket_columns=("k",),
    )
    name = live.full_name
    with live.client() as client:
        with client.new_transaction() as transaction:
            merge_into(
                transaction, name, source=spark.sql("SELECT 'ab' k, 1 b"), on=["k"]
            ).whenNotMatched().insertAll().execute()
        before = live.state()
        source = spark.sql("SELECT * FROM VALUES ('ab', 2), ('abc', 3) AS s(k, b)")
        with client.new_transaction() as transaction:
            merge = merge_into(transaction, name, source=source, on=["k"]).whenNotMatched().insertAll()
            with pytest.raises(RecordValueError) as caught:
                merge.execute()
            assert str(caught.value) == (
                f"table {name}: keys to insert would be stored as different keys, which may equal keys of "
                "existing rows: k='abc' as 'ab'. Nothing was written. Cast or trim the keys in the source "
                "so that they match"
            )
            with pytest.raises(ClientError) as unknown:
                merge_into(transaction, "d.nowhere", source=source, on=["k"]).whenMatched().delete().execute()
            assert str(unknown.value) == (
                f"table d.nowhere is not part of the transaction, which has {name}: name it where the "
                "transaction is created, in Hive.transaction(…) or MutatorClientBuilder.add_sink_table(…)"
            )
            assert live.state() == before
