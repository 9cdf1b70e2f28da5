"""The engines of merges against each other: one random case, the same table four times, one merge by each.

A value that a column cannot hold is drawn, too. Rows as Hive reads them, reports, dry runs and errors must be
the same, whatever the engine. That they are right is judged by the model in :mod:`.test_merge_random`; which
of several faults an engine meets first is its own affair, so a case has at most one fault that is drawn here.
"""

from __future__ import annotations

import contextlib
import functools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from judges.hive.hive_judges import Hive23, Hive31, Hive41
from metastore_client.remote.thrift_client import open_client
from mutation_api import DuplicateKeyError, MergeReport, MutationError
from mutation_api.spark.job import FEW_BYTES_DEFAULT
from tests.fixtures.fix_judge import new_database
from tests.fixtures.fix_spark import few_rows_to_the_driver, rows_paired_by_spark
from tests.integration.merges.local_engine import begun_locally
from tests.integration.merges.merge_cases import (
    LAYOUTS,
    Shape,
    Source,
    random_merge,
    random_rows,
    random_shape,
    random_source,
    seeded,
)
from tests.integration.merges.merge_model import MATCHED, NOT_MATCHED, Merge, Rule
from tests.integration.merges.merge_tables import Place, Table, in_order
from tests.integration.merges.test_merge_random import Begin, begun
from tests.integration.upkeep.soundness import check_sound

pytestmark = pytest.mark.slow

SEED_OFFSET = 500
"""Where the seeds of a layout begin here, beside those of the random merges."""

COUNTS = {(line, layout): 84 for line, layout, _ in LAYOUTS}  # 504 cases

FAULTS: dict[str, list[Any]] = {
    "v": [Decimal("999999.995"), Decimal("-999999.995")],
    "n": [2**31 - 1],
    "p": [""],
    "k2": [None],
}
"""By column, what is put into a row of a source now and then."""

FAULT_SHARE = 0.35


@dataclass(frozen=True)
class Answer:
    """What an engine said to a merge: reports, or its error with the table's name taken out."""

    report: dict[str, Any] | None
    error: tuple[str, str] | None
    rows: list[str]


@pytest.fixture(scope="module")
def place(hive_line: Hive23 | Hive31 | Hive41) -> Iterator[Place]:
    """A database for the tables of all cases."""
    with new_database(hive_line) as database, open_client(hive_line.uri) as metastore:
        yield Place(hive_line, metastore, database)


@pytest.mark.long
@pytest.mark.parametrize(
    ("hive_line", "layout", "seed"),
    seeded(COUNTS, first=SEED_OFFSET),
    indirect=["hive_line"],
)
def test_engines_agree(place: Place, spark: SparkSession, layout: str, seed: int) -> None:
    """Tasks of Spark, its driver, its joins and Arrow alone say the same and leave the same rows."""
    rng = random.Random(seed)
    shape = replace(random_shape(rng, place.judge.line, layout), is_original=False)
    steps = [rng.choice(["insert", "change"]) for _ in range(rng.randrange(3))]
    tables = [_filled(place, shape, steps, seed) for _ in range(4)]
    before = sorted(tables[0].rows(), key=repr)
    merge = replace(random_merge(rng, shape), on_too=None)
    given = _with_faults(rng, random_source(rng, shape, merge, before))
    answers = _answers(tables.__getitem__, spark, merge, given)
    for table in tables:
        check_sound(place.metastore, table.full_name)
    story = f"seed {seed}: {shape}\nrows {before}\n{merge}\nsource {given}"
    assert answers["driver"] == answers["tasks"], story
    assert answers["paired"] == answers["tasks"], story
    assert answers["local"] == answers["tasks"], story


