"""The README is short, and each figure in it is that of its source."""

from __future__ import annotations

import configparser
import re

from tests.support.doc_blocks import DOCS, README, ROOT
from tests.support.feature_table import LINES, in_page
from website.speed_page import RESULTS, ratio_of, results_named

TEXT = README.read_text(encoding="utf-8")
SPEED = (DOCS / "speed.md").read_text(encoding="utf-8")
LINES_MAX = 120
THE_SAME = "the same"
COMPARED = {
    "10,000,000 changes, 30 partitions, split update": (
        ("write", "10,000,000 changes, 30 partitions", "split", "spark"),
        "Spark: sort, its own ORC writer",
    ),
    "10,000,000 changes, 1,000 partitions, split update": (
        ("write", "10,000,000 changes, 1,000 partitions", "split", "spark"),
        THE_SAME,
    ),
    "10,000,000 changes on HDFS, 30 partitions": (
        ("storage", "10,000,000 changes, 30 partitions", "hdfs", "local"),
        "this library on the local disk",
    ),
    "10,000,000 rows read with ROW__ID, one column": (
        ("read", "10,000,000 rows, one column", "ours", "spark"),
        "Spark's reader on the bare files",
    ),
    "2,000 changes merged into 1,000,000 rows, without Spark": (
        ("merge", "1,000,000 rows, 0.2 % changed", "ours-local", "delta-rs"),
        "delta-rs",
    ),
    "1 % of 10,000,000 rows merged, by Spark's tasks": (
        ("merge", "10,000,000 rows, 1 % changed", "ours", "delta-rs"),
        "delta-rs",
    ),
}
"""The lines of the README's table of speed: where the figures are, and what they are compared with."""


def section(title: str) -> str:
    """The text of a section."""
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(title: str) -> list[list[str]]:
    """The cells of a section's table, below its head."""
    rows = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_it_is_short() -> None:
    """A reader sees all of it."""
    assert len(TEXT.splitlines()) <= LINES_MAX


def test_the_two_commands_are_there() -> None:
    """Whoever runs it without reading more finds them in this form."""
    assert re.findall(r"^    (\./dev \w+)  ", TEXT, re.MULTILINE) == ["./dev demo", "./dev test"]


def test_speed_is_that_of_the_results() -> None:
    """Line by line; the figures are rounded, not chosen."""
    expected = []
    for what, (case, beside) in COMPARED.items():
        time, cpu = ratio_of(*case)
        expected.append([what, beside, f"{time:.2f} ×", f"{cpu:.2f} ×"])
    assert table("Speed") == expected


def test_the_page_of_speed_has_all_results_once() -> None:
    """All that have a table; the words beside them name no ratio."""
    named = results_named(SPEED)
    assert sorted(named) == sorted(path.stem for path in RESULTS.glob("*.md"))
    assert re.findall(r"\d ×", SPEED) == []


def test_compatibility_is_that_of_the_page() -> None:
    """Each cell, as the tests have written it there."""
    cells = in_page((DOCS / "compatibility.md").read_text(encoding="utf-8"))
    rows = table("Where it works")
    assert len(rows) >= 4
    assert rows == [[row[0], *(cells.get((row[0], line), "–") for line in LINES)] for row in rows]


def test_versions_and_extras_exist() -> None:
    """Of Python, of Hive, and what is installed by name, on all pages."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    assert f"Python {parser['options']['python_requires'].replace('>=', '>= ')}" in TEXT
    extras = set(parser["options.extras_require"])
    pages = [README, *DOCS.rglob("*.md")]
    for page in pages:
        words = page.read_text(encoding="utf-8")
        lists = re.findall(r"hive-mutation-api\[([\w,]+)\]", words)
        assert {name for each in lists for name in each.split(",")} <= extras, page
    pins = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "judges").rglob("*.txt"))
    code = pins + "".join(path.read_text(encoding="utf-8") for path in (ROOT / "judges").rglob("*.py"))
    for version in re.findall(r"\b\d\.\d\.\d+\b", section("What you can count on")):
        assert version in code, version
