"""Keys of a char that end with blanks, by Spark's merge; test_char_blanks.py has the local one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import MutatorClientBuilder, connect, create_acid_table, merge_into
from mutation_api.errors import RecordValueError
from tests.fixtures.fix_spark import few_rows_to_the_driver

pytestmark = pytest.mark.slow

NAME = "default.t"


@pytest.mark.parametrize("few_bytes", [0, 1 << 24])
def test_padded_keys_are_refused(spark: SparkSession, tmp_path: Path, few_bytes: int) -> None:
    """By tasks and by the driver: they equal no char as it is read, so the merge would do nothing."""
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    columns = [ColumnInfo("id", "bigint"), ColumnInfo("c", "char(4)"), ColumnInfo("s", "string")]
    create_acid_table(metastore, NAME, columns, clustered_by=["id"], num_buckets=2)
    with connect(metastore) as hive, hive.transaction(NAME) as transaction:
        transaction.table(NAME).append(pa.table({"id": [1], "c": ["a"], "s": ["x"]}))

    def updated(key: str, on: Any) -> int:
        source = spark.createDataFrame([(1, key, "new")], "id long, c string, s string")
        with (
            MutatorClientBuilder().metastore(metastore).add_sink_table(NAME).build() as client,
            client.new_transaction() as begun,
        ):
            merge = merge_into(begun, NAME, source=source, on=on).whenMatched().update({"s": "source.s"})
            return merge.dry_run().total.updated

    with few_rows_to_the_driver(spark, few_bytes):
        for on in (["c"], "source.c = target.c and source.id = target.id"):
            with pytest.raises(
                RecordValueError, match=r"key column 'c' is of type char, .* the source key 'a  '"
            ):
                updated("a  ", on)
            assert updated("a", on) == 1
        assert updated("a  ", ["id"]) == 1
