"""A page has one name: its first heading, which the navigation and the first page's table use too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.doc_blocks import DOCS, ROOT

NAVIGATION = (ROOT / "website" / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+\.md)\)")
INDEX = DOCS / "index.md"


def title(page: Path) -> str:
    """The first line."""
    return page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def test_the_navigation_gives_no_names_of_its_own() -> None:
    """But to the page of errors, which is made."""
    assert re.findall(r"^ +- (.+): \S+\.md$", NAVIGATION, re.MULTILINE) == ["Errors"]


@pytest.mark.parametrize(
    ("name", "target"),
    [pair for line in INDEX.read_text().splitlines() if line.startswith("| ") for pair in LINK.findall(line)],
)
def test_the_first_page_names_pages_by_their_titles(name: str, target: str) -> None:
    """In its table."""
    assert name == title(DOCS / target)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_no_text_of_a_link_is_the_name_of_a_file(page: Path) -> None:
    """A reader knows pages, not files."""
    assert [name for name, _ in LINK.findall(page.read_text(encoding="utf-8")) if name.endswith(".md")] == []
