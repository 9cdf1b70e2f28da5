"""The messages of a change feed: Debezium's envelopes, or the lines of ``hive-mutate changes``. Pure.

Debezium's form is that of its connectors with Kafka Connect's JSON converter and schemas. ``before`` and
``after`` have all columns of the feed. The key has the key columns, so changes of one key are in one
partition, in their order. A delete is followed by a tombstone. Each transaction has a message at its
beginning and at its end in the topic of transactions, as with ``provide.transaction.metadata``; rows with
which a feed begins (``r``) are not part of a transaction. Hive does not keep the times of commits, so
``ts_ms`` is the time at which the feed returned the transaction.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from mutation_api.cdc.kafka.connect_values import (
    Field,
    connect_type,
    connect_values,
    json_text,
    struct_of,
)
from mutation_api.errors import ConfigurationError
from mutation_api.format.event import DELETE, ROW_ID_COLUMN
from mutation_api.format.json_values import json_texts, to_json
from mutation_api.hive.change_feed import ChangedTable, ChangedTransaction
from mutation_api.merge.row_changes import CHANGE_COLUMN, WRITE_ID_COLUMN
from mutation_api.read.changes import UPDATE_AFTER, UPDATE_BEFORE

_BESIDE_ROWS = (CHANGE_COLUMN, WRITE_ID_COLUMN, ROW_ID_COLUMN)
_TEXT, _NUMBER = {"type": "string"}, {"type": "int64"}


class FeedMessage(NamedTuple):
    """A message. Without a value it is a tombstone."""

    topic: str
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class FeedTopics:
    """The names of a feed's topics: ``all_tables``, or if it is None, one for each table after ``prefix``."""

    prefix: str
    all_tables: str | None = None

    def of(self, table: str) -> str:
        """Return the topic of a table."""
        return self.all_tables or f"{self.prefix}.{table}"

    @property
    def transactions(self) -> str:
        """The topic of the beginnings and ends of transactions."""
        return f"{self.prefix}.transaction"


class FeedFormat(Protocol):
    """The form of messages."""

    def topics(self, tables: Sequence[str]) -> tuple[str, ...]:
        """Return the topics of the messages of these tables."""
        ...

    def messages(self, transaction: ChangedTransaction) -> Iterator[FeedMessage]:
        """Yield the messages of a transaction, in order."""
        ...


def change_lines(txn_id: int | None, table: str, batch: pa.RecordBatch) -> Iterator[str]:
    """Yield the changes of a batch as JSON, as ``hive-mutate changes`` prints them."""
    start = json.dumps({"transaction": txn_id, "table": table})[:-1]
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    kinds, writes = (given.pop(each).to_pylist() for each in (CHANGE_COLUMN, WRITE_ID_COLUMN))
    row_ids = given.pop(ROW_ID_COLUMN).to_pylist() if ROW_ID_COLUMN in given else [None] * len(kinds)
    texts = json_texts(pa.record_batch(given).to_struct_array())
    for kind, write_id, row_id, text in zip(kinds, writes, row_ids, texts, strict=True):
        facts = {"change": kind, "write_id": write_id}
        if row_id is not None:
            facts[ROW_ID_COLUMN] = row_id
        yield f'{start}, {json.dumps(facts, ensure_ascii=False)[1:-1]}, "row": {text}}}'


@dataclass(frozen=True)
class JsonMessages:
    """The lines of ``hive-mutate changes``. The key is a JSON object with the key columns of the table.

    Without key columns there is no key.
    """

    names: FeedTopics
    on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def topics(self, tables: Sequence[str]) -> tuple[str, ...]:
        """See :class:`FeedFormat`."""
        return tuple(sorted({self.names.of(each) for each in tables}))

    def messages(self, transaction: ChangedTransaction) -> Iterator[FeedMessage]:
        """See :class:`FeedFormat`."""
        for name, table in transaction.tables.items():
            on = self.on.get(name, ())
            _check_keys(table, on)
            topic = self.names.of(name)
            for batch in table.to_batches():
                keys = _json_keys(batch, on)
                for key, line in zip(keys, change_lines(transaction.txn_id, name, batch), strict=True):
                    yield FeedMessage(topic, key, line.encode())


def _json_keys(batch: pa.RecordBatch, on: Sequence[str]) -> list[bytes | None]:
    if not on:
        return [None] * batch.num_rows
    columns = [to_json(batch.column(name)) for name in on]
    rows = zip(*columns, strict=True)
    return [json_text(dict(zip(on, row, strict=True))).encode() for row in rows]


