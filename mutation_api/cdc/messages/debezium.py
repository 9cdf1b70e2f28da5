"""Logs of Debezium: rows of MySQL, MariaDB, PostgreSQL and others as JSON envelopes.

A message is an envelope with ``before``, ``after``, ``source`` and ``op``, or has it as ``payload`` next to
its ``schema``. ``c`` and ``r`` (a row that a snapshot read) are inserts, which replace an existing row; ``u``
are updates, ``d`` deletes. A delete needs the row before it, or the message's key. An update that changes the
key is a delete and an insert, as Debezium sends it, or one message. Tombstones, marks of transactions,
heartbeats and messages of PostgreSQL's ``pg_logical_emit_message`` change nothing. Truncates (``t``) are
refused unless the user chose to apply them. By default Debezium leaves them out (``skipped.operations``); in
this case do not truncate a followed table. Changes of schemas are refused if their topic is part of the log,
see :class:`~.events.LogOptions`. Tables that are created, or that a snapshot describes, need no action.

The name of a table is ``DATABASE.TABLE``, or ``SCHEMA.TABLE`` if the source has schemas. It may be prefixed
with the database and ``topic.prefix``.

**Order**: for MySQL and MariaDB, ``source.file``, ``pos`` and ``row``, with files ordered by the number in
their names. For PostgreSQL, ``source.sequence`` and ``lsn``: the last commit before, then the position of the
change, since transactions come in the order of their commits, while their changes are interleaved in the log.
Rows that an incremental snapshot reads have the position at which the connector wrote them, after all changes
that it had seen. Other sources have no position: choose the order of lines. Do the same if ``pos`` is 0, as
with MariaDB since 11.4 if the connector passes on its positions within a transaction.

**Key**: the columns of the message's key, or the columns that the user names.

**Values**: see :mod:`~mutation_api.cdc.messages.debezium_values`.

Source: Debezium's documentation of its connectors for MySQL and PostgreSQL, 3.x.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

from mutation_api.cdc.messages.debezium_flat import FlattenedMessages
from mutation_api.cdc.messages.debezium_values import DebeziumValues
from mutation_api.cdc.messages.events import (
    INCREMENTAL,
    Event,
    Images,
    Message,
    MessageFormat,
    PositionSource,
    Problem,
    Unlogged,
    bigint,
    number_of,
    origins_of,
)
from mutation_api.cdc.messages.json_text import (
    Fields,
    RepeatedObject,
    field_of,
    fields_of,
    objects_of,
    text_of,
)
from mutation_api.cdc.messages.json_values import Reader
from mutation_api.cdc.messages.message_source import MessageSource
from mutation_api.cdc.messages.table_names import (
    ANY_TABLE,
    TableId,
    moves_tables,
    names_in,
    parts_of_names,
    replaces_table,
)
from mutation_api.errors import InputFormatError
from mutation_api.format.hive_type import HiveType

OPERATIONS = {"c": "insert", "r": "insert", "u": "update", "d": "delete"}

_FILE = re.compile(r"(.*?)\.?([0-9]{1,18})", re.DOTALL)
_NAMES_KEPT = 256
"""The number of file and log names whose parts are kept, since messages repeat them."""

_LOG_WHOLE_ROWS = (None, "mysql", "mariadb", "sqlserver", "oracle", "db2", "informix")
"""The connectors whose sources log all columns of a row before its change. PostgreSQL logs those of the
replica identity; for the others the connector writes null, or zero if a column is NOT NULL."""

_LAST_COMMIT = re.compile(r'\[\s*"?([0-9]{1,19})"?\s*,')


@dataclass(frozen=True)
class DebeziumSource(MessageSource):
    """A log of messages of Debezium's connectors.

    See :class:`~mutation_api.cdc.messages.message_source.MessageSource` for the other arguments.

    Args:
        values: how values are written, for messages without a schema.
        flattened: how messages were flattened. If None, they are envelopes.
    """

    _: KW_ONLY
    values: DebeziumValues = field(default_factory=DebeziumValues)
    flattened: FlattenedMessages | None = None

    @property
    def format(self) -> MessageFormat:
        """The format of Debezium's messages."""
        return DebeziumFormat(self.values, self.flattened)

    @property
    def describes_columns(self) -> bool:
        """True: Kafka Connect's converters can write schemas."""
        return True

    def format_for(self, tables: Sequence[str]) -> MessageFormat:
        """Return the format of the messages if these tables are followed."""
        return DebeziumFormat(self.values, self.flattened, tables[0] if len(tables) == 1 else None)


