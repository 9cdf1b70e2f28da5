"""ApplySummary: what one apply_changes did, in numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mutation_api.commit.manifest import DeltaManifest, FileKind

__all__ = ["ApplySummary"]


@dataclass(frozen=True)
class ApplySummary:
    """What was staged for one table; none of it is visible before the transaction commits.

    Counts are changes as the caller gave them: an update counts once, whatever the table's format makes of
    it. ``partitions`` are escaped names, sorted; ('',) stands for an unpartitioned table. ``verify_seconds``
    is 0 if the ROW__IDs were not looked up; ``write_seconds`` spans evaluating the changes, shuffle, sort and
    writing.
    """

    table: str
    txn_id: int
    insert_count: int
    update_count: int
    delete_count: int
    partitions: tuple[str, ...]
    group_count: int
    file_count: int
    byte_count: int
    verify_seconds: float
    write_seconds: float

    @classmethod
    def from_manifests(
        cls,
        table: str,
        txn_id: int,
        manifests: Sequence[DeltaManifest],
        *,
        verify_seconds: float,
        write_seconds: float,
    ) -> ApplySummary:
        """Add the manifests up. In a split table an update has two manifests and counts in its delta only."""
        return cls(
            table=table,
            txn_id=txn_id,
            insert_count=sum(m.insert_count for m in manifests),
            update_count=sum(m.update_count for m in manifests if m.kind is FileKind.DELTA),
            delete_count=sum(m.delete_count for m in manifests),
            partitions=tuple(sorted({m.partition_name for m in manifests})),
            group_count=len({(m.partition_name, m.bucket_id) for m in manifests}),
            file_count=len(manifests),
            byte_count=sum(m.byte_count for m in manifests),
            verify_seconds=verify_seconds,
            write_seconds=write_seconds,
        )

    @property
    def row_count(self) -> int:
        """All changes."""
        return self.insert_count + self.update_count + self.delete_count

    def __str__(self) -> str:
        """One line for a log."""
        verified = f", verified in {self.verify_seconds:.1f} s" if self.verify_seconds else ""
        return (
            f"{self.table}, transaction {self.txn_id}: {self.insert_count:,} inserts, {self.update_count:,} "
            "updates, "
            f"{self.delete_count:,} deletes in {len(self.partitions):,} partitions, {self.group_count:,} "
            "buckets, "
            f"{self.file_count:,} files, {self.byte_count:,} bytes; written in {self.write_seconds:.1f} "
            f"s{verified}"
        )
