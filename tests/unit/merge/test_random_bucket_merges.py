"""Random merges by Spark's tasks beside the model, in memory: rows, counts and refusals.

Hive judges such cases in ``tests/integration/merges/test_merge_random.py``; here more run in the same time,
and the bounds of memory are so small that a task merges its part of the source in several passes.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from metastore_client.testing import InMemoryMetastore
from mutation_api import DuplicateKeyError, MergeInto, RecordValueError, WriterOptions
from mutation_api.merge import spark_merge
from mutation_api.merge.spark_buckets import BucketPlan, bucket_plan
from tests.integration.merges.merge_cases import random_merge, random_rows, random_shape, random_source
from tests.integration.merges.merge_model import outcome
from tests.integration.merges.merge_tables import Place, in_order
from tests.integration.merges.test_merge_random import begun
from tests.unit.merge.local_merge.test_random_local_merges import LAYOUTS, RELEASES, check, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.tasks]

CASES = 16
OWNED_SHARE = 0.8
"""The other cases have buckets by other columns, or none."""
OPTIONS = WriterOptions(sort_memory_bytes=1000)
"""A source of forty rows takes about ten passes."""


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[BucketPlan | str]:
    """The plans of merges, or the reasons why Spark pairs their rows."""
    found: list[BucketPlan | str] = []

    def recorded(*args: Any, **options: Any) -> BucketPlan | str:
        found.append(bucket_plan(*args, **options))
        return found[-1]

    monkeypatch.setattr(spark_merge, "bucket_plan", recorded)
    return found


@pytest.mark.parametrize("first", range(0, 5 * CASES, CASES))
@pytest.mark.parametrize(("line", "layout"), LAYOUTS)
def test_random_merges_by_tasks(
    spark: SparkSession, tmp_path: Path, plans: list[BucketPlan | str], line: str, layout: str, first: int
) -> None:
    """Rows, counts of merge and dry run, and refusals are those of the model; tasks often own buckets."""
    metastore = InMemoryMetastore(tmp_path, capabilities=RELEASES[line])
    place = Place(cast(Any, SimpleNamespace(line=line, uri=metastore)), metastore, "default")
    for seed in range(first, first + CASES):
        rng = random.Random(f"{line} {layout} {seed} tasks")
        shape = random_shape(rng, line, layout)
        if shape.is_original:
            continue  # its plain files are made by Hive
        if rng.random() < OWNED_SHARE:
            shape = replace(shape, bucket_columns=("k",), num_buckets=rng.choice([2, 3, 5]))
        table = place.of(shape)
        for _ in range(rng.randrange(3)):
            table.insert(random_rows(rng, shape, rng.randrange(5, 12)))
            if layout != "insert_only":
                table.change(rng)
        before = sorted(rows_of(table), key=repr)
        merge = replace(random_merge(rng, shape), on_too=None)
        given = random_source(rng, shape, merge, before)
        expected = outcome(shape.target, before, given.rows, merge)
        try:
            with table.client() as client, client.new_transaction() as transaction:
                if expected.refused_by:
                    error = RecordValueError if expected.refused_by == "key" else DuplicateKeyError
                    for ask in (MergeInto.dry_run, MergeInto.execute):
                        with pytest.raises(error):
                            ask(begun(spark, transaction, table, merge, given))
                else:
                    dry = begun(spark, transaction, table, merge, given).dry_run()
                    done = begun(spark, transaction, table, merge, given).execute(options=OPTIONS)
                    check(done, expected)
                    check(dry, expected)
                    assert (dry.file_count, dry.new_partitions) == (done.file_count, done.new_partitions)
            assert in_order(rows_of(table)) == in_order(before if expected.refused_by else expected.rows)
        except BaseException as error:
            error.add_note(f"seed {seed}: {shape}\n{merge}\nrows {before}\nsource {given}\n{plans[-1:]}")
            raise
    owned = [each for each in plans if isinstance(each, BucketPlan)]
    if line != "3.1":  # whose rows may lie in other buckets
        assert owned
