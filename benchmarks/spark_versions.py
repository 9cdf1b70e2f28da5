"""Write the same change set with our job on the oldest version of Spark and on the newest.

    python -m benchmarks spark_versions                       # 2,000,000 changes, 30 partitions
    python -m benchmarks spark_versions --quick               # 200,000 changes
    python -m benchmarks spark_versions --versions 3.5,4.0,4.3

The job is that of ``python -m benchmarks write``: a transaction, ``apply_changes``, the commit, on a real
metastore, into a table of 8 buckets a partition in the layout ``split``. Each version runs in a process of
its own with two cores, with the same Python and the same packages but for pyspark; environments that lack are
made first. All read the same Parquet files. Before that Hive reads a small table of each version and must
find the right content.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from typing import ClassVar

from benchmarks.data.event_data import BUCKETS, Shape
from benchmarks.measuring.arguments import Rounds, settings_from
from benchmarks.measuring.local_metastore import METASTORE
from benchmarks.measuring.measure import tell
from benchmarks.peers import PeerProcess
from benchmarks.writing.write_case import JUDGED, hive_content, run_case, save
from benchmarks.writing.write_input import Prepared, prepare_changes
from benchmarks.writing.write_stage import (
    CORES,
    DATABASE,
    DRIVER_MEMORY,
    LAYOUTS,
    Stage,
    add_common_arguments,
    add_partitions_argument,
)
from benchmarks.writing.writers import TableWriter
from judges.sparks import SPARKS, python_with

HELP = "write a change set with our job on the oldest and the newest version of Spark, in turn"

ROWS_DEFAULT, QUICK_ROWS = 2_000_000, 200_000
ROUNDS = Rounds(5, warm_up=2)
LAYOUT = LAYOUTS["split"]
AIM = 1.2
"""For wall and CPU seconds of the oldest version, as a share of the newest one's."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_common_arguments(parser, rows=ROWS_DEFAULT, quick_rows=QUICK_ROWS, rounds=ROUNDS)
    add_partitions_argument(parser)
    parser.add_argument(
        "--versions",
        type=_versions,
        default=(SPARKS[0], SPARKS[-1]),
        help=f"with commas; the last is what the others are compared with (of {', '.join(SPARKS)})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if everybody wrote everything and Hive agrees."""
    rows = QUICK_ROWS if arguments.quick else arguments.rows
    versions: tuple[str, ...] = arguments.versions
    with contextlib.ExitStack() as stack:
        stage = stack.enter_context(Stage.opened(arguments.work, [LAYOUT], settings_from(arguments.spark)))
        peers = {version: _started(stage, version, stack) for version in versions}
        is_right = _agreed(stage, peers)
        shape = Shape(rows, arguments.partitions)
        prepared = prepare_changes(stage, "versions", shape, LAYOUT.line)
        writers = [PeerWriter(stage, version, prepared, peers[version]) for version in versions]
        newest = _named(versions[-1])
        case = run_case(
            stage,
            f"{rows:,} changes, {arguments.partitions:,} partitions",
            f"{len(prepared.partitions):,} partitions of {BUCKETS} buckets",
            writers,
            pairs={(_named(each), newest): {"wall": AIM, "cpu": AIM} for each in versions[:-1]},
            rounds=ROUNDS.measured_of(arguments),
            warm_up=ROUNDS.warm_up_of(arguments, is_warm=stage.is_warm),
        )
        if arguments.save:
            save(stage, "spark_versions", "Versions of Spark", [case])
    return 0 if is_right and case["is_right"] else 1


class PeerWriter(TableWriter):
    """Our job in another process, on a version of Spark."""

    kinds: ClassVar[tuple[str, ...]] = TableWriter.kinds

    def __init__(self, stage: Stage, version: str, prepared: Prepared, peer: PeerProcess) -> None:
        self.kinds = (_named(version), METASTORE)  # type: ignore[misc]  # each its own process
        super().__init__(stage, _named(version), prepared, LAYOUT)
        self._peer = peer
        self._written: tuple[int, int, int] | None = None

    def written(self) -> tuple[int, int, int] | None:
        """See :meth:`TableWriter.written`."""
        return self._written

    def _write(self, number: int) -> None:
        server, table = self._prepared.server, f"{DATABASE}.{self.table}"
        self._written = self._peer.call("write", server.uri, table, str(self._prepared.changes))


def _started(stage: Stage, version: str, stack: contextlib.ExitStack) -> PeerProcess:
    peer = stack.enter_context(PeerProcess("spark_session", python_with(version)))
    stage.kinds[peer.pid] = _named(version)
    folder = stage.folder / f"spark-{version}"
    settings = {"spark.driver.memory": DRIVER_MEMORY, "spark.local.dir": str(folder), **stage.settings}
    stage.versions.add(f"pyspark {peer.call('start', f'local[{CORES}]', settings)}")
    return peer


def _agreed(stage: Stage, peers: dict[str, PeerProcess]) -> bool:
    """Whether Hive finds the right content in what each version wrote."""
    prepared = prepare_changes(stage, "judged", JUDGED, LAYOUT.line)
    expected = JUDGED.expected(stage.spark)
    writers = [PeerWriter(stage, version, prepared, peer) for version, peer in peers.items()]
    for writer in writers:
        with contextlib.closing(writer):
            writer.contestant.prepare(0)
            writer.contestant.run(0)
    with stage.servers[LAYOUT.line].judge() as judge:
        stage.versions.add(judge.description)
        found = [hive_content(judge, writer.table, JUDGED.checksums) == expected for writer in writers]
    tell(f"Hive {LAYOUT.line} {'agrees' if all(found) else 'DISAGREES'} on {', '.join(peers)}")
    return all(found)


def _named(version: str) -> str:
    """A contestant's name; a part of the names of its tables."""
    return f"spark{version.replace('.', '')}"


def _versions(text: str) -> Sequence[str]:
    names = tuple(name.strip() for name in text.split(","))
    if not set(names) <= set(SPARKS) or len(names) < 2:
        raise argparse.ArgumentTypeError(f"{text!r}: two or more of {', '.join(SPARKS)}")
    return names
