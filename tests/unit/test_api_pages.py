"""The pages of the Python API show every public name once, and every alias that stands in a signature."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.doc_blocks import ROOT
from website.api_pages import PACKAGES, PAGES, ApiPage, api_pages, public_names
from website.plain_docstrings import without_roles

IN_MEMORY = "metastore_client.testing"
PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.title)
MADE = re.compile(r"\b(?:[Cc]reated|[Mm]ade) by\b|^The result\b")


def imported(name: str) -> object:
    """The object of a full name."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def test_every_public_name_is_on_one_page() -> None:
    """Errors are on their own page; a package of tests has a front door of its own."""
    exported = [each.name for page in PAGES for each in page.exported]
    assert [name for name, count in Counter(exported).items() if count > 1] == []
    public = {name for package in PACKAGES for name in public_names(package)}
    testing = {f"{IN_MEMORY}.{each}" for each in importlib.import_module(IN_MEMORY).__all__}
    assert set(exported) == public | testing


@PAGE
def test_every_name_of_a_page_exists(page: ApiPage) -> None:
    """Where the page says; and a class whose docstring says which call creates it shows no constructor."""
    for shown in (*page.exported, *page.of_signatures):
        summary = (getattr(imported(shown.name), "__doc__", None) or "").partition("\n\n")[0]
        assert shown.mark or not MADE.search(summary), shown.name


@pytest.mark.thorough(1)
@PAGE
def test_aliases_in_signatures_are_on_a_page(page: ApiPage) -> None:
    """A reader who sees ``Condition`` finds out what it is."""
    listed = {each.name for any_page in PAGES for each in any_page.of_signatures}
    for shown in page.exported:
        assert set(aliases(*defined(shown.name))) <= listed, shown.name


def test_pages_are_markdown_of_mkdocstrings() -> None:
    """A section each; a heading is the full name, the table of contents has the last part."""
    pages = dict(api_pages())
    assert len(pages) == len(PAGES) + 1
    text = pages["reference/api/connect.md"]
    assert '\n::: mutation_api.connect\n    options:\n      toc_label: "connect"\n' in text
    assert "[`open_client`][metastore_client.open_client]" in pages["reference/api/index.md"]
    assert "[Errors](../errors.md)" in pages["reference/api/index.md"]


@pytest.mark.parametrize(
    ("docstring", "shown"),
    [
        ("Build it::\n\n    code(a::b)", "Build it:\n\n    code(a::b)"),
        ("Errors.\n\n::\n\n    tree", "Errors.\n\n    tree"),
        ("See :class:`~a.b.C` and ``x``.", "See `C` and `x`."),
    ],
)
def test_docstrings_become_markdown(docstring: str, shown: str) -> None:
    """No double colon is left before code."""
    assert without_roles(docstring) == shown


@functools.cache
def _tree(module: str) -> ast.Module:
    path = ROOT.joinpath(*module.split("."))
    file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    return ast.parse(file.read_text(encoding="utf-8"))


@functools.cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id: node for each in targets if isinstance(each, ast.Name)}
    return found


@functools.cache
def _origins(module: str) -> dict[str, tuple[str, str]]:
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGES)
        for alias in node.names
    }


def defined(name: str) -> tuple[str, str]:
    """Module and name of the definition of what a package exports."""
    package, _, last = name.rpartition(".")
    stub = Path(ROOT, *package.split("."), "__init__.pyi")
    if not stub.exists():
        return _origins(package)[last]
    found = re.search(rf"^from (\.[\w.]*) import {last} as {last}$", stub.read_text("utf-8"), re.MULTILINE)
    assert found is not None, name
    return f"{package}{found[1]}", last


def aliases(module: str, name: str) -> Iterator[str]:
    """Full names of the aliases of this project in the signatures of a definition, without type variables."""
    for annotation in _annotations(_definitions(module)[name]):
        for node in ast.walk(annotation):
            if isinstance(node, ast.Name):
                origin, last = _origins(module).get(node.id, (module, node.id))
                found = _definitions(origin).get(last)
                is_alias = isinstance(found, ast.Assign | ast.AnnAssign)
                if is_alias and "TypeVar(" not in ast.unparse(found):
                    yield f"{origin}.{last}"


def _annotations(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.FunctionDef):
        of_arguments = [each.annotation for each in ast.walk(node.args) if isinstance(each, ast.arg)]
        yield from (each for each in (*of_arguments, node.returns) if each is not None)
    elif isinstance(node, ast.ClassDef):
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and (member.name == "__init__" or member.name[0] != "_"):
                yield from _annotations(member)
            elif isinstance(member, ast.AnnAssign):
                yield member.annotation
