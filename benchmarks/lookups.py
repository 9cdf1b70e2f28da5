"""Reads that need little of a table: rows of one key, a range of keys, the number of rows.

    python -m benchmarks lookups                # 10,000,000 rows
    python -m benchmarks lookups --quick        # 1,000,000

* The rows of one key, and those of a range of 5 % of the keys, with all columns, beside Polars'
  ``scan_delta`` on the same rows, as delta-rs wrote them.
* The same range beside a scan of the whole table.
* The number of rows, beside ``scan_delta``.
* The rows of a hundred values of a column without order, one after the other and all at once, with Bloom
  filters of this column beside the same rows without.

The rows were written in the order of the key, the Hive table in eight buckets. A snapshot is open, and
delta-rs has its table open too. The metastore is that of Hive 4.1.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.data.merge_data import COLUMNS, base_batches
from benchmarks.feed import QUICK_ROWS, ROWS_DEFAULT, TABLE, Stage, bytes_read
from benchmarks.measuring.arguments import Rounds, add_case_arguments
from benchmarks.measuring.local_metastore import METASTORE
from benchmarks.measuring.measure import Contestant
from benchmarks.measuring.report import finish
from benchmarks.merging.merge_tables import BUCKETS
from benchmarks.peers import PeerProcess
from mutation_api import HiveSnapshot, TableScan

HELP = "rows of a key or a range of keys, and their number, beside Polars on a Delta table"

ROUNDS = Rounds(7, warm_up=2)
READS = 20
"""A round reads so many times, since one time is too short to measure."""
SCAN, DELTA, WHOLE, WITHOUT = "scan", "scan_delta", "whole table", "without filters"
FILTERED = "feed.filtered"
FILTERS = {"orc.bloom.filter.columns": "acct", "orc.bloom.filter.fpp": "0.001"}
SOUGHT = 100
PARTS = 20
KINDS = ("driver", METASTORE)
RESULTS = Path(__file__).parent / "results" / "lookups.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_case_arguments(parser, ROUNDS, rows=ROWS_DEFAULT, quick=f"{QUICK_ROWS:,} rows, one round")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all contestants found the same rows."""
    rows = arguments.rows or (QUICK_ROWS if arguments.quick else ROWS_DEFAULT)
    rounds = ROUNDS.measured_of(arguments), ROUNDS.warm_up_of(arguments)
    data = pa.concat_tables(base_batches(rows)).sort_by("id")
    with Stage.opened(rows, rounds, data) as stage:
        cases = _Cases(stage, data).all()
    path = RESULTS if arguments.save else None
    return finish(cases, path, title="Lookups", packages=("pyarrow", "deltalake", "polars"))


