"""Exports to Delta Lake and Iceberg: the first copy, and changes of 1 % of the rows.

    python -m benchmarks export                # 10,000,000 rows
    python -m benchmarks export --quick        # 1,000,000
    python -m benchmarks export --rows 100000

* The first copy to Delta and to Iceberg, beside pyarrow, which writes the same rows from memory to one file.
* Changes of 1 % of the rows all over the table (updates, deletes, inserts), beside delta-rs, which merges the
  same changes by key into a table of its own. All buckets have such changes, so all files are replaced.
* Changes of 1 % of the rows in one of a hundred partitions, beside the same.
* Inserts of 1 % of the rows.

The metastore is that of Hive 4.1. Each round begins with the same target, whose files are links.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.data.merge_data import COLUMNS, base_batches
from benchmarks.feed import KINDS, QUICK_ROWS, ROWS_DEFAULT, TABLE, Stage, run_cases
from benchmarks.measuring.arguments import Rounds, add_case_arguments
from benchmarks.measuring.measure import Contestant
from benchmarks.measuring.report import finish
from mutation_api.cdc import Export

HELP = "exports to Delta Lake and Iceberg, beside pyarrow and delta-rs"

ROUNDS = Rounds(3, warm_up=1)
CHANGED_PART = 100
COPY_AIM = 1.3
PARTS = 100
TO_DELTA, TO_ICEBERG, PYARROW, DELTA = "export to Delta", "export to Iceberg", "pyarrow", "delta-rs"
PARTITIONED = "feed.parts"
RESULTS = Path(__file__).parent / "results" / "export.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_case_arguments(
        parser, ROUNDS, rows=ROWS_DEFAULT, quick=f"{QUICK_ROWS:,} rows, one round", cases=CASES
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all targets have the rows that they should have."""
    cases = run_cases(arguments, ROUNDS, CASES)
    packages = ("pyarrow", "deltalake", "pyiceberg")
    return finish(cases, RESULTS if arguments.save else None, title="Export", packages=packages)


class _Copies:
    """Targets of one table in a folder that can be set back."""

    def __init__(self, stage: Stage, table: str = TABLE) -> None:
        self.stage, self.table = stage, table
        self.folder, self._kept = stage.folder / "lake", stage.folder / "kept"

    def delta(self, name: str = "delta") -> Export:
        """An export to Delta."""
        return Export(self.stage.hive, self.table, to=f"delta:{self.folder}/{name}")

    def iceberg(self, number: int) -> Export:
        """An export to a new table of Iceberg."""
        options = {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/iceberg",
        }
        return Export(self.stage.hive, self.table, to=f"iceberg:lake.copies.t{number}", options=options)

    def keep(self) -> None:
        """Keep the targets as they are now."""
        self.folder.rename(self._kept)

    def set_back(self, _: int = 0) -> None:
        """Set the targets back to what was kept."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._kept, self.folder, copy_function=os.link)

    def clear(self, _: int = 0) -> None:
        """Remove the targets."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()


def copy_case(stage: Stage) -> dict[str, Any]:
    """The first copy."""
    copies = _Copies(stage)
    with stage.hive.snapshot(TABLE) as view:
        rows = view.table(TABLE).scan().to_arrow()

    def plain(number: int) -> None:
        pq.write_table(rows, copies.folder / f"{number}.parquet")

    case = stage.compared(
        f"first copy of {stage.rows:,} rows",
        "Beside pyarrow, which has the rows in memory and writes one Parquet file.",
        COPY_AIM,
        Contestant(TO_DELTA, lambda _: copies.delta().run(), KINDS, copies.folder, copies.clear),
        Contestant(TO_ICEBERG, lambda n: copies.iceberg(n).run(), KINDS, copies.folder, copies.clear),
        Contestant(PYARROW, plain, KINDS, copies.folder, copies.clear),
    )
    copies.clear()
    export = copies.delta()
    export.run()
    return {**case, "is_right": case["is_right"] and export.verify().is_equal}


