"""WrittenTables: which tables of a transaction have their change set, and what writers handed in for them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList
from mutation_api.client.tables.catalog import OpenTable
from mutation_api.commit.manifest import DeltaManifest
from mutation_api.commit.table_output import TableOutput
from mutation_api.errors import ConfigurationError, ManifestError, TransactionStateError
from mutation_api.table.acid_table import AcidTable

__all__ = ["WrittenTables"]


class WrittenTables:
    """What was written for the tables of one transaction; names are ``database.table``."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._changed: set[str] = set()
        self._writers: dict[str, set[str]] = {}
        self._manifests: dict[str, list[DeltaManifest]] = {}
        self._inserted_by_key: set[str] = set()

    @contextlib.contextmanager
    def changing(self, name: str) -> Iterator[None]:
        """The block in which a table gets its one change set; a block that raises does not count.

        Raises:
            TransactionStateError: the table already has its changes.
        """
        with self._mutex:
            if name in self._changed:
                raise TransactionStateError(
                    f"table {name} already has its changes in this transaction; "
                    "combine all of them in one DataFrame (unionByName) and apply it once"
                )
            self._changed.add(name)
        try:
            yield
        except BaseException:
            self._changed.discard(name)
            raise

    def merge(self, opened: OpenTable, keys: Sequence[str] | None, *, inserts: bool) -> None:
        """Note that rows are merged into a table by key.

        Args:
            opened: the table.
            keys: the columns that are compared; None for a condition.
            inserts: whether rows whose key the table lacks are inserted.

        Raises:
            ConfigurationError: other transactions may insert the same keys meanwhile.
        """
        name = opened.table.full_name
        if opened.spec.insert_only:
            raise ConfigurationError(
                f"table {name}: the transaction was made with insert_only=True, so others insert beside it, "
                "and a merge would not see their keys: make it without insert_only"
            )
        if inserts and not set(opened.table.partition_key_names) <= set(keys or ()):
            self._inserted_by_key.add(name)

    def add(self, name: str, txn_id: int, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
        """Add what one writer has written to a table.

        Raises:
            ManifestError: manifests of this writer were added before.
        """
        writers = self._writers.setdefault(name, set())
        if writer_id in writers:
            raise ManifestError(
                f"table {name}, transaction {txn_id}: manifests of writer {writer_id!r} were added twice"
            )
        writers.add(writer_id)
        self._manifests.setdefault(name, []).extend(manifests)

    def writers(self, name: str) -> frozenset[str]:
        """Who handed in manifests for a table."""
        return frozenset(self._writers.get(name, ()))

    def manifests(self, name: str) -> tuple[DeltaManifest, ...]:
        """The manifests of a table."""
        return tuple(self._manifests.get(name, ()))

    def output(
        self,
        opened: OpenTable,
        table: AcidTable,
        valid_write_ids: ValidWriteIdList | None,
        valid_txns: ValidTxnList,
        *,
        is_optimistic: bool,
    ) -> TableOutput:
        """What was written into a table.

        Args:
            opened: the table as it was when the transaction began.
            table: its descriptor, bound.
            valid_write_ids: the transaction's view of it.
            valid_txns: the transactions that it sees.
            is_optimistic: whether others may change it at the same time, and the first to commit wins.
        """
        name = table.full_name
        is_checked = is_optimistic and not opened.spec.insert_only
        return TableOutput(
            table=table,
            description=opened.description,
            writers=self.writers(name),
            manifests=self.manifests(name),
            partitions_at_begin=frozenset(opened.partition_names),
            insert_only=opened.insert_only,
            valid_write_ids=valid_write_ids,
            valid_txns=valid_txns,
            depends_on_reads=is_checked,
            depends_on_all_partitions=is_checked and name in self._inserted_by_key,
        )

    @property
    def has_manifests(self) -> bool:
        """Whether anything was written to any table."""
        return any(self._manifests.values())
