"""Read and reduce logs of JSON messages: with Spark's tasks, in this process, and there without orjson.

    python -m benchmarks json_logs                     # 1,000,000 messages of each format
    python -m benchmarks json_logs --quick             # a tenth of that
    python -m benchmarks json_logs --formats maxwell   # with commas: of Debezium with and without schema, ...
    python -m benchmarks json_logs --earlier FOLDER    # another checkout of this library, too

A log is read twice, as each run of ``hive-mutate ingest`` reads it: the first look, then the operations,
which are reduced to the last one of each key. Nothing is written. All must find the same keys, and as many
operations on them. A warm-up round reads a smaller log. ``bare orjson`` parses all lines, and no more.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import SparkSession

from benchmarks.data.message_data import FORMATS, MessageLogs
from benchmarks.data.message_reading import Answer, reduced, source_of
from benchmarks.measuring.arguments import Rounds
from benchmarks.measuring.measure import (
    Contestant,
    Result,
    Watch,
    alternate,
    as_figures,
    compared,
    machine,
    tell,
)
from benchmarks.measuring.measure import versions as versions_of
from benchmarks.measuring.report import save_cases, show_case
from benchmarks.peers import PeerProcess
from mutation_api import local_spark_session
from mutation_api.cdc.engine import Engine
from mutation_api.cdc.local_engine import LocalEngine
from mutation_api.cdc.messages import json_text
from mutation_api.cdc.spark_engine import SparkEngine
from mutation_api.write.local_plan import LocalOptions

HELP = "read and reduce logs of Debezium, Maxwell and Canal, with Spark and without"

ROWS_DEFAULT, QUICK_SHARE = 1_000_000, 10
KEYS_SHARE = 0.3
FILES = 8
WARM_UP_ROWS = 50_000
ROUNDS = Rounds(3, warm_up=1)
SPARK, LOCAL, EXACT, BARE = "Spark's tasks", "local", "local, without orjson", "bare orjson"
EARLIER, EARLIER_SPARK, EARLIER_LOCAL = "earlier", "earlier Spark's tasks", "earlier local"
EARLIER_PAIRS = ((SPARK, EARLIER_SPARK), (LOCAL, EARLIER_LOCAL))
MASTER = "local[2]"
AIM = 1.05
"""For wall and CPU seconds, as a share of those of an earlier checkout."""
MEMORY_BYTES = 8 << 30
"""Of which the local engine uses what the operations of a log need; its default would refuse such a log."""

RESULTS = Path(__file__).parent / "results" / "json_logs.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help=f"messages of a log (default: {ROWS_DEFAULT:,})")
    parser.add_argument("--quick", action="store_true", help=f"a {QUICK_SHARE}th of that")
    parser.add_argument("--formats", type=_formats, default=tuple(FORMATS), help=", ".join(FORMATS))
    parser.add_argument("--earlier", type=Path, help="a checkout of this library that takes part")
    ROUNDS.add_argument(parser)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all found the same."""
    rows = arguments.rows or ROWS_DEFAULT // (QUICK_SHARE if arguments.quick else 1)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        settings = {"spark.local.dir": str(folder / "spark"), "spark.sql.shuffle.partitions": "4"}
        spark = stack.enter_context(local_spark_session("json_logs", master=MASTER, settings=settings))
        logs = MessageLogs(rows, round(rows * KEYS_SHARE), FILES, folder)
        earlier = arguments.earlier and stack.enter_context(PeerProcess("earlier_messages"))
        if earlier:
            earlier.call("start", str(arguments.earlier.resolve()), MASTER, settings, MEMORY_BYTES)
        cases = [_case(spark, logs, name, arguments, earlier) for name in arguments.formats]
    if arguments.save:
        packages = versions_of("pyspark", "pyarrow", "orjson")
        save_cases(
            cases, RESULTS, title="Logs of JSON messages", versions=", ".join(packages), machine=machine()
        )
    return 0 if all(case["is_right"] for case in cases) else 1


