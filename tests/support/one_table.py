"""OneTable: an open transaction of one table, without a metastore."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from metastore_client.model import PartitionInfo
from metastore_client.valid_ids import ValidIdList, ValidTxnList, ValidWriteIdList
from mutation_api.errors import MutationError
from mutation_api.table.acid_table import AcidTable
from mutation_api.transaction.manifest import DeltaManifest


class OneTable:
    """What writers need of a transaction whose snapshot sees all ids below the table's own.

    Attributes:
        manifests: what was added.
        lost: set it to lose the transaction.
    """

    def __init__(self, table: AcidTable) -> None:
        self._table = table
        self._callbacks: list[Callable[[Exception], None]] = []
        self.manifests: list[DeltaManifest] = []
        self.lost: MutationError | None = None

    @property
    def valid_txn_list(self) -> ValidTxnList:
        """All earlier ones."""
        return ValidTxnList(self._table.required_txn_id() - 1, ())

    def valid_ids(self, table: str) -> ValidIdList:
        """All earlier ones."""
        before = self._table.required_write_id() - 1
        if self._table.version.uses_write_ids:
            return ValidWriteIdList(before, (), aborted=frozenset(), table=table)
        return self.valid_txn_list

    def table(self, table: str) -> AcidTable:
        """The table."""
        assert table == self._table.full_name
        return self._table

    def partitions(self, table: str) -> Sequence[PartitionInfo]:
        """Those that have a location."""
        database, name = table.split(".")
        return [
            PartitionInfo(database=database, table=name, values=(), name=each, location=str(location))
            for each, location in self._table.partition_locations.items()
        ]

    def check(self) -> None:
        """Raise the loss."""
        if self.lost is not None:
            raise self.lost

    def on_lost(self, callback: Callable[[Exception], None]) -> None:
        """Keep it for :meth:`lose`."""
        self._callbacks.append(callback)

    def lose(self, loss: MutationError) -> None:
        """Lose the transaction, as its heartbeat would."""
        self.lost = loss
        for callback in self._callbacks:
            callback(loss)

    @contextlib.contextmanager
    def changing(self, table: str) -> Iterator[None]:
        """Nothing is remembered."""
        assert table == self._table.full_name
        yield

    def settle(self, table: str) -> None:
        """Nothing was overwritten."""

    def add_manifests(self, table: str, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
        """Keep them."""
        assert {m.writer_id for m in manifests} <= {writer_id}
        self.manifests.extend(manifests)
