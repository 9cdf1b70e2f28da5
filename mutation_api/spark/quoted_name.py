"""Names of columns as Spark's SQL takes them literally."""

from __future__ import annotations

__all__ = ["quoted"]


def quoted(*parts: str) -> str:
    """A column's name, part by part, such that dots and blanks in it mean nothing."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
