"""The units of an export: the rows of one bucket of one partition, and the plan of which have changed. Pure.

A unit is the set of files of a target that hold the rows of one (partition, bucket). If rows of a unit were
deleted or updated, the files that have them are rewritten. If rows were only added, a file with them is
added. All that a plan needs is in the names of the files that the snapshot reads, so a compaction, an
overwrite or a dropped partition since the last position does not make a position unusable: the units whose
history is no longer known are replaced too.

An added file is only right if Hive still has the rows that the target has. TRUNCATE and DROP PARTITION of
some releases remove files without a transaction. They remove all files of a partition, so a unit without any
file from before the position is replaced. So is a unit without a file in the target: a partition may have
been attached with its files.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metastore_client.valid_ids import RangeValidity, ValidIdList
from mutation_api.format.directory_state import first_missing
from mutation_api.format.layout import AcidVersion, BaseDirectory, parse_directory_name
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.read.partition_plan import SnapshotSplit

FILES_PER_UNIT = 32
"""A unit with this many files is replaced by one with few files, instead of getting another one."""

_UNPARTITIONED = "all"
_PATH = re.compile(r"(?:^|/)([0-9a-z]+)/(-?[0-9]+)-[0-9a-f]{32}\.parquet$")


@dataclass(frozen=True, order=True)
class Unit:
    """The identity of a unit, which is in the names of its files.

    Attributes:
        tag: a hash of the (escaped) name of Hive's partition. Names may be long, and have characters that
            stores treat in different ways.
        bucket_id: the bucket; -1 for plain files without one.
    """

    tag: str
    bucket_id: int

    @classmethod
    def of(cls, partition_name: str, bucket_id: int) -> Unit:
        """Return the unit of a bucket of a partition; '' is the name in an unpartitioned table."""
        tag = hashlib.sha256(partition_name.encode()).hexdigest()[:16] if partition_name else _UNPARTITIONED
        return cls(tag, bucket_id)

    @classmethod
    def of_path(cls, path: str) -> Unit | None:
        """Return the unit of a file of a target. None if an export did not write the file."""
        found = _PATH.search(path)
        return None if found is None else cls(found[1], int(found[2]))

    def path(self, file_id: str) -> str:
        """Return the path of a file below the target's directory. ``file_id``: 32 hexadecimal digits."""
        return f"{self.tag}/{self.bucket_id}-{file_id}.parquet"


class UnitChange(enum.Enum):
    """The change of a unit of the target.

    REPLACE: its files are replaced by the rows of the snapshot. REWRITE: deleted rows are left out of those
    of its files that have any, and new rows are added. APPEND: new rows are added. REMOVE: its files are
    removed.
    """

    REPLACE = "replace"
    REWRITE = "rewrite"
    APPEND = "append"
    REMOVE = "remove"


@dataclass(frozen=True)
class UnitPlan:
    """The work on one unit.

    Attributes:
        unit: the unit.
        change: its change.
        partition_name: the (escaped) name of its partition; None if the unit is no longer in Hive.
        splits: what the snapshot reads of it.
        is_gap: True if it is replaced only because the files no longer show what changed.
    """

    unit: Unit
    change: UnitChange
    partition_name: str | None
    splits: tuple[SnapshotSplit, ...] = ()
    is_gap: bool = False


def plan_units(
    splits: Sequence[SnapshotSplit],
    before: ValidIdList | None,
    after: ValidIdList,
    version: AcidVersion,
    existing: Mapping[Unit, int],
) -> list[UnitPlan]:
    """Return the units of a target that must change.

    Args:
        splits: what the snapshot reads of the table.
        before: the ids that the target has seen. If None, all units are replaced.
        after: the ids that the snapshot sees.
        version: the layout of the table.
        existing: the number of files of each unit of the target.
    """
    found: dict[Unit, list[SnapshotSplit]] = defaultdict(list)
    for split in splits:
        found[Unit.of(split.partition_name, split.bucket_id)].append(split)
    plans = [UnitPlan(unit, UnitChange.REMOVE, None) for unit in sorted(existing.keys() - found.keys())]
    missing = None if before is None else first_missing(before, after)
    for unit, of_unit in found.items():
        change: UnitChange | None = UnitChange.REPLACE
        is_gap = False
        if before is not None:
            rules = _Rules(before, after, missing, version)
            change, is_gap = rules.change(of_unit, existing.get(unit, 0))
        if change is not None:
            plans.append(UnitPlan(unit, change, of_unit[0].partition_name, tuple(of_unit), is_gap))
    return plans


@dataclass(frozen=True)
class _Rules:
    """The rules by which the files of a unit show what happened to it since a position."""

    before: ValidIdList
    after: ValidIdList
    missing: int | None
    version: AcidVersion

    def change(self, splits: Sequence[SnapshotSplit], file_count: int) -> tuple[UnitChange | None, bool]:
        """Return the change of a unit, None if there is none, and True if its history is not known."""
        files = [file for split in splits for file in split.files]
        if not file_count:
            return UnitChange.REPLACE, False
        if not any(map(self._may_hold_old_rows, files)):
            return UnitChange.REPLACE, True
        if self.missing is None:
            return None, False
        if any(self._spans(split, file) for split in splits for file in split.files):
            return UnitChange.REPLACE, True
        new = [file for file in files if self._may_hold_new_events(file)]
        if not new:
            return None, False
        has_deletes = any(file.kind is EventFileKind.DELETE_DELTA for file in new)
        in_place = self.version.has_row_ids and not self.version.splits_updates
        if in_place or file_count >= FILES_PER_UNIT or (has_deletes and len(splits) > 1):
            return UnitChange.REPLACE, False
        return UnitChange.REWRITE if has_deletes else UnitChange.APPEND, False

    def _may_hold_old_rows(self, file: EventFile) -> bool:
        if file.kind is EventFileKind.DELETE_DELTA:
            return False
        return file.first == 0 or self.before.range_validity(file.first, file.last) is not RangeValidity.NONE

    def _may_hold_new_events(self, file: EventFile) -> bool:
        return (
            file.is_of_delta
            and self.before.range_validity(file.first, file.last) is not RangeValidity.ALL
            and self.after.range_validity(file.first, file.last) is not RangeValidity.NONE
        )

    def _spans(self, split: SnapshotSplit, file: EventFile) -> bool:
        """Return True if a file holds old and new rows together, or a base without what it replaced."""
        assert self.missing is not None
        relative = (
            file.location.relative_to(split.location) if file.location.is_within(split.location) else ""
        )
        name = relative.split("/", 1)[0]
        directory = parse_directory_name(name, self.version) if name else None
        if isinstance(directory, BaseDirectory):
            return directory.last >= self.missing
        if self.version.has_row_ids or file.first == file.last:
            return False
        return self.before.range_validity(file.first, file.last) is RangeValidity.SOME
