"""MergeReport: what a merge did, or would do, in numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from mutation_api.spark.summary import ApplySummary

__all__ = ["MergeCounts", "MergeReport"]

_BAR_WIDTH = 20
_SHOWN_PARTITIONS = 20


@dataclass(frozen=True)
class MergeCounts:
    """Rows by what became of them. A moved row was deleted in one place and inserted in another, and counts
    here only; where it counts by partition, that is the one it came from.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    moved: int = 0
    unchanged: int = 0

    @property
    def changed(self) -> int:
        """Rows that are written."""
        return self.inserted + self.updated + self.deleted + self.moved

    def __add__(self, other: MergeCounts) -> MergeCounts:
        """Sum, count by count."""
        return MergeCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class MergeReport:
    """What a merge did; of a dry run, what it would do.

    ``partitions`` has the counts by (escaped) partition name, '' for an unpartitioned table.
    ``new_partitions`` will be created by the commit. ``written`` is None for a dry run, and where there was
    nothing to write.
    """

    table: str
    is_dry_run: bool
    partitions: Mapping[str, MergeCounts]
    new_partitions: tuple[str, ...] = ()
    written: ApplySummary | None = None

    @classmethod
    def of(
        cls,
        table: str,
        counts: Iterable[tuple[str, str, int]],
        *,
        is_dry_run: bool,
        new_partitions: Iterable[str] = (),
        written: ApplySummary | None = None,
    ) -> MergeReport:
        """Add up ``counts``: (partition, field of MergeCounts, rows)."""
        found: dict[str, MergeCounts] = {}
        for partition, field, rows in sorted(counts):
            found[partition] = found.get(partition, MergeCounts()) + MergeCounts(**{field: rows})
        return cls(table, is_dry_run, found, tuple(sorted(new_partitions)), written)

    @property
    def total(self) -> MergeCounts:
        """Counts of the whole table."""
        return sum(self.partitions.values(), MergeCounts())

    def to_dict(self) -> dict[str, object]:
        """The report for programs, of JSON's types alone."""
        return {
            "table": self.table,
            "dry_run": self.is_dry_run,
            **vars(self.total),
            "partitions": {name: dict(vars(counts)) for name, counts in self.partitions.items()},
            "new_partitions": list(self.new_partitions),
            "files": self.written.file_count if self.written else 0,
            "bytes": self.written.byte_count if self.written else 0,
        }

    def __str__(self) -> str:
        """A table: a line for the whole, then the partitions with the most changes, each with a bar."""
        verb = "would merge" if self.is_dry_run else "merged"
        lines = [f"{self.table}: {verb} {_described(self.total)}"]
        if set(self.partitions) - {""}:
            ranked = sorted(self.partitions.items(), key=lambda each: (-each[1].changed, each[0]))
            most = max(1, ranked[0][1].changed)
            width = max(len(name) for name, _ in ranked[:_SHOWN_PARTITIONS])
            for name, counts in ranked[:_SHOWN_PARTITIONS]:
                bar = "█" * round(_BAR_WIDTH * counts.changed / most)
                new = " (new)" if name in self.new_partitions else ""
                lines.append(f"  {name:<{width}} {bar:<{_BAR_WIDTH}} {_described(counts)}{new}")
            if len(ranked) > _SHOWN_PARTITIONS:
                lines.append(f"  … and {len(ranked) - _SHOWN_PARTITIONS:,} more partitions")
        return "\n".join(lines)


def _described(counts: MergeCounts) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in vars(counts).items())
