"""ids_at: which ids a table had at a moment, as far as its files tell. Pure.

No call of the metastore says when a transaction committed. What is known is when files were written: those
of one id shortly before its commit, those of a compaction after the commits of all ids in it. So an id counts
as there at a moment if its files had been written. A transaction that wrote before the moment and committed
after it counts too early, by the time it took to commit. Clocks are the storage's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metastore_client.valid_ids import ValidIdList
from mutation_api.acid.layout import BaseDirectory, DeltaDirectory
from mutation_api.acid.version import AcidVersion

__all__ = ["TimedDirectory", "UnknownTime", "ids_at"]


@dataclass(frozen=True)
class TimedDirectory:
    """A base or delta, and when the youngest of its files was written, in seconds since 1970.

    ``is_compacted_base``: a compaction made the base; otherwise an overwrite.
    """

    directory: BaseDirectory | DeltaDirectory
    written: float
    is_compacted_base: bool = False

    def tells_time_of_id(self, version: AcidVersion) -> bool:
        """Whether its files were written by the transaction of one id, and by no compaction."""
        directory = self.directory
        if isinstance(directory, BaseDirectory):
            return not self.is_compacted_base
        if directory.first != directory.last or directory.compaction_txn:
            return False
        # Before Hive 4 a compaction of several statements of one id is named like this, too.
        return directory.statement_id is not None or version.is_hive_4

    @property
    def first(self) -> int:
        """The lowest id that it may hold."""
        return self.directory.first if isinstance(self.directory, DeltaDirectory) else 1


class UnknownTime(Exception):
    """A directory holds ids whose times it does not tell; its files were written after the moment."""

    def __init__(self, directory: TimedDirectory) -> None:
        super().__init__(directory.directory.name)
        self.directory = directory


def ids_at(
    moment: float, directories: Iterable[TimedDirectory], valid: ValidIdList, version: AcidVersion
) -> ValidIdList:
    """The ids of a table that were there at a moment: those of the list, but for those written later.

    Args:
        moment: seconds since 1970.
        directories: all bases and deltas of all partitions that the list's snapshot may read.
        valid: the ids that are there now.
        version: the layout of the table.

    Raises:
        UnknownTime: which ids they are is not known any more. Of several directories it has the youngest.
    """
    late: set[int] = set()
    known: set[int] = set()
    vague: list[TimedDirectory] = []
    for each in directories:
        if each.tells_time_of_id(version):
            known.add(each.directory.last)
            if each.written > moment:
                late.add(each.directory.last)
        elif each.written > moment:
            vague.append(each)
    unknown = [each for each in vague if _holds_unknown(each, known, valid)]
    if unknown:
        raise UnknownTime(max(unknown, key=lambda each: each.written))
    return valid.without(late)


def _holds_unknown(each: TimedDirectory, known: set[int], valid: ValidIdList) -> bool:
    """Whether a directory may hold a committed id that no other directory tells the time of."""
    last = min(each.directory.last, valid.high_watermark)
    invalid = sum(1 for id in valid.exceptions if each.first <= id <= last)
    told = sum(1 for id in known if each.first <= id <= last and valid.is_valid(id))
    return last - each.first + 1 - invalid - told > 0
