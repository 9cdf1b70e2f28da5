"""SnapshotView: what readers need of whoever holds a snapshot of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from metastore_client.model import PartitionInfo
from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.table.acid_table import AcidTable

__all__ = ["SnapshotView"]


class SnapshotView(Protocol):
    """A begun transaction, a snapshot that a client opened, or a past one."""

    @property
    def valid_txn_list(self) -> ValidTxnList:
        """The transactions it sees, compactions among them."""
        ...

    def valid_ids(self, table_name: str) -> ValidIdList:
        """Which of the ids in the files of one of its tables it sees."""
        ...

    def table(self, table_name: str) -> AcidTable:
        """Descriptor of one of its tables."""
        ...

    def partitions(self, table_name: str) -> Sequence[PartitionInfo]:
        """Partitions of one of its tables; none if it has no partition keys."""
        ...

    def check(self) -> None:
        """Raise if its lock is lost."""
        ...
