"""The argument that maps a table of a source to the table that follows it."""

from __future__ import annotations

import argparse
import re

from mutation_api.cli.arguments.list_arguments import listed_names

__all__ = ["TABLE_MAP_FORM", "table_map"]

TABLE_MAP_FORM = "NAME=DB.TABLE[:A,B]"

_FORM = re.compile(r"(?P<source>[^=]+)=(?P<target>[^=:]+)(?::(?P<key>[^=:]+))?")


def table_map(text: str) -> tuple[str, str, tuple[str, ...]]:
    """Type of an argument of TABLE_MAP_FORM: the source's name, the table that follows, and its key columns.

    Raises:
        argparse.ArgumentTypeError: the text has another form.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not {TABLE_MAP_FORM}")
    return found["source"], found["target"], listed_names(found["key"] or "")
