"""What the benchmark of merges says of a case, before the table that all benchmarks have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import report


def show_case(case: Mapping[str, Any]) -> None:
    """Print a case."""
    report.show_case(_with_text(case))


def save_results(cases: Sequence[Mapping[str, Any]], path: Path, *, versions: str, machine: str) -> None:
    """Keep the cases beside those of earlier runs; see :func:`benchmarks.measuring.report.save_cases`."""
    described = [_with_text(case) for case in cases]
    report.save_cases(described, path, title="Merge by key", versions=versions, machine=machine)


def _with_text(case: Mapping[str, Any]) -> dict[str, Any]:
    counts = f"{case['updates']:,} updates, {case['deletes']:,} deletes, {case['inserts']:,} inserts"
    hive = {None: "", True: "; Hive agrees", False: "; Hive DISAGREES"}[case["hive_agrees"]]
    same = "contents are the same" if case["is_equal"] else "contents DIFFER"
    settings = "".join(f"; {name}={value}" for name, value in case["spark_settings"].items())
    return {**case, "text": f"{counts}; {same}{hive}{settings}."}
