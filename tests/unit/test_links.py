"""Links of pages lead somewhere: to a file, a heading, or a page that the site makes from the code."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from mutation_api.cli.main import SUBCOMMANDS
from tests.support.doc_blocks import DOCS, README, ROOT

PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
OUTSIDE = ("http://", "https://", "mailto:")


def prose(page: Path) -> str:
    """The text without its code."""
    return CODE.sub("", page.read_text(encoding="utf-8"))


@functools.cache
def made_pages() -> frozenset[Path]:
    """Pages that the site makes (website/hooks.py)."""
    names = [
        "errors.md",
        "commands/index.md",
        "api/index.md",
        *(f"commands/{each}.md" for each in SUBCOMMANDS),
    ]
    return frozenset(DOCS / "reference" / name for name in names)


def anchors(page: Path) -> set[str]:
    """The headings as links name them."""
    headings = HEADING.findall(
        re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    )
    words = (re.sub(r"[^\w\s-]", "", each.lower()).strip() for each in headings)
    return {re.sub(r"[-\s]+", "-", each) for each in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Pages of the site link to pages of the site alone."""
    wrong = []
    for link in LINK.findall(prose(page)):
        if link.startswith(OUTSIDE):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        is_there = target in made_pages() or (
            target.exists() and (DOCS in target.parents or DOCS not in page.parents)
        )
        if not is_there or (anchor and target.exists() and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []


def test_every_page_is_in_the_navigation() -> None:
    """Of the site, and linked from its first page or from one that is."""
    settings = (ROOT / "website" / "mkdocs.yml").read_text(encoding="utf-8")
    assert [
        str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md") if str(p.relative_to(DOCS)) not in settings
    ] == []