def _case(
    spark: SparkSession,
    logs: MessageLogs,
    name: str,
    arguments: argparse.Namespace,
    earlier: PeerProcess | None,
) -> dict[str, Any]:
    tell(f"writing {logs.operations:,} messages: {name}")
    warm_up = ROUNDS.warm_up_of(arguments)
    few = min(logs.operations, WARM_UP_ROWS)
    small = MessageLogs(few, round(few * KEYS_SHARE), FILES, logs.folder / "warm-up")
    read = _Read(name, logs.write(name), small.write(name), warm_up)
    contestants, kinds = _contestants(spark, read), dict[int, str]()
    if earlier is not None:
        contestants[1:1] = _earlier(earlier, read)
        kinds[earlier.pid] = EARLIER
    results = alternate(contestants, ROUNDS.measured_of(arguments), Watch(kinds), warm_up=warm_up, tell=tell)
    folder, found = read.folder, read.found
    size = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
    is_right = bool(found) and all(each == found[0] for each in found)
    case = {
        "case": f"{logs.operations:,} messages: {name}",
        "text": f"{size:,.0f} MiB in {FILES} files, {_told(found)}",
        "contestants": {result.name: as_figures(result) for result in results},
        "ratios": _ratios({result.name: result for result in results if result.usages}),
        **(
            {}
            if earlier is None
            else {"aims": {_pair(*each): {"wall": AIM, "cpu": AIM} for each in EARLIER_PAIRS}}
        ),
        "is_right": is_right and not any(result.failure for result in results),
    }
    show_case(case)
    return case


@dataclass(frozen=True)
class _Read:
    """The logs of a format, a small one for the rounds that warm up, and what was found in the other."""

    name: str
    folder: Path
    small: Path
    warm_up: int
    found: list[Answer] = field(default_factory=list)

    def by(self, read: Callable[[Path], Answer]) -> Callable[[int], None]:
        """A contestant's task: to read the folder of a round."""

        def run(number: int) -> None:
            if number < self.warm_up:
                read(self.small)
            else:
                self.found.append(read(self.folder))

        return run


def _contestants(spark: SparkSession, read: _Read) -> list[Contestant]:
    """Ways of this checkout to read a log; and the bare parser."""
    by_spark, local = SparkEngine(spark), LocalEngine(LocalOptions(memory_bytes=MEMORY_BYTES))

    def reading(engine: Engine) -> Callable[[Path], Answer]:
        return lambda folder: reduced(engine, source_of(read.name, folder))

    def without_orjson(folder: Path) -> Answer:
        with mock.patch.object(json_text, "ORJSON", None):
            return reading(local)(folder)

    return [
        Contestant(SPARK, read.by(reading(by_spark)), ("driver", "java", "python"), read.folder),
        Contestant(LOCAL, read.by(reading(local)), ("driver",), read.folder),
        Contestant(EXACT, read.by(without_orjson), ("driver",), read.folder),
        Contestant(BARE, lambda _: _bare(read.folder), ("driver",), read.folder),
    ]


def _earlier(earlier: PeerProcess, read: _Read) -> list[Contestant]:
    """The engines of the other checkout. Their seconds are those of its driver, JVM and workers together."""

    def reading(engine: str) -> Callable[[int], None]:
        return read.by(lambda folder: earlier.call("reduced", engine, read.name, str(folder)))

    return [
        Contestant(name, reading(engine), (EARLIER,), read.folder)
        for name, engine in ((EARLIER_SPARK, "spark"), (EARLIER_LOCAL, "local"))
    ]


def _ratios(results: Mapping[str, Result]) -> dict[str, Any]:
    """Of the local engine and all others, and of both engines and the earlier ones."""
    pairs = [*((LOCAL, name) for name in (SPARK, EXACT, BARE)), *EARLIER_PAIRS]
    return {
        _pair(ours, peer): compared(results[ours], results[peer])
        for ours, peer in pairs
        if ours in results and peer in results
    }


def _pair(ours: str, peer: str) -> str:
    return f"{ours} / {peer}"


def _told(found: Sequence[Answer]) -> str:
    """What all of those found who did not fail."""
    if not found:
        return "read by none to the end"
    same = "the same" if all(each == found[0] for each in found) else "NOT THE SAME"
    return f"read and reduced to {sum(found[0].values()):,} keys; {same} by all"


def _bare(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as file:
            for line in file:
                json_text.ORJSON.loads(line[line.find(b"\t") + 1 :])


def _formats(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not set(names) <= set(FORMATS):
        raise argparse.ArgumentTypeError(f"{text!r}: of {', '.join(FORMATS)}")
    return names
