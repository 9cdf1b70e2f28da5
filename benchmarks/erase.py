"""Erasure of people from five tables of Hive 4.1: until they are invisible, and until no file has them.

    python -m benchmarks erase                    # 1,000 people; five tables of 10,000,000 rows
    python -m benchmarks erase --rows 2000000 --days 60
    python -m benchmarks erase --quick            # 20 people; five tables of 50,000 rows, 20 days

Customers buy on few days, so the rows of a person are in few partitions. The server's cleaner runs every two
seconds here, as it does by default. Nothing is compared: no other program does this. A small erasure comes
first, since a server that was just started has not compiled its code. Afterwards Hive counts the rows, and
the report must say that the people are erased.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measuring.report import finish
from judges.errors import HiveError
from judges.hive.hive_judges import Hive41
from judges.process import in_rounds
from metastore_client import open_client
from mutation_api import connect, erase
from mutation_api.upkeep import ErasureReport

HELP = "erasing people: the time until they are invisible, and until no file has them"

TABLES = 5
WARM_UP_TABLE = "people.small"
ROWS_DEFAULT, PEOPLE_DEFAULT, DAYS_DEFAULT = 10_000_000, 1_000, 1
QUICK_ROWS, QUICK_PEOPLE, QUICK_DAYS = 50_000, 20, 20
ROWS_PER_PERSON, DAYS_PER_PERSON = 20, 3
BUCKETS, LOADS = 8, 4
INVISIBLE_AIM_SECONDS = 3.0
CLEANER_SECONDS = 2.0
RESULTS = Path(__file__).parent / "results" / "erase.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help=f"rows of each table (default: {ROWS_DEFAULT:,})")
    parser.add_argument("--people", type=int, help=f"people to erase (default: {PEOPLE_DEFAULT:,})")
    parser.add_argument("--days", type=int, help=f"partitions of each table (default: {DAYS_DEFAULT})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PEOPLE} people, {QUICK_ROWS:,} rows")
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if the people are erased and Hive counts the others."""
    is_quick = arguments.quick
    rows = arguments.rows or (QUICK_ROWS if is_quick else ROWS_DEFAULT)
    people = arguments.people or (QUICK_PEOPLE if is_quick else PEOPLE_DEFAULT)
    days = arguments.days or (QUICK_DAYS if is_quick else DAYS_DEFAULT)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        Hive41(Path(name) / "hive", is_measured=True) as judge,
    ):
        judge.sql("create database people")
        tables = [f"people.t{number}" for number in range(TABLES)]
        for number, table in enumerate(tables):
            _fill(judge.uri, table, rows, days, seed=number)
        chosen = np.random.default_rng(99).choice(rows // ROWS_PER_PERSON, people, replace=False)
        _fill(judge.uri, WARM_UP_TABLE, QUICK_ROWS, 1, seed=TABLES)
        with open_client(judge.uri) as metastore, _cleaning(judge):
            erase(metastore, [1], {WARM_UP_TABLE: "customer"})
            keys = pa.array(np.sort(chosen))
            begun, lines = time.monotonic(), list[tuple[float, str]]()
            report = erase(
                metastore,
                keys,
                dict.fromkeys(tables, "customer"),
                progress=lambda line: lines.append((time.monotonic() - begun, line)),
            )
        deleted = sum(table.rows_deleted for table in report.tables)
        counted = sum(int(str(judge.sql(f"select count(*) from {table}")[0][0])) for table in tables)
    invisible = next(seconds for seconds, line in lines if line.startswith("the deletion is committed"))
    case = _case(report, invisible, rows, people, days)
    case["is_right"] = report.is_erased and counted == TABLES * rows - deleted
    return finish([case], RESULTS if arguments.save else None, title="Erasure", packages=("pyarrow",))


def _fill(uri: str, table: str, rows: int, days: int, seed: int) -> None:
    """Load rows in some transactions. The days of a customer are near each other."""
    generator = np.random.default_rng(seed)
    with connect(uri) as hive:
        hive.create_table(
            table,
            "customer bigint, item string, price double, day int",
            partitioned_by=["day"],
            clustered_by=["customer"],
            num_buckets=BUCKETS,
        )
        for _ in range(LOADS):
            customers = generator.integers(0, rows // ROWS_PER_PERSON, rows // LOADS)
            bought = (customers * 7 + generator.integers(0, DAYS_PER_PERSON, len(customers))) % days
            data = pa.table(
                {
                    "customer": customers,
                    "item": pa.array([f"item {n}" for n in generator.integers(0, 1000, len(customers))]),
                    "price": generator.random(len(customers)),
                    "day": pa.array(bought, pa.int32()),
                }
            )
            hive.table(table).append(data, create_partitions=True)


def _cleaning(judge: Hive41) -> AbstractContextManager[None]:
    """Rounds of the server's cleaner."""

    def work() -> None:
        with contextlib.suppress(HiveError):
            judge.cleaner()

    return in_rounds(work, CLEANER_SECONDS)


def _case(report: ErasureReport, invisible: float, rows: int, people: int, days: int) -> dict[str, Any]:
    assert report.gone_at is not None
    gone = (report.gone_at - report.began_at).total_seconds()
    rewritten = sum(len(table.rewritten) for table in report.tables)
    found = {
        (table.search.full_name, str(Path(each["file"]).parts[0]), Path(each["file"]).name)
        for table in report.tables
        for each in table.before["found"]
    }
    partitions, buckets = TABLES * days, TABLES * days * BUCKETS
    searched = sum(table.before["byte_count"] for table in report.tables)
    return {
        "case": f"{people:,} people, {TABLES} tables of {rows:,} rows, {days} partitions, {BUCKETS} buckets",
        "text": (
            f"Invisible after {invisible:.1f} s (aim {INVISIBLE_AIM_SECONDS:.0f} s), gone from all files "
            f"after {gone:.1f} s ({searched / 2**20:,.0f} MiB searched first). Rewritten: {rewritten} of "
            f"{partitions} partitions ({100 * rewritten / partitions:.0f} %); "
            f"{len(found)} of {buckets} buckets "
            f"({100 * len(found) / buckets:.0f} %) had a key."
        ),
        "invisible_seconds": round(invisible, 2),
        "gone_seconds": round(gone, 2),
        "partitions_rewritten": rewritten,
        "partitions": partitions,
        "buckets_with_keys": len(found),
        "buckets": buckets,
        "contestants": {},
        "ratios": {},
    }
