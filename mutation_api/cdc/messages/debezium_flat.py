"""Flattened messages of Debezium: the rows that ExtractNewRecordState makes of envelopes. Pure.

A message is the row after a change, with metadata in fields whose names begin with a prefix (``__``). This
module converts it to an envelope again, with the information that it has. Later code handles it like other
messages of Debezium.

=================  =======================================================================================
of the envelope    from
=================  =======================================================================================
``op``             ``__op`` (``add.fields=op``); else an update, which writes a row that is new or not
delete             ``__deleted`` is ``true``, or the message has no value
                   (``delete.tombstone.handling.mode``: ``rewrite``, or ``tombstone`` and similar modes)
table              ``__table`` with ``__schema`` or ``__db``; the name of the schema
                   (``erp.shop.people.Value``), the last two parts of the topic's name, or the user's choice
position           ``__file``, ``__pos`` and ``__row``, or ``__sequence`` and ``__lsn``
=================  =======================================================================================

Each name may have ``source_`` after the prefix. A change of a primary key is a delete and a create. For other
changes the message does not show the row before: follow the table by the key of its messages. A message
without ``__deleted`` and without a key is refused: deletes could not be recognized, and would be lost.
Deletes that a connector drops (``delete.tombstone.handling.mode=drop``) are in no message.

Messages that the transformation does not change (heartbeats, marks of transactions, schema changes,
envelopes) are read unchanged.

Source: Debezium's page "New Record State Extraction", 3.x, and the classes of the transformation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mutation_api.cdc.messages.events import Message, Problem
from mutation_api.cdc.messages.json_text import Fields, RepeatedObject, field_of, fields_of, text_of
from mutation_api.errors import InputFormatError

_DELETED = "__deleted"
"""The name of this field always has this prefix."""

_TRANSACTION = {"status", "id", "event_count", "data_collections", "ts_ms"}
_SOURCE = "source_"
_WITHOUT_SCHEMAS = ("mysql", "mariadb")
_WITH_SCHEMAS = ("postgresql", "sqlserver", "oracle", "db2", "informix")
_POSTGRESQL, _ANY = "postgresql", "flattened"
"""The connector, if the messages do not name it."""


@dataclass(frozen=True, kw_only=True)
class FlattenedMessages:
    """The way in which messages were flattened.

    Args:
        table: the source's name of the table of all messages without ``__table``, for any topic and schema.
            If None, topic or schema name the table. If they do not, it is the followed table, if there is
            only one.
        prefix: the transformation's ``add.fields.prefix``.
    """

    table: str | None = None
    prefix: str = "__"

    @property
    def metadata_prefixes(self) -> tuple[str, ...]:
        """The prefixes of the names of fields that are not columns of the source."""
        return (_DELETED, *([self.prefix] if self.prefix else []))

    def enveloped(self, message: Message, followed: str | None) -> Message | Problem:
        """Return a message's envelope, or what is wrong with it; ``followed``: the only table or None."""
        schema, value = _schema_and_payload(message.value)
        fields = fields_of(value)
        if value is not None and fields is None:
            return Problem(InputFormatError, None, "the message is not a row, which is a JSON object")
        if fields is not None and _is_no_row(fields):
            return message
        key_schema, key = _schema_and_payload(message.key)
        names = (_schema_name(schema, "Value"), _schema_name(key_schema, "Key"))
        return _FlatRow(self, fields, fields_of(key), schema or key_schema).enveloped(
            message, (*names, _of_topic(message.topic)), followed
        )


