"""The plan for reading one table: the source's column for each Hive column, and the key of its rows.

Rows of a SELECT are matched with the catalog. Rows of the log are matched with the columns and the key that
the table had when they were logged, which the log describes before the rows. Rows before an ALTER are
therefore read with the definition of that time. The replication library reads the types from this
description; this module reads the character sets, the members of enums and sets, and the key.

A table is refused if a change of it could also change other tables: it must store its own rows and have no
triggers.

Source: MySQL's source documentation, "Table_map_event", "The Optional_metadata"; MariaDB's rpl_tblmap.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymysqlreplication.constants import CHARSET, FIELD_TYPE

from mutation_api.cdc.mysql.column_types import SourceColumn, check_target, codec_of, family_of
from mutation_api.cdc.mysql.log_position import START_OVER, Advice
from mutation_api.cdc.mysql.row_events import LoggedColumn, RowDecoder
from mutation_api.cdc.mysql.server import CatalogTable, MySqlServer
from mutation_api.cdc.mysql.spill import TargetColumn
from mutation_api.cdc.source import SourceTable
from mutation_api.errors import InputFormatError, RecordLayoutError
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.table.row_type import quoted

_PACKET_BYTES = 1 + 19
"""The lengths of the packet's first byte and of the event's header."""
_TABLE_BYTES = 6 + 2
"""The lengths of the table's number and of the flags."""
_BINARY = 63
_NO_PAD_OFFSET = 1024
_UCA1400 = 2048
_UCA1400_CHARSETS = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")
"""The character sets of MariaDB's newest collations, each with 256 numbers from _UCA1400 on."""
_WITH_CHARSET = (FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB)


class _Field(enum.IntEnum):
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    SET_MEMBERS = 5
    ENUM_MEMBERS = 6
    PRIMARY_KEY = 8
    PRIMARY_KEY_WITH_PREFIX = 9
    MEMBERS_DEFAULT_CHARSET = 10
    MEMBERS_COLUMN_CHARSET = 11


@dataclass(frozen=True)
class LoggedTable:
    """The columns in order, and the names of the primary key's columns.

    For a table without a primary key, this is the first unique key whose columns are never NULL.
    """

    columns: tuple[LoggedColumn, ...]
    primary_key: tuple[str, ...]


def logged_table(event: Any, data: bytes) -> LoggedTable:
    """Return the table that a table map event describes.

    Args:
        event: an event of the replication library that has column names.
        data: the packet with the event, to its end or its checksum.
    """
    fields = dict(_fields(_optional(event, data)))
    is_mariadb = event.dbms == "mariadb"
    with_charset = (*_WITH_CHARSET, FIELD_TYPE.GEOMETRY) if is_mariadb else _WITH_CHARSET
    texts = [n for n, column in enumerate(event.columns) if column.type in with_charset]
    members = [
        n for n, column in enumerate(event.columns) if column.type in (FIELD_TYPE.ENUM, FIELD_TYPE.SET)
    ]
    charsets = _charsets(fields, texts, _Field.DEFAULT_CHARSET, _Field.COLUMN_CHARSET)
    charsets |= _charsets(fields, members, _Field.MEMBERS_DEFAULT_CHARSET, _Field.MEMBERS_COLUMN_CHARSET)
    labels: dict[int, list[bytes]] = {}
    for code, field in ((FIELD_TYPE.ENUM, _Field.ENUM_MEMBERS), (FIELD_TYPE.SET, _Field.SET_MEMBERS)):
        numbers = [n for n in members if event.columns[n].type == code]
        labels |= dict(zip(numbers, _members(fields.get(field, b"")), strict=False))
    columns = tuple(
        LoggedColumn(column.name, column, charsets.get(n), _decoded(labels.get(n), charsets.get(n)))
        for n, column in enumerate(event.columns)
    )
    key = _Bytes(fields.get(_Field.PRIMARY_KEY, b"")).numbers()
    if not key:
        key = _Bytes(fields.get(_Field.PRIMARY_KEY_WITH_PREFIX, b"")).numbers()[::2]
    return LoggedTable(columns, tuple(columns[n].name for n in key))


