"""Each statement about replication is a test by its number, or is said to have no place, with the reason."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "replication.md"
LINE = re.compile(r"^\| (R\d+) \| .+ \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"^def test_((?:r\d+_)+)", re.MULTILINE)
STATEMENTS = {f"R{number}" for number in range(1, 12)}


def numbers_in_names() -> set[str]:
    """Numbers in the names of the tests."""
    texts = (path.read_text() for path in (ROOT / "tests/integration/replication").glob("test_*.py"))
    names = (name for text in texts for name in TEST.findall(text))
    return {number.upper() for name in names for number in name.split("_") if number}


def test_every_statement_is_tested_or_not_applicable() -> None:
    """One of the two, and the page has a line for each."""
    lines = LINE.findall(PAGE.read_text(encoding="utf-8"))
    assert [number for number, _ in lines] == sorted(STATEMENTS, key=lambda r: int(r[1:]))
    not_applicable = {number for number, text in lines if text.startswith("Not applicable")}
    assert all(len(text) > len("Not applicable: ") for _, text in lines)
    assert numbers_in_names() | not_applicable == STATEMENTS
