"""ApplySummary: what one apply_changes did, in numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mutation_api.commit.manifest import DeltaManifest, FileKind

__all__ = ["ApplySummary"]


@dataclass(frozen=True)
class ApplySummary:
    """What was staged for one table. Nothing of it is visible before the transaction commits.

    Changes are counted as the caller gave them: an update counts once in every format. ``partitions`` are
    sorted escaped names; an unpartitioned table has none. ``buckets`` counts each bucket of each partition,
    ``bytes`` the bytes of the files. ``verify_seconds`` is 0 if the ROW__IDs were not looked up.
    ``write_seconds`` spans evaluating the changes, shuffle, sort and writing.
    """

    table: str
    txn_id: int
    inserted: int
    updated: int
    deleted: int
    partitions: tuple[str, ...]
    buckets: int
    files: int
    bytes: int
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
        """Add up the manifests. A split update has two manifests and counts in its delta only."""
        return cls(
            table=table,
            txn_id=txn_id,
            inserted=sum(m.insert_count for m in manifests),
            updated=sum(m.update_count for m in manifests if m.kind is FileKind.DELTA),
            deleted=sum(m.delete_count for m in manifests),
            partitions=tuple(sorted({m.partition_name for m in manifests if m.partition_name})),
            buckets=len({(m.partition_name, m.bucket_id) for m in manifests}),
            files=len(manifests),
            bytes=sum(m.byte_count for m in manifests),
            verify_seconds=verify_seconds,
            write_seconds=write_seconds,
        )

    @property
    def rows(self) -> int:
        """All changes."""
        return self.inserted + self.updated + self.deleted

    def __str__(self) -> str:
        """One line for a log."""
        verified = f", verified in {self.verify_seconds:.1f} s" if self.verify_seconds else ""
        where = f"{len(self.partitions):,} partitions, " if self.partitions else ""
        return (
            f"{self.table}, transaction {self.txn_id}: {self.inserted:,} inserted, {self.updated:,} updated, "
            f"{self.deleted:,} deleted in {where}{self.buckets:,} buckets, {self.files:,} files, "
            f"{self.bytes:,} bytes; written in {self.write_seconds:.1f} s{verified}"
        )
