"""Run one benchmark, or all in turn: ``python -m benchmarks [NAME] [--rows N] [--quick] [--save]``.

``python -m benchmarks NAME --help`` lists the options of one. Without a name each benchmark runs in a
separate process, so that none inherits a JVM or its memory from another, and a table of all cases ends the
run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import report

BENCHMARKS = {
    "write": "benchmarks.write",
    "insert_only": "benchmarks.insert_only",
    "spark_versions": "benchmarks.spark_versions",
    "flights": "benchmarks.flights",
    "growth": "benchmarks.growth",
    "skew": "benchmarks.skew",
    "coordinator": "benchmarks.coordinator",
    "bucket_hash": "benchmarks.bucket_hash",
    "read": "benchmarks.read",
    "empty_transaction": "benchmarks.empty_transaction",
    "many_partitions": "benchmarks.many_partitions",
    "merge": "benchmarks.merge",
    "small_work": "benchmarks.small_work",
    "wide_tables": "benchmarks.wide_tables",
    "many_deltas": "benchmarks.many_deltas",
    "repeated_merges": "benchmarks.repeated_merges",
    "merge_suite": "benchmarks.merge_suite",
    "stability": "benchmarks.stability",
    "verbs": "benchmarks.verbs",
    "lookups": "benchmarks.lookups",
    "compaction": "benchmarks.compaction",
    "erase": "benchmarks.erase",
    "feed": "benchmarks.feed",
    "feed_stream": "benchmarks.feed_stream",
    "export": "benchmarks.export",
    "load": "benchmarks.load",
    "ingest": "benchmarks.ingest",
    "json_logs": "benchmarks.json_logs",
    "incremental": "benchmarks.incremental",
    "stream": "benchmarks.stream",
    "storage": "benchmarks.storage",
    "publish": "benchmarks.publish",
    "large_change_set": "benchmarks.large_change_set",
}
"""Modules with ``HELP``, ``add_arguments(parser)`` and ``run(arguments) -> int``, in the order of a full run.

A module is imported when its benchmark runs. The cases that it passes to :func:`~.report.show_case`
appear in the table at the end.
"""

TOGETHER = ("write", "insert_only", "skew")
"""A quick run runs these in one process, on one Spark and the same metastores, warmed up once."""

JOINT = "+"

LONG = (
    "flights",
    "merge",
    "repeated_merges",
    "merge_suite",
    "stability",
    "verbs",
    "lookups",
    "feed",
    "feed_stream",
    "export",
    "small_work",
    "ingest",
    "json_logs",
    "incremental",
    "stream",
    "storage",
    "large_change_set",
)
"""These take minutes even with few rows; a quick run of all leaves them out."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments name; returns 0 if all results were right."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in BENCHMARKS:
        return run_one(words[0], words[1:])
    if words and words[0] == JOINT.join(TOGETHER):
        with importlib.import_module("benchmarks.writing.write_stage").Stage.shared():
            return max(run_one(name, words[1:]) for name in TOGETHER)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", choices=BENCHMARKS, help="which one (default: all in turn)")
    parser.add_argument("--rows", type=int, help="rows, instead of each benchmark's own number")
    parser.add_argument(
        "--quick", action="store_true", help="fewer rows, one round; of all, not the long ones"
    )
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")
    parsed = parser.parse_args(words)
    options = [f"--{name}" for name in ("quick", "save") if getattr(parsed, name)]
    return run_all(
        quick_names() if parsed.quick else list(BENCHMARKS),
        options if parsed.rows is None else [*options, f"--rows={parsed.rows}"],
    )


def quick_names() -> list[str]:
    """What a quick run of all runs, a process each."""
    alone = [name for name in BENCHMARKS if name not in (*LONG, *TOGETHER)]
    return [JOINT.join(TOGETHER), *alone]


def run_one(name: str, words: Sequence[str]) -> int:
    """Run a benchmark in this process; returns its exit code."""
    module = importlib.import_module(BENCHMARKS[name])
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=module.HELP)
    module.add_arguments(parser)
    parser.add_argument("--shown", type=Path, help="also add the cases to this file, as JSON")
    parsed = parser.parse_args(words)
    before_count = len(report.shown_cases())
    code = int(module.run(parsed))
    if parsed.shown:
        shown = [(name, case) for case in report.shown_cases()[before_count:]]
        before = json.loads(parsed.shown.read_text(encoding="utf-8")) if parsed.shown.exists() else []
        parsed.shown.write_text(json.dumps([*before, *shown]), encoding="utf-8")
    return code


def run_all(names: Sequence[str], options: Sequence[str]) -> int:
    """Run benchmarks in turn, and print the table of all their cases."""
    cases: list[tuple[str, dict[str, Any]]] = []
    lines = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for name in names:
            print(f"\n# {name}\n", flush=True)
            shown = Path(folder) / f"{name}.json"
            started = time.monotonic()
            command = [sys.executable, "-m", "benchmarks", name, *options, f"--shown={shown}"]
            code = subprocess.run(command, check=False).returncode
            lines.append((name, code, time.monotonic() - started))
            if shown.exists():
                cases += [(each, case) for each, case in json.loads(shown.read_text(encoding="utf-8"))]
    print(f"\n{report.overview(cases)}")
    for name, code, seconds in lines:
        print(f"{name}: {'right' if code == 0 else f'FAILED with exit code {code}'}, {seconds:.0f} s")
    return max(abs(code) for _, code, _ in lines)


if __name__ == "__main__":
    sys.exit(main())