class _Change(NamedTuple):
    """A change: Debezium's operation, the rows and the key as JSON, and the write id."""

    code: str
    before: str
    after: str
    key: str
    write_id: int


@dataclass(frozen=True)
class DebeziumMessages:
    """Debezium's envelopes.

    ``on``: the key columns of each table. ``milliseconds``: returns the present time. ``name``: the source.
    """

    names: FeedTopics
    on: Mapping[str, tuple[str, ...]]
    name: str
    milliseconds: Callable[[], int]

    def topics(self, tables: Sequence[str]) -> tuple[str, ...]:
        """See :class:`FeedFormat`."""
        return tuple(sorted({*(self.names.of(each) for each in tables), self.names.transactions}))

    def messages(self, transaction: ChangedTransaction) -> Iterator[FeedMessage]:
        """See :class:`FeedFormat`."""
        if transaction.is_snapshot:
            yield from self._snapshot(transaction)
            return
        time = self.milliseconds()
        mark = functools.partial(self._mark, self._transaction_id(transaction), time)
        yield mark("BEGIN")
        counts: Counter[str] = Counter()
        for name, table in transaction.tables.items():
            writer = self._writer(name, table)
            source = functools.partial(self._source, name, time, transaction.txn_id)
            for change in writer.changes(table):
                counts[name] += 1
                place = {
                    "id": self._transaction_id(transaction),
                    "total_order": counts.total(),
                    "data_collection_order": counts[name],
                }
                yield from writer.messages(change, source(change.write_id), json_text(place), time)
        yield mark("END", counts)

    def _snapshot(self, transaction: ChangedTransaction) -> Iterator[FeedMessage]:
        time = self.milliseconds()
        position = hashlib.sha256(transaction.position.encode()).hexdigest()[:16]
        for name, table in transaction.tables.items():
            writer = self._writer(name, table)
            for change in writer.changes(table):
                source = self._source(name, time, None, change.write_id, position)
                yield from writer.messages(change._replace(code="r"), source, "null", time)

    def _writer(self, name: str, table: ChangedTable) -> _TableWriter:
        _check_keys(table, self.on[name])
        return _table_writer(self.names.of(name), table.schema, self.on[name])

    def _source(
        self, table: str, time: int, txn_id: int | None, write_id: int | None, position: str | None = None
    ) -> str:
        database, _, short = table.partition(".")
        return json_text(
            {
                "version": _VERSION,
                "connector": "hive",
                "name": self.name,
                "ts_ms": time,
                "snapshot": "false" if position is None else "true",
                "db": database,
                "table": short,
                "txId": txn_id,
                "write_id": write_id,
                "position": position,
            }
        )

    @staticmethod
    def _transaction_id(transaction: ChangedTransaction) -> str:
        """Return the transaction's id; if the metastore has forgotten it, its end identifies it."""
        if transaction.txn_id is not None:
            return str(transaction.txn_id)
        names = ",".join(transaction.tables)
        return f"{names}:{hashlib.sha256(transaction.position.encode()).hexdigest()[:16]}"

    def _mark(
        self, transaction_id: str, time: int, status: str, counts: Mapping[str, int] | None = None
    ) -> FeedMessage:
        tables = None if counts is None else _counted(counts)
        payload = {
            "status": status,
            "id": transaction_id,
            "event_count": None if counts is None else sum(counts.values()),
            "data_collections": tables,
            "ts_ms": time,
        }
        key = {"schema": _MARK_KEY, "payload": {"id": transaction_id}}
        value = {"schema": _MARK_VALUE, "payload": payload}
        return FeedMessage(self.names.transactions, json_text(key).encode(), json_text(value).encode())


def _counted(counts: Mapping[str, int]) -> list[Mapping[str, Any]]:
    return [{"data_collection": name, "event_count": counts[name]} for name in sorted(counts)]


