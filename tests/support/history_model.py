"""Plain Python that replays a log of changes: the rows in the end, and the versions of each key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Change:
    """A change of a key; ``row`` is None for a delete. ``point`` is what orders versions."""

    key: Any
    point: Any
    row: Any


@dataclass(frozen=True)
class Version:
    """A version of a key, or a delete: then ``row`` is None and the interval is empty."""

    key: Any
    row: Any
    first: Any
    last: Any


def current_rows(log: Iterable[Change]) -> Mapping[Any, Any]:
    """The row of each key after all changes."""
    found: dict[Any, Any] = {}
    for change in log:
        found.pop(change.key, None)
        if change.row is not None:
            found[change.key] = change.row
    return found


def versions(log: Iterable[Change]) -> list[Version]:
    """The versions of all keys, in order of keys and points.

    Changes are in the order of the log. One with an earlier point than the change of its key before it begins
    at that point; of several at one point, the last counts.
    """
    by_key: dict[Any, dict[Any, Any]] = {}
    for change in log:
        points = by_key.setdefault(change.key, {})
        points[max([change.point, *points])] = change.row
    found = []
    for key in sorted(by_key):
        points = sorted(by_key[key].items())
        ends = [*(point for point, _ in points[1:]), None]
        found += [
            Version(key, row, point, end if row is not None else point)
            for (point, row), end in zip(points, ends, strict=True)
        ]
    return found
