"""The cases of delta-rs' own benchmark of merges, beside delta-rs.

    python -m benchmarks merge_suite             # 71,763 rows, the size of the suite
    python -m benchmarks merge_suite --quick     # one round
    python -m benchmarks merge_suite --rows 1000000

The table has the 24 columns of ``web_returns`` of TPC-DS and random values. A case merges a sample of its
rows, and rows with other keys, by item and order: inserts with one clause or two, deletes, or upserts. Each
round begins with new tables. The metastore is that of Hive 4.1; reading the changes from their Parquet file
and the commit count.

Source: the cases in ``crates/benchmarks`` of delta-rs, which come from Delta's benchmark for Spark. There,
the share of files with matched rows is a part of their names only: samples are drawn from all rows.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.data.suite_clauses import (
    DELETE,
    INSERT,
    INSERT_TWICE,
    ITEM,
    ORDER,
    UPSERT,
    add_clauses,
)
from benchmarks.feed import DELTA, KINDS, Stage
from benchmarks.measuring.arguments import Rounds, add_case_arguments
from benchmarks.measuring.measure import Contestant
from benchmarks.measuring.report import finish
from benchmarks.peers import PeerProcess
from mutation_api import Hive

HELP = "the cases of delta-rs' benchmark of merges"

ROWS_DEFAULT = 71_763
"""Of ``web_returns`` at scale factor 1."""
BUCKETS = 4
ROUNDS = Rounds(5, warm_up=1)
OURS = "ours-local"
AIM = 0.5
NUMBERS = (
    *("wr_returned_date_sk", "wr_returned_time_sk", ITEM, "wr_refunded_customer_sk", "wr_refunded_cdemo_sk"),
    *("wr_refunded_hdemo_sk", "wr_refunded_addr_sk", "wr_returning_customer_sk", "wr_returning_cdemo_sk"),
    *("wr_returning_hdemo_sk", "wr_returning_addr_sk", "wr_web_page_sk", "wr_reason_sk", ORDER),
    "wr_return_quantity",
)
AMOUNTS = (
    *("wr_return_amt", "wr_return_tax", "wr_return_amt_inc_tax", "wr_fee", "wr_return_ship_cost"),
    *("wr_refunded_cash", "wr_reversed_charge", "wr_account_credit", "wr_net_loss"),
)
COLUMNS = ", ".join([*(f"{name} int" for name in NUMBERS), *(f"{name} decimal(7,2)" for name in AMOUNTS)])
RESULTS = Path(__file__).parent / "results" / "merge_suite.json"
_SEED = 20_261_201


@dataclass(frozen=True)
class Case:
    """A merge: its clauses, and the shares of the rows that match and that do not."""

    clauses: str
    matched: float
    not_matched: float

    @property
    def name(self) -> str:
        """Its name."""
        return f"{self.clauses}, {self.matched:.1%} of the rows matched, {self.not_matched:.1%} not"


_UPSERTS = (
    (0, 0.1),
    (0.01, 0.1),
    (0.1, 0.1),
    (0.5, 0.001),
    (0.99, 0.001),
    (1, 0.001),
    (0.1, 0),
    (0.01, 0.001),
)
CASES = (
    *(Case(clauses, 0, share) for clauses in (INSERT, INSERT_TWICE) for share in (0.05, 0.5, 1)),
    Case(DELETE, 0.05, 0),
    *(Case(UPSERT, matched, not_matched) for matched, not_matched in _UPSERTS),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_case_arguments(parser, ROUNDS, rows=ROWS_DEFAULT, quick="one round")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if both have the same number of rows after each case."""
    rows = arguments.rows or ROWS_DEFAULT
    rounds = ROUNDS.measured_of(arguments), ROUNDS.warm_up_of(arguments)
    base = web_returns(rows, 0)
    with Stage.opened(1, rounds) as stage:
        peer = stage.stack.enter_context(PeerProcess("delta"))
        stage.kinds[peer.pid] = DELTA
        (stage.folder / "base").mkdir()
        pq.write_table(base, stage.folder / "base" / "part.parquet")
        cases = [merge_case(stage, peer, base, number, case) for number, case in enumerate(CASES)]
    results = RESULTS if arguments.save else None
    return finish(cases, results, title="The merges of delta-rs' suite", packages=("pyarrow", "deltalake"))


def web_returns(rows: int, first: int) -> pa.Table:
    """Rows whose keys no other rows have if ``first``, the number of the first one, differs enough."""
    rng = np.random.default_rng([_SEED, first])
    columns = {name: pa.array(rng.integers(0, 100_000, rows).astype(np.int32)) for name in NUMBERS}
    columns[ORDER] = pa.array(np.arange(first, first + rows).astype(np.int32))
    cents = (pa.array(rng.integers(0, 1_000_000, rows)).cast(pa.decimal128(19, 0)) for _ in AMOUNTS)
    hundredth = pa.scalar(Decimal("0.01"), pa.decimal128(3, 2))
    amounts = [pc.multiply(each, hundredth).cast(pa.decimal128(7, 2)) for each in cents]
    return pa.table({**columns, **dict(zip(AMOUNTS, amounts, strict=True))})


def changes_of(base: pa.Table, case: Case) -> pa.Table:
    """A sample of the rows with other values, and rows with keys that the table does not have."""
    rng = np.random.default_rng(_SEED)
    count, new = round(base.num_rows * case.matched), round(base.num_rows * case.not_matched)
    old = base.take(np.sort(rng.choice(base.num_rows, count, replace=False)))
    old = old.set_column(0, old.schema.field(0), pc.add(old.column(0), pa.scalar(1, pa.int32())))
    return pa.concat_tables([old, web_returns(new, 10 * base.num_rows)])


def merge_case(stage: Stage, peer: PeerProcess, base: pa.Table, number: int, case: Case) -> dict[str, Any]:
    """Measure one merge into new tables of each round."""
    changes = stage.folder / f"changes-{number}.parquet"
    pq.write_table(changes_of(base, case), changes)

    def name(at: int) -> str:
        return f"feed.suite_{number}_{at}"

    def folder(at: int) -> str:
        return str(stage.folder / f"delta_{number}_{at}")

    def prepare(at: int) -> None:
        table = stage.hive.create_table(name(at), COLUMNS, clustered_by=[ORDER], num_buckets=BUCKETS)
        table.append(base)

    found = stage.compared(
        case.name,
        f"{base.num_rows:,} rows of 24 columns.",
        AIM,
        Contestant(
            OURS, lambda at: merge(stage.hive, name(at), changes, case.clauses), KINDS, stage.folder, prepare
        ),
        Contestant(
            DELTA,
            lambda at: peer.call("merge_suite", folder(at), str(changes), case.clauses),
            (DELTA,),
            stage.folder,
            lambda at: peer.call("load", folder(at), str(stage.folder / "base")),
        ),
    )
    last = sum(stage.rounds) - 1
    is_right = stage.hive.table(name(last)).scan().count() == peer.call("count", folder(last))
    return {**found, "is_right": found["is_right"] and is_right}


def merge(hive: Hive, table: str, changes: Path, clauses: str) -> None:
    """Merge a file by one of the sets of clauses."""
    with hive.transaction(table) as transaction:
        found = transaction.table(table).merge(pq.read_table(changes), on=[ITEM, ORDER])
        add_clauses(found, clauses)
        found.execute()
