"""The page of speed: tables and plots of ``benchmarks/results``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["RESULTS", "speed_page", "speed_plots"]

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def speed_page() -> str:
    """Markdown: each benchmark's results as they were saved."""
    parts = [
        "# Speed\n",
        "Ratios against a baseline that ran side by side on the same machine, as `./dev bench NAME --save`\n"
        "kept them.\n",
    ]
    for path in sorted(RESULTS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        parts.append("\n".join(_lowered(line) for line in text.splitlines()))
        if path.with_suffix(".png").exists():
            parts.append(f"\n![Bars of the table above]({path.stem}.png)\n")
    return "\n\n".join(parts)


def speed_plots() -> Iterator[Path]:
    """The plots' files."""
    yield from sorted(RESULTS.glob("*.png"))


def _lowered(line: str) -> str:
    return f"#{line}" if line.startswith("#") else line