@dataclass(frozen=True)
class DebeziumFormat(MessageFormat):
    """The format of Debezium's messages; ``followed``: the followed table, if there is only one."""

    values: DebeziumValues = field(default_factory=DebeziumValues)
    flattened: FlattenedMessages | None = None
    followed: str | None = None
    name: str = field(default="debezium", init=False)

    @property
    def is_flattened(self) -> bool:
        """True if messages are flattened rows."""
        return self.flattened is not None

    @property
    def metadata_prefixes(self) -> tuple[str, ...]:
        """The prefixes of fields that are not columns of the source."""
        return () if self.flattened is None else self.flattened.metadata_prefixes

    @property
    def unlogged(self) -> Unlogged:
        """The placeholders for values that were not logged."""
        return self.values.unlogged

    def event(self, message: Message, _positions: PositionSource) -> Event:
        """Return the event of a message. See :class:`~mutation_api.cdc.messages.events.MessageFormat`."""
        if self.flattened is None:
            return _Envelope(message).event()
        found = self.flattened.enveloped(message, self.followed)
        if isinstance(found, Problem):
            return Event("damaged", problem=found)
        return _Envelope(found).event()

    def readers(
        self, table: str, columns: Mapping[str, HiveType], schema: str | None
    ) -> Mapping[str, Reader]:
        """Return the readers of columns. See :class:`~mutation_api.cdc.messages.events.MessageFormat`."""
        return self.values.readers(table, columns, schema)


