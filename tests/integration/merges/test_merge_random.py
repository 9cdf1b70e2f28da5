"""Random merges on every line of Hive.

A table of a random shape is filled and changed by us and by Hive, then rows are merged into it. A model in
plain Python says what has to come out; Hive's two readers say what did; Hive's own MERGE, UPDATE and DELETE
on a copy of the table say what it would have done. A failing case prints its seed and itself;
``--history-seed N --long`` runs it alone.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from judges.hive.hive_judges import Hive23, Hive31, Hive41
from metastore_client.remote.thrift_client import open_client
from mutation_api import MergeInto, MergeReport, first_by, merge_into
from mutation_api.errors import DuplicateKeyError, RecordValueError
from mutation_api.merge.clauses import COLLECTED_KEYS_DEFAULT
from mutation_api.merge.local_merge import LocalMerge
from mutation_api.spark.job import FEW_BYTES_DEFAULT
from mutation_api.transaction.transaction import Transaction
from tests.fixtures.fix_judge import new_database
from tests.fixtures.fix_spark import few_rows_to_the_driver, rows_paired_by_spark
from tests.integration.merges.local_engine import begun_locally, source_table
from tests.integration.merges.merge_by_sql import SqlMerge
from tests.integration.merges.merge_cases import (
    LAYOUTS,
    Source,
    random_merge,
    random_shape,
    random_source,
    random_steps,
    seeded,
)
from tests.integration.merges.merge_model import Merge, Outcome, Row, Rule, Target, outcome
from tests.integration.merges.merge_tables import Place, Table, in_order
from tests.integration.upkeep.soundness import check_sound

pytestmark = [pytest.mark.slow, pytest.mark.long]

COUNT = 77
INSERT_ONLY_COUNT = 6
"""How many cases a layout has."""

ENGINES = ["spark", "paired", "few rows", "local"]
"""Tasks of Spark, its joins, its driver, Arrow alone; the last two if the condition is keys alone."""

ONE_MERGE_SHARE = 0.8
"""The other cases merge a second time, into what the first merge left."""


@pytest.fixture(scope="module")
def place(hive_line: Hive23 | Hive31 | Hive41) -> Iterator[Place]:
    """A database for the tables of all cases."""
    with new_database(hive_line) as database, open_client(hive_line.uri) as metastore:
        yield Place(hive_line, metastore, database)


COUNTS = {
    (line, layout): INSERT_ONLY_COUNT if layout == "insert_only" else COUNT for line, layout, _ in LAYOUTS
}


@pytest.mark.feature("merges by key, compared with SQL's MERGE")
@pytest.mark.parametrize(
    ("hive_line", "layout", "seed"),
    seeded(COUNTS),
    indirect=["hive_line"],
)
def test_random_merges(place: Place, spark: SparkSession, layout: str, seed: int) -> None:
    """Rows, counts of merge and dry run, and refusals are those of the model; Hive's SQL gives its rows,
    where it has words for the merge. A case is a table, and one merge, or two after each other.
    """
    rng = random.Random(seed)
    shape = random_shape(rng, place.judge.line, layout)
    steps = random_steps(rng, shape)
    story = [f"Hive {place.judge.line}, seed {seed}: {shape}, {steps}"]
    table = place.of(shape)
    for number, step in enumerate(steps):
        table.step(step, rng, shape)
        if not number and shape.is_original:
            table.make_transactional()
    if not steps and shape.is_original:
        table.make_transactional()
    engines = random.Random(f"{seed} engines")
    for _ in range(1 if rng.random() < ONE_MERGE_SHARE else 2):
        before = sorted(table.rows(), key=repr)
        merge = random_merge(rng, shape)
        given = random_source(rng, shape, merge, before)
        engine = engines.choice(ENGINES if merge.on_too is None else ["spark"])
        begin = begun_locally if engine == "local" else functools.partial(begun, spark)
        story += [f"rows {before}", str(merge), f"source {given}", f"by {engine}"]
        try:
            paired = rows_paired_by_spark() if engine == "paired" else contextlib.nullcontext()
            with few_rows_to_the_driver(spark, FEW_BYTES_DEFAULT if engine == "few rows" else 0), paired:
                judge_merge(begin, table, shape.target, before, merge, given)
            check_sound(place.metastore, table.full_name)
        except Exception as error:
            error.add_note("\n".join(story))
            raise


Begin = Callable[[Transaction, Table, Merge, Source], MergeInto | LocalMerge]
"""Says a merge to one of the engines."""


def judge_merge(
    begin: Begin,
    table: Table,
    into: Target,
    before: list[Row],
    merge: Merge,
    given: Source,
) -> None:
    """Merge, and hear all judges."""
    expected = outcome(into, before, given.rows, merge)
    said = SqlMerge.of(table, before, merge)
    known = set(table.partitions())
    with table.client() as client, client.new_transaction() as transaction:
        if expected.refused_by:
            for ask in (lambda begun: begun.dry_run(), lambda begun: begun.execute()):
                with pytest.raises(RecordValueError if expected.refused_by == "key" else DuplicateKeyError):
                    ask(begin(transaction, table, merge, given))
        else:
            dry = begin(transaction, table, merge, given).dry_run()
            done = begin(transaction, table, merge, given).execute()
            check_report(done, expected, known)
            check_report(dry, expected, known)
            assert (dry.file_count, dry.new_partitions) == (done.file_count, done.new_partitions)
    after = in_order(before if expected.refused_by else expected.rows)
    assert in_order(table.rows("both")) == after
    if said.is_sayable(before, given, expected):
        if expected.refused_by:
            said.refuses(given)
        else:
            assert in_order(said.run(given, expected)) == after, "Hive's own SQL"


def check_report(report: MergeReport, expected: Outcome, known: set[str]) -> None:
    """Counts, in all and by partition, and the partitions that come to be."""
    assert report.total == expected.total
    by_partition = {name: counts for name, counts in expected.counts().items() if name}
    assert {unquote(name): counts for name, counts in report.partitions.items()} == by_partition
    new = expected.placed - {unquote(name) for name in known} - {""}
    assert {unquote(name) for name in report.new_partitions} == new


def begun(
    spark: SparkSession, transaction: Transaction, table: Table, merge: Merge, given: Source
) -> MergeInto:
    """The merge as a user says it."""
    order = sf.col("source.seq") if merge.first_by > 0 else sf.col("source.seq").desc()
    on: Any = list(merge.on)
    if merge.on_too:
        on = " AND ".join([*(f"source.{name} = target.{name}" for name in merge.on), merge.on_too.text])
    found = merge_into(
        transaction,
        table.full_name,
        source=frame(spark, merge, given),
        on=on,
        null_safe=merge.null_safe,
        on_duplicate=first_by(order) if merge.first_by else "error",
        write_unchanged=merge.write_unchanged,
        collected_keys=COLLECTED_KEYS_DEFAULT if merge.collects_keys else 0,
    )
    for rule in merge.rules:
        add(found, rule)
    return found


def add(merge: MergeInto, rule: Rule) -> None:
    """Add the clause."""
    when = getattr(merge, rule.when)(rule.condition and rule.condition.text)
    if rule.then == "delete":
        when.delete()
    elif rule.assignments is None:
        getattr(when, f"{rule.then}All")()
    else:
        getattr(when, rule.then)({name.upper(): e.text for name, e in rule.assignments.items()})


def frame(spark: SparkSession, merge: Merge, given: Source) -> DataFrame:
    """The source; columns that nothing reads would be extra ones, and some names are in upper case."""
    rows = spark.createDataFrame(source_table(merge, given)).cache()
    rows.count()  # then Spark knows their size
    return rows
