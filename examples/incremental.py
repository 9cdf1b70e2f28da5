"""Incremental update: Hive follows a shop on PostgreSQL while it works, with a kill in between.

    ./dev demo --incremental                    # or: python -m examples.incremental [--rows N] [--html FILE]

The demo starts PostgreSQL and Hive 2.3 on this machine, makes a table of 1,000,000 orders, and enables
incremental update. Then three "days" pass. On each day, 1 % of the orders are changed in small transactions,
while ``hive-mutate update extract --follow 2`` runs in a separate process. On the second day that process is
killed and started again. At the end of each day the table is compacted if it has enough deltas by then, while
extraction continues. At the end Hive's own SQL is compared with PostgreSQL, and an HTML page shows what
happened. The exit status is 0 only if both sides are equal.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

from examples.local import create_table
from judges.hive.hive_judges import Hive23
from judges.hive.judge import HiveJudge
from judges.postgres import Postgres
from judges.process import in_rounds
from metastore_client import open_client
from mutation_api.cdc import enable_update, extract_update, status_page, update_status
from mutation_api.upkeep import CompactionThreshold, compact_table

TABLE = "default.orders"
ROWS_DEFAULT = 1_000_000
DAYS = 3
CHANGED_SHARE = 0.01
DAY_SECONDS = 10.0
FOLLOW_SECONDS = 2.0
LONGEST_EVENING_SECONDS = 60.0
DELTA_ROWS = 25_000
COMPACTION_SECONDS = 150.0

MAKE_ORDERS = """
CREATE TABLE orders AS
SELECT i::bigint AS id, 'customer ' || i % 9973 AS customer,
       ((i::bigint * 7919) % 100000)::numeric / 100 AS total, 'new'::text AS status,
       timestamp '2024-05-01' + i * interval '1 second' AS placed
