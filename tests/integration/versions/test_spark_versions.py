"""Each version of pyspark on each Hive: one program (``job.py``), whose tables Hive's SQL reads.

``--long`` runs them; all other tests run on the newest pyspark. In brief, the oldest pyspark merges into one
table of the oldest Hive and of the newest one. What does not depend on the release of Hive is done on the
oldest one only. docs/compatibility.md shows what passed.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from judges.hive.judge import HiveJudge
from judges.sparks import ROOT, SPARKS, environment, python_with
from tests.fixtures.fix_judge import FIXTURES, new_database
from tests.fixtures.fix_spark import SMALL_JOBS
from tests.integration.versions.job import IN_BRIEF, OF_EVERY_HIVE, OF_SPARK_ALONE, ROWS, Job
from tests.support.feature_table import LINES, spark_row

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

Step = Callable[[Job], Any]
feature = pytest.mark.feature

TIMEOUT_SECONDS = 900


def program(spark: str, module: str, *arguments: str) -> str:
    """What a program says that runs with this pyspark; it must end well."""
    done = subprocess.run(
        [python_with(spark), "-m", f"tests.integration.versions.{module}", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        cwd=ROOT,
        env=environment(" ".join(SMALL_JOBS)),
        check=False,
    )
    assert done.returncode == 0, f"pyspark {spark}: {done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def cells(chosen: Iterable[tuple[str, str]]) -> list[Any]:
    """Cases: a pyspark and a Hive, which claims its cell of docs/compatibility.md once it has passed."""
    return [
        pytest.param(
            spark,
            line,
            id=f"{line}-pyspark{spark}",
            marks=[feature(spark_row(spark))],
        )
        for spark, line in chosen
    ]


@pytest.fixture
def judge(line: str, request: pytest.FixtureRequest) -> HiveJudge:
    """The Hive of a cell."""
    found: HiveJudge = request.getfixturevalue(FIXTURES[line])
    return found


@pytest.fixture
def database(judge: HiveJudge) -> Iterator[str]:
    """A new database there."""
    with new_database(judge) as name:
        yield name


@pytest.mark.long
@pytest.mark.parametrize(("spark_version", "line"), cells([(SPARKS[0], LINES[0])]))
def test_the_oldest_spark_changes_a_table_of_the_oldest_hive(
    spark_version: str, judge: HiveJudge, database: str, tmp_path: Path
) -> None:
    """A merge by tasks finds, converts and writes rows."""
    check_in_brief(spark_version, judge, database, tmp_path)


@pytest.mark.parametrize(("spark_version", "line"), cells([(SPARKS[0], LINES[-1])]))
def test_the_oldest_spark_changes_a_table_of_the_newest_hive(
    spark_version: str, judge: HiveJudge, database: str, tmp_path: Path
) -> None:
    """The same; a test of its own, since by default a test runs on one release of Hive."""
    check_in_brief(spark_version, judge, database, tmp_path)


def check_in_brief(spark_version: str, judge: HiveJudge, database: str, folder: Path) -> None:
    """The brief job, and what Hive reads then."""
    assert done(spark_version, judge, database, folder, IN_BRIEF) == SAID_IN_BRIEF
    check_tables(judge, database, "in_brief")


@pytest.mark.long
@pytest.mark.parametrize(("spark_version", "line"), cells(itertools.product(SPARKS, LINES)))
def test_a_version_of_spark_changes_tables_of_a_hive(
    spark_version: str, judge: HiveJudge, database: str, tmp_path: Path
) -> None:
    """Tables come out as meant; counts, refusals and errors are those of every other version."""
    is_complete = judge.line == LINES[0]
    steps = (*OF_EVERY_HIVE, *(OF_SPARK_ALONE if is_complete else ()))
    found = done(spark_version, judge, database, tmp_path, steps)
    if is_complete:
        check_refusals(found.pop("refused_in_worker"), database)
    meant = {**SAID, "lenient_rules": lenient_rules(spark_version)}
    assert found == {step.__name__: meant[step.__name__] for step in steps if step.__name__ in meant}

    check_tables(judge, database, "by_tasks", "by_driver", "merged", *(("compared",) if is_complete else ()))
    if is_complete:
        (order,) = judge.sql(f"SELECT id, note, price, day FROM {database}.orders")
        assert [order[:2], Decimal(order[2]), order[3]] == [[1, "new"], Decimal("1.5"), "2024-02-29"]


def done(
    spark_version: str, judge: HiveJudge, database: str, folder: Path, steps: Iterable[Step]
) -> dict[str, Any]:
    """What the job says after these steps, on this version of Spark."""
    names = [each.__name__ for each in steps]
    said = program(spark_version, "job", judge.uri, database, str(folder), *names)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert found.pop("spark").startswith(f"{spark_version}.")
    return found


def check_tables(judge: HiveJudge, database: str, *tables: str) -> None:
    """Hive reads what each of these should have."""
    for table in tables:
        rows = judge.sql(f"SELECT id, n, price, name, at, parts, ds FROM {database}.{table}")
        assert sorted(map(plain, rows)) == sorted(TABLES[table]), table


def check_refusals(refusals: list[list[str]], database: str) -> None:
    """What tasks refuse: a value that does not fit, and a row that does not exist."""
    value, row = refusals
    assert [value[0], row[0]] == ["RecordValueError", "BucketIdError"]
    assert all(word in value[1] for word in (f"{database}.merged", "price", '{"id":3}'))
    assert all(word in row[1] for word in (f"{database}.merged", "ds=d0", "99"))


def lenient_rules(spark_version: str) -> dict[str, Any]:
    """Before Spark 4 a Column keeps the rules of the session in which it was made, and is refused."""
    made = "ConfigurationError" if spark_version == "3.5" else "RecordValueError"
    texts = dict.fromkeys(("overflow", "cast", "division"), "RecordValueError")
    return {**texts, "column": made, "ansi": None}


def plain(row: list[Any]) -> tuple[Any, ...]:
    """A row of Hive in a form that does not depend on the release: trailing zeros are its own affair."""
    id_, n, price, name, at, parts, ds = row
    found = None if parts is None else tuple((each["a"], each["b"]) for each in json.loads(parts))
    return id_, n, Decimal(price), name, at and str(datetime.fromisoformat(at)), found, ds


def start(id_: int) -> tuple[Any, ...]:
    """A row of every table in the beginning."""
    at = datetime(1600, 2, 28, 23, 59, 59, 1) + timedelta(days=id_)
    return id_, id_ % 7, Decimal(id_) / 4, f"é{id_}", str(at), ((id_, None),), f"d{id_ % 3}"


def starting(*ids: Iterable[int]) -> list[tuple[Any, ...]]:
    """The rows with these ids."""
    return [start(id_) for some in ids for id_ in some]


def renamed(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of the table that tasks change."""
    return (*row[:3], row[3] + "!", *row[4:]) if row[0] % 5 == 0 and row[0] < ROWS else row


