"""The extension of mkdocstrings that shows names in docstrings as code."""

from __future__ import annotations

from typing import Any

import griffe

from website.plain_docstrings import without_roles

__all__ = ["PlainRoles"]


class PlainRoles(griffe.Extension):
    """Rewrites the docstring of each object."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object that was loaded."""
        if obj.docstring is not None:
            obj.docstring.value = without_roles(obj.docstring.value)
