"""MergeReport: the counts of a merge that ran or would run, and the partitions whose compaction is due.

A compaction is due in changed partitions that have many delta directories.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

from mutation_api.errors import DirectoryStateError
from mutation_api.format.layout import DeltaDirectory, parse_directory_name
from mutation_api.merge.preview import ForeignLock, Preview, SampleRow
from mutation_api.storage.connect import storage_at
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import AcidTable
from mutation_api.write.forecast import ApplySummary, GroupCount

_BAR_WIDTH = 20
_SHOWN_PARTITIONS = 20
_SHOWN_NAMES = 5
_BIGGEST = 5
_UNITS = ("bytes", "kB", "MB", "GB", "TB")

_Group = TypeVar("_Group")


@dataclass(frozen=True)
class MergeCounts:
    """The numbers of rows per outcome.

    A moved row is deleted from one partition or bucket and inserted into another. It counts only as moved.
    In counts by partition it belongs to the partition that it left.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    moved: int = 0
    unchanged: int = 0

    @property
    def changed(self) -> int:
        """The number of rows that are written."""
        return self.inserted + self.updated + self.deleted + self.moved

    def __add__(self, other: MergeCounts) -> MergeCounts:
        """Add two counts field by field."""
        return MergeCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Share:
    """The share of all changes in one partition, or in one bucket of it if ``bucket`` is set.

    ``row_count`` counts changes as they are written, so a moved row counts twice. ``share`` is between 0 and
    1. ``partition`` is None if the table is not partitioned.
    """

    partition: str | None
    bucket: int | None
    row_count: int
    share: float

    def __str__(self) -> str:
        """Return partition, bucket and percentage."""
        parts = [self.partition] if self.partition else []
        parts += [] if self.bucket is None else [f"bucket {self.bucket}"]
        return f"{', '.join(parts) or 'the table'}: {100 * self.share:.0f} %"


@dataclass(frozen=True)
class MergeReport:
    """The result of a merge, or the expected result (dry run).

    ``total`` holds the counts of the whole table. ``partitions`` holds the counts by (escaped) partition name
    and is empty if the table is not partitioned. The commit creates ``new_partitions``. ``written`` is None
    in a dry run, and if the merge changed nothing. Only a dry run has a ``preview``: the groups to write, the
    locks of other clients, and sample rows. ``counts_by`` holds the counts by the values of the source column
    ``count_by``; rows without a source row count under None. ``compactions_due`` maps partitions with too
    many delta directories to the number of these; '' stands for an unpartitioned table.
    """

    table: str
    is_dry_run: bool
    total: MergeCounts
    partitions: Mapping[str, MergeCounts]
    new_partitions: tuple[str, ...] = ()
    written: ApplySummary | None = None
    preview: Preview | None = None
    counts_by: Mapping[object, MergeCounts] = field(default_factory=dict)
    compactions_due: Mapping[str, int] = field(default_factory=dict)

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
        """Return the report for these counts.

        ``counts`` holds (partition, field of MergeCounts, rows); the partition is '' if the table is not
        partitioned. ``counts_by`` holds (value, field of MergeCounts, rows).
        """
        found = _added(sorted(counts))
        total = sum(found.values(), MergeCounts())
        found.pop("", None)
        new = tuple(sorted(new_partitions))
        return cls(table, is_dry_run, total, found, new, written, preview, _added(counts_by))

    @property
    def file_count(self) -> int:
        """The number of files written, or that would be written in a dry run."""
        if self.written:
            return self.written.file_count
        return self.preview.forecast.file_count if self.preview else 0

    @property
    def byte_count(self) -> int:
        """The number of bytes written. For a dry run, see :mod:`mutation_api.write.forecast`."""
        if self.written:
            return self.written.byte_count
        return self.preview.forecast.byte_count if self.preview else 0

    @property
    def groups(self) -> tuple[GroupCount, ...]:
        """The numbers of changes, ordered by partition and bucket (dry run only)."""
        return self.preview.forecast.groups if self.preview else ()

    @property
    def locks(self) -> tuple[ForeignLock, ...]:
        """The locks of other clients on the partitions that would be written (dry run only)."""
        return self.preview.locks if self.preview else ()

    @property
    def samples(self) -> tuple[SampleRow, ...]:
        """Some rows before and after the merge (dry run only)."""
        return self.preview.samples if self.preview else ()

    @property
    def biggest_partitions(self) -> tuple[Share, ...]:
        """The five partitions with the most changes (dry run only)."""
        rows: dict[str | None, int] = {}
        for group in self.groups:
            rows[group.partition] = rows.get(group.partition, 0) + group.row_count
        return _biggest((name, None, count) for name, count in rows.items())

    @property
    def biggest_buckets(self) -> tuple[Share, ...]:
        """The five buckets with the most changes (dry run only). Each bucket is written by one task."""
        return _biggest((group.partition, group.bucket_id, group.row_count) for group in self.groups)

    def to_dict(self) -> dict[str, object]:
        """Return the report as a dict of JSON types only."""
        return {
            "table": self.table,
            "dry_run": self.is_dry_run,
            **vars(self.total),
            "partitions": {name: dict(vars(counts)) for name, counts in self.partitions.items()},
            "new_partitions": list(self.new_partitions),
            "file_count": self.file_count,
            "byte_count": self.byte_count,
            "biggest_partitions": [
                {name: value for name, value in vars(share).items() if name != "bucket"}
                for share in self.biggest_partitions
            ],
            "biggest_buckets": [dict(vars(share)) for share in self.biggest_buckets],
            "locks": [dict(vars(lock)) for lock in self.locks],
            "samples": [row.to_dict() for row in self.samples],
            "compactions_due": dict(self.compactions_due),
        }

    def __str__(self) -> str:
        """Return the report in readable form.

        One line for the whole table is followed by the partitions with the most changes, each with a bar.
        Files, skew, locks of other clients and samples follow if they are known.
        """
        verb = "would merge" if self.is_dry_run else "merged"
        lines = [f"{self.table}: {verb} {_described(self.total)}"]
        lines += self._partition_lines()
        lines += self._new_partition_lines()
        lines += self._size_lines()
        lines += self._compaction_lines()
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
        """Return the new partitions.

        The list above may lack one, since a moved row is counted in its old partition.
        """
        count = len(self.new_partitions)
        if not count:
            return []
        names = ", ".join(self.new_partitions[:_SHOWN_NAMES]) + (", …" if count > _SHOWN_NAMES else "")
        return [f"  new partitions: {names} ({count:,})" if count > 1 else f"  new partition: {names}"]

    def _size_lines(self) -> list[str]:
        if self.written:
            return [f"  wrote {_files(self.file_count)}, {_bytes(self.byte_count)}"]
        if not self.preview:
            return []
        lines = [f"  would write {_files(self.file_count)}, about {_bytes(self.byte_count)} (estimated)"]
        if len(self.groups) > 1:
            lines.append(f"  biggest: {self.biggest_buckets[0]} of the rows")
        return lines

    def _compaction_lines(self) -> list[str]:
        if not self.compactions_due:
            return []
        most = max(self.compactions_due, key=lambda name: self.compactions_due[name])
        others = len(self.compactions_due) - 1
        also = f" and {others:,} more partitions" if others else ""
        return [
            f"  compaction is due: {most or 'the table'} has {self.compactions_due[most]:,} delta directories"
            f"{also}, all of which every read and merge must open: ALTER TABLE {self.table} "
            + ("PARTITION (…) " if most else "")
            + "COMPACT 'major' in Hive"
        ]


