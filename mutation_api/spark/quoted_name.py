"""Quotes column names, so that Spark's SQL takes them literally."""

from __future__ import annotations

__all__ = ["quoted"]


def quoted(*parts: str) -> str:
    """The quoted name of a column from its parts. Dots and blanks in a part have no meaning."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
