"""Round trip: MariaDB to Hive, its change feed to Kafka, and from there to a second database; with kills.

    ./dev demo --feed                            # or: python -m examples.feed [--rows N] [--rounds N]

The demo starts MariaDB, Kafka and Hive 4.1 on this machine, and three commands, each in its own process:

1. ``hive-mutate ingest mysql`` applies the log of MariaDB's shop to the tables of the database ``lake``;
2. ``hive-mutate changes --kafka`` sends the changes of these tables to Kafka, exactly once;
3. ``hive-mutate ingest debezium --kafka`` applies them to the tables of the database ``copy``.

In the first round, Hive compacts all tables (major) and its cleaner runs, while the feed holds what it has
not read. In the other rounds, each of the processes is killed (``kill -9``) at random moments and started
again.
At the end MariaDB and both databases are compared row by row, as Hive reads them. The exit status is 0 only
if all are equal.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, InvalidOperation
from pathlib import Path

from examples.stream import say
from judges.errors import HiveError
from judges.hive.hive_judges import Hive41
from judges.kafka import Kafka
from judges.mysql import MariaDbJudge
from metastore_client import open_client
from mutation_api import Hive, connect

ROWS_DEFAULT = 2_000
ROUNDS_DEFAULT = 4
ROUND_SECONDS = 20.0
LONGEST_SECONDS = 240.0

TABLES = {
    "orders": ("id", "id bigint, customer string, total decimal(9,2)"),
    "items": ("order_id,line", "order_id bigint, line int, item string, pieces int"),
}
"""The tables, with their keys and columns."""
LAKE, COPY = "lake", "copy"

SHOP = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, customer VARCHAR(40), total DECIMAL(9,2))",
    "CREATE TABLE shop.items (order_id BIGINT, line INT, item VARCHAR(40), pieces INT, "
    "PRIMARY KEY (order_id, line))",
    "SET max_recursive_iterations = 100000000",
    "INSERT INTO shop.orders "
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) "
    "SELECT i, CONCAT('customer ', i % 97), (i * 7919 % 100000) / 100 FROM n",
    "INSERT INTO shop.items SELECT id, 1, CONCAT('item ', id % 31), id % 5 FROM shop.orders",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Return 0 if all are equal at the end, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=ROWS_DEFAULT, help="orders (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS_DEFAULT, help="rounds (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of changes and kills (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="feed-")))
        say("starting MariaDB, Kafka and Hive 4.1")
        trip = RoundTrip(stack, work, options.rows, random.Random(options.seed))
        is_equal = trip.run(options.rounds)
    say(f"{'equal' if is_equal else 'NOT EQUAL'}, {time.monotonic() - started:.0f} s in all")
    return 0 if is_equal else 1


class RoundTrip:
    """The servers, and the three processes between them."""

    def __init__(self, stack: contextlib.ExitStack, work: Path, rows: int, rng: random.Random) -> None:
        """Start the servers and make the tables."""
        with ThreadPoolExecutor(2) as pool:
            hive = pool.submit(Hive41, work / "hive")
            kafka = pool.submit(lambda: Kafka(work / "kafka"))
            self.maria = stack.enter_context(MariaDbJudge(work / "mariadb"))
            self.kafka = stack.enter_context(kafka.result())
            self.hive = stack.enter_context(hive.result())
        with self.maria.connect() as connection, connection.cursor() as cursor:
            for statement in SHOP:
                cursor.execute(statement.format(rows=rows))
        for database in (LAKE, COPY):
            self.hive.sql(f"CREATE DATABASE {database}")
            for name, (_, columns) in TABLES.items():
                self.hive.sql(
                    f"CREATE TABLE {database}.{name} ({columns}) STORED AS ORC "
                    "TBLPROPERTIES ('transactional'='true')"
                )
        self.rng = rng
        self._next = rows + 1
        self.processes = [Process(words, self.hive.uri, work) for words in self._commands()]

    def _commands(self) -> Iterator[list[str]]:
        names = ",".join(TABLES)
        source = f"mysql://{self.maria.user}@127.0.0.1:{self.maria.port}/shop"
        yield ["ingest", "mysql", "--source", source, "--tables", names, "--database", LAKE, "--follow", "1"]
        lake = [f"{LAKE}.{name}" for name in TABLES]
        keys = [word for name in TABLES for word in ("--on", f"{LAKE}.{name}={TABLES[name][0]}")]
        kafka = ["--kafka", self.kafka.servers]
        feed = ["--topic-prefix", "feed", "--since", "beginning", "--follow", "1", "--hold", "600"]
        yield ["changes", *lake, *keys, *kafka, *feed]
        for name in lake:
            self.kafka.create_topic(f"feed.{name}")
        topics = [word for name in lake for word in ("--topic", f"feed.{name}")]
        tables = [word for name in TABLES for word in ("--table", f"{LAKE}.{name}={COPY}.{name}")]
        yield ["ingest", "debezium", *kafka, "--name", "feed", *topics, *tables, "--follow", "1"]

    def run(self, rounds: int) -> bool:
        """Run the rounds, wait until everything has arrived, and compare."""
        with contextlib.ExitStack() as stack:
            for each in self.processes:
                stack.enter_context(each)
            self._wait()
            say("all rows have made the trip")
            for number in range(1, rounds + 1):
                end = time.monotonic() + ROUND_SECONDS
                with ThreadPoolExecutor(1) as pool:
                    other = pool.submit(self._compact if number == 1 else self._kill, end)
                    changes = self._live(end)
                    done = other.result()
                self._wait()
                say(f"round {number}: {changes} transactions in MariaDB; {done}; all have made the trip")
        return self._compare()

    def _live(self, end: float) -> int:
        """Change both tables in transactions until a moment, and return their number."""
        count = 0
        with self.maria.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while time.monotonic() < end:
                id = self.rng.randrange(1, self._next)
                statements = (
                    f"UPDATE shop.orders SET total = total + 1 WHERE id BETWEEN {id} AND {id + 9}",
                    f"DELETE FROM shop.items WHERE order_id = {id}",
                    f"DELETE FROM shop.orders WHERE id = {id}",
                    f"INSERT INTO shop.orders VALUES ({self._next}, 'new', 1)",
                    f"INSERT INTO shop.items VALUES ({self._next}, 1, 'tea', 2)",
                    f"INSERT INTO shop.items VALUES ({self._next}, 2, 'milk', 1)",
                )
                for statement in statements:
                    cursor.execute(statement)
                connection.commit()
                self._next += 1
                count += 1
                time.sleep(0.05)
        return count

    def _compact(self, end: float) -> str:
        """Compact all tables (major) and let the cleaner run, again and again."""
        count = 0
        while time.monotonic() < end:
            for database in (LAKE, COPY):
                for name in TABLES:
                    # Hive refuses while obsolete files of the last time are held.
                    with contextlib.suppress(HiveError):
                        self.hive.compact(f"{database}.{name}", "major", clean=False)
                        count += 1
            self.hive.cleaner()
        return f"{count} major compactions"

    def _kill(self, end: float) -> str:
        """Kill processes at random moments."""
        count = 0
        while time.monotonic() < end:
            time.sleep(self.rng.uniform(0.5, 5))
            self.rng.choice(self.processes).kill()
            count += 1
        return f"{count} processes killed (kill -9) and started again"

    def _wait(self) -> None:
        """Wait until everything has arrived."""
        longest = time.monotonic() + LONGEST_SECONDS
        with connect(self.hive.uri) as hive:
            while not all(self._has_arrived(hive, name) for name in TABLES):
                for each in self.processes:
                    each.check()
                if time.monotonic() > longest:
                    tails = "\n".join(each.tail() for each in self.processes)
                    raise RuntimeError(f"something did not arrive\n{tails}")
                time.sleep(0.5)

    def _has_arrived(self, hive: Hive, name: str) -> bool:
        with hive.snapshot(f"{COPY}.{name}") as view:
            found = view.table(f"{COPY}.{name}").scan().to_arrow().to_pylist()
        return _texts([each.values() for each in found]) == _texts(
            self.maria.sql(f"SELECT * FROM shop.{name}")
        )

    def _compare(self) -> bool:
        """Return True if all have the same rows, as Hive reads them."""
        is_equal = True
        for name, (keys, _) in TABLES.items():
            found = {"MariaDB": _texts(self.maria.sql(f"SELECT * FROM shop.{name}"))}
            for database in (LAKE, COPY):
                found[database] = _texts(self.hive.sql(f"SELECT * FROM {database}.{name}"))
            is_equal &= len({str(rows) for rows in found.values()}) == 1
            counts = ", ".join(f"{place} {len(rows):,}" for place, rows in found.items())
            print(f"  {name} (key {keys}): {counts}")
        return is_equal


def _texts(rows: Iterable[Iterable[object]]) -> list[tuple[str, ...]]:
    return sorted(tuple(map(_text, row)) for row in rows)


def _text(value: object) -> str:
    """Return a value as a string, without the zeros at the end of a number, which depend on who prints it."""
    try:
        return f"{Decimal(str(value)).normalize():f}"
    except InvalidOperation:
        return str(value)


class Process:
    """A command in a process of its own, which may be killed and started again."""

    def __init__(self, words: Sequence[str], uri: str, work: Path) -> None:
        self._command = [sys.executable, "-m", "mutation_api.cli.main", *words, "--metastore", uri]
        self._uri = uri
        self._log = work / f"{words[0]}-{words[1].replace('.', '-')}.log"
        self._mutex = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Process:
        """Start."""
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def kill(self) -> None:
        """Kill the process, and start it again.

        The server would abort the dead transactions when their heartbeats are five minutes late. The demo
        aborts them at once.
        """
        with self._mutex:
            assert self._process is not None
            self._process.kill()
            self._process.wait()
            mark = f"pid {self._process.pid}"
            with open_client(self._uri) as metastore:
                for database in (LAKE, COPY):
                    for table in (*TABLES, "mutation_watermarks"):
                        for lock in metastore.show_locks(database, table):
                            if lock.txn_id and lock.agent_info.endswith(mark):
                                metastore.abort_txn(lock.txn_id)
            self._start()

    def check(self) -> None:
        """Raise if the process has ended by itself."""
        with self._mutex:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"a process has ended: {self._command}\n{self.tail()}")

    def tail(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(errors="replace")[-3000:]

    def _start(self) -> None:
        environment = {**os.environ, "HIVE_MUTATE_MYSQL_PASSWORD": MariaDbJudge.password}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)


if __name__ == "__main__":
    sys.exit(main())