class _Envelope:
    """The fields of a message's envelope, None without an envelope; ``schema`` is that of its rows."""

    def __init__(self, message: Message) -> None:
        fields, key = fields_of(message.value), fields_of(message.key)
        self.has_schema = _has_payload(fields)
        self.schema: str | None = None
        if fields is not None and self.has_schema:
            self.schema = _row_schema(fields["schema"])
            fields = fields_of(fields["payload"])
        if key is not None and _has_payload(key):
            key = fields_of(key["payload"])
        self.fields, self.key = fields, key
        self.source: Fields = fields_of(field_of(fields, "source")) or {}
        get = self.source.get
        self.connector, self.id, self.table, self.file, self.log = _place(
            get("connector"), get("name"), get("db"), get("schema"), get("table"), get("file")
        )
        self.code = None if fields is None else text_of(fields.get("op"))

    def event(self) -> Event:
        kind = self._kind()
        problem = None if kind in ("other", "schema change", "truncate") else self._problem()
        is_row = kind == "row" and problem is None
        touches, mentions = self._touched() if kind == "schema change" else ((), frozenset())
        snapshot = self._snapshot_position() if self.code == "r" else None
        return Event(
            kind,
            self._changed_table() if self.code is None else self.table,
            OPERATIONS.get(self.code or ""),
            self._log_position(snapshot),
            self.log,
            self.schema,
            self.key,
            None if self.key is None else tuple(sorted(self.key)),
            (self._images(),) if is_row else (),
            self.code if is_row else text_of(field_of(self.fields, "ddl")) or self.code,
            problem,
            None if self.table is None else self.id,
            touches,
            mentions,
            self._origins(),
            snapshot,
            number_of(self.source.get("ts_ms")),
            self._changed_at(),
        )

    def _images(self) -> Images:
        fields = self.fields or {}
        before, after = fields_of(fields.get("before")), fields_of(fields.get("after"))
        return Images(before, after, self.connector not in _LOG_WHOLE_ROWS)

    def _source(self, name: str) -> str | None:
        value = self.source.get(name)
        return value if value is None or value.__class__ is str else text_of(value)

    def _table_changes(self) -> list[Fields | None] | None:
        return objects_of(field_of(self.fields, "tableChanges"))

    def _changed_table(self) -> str | None:
        """Return the table that a message on the schema change topic concerns, or all of the database."""
        changes = self._table_changes()
        if changes is not None and len(changes) == 1:
            names = parts_of_names(text_of(field_of(changes[0], "id")))
            return None if names is None else ", ".join(map(".".join, names))
        database = text_of(field_of(self.fields, "databaseName"))
        return None if database is None else f"{database}.*"

    def _touched(self) -> tuple[tuple[TableId, ...], frozenset[str]]:
        """Return the tables that a schema change may concern, and the names in its statement.

        A table that is renamed has both names in its id, or the old one in ``previousId``. The statement is
        also used if it may give a table the name or the rows of another one, since some versions of Debezium
        report only one of the names.
        """
        ddl = text_of(field_of(self.fields, "ddl"))
        mentions = names_in(ddl) if moves_tables(ddl) else frozenset()
        changes = self._table_changes()
        if not changes:
            return (self._whole_database(),), mentions
        texts = [text_of(field_of(each, "id")) for each in changes]
        texts += [text for each in changes if (text := text_of(field_of(each, "previousId"))) is not None]
        texts += [text] if (text := self._source("table")) and self._is_without_schemas() else []
        found = [parts_of_names(text) for text in texts]
        if None in found:
            return (ANY_TABLE,), mentions
        return tuple(self._named_table(parts) for names in found if names for parts in names), mentions

    def _named_table(self, parts: tuple[str, ...]) -> TableId:
        """Return the table of an id whose parts are a name, perhaps after a schema or database."""
        database = text_of(field_of(self.fields, "databaseName")) or self._source("db") or None
        schema = text_of(field_of(self.fields, "schemaName")) or self._source("schema") or None
        if self._is_without_schemas():
            return TableId(self.id.log, parts[-2] if len(parts) > 1 else database, None, parts[-1])
        owners = {1: (database, schema), 2: (database, parts[0]), 3: parts[:2]}.get(len(parts), (None, None))
        return TableId(self.id.log, owners[0], owners[1], parts[-1])

    def _whole_database(self) -> TableId:
        """Return all tables of the database that a schema change names, or all tables if it has schemas."""
        database = text_of(field_of(self.fields, "databaseName"))
        if not database or not self._is_without_schemas():
            return ANY_TABLE
        return TableId(self.id.log, database, None, None)

    def _is_without_schemas(self) -> bool:
        return self._source("schema") is None and (
            self._source("file") is not None or self._source("connector") in ("mysql", "mariadb")
        )

    def _kind(self) -> str:
        if self.code == "t":
            return "truncate"
        if self.code == "m" or (self.has_schema and self.fields is None):
            return "other"
        if self.code is not None:
            return "damaged" if self.table is None else "row"
        if self.fields is None:
            return "damaged"
        is_heartbeat = bool(self.fields) and all(name.startswith("ts_") for name in self.fields)
        is_mark = "id" in self.fields and text_of(self.fields.get("status")) in ("BEGIN", "END")
        if is_heartbeat or is_mark:
            return "other"
        if not {"ddl", "tableChanges"} & set(self.fields):
            return "damaged"
        return "other" if self._needs_no_change() else "schema change"

    def _needs_no_change(self) -> bool:
        """Return True if tables are described by a snapshot, or created."""
        changes = self._table_changes()
        if self._is_of_snapshot():
            return True
        kinds = {text_of(field_of(each, "type")) for each in changes or ()}
        return kinds == {"CREATE"} and not replaces_table(text_of(field_of(self.fields, "ddl")))

    def _is_of_snapshot(self) -> bool:
        return (self._source("snapshot") or "false") not in ("false", "incremental")

    def _snapshot_position(self) -> str:
        """Return the position of the snapshot that read the row, which is the same for all its rows."""
        if self._source("snapshot") in (None, INCREMENTAL):
            return INCREMENTAL
        names = (
            ("file", "pos") if self._source("file") is not None else ("lsn", "commit_lsn", "scn", "position")
        )
        return ":".join(part for part in map(self._source, names) if part is not None)

    def _log_position(self, snapshot: str | None) -> tuple[int, int, int] | None:
        if self.file is not None:
            place, row = number_of(self.source.get("pos")), self.source.get("row")
            number = 0 if row is None else number_of(row)
            return (self.file[1], place, number) if place and number is not None else None
        if self.connector != "postgresql":
            return None
        if snapshot not in (None, INCREMENTAL):
            return (0, 0, 0)
        found = _LAST_COMMIT.match(self._source("sequence") or "")
        last_commit, lsn = 0 if found is None else bigint(found[1]), number_of(self.source.get("lsn"))
        return None if last_commit is None or lsn is None else (last_commit, lsn, 0)

    def _changed_at(self) -> int | None:
        """Return the time of the change, which newer connectors also give in microseconds."""
        micros = number_of(self.source.get("ts_us"))
        if micros is not None:
            return micros
        millis = number_of(self.source.get("ts_ms"))
        return None if millis is None else millis * 1000

    def _origins(self) -> tuple[tuple[str, str], ...]:
        server, gtid = self._source("server_id"), self.source.get("gtid")
        return () if server is None and gtid is None else origins_of(server, text_of(gtid))

    def _problem(self) -> Problem | None:
        """Return what is wrong with a row's message, or with an unknown message; None if nothing is."""
        if self.code is None:
            names = ", ".join(self.fields or ())
            if "specversion" in (self.fields or ()):
                text = "this is a CloudEvent; have the connector write JSON (value.converter=…JsonConverter)"
                return Problem(InputFormatError, "specversion", text)
            text = (
                f"this is not a Debezium envelope: it has the fields {names}. If the messages were flattened "
                "(ExtractNewRecordState, after.state.only), use --flattened"
            )
            return Problem(InputFormatError, "op", text)
        if self.code not in OPERATIONS:
            text = f"unknown operation {self.code}, expected one of {', '.join(OPERATIONS)}"
            return Problem(InputFormatError, "op", text)
        if self.table is None:
            return Problem(InputFormatError, "source", "does not name database and table")
        if self.code != "d" and fields_of(field_of(self.fields, "after")) is None:
            return Problem(InputFormatError, "after", "the message has no row")
        return None


