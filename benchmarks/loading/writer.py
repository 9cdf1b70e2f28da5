"""One process of writers: threads with a connection each, which append a row a transaction.

    python -m benchmarks.loading.writer URI TABLE FIRST WRITERS LOCK SECONDS

It prints a line when every writer has committed once, waits for a line, and ends with a line of JSON: what
each writer did, as :class:`Done`. Writers are numbered from FIRST on; row ``k`` of writer ``n`` has the id
``n * ROWS_MOST + k``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa

from mutation_api import Hive, WriteConflictError, connect

ROWS_MOST = 10_000_000
INSERT_ONLY = "insert_only"
"""Beside the kinds of lock of ``connect``: the transaction will only append."""
LOCK_TIMEOUT_SECONDS = 120.0
TRIES = 3
"""How often a writer tries to commit its first row."""


@dataclass
class Done:
    """What a writer did.

    Attributes:
        rows: how many it committed in all.
        in_time: how many of them before the time was over.
        refused: commits that lost against another writer, which only optimistic ones may.
        errors: the text of every other error.
        waits: the seconds of each transaction after the first, refused ones included.
        ids: sum of the ids that it committed.
    """

    rows: int = 0
    in_time: int = 0
    refused: int = 0
    errors: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    ids: int = 0


def main(words: Sequence[str]) -> int:
    """Run the writers of this process."""
    uri, table, first, writers, lock, seconds = words
    numbers = range(int(first), int(first) + int(writers))
    warm, begin = threading.Barrier(len(numbers) + 1), threading.Event()

    def work(number: int) -> Done:
        with connect(
            uri,
            lock_timeout_seconds=LOCK_TIMEOUT_SECONDS,
            write_lock="exclusive" if lock == INSERT_ONLY else lock,
        ) as hive:
            done = Done()
            while not done.rows and len(done.errors) < TRIES:  # what the first commit imports is no load
                _append(hive, table, number, done, insert_only=lock == INSERT_ONLY)
            warm.wait()
            begin.wait()
            done.waits.clear()
            done.refused = 0
            end = time.monotonic() + float(seconds)
            while (started := time.monotonic()) < end:
                before = done.rows
                _append(hive, table, number, done, insert_only=lock == INSERT_ONLY)
                done.waits.append(time.monotonic() - started)
                done.in_time += done.rows - before if time.monotonic() < end else 0
            return done

    with ThreadPoolExecutor(len(numbers)) as threads:
        results = [threads.submit(work, number) for number in numbers]
        with contextlib.suppress(threading.BrokenBarrierError):
            warm.wait(LOCK_TIMEOUT_SECONDS)
        print("warm", flush=True)
        sys.stdin.readline()
        begin.set()
        found = [result.result() for result in results]
    print(json.dumps([dataclasses.asdict(done) for done in found]), flush=True)
    return 0


def _append(hive: Hive, table: str, number: int, done: Done, *, insert_only: bool) -> None:
    row_id = number * ROWS_MOST + done.rows
    try:
        with hive.transaction(table, insert_only=insert_only) as transaction:
            transaction.table(table).append(pa.table({"id": [row_id], "v": ["a row"]}))
    except WriteConflictError:
        done.refused += 1
    except Exception as error:
        done.errors.append(f"{type(error).__name__}: {error}")
    else:
        done.rows += 1
        done.ids += row_id


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
