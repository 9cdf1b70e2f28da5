"""The page of errors: the tree of the module's docstring, and what each class says of itself."""

from __future__ import annotations

import inspect
import re

from mutation_api import errors
from website.docstring_roles import without_roles

__all__ = ["errors_page"]


def errors_page() -> str:
    """Markdown: the tree, then each class with its parent and its docstring."""
    tree = re.search(r"::\n\n(.*?)\n\n(?=\S)", inspect.getdoc(errors) or "", re.DOTALL)
    assert tree is not None
    parts = [
        "# Errors\n",
        "Every error of this library. One `except MutationError` catches all of them; errors of the\n"
        "metastore have a tree of their own, `metastore_client.MetastoreError`, and are the cause of ours.\n",
        f"```text\n{inspect.cleandoc(tree[1])}\n```\n",
    ]
    parts += [_section(name) for name in _names()]
    return "\n".join(parts)


def _names() -> list[str]:
    """The classes in the order of the tree."""
    tree = (inspect.getdoc(errors) or "").partition("Metastore errors")[0]
    return [name for name in re.findall(r"\b[A-Z]\w+Error\b", tree) if name in errors.__all__]


def _section(name: str) -> str:
    error = getattr(errors, name)
    parent = error.__mro__[1].__name__
    told = without_roles(inspect.getdoc(error) or "")
    what = "" if parent == "Exception" else f"\nA [`{parent}`](#{parent.lower()}).\n"
    return f"## {name}\n{what}\n{told}\n"
