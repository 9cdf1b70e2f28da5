"""The extension of mkdocstrings that shows names in docstrings as code, and the defaults of options.

It follows griffe's own ``unpack_typeddict``, which puts the options of a TypedDict into signatures.
"""

from __future__ import annotations

from typing import Any

import griffe

from website.plain_docstrings import without_roles

_OPTIONS = "mutation_api.merge.clauses.MergeOptions"


class PlainRoles(griffe.Extension):
    """Rewrites the docstring of each object."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object that was loaded."""
        if obj.docstring is not None:
            obj.docstring.value = without_roles(obj.docstring.value)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Called for each function whose options were put into its signature."""
        options = [parameter for parameter in func.parameters if parameter.default == "..."]
        defaults = {each.name: func.modules_collection[_OPTIONS][each.name].value for each in options}
        for parameter in options:
            parameter.default = defaults[parameter.name]
        for section in func.docstring.parsed if defaults and func.docstring else ():
            if section.kind is griffe.DocstringSectionKind.parameters:
                for shown in section.value:
                    shown.description = without_roles(shown.description)
                    shown.value = defaults.get(shown.name, shown.value)