def changed_case(stage: Stage) -> dict[str, Any]:
    """Changes all over the table."""
    copies = _Copies(stage)
    copies.delta().run()
    copies.keep()
    changes = stage.merge(stage.rows // CHANGED_PART)
    return _changed(stage, copies, changes, "all over the table")


def partition_case(stage: Stage) -> dict[str, Any]:
    """Changes in one partition."""
    size = -(-stage.rows // PARTS)
    table = stage.hive.create_table(
        PARTITIONED, f"{COLUMNS}, p int", partitioned_by=["p"], clustered_by=["id"], num_buckets=2
    )
    rows = pa.concat_tables(base_batches(stage.rows))
    parts = pa.array([at // size for at in range(stage.rows)], pa.int32())
    with stage.hive.transaction(PARTITIONED, create_partitions=True) as tx:
        tx.table(PARTITIONED).append(rows.append_column("p", parts))
    copies = _Copies(stage, PARTITIONED)
    copies.delta().run()
    copies.keep()
    table.update(set={"quantity": "quantity + 1"}, where="p = 7")
    case = stage.compared(
        f"updates of {size:,} of {stage.rows:,} rows in one of {PARTS} partitions",
        "Beside pyarrow, which has these rows in memory and writes one Parquet file.",
        1.0,
        Contestant(TO_DELTA, lambda _: copies.delta().run(), KINDS, copies.folder, copies.set_back),
        Contestant(
            PYARROW,
            lambda n: pq.write_table(rows.slice(7 * size, size), copies.folder / f"{n}.parquet"),
            KINDS,
            copies.folder,
            copies.set_back,
        ),
    )
    return {**case, "is_right": case["is_right"] and _is_right(copies)}


def inserted_case(stage: Stage) -> dict[str, Any]:
    """Inserts."""
    copies = _Copies(stage)
    copies.delta().run()
    copies.keep()
    rows = next(base_batches(stage.rows // CHANGED_PART))
    new = rows.set_column(0, "id", pc.add(rows["id"], 1 << 40))
    stage.hive.table(TABLE).append(new)
    case = stage.compared(
        f"{new.num_rows:,} inserts into {stage.rows:,} rows",
        "Beside pyarrow, which has these rows in memory and writes one Parquet file.",
        1.0,
        Contestant(TO_DELTA, lambda _: copies.delta().run(), KINDS, copies.folder, copies.set_back),
        Contestant(
            PYARROW,
            lambda n: pq.write_table(new, copies.folder / f"{n}.parquet"),
            KINDS,
            copies.folder,
            copies.set_back,
        ),
    )
    return {**case, "is_right": case["is_right"] and _is_right(copies)}


def _changed(stage: Stage, copies: _Copies, changes: Path, where: str) -> dict[str, Any]:
    peer = stage.delta(changes)
    base = stage.folder / "base"
    own = stage.folder / "delta"

    def load(_: int) -> None:
        shutil.rmtree(own, ignore_errors=True)
        peer.call("load", str(own), str(base))

    case = stage.compared(
        f"{stage.rows // CHANGED_PART:,} changes {where} of {stage.rows:,} rows",
        "Beside delta-rs, which merges the same changes by key into a table of its own.",
        1.0,
        Contestant(TO_DELTA, lambda _: copies.delta().run(), KINDS, copies.folder, copies.set_back),
        Contestant(DELTA, lambda _: peer.call("merge", str(own), str(changes)), (DELTA,), own, load),
    )
    return {**case, "is_right": case["is_right"] and _is_right(copies)}


def _is_right(copies: _Copies) -> bool:
    copies.set_back()
    export = copies.delta()
    export.run()
    return export.verify().is_equal


CASES: dict[str, Callable[[Stage], dict[str, Any]]] = {
    "copy": copy_case,
    "changed": changed_case,
    "partition": partition_case,
    "inserted": inserted_case,
}
