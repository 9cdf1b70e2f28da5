"""What to say about a column that is the index of a DataFrame of pandas."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["index_advice"]

_INDEX = re.compile(r"__index_level_\d+__", re.A | re.I)
"""How pandas and pyarrow call an index without a name; one that only numbers the rows is no column."""


def index_advice(names: Iterable[str]) -> str:
    """What ends the message on unknown columns of these names; empty if none is pandas' index."""
    found = [name for name in names if _INDEX.fullmatch(name)]
    if not found:
        return ""
    return (
        f". {', '.join(found)} is the index of a DataFrame of pandas, as is left by a filter: "
        "reset_index(drop=True) drops it"
    )
