"""The verbs of a table, without Spark, each beside what it should not be slower than by much.

    python -m benchmarks verbs               # 10,000,000 rows
    python -m benchmarks verbs --quick       # 1,000,000

* Overwrite a table of N rows by N/10 rows, beside an append of these to such a table, and beside a delete of
  all rows and the append in one transaction.
* Delete one row by its key, beside delta-rs' delete with the same condition.
* Update one column of 1 % of the rows by a condition, beside the merge of the same new values by key.
* Add 1 % of changes to a history (``track``), beside the merge of the same rows into the same table.

The metastore is that of Hive 4.1, on which an overwrite is a base. All are whole transactions; the changes
are in memory. Tables have 8 buckets by key and begin with the same files. The rows are counted afterwards,
by Hive as well in a quick run.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data.merge_data import COLUMNS, base_batches, scrambled, with_values
from benchmarks.measuring.arguments import Rounds, add_case_arguments
from benchmarks.measuring.local_metastore import METASTORE
from benchmarks.measuring.measure import (
    Contestant,
    Watch,
    beside_baseline,
)
from benchmarks.measuring.report import finish
from benchmarks.merging.merge_tables import BUCKETS, linked_copy
from benchmarks.peers import PeerProcess
from judges.hive.hive_judges import Hive41
from mutation_api import Hive, HiveTable, connect

HELP = "overwrite, delete, update and track, each beside its baseline"

ROWS_DEFAULT = 10_000_000
QUICK_ROWS = 1_000_000
ROUNDS = Rounds(5, warm_up=2)
CHANGED_PART = 100
"""An update and a history change 1/CHANGED_PART of the rows."""
NEW_PART = 10
OVERWRITE_AIM, DELETE_AIM, UPDATE_AIM, TRACK_AIM = 1.1, 1.2, 1.0, 1.5
KINDS = ("driver", METASTORE)
DELTA = "delta-rs"
RESULTS = Path(__file__).parent / "results" / "verbs.json"

HISTORY_COLUMNS = f"{COLUMNS}, valid_from timestamp, valid_to timestamp"
LOADED, CHANGED = datetime(2024, 1, 1), datetime(2025, 1, 1)
QUANTITIES = 100_000
"""Quantities are evenly spread below this."""

_SEED = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_case_arguments(
        parser, ROUNDS, rows=ROWS_DEFAULT, quick=f"{QUICK_ROWS:,} rows; Hive counts them", cases=CASES
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all tables hold what they should."""
    rows = arguments.rows or (QUICK_ROWS if arguments.quick else ROWS_DEFAULT)
    rounds = ROUNDS.measured_of(arguments), ROUNDS.warm_up_of(arguments)
    with Stage.opened(rows, rounds, is_judged=arguments.quick) as stage:
        cases = [CASES[name](stage) for name in arguments.only or CASES]
    return finish(
        cases, RESULTS if arguments.save else None, title="Verbs", packages=("pyarrow", "deltalake")
    )


