"""Fingerprint: what the rows of a source table, and the capture of their changes, depend on. Pure.

Triggers log changes of rows. They do not see an ALTER that changes rows, a table that took the place of
another, or the time in which they were switched off. Each of these leaves a trace in the catalog of the
source. A fingerprint collects the traces. The position in Hive stores the fingerprint of the last extraction,
and the next extraction compares it with the one of its own snapshot
(:mod:`mutation_api.update.differences`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Fingerprint"]


@dataclass(frozen=True)
class Fingerprint:
    """The state of a source table.

    The values are texts that the database's module makes. They are compared; nothing else is read from them.

    Attributes:
        identity: the table itself; differs if another table has its name.
        columns: by name, what the values of the column depend on.
        partitions: by identifier, the storage of each partition; a table without partitions is one.
        capture: by name, the version of each object that captures changes.
    """

    identity: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, str] = field(default_factory=dict)
    capture: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The same in types of JSON."""
        return dict(vars(self))

    @classmethod
    def of(cls, values: Any) -> Fingerprint:
        """Read what :meth:`to_dict` returned. Raises ValueError: it is none."""
        maps = ("columns", "partitions", "capture")
        if not isinstance(values, dict) or not {*values} <= {"identity", *maps}:
            raise ValueError(f"a fingerprint has identity, {', '.join(maps)}")
        found = [values.get(name, {}) for name in maps]
        texts = [values.get("identity", "")]
        for each in found:
            texts += [*each, *each.values()] if isinstance(each, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a fingerprint has texts only")
        return cls(texts[0], *found)
