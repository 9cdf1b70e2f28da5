"""Small merges, again and again: the first and the ninth into a table, beside delta-rs.

    python -m benchmarks repeated_merges             # nine merges of 2,000 rows into 1,000,000
    python -m benchmarks repeated_merges --quick     # one round

Half of the rows of a merge are updates, a fifth deletes, the rest inserts, at random keys. Each round begins
with new tables of the same rows. Before the ninth merge, eight others leave their files, and nothing is
compacted; these are not measured. The metastore is that of Hive 4.1; reading the changes from their Parquet
file and the commit count.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.data.merge_data import COLUMNS, ChangeSets, base_batches, write_base
from benchmarks.feed import DELTA, KINDS, Stage, merge_file
from benchmarks.measuring.arguments import Rounds, add_case_arguments
from benchmarks.measuring.measure import Contestant
from benchmarks.measuring.report import finish
from benchmarks.merging.merge_tables import BUCKETS
from benchmarks.peers import PeerProcess

HELP = "small merges into a table with the files of earlier ones, beside delta-rs"

ROWS_DEFAULT = 1_000_000
CHANGES = 2_000
MERGES = 9
ROUNDS = Rounds(7, warm_up=2)
OURS = "ours-local"
AIMS = {1: 0.5, MERGES: 0.6}
NAMES = {1: "first", MERGES: "ninth"}
RESULTS = Path(__file__).parent / "results" / "repeated_merges.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_case_arguments(parser, ROUNDS, rows=ROWS_DEFAULT, quick="one round")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if both have the same number of rows after each round."""
    rows = arguments.rows or ROWS_DEFAULT
    rounds = ROUNDS.measured_of(arguments), ROUNDS.warm_up_of(arguments)
    with Stage.opened(rows, rounds) as stage:
        peer = stage.stack.enter_context(PeerProcess("delta"))
        stage.kinds[peer.pid] = DELTA
        write_base(rows, stage.folder / "base")
        sets = ChangeSets(rows, CHANGES, MERGES, stage.folder / "changes")
        sets.write()
        cases = [merge_case(stage, peer, sets, number) for number in AIMS]
    results = RESULTS if arguments.save else None
    return finish(cases, results, title="Small merges in a row", packages=("pyarrow", "deltalake"))


def merge_case(stage: Stage, peer: PeerProcess, sets: ChangeSets, number: int) -> dict[str, Any]:
    """Measure one merge, after all that precede it, in new tables of each round."""

    def name(at: int) -> str:
        return f"feed.merged_{number}_{at}"

    def folder(at: int) -> str:
        return str(stage.folder / f"delta_{number}_{at}")

    def merge(at: int, changes: int) -> None:
        merge_file(stage.hive, name(at), sets.path(changes))

    def prepare(at: int) -> None:
        table = stage.hive.create_table(name(at), COLUMNS, clustered_by=["id"], num_buckets=BUCKETS)
        table.append(pa.concat_tables(base_batches(stage.rows)))
        for earlier in range(number - 1):
            merge(at, earlier)

    def prepare_theirs(at: int) -> None:
        peer.call("load", folder(at), str(stage.folder / "base"))
        for earlier in range(number - 1):
            peer.call("merge", folder(at), str(sets.path(earlier)))

    def ours(at: int) -> None:
        merge(at, number - 1)

    def theirs(at: int) -> None:
        peer.call("merge", folder(at), str(sets.path(number - 1)))

    case = stage.compared(
        f"the {NAMES[number]} merge of {CHANGES:,} rows into {stage.rows:,}",
        f"{number - 1} merges left their files.",
        AIMS[number],
        Contestant(OURS, ours, KINDS, stage.folder / "hive", prepare),
        Contestant(DELTA, theirs, (DELTA,), stage.folder, prepare_theirs),
    )
    with stage.hive.snapshot(name(0)) as view:
        is_right = view.table(name(0)).scan().count() == peer.call("count", folder(0))
    return {**case, "is_right": case["is_right"] and is_right}
