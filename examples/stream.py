"""Streams: Hive follows a shop on MariaDB through Kafka, and is copied to a second Hive; with a kill.

    ./dev demo --stream                          # or: python -m examples.stream [--rows N]

The demo starts MariaDB, Kafka and two Hives (4.1), A and B, on this machine. A connector writes each change
of the shop's table to Kafka, as Debezium does. A streaming query of Spark (:mod:`examples.stream_query`)
writes the changes to two tables of Hive A, exactly once. Hive's own REPL DUMP and REPL LOAD repeatedly copy
these to Hive B. In the second round of changes, the query's process is killed (``kill -9``) in the middle of
a batch and started again. At the end MariaDB, Hive A and Hive B are compared row by row. The exit status is 0
only if all are equal and no message was written twice or lost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

from examples.stream_connector import Connector
from examples.stream_query import COLUMNS, DATABASE, HISTORY, ORDERS, TOPIC
from judges.hive.hive_judges import Hive41, replication_settings
from judges.kafka import Kafka
from judges.mysql import MariaDbJudge
from metastore_client import LockState, open_client

ROWS_DEFAULT = 20_000
ROUNDS = 3
ROUND_SECONDS = 10.0
ROUND_TRANSACTIONS = 100
LONGEST_SECONDS = 180.0
COPY_SECONDS = 4.0
"""The time between two copies in seconds."""
PARTITIONS = 2

SHOP = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, customer VARCHAR(40) NOT NULL, total DECIMAL(9,2), "
    "status VARCHAR(8) NOT NULL)",
    "SET max_recursive_iterations = 100000000",
    "INSERT INTO shop.orders "
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) "
    "SELECT i, CONCAT('customer ', i % 997), (i * 7919 % 100000) / 100, 'new' FROM n",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Return 0 if all three are equal at the end, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rows", type=int, default=ROWS_DEFAULT, help="number of orders (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stream-")))
        say("starting MariaDB, Kafka and two Hives 4.1, A and B")
        servers = Servers(stack, work)
        servers.make_shop(options.rows)
        is_equal = run(servers, work, options.rows)
    say(f"{'equal' if is_equal else 'NOT EQUAL'}, {time.monotonic() - started:.0f} s in all")
    return 0 if is_equal else 1


class Servers:
    """All four servers. They start concurrently and end with the stack."""

    def __init__(self, stack: contextlib.ExitStack, work: Path) -> None:
        """Start the servers."""

        def hive(name: str) -> Hive41:
            return Hive41(work / name, replication_settings(work / name))

        with ThreadPoolExecutor(3) as pool:
            starting = [pool.submit(hive, name) for name in ("a", "b")]
            kafka = pool.submit(lambda: Kafka(work / "kafka"))
            self.maria = stack.enter_context(MariaDbJudge(work / "mariadb"))
            self.kafka = stack.enter_context(kafka.result())
            self.a, self.b = (stack.enter_context(each.result()) for each in starting)

    def make_shop(self, rows: int) -> None:
        """Make the shop's table, a topic, and a database at A that is the source of a replication."""
        with self.maria.connect() as connection, connection.cursor() as cursor:
            for statement in SHOP:
                cursor.execute(statement.format(rows=rows))
        self.kafka.create_topic(TOPIC, PARTITIONS)
        self.a.sql(f"CREATE DATABASE {DATABASE} WITH DBPROPERTIES ('repl.source.for'='demo')")
        for table, columns in COLUMNS.items():
            self.a.sql(
                f"CREATE TABLE {table} ({columns}) STORED AS ORC TBLPROPERTIES ('transactional'='true')"
            )


def run(servers: Servers, work: Path, rows: int) -> bool:
    """Run three rounds, then compare."""
    copy = Copy(servers, work)
    copy.cycle()
    say("first copy from A to B: the tables, without rows")
    with Connector(servers.maria, servers.kafka, "shop.orders", TOPIC) as connector:
        say(f"the connector has written {connector.changes:,} orders to Kafka, and follows MariaDB's log")
        shop = Shop(servers.maria, rows)
        with Query(servers, work) as query, copy.running():
            query.wait_for(lambda: query.transactions >= 1)
            say("the streaming query has written its first batch")
            for number in range(1, ROUNDS + 1):
                killer = threading.Thread(target=query.kill_in_a_batch) if number == 2 else None
                if killer:
                    killer.start()
                shop.live(number)
                if killer:
                    killer.join()
                say(f"round {number}: {shop.changes:,} rows changed so far; {query}; {copy}")
            connector.wait_for(rows + shop.changes)
            query.finish()
        told = connector.changes
    copy.cycle()
    say(f"the end: {told:,} changes sent to Kafka; {query}; {copy}")
    return query.was_killed and compare(servers, told)


class Shop:
    """The shop's work: it changes orders in small transactions. ``changes`` counts the changed rows."""

    def __init__(self, server: MariaDbJudge, rows: int) -> None:
        self._server = server
        self._next = rows + 1
        self._random = random.Random(27)
        self.changes = 0

    def live(self, number: int) -> None:
        """Run one round: in each transaction, 30 rows are updated, 10 inserted, and about 5 deleted."""
        began = time.monotonic()
        with self._server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            for done in range(ROUND_TRANSACTIONS):
                first = self._random.randrange(1, self._next)
                status = self._random.choice(["paid", "sent"])
                cursor.execute(
                    f"UPDATE shop.orders SET status = '{status}', total = total + {number} "
                    f"WHERE id BETWEEN {first} AND {first + 29}"
                )
                self.changes += cursor.rowcount
                cursor.execute(f"DELETE FROM shop.orders WHERE id BETWEEN {first + 30} AND {first + 34}")
                self.changes += cursor.rowcount
                values = ", ".join(f"({self._next + i}, 'new customer', {i}, 'new')" for i in range(10))
                cursor.execute(f"INSERT INTO shop.orders VALUES {values}")
                self.changes += cursor.rowcount
                self._next += 10
                connection.commit()
                time.sleep(max(0.0, began + ROUND_SECONDS * done / ROUND_TRANSACTIONS - time.monotonic()))


