"""TableOutput: what a transaction wrote into one table, for the committer. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from metastore_client.model import DataOperationType, TableInfo
from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList
from mutation_api.commit.manifest import DeltaManifest
from mutation_api.table.acid_table import AcidTable

__all__ = ["TableOutput"]


@dataclass(frozen=True)
class TableOutput:
    """What a transaction wrote into one table.

    ``table`` is bound; ``description`` and ``partitions_at_begin`` (names) are the table as it was when the
    transaction began; ``writers`` are the ids of the writers that handed in their manifests;
    ``valid_write_ids`` and
    ``valid_txns`` are the transaction's view of the table, if it uses write ids. ``depends_on_reads``:
    others may change the table meanwhile, and what was inserted may depend on what was read;
    ``depends_on_all_partitions``: also on that of partitions that were not touched.
    """

    table: AcidTable
    description: TableInfo
    writers: frozenset[str]
    manifests: tuple[DeltaManifest, ...]
    partitions_at_begin: frozenset[str]
    insert_only: bool = False
    valid_write_ids: ValidWriteIdList | None = None
    valid_txns: ValidTxnList | None = None
    depends_on_reads: bool = False
    depends_on_all_partitions: bool = False

    @property
    def partition_values(self) -> dict[str, tuple[str, ...]]:
        """Unescaped values of every touched partition, by name; empty for an unpartitioned table."""
        return {m.partition_name: m.partition_values for m in self.manifests if m.partition_name}

    @property
    def partitions_without_rows(self) -> frozenset[str]:
        """Names of the partitions in which rows are updated or deleted, but the snapshot has no rows."""
        changed = {m.partition_name for m in self.manifests if m.update_count + m.delete_count}
        return frozenset(changed - {""} - self.partitions_at_begin)

    @property
    def write_id(self) -> int | None:
        """The transaction's write id for the table; None in v1."""
        return self.table.required_write_id() if self.table.version.uses_write_ids else None

    @property
    def operation(self) -> DataOperationType:
        """What partitions are registered with; the server's conflict check does not look at inserts."""
        changes = self.depends_on_reads or any(m.update_count or m.delete_count for m in self.manifests)
        return DataOperationType.UPDATE if changes else DataOperationType.INSERT

    @property
    def row_count_changes(self) -> Counter[str]:
        """By how many rows each touched partition grows or, if negative, shrinks ('': no partitions)."""
        changes: Counter[str] = Counter()
        for manifest in self.manifests:
            changes[manifest.partition_name] += manifest.insert_count - manifest.delete_count
        return changes
