"""What the benchmark of merges prints and keeps: a table for each case, JSON, Markdown and a plot."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import markdown_table, merged_cases, read_cases

__all__ = ["case_text", "save_results", "show_case"]

HEADER = ("contestant", "wall s", "CPU s", "of which", "peak MiB", "written MiB", "wall ratio", "CPU ratio")
PLOT_MODULE = "benchmarks.merge_plot"
"""Imported when it is needed: matplotlib is there for the benchmarks only."""


def show_case(case: Mapping[str, Any]) -> None:
    """Print a case."""
    print(f"\n{case_text(case)}", flush=True)


def save_results(cases: Sequence[Mapping[str, Any]], path: Path, *, versions: str, machine: str) -> None:
    """Keep the cases beside those of earlier runs, as JSON, Markdown and a plot.

    Args:
        cases: what was measured now.
        path: of the JSON; the others have its name with their suffix.
        versions: of all contestants.
        machine: where it was measured.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    marked = [{**case, "versions": versions, "machine": machine} for case in cases]
    kept = merged_cases(read_cases(path), marked)
    path.write_text(json.dumps({"cases": kept}, indent=1) + "\n", encoding="utf-8")
    texts = [f"{case_text(case)}\n{case['machine']}; {case['versions']}\n" for case in kept]
    path.with_suffix(".md").write_text("# Merge by key\n\n" + "\n".join(texts), encoding="utf-8")
    importlib.import_module(PLOT_MODULE).draw(kept, path.with_suffix(".png"))


def case_text(case: Mapping[str, Any]) -> str:
    """Markdown of a case."""
    counts = f"{case['updates']:,} updates, {case['deletes']:,} deletes, {case['inserts']:,} inserts"
    hive = {None: "", True: "; Hive agrees", False: "; Hive DISAGREES"}[case["hive_agrees"]]
    same = "contents are the same" if case["is_equal"] else "contents DIFFER"
    settings = "".join(f"; {name}={value}" for name, value in case["spark_settings"].items())
    lines = [_line(case, name, figures) for name, figures in case["contestants"].items()]
    return f"## {case['case']}\n\n{counts}; {same}{hive}{settings}.\n\n{markdown_table(HEADER, lines)}"


def _line(case: Mapping[str, Any], name: str, figures: Mapping[str, Any]) -> list[str]:
    if "wall_seconds" not in figures:
        return [name, f"failed: {figures['failure'].splitlines()[0][:200]}", *[""] * (len(HEADER) - 2)]
    ratios = [(pair, found) for pair, found in case["ratios"].items() if pair.startswith(f"{name} / ")]
    return [
        name,
        f"{figures['wall_seconds']:.2f}",
        f"{figures['cpu_seconds']:.2f}",
        ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in figures["cpu_seconds_by_kind"].items()),
        ", ".join(f"{kind} {mib:,}" for kind, mib in figures["peak_mib_by_kind"].items()),
        f"{figures['written_mib']:.1f}",
        "; ".join(_ratio(pair, found["wall"]) for pair, found in ratios),
        "; ".join(_ratio(pair, found["cpu"]) for pair, found in ratios),
    ]


def _ratio(pair: str, found: Mapping[str, float]) -> str:
    return (
        f"{found['median']:.3f} of {pair.partition(' / ')[2]}'s ({found['low']:.3f} to {found['high']:.3f})"
    )
