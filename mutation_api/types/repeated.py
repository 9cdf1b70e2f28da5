"""Names that occur more than once; in time that is linear in their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

__all__ = ["repeated"]


def repeated(names: Iterable[str], *, any_case: bool = False) -> list[str]:
    """The names that occur more than once, each once, sorted.

    Args:
        names: any number.
        any_case: names that differ in their case alone are the same; all of them are given.
    """
    counts = Counter(names)
    if not any_case:
        return sorted(name for name, count in counts.items() if count > 1)
    lowered: Counter[str] = Counter()
    for name, count in counts.items():
        lowered[name.lower()] += count
    return sorted(name for name in counts if lowered[name.lower()] > 1)
