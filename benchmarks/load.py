"""Many writers of one table: one-row appends a second, on every line of Hive and by every kind of lock.

    python -m benchmarks load                                     # all, 20 s each: some 25 minutes
    python -m benchmarks load --quick                             # Hive 2.3, exclusive, one and eight writers
    python -m benchmarks load --line 4.1 --lock exclusive --writers 100 --seconds 120

Each writer has a connection of its own; the first ten are processes, more are threads of these. With
``--apart`` each process has a directory of its own for temporary files, as on a machine of its own: its
writers meet those of others at the metastore only.

The baseline of each kind is one writer. Hive counts the rows and adds up their ids afterwards; open
transactions, locks and staged files that stay are told. A lock is waited for 120 s at most.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from benchmarks.loading.writer import INSERT_ONLY, Done
from benchmarks.measuring.arguments import integers
from benchmarks.measuring.measure import machine, tell, versions
from benchmarks.measuring.report import save_cases, show_case
from judges.hive.hive_judges import Hive23, Hive31, Hive41, Hive42
from judges.hive.judge import HiveJudge
from metastore_client import ColumnInfo, MetastoreClient, TxnState, open_client
from mutation_api import create_acid_table

HELP = "commits a second of one to a hundred writers of one table"

JUDGES: dict[str, type[HiveJudge]] = {each.line: each for each in (Hive23, Hive31, Hive41, Hive42)}
LOCKS = ("exclusive", "optimistic", INSERT_ONLY)
WRITERS = (1, 2, 4, 8, 16, 100)
SECONDS = 20
PROCESSES_MOST = 10
AIM_WRITERS, AIM_SHARE = 8, 0.8
"""So many exclusive writers should reach this share of the commits a second of one."""
RESULTS = Path(__file__).parent / "results" / "load.json"

_numbers = itertools.count(1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help="ignored: a transaction has one row")
    parser.add_argument("--quick", action="store_true", help="Hive 2.3, exclusive, 1 and 8 writers, 5 s each")
    parser.add_argument("--line", choices=JUDGES, action="append", help="of Hive (default: all)")
    parser.add_argument("--lock", choices=LOCKS, action="append", help="kind of lock (default: all)")
    parser.add_argument("--writers", type=integers, help=f"default: {','.join(map(str, WRITERS))}")
    parser.add_argument("--seconds", type=int, help=f"for each number of writers (default: {SECONDS})")
    parser.add_argument("--apart", action="store_true", help="processes do not see each other")
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if every row is there once, nothing stays, nobody failed, and aims are met."""
    lines = arguments.line or (["2.3"] if arguments.quick else list(JUDGES))
    locks = arguments.lock or (["exclusive"] if arguments.quick else LOCKS)
    writers = arguments.writers or ((1, AIM_WRITERS) if arguments.quick else WRITERS)
    seconds = arguments.seconds or (5 if arguments.quick else SECONDS)
    cases, found = [], set()
    for line in lines:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder, JUDGES[line](Path(folder)) as judge:
            found.add(judge.description)
            judge.sql("create database load")
            for lock in locks:
                rounds = [run_round(judge, lock, count, seconds, apart=arguments.apart) for count in writers]
                cases.append(case_of(line, lock, rounds, apart=arguments.apart))
                show_case(cases[-1])
    if arguments.save:
        known = ", ".join((*sorted(found), *versions("pyarrow")))
        save_cases(cases, RESULTS, title="Many writers", versions=known, machine=machine())
    return 0 if all(case["meets_aims"] for case in cases) else 1


