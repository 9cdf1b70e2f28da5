"""docs/architecture.md names rooms, files and classes that exist."""

from __future__ import annotations

import re

import pytest

from tests.support.doc_blocks import DOCS, ROOT

PAGE = (DOCS / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "mutation_api"
ROOMS = re.findall(r"^\| `(\w+)/` \|", PAGE.partition("\nTwo packages ")[0], re.MULTILINE)
PATHS = sorted({each for each in re.findall(r"`([\w./]+)`", PAGE) if re.search(r"/|\.(?:py|md)$", each)})
CLASSES = sorted(set(re.findall(r"`([A-Z][a-z]+[A-Z]\w+)`", PAGE)))


def test_the_rooms_are_the_directories_of_the_package() -> None:
    """The table has each once."""
    assert sorted(ROOMS) == sorted(each.parent.name for each in PACKAGE.glob("*/__init__.py"))


@pytest.mark.parametrize("path", PATHS)
def test_a_file_or_directory_exists(path: str) -> None:
    """Paths begin at the repository, at the package, or at a room."""
    places = (ROOT, PACKAGE, *(PACKAGE / room for room in ROOMS), PACKAGE / "cdc/update")
    assert any((place / path).exists() for place in (*places, ROOT / "metastore_client"))


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_exists(name: str) -> None:
    """A room defines it."""
    sources = (path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    assert any(f"\nclass {name}(" in source or f"\nclass {name}:" in source for source in sources)
