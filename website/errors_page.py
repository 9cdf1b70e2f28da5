"""The page of errors: the trees of the modules' docstrings, and what each class says of itself."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

from metastore_client import errors as metastore_errors
from mutation_api import errors
from website.plain_docstrings import without_roles

_HEADS = (
    "Every error of this library: when it is raised, and what to do. Import errors from `mutation_api`.\n"
    "`except HiveError` catches all errors of both packages.\n"
    "A message names table, partition, and what was found and expected.\n",
    "## Errors of the metastore's client\n\n"
    "Import them from `metastore_client`. They are the cause (`__cause__`) of errors of `mutation_api`.\n"
    "Commands and calls of `hive.metastore` raise them unchanged.\n",
)


def errors_page() -> str:
    """Markdown: each tree, and behind it each class with its parent and its docstring."""
    parts = ["# Errors\n"]
    for head, module in zip(_HEADS, (errors, metastore_errors), strict=True):
        tree = _tree(module)
        names = re.findall(r"\b[A-Z]\w+Error\b", tree)
        parts += [head, f"```text\n{tree}\n```\n", *(_section(module, name) for name in names)]
    return "\n".join(parts)


def _tree(module: ModuleType) -> str:
    found = re.search(r"::\n\n(.*?)\n\n(?=\S)", inspect.getdoc(module) or "", re.DOTALL)
    assert found is not None, module
    # the names alone: what they mean stands below
    return re.sub(r"Error\b {2,}.*", "Error", inspect.cleandoc(found[1]))


def _section(module: ModuleType, name: str) -> str:
    error = getattr(module, name)
    parents = [each.__name__ for each in error.__bases__ if each is not Exception]
    told = without_roles(inspect.getdoc(error) or "").replace("How to fix:", "**How to fix:**")
    links = " and a ".join(f"[`{parent}`](#{parent.lower()})" for parent in parents)
    what = f"\nA {links}.\n" if links else ""
    # signatures link to the full names
    anchors = "\n".join(
        f"[](){{#{each}.{name}}}" for each in (module.__name__, module.__name__.partition(".")[0])
    )
    return f"{anchors}\n\n### {name}\n{what}\n{told}\n"
