"""Docstrings say ``:class:`Name```, as editors and Sphinx read it; the site shows the name as code."""

from __future__ import annotations

import re

__all__ = ["without_roles"]

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`~?\.*(?:[\w.]+\.)?([^`.]+)`")


def without_roles(text: str) -> str:
    """A docstring with names alone, without role and module."""
    return _ROLE.sub(r"`\1`", text).replace("``", "`")