@dataclass
class Stage:
    """A metastore with its Hive, a connection, and tables whose files are links to those of a loaded one."""

    rows: int
    rounds: tuple[int, int]
    is_judged: bool
    folder: Path
    judge: Hive41
    hive: Hive
    kinds: dict[int, str]
    stack: contextlib.ExitStack
    _kept: dict[str, Path] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, rows: int, rounds: tuple[int, int], *, is_judged: bool) -> Iterator[Stage]:
        """Start all of it."""
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            judge = stack.enter_context(Hive41(folder / "hive"))
            judge.sql("create database verbs")
            hive = stack.enter_context(connect(judge.uri))
            yield cls(rows, rounds, is_judged, folder, judge, hive, {judge.pid: METASTORE}, stack)

    def base(self) -> Iterator[pa.Table]:
        """The rows of the tables, in chunks."""
        return base_batches(self.rows)

    def new_table(self, columns: str = COLUMNS) -> str:
        """Create a table with the rows; its columns after those of the base are NULL, or LOADED."""
        name = f"verbs.t{next(self._numbers)}"
        table = self.hive.create_table(name, columns, clustered_by=["id"], num_buckets=BUCKETS)
        first = next(self.base()).slice(0, 1)
        if columns not in self._kept:
            table.append(pa.concat_tables(_with_interval(each, columns) for each in self.base()))
            self._kept[columns] = self.folder / f"kept-{len(self._kept)}"
            linked_copy(self.delta(name), self._kept[columns])
            return name
        table.append(_with_interval(first, columns))  # takes the write id of the files that replace its own
        delta = self.delta(name)
        shutil.rmtree(delta)
        linked_copy(self._kept[columns], delta)
        return name

    def delta(self, name: str) -> Path:
        """The only delta of a table."""
        location = self.hive.metastore.get_table(*name.split(".")).location
        (found,) = Path(location.removeprefix("file:")).glob("delta_*")
        return found

    def count(self, name: str) -> int:
        """Rows of a table; Hive must agree in a quick run."""
        with self.hive.snapshot(name) as view:
            found = view.table(name).scan().count()
        if self.is_judged:
            ((counted,),) = self.judge.sql(f"select count(*) from {name}")
            assert int(str(counted)) == found, (name, counted, found)
        return found

    def compared(
        self, label: str, text: str, aim: float, contestants: Sequence[Contestant]
    ) -> dict[str, Any]:
        """A case; the last contestant is the baseline, and the first one has the aim."""
        case = beside_baseline(label, text, contestants, self.rounds, Watch(self.kinds))
        aims = {f"{contestants[0].name} / {contestants[-1].name}": {"wall": aim}}
        return {**case, "aims": aims}


@dataclass
class Verb:
    """One verb on a new table in each round, or always on the same table.

    Attributes:
        stage: the stage.
        name: of the contestant.
        act: the verb; gets the table in a transaction, and the number of the round.
        columns: of the table.
        renewed: True for a new table in each round.
    """

    stage: Stage
    name: str
    act: Callable[[HiveTable, int], object]
    columns: str = COLUMNS
    renewed: bool = True
    table: str = ""

    def contestant(self) -> Contestant:
        """It, for :func:`alternate`."""
        return Contestant(self.name, self._run, KINDS, self.stage.folder / "hive", self._prepare)

    def _prepare(self, number: int) -> None:
        if self.renewed or not self.table:
            self.table = self.stage.new_table(self.columns)

    def _run(self, number: int) -> None:
        with self.stage.hive.transaction(self.table) as transaction:
            self.act(transaction.table(self.table), number)


def overwrite_case(stage: Stage) -> dict[str, Any]:
    """Replace all rows by a tenth as many."""
    count = stage.rows // NEW_PART
    new = with_values(np.arange(stage.rows, stage.rows + count), np.random.default_rng(_SEED))

    def delete_and_append(table: HiveTable, number: int) -> None:
        table.delete(where="id is not null")
        table.append(new)

    verbs = [
        Verb(stage, "overwrite", lambda table, _: table.overwrite(new)),
        Verb(stage, "delete and append", delete_and_append),
        Verb(stage, "append", lambda table, _: table.append(new)),
    ]
    case = stage.compared(
        f"overwrite {stage.rows:,} rows by {count:,}",
        "Beside an append of the new rows to the same table.",
        OVERWRITE_AIM,
        [each.contestant() for each in verbs],
    )
    counts = [stage.count(each.table) for each in verbs]
    return {**case, "is_right": case["is_right"] and counts == [count, count, stage.rows + count]}


