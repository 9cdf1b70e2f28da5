"""Incremental update by its yardstick: 1 % of 10,000,000 rows a day, extracted every two minutes.

    python -m benchmarks incremental             # 10,000,000 rows in PostgreSQL, 60 extractions
    python -m benchmarks incremental --quick     # a tenth of the rows, 20 extractions

Each extraction finds the changes of two minutes: 139 rows for 10,000,000, of which seven in ten are updated,
two inserted and one deleted. The waits between are left out. From a third of the extractions on Hive's own
compactor makes a new base of the table, side by side with them. Every extraction is to take at most 3 s, and
no change may be visible later than five minutes after its commit: two minutes until the next extraction
begins, and its time.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.measuring.measure import machine, tell, versions
from benchmarks.measuring.report import save_cases, show_case
from examples.local import create_table
from judges.hive.hive_judges import Hive23
from judges.postgres import Postgres
from metastore_client import MetastoreClient, open_client
from mutation_api.cdc import enable_update, extract_update
from mutation_api.upkeep import CompactionThreshold, compact_table

HELP = "extraction of few changes from PostgreSQL, again and again, while Hive compacts"

ROWS_DEFAULT, QUICK_SHARE = 10_000_000, 10
EXTRACTIONS, QUICK_EXTRACTIONS = 60, 20
CHANGED_SHARE, INTERVAL_SECONDS = 0.01, 120
EXTRACTION_AIM_SECONDS, LAG_AIM_SECONDS = 3.0, 300.0
COMPACTION_SECONDS = 1800.0
BUCKETS = 8
TABLE = "default.orders"
COLUMNS = "id bigint, customer string, total decimal(12,2), status string, placed timestamp"
RESULTS = Path(__file__).parent / "results" / "incremental.json"

MAKE = """
CREATE TABLE orders AS
SELECT i::bigint AS id, 'customer ' || i % 9973 AS customer, (i % 100000)::numeric / 100 AS total,
       'new'::text AS status, timestamp '2024-05-01' + i * interval '1 second' AS placed
