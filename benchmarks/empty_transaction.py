"""The cost of a transaction that changes nothing: open, lock, take the snapshot, commit.

    python -m benchmarks empty_transaction              # 50 transactions a round
    python -m benchmarks empty_transaction --quick      # 10

``ours`` is a transaction of a connected client, on a table with some partitions; ``bare`` makes the metastore
calls without which there is no such transaction: open_txns, lock, get_open_txns, commit_txn, over the same
kind of connection. Ours does more: it lists the writers before and under the lock, reads the
table and its partitions under the lock, locks every partition against Hive's cleaner, and asks for a
heartbeat before and after the commit's checks. No Spark takes part.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.data.group_data import COLUMNS
from benchmarks.measuring.arguments import Rounds
from benchmarks.measuring.counted_metastore import Call, CountedMetastore
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
from metastore_client import (
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    MetastoreClient,
    open_client,
)
from mutation_api import MutatorClient, MutatorClientBuilder

HELP = "a transaction that changes nothing, beside the bare metastore calls"

TRANSACTIONS_DEFAULT = 50
QUICK_TRANSACTIONS = 10
ROUNDS = Rounds(5, warm_up=2)
PARTITIONS = (0, 100)
"""Numbers of partitions of the table, a case each."""
AIM_SECONDS = 0.150
"""What a transaction may cost beyond the bare calls."""
RESULTS = Path(__file__).parent / "results" / "empty_transaction.json"

OURS, BARE = "ours", "bare"
TABLE = "empty"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help="ignored: no rows are written")
    parser.add_argument("--transactions", type=int, help=f"in a round (default: {TRANSACTIONS_DEFAULT})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_TRANSACTIONS} transactions a round")
    ROUNDS.add_argument(parser)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if every transaction committed, whatever it took."""
    count = arguments.transactions or (QUICK_TRANSACTIONS if arguments.quick else TRANSACTIONS_DEFAULT)
    repeat = ROUNDS.measured_of(arguments)
    warm_up = ROUNDS.warm_up_of(arguments)
    cases = [run_case(partitions, count, repeat, warm_up) for partitions in PARTITIONS]
    if arguments.save:
        save_cases(
            cases,
            RESULTS,
            title="Empty transactions",
            versions=", ".join((metastore_version(), *versions())),
            machine=machine(),
        )
    return (
        1 if any(figures.get("failure") for case in cases for figures in case["contestants"].values()) else 0
    )


def run_case(partitions: int, count: int, repeat: int, warm_up: int) -> dict[str, Any]:
    """Both on a fresh metastore, on a table with this number of partitions."""
    label = f"a table with {partitions} partitions" if partitions else "a table without partitions"
    tell(label)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        metastore, kinds = stack.enter_context(measured_metastore(folder / "metastore"))
        make_table(metastore.uri, partitions)
        counted = stack.enter_context(contextlib.closing(CountedMetastore(metastore.uri)))
        bare = stack.enter_context(contextlib.closing(CountedMetastore(metastore.uri)))
        client = stack.enter_context(client_of(counted))
        nowhere = folder / "nowhere"
        contestants = [
            Contestant(OURS, lambda _: our_transactions(client, count), ("driver", METASTORE), nowhere),
            Contestant(BARE, lambda _: bare_transactions(bare, count), ("driver", METASTORE), nowhere),
        ]
        results = alternate(contestants, repeat, Watch(kinds), warm_up=warm_up, tell=tell)
        calls = [last_transaction(client, counted), last_bare(bare)]
    case = case_of(label, results, count, calls)
    show_case(case)
    return case


def case_of(
    label: str, results: Sequence[Result], count: int, calls: Sequence[Sequence[Call]]
) -> dict[str, Any]:
    """Put figures and calls together for the report."""
    ours, bare = results
    ratios = {f"{OURS} / {BARE}": compared(ours, bare)} if ours.usages and bare.usages else {}
    more = [(a.wall_seconds - b.wall_seconds) / count for a, b in zip(ours.usages, bare.usages, strict=False)]
    seconds_more = statistics.median(more) if more else float("nan")
    return {
        "case": label,
        "text": (
            f"{count} transactions a round; one of ours takes {seconds_more * 1000:.1f} ms more than the "
            f"bare calls, aim {AIM_SECONDS * 1000:.0f} ms. Calls of ours: {counts(calls[0])}; "
            f"bare: {counts(calls[1])}."
        ),
        "transactions": count,
        "seconds_more": round(seconds_more, 5),
        "aim_seconds_more": AIM_SECONDS,
        "calls": {
            name: Counter(c.name for c in made) for name, made in zip((OURS, BARE), calls, strict=True)
        },
        "contestants": {result.name: as_figures(result) for result in results},
        "ratios": ratios,
    }


def make_table(uri: str, partitions: int) -> None:
    """Create ``default.empty``, with partitions ``ds=0`` and on."""
    create_table(uri, f"default.{TABLE}", COLUMNS, "ds string" if partitions else "", "id", 4)
    if partitions:
        with open_client(uri) as metastore:
            metastore.add_partitions("default", TABLE, [(str(number),) for number in range(partitions)])


def client_of(metastore: MetastoreClient) -> MutatorClient:
    """A client, not connected yet, that may write the table."""
    builder = MutatorClientBuilder().metastore(metastore).lock_failure_listener(PrintLoss())
    return builder.add_sink_table("default", TABLE, create_partitions=True).build()


def our_transactions(client: MutatorClient, count: int) -> None:
    """Transactions of ours, one after the other; each looks at its snapshot."""
    for _ in range(count):
        with client.new_transaction() as transaction:
            transaction.valid_ids(f"default.{TABLE}")


def bare_transactions(metastore: MetastoreClient, count: int) -> None:
    """The calls that no transaction on a locked table can do without.

    Raises RuntimeError if a lock is not granted, as it must be without other clients.
    """
    for _ in range(count):
        txn_id = metastore.open_txn("bench", "localhost", "bare calls")
        component = LockComponent(
            type=LockType.SHARED_WRITE,
            level=LockLevel.TABLE,
            database="default",
            table=TABLE,
            partition=None,
            operation=DataOperationType.UPDATE,
            is_transactional=True,
            is_dynamic_partition_write=False,
        )
        response = metastore.lock(LockRequest((component,), txn_id, "bench", "localhost", "bare calls"))
        if response.state is not LockState.ACQUIRED:
            raise RuntimeError(f"lock {response.lock_id} of transaction {txn_id}: {response.state.name}")
        metastore.get_open_txns()
        metastore.commit_txn(txn_id)


def last_transaction(client: MutatorClient, metastore: CountedMetastore) -> list[Call]:
    """Calls of another transaction of ours."""
    before = len(metastore.calls)
    our_transactions(client, 1)
    return metastore.calls[before:]


def last_bare(metastore: CountedMetastore) -> list[Call]:
    """Calls of another bare transaction."""
    before = len(metastore.calls)
    bare_transactions(metastore, 1)
    return metastore.calls[before:]


def counts(calls: Sequence[Call]) -> str:
    """The number of calls, and how often each was made."""
    found = Counter(call.name for call in calls)
    return f"{len(calls)} ({', '.join(f'{n} {name}' if n > 1 else name for name, n in found.items())})"
