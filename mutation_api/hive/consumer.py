"""Consumer: a named position of a change feed in the watermark table, one row for each table.

A consumer moves its position in the transaction of its own writes to Hive, or in a separate one. Both check
under the lock that no other run has moved it since: if two runs of one consumer move it, the second one is
refused. The row exists from the first use on, so that a consumer that ended before its first commit starts
again at the same position.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from metastore_client.client import MetastoreClient
from mutation_api.errors import ConfigurationError, SourcePositionError, listed
from mutation_api.hive.hive_table import SnapshotTable
from mutation_api.hive.hive_transaction import ConnectionOptions, HiveSnapshot, HiveTransaction
from mutation_api.transaction.catalog import normal_full_name, split_full_name
from mutation_api.transaction.feed_position import joined_positions, positions_of_tables
from mutation_api.transaction.lock import WriteLock
from mutation_api.upkeep.watermark_table import (
    CONSUMER_PREFIX,
    WATERMARK_KEY,
    check_watermark_columns,
    ensure_watermark_table,
    watermark_table_beside,
)


class Consumer:
    """A named position of some tables.

    Args:
        metastore: the metastore's client.
        options: those of the connection.
        name: the consumer's name.
        tables: ``database.table``.
        watermark_table: the watermark table. If None, ``mutation_watermarks`` in the tables' database.

    Raises:
        ConfigurationError: If the name is empty, or the tables are in several databases and there is no
            ``watermark_table``.
    """

    def __init__(
        self,
        metastore: MetastoreClient,
        options: ConnectionOptions,
        name: str,
        tables: Sequence[str],
        watermark_table: str | None,
    ) -> None:
        if not name:
            raise ConfigurationError("consumer: expected a name, got an empty string")
        self.name = name
        self.tables = tuple(sorted({normal_full_name(each) for each in tables}))
        self.watermark_table = normal_full_name(watermark_table or _table_beside(self.tables))
        self._metastore = metastore
        self._options = options
        self._known: Mapping[str, str] = {}
        self._moved: Mapping[str, str] = {}

    def position(self, since: str | datetime | None) -> str | datetime:
        """Return the position; store ``since`` as the position of a consumer that has none yet.

        Raises:
            ConfigurationError: If there is no position and no ``since``, or a position of only some tables.
            Other errors: See ``Hive.snapshot``.
        """
        ensure_watermark_table(self._metastore, self.watermark_table)
        client = self._options.builder().metastore(self._metastore).build()
        with HiveSnapshot(client, [self.watermark_table], self._options.local) as view:
            self._known = self._moved = self._texts(view.table(self.watermark_table))
        if self._known:
            return self._together()
        if since is None:
            raise ConfigurationError(
                f"consumer {self.name} has no position in {self.watermark_table} yet, so since is required: "
                '"beginning", "now", a position, or a time'
            )
        return since

    @property
    def is_new(self) -> bool:
        """True if it has no position yet."""
        return not self._known

    def move(self, position: str, transaction: HiveTransaction | None = None) -> None:
        """Move the position, in a transaction that writes the watermark table, or in a separate one.

        Raises:
            SourcePositionError: If another run has moved the position. Nothing was moved.
            ConfigurationError: If the transaction was begun without the watermark table.
            Other errors: See ``HiveTransaction.commit``.
        """
        if transaction is not None:
            self._move(position, transaction)
            return
        builder = self._options.builder().metastore(self._metastore).write_lock(WriteLock.EXCLUSIVE.value)
        client = builder.add_sink_table(self.watermark_table).build()
        with HiveTransaction(client, self._options.local, None) as own:
            self._move(position, own)

    def _move(self, position: str, transaction: HiveTransaction) -> None:
        table = transaction.table(self.watermark_table)
        found = self._texts(table)
        # The transaction of the move before may have been aborted.
        if found not in (self._known, self._moved):
            raise SourcePositionError(
                f"consumer {self.name}: another run has moved its position in {self.watermark_table} since "
                f"this feed began. Nothing was moved by this run. Run one at a time, or give the runs "
                "different names"
            )
        new = self._parts(position)
        now = datetime.now(UTC).replace(tzinfo=None)
        rows = [
            (self._source_id, name, name, f"[{_highest(text)}]", text, transaction.txn_id, now)
            for name, text in new.items()
        ]
        names = table.schema.names
        table.upsert(
            pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], table.schema),
            on=list(WATERMARK_KEY),
        )
        self._known, self._moved = found, new

    @property
    def _source_id(self) -> str:
        return CONSUMER_PREFIX + self.name

    def _texts(self, table: SnapshotTable) -> Mapping[str, str]:
        """Return the positions by table."""
        check_watermark_columns(table.descriptor)
        is_own = pc.field("source_id") == self._source_id
        rows = table.scan(["source_table", "position_text"], is_own).to_arrow().to_pylist()
        found = {
            row["source_table"]: row["position_text"] for row in rows if row["source_table"] in self.tables
        }
        if len(found) < sum(row["source_table"] in self.tables for row in rows):
            raise SourcePositionError(
                f"consumer {self.name} has two positions of a table in {self.watermark_table}: delete the "
                "wrong one"
            )
        return found

    def _together(self) -> str:
        """Return the position of all tables."""
        missing = sorted(set(self.tables) - self._known.keys())
        if missing:
            raise ConfigurationError(
                f"consumer {self.name} has no position of table {listed(missing)}. Use a separate consumer "
                "for new tables"
            )
        texts = set(self._known.values())
        if not all(text.startswith("{") for text in texts):
            if len(texts) == 1:
                return texts.pop()
            raise ConfigurationError(
                f"consumer {self.name}: its tables {listed(sorted(self._known))} began in different feeds. "
                "Use a separate consumer for each feed"
            )
        return joined_positions(self._known.values())

    def _parts(self, position: str) -> Mapping[str, str]:
        """Return the position of each table."""
        if not position.startswith("{"):
            return dict.fromkeys(self.tables, position)
        found = positions_of_tables(position)
        return {name: found[name] for name in self.tables}


def _highest(text: str) -> int:
    """Return the highest id of a position, which is displayed as the progress."""
    if not text.startswith("{"):
        return 0
    ((_, ids),) = json.loads(text)["tables"].items()
    numbers = [part for part in ids.split(":") if part.isdecimal()]
    return int(numbers[0]) if numbers else 0


def _table_beside(tables: Sequence[str]) -> str:
    databases = sorted({split_full_name(each)[0] for each in tables})
    if len(databases) > 1:
        raise ConfigurationError(
            f"the tables are in several databases ({listed(databases)}): name the watermark_table, and use "
            "the same one in each run"
        )
    return watermark_table_beside(tables[0])
