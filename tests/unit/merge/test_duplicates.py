"""The message about duplicates, word for word, and which matches count as duplicates."""

from __future__ import annotations

from pathlib import Path

import pyspark.sql.functions as sf
import pytest
from pyspark.sql import SparkSession

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import DuplicateKeyError, MutatorClientBuilder, apply_changes, create_acid_table, merge_into
from mutation_api.merge.clauses import first_by
from mutation_api.merge.source_rows import DuplicatedKey, copied_keys_error, duplicate_key_error


def test_the_error_names_keys_and_rows() -> None:
    """Keys up to the number shown, three rows of each, and how many more there are."""
    samples = [
        DuplicatedKey(key='{"icao":"EDDF"}', row_count=2, rows=['{"n":2}', '{"n":1}']),
        DuplicatedKey(key='{"icao":"LFPG"}', row_count=4, rows=['{"n":3}', '{"n":4}', '{"n":5}']),
    ]
    assert str(duplicate_key_error("d.t", 1200, samples)) == (
        "table d.t: 1,200 keys have more than one source row that would act, so the result would be "
        "ambiguous: "
        '(icao=\'EDDF\') in 2 rows: {"n":1}, {"n":2}; '
        '(icao=\'LFPG\') in 4 rows: {"n":3}, {"n":4}, {"n":5}, …; '
        "and 1,198 more. Nothing was written. Keep one source row per key, or choose which one is used "
        "with on_duplicate=first_by(…)"
    )


def test_a_copy_names_its_keys() -> None:
    """The same count and the same cut, said of keys that Hive does not keep apart."""
    assert str(copied_keys_error("the copy of shop.t", "d.t", 1, ['{"code":"a"}'])) == (
        'the copy of shop.t: 1 key has more than one row when stored in d.t: {"code":"a"}. Nothing was '
        "written. If each key occurs only once in the source, choose types for the key columns in Hive that "
        "keep the values distinct"
    )
    assert '{"a":1}; {"a":2}; and 1,198 more. ' in str(
        copied_keys_error("the copy", "d.t", 1200, ['{"a":1}', '{"a":2}'])
    )


def test_an_order_needs_a_column() -> None:
    """Without a column the first row would be random."""
    with pytest.raises(ValueError, match="first_by requires at least one column to order by"):
        first_by()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.tasks
def test_repeated_matches_count_if_a_delete_has_a_condition(spark: SparkSession, tmp_path: Path) -> None:
    """Also if the condition is a Column; without one, the same rows are deleted once."""
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    create_acid_table(metastore, "default.t", [ColumnInfo("id", "bigint")])
    rows = spark.sql("select 1L id, 'D' op union all select 1L, 'D'")
    with MutatorClientBuilder().metastore(metastore).add_sink_table("default", "t").build() as client:
        with client.new_transaction() as transaction:
            apply_changes(transaction, "default.t", spark.sql("select 'insert' operation, 1L id"))
        with client.new_transaction() as transaction:
            merge = merge_into(transaction, "default.t", source=rows, on=["id"])
            with pytest.raises(DuplicateKeyError, match=r"\(id=1\) in 2 rows"):
                merge.whenMatched(sf.col("source.op") == "D").delete().execute()
            merge.clauses.clear()
            assert merge.whenMatched().delete().execute().total.deleted == 1