@dataclass(frozen=True)
class _FlatRow:
    """The parts of a message; ``fields`` is None if it has no value."""

    options: FlattenedMessages
    fields: Fields | None
    key: Fields | None
    schema: Fields | None

    def enveloped(
        self, message: Message, names: tuple[str | None, ...], followed: str | None
    ) -> Message | Problem:
        """Return the envelope; ``names``: the table's names in the schema and the topic."""
        if self.key is None and (self.fields is None or _DELETED not in self.fields):
            what = "has no value and no key" if self.fields is None else f"has neither {_DELETED} nor a key"
            text = (
                f"the message {what}, so it is not known which rows were deleted; have the transformation "
                "write deletes as rows (delete.tombstone.handling.mode=rewrite), or read messages with "
                "their keys as JSON (print.key=true)"
            )
            return Problem(InputFormatError, _DELETED, text)
        source = self._source()
        table = self._table(source, names, followed)
        if isinstance(table, Problem):
            return table
        code = self._code()
        if isinstance(code, Problem):
            return code
        database, _, name = table.rpartition(".")
        owner = {} if text_of(source.get("schema")) == database else {"schema": None, "db": database}
        source = {**source, **owner, "table": name}
        source["connector"] = source.get("connector") or (_POSTGRESQL if "lsn" in source else _ANY)
        is_delete = code == "d"
        payload = {
            "op": code,
            "before": self.fields if is_delete else None,
            "after": None if is_delete else self.fields,
            "source": source,
        }
        if self.schema is None:
            return Message(message.key, payload)
        return Message(message.key, {"schema": _envelope_schema(self.schema), "payload": payload})

    def _source(self) -> dict[str, Any]:
        """Return the metadata, with the names that it has in an envelope."""
        prefix = self.options.prefix
        if not prefix:
            return {}
        found = {n.removeprefix(prefix): v for n, v in (self.fields or {}).items() if n.startswith(prefix)}
        return {name.removeprefix(_SOURCE): value for name, value in found.items() if value is not None}

    def _code(self) -> str | Problem:
        """Return the operation."""
        if self.fields is None:
            return "d"
        code = text_of(self.fields.get(f"{self.options.prefix}op")) if self.options.prefix else None
        deleted = text_of(self.fields.get(_DELETED))
        if code is None and deleted in (None, "true", "false"):
            return "d" if deleted == "true" else "u"
        if code is not None and deleted in (None, "true" if code == "d" else "false"):
            return code
        text = f"is {deleted}, but the operation is {code}; expected true for a delete (d), false for others"
        return Problem(InputFormatError, _DELETED, text)

    def _table(
        self, source: Mapping[str, Any], names: tuple[str | None, ...], followed: str | None
    ) -> str | Problem:
        """Return the source's name of the table."""
        table, schema, database = (text_of(source.get(name)) for name in ("table", "schema", "db"))
        if table is not None and schema is not None:
            return f"{schema}.{table}"
        named = [n for n in (self.options.table, *names) if n is not None and table in (None, _last(n))]
        if table is not None and database is not None:
            full_name = f"{database}.{table}"
            if named and full_name != followed and not _has_no_schemas(source):
                return named[0]
            return _without_schema(self.options.prefix) if _has_schemas(source) else full_name
        if named:
            return named[0]
        if followed is not None:
            return followed if table in (None, _last(followed)) else str(table)
        text = (
            "the message does not name its table, but several are followed; have the transformation add it "
            "(add.fields=table,db; for sources with schemas table,schema), or read each table as a separate "
            "source (--flattened)"
        )
        return Problem(InputFormatError, f"{self.options.prefix}table", text)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _has_schemas(source: Mapping[str, Any]) -> bool:
    """Return True if the databases of the source have schemas."""
    return source.get("connector") in _WITH_SCHEMAS or "lsn" in source


def _has_no_schemas(source: Mapping[str, Any]) -> bool:
    return "file" in source or source.get("connector") in _WITHOUT_SCHEMAS


def _without_schema(prefix: str) -> Problem:
    text = (
        "the message names its table and database, but not its schema, and the source has several schemas; "
        "have the transformation add it (add.fields=table,schema), or name the table of the messages: "
        "--flattened SCHEMA.TABLE"
    )
    return Problem(InputFormatError, f"{prefix}schema", text)


def _schema_and_payload(value: object) -> tuple[Fields | None, object]:
    fields = fields_of(value)
    if fields is None or fields.keys() != {"schema", "payload"}:
        return None, value
    schema = fields_of(fields["schema"])
    return schema, fields["payload"]


def _is_no_row(fields: Fields) -> bool:
    """Return True if it is a message that the transformation does not change."""
    source = fields_of(field_of(fields, "source"))
    if source is not None and ("op" in fields or "tableChanges" in fields or "ddl" in fields):
        return True
    return fields.keys() == _TRANSACTION or (bool(fields) and all(name.startswith("ts_") for name in fields))


def _schema_name(schema: Fields | None, suffix: str) -> str | None:
    """Return the table in the name of a schema, such as ``erp.shop.people.Value``."""
    name = text_of(field_of(schema, "name"))
    parts = [] if name is None else name.split(".")
    return ".".join(parts[-3:-1]) if len(parts) > 3 and parts[-1] == suffix else None


def _of_topic(topic: str | None) -> str | None:
    """Return the table in the name of a topic, such as ``erp.shop.people``."""
    parts = [] if topic is None else topic.split(".")
    return ".".join(parts[-2:]) if len(parts) > 2 else None


def _envelope_schema(schema: Fields) -> Fields:
    return (
        schema.derived(_envelope_schema_of)
        if isinstance(schema, RepeatedObject)
        else _envelope_schema_of(schema)
    )


def _envelope_schema_of(schema: Fields) -> RepeatedObject:
    return RepeatedObject({"type": "struct", "fields": [{**schema, "field": "after"}]})
