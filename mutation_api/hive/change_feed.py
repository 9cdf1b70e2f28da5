"""ChangeFeed: the changes of tables since a position, transaction by transaction.

A position is the list of ids that a consumer has seen of each table, never a number: an id below the highest
one may commit later. A change is new if it is visible now and was not visible then. Ids of several tables
form one transaction if the metastore still knows it. Transactions are returned in an order in which the ids
of each table ascend: a transaction that changes rows of another one has a greater id in their table.

A position is usable as long as the files contain all events after it. A newer base, written by a compaction
or an overwrite, lacks deletes, so the feed refuses to begin at such a position. But if an earlier feed left a
hold, the files that the base replaced still exist, and are read.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from metastore_client.valid_ids import ValidIdList
from mutation_api.errors import ConfigurationError, TransactionStateError
from mutation_api.format.event import INSERT, ROW_ID_COLUMN
from mutation_api.hive.consumer import Consumer
from mutation_api.hive.feed_rules import FeedKeys, Images, check_images, in_order, keys_by_table
from mutation_api.hive.hive_transaction import HiveTransaction
from mutation_api.merge.row_changes import (
    CHANGE_COLUMN,
    WRITE_ID_COLUMN,
    feed_schema,
    labelled,
    paired,
)
from mutation_api.read.change_plan import count_changes, split_changes
from mutation_api.read.changes import RowChanges, SplitChanges
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import open_table
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import AcidColumn
from mutation_api.table.row_type import named_columns
from mutation_api.transaction.feed_position import (
    BEGINNING,
    Since,
    check_complete,
    ids_seen,
    position_text,
)
from mutation_api.transaction.hold import Hold, Holds, HoldTime, hold_seconds
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.snapshot import ClosedAtEnd, NotPickled, Snapshot
from mutation_api.upkeep.transaction_files import known_transactions
from mutation_api.write.local_plan import LocalOptions

BYTES_PER_EVENT = 1024
"""The estimated memory for a row of a window."""


@dataclass(frozen=True)
class ChangedTable:
    """The changes of one table in a transaction.

    Attributes:
        name: ``database.table``.
        schema: the columns of the batches: ``_change``, ``_write_id``, ROW__ID, and the columns of the table.
    """

    name: str
    schema: pa.Schema
    _batches: Sequence[pa.RecordBatch] | TableScan = field(repr=False)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes. ``_change`` is insert, delete, update_before or update_after."""
        if not isinstance(self._batches, TableScan):
            yield from self._batches
            return
        for batch in self._batches.to_arrow_batch_reader():
            yield labelled(INSERT, None, batch)

    def to_arrow(self) -> pa.Table:
        """Return the changes as one table."""
        return pa.Table.from_batches(list(self.to_batches()), self.schema)


@dataclass(frozen=True)
class ChangedTransaction:
    """The changes of one transaction in all tables of a feed that it changed.

    Attributes:
        txn_id: the transaction. If None, the metastore no longer knows it, or there are several.
        tables: the changes by ``database.table``.
        position: the position after it.
        is_snapshot: True if these are all rows of the tables, which a feed with ``since="beginning"`` returns
            first.
    """

    txn_id: int | None
    tables: Mapping[str, ChangedTable]
    position: str
    is_snapshot: bool = False


