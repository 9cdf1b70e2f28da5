"""The settings of a compaction by this library, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from metastore_client.model import CompactionType
from mutation_api.errors import ConfigurationError
from mutation_api.format.event import MAX_BUCKETS
from mutation_api.table.acid_table import WriterOptions


@dataclass(frozen=True)
class CompactionSettings:
    """The settings of a compaction.

    Attributes:
        threads: number of files that are written at once. Each holds a stripe of each of its old files.
        options: stripe size and compression of the new files.
        up_to: the highest id to compact. If None, all ids that have ended.
        keep_old: how long to keep the old files, so that a restore can bring them back. If None, they are not
            kept.
        num_buckets: the number of files of a rebalance. If None, as many as there are.
        sort_by: columns by which a rebalance sorts rows. See :func:`.rebalance.parse_sort_by`.
    """

    threads: int
    options: WriterOptions = field(default_factory=WriterOptions)
    up_to: int | None = None
    keep_old: timedelta | None = None
    num_buckets: int | None = None
    sort_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the values. Raises ConfigurationError."""
        if self.threads < 1:
            raise ConfigurationError(f"threads={self.threads}: expected at least 1")
        if self.keep_old is not None and self.keep_old <= timedelta():
            raise ConfigurationError(f"keep_old={self.keep_old}: expected a time above 0")
        if self.num_buckets is not None and not 0 < self.num_buckets <= MAX_BUCKETS:
            raise ConfigurationError(f"num_buckets={self.num_buckets}: expected 1 to {MAX_BUCKETS}")

    def check_kind(self, kind: CompactionType) -> None:
        """Refuse settings of a rebalance for another kind. Raises ConfigurationError."""
        if kind is not CompactionType.REBALANCE and (self.sort_by or self.num_buckets):
            raise ConfigurationError(
                f"sort_by and num_buckets: a {kind.name.lower()} compaction keeps ROW__IDs, whose order is "
                "that of a file. Only kind='rebalance' gives new ones"
            )


@dataclass(frozen=True)
class CompactedDirectory:
    """The result of one compaction. ``directory`` is None if there was nothing to compact.

    After a minor compaction, it is the delta; a delete delta of the same range may lie beside it.
    ``row_count`` and ``byte_count`` are those of the new directories; a row of a delta is an event.
    ``byte_count_before`` is the size of the files that it replaces. ``kept_for`` is the reason why obsolete
    files stay for now, '' if none is known: a change feed with a hold, before Hive 4 any open transaction.
    ``kept_until`` is the time until which a restore can bring the old files back, '' if it cannot.
    """

    table: str
    partition: str
    kind: str
    directory: str | None
    row_count: int = 0
    byte_count: int = 0
    byte_count_before: int = 0
    seconds: float = 0.0
    kept_for: str = ""
    kept_until: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the result as a dict of JSON types only."""
        return {**vars(self), "seconds": round(self.seconds, 3)}

    def __str__(self) -> str:
        """Return one line, or two if old files are kept."""
        where = f"{self.table}/{self.partition}" if self.partition else self.table
        kept = f"\n{where}: its old files are kept: {self.kept_for}" if self.kept_for else ""
        if self.directory is None:
            return f"{where}: nothing to compact{kept}"
        if self.kept_until:
            kept += f"\n{where}: hive-mutate restore can bring its old files back until {self.kept_until}"
        return (
            f"{where}: wrote {self.directory}: {self.row_count:,} rows, {self.byte_count:,} bytes instead of "
            f"{self.byte_count_before:,} ({self.seconds:.1f} s){kept}"
        )
