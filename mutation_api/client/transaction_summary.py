"""TransactionSummary: what a transaction did, for people and for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mutation_api.commit.manifest import DeltaManifest, FileKind

__all__ = ["TableSummary", "TransactionSummary"]

_HEADINGS = ("table", "partitions", "created", "inserted", "updated", "deleted", "files", "bytes")


@dataclass(frozen=True)
class TableSummary:
    """What was written to one table. Rows are counted by the operations that the user issued."""

    table: str
    partitions_touched: tuple[str, ...] = ()
    partitions_created: tuple[str, ...] = ()
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    files: int = 0
    bytes: int = 0

    @classmethod
    def of(
        cls,
        table: str,
        manifests: Sequence[DeltaManifest],
        partitions_created: tuple[str, ...] = (),
    ) -> TableSummary:
        """Add up the manifests of one table."""
        # A layout with split updates counts an update in both files; the delta has it in every layout.
        deltas = [m for m in manifests if m.kind is FileKind.DELTA]
        return cls(
            table=table,
            partitions_touched=tuple(sorted({m.partition_name for m in manifests if m.partition_name})),
            partitions_created=partitions_created,
            inserted=sum(m.insert_count for m in manifests),
            updated=sum(m.update_count for m in deltas),
            deleted=sum(m.delete_count for m in manifests),
            files=len(manifests),
            bytes=sum(m.byte_count for m in manifests),
        )


@dataclass(frozen=True)
class TransactionSummary:
    """What a transaction did; ``str()`` prints it as a table.

    ``phase_seconds`` holds the seconds of ``begin`` (including the wait for the lock), ``work`` (between
    begin and commit), ``publish`` and ``commit``, as far as they were reached.
    """

    txn_id: int | None
    state: str
    tables: tuple[TableSummary, ...] = ()
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    lock_wait_seconds: float = 0.0
    roll_overs: int = 0

    def to_dict(self) -> dict[str, object]:
        """The same as plain values, ready for JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """Print the summary."""
        rows = [_HEADINGS, *(_row(t) for t in self.tables)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADINGS))]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        return "\n".join([self._head(), *lines, self._foot()])

    def _head(self) -> str:
        name = "not begun" if self.txn_id is None else str(self.txn_id)
        return f"transaction {name}: {self.state}"

    def _foot(self) -> str:
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.phase_seconds.items())
        waited = (
            f"; waited {self.lock_wait_seconds:.2f} for the lock" if self.lock_wait_seconds >= 0.1 else ""
        )
        rolled = f"; rolled over {self.roll_overs} times" if self.roll_overs else ""
        return f"seconds: {phases or 'none'}{waited}{rolled}"


def _row(table: TableSummary) -> tuple[str, ...]:
    numbers = (
        len(table.partitions_touched),
        len(table.partitions_created),
        table.inserted,
        table.updated,
        table.deleted,
        table.files,
        table.bytes,
    )
    return (table.table, *(f"{n:,}" for n in numbers))
