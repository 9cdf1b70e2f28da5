"""A table in the judge's metastore: written with our API, read by Hive's own two readers.

Everything here takes the cheap way: tables are made and partitions listed over Thrift, rows are read from
the directory with the metastore's list of valid transactions. SQL costs seconds and is left to the tests that
need it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from judges.hive.hive_judges import Hive23
from judges.hive.model import HiveRow
from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnInfo, OpenTxns, TableInfo, TxnInfo, TxnState
from metastore_client.valid_ids import ValidTxnList
from mutation_api.errors import MutationError
from mutation_api.format.event import Operation
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import WriterOptions
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.coordinator import MutatorCoordinator
from tests.integration.storages.remote_table import files_in, text_for_judge

LAYOUTS = ("legacy", "default")
"""Values of ``transactional_properties``: combined deltas, split update."""

RowId = tuple[int, int, int]
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Change:
    """One call of a coordinator's insert, update or delete."""

    operation: Operation
    partition_values: Sequence[Any] | None
    record: Mapping[str, Any]

    def send(self, coordinator: MutatorCoordinator) -> None:
        """Make the call."""
        calls = {
            Operation.INSERT: coordinator.insert,
            Operation.UPDATE: coordinator.update,
            Operation.DELETE: coordinator.delete,
        }
        calls[self.operation](self.partition_values, self.record)


def insert(values: Sequence[Any] | str | None, id_: Any, msg: str | None = "new", **more: Any) -> Change:
    """An insert into ``(id, msg)``; a text is the value of the only partition key."""
    return Change(Operation.INSERT, _values(values), {"id": id_, "msg": msg, **more})


def update(values: Sequence[Any] | str | None, row_id: Any, id_: int, msg: str | None = "changed") -> Change:
    """An update of the row with this ROW__ID."""
    return Change(Operation.UPDATE, _values(values), {"id": id_, "msg": msg, "ROW__ID": row_id})


def delete(values: Sequence[Any] | str | None, row_id: Any, **more: Any) -> Change:
    """A delete of the row with this ROW__ID."""
    return Change(Operation.DELETE, _values(values), {"ROW__ID": row_id, **more})


def _values(values: Sequence[Any] | str | None) -> Sequence[Any] | None:
    return [values] if isinstance(values, str) else values


def write(
    transaction: Transaction,
    full_name: str,
    changes: Iterable[Change],
    *,
    writer_id: str = "writer",
    attempt_id: str = "0",
    options: WriterOptions | None = None,
) -> None:
    """Write the changes with one coordinator, and hand in its manifests."""
    table = transaction.table(full_name)
    with MutatorCoordinator(
        table, writer_id=writer_id, attempt_id=attempt_id, options=options
    ) as coordinator:
        for change in changes:
            change.send(coordinator)
        manifests = coordinator.close()
    transaction.add_manifests(full_name, writer_id, manifests)


@dataclass(frozen=True)
class TableState:
    """What a refusal may not change: rows as Hive reads them, all files (staged ones too), partitions."""

    rows: tuple[HiveRow, ...]
    files: frozenset[str]
    partitions: tuple[str, ...]