def delete_case(stage: Stage) -> dict[str, Any]:
    """Delete one row by its key, in turn with delta-rs."""
    keys = scrambled(np.arange(sum(stage.rounds)) * 97)
    peer = stage.stack.enter_context(PeerProcess("delta"))
    stage.kinds[peer.pid] = DELTA
    parquet, folder = stage.folder / "base", stage.folder / "delta"
    parquet.mkdir()
    for number, part in enumerate(stage.base()):
        pq.write_table(part, parquet / f"part-{number:05d}.parquet")
    peer.call("load", str(folder), str(parquet))
    ours = Verb(stage, "delete", lambda table, n: table.delete(where=f"id = {keys[n]}"), renewed=False)
    theirs = Contestant(
        DELTA, lambda n: peer.call("delete", str(folder), f"id = {keys[n]}"), (DELTA,), folder
    )
    case = stage.compared(
        f"delete one of {stage.rows:,} rows",
        "By a condition on its key.",
        DELETE_AIM,
        [ours.contestant(), theirs],
    )
    left = stage.rows - sum(stage.rounds)
    is_right = stage.count(ours.table) == left == peer.call("count", str(folder))
    return {**case, "is_right": case["is_right"] and is_right}


def update_case(stage: Stage) -> dict[str, Any]:
    """Update 1 % of the rows by a condition, beside the merge of the same values."""
    limit = QUANTITIES // CHANGED_PART
    rows = pa.concat_tables(each.filter(_below(each, limit)) for each in stage.base())
    quantities = pa.array(rows["quantity"].to_numpy() + np.int32(QUANTITIES))
    new = pa.table({"id": rows["id"], "quantity": quantities})
    verbs = [
        Verb(
            stage,
            "update",
            lambda table, _: table.update(
                set={"quantity": f"quantity + {QUANTITIES}"}, where=f"quantity < {limit}"
            ),
        ),
        Verb(
            stage,
            "merge",
            lambda table, _: table.merge(new, on=["id"]).when_matched_update_all().execute(),
        ),
    ]
    case = stage.compared(
        f"update {rows.num_rows:,} of {stage.rows:,} rows",
        "By a condition on another column, beside the merge of the same new values by key.",
        UPDATE_AIM,
        [each.contestant() for each in verbs],
    )
    counts = [stage.count(each.table) for each in verbs]
    return {**case, "is_right": case["is_right"] and counts == [stage.rows] * 2}


def track_case(stage: Stage) -> dict[str, Any]:
    """Add changes of 1 % of the keys to a history, beside a merge of them."""
    count = stage.rows // CHANGED_PART
    generator = np.random.default_rng(_SEED)
    changed = with_values(generator.choice(stage.rows, count, replace=False).astype(np.int64), generator)
    times = pa.array([CHANGED] * count, pa.timestamp("us"))
    changes = changed.append_column("updated_at", times)
    whole = changed.append_column("valid_from", times).append_column("valid_to", pa.nulls(count, times.type))
    verbs = [
        Verb(
            stage,
            "track",
            lambda table, _: table.track(changes, key=["id"], sequence="updated_at"),
            HISTORY_COLUMNS,
        ),
        Verb(stage, "merge", lambda table, _: table.upsert(whole, on=["id"]), HISTORY_COLUMNS),
    ]
    case = stage.compared(
        f"history: {count:,} changes of {stage.rows:,} keys",
        "Each ends a version and begins another; the merge updates as many rows.",
        TRACK_AIM,
        [each.contestant() for each in verbs],
    )
    counts = [stage.count(each.table) for each in verbs]
    return {**case, "is_right": case["is_right"] and counts == [stage.rows + count, stage.rows]}


CASES: dict[str, Callable[[Stage], dict[str, Any]]] = {
    "overwrite": overwrite_case,
    "delete": delete_case,
    "update": update_case,
    "track": track_case,
}


def _with_interval(rows: pa.Table, columns: str) -> pa.Table:
    if columns == COLUMNS:
        return rows
    times = pa.array(np.full(rows.num_rows, np.datetime64(LOADED, "us")))
    return rows.append_column("valid_from", times).append_column("valid_to", pa.nulls(len(times), times.type))


def _below(rows: pa.Table, limit: int) -> pa.Array:
    return pa.array(rows["quantity"].to_numpy() < limit)