class _Bytes:
    """A reader of the protocol's numbers and strings, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        first = self.take(1)[0]
        size = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first)
        return first if size is None else int.from_bytes(self.take(size), "little")

    def string(self) -> bytes:
        return self.take(self.number())

    def numbers(self) -> list[int]:
        found = []
        while self.at < len(self.data):
            found.append(self.number())
        return found


def _optional(event: Any, data: bytes) -> bytes:
    """Return the part of an event after the columns."""
    reader = _Bytes(data)
    reader.take(_PACKET_BYTES + _TABLE_BYTES)
    for _ in ("database", "table"):
        reader.take(reader.take(1)[0] + 1)
    count = reader.number()
    reader.take(count)
    reader.take(reader.number())
    reader.take((count + 7) // 8)
    return data[reader.at : _PACKET_BYTES + event.event_size]


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _Bytes(data)
    while reader.at < len(data):
        kind = reader.take(1)[0]
        yield kind, reader.string()


def _charsets(
    fields: dict[int, bytes], columns: Sequence[int], default: int, each: int
) -> dict[int, str | None]:
    """Return the character sets of these columns."""
    if each in fields:
        return dict(zip(columns, map(charset_of, _Bytes(fields[each]).numbers()), strict=False))
    if default not in fields:
        return {}
    first, *others = _Bytes(fields[default]).numbers()
    found: dict[int, str | None] = dict.fromkeys(columns, charset_of(first))
    for index, collation in zip(others[::2], others[1::2], strict=True):
        found[columns[index]] = charset_of(collation)
    return found


def charset_of(collation: int) -> str | None:
    """Return the character set of a collation number, or None if it is unknown."""
    if collation == _BINARY:
        return "binary"
    if collation >= _UCA1400:
        place = collation - _UCA1400 >> 8
        return _UCA1400_CHARSETS[place] if place < len(_UCA1400_CHARSETS) else None
    if collation >= _NO_PAD_OFFSET:
        collation -= _NO_PAD_OFFSET
    found = CHARSET.charset_by_id(str(collation)) or CHARSET.charset_by_id(str(collation), "mariadb")
    return None if found is None else str(found.name)


def _members(data: bytes) -> Iterator[list[bytes]]:
    reader = _Bytes(data)
    while reader.at < len(data):
        yield [reader.string() for _ in range(reader.number())]


def _decoded(labels: list[bytes] | None, charset: str | None) -> tuple[str, ...] | None:
    """Return the members of an enum or a set, or None if they cannot be read."""
    if labels is None:
        return None
    decode = codec_of(charset)
    try:
        return None if decode is None else tuple(map(decode, labels))
    except UnicodeError:
        return None


@dataclass(frozen=True)
class Shape:
    """A table between two changes of its columns.

    ``lacking``: Hive columns, in lower case, that the source's table did not have.
    """

    decoder: RowDecoder
    columns: tuple[TargetColumn, ...]
    key_indices: tuple[int, ...]
    lacking: frozenset[str]


class TablePlan:
    """A plan for reading one table."""

    def __init__(self, table: SourceTable, database: str, ignored: Collection[str], advice: Advice) -> None:
        """Create a plan from the columns of the Hive table.

        Args:
            table: the source's table, and the Hive table that follows it.
            database: the source's database.
            ignored: columns that only one side has, as ``table.column`` in lower case.
            advice: the wording of messages.
        """
        self.table = table
        self.name = f"{database}.{table.name}"
        self.key: tuple[str, ...] = ()
        """The key of the rows read; empty until then."""
        self.is_transactional = False
        self._database = database
        self._advice = advice
        self._catalog: CatalogTable | None = None
        targets = (*table.target.columns, *table.target.partition_keys)
        self._targets = [(target.name, parse_hive_type(target.type)) for target in targets]
        self.wanted = [target.name.lower() for target in targets]
        prefix = f"{table.name.lower()}."
        self.ignored = {name.removeprefix(prefix) for name in ignored if name.startswith(prefix)}

    @property
    def left_out(self) -> set[str]:
        """The columns that are ignored and do not exist in Hive."""
        return self.ignored - set(self.wanted)

    def note(self, catalog: CatalogTable | None) -> None:
        """Note the table's entry in the current catalog, or None if the catalog does not have the table."""
        self._catalog = catalog
        self.is_transactional = catalog is not None and catalog.is_transactional

    def columns_now(self) -> tuple[TargetColumn, ...]:
        """Match the catalog's columns with Hive's.

        Raises:
            RecordLayoutError: If they do not match, or the table has no key.
        """
        assert self._catalog is not None
        catalog = self._catalog
        if not catalog.keys:
            raise RecordLayoutError(
                f"source table {self.name} has no primary key and no unique key without NULL, so its rows "
                "cannot be identified. Give it a key (ALTER TABLE … ADD PRIMARY KEY)"
            )
        sources = {column.name.lower(): column for column in catalog.columns}
        lacking = [name for name in self.wanted if name not in sources and name not in self.ignored]
        self._check_columns(sources, lacking, "")
        found = self._matched(sources, self.name)
        self._choose_key(catalog.keys, "has now")
        return found

    def select(self) -> str:
        """Return the statement that reads the whole table, with the columns of :meth:`columns_now`."""
        # MySQL quotes names as Spark does.
        wanted = [
            "NULL"
            if column.source is None
            else family_of(column.source, self.name).select(quoted(column.source.name))
            for column in self.columns_now()
        ]
        return f"SELECT {', '.join(wanted)} FROM {quoted(self._database, self.table.name)}"

    @property
    def key_indices(self) -> tuple[int, ...]:
        """The indices of the key's columns among Hive's."""
        return tuple(self.wanted.index(column) for column in self.key)

    def shape(self, logged: LoggedTable, position: str) -> Shape:
        """Match columns of the log with Hive's.

        Args:
            logged: the table at this position.
            position: for messages.

        Raises:
            RecordLayoutError: If Hive lacks a column, or cannot hold one.
            InputFormatError: If a type is unknown, or the key differs from an earlier one.
        """
        now = (
            {} if self._catalog is None else {column.name.lower(): column for column in self._catalog.columns}
        )
        where = f"{self.name} at {position}"
        sources: dict[str, SourceColumn] = {}
        for column in logged.columns:
            name = column.name.lower()
            found = column.described(now.get(name))
            if found is None and name in self.wanted:
                raise InputFormatError(
                    f"source table {where}, column {column.name!r}: the log's type {column.meta.type} or "
                    f"its character set ({column.charset or 'not given'}) is unknown. {START_OVER}"
                )
            sources[name] = found or SourceColumn(column.name, "", "an unknown type")
        self._check_columns(sources, [], f" at {position}")
        decoder = RowDecoder(self.name, logged.columns, self.wanted)
        columns = self._matched(sources, where)
        self._choose_key(self._keys_of(logged, where), f"had at {position}")
        lacking = frozenset(set(self.wanted) - set(sources) - (self.ignored - set(now)))
        return Shape(decoder, columns, self.key_indices, lacking)

    def _keys_of(self, logged: LoggedTable, where: str) -> Sequence[Sequence[str]]:
        if logged.primary_key:
            return [tuple(name.lower() for name in logged.primary_key)]
        if self._catalog is None or self._catalog.has_primary_key or not self._catalog.keys:
            raise InputFormatError(
                f"source table {where} had no primary key, so its rows cannot be identified. {START_OVER}"
            )
        return self._catalog.keys

    def _check_columns(self, sources: Mapping[str, SourceColumn], missing: Sequence[str], where: str) -> None:
        """Raise RecordLayoutError if one side lacks columns that are not ignored."""
        extra = [name for name in sources if name not in self.wanted and name not in self.ignored]
        if not (missing or extra):
            return
        target, own = self.table.target.full_name, self.table.name
        lacks = []
        if missing:
            lacks.append(
                f"the source lacks {', '.join(missing)}: set {_them(missing)} to NULL in Hive (UPDATE "
                f"{target} SET …) and leave {_them(missing)} out: {self._advice.ignore_columns(own, missing)}"
            )
        if extra:
            names = [sources[name].name for name in extra]
            described = ", ".join(
                f"{own}.{sources[n].name} ({sources[n].type_text} at the source)" for n in extra
            )
            lacks.append(
                f"Hive lacks {described}: add {_them(extra)} with ALTER TABLE {target} ADD COLUMNS (…), or "
                f"leave {_them(extra)} out: {self._advice.ignore_columns(own, names)}"
            )
        raise RecordLayoutError(f"source table {self.name}{where} and {target} differ: {'; '.join(lacks)}")

    def _matched(self, sources: Mapping[str, SourceColumn], where: str) -> tuple[TargetColumn, ...]:
        found = []
        for (name, kind), lower in zip(self._targets, self.wanted, strict=True):
            source = sources.get(lower)
            if source is not None:
                check_target(source, kind, where)
            found.append(TargetColumn(name, kind, source))
        return tuple(found)

    def _choose_key(self, keys: Iterable[Sequence[str]], when: str) -> None:
        """Choose the given key if it is unique, or else the first key whose columns Hive has.

        All rows of one run have the same key, since they are reduced by it.
        """
        unique = [tuple(column.lower() for column in key) for key in keys]
        shown = " or ".join("(" + ", ".join(key) + ")" for key in unique)
        given = tuple(column.lower() for column in self.table.key)
        if given:
            if not any(set(key) <= set(given) for key in unique):
                raise RecordLayoutError(
                    f"source table {self.name}: rows may have equal values in {', '.join(given)}, so these "
                    f"columns are not a key. Unique and never NULL: {shown}"
                )
            self.key = given
            return
        usable = [key for key in unique if set(key) <= set(self.wanted)]
        if not usable:
            target = self.table.target.full_name
            raise RecordLayoutError(
                f"source table {self.name}: {target} lacks columns of each of its keys ({shown}). Add the "
                f"columns of one key (ALTER TABLE {target} ADD COLUMNS (…)), then run with "
                f"{self._advice.recopy([self.table.name])}, which fills them"
            )
        if self.key and self.key not in usable:
            raise InputFormatError(
                f"source table {self.name}: its rows were identified by ({', '.join(self.key)}), but the key "
                f"that it {when} is {shown}; one run cannot identify rows by both. {START_OVER}"
            )
        self.key = self.key or usable[0]


