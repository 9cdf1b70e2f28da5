"""Jobs with Spark's default settings, as users run them; Hive reads the rows.

The other tests turn Spark's code generation off (``tests/fixtures/fix_spark.py``), since code that runs once
is not worth compiling. Here it is on, in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judges.hive.judge import HiveJudge
from mutation_api.spark.job import FEW_BYTES_DEFAULT
from tests.fixtures.fix_judge import new_database
from tests.integration.drivers.default_spark_driver import CODE_GENERATION, ROWS
from tests.support.class_archive import SUBMIT_OPTIONS_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.long]

TIMEOUT_SECONDS = 400
ROOT = Path(__file__).parents[3]
CREATE = (
    "CREATE TABLE {} (id bigint, msg string, price decimal(10,2), day date, tags array<string>) "
    "PARTITIONED BY (ds string) CLUSTERED BY (id) INTO 2 BUCKETS STORED AS ORC "
    "TBLPROPERTIES ('transactional'='true')"
)

Rows = list[list[Any]]


class SparkDefault:
    """The tables that a program with Spark's default settings wrote, and the text that it printed."""

    def __init__(self, judge: HiveJudge, database: str, few_bytes: int) -> None:
        self._judge = judge
        self._names = {name: f"{database}.{name}" for name in ("applied", "merged")}
        for name in self._names.values():
            judge.sql(CREATE.format(name))
        command = [sys.executable, "-m", "tests.integration.drivers.default_spark_driver", judge.uri]
        done = subprocess.run(
            [*command, *self._names.values(), str(few_bytes)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            cwd=ROOT,
            env={name: text for name, text in os.environ.items() if name != SUBMIT_OPTIONS_VARIABLE},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        self.printed = json.loads(done.stdout.splitlines()[-1])

    def rows(self, name: str) -> Rows:
        """The rows of a table, by Hive's SQL."""
        columns = "id, msg, cast(price as string), cast(day as string), tags[0], ds"
        return sorted(map(list, self._judge.sql(f"SELECT {columns} FROM {self._names[name]}")))

    def joined(self) -> Rows:
        """The query over both tables, by Hive's SQL."""
        names = self._names
        return sorted(
            map(
                list,
                self._judge.sql(
                    f"SELECT a.ds, count(*), cast(sum(m.price) as string) FROM {names['applied']} a "
                    f"JOIN {names['merged']} m ON a.id = m.id GROUP BY a.ds"
                ),
            )
        )


@pytest.fixture(
    scope="module", params=[FEW_BYTES_DEFAULT, 0], ids=["few rows in the driver", "few rows in tasks"]
)
def spark_default(hive41: HiveJudge, request: pytest.FixtureRequest) -> Iterator[SparkDefault]:
    """A program of its own, with nothing in its environment that changes Spark's settings."""
    with new_database(hive41) as database:
        found = SparkDefault(hive41, database, request.param)
        assert found.printed["settings"] == CODE_GENERATION
        yield found


def given(number: int) -> dict[str, Any]:
    """The row of this number, as it was inserted; its date is Hive's to judge."""
    return {
        "msg": None if number % 11 == 0 else f"m{number}",
        "price": f"{number / 4:.2f}",
        "tag": None if number % 7 == 0 else f"t{number}",
        "ds": f"d{number % 3}",
    }


def without_day(rows: Rows) -> Rows:
    """The rows without their fourth column."""
    return [[*row[:3], *row[4:]] for row in rows]


def test_apply_changes_inserts_updates_and_deletes_with_generated_code(spark_default: SparkDefault) -> None:
    """A third of the rows is updated and a third is deleted, by their ROW__IDs from a snapshot."""
    expected = []
    for number in range(ROWS):
        row = given(number) | ({"msg": f"new{number}"} if number % 3 == 1 else {})
        if number % 3 != 2:
            expected.append([number, *row.values()])
    assert without_day(spark_default.rows("applied")) == expected


def test_merge_into_updates_deletes_and_inserts_with_generated_code(spark_default: SparkDefault) -> None:
    """Even numbers below 2000 match; those above come under another id, and only some of them."""
    expected = []
    for number in range(ROWS):
        row = given(number)
        if number >= 2000 and number % 4 == 2:
            expected.append([number + 10_000, *row.values()])
        if number < 2000 and number % 4 == 2:
            row |= {"msg": f"new{number}", "price": f"{number / 2:.2f}"}
        if number >= 2000 or number % 4:
            expected.append([number, *row.values()])
    assert without_day(spark_default.rows("merged")) == sorted(expected)


def test_snapshot_reads_what_hive_reads_with_generated_code(spark_default: SparkDefault) -> None:
    """All rows of both tables, and a join and an aggregate over two snapshots."""
    for name in ("applied", "merged"):
        assert spark_default.printed[name] == spark_default.rows(name)
    assert spark_default.printed["joined"] == spark_default.joined()
