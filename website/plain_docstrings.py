"""Docstrings as Markdown: names as code instead of ``:class:`Name```, one colon before code, not two."""

from __future__ import annotations

import re

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`~?\.*(?:[\w.]+\.)?([^`.]+)`")
_LITERAL = re.compile(r"::$", re.MULTILINE)
_LONE_LITERAL = re.compile(r"^ *::\n\n?", re.MULTILINE)


def without_roles(text: str) -> str:
    """Return a docstring with names alone, without roles, modules and the marks of literal blocks."""
    names = _ROLE.sub(r"`\1`", text).replace("``", "`")
    return _LITERAL.sub(":", _LONE_LITERAL.sub("", names))