class _Place(NamedTuple):
    """Where a change was logged: the part of a message that other messages repeat.

    Attributes:
        connector: name of the connector.
        id, table: the table, and its short name; None if the message does not name it.
        file: the part of the file's name before the number, and the number; None if it has none.
        log: the log to which a position belongs: that of a server, by Debezium's name for it.
    """

    connector: str | None
    id: TableId
    table: str | None
    file: tuple[str, int] | None
    log: str


def _place(*names: object) -> _Place:
    """Return the place of the connector, name, database, schema, table and file that a message names."""
    try:
        return _known_place(*names)
    except TypeError:  # objects and arrays, which have no hash, in place of names
        return _place_of(*map(text_of, names))


@functools.lru_cache(maxsize=_NAMES_KEPT, typed=True)
def _known_place(*names: object) -> _Place:
    return _place_of(*map(text_of, names))


def _place_of(
    connector: str | None,
    name: str | None,
    database: str | None,
    schema: str | None,
    table: str | None,
    file: str | None,
) -> _Place:
    found = TableId(name, database, schema, table)
    numbered = _FILE.fullmatch(file or "")
    parts = None if numbered is None else (numbered[1], int(numbered[2]))
    of_log = (connector, name, "" if parts is None else parts[0])
    log = " ".join(part for part in of_log if part is not None).rstrip(" ")
    return _Place(connector, found, found.short, parts, log)


def _has_payload(fields: Fields | None) -> bool:
    return fields is not None and "payload" in fields and "schema" in fields


def _row_schema(schema: object) -> str | None:
    """Return the schema of the rows in an envelope, as a string."""
    return schema.derived(_row_schema_of) if isinstance(schema, RepeatedObject) else _row_schema_of(schema)


def _row_schema_of(schema: object) -> str | None:
    fields = objects_of(field_of(fields_of(schema), "fields")) or ()
    rows = next((each for each in fields if text_of(field_of(each, "field")) == "after"), None)
    return text_of(rows)
