"""One commit that touches thousands of partitions, all of them new.

    python -m benchmarks many_partitions                # 10,000 partitions
    python -m benchmarks many_partitions --quick        # 300

``ours`` is ``Transaction.commit`` after a coordinator has written a row into each partition: it checks every
file, creates and registers the partitions, moves the files to their names and commits. ``bare`` creates and
registers as many partitions of another table through such a connection and commits; it has no files, and
finds the partitions' directories made: on a local disk Hive 2.3 takes five times as long to make them itself.
Writing the files, opening the transaction and its lock are not measured.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.data.group_data import COLUMNS
from benchmarks.measuring.arguments import Rounds
from benchmarks.measuring.counted_metastore import Call, CountedMetastore, by_name
from benchmarks.measuring.local_metastore import METASTORE, measured_metastore, metastore_version
from benchmarks.measuring.measure import (
    Contestant,
    Result,
    Watch,
    alternate,
    as_figures,
    compared,
    machine,
    tell,
    versions,
)
from benchmarks.measuring.report import save_cases, show_case
from examples.local import PrintLoss, create_table
from metastore_client import DataOperationType, open_client
from mutation_api import MutatorClientBuilder, MutatorCoordinator, Transaction

HELP = "a commit that touches thousands of partitions, beside the bare metastore calls"

PARTITIONS_DEFAULT = 10_000
QUICK_PARTITIONS = 300
ROUNDS = Rounds(3, warm_up=1)
AIM_RATIO = 1.05
"""What the commit may take, as a multiple of the bare calls."""
RESULTS = Path(__file__).parent / "results" / "many_partitions.json"

OURS, BARE = "ours", "bare"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--rows", type=int, help=f"one in each partition, at most {PARTITIONS_DEFAULT:,} (the default)"
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PARTITIONS} partitions")
    ROUNDS.add_argument(parser)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all partitions were there after each commit."""
    wanted = arguments.rows or (QUICK_PARTITIONS if arguments.quick else PARTITIONS_DEFAULT)
    repeat = ROUNDS.measured_of(arguments)
    case = run_case(min(wanted, PARTITIONS_DEFAULT), repeat)
    show_case(case)
    if arguments.save:
        save_cases(
            [case],
            RESULTS,
            title="Many partitions",
            versions=", ".join((metastore_version(), *versions("pyarrow"))),
            machine=machine(),
        )
    return 0 if case["is_equal"] else 1


def run_case(partitions: int, repeat: int) -> dict[str, Any]:
    """Both in turn on one metastore, on a new table each round."""
    tell(f"{partitions:,} partitions")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        metastore, kinds = stack.enter_context(measured_metastore(folder / "metastore"))
        with open_client(metastore.uri) as client:
            for database in (OURS, BARE):
                client.create_database(database)
        ours = Ours(metastore.uri, partitions, stack)
        bare = Bare(metastore.uri, metastore.warehouse / f"{BARE}.db", partitions, stack)
        parts = [
            Contestant(
                OURS, ours.commit, ("driver", METASTORE), metastore.warehouse / "ours.db", ours.prepare
            ),
            Contestant(
                BARE, bare.commit, ("driver", METASTORE), metastore.warehouse / "bare.db", bare.prepare
            ),
        ]
        results = alternate(parts, repeat, Watch(kinds), tell=tell)
        with open_client(metastore.uri) as client:
            is_equal = all(
                len(client.get_partition_names(database, table_name(number))) == partitions
                for database, number in itertools.product((OURS, BARE), range(repeat + 1))
            )
        return case_of(partitions, results, ours, is_equal=is_equal)


