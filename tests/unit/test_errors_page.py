"""The page of errors tells of each class when it comes and what to do."""

from __future__ import annotations

import inspect
import pickle
import re
from types import ModuleType

import pytest

import metastore_client.errors
import mutation_api.errors
from metastore_client import HiveError
from website.errors_page import errors_page

LEAST_WORDS = 4
CLASSES = [
    (module, name)
    for module in (mutation_api.errors, metastore_client.errors)
    for name in module.__all__
    if name.endswith("Error")
]


@pytest.mark.parametrize(("module", "name"), CLASSES, ids=[name for _, name in CLASSES])
def test_a_class_says_what_to_do(module: ModuleType, name: str) -> None:
    """In the last paragraph of its docstring, and in its section of the page."""
    paragraphs = (inspect.getdoc(getattr(module, name)) or "").split("\n\n")
    (advice,) = [each for each in paragraphs if each.startswith("How to fix: ")]
    assert len(paragraphs) > 1
    assert advice == paragraphs[-1]
    assert len(advice.split()) > LEAST_WORDS + 3
    section = errors_page().partition(f"\n### {name}\n")[2].partition("\n### ")[0]
    assert paragraphs[0].split("``")[0] in section
    assert "**How to fix:**" in section


def test_the_page_has_no_roles_of_docstrings() -> None:
    """Names are shown as code."""
    assert "``" not in errors_page().replace("```", "")
    assert ":class:" not in errors_page()


@pytest.mark.parametrize(("module", "name"), CLASSES, ids=[name for _, name in CLASSES])
def test_one_root_for_both_packages(module: ModuleType, name: str) -> None:
    """Each class is below HiveError, and survives the way from a worker."""
    error = getattr(module, name)("a message")
    assert isinstance(error, HiveError)
    assert issubclass(mutation_api.HiveError, HiveError)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), "a message")


@pytest.mark.parametrize("module", [mutation_api.errors, metastore_client.errors])
def test_the_tree_shows_the_parents(module: ModuleType) -> None:
    """The first parent of each class; a second one is in the text beside it."""
    path: list[str] = []
    found = {}
    for indent, name in re.findall(r"^    ([ │├└─]*)(\w+Error)\b", module.__doc__ or "", re.MULTILINE):
        path = [*path[: len(indent) // 4 if not indent else (len(indent) + 3) // 4], name]
        found[name] = path[-2] if len(path) > 1 else None
    roots = {"HiveError": None, "MutationError": None}
    shown = [(each, name) for each, name in CLASSES if each is module and name in found]
    assert len(shown) == len(found)
    for _, name in shown:
        assert roots.get(name, getattr(module, name).__bases__[0].__name__) == found[name]