class _TableWriter:
    """Writes the messages of a table."""

    def __init__(self, topic: str, schema: pa.Schema, on: Sequence[str]) -> None:
        self._topic = topic
        self._names = [name for name in schema.names if name not in _BESIDE_ROWS]
        self._on = on
        fields = {
            name: {**connect_type(schema.field(name).type), "optional": True, "field": name}
            for name in self._names
        }
        row = struct_of(list(fields.values()), f"{topic}.Value", optional=True)
        envelope = struct_of(
            [{**row, "field": "before"}, {**row, "field": "after"}, *_BESIDE_THE_ROWS], f"{topic}.Envelope"
        )
        key = struct_of([fields[name] for name in on], f"{topic}.Key")
        self._schema, self._key_schema = json_text(envelope), json_text(key)

    def changes(self, table: ChangedTable) -> Iterator[_Change]:
        """Yield the changes; an update has both rows."""
        before = "null"
        for batch in table.to_batches():
            columns = {name: connect_values(batch.column(name)) for name in self._names}
            kinds = batch.column(CHANGE_COLUMN).to_pylist()
            writes = batch.column(WRITE_ID_COLUMN).to_pylist()
            rows, keys = _texts(columns, self._names), _texts(columns, self._on)
            for kind, write_id, row, key in zip(kinds, writes, rows, keys, strict=True):
                if kind == UPDATE_BEFORE:
                    before = row
                elif kind == UPDATE_AFTER:
                    yield _Change("u", before, row, key, write_id)
                elif kind == DELETE:
                    yield _Change("d", row, "null", key, write_id)
                else:
                    yield _Change("c", "null", row, key, write_id)

    def messages(self, change: _Change, source: str, place: str, time: int) -> Iterator[FeedMessage]:
        """Yield the message of a change, and the tombstone of a delete."""
        key = f'{{"schema":{self._key_schema},"payload":{change.key}}}'.encode()
        value = (
            f'{{"schema":{self._schema},"payload":{{"before":{change.before},"after":{change.after},'
            f'"source":{source},"transaction":{place},"op":"{change.code}","ts_ms":{time}}}}}'
        )
        yield FeedMessage(self._topic, key, value.encode())
        if change.code == "d":
            yield FeedMessage(self._topic, key, None)


@functools.lru_cache(maxsize=64)
def _table_writer(topic: str, schema: pa.Schema, on: tuple[str, ...]) -> _TableWriter:
    """Return the writer of a table. It is kept, because its schemas cost more than a small transaction."""
    return _TableWriter(topic, schema, on)


def _texts(columns: Mapping[str, Sequence[Any]], names: Sequence[str]) -> list[str]:
    rows = zip(*(columns[name] for name in names), strict=True)
    return [json_text(dict(zip(names, row, strict=True))) for row in rows]


def _check_keys(table: ChangedTable, on: Sequence[str]) -> None:
    missing = [name for name in on if name not in table.schema.names]
    if missing:
        raise ConfigurationError(
            f"table {table.name}: columns must contain the key column {missing[0]}, which the messages need"
        )


def _field(name: str, kind: Field, *, optional: bool = False) -> Field:
    return {**kind, "optional": optional, "field": name}


_VERSION = "1"
"""The version of the form of ``source``."""

_SOURCE = struct_of(
    [
        *(_field(each, _TEXT) for each in ("version", "connector", "name")),
        _field("ts_ms", _NUMBER),
        _field("snapshot", _TEXT, optional=True),
        *(_field(each, _TEXT) for each in ("db", "table")),
        *(_field(each, _NUMBER, optional=True) for each in ("txId", "write_id")),
        _field("position", _TEXT, optional=True),
    ],
    "mutation_api.hive.Source",
)
_BLOCK = struct_of(
    [
        _field("id", _TEXT),
        *(_field(each, _NUMBER) for each in ("total_order", "data_collection_order")),
    ],
    "event.block",
    optional=True,
    version=1,
)
_BESIDE_THE_ROWS: Sequence[Field] = (
    {**_SOURCE, "field": "source"},
    {**_BLOCK, "field": "transaction"},
    _field("op", _TEXT),
    _field("ts_ms", _NUMBER, optional=True),
)
_COLLECTION = struct_of(
    [_field("data_collection", _TEXT), _field("event_count", _NUMBER)], "event.collection", version=1
)
_MARK_KEY = struct_of([_field("id", _TEXT)], "io.debezium.connector.common.TransactionMetadataKey", version=1)
_MARK_VALUE = struct_of(
    [
        _field("status", _TEXT),
        _field("id", _TEXT),
        _field("event_count", _NUMBER, optional=True),
        {"type": "array", "items": _COLLECTION, "optional": True, "field": "data_collections"},
        _field("ts_ms", _NUMBER),
    ],
    "io.debezium.connector.common.TransactionMetadataValue",
    version=1,
)