FROM generate_series(1, {rows}) i"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help=f"rows of the table (default: {ROWS_DEFAULT:,})")
    parser.add_argument(
        "--quick", action="store_true", help=f"a {QUICK_SHARE}th of the rows, fewer extractions"
    )
    parser.add_argument("--extractions", type=int, help=f"number of extractions (default: {EXTRACTIONS})")
    parser.add_argument("--no-compaction", action="store_true", help="without the compaction beside it")
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if both sides are equal in the end, and the aims are met."""
    is_equal, seconds = measured(arguments)
    return 0 if is_equal and max(seconds) <= EXTRACTION_AIM_SECONDS else 1


def measured(arguments: argparse.Namespace) -> tuple[bool, list[float]]:
    """Whether both sides are equal in the end, and the seconds of each extraction; shows the figures."""
    rows = arguments.rows or ROWS_DEFAULT // (QUICK_SHARE if arguments.quick else 1)
    count = arguments.extractions or (QUICK_EXTRACTIONS if arguments.quick else EXTRACTIONS)
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = stack.enter_context(Postgres(work / "postgres"))
        hive = stack.enter_context(Hive23(work / "hive"))
        metastore = stack.enter_context(open_client(hive.uri))
        first = _prepare(server, metastore, hive.uri, rows)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        compacting = None if arguments.no_compaction else hive
        seconds, compaction = _extractions(server, metastore, compacting, rows, count)
        is_equal = _are_equal(server, hive)
        title = f"{server.description}, {hive.description}"
    case = _case(rows, first, peak, seconds, compaction)
    show_case(case)
    if arguments.save:
        about = ", ".join((title, *versions("pyarrow", "psycopg")))
        save_cases([case], RESULTS, title="Incremental update", versions=about, machine=machine())
    return is_equal, seconds


def _prepare(server: Postgres, metastore: MetastoreClient, uri: str, rows: int) -> float:
    """Both tables, the second with the first copy; returns its seconds."""
    server.sql(MAKE.format(rows=rows))
    server.sql("ALTER TABLE orders ADD PRIMARY KEY (id)")
    create_table(uri, TABLE, COLUMNS, "", "id", BUCKETS, layout="default")
    source = _source(server)
    enable_update(metastore, TABLE, source, password=server.password)
    report = extract_update(metastore, TABLE, password=server.password, source=source)
    tell(str(report))
    return report.seconds


def _source(server: Postgres) -> str:
    return f"postgresql://{server.user}@127.0.0.1:{server.port}/postgres"


def _extractions(
    server: Postgres, metastore: MetastoreClient, hive: Hive23 | None, rows: int, count: int
) -> tuple[list[float], float | None]:
    """The seconds of each extraction, and of the compaction beside them."""
    changes = max(3, round(rows * CHANGED_SHARE * INTERVAL_SECONDS / 86400))
    rng = random.Random(1)
    seconds: list[float] = []
    found: list[float] = []
    with contextlib.ExitStack() as stack:
        for number in range(count):
            if hive is not None and number == count // 3:
                stack.enter_context(_compaction(hive, found))
            _change(server, rng, rows, number, changes)
            began = time.monotonic()
            report = extract_update(metastore, TABLE, password=server.password, source=_source(server))
            seconds.append(time.monotonic() - began)
            tell(f"{number + 1:3}: {report}")
    return seconds, found[0] if found else None


def _change(server: Postgres, rng: random.Random, rows: int, number: int, changes: int) -> None:
    with server.connect(autocommit=False) as connection:
        ids = rng.sample(range(1, rows + 1), changes)
        updated, deleted = ids[: changes * 7 // 10], ids[changes * 9 // 10 :]
        connection.execute(
            "UPDATE orders SET status = 'paid', total = total + 1 WHERE id = ANY(%s)", [updated]
        )
        connection.execute("DELETE FROM orders WHERE id = ANY(%s)", [deleted])
        connection.execute(
            f"INSERT INTO orders SELECT {rows} + {number} * {changes} + i, 'new', i, 'new', "
            "now()::timestamp(0) "
            f"FROM generate_series(1, {max(1, changes // 5)}) i"
        )
        connection.commit()


@contextlib.contextmanager
def _compaction(hive: Hive23, seconds: list[float]) -> Iterator[None]:
    """A major compaction of the whole table, which is waited for at the end of the block."""

    def worker() -> None:
        while not seconds:
            hive.worker()
            time.sleep(1)

    def ask() -> None:
        began = time.monotonic()
        with open_client(hive.uri) as metastore:
            done = compact_table(
                metastore, TABLE, threshold=CompactionThreshold(1), wait_seconds=COMPACTION_SECONDS
            )
        tell(str(done))
        seconds.append(time.monotonic() - began)

    threads = [threading.Thread(target=each, daemon=True) for each in (worker, ask)]
    for thread in threads:
        thread.start()
    yield
    threads[1].join()


def _are_equal(server: Postgres, hive: Hive23) -> bool:
    totals = "SELECT count(*), sum(id), sum(total), sum(length(status)) FROM {}"
    there, here = hive.sql(totals.format(TABLE))[0], server.sql(totals.format("orders"))[0]
    tell(f"Hive: {there}; PostgreSQL: {list(map(str, here))}")
    return [Decimal(str(value)) for value in there] == [Decimal(str(value)) for value in here]


def _case(
    rows: int, first: float, peak: int, seconds: list[float], compaction: float | None
) -> dict[str, Any]:
    worst = max(seconds)
    beside = "" if compaction is None else f" Beside them a major compaction of {compaction:.0f} s."
    return {
        "case": f"1 % of {rows:,} rows a day, every two minutes",
        "text": (
            f"First copy: {first:.0f} s, with {peak:,} MiB of memory at most. {len(seconds)} extractions: "
            f"median {statistics.median(seconds):.2f} s, worst "
            f"{worst:.2f} s, aim {EXTRACTION_AIM_SECONDS:g} s.{beside} A change is visible at the latest "
            f"{INTERVAL_SECONDS + worst:.0f} s after its commit, aim {LAG_AIM_SECONDS:.0f} s."
        ),
        "seconds": [round(each, 3) for each in seconds],
        "first_copy_seconds": round(first, 1),
        "first_copy_peak_mib": peak,
        "compaction_seconds": compaction,
        "contestants": {},
        "ratios": {},
    }
