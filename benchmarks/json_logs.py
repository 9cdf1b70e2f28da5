"""Read and reduce logs of JSON messages: with Spark's tasks, in this process, and there without orjson.

    python -m benchmarks json_logs                     # 1,000,000 messages of each format
    python -m benchmarks json_logs --quick             # a tenth of that
    python -m benchmarks json_logs --formats maxwell   # with commas: of Debezium with and without schema, ...

A log is read twice, as each run of ``hive-mutate ingest`` reads it: the first look, then the operations,
which are reduced to the last one of each key. Nothing is written. All must find the same keys, and as many
operations on them. ``bare orjson`` parses all lines, and no more.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import SparkSession

from benchmarks.data.message_data import (
    CANAL,
    COLUMNS,
    DEBEZIUM,
    DEBEZIUM_SCHEMA,
    FORMATS,
    MAXWELL,
    TABLE,
    MessageLogs,
)
from benchmarks.measuring.arguments import Rounds
from benchmarks.measuring.measure import Contestant, Watch, alternate, as_figures, compared, machine, tell
from benchmarks.measuring.measure import versions as versions_of
from benchmarks.measuring.report import save_cases, show_case
from mutation_api import CanalSource, DebeziumSource, DebeziumValues, MaxwellSource, local_session
from mutation_api.acid.version import AcidVersion
from mutation_api.inputs.engines.engine import Engine
from mutation_api.inputs.engines.local_engine import LocalEngine
from mutation_api.inputs.engines.spark_engine import SparkEngine
from mutation_api.inputs.messages import quick_json
from mutation_api.inputs.messages.message_source import MessageSource
from mutation_api.inputs.source import SourceTable
from mutation_api.local.local_options import LocalOptions
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable

__all__ = ["HELP", "TARGET", "add_arguments", "run", "source_of"]

HELP = "read and reduce logs of Debezium, Maxwell and Canal, with Spark and without"

ROWS_DEFAULT, QUICK_SHARE = 1_000_000, 10
KEYS_SHARE = 0.3
FILES = 8
ROUNDS = Rounds(3, warm_up=1)
SPARK, LOCAL, EXACT, BARE = "Spark's tasks", "local", "local, without orjson", "bare orjson"
MEMORY_BYTES = 8 << 30
"""Of which the local engine uses what the operations of a log need; its default would refuse such a log."""

RESULTS = Path(__file__).parent / "results" / "json_logs.json"
TARGET = AcidTable(
    "default",
    "orders",
    Location.given("/warehouse/orders"),
    tuple(AcidColumn(name, kind) for name, kind in COLUMNS),
    (),
    0,
    (),
    AcidVersion.V2_HIVE4,
)

Answer = Mapping[tuple[str, str], int]
"""How many keys have which first and last operation."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help=f"messages of a log (default: {ROWS_DEFAULT:,})")
    parser.add_argument("--quick", action="store_true", help=f"a {QUICK_SHARE}th of that")
    parser.add_argument("--formats", type=_formats, default=tuple(FORMATS), help=", ".join(FORMATS))
    ROUNDS.add_argument(parser)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all found the same."""
    rows = arguments.rows or ROWS_DEFAULT // (QUICK_SHARE if arguments.quick else 1)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        settings = {"spark.local.dir": str(folder / "spark"), "spark.sql.shuffle.partitions": "4"}
        spark = stack.enter_context(local_session("json_logs", master="local[2]", settings=settings))
        logs = MessageLogs(rows, round(rows * KEYS_SHARE), FILES, folder)
        cases = [_case(spark, logs, name, arguments) for name in arguments.formats]
    if arguments.save:
        packages = versions_of("pyspark", "pyarrow", "orjson")
        save_cases(
            cases, RESULTS, title="Logs of JSON messages", versions=", ".join(packages), machine=machine()
        )
    return 0 if all(case["is_right"] for case in cases) else 1


def _case(spark: SparkSession, logs: MessageLogs, name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    tell(f"writing {logs.operations:,} messages: {name}")
    folder = logs.write(name)
    source, found = source_of(name, folder), list[Answer]()
    local = LocalEngine(LocalOptions(memory_bytes=MEMORY_BYTES))

    def reading(engine: Engine) -> Callable[[int], None]:
        return lambda _: found.append(_reduced(engine, source))

    def without_orjson(_: int) -> None:
        with mock.patch.object(quick_json, "ORJSON", None):
            found.append(_reduced(local, source))

    contestants = [
        Contestant(SPARK, reading(SparkEngine(spark)), ("driver", "java", "python"), folder),
        Contestant(LOCAL, reading(local), ("driver",), folder),
        Contestant(EXACT, without_orjson, ("driver",), folder),
        Contestant(BARE, lambda _: _bare(folder), ("driver",), folder),
    ]
    warm_up = ROUNDS.warm_up_of(arguments)
    results = alternate(
        contestants, ROUNDS.measured_of(arguments), Watch({os.getpid(): "driver"}), warm_up=warm_up, tell=tell
    )
    size = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
    is_right = bool(found) and all(each == found[0] for each in found)
    case = {
        "case": f"{logs.operations:,} messages: {name}",
        "text": f"{size:,.0f} MiB in {FILES} files, read and reduced to {sum(found[0].values()):,} keys; "
        f"{'the same' if is_right else 'NOT THE SAME'} by all",
        "contestants": {result.name: as_figures(result) for result in results},
        "ratios": {
            f"{ours.name} / {peer.name}": compared(ours, peer)
            for ours in results
            for peer in results
            if ours.name == LOCAL != peer.name and ours.usages and peer.usages
        },
        "is_right": is_right,
    }
    show_case(case)
    return case


def _reduced(engine: Engine, source: MessageSource) -> Answer:
    """Read a log, and reduce it."""
    (log,) = engine.read(source, [SourceTable(TABLE, TARGET, ("id",))], {}).tables
    with log.reduced(what="the log", strict=False) as reduced:
        return dict(reduced.counts.outcomes)


def _bare(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as file:
            for line in file:
                quick_json.ORJSON.loads(line[line.find(b"\t") + 1 :])


def source_of(name: str, folder: Path) -> MessageSource:
    """The source that reads the log of a format in this folder."""
    decimals = {f"{TABLE}.total": "org.apache.kafka.connect.data.Decimal(2)"}
    values = DebeziumValues(times="microseconds", column_types=decimals)
    match name:
        case value if value == DEBEZIUM:
            return DebeziumSource(folder, "erp", values=values)
        case value if value == DEBEZIUM_SCHEMA:
            return DebeziumSource(folder, "erp")
        case value if value == MAXWELL:
            return MaxwellSource(folder, "erp")
        case _:
            assert name == CANAL
            return CanalSource(folder, "erp")


def _formats(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not set(names) <= set(FORMATS):
        raise argparse.ArgumentTypeError(f"{text!r}: of {', '.join(FORMATS)}")
    return names
