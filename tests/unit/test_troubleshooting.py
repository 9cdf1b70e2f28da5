"""docs/troubleshooting.md quotes errors that exist, with words that their messages have."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import metastore_client
import mutation_api
from metastore_client import HiveError
from tests.support.doc_blocks import DOCS, ROOT

PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^### `(\w+)`: (.+)$", PAGE, re.MULTILINE)
CLASSES = sorted(set(re.findall(r"\b[A-Z]\w+Error\b", PAGE)) - {"OSError"})


@functools.cache
def strings_of_the_code() -> str:
    """All strings of both packages. Values that a message inserts are left out."""
    return "\n".join(
        string
        for package in ("mutation_api", "metastore_client")
        for path in sorted((ROOT / package).rglob("*.py"))
        if "_thrift" not in path.parts
        for string in _strings(path)
    )


def _strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("name", CLASSES)
def test_an_error_exists_and_is_public(name: str) -> None:
    """Users can import each class that the page names."""
    modules = [each for each in (mutation_api, metastore_client) if name in each.__all__]
    (found,) = {getattr(each, name) for each in modules}
    assert issubclass(found, HiveError)


@pytest.mark.thorough(1)
@pytest.mark.parametrize(("name", "words"), ENTRIES, ids=[": ".join(each) for each in ENTRIES])
def test_a_message_has_the_words_of_its_heading(name: str, words: str) -> None:
    """If a message is reworded, its heading changes with it."""
    assert words in strings_of_the_code()


def test_each_entry_says_what_to_do() -> None:
    """After its cause, with a link to the page that explains more where there is one."""
    sections = re.split(r"^### .*$", PAGE, flags=re.MULTILINE)[1:]
    assert len(sections) == len(ENTRIES)
    for section in sections:
        cause, advice = section.strip().split("\n\n")[:2]
        assert cause.startswith("**Cause.** ")
        assert advice.startswith("**What to do.** ")
