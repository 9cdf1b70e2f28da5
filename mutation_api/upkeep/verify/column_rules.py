"""Rules on the names of a file's columns. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

__all__ = ["misspelled"]

_NAMELESS = re.compile(r"_col[0-9]+")


def misspelled(
    in_file: Sequence[str], in_table: Sequence[str], *, by_position: bool
) -> Iterator[tuple[str, str]]:
    """Columns that Hive reads as NULL, or as another column, because of their names.

    Columns that the file does not have (added since), that the table does not have any more, and names
    ``_col0``, ``_col1``, … are fine.

    Yields:
        What was found and what is expected.
    """
    if all(_NAMELESS.fullmatch(name) for name in in_file):
        return
    known = set(in_table)
    for name in in_file:
        if name not in known and name.lower() in known and not by_position:
            yield f"column {name!r}", f"{name.lower()!r}: Hive reads NULL from the other spelling"
            return
    if by_position:
        both = zip((n.lower() for n in in_file), in_table, strict=False)
        for found, expected in both:
            if found != expected and found in known and expected in {n.lower() for n in in_file}:
                yield (
                    f"column {found!r} at the place of {expected!r}",
                    "the table's order: Hive goes by place",
                )
                return
