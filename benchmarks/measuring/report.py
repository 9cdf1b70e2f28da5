"""What a benchmark prints and keeps: one kind of table for all, JSON, Markdown and a plot.

A case is what was compared in turn, as it is kept in JSON:

* ``case``: its name, which no other case of the benchmark has;
* ``text``: what was done, and whether the results are right;
* ``contestants``: by name, what :func:`benchmarks.measuring.measure.as_figures` makes of a result;
* ``ratios``: by ``"ours / theirs"``, what :func:`benchmarks.measuring.measure.compared` says of the two;
* ``aims``: by ``"ours / theirs"``, the ratios of ``wall`` and ``cpu`` that should not be exceeded; optional.

More members are kept as they are.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring.measure import machine, markdown_table, merged_cases, read_cases, versions

HEADER = (
    "contestant",
    "wall s",
    "CPU s",
    "JVM",
    "Python",
    "others",
    "peak MiB JVM",
    "driver",
    "workers",
    "others",
    "shuffled MiB",
    "written MiB",
    "wall ratio",
    "CPU ratio",
)
"""``JVM``, ``Python`` (driver and workers) and ``others`` are parts of the CPU seconds; a peak is that of the
largest process of its kind."""

PLOT_MODULE = "benchmarks.measuring.plot"
"""Imported when it is needed: matplotlib is there for the benchmarks only."""

JVM, DRIVER, WORKERS = "java", "driver", "python"
SHOWN_FAILURE = 200
"""Characters of a failure that a table quotes."""

_shown: list[Mapping[str, Any]] = []

Case = Mapping[str, Any]


def show_case(case: Case) -> None:
    """Print a case, and remember it for the table of all cases at the end."""
    _shown.append(case)
    print(f"\n{case_text(case)}", flush=True)


def shown_cases() -> tuple[Case, ...]:
    """The cases that were shown in this process."""
    return tuple(_shown)


def case_text(case: Case) -> str:
    """Markdown of a case; with a table if contestants were compared."""
    lines = [_line(case, name, figures) for name, figures in case["contestants"].items()]
    table = f"\n{markdown_table(HEADER, lines)}" if lines else ""
    return f"## {case['case']}\n\n{case['text']}\n{table}"


def overview(cases: Iterable[tuple[str, Case]]) -> str:
    """One table of all (benchmark, case)."""
    lines = [
        [benchmark, case["case"], *_line(case, name, figures)]
        for benchmark, case in cases
        for name, figures in case["contestants"].items()
    ]
    return markdown_table(("benchmark", "case", *HEADER), lines)


def finish(cases: Sequence[Case], path: Path | None, *, title: str, packages: Sequence[str]) -> int:
    """Show cases, keep them if there is a path, and return the exit code: 0 if all are right.

    Args:
        cases: what was measured now.
        path: see :func:`save_cases`; None to keep nothing.
        title: see :func:`save_cases`.
        packages: those whose versions are kept.
    """
    for case in cases:
        show_case(case)
    if path is not None:
        save_cases(cases, path, title=title, versions=", ".join(versions(*packages)), machine=machine())
    return 0 if all(case["is_right"] for case in cases) else 1


def save_cases(cases: Sequence[Case], path: Path, *, title: str, versions: str, machine: str) -> None:
    """Keep the cases beside those of earlier runs, as JSON, Markdown and a plot of those with contestants.

    Args:
        cases: what was measured now.
        path: of the JSON; the others have its name with their suffix.
        title: of the Markdown.
        versions: of all contestants.
        machine: where it was measured.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    marked = [{**case, "versions": versions, "machine": machine} for case in cases]
    kept = merged_cases(read_cases(path), marked)
    path.write_text(json.dumps({"cases": kept}, indent=1) + "\n", encoding="utf-8")
    texts = [f"{case_text(case)}\n{case['machine']}; {case['versions']}\n" for case in kept]
    path.with_suffix(".md").write_text(f"# {title}\n\n" + "\n".join(texts), encoding="utf-8")
    compared = [case for case in kept if case["contestants"]]
    if compared:
        importlib.import_module(PLOT_MODULE).draw(compared, path.with_suffix(".png"))


def _line(case: Case, name: str, figures: Mapping[str, Any]) -> list[str]:
    if "wall_seconds" not in figures:
        failure = f"failed: {figures['failure'].partition(chr(10))[0][:SHOWN_FAILURE]}"
        return [name, failure, *[""] * (len(HEADER) - 2)]
    cpu, peak = figures["cpu_seconds_by_kind"], figures["peak_mib_by_kind"]
    others = [kind for kind in cpu if kind not in (JVM, DRIVER, WORKERS)]
    return [
        name,
        f"{figures['wall_seconds']:.2f}",
        f"{figures['cpu_seconds']:.2f}",
        f"{cpu.get(JVM, 0):.2f}",
        f"{cpu.get(DRIVER, 0) + cpu.get(WORKERS, 0):.2f}",
        f"{sum(cpu[kind] for kind in others):.2f}",
        *(f"{peak.get(kind, 0):,}" for kind in (JVM, DRIVER, WORKERS)),
        f"{max((peak[kind] for kind in others), default=0):,}",
        f"{figures['shuffled_mib']:.1f}" if "shuffled_mib" in figures else "",
        f"{figures['written_mib']:.1f}",
        *(_ratios(case, name, what) for what in ("wall", "cpu")),
    ]


def _ratios(case: Case, name: str, what: str) -> str:
    """Median, least and greatest ratio to each of the others, and the aim."""
    texts = []
    for pair, found in case["ratios"].items():
        mine, _, theirs = pair.partition(" / ")
        if mine != name:
            continue
        ratio = found[what]
        aim = case.get("aims", {}).get(pair, {}).get(what)
        texts.append(
            f"{ratio['median']:.3f} × {theirs} ({ratio['low']:.3f} to {ratio['high']:.3f})"
            + (f", aim {aim:g}" if aim is not None else "")
        )
    return "; ".join(texts)