class Query:
    """The streaming query in a separate process.

    ``transactions``: number of batches that it wrote. ``repeated``: number of batches that it recognised as
    already written.
    """

    def __init__(self, servers: Servers, work: Path) -> None:
        self._uri = servers.a.uri
        words = [self._uri, servers.kafka.servers, f"file:{work}/checkpoint"]
        self._command = [sys.executable, "-m", "examples.stream_query", *words]
        self._log = work / "query.log"
        self.transactions = self.repeated = 0
        self.was_killed = False

    def __enter__(self) -> Query:
        """Start the query."""
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the query if it still runs."""
        self._kill()

    def __str__(self) -> str:
        again = f", {self.repeated} repeated and skipped" if self.was_killed else ""
        return f"batches written: {self.transactions}{again}"

    def kill_in_a_batch(self) -> None:
        """Kill the query with all that it holds, and start it again.

        The server would abort the dead transaction when its heartbeat is five minutes late. The demo aborts
        it at once.
        """
        with open_client(self._uri) as metastore:
            database, table = ORDERS.split(".")

            def transaction() -> int | None:
                locks = metastore.show_locks(database, table)
                return next((lock.txn_id for lock in locks if lock.state is LockState.ACQUIRED), None)

            self.wait_for(lambda: transaction() is not None)
            time.sleep(0.7)  # so that it is in the middle of its work
            self._kill()
            self.was_killed = True
            dead = transaction()
            if dead is not None:
                metastore.abort_txn(dead)
        left = "its transaction had just ended" if dead is None else f"nothing of transaction {dead} shows"
        say(f"killed the streaming query in the middle of a batch (kill -9): {left}; started it again")
        self._start()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition is true."""
        end = time.monotonic() + LONGEST_SECONDS
        while not condition():
            if time.monotonic() > end or self._process.poll() is not None:
                raise RuntimeError(f"the streaming query makes no progress:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.05)

    def finish(self) -> None:
        """Let the query write what is in Kafka, then end it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reader.join(LONGEST_SECONDS)
        if self._process.wait(LONGEST_SECONDS):
            raise RuntimeError(f"the streaming query failed:\n{self._log.read_text()[-3000:]}")

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _kill(self) -> None:
        """Kill Python, and Spark's JVM with it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["transaction"] is None:
                self.repeated += 1
            else:
                self.transactions += 1


class Copy:
    """Hive's own replication from A to B. ``cycles`` counts the copies."""

    def __init__(self, servers: Servers, work: Path) -> None:
        self._servers = servers
        self._with = f"WITH ('hive.repl.rootdir'='file:{work}/dumps')"
        self._stop = threading.Event()
        self.cycles = 0

    def __str__(self) -> str:
        return f"copies to B: {self.cycles}"

    def cycle(self) -> None:
        """Copy what was committed since the last cycle."""
        self._servers.a.sql(f"REPL DUMP {DATABASE} {self._with}")
        self._servers.b.sql(f"REPL LOAD {DATABASE} INTO {DATABASE} {self._with}")
        self.cycles += 1

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Copy repeatedly while the block runs."""

        def work() -> None:
            while not self._stop.wait(COPY_SECONDS):
                self.cycle()

        with ThreadPoolExecutor(1) as pool:
            copying = pool.submit(work)
            try:
                yield
            finally:
                self._stop.set()
            copying.result()


def compare(servers: Servers, told: int) -> bool:
    """Return True if both Hives have MariaDB's rows, and every change once. Print sums of each."""
    columns = "id, customer, total, status"
    rows: dict[str, list[Sequence[object]]] = {
        "MariaDB": [*servers.maria.sql(f"SELECT {columns} FROM shop.orders")],
        "Hive A": [*servers.a.sql(f"SELECT {columns} FROM {ORDERS}")],
        "Hive B": [*servers.b.sql(f"SELECT {columns} FROM {ORDERS}")],
    }
    found = {name: sorted(map(_row, each)) for name, each in rows.items()}
    for name, each in found.items():
        sums = (f"{len(each):,} orders", f"total {sum(row[2] for row in each):,}")
        print(f"  {name:8}", *sums, *(f"{_count(each, s):,} {s}" for s in ("new", "paid", "sent")), sep="  ")
    is_equal = found["MariaDB"] == found["Hive A"] == found["Hive B"]
    for name, hive in (("Hive A", servers.a), ("Hive B", servers.b)):
        [[count, places]] = hive.sql(
            f"SELECT count(*), count(DISTINCT concat_ws(' ', CAST(id AS string), CAST(place AS string))) "
            f"FROM {HISTORY}"
        )
        print(f"  {name:8}  {count:,} changes in the history, {told:,} were sent")
        is_equal &= count == places == told
    return is_equal


def _row(row: Sequence[object]) -> tuple[int, str, Decimal, str]:
    id, customer, total, status = row
    return int(str(id)), str(customer), Decimal(str(total)), str(status)


def _count(rows: Sequence[tuple[int, str, Decimal, str]], status: str) -> int:
    return sum(row[3] == status for row in rows)


def say(line: str) -> None:
    """Print a line with the time."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