def _added(counts: Iterable[tuple[_Group, str, int]]) -> dict[_Group, MergeCounts]:
    """Add up (group, field of MergeCounts, rows) by group."""
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
    """Format a size with three digits and a decimal unit."""
    size, at = float(count), 0
    while size >= 999.5 and at < len(_UNITS) - 1:
        size, at = size / 1000, at + 1
    digits = 0 if at == 0 or size >= 99.5 else 1
    return f"{size:.{digits}f} {_UNITS[at]}"


DUE_DIRECTORIES = 50
"""The number of delta directories from which a compaction is due.

Hive queues a compaction at ten deltas and needs a few minutes. A merge of one row takes twice as long with
about this many directories (each merge adds two)."""
LOOKED_AT = 20
"""The maximum number of partitions whose directories are listed; those with the most changes are chosen."""


def with_compactions_due(report: MergeReport, table: AcidTable) -> MergeReport:
    """Return the report with the partitions that had too many delta directories before the merge.

    Raises:
        OSError: If a directory cannot be listed.
    """
    counts = report.partitions if table.partition_keys else {"": report.total}
    changed = [name for name, each in counts.items() if each.changed and name not in report.new_partitions]
    ranked = sorted(changed, key=lambda name: -counts[name].changed)[:LOOKED_AT]
    if not ranked:
        return report
    threads = storage_at(table.location).threads
    numbers = side_by_side(lambda name: _delta_directories(table, name), ranked, threads)
    due = {name: each for name, each in zip(ranked, numbers, strict=True) if each >= DUE_DIRECTORIES}
    return dataclasses.replace(report, compactions_due=due) if due else report


def _delta_directories(table: AcidTable, partition: str) -> int:
    location = table.partition_location(partition)
    try:
        names = [each.name for each in storage_at(location).list(location) if each.is_directory]
    except FileNotFoundError:
        return 0
    return sum(_is_delta(name, table) for name in names)


def _is_delta(name: str, table: AcidTable) -> bool:
    try:
        return isinstance(parse_directory_name(name, table.version), DeltaDirectory)
    except DirectoryStateError:
        return False