FROM generate_series(1, {rows}) i
"""
COLUMNS = "id bigint, customer string, total decimal(12,2), status string, placed timestamp"
TOTALS = """
SELECT status, count(*), sum(id), sum(total), sum(length(customer)) FROM {table}
GROUP BY status"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Return 0 if Hive and PostgreSQL are equal at the end, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rows", type=int, default=ROWS_DEFAULT, help="number of orders (default: %(default)s)"
    )
    parser.add_argument(
        "--html",
        type=Path,
        default=Path("incremental-update.html"),
        help="HTML page to write (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="incremental-")))
        server, hive = start_both(stack, work, options.rows)
        say(f"started {server.description} and {hive.description}; {options.rows:,} orders are in the shop")
        is_equal = run(server, hive, work, options.rows, options.html)
    say(f"{'equal' if is_equal else 'NOT EQUAL'}, {time.monotonic() - started:.0f} s in all")
    return 0 if is_equal else 1


def start_both(stack: contextlib.ExitStack, work: Path, rows: int) -> tuple[Postgres, HiveJudge]:
    """Start both servers concurrently, and make the shop. The servers end with the stack."""

    def start_hive() -> HiveJudge:
        hive = Hive23(work / "hive")
        create_table(hive.uri, TABLE, COLUMNS, "", "id", 4, layout="default")
        return hive

    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(start_hive)
        try:
            server = stack.enter_context(Postgres(work / "postgres"))
            server.sql(MAKE_ORDERS.format(rows=rows))
            server.sql("ALTER TABLE orders ADD PRIMARY KEY (id)")
        finally:
            hive = stack.enter_context(starting.result())
    return server, hive


def _source(server: Postgres) -> str:
    """Return the URL of the shop."""
    return f"postgresql://{server.user}@127.0.0.1:{server.port}/postgres"


def run(server: Postgres, hive: HiveJudge, work: Path, rows: int, page: Path) -> bool:
    """Follow the shop, then compare both sides."""
    source = _source(server)
    with open_client(hive.uri) as metastore:
        enabled = enable_update(metastore, TABLE, source, password=server.password)
        say(str(enabled))
        say(str(extract_update(metastore, TABLE, password=server.password, source=source)))
        log = enabled.settings.names.log
        with Follower(server, hive, work) as follower:
            for day in range(1, DAYS + 1):
                live_a_day(day, server, rows, follower)
                wait_until_applied(server, log)
                say(f"day {day}: about {int(rows * CHANGED_SHARE):,} orders changed")
                with in_rounds(hive.worker, 0.3):  # as a metastore's compactor threads do
                    done = compact_table(
                        metastore,
                        TABLE,
                        threshold=CompactionThreshold(DELTA_ROWS),
                        wait_seconds=COMPACTION_SECONDS,
                    )
                say(str(done))
        say(str(extract_update(metastore, TABLE, password=server.password, source=source)))
        status = update_status(metastore, TABLE, password=server.password, source=source)
    page.write_text(status_page([status], time.time()), encoding="utf-8")
    say(f"the page: {page.absolute()}")
    return compare(server, hive)


def live_a_day(day: int, server: Postgres, rows: int, follower: Follower) -> None:
    """Change 1 % of the orders while a process extracts. On the second day it is killed in the middle."""
    rng = random.Random(day)
    changes = int(rows * CHANGED_SHARE)
    began = time.monotonic()
    is_killed = day != 2
    done = 0
    with server.connect(autocommit=False) as connection:
        while done < changes:
            count = min(changes - done, max(1, changes // 60))
            first = rng.randrange(1, rows)
            connection.execute(
                f"UPDATE orders SET status = 'paid', total = total + 1 WHERE id BETWEEN {first} AND "
                f"{first + count * 7 // 10}"
            )
            connection.execute(
                f"DELETE FROM orders WHERE id BETWEEN {first + count * 9 // 10} AND {first + count}"
            )
            connection.execute(
                f"INSERT INTO orders SELECT {rows} + {day} * {rows} + {done} + i, 'new customer', i, "
                "'new', now()::timestamp(0) "
                f"FROM generate_series(1, {max(1, count // 5)}) i"
            )
            connection.commit()
            done += count
            if not is_killed and done > changes // 2:
                is_killed = True
                follower.kill_and_restart()
            time.sleep(max(0.0, began + DAY_SECONDS * done / changes - time.monotonic()))


def wait_until_applied(server: Postgres, log: str) -> None:
    """Wait until the log is empty except for the receipt of the last extraction, but at most a minute."""
    end_of_wait = time.monotonic() + LONGEST_EVENING_SECONDS
    while time.monotonic() < end_of_wait:
        ((waiting,),) = server.sql(f"SELECT count(*) FROM {log} WHERE hm_sequence > 0")
        if not waiting:
            return
        time.sleep(0.2)


class Follower:
    """A separate process with ``hive-mutate update extract --follow``, as a scheduler would run it."""

    def __init__(self, server: Postgres, hive: HiveJudge, work: Path) -> None:
        self._hive = hive
        self._log = work / "extract.log"
        words = ["update", "extract", "--table", TABLE, "--follow", str(FOLLOW_SECONDS)]
        words += ["--engine", "local", "--quiet", "--metastore", hive.uri]
        self._command = [sys.executable, "-m", "mutation_api.cli.main", *words]
        self._environment = {**os.environ, "HIVE_MUTATE_SOURCE_PASSWORD": server.password}
        self._environment["HIVE_MUTATE_SOURCE"] = _source(server)
        self._process = self._started()

    def __enter__(self) -> Follower:
        """Return itself. The process already runs."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the process."""
        self._process.terminate()
        self._process.wait()
        self._hive.time_out_transactions(0)

    def kill_and_restart(self) -> None:
        """Kill the process and restart it. The server aborts its transaction, here at once."""
        self._process.kill()
        self._process.wait()
        self._hive.time_out_transactions(0)
        say("killed the extraction in the middle of the day, and started it again")
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=sys.stdout, stderr=log, env=self._environment)


def compare(server: Postgres, hive: HiveJudge) -> bool:
    """Return True if Hive's SQL returns the same sums as PostgreSQL."""
    there, here = (
        sorted((row[0], *(Decimal(str(value)).normalize() for value in row[1:])) for row in rows)
        for rows in (hive.sql(TOTALS.format(table=TABLE)), server.sql(TOTALS.format(table="orders")))
    )
    for name, found in (("PostgreSQL", here), ("Hive", there)):
        shown = [
            " ".join(f"{value:f}" if isinstance(value, Decimal) else value for value in row) for row in found
        ]
        print(f"{name}:", *shown, sep="\n  ")
    return here == there


def say(line: str) -> None:
    """Print a line with the time."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