@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_a_missing_partition_that_may_not_be_created(place: Place, spark: SparkSession) -> None:
    """Dry run and run of every engine refuse inserted and moved rows in it, with the same words."""
    types = {"k": "int", "v": "string", "p": "string", "op": "string", "seq": "int"}
    table = place.create({name: types[name] for name in "kvp"}, partition="p")
    table.insert([{"k": 1, "v": "old", "p": "a"}])
    merge = Merge(("k",), (Rule(MATCHED, "update"), Rule(NOT_MATCHED, "insert")))
    rows = [{"k": 1, "v": "moved", "p": "b"}, {"k": 2, "v": "new", "p": "c"}, {"k": 3, "v": "new", "p": "a"}]
    given = Source(types, [{**row, "op": "U", "seq": 0} for row in rows])
    answers = _answers(lambda _: table, spark, merge, given, create_partitions=False)
    assert answers["tasks"] == answers["driver"] == answers["paired"] == answers["local"]
    assert answers["tasks"].error is not None
    assert answers["tasks"].error[0] == "PartitionCreationError"
    assert "p=b, p=c do not exist" in answers["tasks"].error[1]
    assert table.rows() == [{"k": 1, "v": "old", "p": "a"}]
    assert table.partitions() == ["p=a"]


def _answers(
    table_of: Callable[[int], Table],
    spark: SparkSession,
    merge: Merge,
    given: Source,
    *,
    create_partitions: bool = True,
) -> dict[str, Answer]:
    """The answer of each engine, which gets the table of its number."""
    by_spark = functools.partial(begun, spark)
    engines: tuple[tuple[str, Begin, int], ...] = (
        ("tasks", by_spark, 0),
        ("driver", by_spark, FEW_BYTES_DEFAULT),
        ("paired", by_spark, 0),
        ("local", begun_locally, 0),
    )
    answers = {}
    for number, (name, begin, limit) in enumerate(engines):
        paired = rows_paired_by_spark() if name == "paired" else contextlib.nullcontext()
        with few_rows_to_the_driver(spark, limit), paired:
            answers[name] = _answer(table_of(number), begin, merge, given, create_partitions)
    return answers


def _filled(place: Place, shape: Shape, steps: list[str], seed: int) -> Table:
    """The table of the case; each has the same rows at the same places."""
    rng = random.Random(f"{seed} rows")
    table = place.of(shape)
    table.insert(random_rows(rng, shape, rng.randrange(5, 12)))
    for step in steps:
        table.step("insert" if shape.is_insert_only else step, rng, shape)
    return table


def _with_faults(rng: random.Random, given: Source) -> Source:
    if rng.random() >= FAULT_SHARE:
        return given
    column = rng.choice([name for name in FAULTS if name in given.types])
    fitting = [value for value in FAULTS[column] if given.types[column] == "string" or value != ""]
    rows = list(given.rows)
    if rows and fitting:  # in one row, since of several each engine may meet another one first
        at = rng.randrange(len(rows))
        rows[at] = {**rows[at], column: rng.choice(fitting)}
    return Source(given.types, rows)


def _answer(table: Table, begin: Begin, merge: Merge, given: Source, create_partitions: bool) -> Answer:
    known = set(table.partitions())
    reports: dict[str, Any] = {}
    error = None
    with table.client(create_partitions=create_partitions) as client, client.new_transaction() as transaction:
        try:
            dry = begin(transaction, table, merge, given).dry_run()
            reports = {"dry": _plain(dry, known), "groups": dry.groups}
        except MutationError as found:
            error = _said(found, table)
        try:
            done = begin(transaction, table, merge, given).execute()
            reports["done"] = _plain(done, known)
            assert error is None, f"refused by the dry run alone: {error}"
        except MutationError as found:
            assert _said(found, table) == error, "the dry run said something else"
    return Answer(None if error else reports, error, in_order(table.rows()))


def _plain(report: MergeReport, known: set[str]) -> dict[str, Any]:
    """What does not depend on the table's name."""
    assert not known & set(report.new_partitions)
    return {
        "total": report.total,
        "partitions": dict(report.partitions),
        "new": report.new_partitions,
        "files": report.file_count,
    }


def _said(error: MutationError, table: Table) -> tuple[str, str]:
    text = str(error).replace(table.full_name, "the table")
    if isinstance(error, DuplicateKeyError):  # which of many keys it shows is each engine's choice
        text = re.sub(r"ambiguous: .*(?=\. Nothing was written)", "ambiguous: …", text)
    if "cannot be evaluated for a row" in text:  # an overflow, say, in the words of Spark or of Arrow
        text = "an expression cannot be evaluated for a row"
    return type(error).__name__, text