class _Cases:
    """The cases, on a table and the same rows as a Delta table."""

    def __init__(self, stage: Stage, data: pa.Table) -> None:
        self._stage = stage
        self._data = data
        self._peer = stage.stack.enter_context(PeerProcess("delta"))
        stage.kinds[self._peer.pid] = DELTA
        self._ids = data.column("id")
        (stage.folder / "base").mkdir()
        pq.write_table(data, stage.folder / "base" / "rows.parquet")
        self._delta = str(stage.folder / "delta")
        self._peer.call("load", self._delta, str(stage.folder / "base"))
        self._view = stage.stack.enter_context(stage.hive.snapshot(TABLE))

    def all(self) -> list[dict[str, Any]]:
        """Run all cases."""
        middle = self._id(self._stage.rows // 2)
        end = self._id(self._stage.rows // 2 + self._stage.rows // PARTS) - 1
        return [
            self._beside_delta("one key", middle, middle, 1.0, READS),
            self._beside_delta("5 % of the keys", middle, end, 1.0, READS),
            self._beside_whole(middle, end),
            self._count(),
            *self._filtered(),
        ]

    def _id(self, number: int) -> int:
        return int(self._ids[number].as_py())

    def _scan(self, low: int, high: int) -> TableScan:
        where = pc.field("id") == low if low == high else (pc.field("id") >= low) & (pc.field("id") <= high)
        return self._view.table(TABLE).scan(where=where)

    def _beside_delta(self, label: str, low: int, high: int, aim: float, times: int) -> dict[str, Any]:
        before, scan = bytes_read(), self._scan(low, high)
        explained = scan.explain()
        scan.to_arrow()
        text = (
            f"{times} times. The scan reads {(bytes_read() - before) / 1e6:,.2f} MB of "
            f"{explained.byte_count / 1e6:,.0f}, from {explained.stripes_read} of {explained.stripe_count} "
            "stripes."
        )
        return self._compared(
            label,
            text,
            aim,
            lambda: [self._scan(low, high).to_arrow().num_rows for _ in range(times)][-1],
            (DELTA, lambda: [self._peer.call("rows_of", self._delta, low, high) for _ in range(times)][-1]),
        )

    def _beside_whole(self, low: int, high: int) -> dict[str, Any]:
        scan = self._view.table(TABLE).scan()
        part = self._stage.rows // PARTS
        return self._compared(
            "5 % of the keys, beside the whole table",
            "Into memory.",
            0.15,
            lambda: self._scan(low, high).to_arrow().num_rows,
            (WHOLE, lambda: part if len(scan.to_arrow()) == self._stage.rows else 0),
        )

    def _count(self) -> dict[str, Any]:
        scan = self._view.table(TABLE).scan()
        return self._compared(
            "number of rows",
            f"{READS} times.",
            1.0,
            lambda: [scan.count() for _ in range(READS)][-1],
            (DELTA, lambda: [self._peer.call("count_rows", self._delta) for _ in range(READS)][-1]),
        )

    def _filtered(self) -> list[dict[str, Any]]:
        hive, stage = self._stage.hive, self._stage
        table = hive.create_table(
            FILTERED, COLUMNS, clustered_by=["id"], num_buckets=BUCKETS, properties=FILTERS
        )
        table.append(self._data)
        view = stage.stack.enter_context(hive.snapshot(FILTERED))
        rng = np.random.default_rng(1)
        places = rng.choice(stage.rows, SOUGHT, replace=False)
        values = self._data.column("acct").take(places).combine_chunks()

        def rows(of: HiveSnapshot, name: str, *, at_once: bool) -> int:
            parts = [values] if at_once else [values[at : at + 1] for at in range(SOUGHT)]
            scans = (of.table(name).scan(where=pc.field("acct").isin(part)) for part in parts)
            return sum(scan.to_arrow().num_rows for scan in scans)

        def case(label: str, *, at_once: bool) -> dict[str, Any]:
            theirs = functools.partial(rows, self._view, TABLE, at_once=at_once)
            ours = functools.partial(rows, view, FILTERED, at_once=at_once)
            return self._compared(label, "The column has no order.", 0.5, ours, (WITHOUT, theirs))

        return [
            case(f"{SOUGHT} keys, one by one, with Bloom filters", at_once=False),
            case(f"{SOUGHT} keys at once, with Bloom filters", at_once=True),
        ]

    def _compared(
        self, label: str, text: str, aim: float, ours: Callable[[], int], other: tuple[str, Callable[[], int]]
    ) -> dict[str, Any]:
        name, theirs = other
        found: dict[str, int] = {}
        kinds = (DELTA,) if name == DELTA else KINDS
        case = self._stage.compared(
            f"{label} of {self._stage.rows:,} rows",
            text,
            aim,
            Contestant(SCAN, lambda _: found.update({SCAN: ours()}), KINDS, self._stage.folder / "hive"),
            Contestant(name, lambda _: found.update({name: theirs()}), kinds, self._stage.folder / "delta"),
        )
        return {**case, "is_right": case["is_right"] and len({*found.values()}) == 1}