class LiveTable:
    """One table of the judge's metastore, ``(id bigint, msg string)`` unless told otherwise."""

    def __init__(self, hive: Hive23, metastore: MetastoreClient, info: TableInfo) -> None:
        self.hive = hive
        self.metastore = metastore
        self.info = info

    @classmethod
    def create(
        cls,
        hive: Hive23,
        metastore: MetastoreClient,
        database: str,
        *,
        columns: str = "id bigint, msg string",
        keys: str = "ds string",
        buckets: int = 2,
        bucket_columns: Sequence[str] = ("id",),
        layout: str = "legacy",
        **more: Any,
    ) -> LiveTable:
        """Create it over Thrift; ``keys`` '' means unpartitioned; ``more`` are members of TableInfo."""
        # Some tests let Hive look for what to compact; the tables of the others would keep it busy for long.
        parameters = {"transactional": "true", "no_auto_compaction": "true"}
        if layout != "legacy":
            parameters["transactional_properties"] = layout
        parameters.update(more.pop("parameters", {}))
        name = more.pop("name", f"t{next(_numbers)}")
        metastore.create_table(
            TableInfo(
                database=database,
                name=name,
                columns=columns_of(columns),
                partition_keys=columns_of(keys),
                num_buckets=buckets,
                bucket_columns=tuple(bucket_columns),
                parameters=parameters,
                **more,
            )
        )
        return cls(hive, metastore, metastore.get_table(database, name))

    # -- what it is ----------------------------------------------------------------------------------------
    @property
    def full_name(self) -> str:
        """``database.table``."""
        return self.info.full_name

    @property
    def location(self) -> Location:
        """The table's place."""
        return Location.parse(self.info.location)

    @property
    def directory(self) -> Path:
        """The table's folder, if it lies on the local disk."""
        assert self.location.scheme == "file"
        return Path(self.location.path)

    @property
    def layout(self) -> str:
        """``legacy`` or ``default``."""
        return self.info.parameters.get("transactional_properties", "legacy")

    @property
    def is_split(self) -> bool:
        """Whether updates are split into delete and insert."""
        return self.layout == "default"

    # -- writing -------------------------------------------------------------------------------------------
    def builder(self, *, create_partitions: bool = True, insert_only: bool = False) -> MutatorClientBuilder:
        """A builder with the table as a sink."""
        builder = MutatorClientBuilder().metastore(self.metastore).lock_timeout_seconds(30)
        return builder.add_sink_table(
            self.info.database, self.info.name, create_partitions, insert_only=insert_only
        )

    def client(self, *, create_partitions: bool = True, insert_only: bool = False) -> MutatorClient:
        """A client, not connected yet, with the table as a sink."""
        return self.builder(create_partitions=create_partitions, insert_only=insert_only).build()

    @contextlib.contextmanager
    def transaction(self, *, create_partitions: bool = True) -> Iterator[Transaction]:
        """A begun transaction on the table; committed at the end of the block."""
        with (
            self.client(create_partitions=create_partitions) as client,
            client.new_transaction() as transaction,
        ):
            yield transaction

    def commit(self, *changes: Change, create_partitions: bool = True) -> int:
        """Commit the changes in one transaction; returns its id."""
        with self.transaction(create_partitions=create_partitions) as transaction:
            write(transaction, self.full_name, changes)
        return transaction.txn_id

    # -- looking -------------------------------------------------------------------------------------------
    def valid(self) -> ValidTxnList:
        """What a reader who comes now may see."""
        return ValidTxnList.from_open_txns(self.metastore.get_open_txns(), None)

    def partitions(self) -> tuple[str, ...]:
        """Names of the partitions that the metastore knows."""
        return tuple(self.metastore.get_partition_names(self.info.database, self.info.name))

    def rows(self, valid: ValidTxnList | None = None) -> tuple[HiveRow, ...]:
        """The rows that both of Hive's readers agree on, sorted; the vectorised one reads no nested types.

        A row in a directory that is no partition is one that nobody ever sees: the test fails.
        """
        columns = [(c.name, c.type) for c in self.info.columns]
        found = self.hive.read(
            text_for_judge(self.location),
            columns,
            (valid or self.valid()).to_text(),
            transactional_properties=self.layout,
            mode="row" if any("<" in type_ for _, type_ in columns) else "both",
            buckets=self.info.num_buckets,
        )
        lost = {row.partition for row in found} - set(self.partitions() or [""])
        assert not lost, f"rows in directories that are no partitions: {lost}"
        return tuple(sorted(found, key=repr))

    def values(self) -> list[tuple[Any, ...]]:
        """The rows as (partition, values …), sorted; without the partition if there are no keys."""
        rows = [(r.partition, *r.values) if self.info.partition_keys else r.values for r in self.rows()]
        return sorted(rows, key=repr)

    def row_ids(self) -> dict[Any, RowId]:
        """ROW__ID by the first column's value, which must be unique."""
        rows = self.rows()
        found = {row.values[0]: row.row_id for row in rows if row.row_id is not None}
        assert len(found) == len(rows), "two rows have the same first column"
        return found

    def files(self, *, hidden: bool = False) -> set[str]:
        """Paths of the files below the table, relative; those under hidden names only if asked for."""
        found = [place.relative_to(self.location) for place in _files_below(self.location)]
        return {path for path in found if hidden or not any(part[0] in "_." for part in path.split("/"))}

    def staged(self) -> set[str]:
        """The files that wait in staging directories, and the uploads that wait."""
        files = {
            name for name in self.files(hidden=True) if "_mutation_" in name and not name.endswith(".crc")
        }
        uploads = storage_at(self.location).unfinished(self.location)
        return files | {each.location.relative_to(self.location) for each in uploads}

    def state(self) -> TableState:
        """Everything that a refusal may not change."""
        return TableState(self.rows(), frozenset(self.files() | self.staged()), self.partitions())

    @contextlib.contextmanager
    def refuses(self, error: type[MutationError], match: str) -> Iterator[None]:
        """The block must raise ``error``, and change nothing: rows, files, staging, partitions."""
        before = self.state()
        with pytest.raises(error, match=match):
            yield
        assert self.state() == before

    def txn(self, txn_id: int) -> TxnInfo | None:
        """The transaction if it is open, or aborted and not yet forgotten."""
        return find_txn(self.metastore.get_open_txns(), txn_id)


