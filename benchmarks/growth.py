"""Write change sets of growing size: does time grow as the rows do, and does memory not grow?

    python -m benchmarks growth                           # 1,000,000, 10,000,000 and 50,000,000 changes
    python -m benchmarks growth --quick                   # 20,000 and 1,000,000
    python -m benchmarks growth --rows 10000000           # a fiftieth, a fifth, and all of it
    python -m benchmarks growth --memory little           # with as little memory as the smallest needs

Each size has its own process and Spark, so that none inherits another's memory. Ratios are of the
seconds of a row: 1 is linear growth. Peaks are compared in the text.

By default a small change set does not need the memory that it may have, and peaks grow until one does. With
``--memory little`` all sizes need all of it, and the JVM has all of its heap from the start, however much
its collector leaves uncollected. That shows what bounds memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.data.event_data import BUCKETS, Shape
from benchmarks.measuring.arguments import Rounds, settings_from
from benchmarks.measuring.measure import machine, ratio_of
from benchmarks.measuring.report import save_cases, show_case
from benchmarks.writing.write_case import RESULTS, agreed, run_case
from benchmarks.writing.write_input import prepare_changes
from benchmarks.writing.write_stage import (
    LAYOUTS,
    Stage,
    add_common_arguments,
    add_partitions_argument,
)
from benchmarks.writing.writers import TableWriter
from mutation_api import WriterOptions

HELP = "write change sets of growing size"

ROWS_DEFAULT = 50_000_000
QUICK_ROWS = 1_000_000
PARTS = (50, 5, 1)
"""Sizes as parts of the largest."""
ROUNDS = Rounds(2, warm_up=2)
LAYOUT = LAYOUTS["split"]
AIM = {"wall": 1.1, "cpu": 1.1}
"""Seconds of a row, as a share of the smallest size's."""
COMPARED_KINDS = {"python": "worker", "java": "JVM", "driver": "driver's Python"}


@dataclass(frozen=True)
class Memory:
    """What bounds the memory of Spark's JVM and of a worker.

    ``file`` is the name of the results; ``peak_aim`` is for the largest size's peak, as a share of the
    smallest's.
    """

    name: str
    file: str
    settings: Mapping[str, str] = field(default_factory=dict)
    options: WriterOptions | None = None
    peak_aim: float | None = None


