"""Reports of exports: what a run changed in its targets, and the comparison of both sides.

For a comparison, both sides are read to their end and in batches: Hive's files by this library, the target by
the reader of its format. Partitions are identified by the values that readers return, not by directories.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mutation_api.cdc.export.exported_types import exported_batch
from mutation_api.cdc.export.target import Target
from mutation_api.format.row_hash import row_hashes, sum_of_hashes
from mutation_api.read.table_scan import TableScan


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


_Key = tuple[Any, ...]
_MASK = (1 << 64) - 1


def compared(scan: TableScan, target: Target, schema: pa.Schema, position: str) -> VerifiedTable:
    """Compare the rows of a scan with those of a target.

    Args:
        scan: a scan of all columns at the position of the target.
        target: the target, which has been loaded.
        schema: the columns of the target, as the table has them.
        position: the position, for the report.

    Errors of :meth:`TableScan.by_partition` and those of the target's reader are passed on.
    """
    keys = scan.view.table.partition_key_names
    source, found = _Sums(keys), _Sums(keys)
    for _, batch in scan.by_partition():
        source.add(exported_batch(batch, schema))
    for batch in target.read():
        found.add(batch.select(schema.names))
    partitions = [
        ComparedPartition(
            {name: None if value is None else str(value) for name, value in zip(keys, key, strict=True)},
            *source.sums.get(key, (0, 0)),
            *found.sums.get(key, (0, 0)),
        )
        for key in sorted(source.sums.keys() | found.sums.keys(), key=repr)
    ]
    return VerifiedTable(scan.view.table.full_name, target.name, position, tuple(partitions))


class _Sums:
    """The number of rows and the sum of their hashes by the values of the partition columns."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self.sums: dict[_Key, tuple[int, int]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        for key, rows in self._by_key(batch):
            count, total = self.sums.get(key, (0, 0))
            added = sum_of_hashes(row_hashes(rows))
            self.sums[key] = (count + rows.num_rows, (total + added) & _MASK)

    def _by_key(self, batch: pa.RecordBatch) -> Iterator[tuple[_Key, pa.RecordBatch]]:
        columns = [batch.column(name) for name in self._keys]
        if not batch.num_rows:
            return
        if all(len(column.unique()) == 1 for column in columns):
            yield tuple(column[0].as_py() for column in columns), batch
            return
        places: dict[_Key, list[int]] = {}
        for at, key in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
            places.setdefault(key, []).append(at)
        for key, rows in places.items():
            yield key, batch.take(pa.array(rows))
