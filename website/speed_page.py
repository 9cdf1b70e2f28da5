"""The page of speed: docs/speed.md says in words what was compared; the figures are those of
``benchmarks/results``, put where the page names them: ``<!-- results: NAME -->``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
MANY_CASES = 10
"""Cases from which on one table has them all, a line each."""

_FIGURE = re.compile(r"(?<![^>])[\d.,]+ (?:s|×|MiB)(?![^<])")
"""Alone in its cell, or in a line of it."""
_MARK = re.compile(r"^<!-- results: (\w+) -->$", re.MULTILINE)

Case = Mapping[str, Any]


def results_named(page: str) -> list[str]:
    """The results that a page names, in order."""
    return _MARK.findall(page)


def with_results(page: str) -> str:
    """The page with tables and plots in the places of their names."""
    return _MARK.sub(lambda found: _section(found[1]), page)


def speed_plots() -> Iterator[Path]:
    """The plots' files."""
    yield from sorted(RESULTS.glob("*.png"))


def ratio_of(benchmark: str, case: str, ours: str, theirs: str) -> tuple[float, float]:
    """The median ratios of a comparison, of time and of processor time. KeyError if there is none."""
    found = next((each for each in _cases(benchmark) if each["case"] == case), None)
    if found is None:
        raise KeyError(f"{benchmark} has no case {case!r}")
    ratios = found["ratios"][f"{ours} / {theirs}"]
    return ratios["wall"]["median"], ratios["cpu"]["median"]


def _cases(benchmark: str) -> list[Case]:
    found: list[Case] = json.loads((RESULTS / f"{benchmark}.json").read_text(encoding="utf-8"))["cases"]
    return found


def _section(benchmark: str) -> str:
    cases = _cases(benchmark)
    parts = [_overview(cases)] if len(cases) >= MANY_CASES else list(map(_case, cases))
    places = [f"*{case['machine']}; {case['versions']}*" for case in cases]
    if len(set(places)) == 1:
        parts.append(places[0])
    else:
        parts = [text for each in zip(parts, places, strict=True) for text in each]
    if (RESULTS / f"{benchmark}.png").exists() and len(cases) < MANY_CASES:
        parts.append(f"![Bars of the seconds above, each case on its own scale from 0]({benchmark}.png)")
    return "\n\n".join(parts)


def _case(case: Case) -> str:
    lines = [_line(case, name, figures) for name, figures in case["contestants"].items()]
    head = ("", "time", "CPU", "beside", "ratio of time", "of CPU", "memory", "written")
    told = f"**{case['case']}.** {case['text']}"
    return f"{told}\n\n{_table(head, lines)}" if lines else told


def _line(case: Case, name: str, figures: Mapping[str, Any]) -> list[str]:
    if "wall_seconds" not in figures:
        return [name, "failed", *[""] * 6]
    found = {
        pair.partition(" / ")[2]: ratios
        for pair, ratios in case["ratios"].items()
        if pair.partition(" / ")[0] == name
    }
    return [
        name,
        f"{figures['wall_seconds']:.2f} s",
        f"{figures['cpu_seconds']:.2f} s",
        "<br>".join(found),
        *(
            "<br>".join(f"{ratios[what]['median']:.2f} ×" for ratios in found.values())
            for what in ("wall", "cpu")
        ),
        f"{max(figures['peak_mib_by_kind'].values(), default=0):,} MiB",
        f"{figures['written_mib']:,.1f} MiB",
    ]


def _overview(cases: list[Case]) -> str:
    lines = [
        [
            case["case"],
            *(
                f"{ratios['wall']['median']:.2f} × {theirs}"
                for ratios, theirs in ((r, pair.partition(" / ")[2]) for pair, r in case["ratios"].items())
            ),
            case["text"],
        ]
        for case in cases
    ]
    return _table(("", "time", ""), [[line[0], "<br>".join(line[1:-1]), line[-1]] for line in lines])


def _table(head: tuple[str, ...], lines: list[list[str]]) -> str:
    rules = [_rule([line[at] for line in lines]) for at in range(len(head))]
    whole = [[_FIGURE.sub(_unbroken, cell) for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rules, *whole))


def _rule(column: list[str]) -> str:
    """Figures stand to the right."""
    return "---:" if all(not cell or _FIGURE.match(cell) for cell in column) else "---"


def _unbroken(figure: re.Match[str]) -> str:
    """A figure and its unit stay in one line."""
    return figure[0].replace(" ", "&nbsp;")
