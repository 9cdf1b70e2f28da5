"""The page of guarantees names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guarantees.md"


def test_each_promise_names_its_tests() -> None:
    """Functions, or modules, below ``tests/``."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    files = list((ROOT / "tests").rglob("test_*.py"))
    known = {path.stem for path in files}
    for path in files:
        known |= set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert len(lines) > 10
    for line in lines:
        named = re.findall(r"`(test_\w+)`", line.rsplit("|", 2)[1])
        assert named, line
        assert set(named) <= known, set(named) - known
