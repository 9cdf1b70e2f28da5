"""Fingerprint: what the rows of a source table, and the capture of their changes, depend on. Pure.

Triggers log changes of rows. They do not see an ALTER that changes rows, a table that took the place of
another, or the time in which they were switched off. Each of these leaves a trace in the catalog of the
source. A fingerprint collects the traces. The position in Hive stores the fingerprint of the last extraction,
and the next extraction compares it with the one of its own snapshot.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mutation_api.update.settings import UpdateSettings

__all__ = ["Difference", "Effect", "Fingerprint", "differences"]


class Effect(enum.Enum):
    """What an extraction does about a difference."""

    NONE = "nothing changes in Hive"
    NEW_PARTITION = "the rows of the partition are read"
    COMPARE = "the whole table is compared"


@dataclass(frozen=True)
class Difference:
    """A difference between two fingerprints: what was found, and what is done about it."""

    text: str
    effect: Effect

    def __str__(self) -> str:
        """Both in a line."""
        return f"{self.text}: {self.effect.value}"


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
    def of(cls, values: Mapping[str, Any]) -> Fingerprint:
        """Read what :meth:`to_dict` returned. Raises TypeError, ValueError: it is none."""
        maps = {name: dict(value) for name, value in values.items() if name != "identity"}
        return cls(identity=str(values.get("identity", "")), **maps)


def differences(before: Fingerprint, now: Fingerprint, settings: UpdateSettings) -> list[Difference]:
    """Compare two fingerprints of a table.

    Args:
        before: the one of the last extraction.
        now: the one of this extraction.
        settings: those of the table; they say which columns matter.

    Returns:
        The differences; empty if nothing happened that triggers do not log.
    """
    return [*_of_table(before, now), *_of_columns(before, now, settings), *_of_partitions(before, now)]


def _of_table(before: Fingerprint, now: Fingerprint) -> Iterator[Difference]:
    if before.identity != now.identity:
        text = (
            f"the table was altered, rebuilt or replaced by another one ({before.identity} -> {now.identity})"
        )
        yield Difference(text, Effect.COMPARE)
    # An object that is missing now is refused before, or belonged to a partition that is gone.
    changed = [name for name, version in now.capture.items() if before.capture.get(name, version) != version]
    if changed:
        yield Difference(f"{_shown(changed)}: made again, or switched off for a time", Effect.COMPARE)


def _of_columns(before: Fingerprint, now: Fingerprint, settings: UpdateSettings) -> Iterator[Difference]:
    version = settings.version_column.lower()
    ignored = {name for name in settings.ignored_among(now.columns) if name.lower() != version}
    for name in dict.fromkeys([*before.columns, *now.columns]):
        was, found = before.columns.get(name), now.columns.get(name)
        if was == found:
            continue
        what = "was added" if was is None else "was dropped" if found is None else "was altered"
        is_followed = found is not None and name not in ignored
        yield Difference(f"column {name} {what}", Effect.COMPARE if is_followed else Effect.NONE)


def _of_partitions(before: Fingerprint, now: Fingerprint) -> Iterator[Difference]:
    gone = [name for name in before.partitions if name not in now.partitions]
    stored_anew = [
        name for name, storage in now.partitions.items() if before.partitions.get(name, storage) != storage
    ]
    added = [name for name in now.partitions if name not in before.partitions]
    if stored_anew:
        text = f"emptied, rewritten or attached again: {_shown(stored_anew)}"
        yield Difference(text, Effect.COMPARE)
    if gone:
        yield Difference(f"partitions were removed or replaced: {_shown(gone)}", Effect.COMPARE)
    elif added:
        yield Difference(f"partitions were added: {_shown(added)}", Effect.NEW_PARTITION)


def _shown(names: list[str]) -> str:
    """Up to five of the names."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