class ChangeFeed(ClosedAtEnd, NotPickled):
    """The changes of tables since a position. Created by ``Hive.changes``; a context manager and iterator::

        with hive.changes("sales.orders", since=position) as feed:
            for transaction in feed:
                apply(transaction.tables["sales.orders"].to_arrow())
                position = feed.position

    Args:
        client: a client that is not connected yet; it is closed with the feed.
        tables: ``database.table``.
        since: see ``Hive.changes``.
        on: see ``Hive.changes``.
        net: see ``Hive.changes``.
        columns: see ``Hive.changes``.
        images: see ``Hive.changes``.
        local: memory and threads.
        consumer: the consumer whose position is read and moved. If None, ``since`` is the position.
        holds: the holds of earlier feeds, to which this feed adds its own.
        hold: the maximum duration of this feed's hold. If None, there is none.
    """

    WHAT = "a change feed"

    def __init__(
        self,
        client: MutatorClient,
        tables: Sequence[str],
        since: Since | None,
        *,
        on: FeedKeys | None,
        net: bool,
        columns: Sequence[str] | None,
        images: Images,
        local: LocalOptions,
        consumer: Consumer | None = None,
        holds: Holds | None = None,
        hold: HoldTime | None = None,
    ) -> None:
        self._client = client
        self._names = tables
        self._since = since
        self._on = keys_by_table(on, tables, "changes: on")
        check_images(images, self._on, tables, "changes: images")
        self._images = images
        self._net = net
        self._columns = columns
        self._local = local
        self._consumer = consumer
        self._holds = holds or Holds()
        self._hold_seconds = None if hold is None else hold_seconds(hold)
        self._hold: Hold | None = None
        self._held: Hold | None = None
        self._replaced: tuple[str, ...] = ()
        self._is_read = False
        self._transactions_of: dict[str, Mapping[int, int]] = {}
        self._snapshot: Snapshot | None = None
        self._before: dict[str, ValidIdList] = {}
        self._position: str | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """True if the feed was closed."""
        return self._closed

    @property
    def position(self) -> str:
        """The position after the last transaction that was returned. Pass it as ``since`` next time."""
        if self._position is None:
            raise TransactionStateError("the feed is not open: use it in a with statement, or call open()")
        return self._position

    @property
    def watermark_table(self) -> str:
        """The table with the consumer's position. Raises TransactionStateError if there is no consumer."""
        return self._of_consumer().watermark_table

    def commit(self, transaction: HiveTransaction | None = None) -> None:
        """Move the consumer's position to :attr:`position`.

        Args:
            transaction: an open transaction that writes :attr:`watermark_table` besides the consumer's own
                tables; the position moves with its commit. If None, the position moves immediately.

        Raises:
            TransactionStateError: If the feed has no consumer.
            SourcePositionError: If another run of the consumer has moved the position.
            Other errors: See ``Hive.transaction``.
        """
        self._of_consumer().move(self.position, transaction)

    def _of_consumer(self) -> Consumer:
        if self._consumer is None:
            raise TransactionStateError(
                "the feed has no consumer: store its position yourself, or pass consumer="
            )
        return self._consumer

    def open(self) -> ChangeFeed:
        """Open the snapshot up to which changes are returned, as the ``with`` statement does.

        Raises:
            ConfigurationError: If ``since`` is not a position of these tables, or a column does not exist.
            DirectoryStateError: If a compaction or an overwrite has removed changes since then. Also if the
                changes depend on a hold that does not protect a partition of the table.
            Other errors: See ``Hive.snapshot``.
        """
        if self._closed:
            raise TransactionStateError("the feed is closed: open another one")
        if self._snapshot is None:
            try:
                if self._consumer is not None:
                    self._since = self._consumer.position(self._since)
                client = self._client.connect()
                if self._hold_seconds is not None:
                    self._hold = client.open_hold(*self._names, seconds=self._hold_seconds)
                self._open(client.open_snapshot(*self._names))
                if self._consumer is not None and self._consumer.is_new:
                    self._consumer.move(BEGINNING if self._since == BEGINNING else self.position)
            except BaseException:
                self.close()
                raise
        return self

    def _open(self, snapshot: Snapshot) -> None:
        for name in snapshot.table_names:
            table = snapshot.table(name)
            named_columns(table, self._columns)
            named_columns(table, self._on.get(name, ()))
        if self._since is None:
            raise ConfigurationError('since is required: "beginning", "now", a position, or a time')
        self._before = ids_seen(snapshot, snapshot.table_names, self._since)
        if self._since != BEGINNING:
            first = "" if self._consumer is None else f"remove consumer {self._consumer.name} and "
            held = self._holds.of(snapshot.table_names)
            if held is not None and held.covers(self._before):
                self._held = held
            is_kept = None if self._held is None else self._held.keeps
            self._replaced = check_complete(snapshot, self._before, first, is_kept)
        self._snapshot = snapshot
        self._position = position_text(self._before)

    def __iter__(self) -> Iterator[ChangedTransaction]:
        """Yield the transactions that committed since the position, in order."""
        if self._snapshot is None:
            raise TransactionStateError("the feed is not open: use it in a with statement, or call open()")
        found = self._whole() if self._since == BEGINNING else self._transactions()
        for transaction in found:
            self._position = transaction.position
            yield transaction
        self._position = position_text(self._now)
        self._is_read = True

    @property
    def _now(self) -> dict[str, ValidIdList]:
        assert self._snapshot is not None
        return {name: self._snapshot.valid_ids(name) for name in self._snapshot.table_names}

    def _whole(self) -> Iterator[ChangedTransaction]:
        """Yield the tables as they are, as inserts."""
        assert self._snapshot is not None
        tables = {}
        for name in self._snapshot.table_names:
            view = open_table(self._snapshot, name)
            has_row_ids = view.table.version.has_row_ids
            threads = self._local.thread_count
            scan = TableScan(view, columns=self._columns, row_ids=has_row_ids, threads=threads)
            tables[name] = ChangedTable(name, feed_schema(scan.schema), scan)
        yield ChangedTransaction(None, tables, position_text(self._now), is_snapshot=True)

    def _transactions(self) -> Iterator[ChangedTransaction]:
        readers = {name: self._readers(name) for name in self._before}
        counts = {name: count_changes(found) for name, found in readers.items()}
        if self._net:
            yield from self._together(readers, counts)
            return
        after = self._now
        waiting = {name: {*found} for name, found in counts.items()}
        for window in self._windows(counts):
            wanted: dict[str, list[int]] = defaultdict(list)
            for _, ids in window:
                for name, id in ids.items():
                    wanted[name].append(id)
            changes: dict[tuple[str, int], list[RowChanges]] = defaultdict(list)
            for name, of_table in wanted.items():
                before = after[name].without(waiting[name])
                for change in self._read(readers[name], of_table, before):
                    changes[name, change.id].append(change)
            for txn_id, ids in window:
                for name, id in ids.items():
                    waiting[name].discard(id)
                tables = {
                    name: self._table(name, changes.pop((name, id)))
                    for name, id in ids.items()
                    if (name, id) in changes
                }
                if tables:
                    position = position_text({name: after[name].without(waiting[name]) for name in after})
                    yield ChangedTransaction(txn_id, tables, position)

    def _together(
        self, readers: Mapping[str, Sequence[SplitChanges]], counts: Mapping[str, Counter[int]]
    ) -> Iterator[ChangedTransaction]:
        """Yield all changes together, without rows that were both inserted and deleted."""
        tables = {}
        for name, of_table in readers.items():
            if found := list(self._read(of_table, list(counts[name]), self._before[name])):
                tables[name] = self._table(name, found)
        if tables:
            yield ChangedTransaction(None, tables, position_text(self._now))

    def _windows(
        self, counts: Mapping[str, Counter[int]]
    ) -> Iterator[list[tuple[int | None, dict[str, int]]]]:
        """Yield transactions in order, with their id in each table, as many at a time as fit into memory."""
        limit = max(1, self._local.memory_bytes // BYTES_PER_EVENT)
        window: list[tuple[int | None, dict[str, int]]] = []
        size = 0
        for txn_id, ids in self._in_order(counts):
            count = sum(counts[name][id] for name, id in ids.items())
            if window and size + count > limit:
                yield window
                window, size = [], 0
            window.append((txn_id, ids))
            size += count
        if window:
            yield window

    def _in_order(self, counts: Mapping[str, Counter[int]]) -> list[tuple[int | None, dict[str, int]]]:
        """Group ids by transaction, in order."""
        ids = {name: found.keys() for name, found in counts.items() if found}
        return in_order(ids, {name: self._known_transactions(name) for name in ids})

    def _known_transactions(self, name: str) -> Mapping[int, int]:
        """Return the transactions of the table's ids, as far as the metastore knows them."""
        if name not in self._transactions_of:
            assert self._snapshot is not None
            found = known_transactions(self._client.metastore, self._snapshot.table(name))
            self._transactions_of[name] = found
        return self._transactions_of[name]

    def _shown(self, name: str) -> tuple[AcidColumn, ...]:
        assert self._snapshot is not None
        return named_columns(self._snapshot.table(name), self._columns)

    def _readers(self, name: str) -> list[SplitChanges]:
        assert self._snapshot is not None
        view = open_table(self._snapshot, name)
        columns = list(self._shown(name))
        extra = [c for c in named_columns(view.table, self._on.get(name, ())) if c not in columns]
        known = self._known_transactions(name) if name in self._replaced else None
        found = split_changes(view, self._before[name], (*columns, *extra), transactions=known)
        self._check_files()
        if self._images == "keys":
            keys = frozenset(self._on[name])
            found = [dataclasses.replace(each, image_columns=keys) for each in found]
        return found

    def _check_files(self) -> None:
        """Raise if the files may no longer be there."""
        assert self._snapshot is not None
        self._snapshot.check()
        if self._replaced and self._held is not None:
            self._held.check()

    def _read(
        self, readers: Sequence[SplitChanges], ids: Sequence[int], before: ValidIdList
    ) -> Iterator[RowChanges]:
        """Yield the changes of some ids; ``before``: the ids that were visible before all of them."""

        def changes_of(reader: SplitChanges) -> list[RowChanges]:
            self._check_files()
            found = dataclasses.replace(reader, before=before).read(ids, net=self._net)
            return [change for each in found for change in each.by_id()]

        for changes in side_by_side(changes_of, readers, self._local.thread_count):
            yield from changes

    def _table(self, name: str, changes: Sequence[RowChanges]) -> ChangedTable:
        batches = [labelled(each.kind, each.id, each.rows) for each in changes]
        if name in self._on:
            batches = paired(batches, self._on[name])
        names = [CHANGE_COLUMN, WRITE_ID_COLUMN]
        if ROW_ID_COLUMN in batches[0].schema.names:
            names.append(ROW_ID_COLUMN)
        names += [column.name for column in self._shown(name)]
        shown = [batch.select(names) for batch in batches]
        return ChangedTable(name, shown[0].schema, shown)

    def close(self) -> None:
        """Release the lock, but not a hold. May be called twice."""
        self._closed = True
        try:
            self._leave_hold()
        finally:
            self._client.close()

    def _leave_hold(self) -> None:
        """Leave a hold to the next feed: the new one, or the earlier one if that protects unread changes."""
        hold, self._hold = self._hold, None
        if hold is None:
            return
        if self._position is None or self._snapshot is None or (self._held is not None and not self._is_read):
            hold.close()
            return
        # All rows are one transaction, so after these the position is that of the snapshot.
        hold.protect(self._now if self._is_read or self._since == BEGINNING else self._before)
        self._holds.keep(self._snapshot.table_names, hold)

    def __enter__(self) -> ChangeFeed:
        """Open."""
        return self.open()
