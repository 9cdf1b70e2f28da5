"""The tables of the page say what the tests show of each thing that may be done to a source's table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.update.altered_source_cases import CASES, documented

PAGE = Path(__file__).parents[4] / "docs" / "incremental-update.md"
HEADINGS = {"postgresql": "PostgreSQL", "mysql": "MySQL and MariaDB", "sqlite": "SQLite"}


@pytest.mark.parametrize("kind", CASES)
def test_each_row_of_the_page_is_a_tested_case(kind: str) -> None:
    """And each case has its row, in the same order."""
    text = PAGE.read_text(encoding="utf-8").partition("## When the source's table is altered")[2]
    section = text.partition(f"### {HEADINGS[kind]}\n")[2].partition("\n#")[0]
    assert re.findall(r"^\| .* \|$", section, re.MULTILINE)[1:] == documented(kind)