MEMORIES = {
    "default": Memory("memory by default", "growth"),
    "little": Memory(
        "little memory: JVM 1 GiB, sort_memory_bytes 8 MiB, stripe_bytes 128 KiB",
        "growth_little_memory",
        {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-Xms1g -XX:+AlwaysPreTouch"},
        WriterOptions(sort_memory_bytes=8 * 2**20, stripe_bytes=2**17),
        peak_aim=1.1,
    ),
}


@dataclass(frozen=True)
class Task:
    """The input of the process of one size."""

    shape: Shape
    memory: Memory
    rounds: int
    warm_up: int
    settings: Mapping[str, str]
    work: Path | None
    is_judged: bool


@dataclass(frozen=True)
class Outcome:
    """Its output: figures of the one contestant, and versions."""

    rows: int
    figures: Mapping[str, Any]
    is_right: bool
    versions: frozenset[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; ``--rows`` is the largest size."""
    add_common_arguments(parser, rows=ROWS_DEFAULT, quick_rows=QUICK_ROWS, rounds=ROUNDS)
    add_partitions_argument(parser)
    parser.add_argument(
        "--memory", choices=MEMORIES, default="default", help="that all may have (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if everything was written and Hive agrees."""
    largest = QUICK_ROWS if arguments.quick else arguments.rows
    rounds = ROUNDS.measured_of(arguments)
    memory = MEMORIES[arguments.memory]
    tasks = [
        Task(
            Shape(max(1, largest // part), arguments.partitions),
            memory,
            rounds,
            ROUNDS.warm_up_of(arguments),
            settings_from(arguments.spark),
            arguments.work,
            is_judged=part == PARTS[0] and not arguments.quick,
        )
        for part in (PARTS[::2] if arguments.quick else PARTS)
    ]
    outcomes = [in_new_process(task) for task in tasks]
    case = as_case(outcomes, memory, arguments.partitions)
    show_case(case)
    if arguments.save:
        versions = ", ".join(sorted(outcomes[0].versions))
        path = RESULTS / f"{memory.file}.json"
        save_cases([case], path, title="Growth", versions=versions, machine=machine())
    return 0 if case["is_right"] else 1


def in_new_process(task: Task) -> Outcome:
    """Measure a size where nothing has run before."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, task).result()


def measure(task: Task) -> Outcome:
    """Measure a size."""
    rows, options = task.shape.rows, task.memory.options
    with Stage.opened(task.work, (LAYOUT,), {**task.memory.settings, **task.settings}) as stage:
        is_right = agreed(stage, (LAYOUT,), options=options) if task.is_judged else True
        prepared = prepare_changes(stage, "rows", task.shape, LAYOUT.line)
        writer = TableWriter(stage, LAYOUT.name, prepared, LAYOUT, options)
        case = run_case(
            stage,
            f"{rows:,} changes",
            f"layout {LAYOUT.name}",
            [writer],
            pairs={},
            rounds=task.rounds,
            warm_up=task.warm_up,
        )
        figures = case["contestants"][LAYOUT.name]
        return Outcome(rows, figures, is_right and case["is_right"], frozenset(stage.versions))


def as_case(outcomes: Sequence[Outcome], memory: Memory, partitions: int) -> dict[str, Any]:
    """All sizes beside each other, compared with the smallest by the seconds of a row."""
    first, last = outcomes[0], outcomes[-1]
    measured = [each for each in outcomes if "rounds" in each.figures]
    pairs = {
        f"{_label(each)} / {_label(first)}": per_row(each, first)
        for each in measured
        if first in measured and each is not first
    }
    is_right = all(each.is_right for each in outcomes)
    peaks = peak_ratios(first, last) if {_label(first), _label(last)} <= set(map(_label, measured)) else {}
    peak_text = ", ".join(f"{COMPARED_KINDS[kind]} {ratio:.2f}" for kind, ratio in peaks.items())
    aim = f" (aim {memory.peak_aim:g})" if memory.peak_aim else ""
    return {
        "case": f"up to {last.rows:,} changes, {memory.name}",
        "text": f"Layout {LAYOUT.name}, {partitions} partitions of {BUCKETS} buckets; ratios are of the "
        f"seconds of a row; peaks of the largest size, as shares of the smallest's{aim}: {peak_text}; "
        f"{'all wrote everything' if is_right else 'INCOMPLETE'}.",
        "contestants": {_label(each): dict(each.figures) for each in outcomes},
        "ratios": pairs,
        "aims": dict.fromkeys(pairs, AIM),
        "peak_ratios": peaks,
        "is_right": is_right,
    }


def per_row(larger: Outcome, smaller: Outcome) -> dict[str, dict[str, float]]:
    """Ratios of wall and CPU seconds of a row, round by round."""

    def seconds(outcome: Outcome, what: str) -> list[float]:
        rounds = outcome.figures["rounds"]
        found = [r["wall_seconds"] if what == "wall" else sum(r["cpu_seconds"].values()) for r in rounds]
        return [each / outcome.rows for each in found]

    return {
        what: {
            name: round(value, 3)
            for name, value in asdict(ratio_of(seconds(larger, what), seconds(smaller, what))).items()
        }
        for what in ("wall", "cpu")
    }


def peak_ratios(first: Outcome, last: Outcome) -> dict[str, float]:
    """Peaks of the last as shares of the first's, by kind of process."""
    old, new = first.figures["peak_mib_by_kind"], last.figures["peak_mib_by_kind"]
    return {kind: round(new[kind] / old[kind], 2) for kind in COMPARED_KINDS if old.get(kind)}


def _label(outcome: Outcome) -> str:
    return f"{outcome.rows:,} changes"
