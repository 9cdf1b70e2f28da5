"""Differences between two fingerprints of a source table, and what an extraction does about them. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from mutation_api.update.fingerprint import Fingerprint
from mutation_api.update.settings import UpdateSettings

__all__ = ["Difference", "Effect", "differences"]


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