def _them(names: Sequence[str]) -> str:
    return "them" if len(names) > 1 else "it"


_SYSTEM = "mysql"
"""The server's own database, whose tables have no triggers; some services write a heartbeat there."""
_ENGINES = ("innodb", "myisam", "aria", "rocksdb", "memory", "archive", "ndbcluster", "tokudb")
_MAY_SEE_TRIGGERS = (
    "GRANTEE = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''') AND PRIVILEGE_TYPE = 'TRIGGER'"
)
"""The server shows triggers only to an account with this privilege; to others, a table seems to have none."""


def why_not_plain(server: MySqlServer, database: str, table: str) -> str:
    """Return why a change of this table may change other tables; empty if it cannot.

    A foreign key cannot pass the change on to a followed table, because followed tables with such rules are
    refused.

    Raises:
        ConnectionFailedError: If the server does not answer.
    """
    if database.lower() == _SYSTEM:
        return ""
    rows = server.values(
        "SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES "
        "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        database,
        table,
    )
    if not rows:
        return f"{database}.{table} does not exist now, or the account lacks SELECT and TRIGGER on it"
    kind, engine = rows[0]
    if kind != "BASE TABLE" or str(engine).lower() not in _ENGINES:
        return f"{database}.{table} is a {kind}" + (f" of engine {engine}" if engine else "")
    if not _sees_triggers(server, database, table):
        return f"{database}.{table} may have triggers; the account needs TRIGGER on it to see them"
    found = server.values(
        "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = %s "
        "AND EVENT_OBJECT_TABLE = %s",
        database,
        table,
    )
    return f"{database}.{table} has the trigger {found[0][0]}" if found else ""


def _sees_triggers(server: MySqlServer, database: str, table: str) -> bool:
    views = {
        "USER": "",
        "SCHEMA": " AND TABLE_SCHEMA = %s",
        "TABLE": " AND TABLE_SCHEMA = %s AND TABLE_NAME = %s",
    }
    queries = [
        f"SELECT 1 FROM information_schema.{name}_PRIVILEGES WHERE {_MAY_SEE_TRIGGERS}{place}"
        for name, place in views.items()
    ]
    return bool(server.values(" UNION ".join(queries), database, database, table))