def merged(id_: int) -> tuple[Any, ...]:
    """A row that the merge changed: its values were converted, its time is a wall clock in India."""
    _, n, price, name, _, parts, ds = start(id_)
    at = "2024-03-01 05:29:59.999999"
    return id_, 2 * n + 1, price, f"{name}~", at, parts, "moved" if id_ % 10 == 2 else ds


def inserted(id_: int) -> tuple[Any, ...]:
    """A row that the merge wrote anew."""
    return id_, id_ % 7 + 1, *merged(id_)[2:]


ALL = range(ROWS)
TABLES = {
    "by_tasks": [renamed(row) for row in starting((n for n in ALL if n % 5 != 1), range(ROWS, ROWS + 5))],
    "by_driver": [
        *starting(ALL),
        *((n, 7, Decimal(1), "few", "2024-02-29 00:00:00", None, "d9") for n in (100, 101)),
    ],
    "merged": [
        *starting(range(50), range(60, 80)),
        *(merged(n) for n in range(50, 60) if n != 53),
    ],
    "in_brief": [
        *starting(range(50)),
        *(merged(n) for n in range(50, 60) if n != 53),
        *(inserted(n) for n in range(60, 70) if n != 63),
    ],
    "compared": [(n, None, *start(n)[2:]) if n == 7 else start(n) for n in range(2, ROWS + 2)],
}
"""What each table has in the end."""

SAID_IN_BRIEF: dict[str, Any] = {"in_brief": [9, 8, 1, 1, 0]}
SAID: dict[str, Any] = {
    "changed_by_tasks": [5, 12, 12, True],
    "changed_by_driver": [0, 2, 0, 0, 0],
    "merged_by_tasks": [
        [
            ["inserted", "ds=d0", '{"id":60}'],
            ["inserted", "ds=d0", '{"id":66}'],
            ["updated", "ds=d0", '{"id":51}'],
            ["updated", "ds=d0", '{"id":54}'],
            ["deleted", "ds=d2", '{"id":53}'],
            ["moved", "ds=d1", '{"id":52}'],
        ],
        [9, 8, 1, 1, 0],
        [11, 8, 0, 1, 0],
    ],
    "compared": [2, 1, 2],
    "changes": {"delete": 1, "insert": 9, "update_after": 9, "update_before": 9},
    "ingested": [[6, 3]],
}
"""What the program says on every version: counts of inserts, updates, deletes, moved and unchanged rows."""
