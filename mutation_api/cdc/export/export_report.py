"""Reports of exports: what a run changed in its targets, and the comparison of both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = [
    "ComparedPartition",
    "CutoverReport",
    "ExportReport",
    "ExportedTable",
    "VerifiedExport",
    "VerifiedTable",
]


@dataclass(frozen=True)
class ExportedTable:
    """The changes of one run in the target of one table.

    Attributes:
        table: ``database.table``.
        target: the address of the target.
        position: the position that the target has reached.
        is_first_copy: True if the target had no rows of the table before.
        is_changed: True if the run made a commit in the target.
        units_replaced: the number of (partition, bucket) pairs whose files were replaced by new ones.
        units_appended: the number of those that got further files.
        units_removed: the number of those whose rows are all gone.
        row_count: the number of rows that were written.
        files_added: the number of new files.
        files_removed: the number of files that are no longer part of the target.
        byte_count: the size of the new files.
        added_columns: the columns that the target got.
        copied_again: the partitions that were copied again because the table's files no longer show what
            changed since the position: after a compaction, an overwrite or a TRUNCATE. '' stands for an
            unpartitioned table.
    """

    table: str
    target: str
    position: str
    is_first_copy: bool
    is_changed: bool
    units_replaced: int = 0
    units_appended: int = 0
    units_removed: int = 0
    row_count: int = 0
    files_added: int = 0
    files_removed: int = 0
    byte_count: int = 0
    added_columns: tuple[str, ...] = ()
    copied_again: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the report as values that JSON can hold."""
        return {
            name.removeprefix("is_"): list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
        }

    def __str__(self) -> str:
        """Return one line, and one for each kind of unusual event."""
        if not self.is_changed:
            return f"{self.table}: {self.target} is up to date"
        what = "first copy" if self.is_first_copy else "changes"
        lines = [
            f"{self.table}: {what} to {self.target}: {self.row_count:,} rows in {self.files_added:,} files; "
            f"{self.files_removed:,} files replaced or removed"
        ]
        if self.added_columns:
            lines.append(f"  new columns: {', '.join(self.added_columns)}")
        if self.copied_again:
            names = ", ".join(name or "the whole table" for name in self.copied_again)
            lines.append(f"  copied again, because the files no longer show the changes: {names}")
        return "\n".join(lines)


@dataclass(frozen=True)
class ExportReport:
    """The result of a run of an export. ``tables`` are in the order in which they were given."""

    tables: tuple[ExportedTable, ...]

    @property
    def is_changed(self) -> bool:
        """True if a target was changed."""
        return any(each.is_changed for each in self.tables)

    def to_dict(self) -> dict[str, object]:
        """Return the report as values that JSON can hold."""
        return {"tables": [each.to_dict() for each in self.tables]}

    def __str__(self) -> str:
        """Return the lines of all tables."""
        return "\n".join(map(str, self.tables))


@dataclass(frozen=True)
class ComparedPartition:
    """The rows of one partition on both sides.

    Attributes:
        values: the values of the partition columns by name; empty for an unpartitioned table.
        source_count: the number of rows in Hive.
        source_hash: the sum of the hashes of these rows.
        target_count: the number of rows in the target.
        target_hash: the sum of the hashes of these rows.
    """

    values: Mapping[str, str | None]
    source_count: int
    source_hash: int
    target_count: int
    target_hash: int

    @property
    def is_equal(self) -> bool:
        """True if both sides have the same rows."""
        return (self.source_count, self.source_hash) == (self.target_count, self.target_hash)

    def to_dict(self) -> dict[str, object]:
        """Return the report as values that JSON can hold."""
        return {
            "partition": dict(self.values),
            "equal": self.is_equal,
            "source": {"row_count": self.source_count, "hash": f"{self.source_hash:016x}"},
            "target": {"row_count": self.target_count, "hash": f"{self.target_hash:016x}"},
        }


@dataclass(frozen=True)
class VerifiedTable:
    """The comparison of a table at the position of its target with that target."""

    table: str
    target: str
    position: str
    partitions: tuple[ComparedPartition, ...]

    @property
    def row_count(self) -> int:
        """The number of rows in Hive."""
        return sum(each.source_count for each in self.partitions)

    @property
    def differences(self) -> tuple[ComparedPartition, ...]:
        """The partitions whose rows differ."""
        return tuple(each for each in self.partitions if not each.is_equal)

    @property
    def is_equal(self) -> bool:
        """True if no partition differs."""
        return not self.differences

    def to_dict(self) -> dict[str, object]:
        """Return the report as values that JSON can hold."""
        return {
            "table": self.table,
            "target": self.target,
            "position": self.position,
            "equal": self.is_equal,
            "row_count": self.row_count,
            "partitions": [each.to_dict() for each in self.partitions],
        }

    def __str__(self) -> str:
        """Return a verdict, and one line for each partition that differs."""
        verdict = "equal" if self.is_equal else f"{len(self.differences)} partitions DIFFER"
        lines = [f"{self.table}: {self.target}: {verdict}; {self.row_count:,} rows at {self.position}"]
        lines += [
            f"  {dict(each.values) or 'the table'}: {each.source_count:,} rows in Hive, "
            f"{each.target_count:,} in the target; hashes {each.source_hash:016x} and {each.target_hash:016x}"
            for each in self.differences
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class VerifiedExport:
    """The result of ``Export.verify``. ``tables`` are in the order in which they were given."""

    tables: tuple[VerifiedTable, ...]

    @property
    def is_equal(self) -> bool:
        """True if all tables are equal to their targets."""
        return all(each.is_equal for each in self.tables)

    def to_dict(self) -> dict[str, object]:
        """Return the report as values that JSON can hold."""
        return {"equal": self.is_equal, "tables": [each.to_dict() for each in self.tables]}

    def __str__(self) -> str:
        """Return the lines of all tables."""
        return "\n".join(map(str, self.tables))


@dataclass(frozen=True)
class CutoverReport:
    """The result of ``Export.cutover``: the last changes, their comparison, and the mark of the tables.

    ``mark`` is the name of the table property that now has the address of the target.
    """

    exported: ExportReport
    verified: VerifiedExport
    mark: str

    @property
    def tables(self) -> Sequence[str]:
        """The tables that were marked."""
        return [each.table for each in self.exported.tables]

    def to_dict(self) -> dict[str, object]:
        """Return the report as values that JSON can hold."""
        return {
            "exported": self.exported.to_dict(),
            "verified": self.verified.to_dict(),
            "mark": self.mark,
        }

    def __str__(self) -> str:
        """Return the lines of both reports, and one for each table that was marked."""
        moved = [
            f"{each.table}: marked with the property {self.mark}={each.target}; readers and writers may "
            "move there"
            for each in self.exported.tables
        ]
        return "\n".join((str(self.exported), str(self.verified), *moved))
