"""Each statement of the document has a test by its number, or docs/incremental-update.md says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
DOCUMENT = ROOT / "docs" / "incremental-update.md"
NUMBERS = range(1, 20)


def _tested() -> set[int]:
    """The numbers in names of tests."""
    places = [ROOT / "tests" / "unit" / "cdc" / "update", ROOT / "tests" / "integration" / "update"]
    names = [
        name
        for place in places
        for path in place.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    return {int(number) for name in names for number in re.findall(r"(?<=_g)\d+(?=_)", name)}


def _rows() -> dict[int, str]:
    """What the document says of each number."""
    found = re.findall(r"^\| G(\d+) \| .* \| (.*) \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    return {int(number): text for number, text in found}


def test_the_document_has_every_statement() -> None:
    """And no other."""
    assert list(_rows()) == [*NUMBERS]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_statement_has_a_test_or_is_not_applicable(number: int) -> None:
    """A test's name has the number, or the row begins so."""
    assert (number in _tested()) != _rows()[number].startswith("Not applicable")