def run_round(judge: HiveJudge, lock: str, writers: int, seconds: int, *, apart: bool) -> dict[str, Any]:
    """So many writers of a new table, and what Hive says of it afterwards."""
    tell(f"Hive {judge.line}, {lock}, writers: {writers}")
    table = f"load.t{next(_numbers)}"
    columns = [ColumnInfo("id", "bigint"), ColumnInfo("v", "string")]
    with open_client(judge.uri) as metastore, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        create_acid_table(metastore, table, columns, clustered_by=["id"], num_buckets=1)
        done = _write(judge.uri, table, lock, writers, seconds, Path(folder) if apart else None)
        left = _leftovers(metastore, table)
    (counted,) = judge.sql(f"select count(*), coalesce(sum(id), 0) from {table}")
    expected = [sum(each.rows for each in done), sum(each.ids for each in done)]
    waits = sorted(wait for each in done for wait in each.waits)
    return {
        "writers": writers,
        "commits_a_second": sum(each.in_time for each in done) / seconds,
        "median_wait_seconds": statistics.median(waits),
        "longest_wait_seconds": waits[-1],
        "least_and_most": [min(each.in_time for each in done), max(each.in_time for each in done)],
        "refused": sum(each.refused for each in done),
        "errors": [error for each in done for error in each.errors],
        "left": left,
        "rows_are_right": [int(str(value)) for value in counted] == expected,
    }


def _write(uri: str, table: str, lock: str, writers: int, seconds: int, apart: Path | None) -> list[Done]:
    with contextlib.ExitStack() as stack:
        processes = []
        for first, count in _shares(writers):
            environment = dict(os.environ)
            if apart is not None:
                environment["TMPDIR"] = str(apart / str(first))
                Path(environment["TMPDIR"]).mkdir()
            words = [uri, table, str(first), str(count), lock, str(seconds)]
            processes.append(
                stack.enter_context(
                    subprocess.Popen(
                        [sys.executable, "-m", "benchmarks.loading.writer", *words],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                        env=environment,
                    )
                )
            )
            stack.callback(processes[-1].kill)
        for process in processes:
            _pipe(process.stdout).readline()
        for process in processes:
            _pipe(process.stdin).write("begin\n")
            _pipe(process.stdin).flush()
        return [
            Done(**each) for process in processes for each in json.loads(_pipe(process.stdout).readline())
        ]


def _shares(writers: int) -> Iterator[tuple[int, int]]:
    """The first number and the count of the writers of each process."""
    processes = min(writers, PROCESSES_MOST)
    first = 0
    for number in range(processes):
        count = writers // processes + (number < writers % processes)
        yield first, count
        first += count


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _leftovers(metastore: MetastoreClient, table: str) -> list[str]:
    database, _, name = table.partition(".")
    left = [f"transaction {t.id}" for t in metastore.get_open_txns().txns if t.state is TxnState.OPEN]
    left += [f"lock {lock.lock_id}" for lock in metastore.show_locks(database, name)]
    location = Path(metastore.get_table(database, name).location.removeprefix("file:"))
    return left + [str(path.relative_to(location)) for path in location.rglob("_mutation_*")]


def case_of(line: str, lock: str, rounds: Sequence[dict[str, Any]], *, apart: bool) -> dict[str, Any]:
    """What was measured with one kind of lock, for the report."""
    alone = next((each["commits_a_second"] for each in rounds if each["writers"] == 1), None)
    has_aim = alone is not None and lock == "exclusive" and not apart
    aimed = [each for each in rounds if has_aim and each["writers"] == AIM_WRITERS]
    is_fast = all(each["commits_a_second"] >= AIM_SHARE * (alone or 0) for each in aimed)
    return {
        "case": f"Hive {line}, {lock}" + (", processes apart" if apart else ""),
        "text": "\n".join(_round_text(each, alone) for each in rounds),
        "rounds": list(rounds),
        "contestants": {},
        "ratios": {},
        "meets_aims": is_fast
        and all(each["rows_are_right"] and not each["left"] and not each["errors"] for each in rounds),
    }


def _round_text(measured: dict[str, Any], alone: float | None) -> str:
    least, most = measured["least_and_most"]
    rate, errors = measured["commits_a_second"], measured["errors"]
    words = [
        f"* writers {measured['writers']}: {rate:.1f} commits a second",
        f"{rate / alone:.2f} of one" if alone else "",
        f"median wait {measured['median_wait_seconds']:.2f} s",
        f"longest {measured['longest_wait_seconds']:.1f} s",
        f"commits of a writer {least} to {most}",
        f"refused {measured['refused']}",
        f"failed {len(errors)}",
        f"left: {', '.join(measured['left']) or 'nothing'}",
        "rows right" if measured["rows_are_right"] else "rows WRONG",
    ]
    return "\n  * ".join(["; ".join(filter(None, words)), *errors[:3]])
