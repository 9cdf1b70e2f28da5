"""PastSnapshot: a table as of an older id, as far as its files still allow.

Hive does not keep history on purpose: a compaction rewrites rows, and the cleaner removes the files that it
read. So a past state can be read only while the deltas in which it was written exist.
"""

from __future__ import annotations

from collections.abc import Sequence

from metastore_client.model import PartitionInfo
from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.acid.layout import BaseDirectory, DeltaDirectory, is_hidden, parse_directory_name
from mutation_api.client.snapshot import Snapshot
from mutation_api.errors import ConfigurationError, DirectoryStateError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.side_by_side import side_by_side
from mutation_api.table.acid_table import AcidTable

__all__ = ["PastSnapshot"]


class PastSnapshot:
    """What an open snapshot sees of its tables, without rows written under ids above ``last_id``.

    Ids are the table's write ids; on Hive 2 they are transaction ids. A transaction with an id up to
    ``last_id`` counts once it has committed, however late. Partitions are the current ones: a partition
    dropped since is missing.

    Call :meth:`check_history` after the files to read were chosen, and while the snapshot is open. A
    compaction may rewrite files after the check, but under the snapshot's lock the old ones are not removed.

    Raises:
        ConfigurationError: ``last_id`` is above every id that the snapshot sees, or below 0.
    """

    def __init__(self, snapshot: Snapshot, table_name: str, last_id: int) -> None:
        newest = snapshot.valid_ids(table_name).high_watermark
        if not 0 <= last_id <= newest:
            raise ConfigurationError(
                f"table {table_name} cannot be read as it was at id {last_id}; its ids go from 0 to {newest}"
            )
        self._snapshot = snapshot
        self._last_id = last_id

    @property
    def valid_txn_list(self) -> ValidTxnList:
        """The current transactions, which decide which compactions have committed."""
        return self._snapshot.valid_txn_list

    def valid_ids(self, table_name: str) -> ValidIdList:
        """The ids in the table's files that it sees."""
        return self._snapshot.valid_ids(table_name).up_to(self._last_id)

    def table(self, table_name: str) -> AcidTable:
        """The descriptor of a table."""
        return self._snapshot.table(table_name)

    def partitions(self, table_name: str) -> Sequence[PartitionInfo]:
        """The partitions of a table as they are now."""
        return self._snapshot.partitions(table_name)

    def check(self) -> None:
        """Raise if the lock is lost."""
        self._snapshot.check()

    def check_history(self, table_name: str) -> None:
        """Refuse a past that may have lost rows.

        Raises:
            DirectoryStateError: a base or a delta holds ids up to ``last_id`` together with later ones, so
                the directories that it was made from may be gone; the message names it.
        """
        table = self.table(table_name)
        names = [p.name for p in self.partitions(table_name)] if table.partition_keys else [""]
        found = side_by_side(
            lambda name: self._spanning(table, table.partition_location(name)),
            names,
            storage_at(table.location).threads,
        )
        for name, spanning in zip(names, found, strict=True):
            if spanning:
                where = f" partition {name}" if name else ""
                raise DirectoryStateError(
                    f"table {table.full_name}{where} cannot be read as it was at id {self._last_id}: "
                    f"{spanning[0]} holds rows from before and after it (after a compaction or an "
                    "overwrite), so the history is not complete any more. Choose the directory's last id or "
                    "a later one, or compare with a saved snapshot"
                )

    def _spanning(self, table: AcidTable, location: Location) -> list[str]:
        try:
            entries = storage_at(location).list(location)
        except FileNotFoundError:
            return []
        names = [e.name for e in entries if e.is_directory and not is_hidden(e.name)]
        found = [parse_directory_name(name, table.version) for name in names]
        return [d.name for d in found if d is not None and self._spans(d)]

    def _spans(self, directory: BaseDirectory | DeltaDirectory) -> bool:
        is_younger = isinstance(directory, DeltaDirectory) and directory.first > self._last_id
        return directory.last > self._last_id and not is_younger