@dataclass
class Ours:
    """Transactions whose files are written and whose commits are not done yet.

    ``calls`` are those of each commit in turn.
    """

    uri: str
    partitions: int
    stack: contextlib.ExitStack
    calls: list[list[Call]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Connect."""
        self._metastore = self.stack.enter_context(contextlib.closing(CountedMetastore(self.uri)))
        self._transaction: Transaction | None = None

    def prepare(self, number: int) -> None:
        """Write a row into each partition of a new table."""
        table = f"{OURS}.{table_name(number)}"
        create_table(self.uri, table, COLUMNS, "ds string", "id", 1)
        builder = MutatorClientBuilder().metastore(self._metastore).lock_failure_listener(PrintLoss())
        client = builder.add_sink_table(OURS, table_name(number), create_partitions=True).build()
        self._transaction = self.stack.enter_context(client).new_transaction()
        self._transaction.begin()
        row = pa.record_batch({"id": [number], "msg": ["one row"], "v": [0.5]})
        with MutatorCoordinator(self._transaction.table(table)) as coordinator:
            for values in partition_values(self.partitions):
                coordinator.insert(values, row)
        self._transaction.add_manifests(table, coordinator.writer_id, coordinator.close())

    def commit(self, number: int) -> None:
        """Publish and commit."""
        assert self._transaction is not None
        before = len(self._metastore.calls)
        self._transaction.commit()
        self.calls.append(self._metastore.calls[before:])


@dataclass
class Bare:
    """The calls without which no such transaction commits."""

    uri: str
    database_folder: Path
    partitions: int
    stack: contextlib.ExitStack

    def __post_init__(self) -> None:
        """Connect."""
        self._metastore = self.stack.enter_context(contextlib.closing(CountedMetastore(self.uri)))
        self._txn_id = 0

    def prepare(self, number: int) -> None:
        """Open a transaction, create a new table, and make the directories of its partitions."""
        create_table(self.uri, f"{BARE}.{table_name(number)}", COLUMNS, "ds string", "id", 1)
        for (value,) in partition_values(self.partitions):
            (self.database_folder / table_name(number) / f"ds={value}").mkdir()
        self._txn_id = self._metastore.open_txn("bench", "localhost", "bare calls")

    def commit(self, number: int) -> None:
        """Create and register the partitions, and commit."""
        table, values = table_name(number), partition_values(self.partitions)
        self._metastore.add_partitions(BARE, table, values)
        names = [f"ds={value}" for (value,) in values]
        self._metastore.add_dynamic_partitions(self._txn_id, BARE, table, names, DataOperationType.INSERT)
        self._metastore.commit_txn(self._txn_id)


def case_of(partitions: int, results: Sequence[Result], ours: Ours, *, is_equal: bool) -> dict[str, Any]:
    """Put figures and calls together for the report."""
    ratios = {}
    if all(result.usages for result in results):
        ratios = {f"{OURS} / {BARE}": compared(results[0], results[1])}
    in_calls = [sum(call.seconds for call in calls) for calls in ours.calls]
    measured = in_calls[-len(results[0].usages) :]
    own = [u.wall_seconds - spent for u, spent in zip(results[0].usages, measured, strict=False)]
    share = statistics.median(o / spent for o, spent in zip(own, measured, strict=False)) if own else None
    percentage = "unknown" if share is None else f"{share:.1%}"
    return {
        "case": f"{partitions:,} partitions",
        "text": (
            f"All partitions are {'there' if is_equal else 'NOT there'}. What our commit does beside its own "
            f"calls takes {percentage} of their time. Calls of the last one: "
            f"{by_name(ours.calls[-1]) if ours.calls else 'none'}."
        ),
        "partitions": partitions,
        "own_share": share,
        "contestants": {result.name: as_figures(result) for result in results},
        "ratios": ratios,
        "aims": {f"{OURS} / {BARE}": {"wall": AIM_RATIO}},
        "is_equal": is_equal and not any(result.failure for result in results),
    }


def partition_values(count: int) -> list[tuple[str, ...]]:
    """Distinct values of ``ds``, in the order of their names."""
    return [(f"p{number:05d}",) for number in range(count)]


def table_name(number: int) -> str:
    """The table of a round, in the contestant's database."""
    return f"t{number}"
