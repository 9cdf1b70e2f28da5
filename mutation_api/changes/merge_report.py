"""MergeReport: what a merge did, or would do, in numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

from mutation_api.changes.preview import ForeignLock, Preview, SampleRow
from mutation_api.spark.write.apply_summary import ApplySummary
from mutation_api.spark.write.forecast import GroupCount

__all__ = ["MergeCounts", "MergeReport", "Share"]

_BAR_WIDTH = 20
_SHOWN_PARTITIONS = 20
_SHOWN_NAMES = 5
_BIGGEST = 5
_UNITS = ("bytes", "kB", "MB", "GB", "TB")

_Group = TypeVar("_Group")


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
class Share:
    """What of all changes falls to one partition, or with ``bucket`` to one bucket of it.

    ``rows`` are changes as they are written: a moved row is two. ``share`` is in 0 to 1. ``partition`` is
    None if the table is not partitioned.
    """

    partition: str | None
    bucket: int | None
    rows: int
    share: float

    def __str__(self) -> str:
        """Where and how much."""
        parts = [self.partition] if self.partition else []
        parts += [] if self.bucket is None else [f"bucket {self.bucket}"]
        return f"{', '.join(parts) or 'the table'}: {100 * self.share:.0f} %"


@dataclass(frozen=True)
class MergeReport:
    """What a merge did; of a dry run, what it would do.

    ``total`` has the counts of the whole table, ``partitions`` those by (escaped) partition name; it is empty
    if the table is not partitioned.
    ``new_partitions`` will be created by the commit. ``written`` is None for a dry run, and where there was
    nothing to write. ``preview`` is there for a dry run: the writer's groups, other people's locks, samples.
    ``counts_by`` has the counts by the values of the source's column that ``count_by`` named; those of rows
    of the table alone under None.
    """

    table: str
    is_dry_run: bool
    total: MergeCounts
    partitions: Mapping[str, MergeCounts]
    new_partitions: tuple[str, ...] = ()
    written: ApplySummary | None = None
    preview: Preview | None = None
    counts_by: Mapping[object, MergeCounts] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        table: str,
        counts: Iterable[tuple[str, str, int]],
        *,
        is_dry_run: bool,
        new_partitions: Iterable[str] = (),
        written: ApplySummary | None = None,
        preview: Preview | None = None,
        counts_by: Iterable[tuple[object, str, int]] = (),
    ) -> MergeReport:
        """Add up ``counts``: (partition, field of MergeCounts, rows), the partition '' if the table has none;
        and ``counts_by`` by its first.
        """
        found = _added(sorted(counts))
        total = sum(found.values(), MergeCounts())
        found.pop("", None)
        new = tuple(sorted(new_partitions))
        return cls(table, is_dry_run, total, found, new, written, preview, _added(counts_by))

    @property
    def files(self) -> int:
        """Files written; of a dry run, those that would be."""
        if self.written:
            return self.written.files
        return self.preview.forecast.files if self.preview else 0

    @property
    def bytes(self) -> int:
        """Bytes written; of a dry run, an estimate (see :mod:`mutation_api.spark.write.forecast`)."""
        if self.written:
            return self.written.bytes
        return self.preview.forecast.bytes if self.preview else 0

    @property
    def groups(self) -> tuple[GroupCount, ...]:
        """Of a dry run: changes by partition and bucket, in that order."""
        return self.preview.forecast.groups if self.preview else ()

    @property
    def locks(self) -> tuple[ForeignLock, ...]:
        """Of a dry run: locks of others on the partitions that would be written."""
        return self.preview.locks if self.preview else ()

    @property
    def samples(self) -> tuple[SampleRow, ...]:
        """Of a dry run: some rows before and after."""
        return self.preview.samples if self.preview else ()

    @property
    def biggest_partitions(self) -> tuple[Share, ...]:
        """Of a dry run: the five partitions with the most changes."""
        rows: dict[str | None, int] = {}
        for group in self.groups:
            rows[group.partition] = rows.get(group.partition, 0) + group.rows
        return _biggest((name, None, count) for name, count in rows.items())

    @property
    def biggest_buckets(self) -> tuple[Share, ...]:
        """Of a dry run: the five buckets with the most changes; each is written by one task."""
        return _biggest((group.partition, group.bucket_id, group.rows) for group in self.groups)

    def to_dict(self) -> dict[str, object]:
        """The report for programs, of JSON's types alone."""
        return {
            "table": self.table,
            "dry_run": self.is_dry_run,
            **vars(self.total),
            "partitions": {name: dict(vars(counts)) for name, counts in self.partitions.items()},
            "new_partitions": list(self.new_partitions),
            "files": self.files,
            "bytes": self.bytes,
            "biggest_partitions": [
                {name: value for name, value in vars(share).items() if name != "bucket"}
                for share in self.biggest_partitions
            ],
            "biggest_buckets": [dict(vars(share)) for share in self.biggest_buckets],
            "locks": [dict(vars(lock)) for lock in self.locks],
            "samples": [row.to_dict() for row in self.samples],
        }

    def __str__(self) -> str:
        """A table: a line for the whole, then the partitions with the most changes, each with a bar; then
        files, skew, locks of others and samples, as far as they are known.
        """
        verb = "would merge" if self.is_dry_run else "merged"
        lines = [f"{self.table}: {verb} {_described(self.total)}"]
        lines += self._partition_lines()
        lines += self._new_partition_lines()
        lines += self._size_lines()
        lines += [f"  lock: {lock}" for lock in self.locks]
        lines += [f"  {row}" for row in self.samples]
        return "\n".join(lines)

    def _partition_lines(self) -> list[str]:
        if not self.partitions:
            return []
        ranked = sorted(self.partitions.items(), key=lambda each: (-each[1].changed, each[0]))
        shown = ranked[:_SHOWN_PARTITIONS]
        most = max(1, ranked[0][1].changed)
        width = max(len(name) for name, _ in shown)
        lines = []
        for name, counts in shown:
            bar = "█" * round(_BAR_WIDTH * counts.changed / most)
            new = " (new)" if name in self.new_partitions else ""
            lines.append(f"  {name:<{width}} {bar:<{_BAR_WIDTH}} {_described(counts)}{new}")
        if len(ranked) > len(shown):
            lines.append(f"  … and {len(ranked) - len(shown):,} more partitions")
        return lines

    def _new_partition_lines(self) -> list[str]:
        """Rows that move count where they come from, so a new partition may have no line of its own."""
        count = len(self.new_partitions)
        if not count:
            return []
        names = ", ".join(self.new_partitions[:_SHOWN_NAMES]) + (", …" if count > _SHOWN_NAMES else "")
        return [f"  new partitions: {names} ({count:,})" if count > 1 else f"  new partition: {names}"]

    def _size_lines(self) -> list[str]:
        if self.written:
            return [f"  wrote {_files(self.files)}, {_bytes(self.bytes)}"]
        if not self.preview:
            return []
        lines = [f"  would write {_files(self.files)}, about {_bytes(self.bytes)} (estimated)"]
        if len(self.groups) > 1:
            lines.append(f"  biggest: {self.biggest_buckets[0]} of the rows")
        return lines


def _added(counts: Iterable[tuple[_Group, str, int]]) -> dict[_Group, MergeCounts]:
    """Sums of (group, field of MergeCounts, rows) by group."""
    found: dict[_Group, MergeCounts] = {}
    for group, kind, rows in counts:
        found[group] = found.get(group, MergeCounts()) + MergeCounts(**{kind: rows})
    return found


def _biggest(counts: Iterable[tuple[str | None, int | None, int]]) -> tuple[Share, ...]:
    ranked = sorted(counts, key=lambda each: (-each[2], each[0] or "", each[1] or 0))
    total = sum(rows for _, _, rows in ranked)
    return tuple(Share(name, bucket, rows, rows / total) for name, bucket, rows in ranked[:_BIGGEST])


def _described(counts: MergeCounts) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in vars(counts).items())


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def _bytes(count: int) -> str:
    """With three digits and a unit of a thousand of the one before."""
    size, at = float(count), 0
    while size >= 999.5 and at < len(_UNITS) - 1:
        size, at = size / 1000, at + 1
    digits = 0 if at == 0 or size >= 99.5 else 1
    return f"{size:.{digits}f} {_UNITS[at]}"
