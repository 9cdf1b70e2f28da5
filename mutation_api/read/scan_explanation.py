"""ScanExplanation: the parts of a table that a scan reads and leaves out."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

__all__ = ["ScanExplanation"]


@dataclass(frozen=True)
class ScanExplanation:
    """The parts of a table that a scan reads and leaves out. Made by ``TableScan.explain``.

    Attributes:
        table: ``database.table``.
        where: the condition, if there is one.
        partition_count: number of partitions; 1 in an unpartitioned table.
        partitions_read: number of those that may have rows.
        file_count: number of files in these partitions, including those of deletes.
        byte_count: their size.
        stripe_count: number of stripes in these files.
        stripes_read: number of those that may have rows.
        columns: the columns that are read from each of these stripes.
        late_columns: the columns that are read from a stripe only if it has a row that meets the condition.
    """

    table: str
    where: str | None
    partition_count: int
    partitions_read: int
    file_count: int
    byte_count: int
    stripe_count: int
    stripes_read: int
    columns: tuple[str, ...]
    late_columns: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return it as a dict of JSON types only."""
        found = dataclasses.asdict(self)
        return {name: list(each) if isinstance(each, tuple) else each for name, each in found.items()}

    def __str__(self) -> str:
        """Return a few lines."""
        lines = [
            f"{self.table}{f' where {self.where}' if self.where else ''}",
            f"partitions: {self.partitions_read:,} of {self.partition_count:,}",
            f"files in these: {self.file_count:,}, {self.byte_count:,} bytes",
            f"stripes: {self.stripes_read:,} of {self.stripe_count:,}",
            f"columns: {', '.join(self.columns) or 'none'}",
        ]
        if self.late_columns:
            lines.append(f"only from stripes with such rows: {', '.join(self.late_columns)}")
        return "\n".join(lines)
