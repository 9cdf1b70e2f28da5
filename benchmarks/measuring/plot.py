"""Plot of a benchmark: wall and CPU seconds by contestant in each case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

WIDTH, HEAD, BAR = 12.0, 0.75, 0.28
"""Inches: of the picture, of a case's title and axis, and of a bar."""


def draw(cases: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw all cases into one picture, a pair of axes for each; every axis is linear and begins at 0."""
    names = list(dict.fromkeys(name for case in cases for name in case["contestants"]))
    colors = {name: f"C{number % 10}" for number, name in enumerate(names)}
    heights = [HEAD + BAR * len(case["contestants"]) for case in cases]
    figure, rows = pyplot.subplots(
        len(cases),
        2,
        figsize=(WIDTH, sum(heights)),
        height_ratios=heights,
        squeeze=False,
        sharey="row",
        layout="constrained",
    )
    for case, pair in zip(cases, rows, strict=True):
        for axis, what in zip(pair, ("wall_seconds", "cpu_seconds"), strict=True):
            found = {name: each[what] for name, each in case["contestants"].items() if what in each}
            bars = axis.barh(list(found), list(found.values()), color=[colors[name] for name in found])
            axis.bar_label(bars, [f"{seconds:.3g}" for seconds in found.values()], padding=3)
            axis.set_xlim(0, max(found.values(), default=0) * 1.12 or 1)
            axis.set_xlabel(what.replace("_", " ").replace("cpu", "CPU"))
            axis.grid(axis="x", alpha=0.3)
            axis.set_axisbelow(True)
        pair[0].invert_yaxis()
        pair[0].set_title(case["case"], loc="left", fontsize="medium")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