class FilledTable(LiveTable):
    """A LiveTable of two buckets with the rows 0 to 11 in partitions ds=a and ds=b, all of one transaction.

    A small bigint is its own hash, so row ``n`` lies in bucket ``n % 2`` with row id ``n // 2``.
    """

    ROWS = range(12)

    txn_id: int

    @classmethod
    def fill(cls, hive: Hive23, metastore: MetastoreClient, database: str, layout: str) -> FilledTable:
        """Create and fill one."""
        made = cls.create(hive, metastore, database, layout=layout)
        table = cls(hive, metastore, made.info)
        sorted_rows = sorted(cls.ROWS, key=lambda n: (n % 2, n))
        table.txn_id = table.commit(*(insert(ds, n, "old") for ds in "ab" for n in sorted_rows))
        return table

    def row_id(self, number: int) -> RowId:
        """ROW__ID of row ``number``, in either partition."""
        return (self.txn_id, number % 2, number // 2)

    def expected(
        self, changed: Mapping[int, str] | None = None, gone: Iterable[int] = (), added: Iterable[int] = ()
    ) -> list[tuple[Any, ...]]:
        """What :meth:`values` must be after changes in partition a; added rows say ``new``."""
        in_a = dict.fromkeys(self.ROWS, "old") | dict(changed or {}) | dict.fromkeys(added, "new")
        left = {n: msg for n, msg in in_a.items() if n not in set(gone)}
        rows = [("ds=a", n, msg) for n, msg in left.items()] + [("ds=b", n, "old") for n in self.ROWS]
        return sorted(rows, key=repr)


def _files_below(place: Location) -> Iterator[Location]:
    for entry in files_in(place):
        if entry.is_directory:
            yield from _files_below(entry.location)
        else:
            yield entry.location


def find_txn(listing: OpenTxns, txn_id: int) -> TxnInfo | None:
    """A transaction of a list; None if it is not there."""
    return next((t for t in listing.txns if t.id == txn_id), None)


def is_aborted(table: LiveTable, txn_id: int) -> bool:
    """Whether the metastore says that the transaction is aborted; one that wrote nothing may be forgotten."""
    found = table.txn(txn_id)
    return found is not None and found.state is TxnState.ABORTED


def columns_of(text: str) -> tuple[ColumnInfo, ...]:
    """``name type, name type`` as columns; commas inside brackets belong to the type."""
    columns, depth, start = [], 0, 0
    for at, letter in enumerate(f"{text},"):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            columns.append(text[start:at].strip())
            start = at + 1
    return tuple(ColumnInfo(*column.split(" ", 1)) for column in columns if column)
