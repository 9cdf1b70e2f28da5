"""Plot of a benchmark: wall and CPU seconds by contestant in each case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

__all__ = ["draw"]


def draw(cases: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw all cases into one picture, a row of bars for each contestant; scales are logarithmic."""
    names = list(dict.fromkeys(name for case in cases for name in case["contestants"]))
    figure, axes = pyplot.subplots(
        1, 2, figsize=(14, 1.5 + 0.9 * len(cases)), sharey=True, layout="constrained"
    )
    for axis, what in zip(axes, ("wall_seconds", "cpu_seconds"), strict=True):
        height = 0.8 / len(names)
        for number, name in enumerate(names):
            bars = [
                (index + number * height, case["contestants"][name][what])
                for index, case in enumerate(cases)
                if what in case["contestants"].get(name, {})
            ]
            axis.barh([y for y, _ in bars], [seconds for _, seconds in bars], height, label=name)
        axis.set_xscale("log")
        axis.set_xlabel(what.replace("_", " ").replace("cpu", "CPU"))
        axis.set_yticks([index + 0.4 for index in range(len(cases))], [case["case"] for case in cases])
        axis.grid(axis="x", alpha=0.3)
    axes[0].invert_yaxis()
    axes[1].legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
