"""PlannedFiles: the files that a scan reads, and which of their rows count."""

from __future__ import annotations

from dataclasses import dataclass

from metastore_client.valid_ids import RangeValidity, ValidIdList
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.reader.snapshot_split import SnapshotSplit

__all__ = ["PlannedFiles"]


@dataclass(frozen=True)
class PlannedFiles:
    """The files of a scan by partition and bucket, as they were listed.

    Attributes:
        splits: the files.
        valid_ids: the ids whose rows count.
    """

    splits: tuple[SnapshotSplit, ...]
    valid_ids: ValidIdList

    def have_rows_of(self, others: PlannedFiles) -> bool:
        """Whether a scan finds the same rows as one of others: in the same files, which count whole."""
        files = [file for split in self.splits for file in split.files]
        return self.splits == others.splits and all(
            _counts_whole(file, each.valid_ids) for each in (self, others) for file in files
        )


def _counts_whole(file: EventFile, valid_ids: ValidIdList) -> bool:
    is_base = file.kind in (EventFileKind.BASE, EventFileKind.ORIGINAL)
    return is_base or valid_ids.range_validity(file.first, file.last) is RangeValidity.ALL
