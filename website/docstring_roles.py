"""Docstrings say ``:class:`Name```, as editors and Sphinx read it; the site shows the name as code."""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["PlainRoles", "without_roles"]

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`~?\.*(?:[\w.]+\.)?([^`.]+)`")


def without_roles(text: str) -> str:
    """A docstring with names alone, without role and module."""
    return _ROLE.sub(r"`\1`", text).replace("``", "`")


class PlainRoles(griffe.Extension):
    """Rewrites the docstring of each object."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object that was loaded."""
        if obj.docstring is not None:
            obj.docstring.value = without_roles(obj.docstring.value)
