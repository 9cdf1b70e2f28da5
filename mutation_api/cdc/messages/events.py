"""Events of a log of messages: options, values that are not logged, and operations.

Options of a log of messages.

Values that a source did not log, and what a connector writes in place of them. Pure.

A connector has one placeholder, which it writes in the form of the column's type. Whatever the column and its
reader, :class:`Unlogged` is asked before a value is converted, so a reader has no rule of its own.

=======================  =============================================================================
type of the column       placeholder ``P``
=======================  =============================================================================
text, json, xml, …       ``P``
bytes                    base64 of ``P``, plain or for URLs, or its hexadecimal digits, or ``P`` itself
text[], json[], bytea[]  an array of one of these
uuid[]                   an array of the UUID (version 3) of ``P``
int[], bigint[], date[]  an array of the bytes of ``P``, which have a sign
hstore, other maps       ``{"P": "P"}``, as an object or as its text
=======================  =============================================================================

Source: ``UnchangedToastedPlaceholder`` and ``PostgresValueConverter`` of Debezium's connector for PostgreSQL;
``convertBinary`` in the value converters of those for Oracle, SQL Server, MySQL and MariaDB.

Events: the meaning of a tool's messages. A format makes them of messages; other modules read events.

There is one of each for each message, so they are named tuples, which are made in a third of the time of
frozen dataclasses.
"""

from __future__ import annotations

import base64
import enum
import functools
import hashlib
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import pyarrow as pa

from mutation_api.cdc.messages.json_text import Fields, text_of
from mutation_api.cdc.messages.json_values import Reader
from mutation_api.cdc.messages.table_names import TableId
from mutation_api.errors import ConfigurationError, MutationError
from mutation_api.format.hive_type import HiveType

__all__ = [
    "INCREMENTAL",
    "Event",
    "Images",
    "LogOptions",
    "LogPart",
    "LoggedEvent",
    "Message",
    "MessageFormat",
    "NewSnapshot",
    "Place",
    "Positions",
    "Problem",
    "Unlogged",
    "bigint",
    "number_of",
    "origins_of",
]


class Positions(enum.Enum):
    """The order of operations."""

    AUTO = "auto"
    """the messages' positions in the source's log if they have them, else the order of lines"""
    MESSAGE = "message"
    LINE = "line"


class NewSnapshot(enum.Enum):
    """What a snapshot of a table means that was taken after changes of it."""

    REFUSE = "refuse"
    REPLACE = "replace"
    """all rows of the table: those of the target that neither it nor a later change has are deleted"""
    MERGE = "merge"
    """rows like others"""


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """The user's choices about a log.

    Columns are named ``TABLE.COLUMN``, with the source's name of the table and the target's, or the source's,
    of the column. ``ignored_columns``: columns of the source that the target does not have.
    ``null_if_missing``: columns of the target that are NULL in a message that lacks them.
    ``default_if_missing``: the same, but they then have the value of their DEFAULT constraint, also in a row
    that is updated. ``trusted_keys``: tables, by the
    source's names, whose changes of the key are all logged, though messages do not show the key that a row
    had. ``accepts_schema_changes``: messages
    about a changed table are left out, because the target already fits the rows that follow.
    ``applies_truncates``: if a table was truncated, the rows that no later operation writes are deleted;
    otherwise a truncate is refused. ``new_snapshot``: what a second snapshot of a table means.
    ``shard_column``: column of the targets of tables whose name has ``*`` or ``?``, which fits several tables
    of the source; it holds the source's name of the table, and belongs to the key.
    """

    positions: Positions = Positions.AUTO
    ignored_columns: Collection[str] = frozenset()
    null_if_missing: Collection[str] = frozenset()
    default_if_missing: Collection[str] = frozenset()
    trusted_keys: Collection[str] = frozenset()
    accepts_schema_changes: bool = False
    applies_truncates: bool = False
    new_snapshot: NewSnapshot = NewSnapshot.REFUSE
    shard_column: str | None = None


_HEX = "hex:"
"""Begins a placeholder that is given by the hexadecimal digits of its bytes."""


@dataclass(frozen=True)
class Unlogged:
    """What a connector writes in place of a value that was not logged.

    ``placeholder``: the connector's ``unavailable.value.placeholder``.

    Raises:
        ConfigurationError: it is empty, or begins with ``hex:`` and does not go on with such digits.
    """

    placeholder: str

    def __post_init__(self) -> None:
        """Check it."""
        try:
            is_empty = not self._bytes
        except ValueError as error:
            raise ConfigurationError(
                f"unavailable value: got {self.placeholder!r}, expected hexadecimal digits behind {_HEX}"
            ) from error
        if is_empty:
            raise ConfigurationError("unavailable value: got an empty text, expected the placeholder's")

    @cached_property
    def texts(self) -> pa.StringArray:
        """All texts of values that stand for one that was not logged."""
        text = self._text
        whole = [[text], list(map(int, self._signed)), {text: text}]
        return pa.array([*sorted(self._scalars), *(found for each in whole if (found := text_of(each)))])

    def is_within(self, value: object) -> bool:
        """Return whether an array or object has a part, at any depth, that was not logged."""
        if isinstance(value, dict):
            return any(name in self._scalars or self.is_within(each) for name, each in value.items())
        if isinstance(value, list):
            return any(map(self.is_within, value))
        return isinstance(value, str) and value in self._scalars

    @cached_property
    def _bytes(self) -> bytes:
        if self.placeholder.startswith(_HEX):
            return bytes.fromhex(self.placeholder.removeprefix(_HEX))
        return self.placeholder.encode()

    @property
    def _text(self) -> str:
        return self._bytes.decode(errors="replace")

    @property
    def _signed(self) -> memoryview:
        return memoryview(self._bytes).cast("b")

    @cached_property
    def _scalars(self) -> frozenset[str]:
        """The placeholder in each form that a single value can have."""
        data = self._bytes
        encoded = [base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()]
        digits = data.hex()
        of_bytes = uuid.UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3)
        bare = [each.rstrip("=") for each in encoded]
        return frozenset((self._text, *encoded, *bare, digits, digits.upper(), str(of_bytes)))


INCREMENTAL = "incremental"
"""``Event.snapshot`` of rows that are read while changes are logged, and are changes among others."""

_BIGINTS = range(-(2**63), 2**63)


class Message(NamedTuple):
    """A message and its key, as JSON values; ``key`` may be None. ``topic``: where it was, if it is known."""

    key: object
    value: object
    topic: str | None = None


class Problem(NamedTuple):
    """What is wrong with a message: class of the error, field, and text."""

    error: type[MutationError]
    field: str | None
    text: str


class Images(NamedTuple):
    """A row before and after an operation; None where the message has none.

    ``is_partial``: the row before may have nulls and zeros in place of values that were not logged, in all
    columns but those of the message's key.
    """

    before: Fields | None
    after: Fields | None
    is_partial: bool = False


class Event(NamedTuple):
    """The meaning of a message.

    Attributes:
        kind: ``row``, ``schema change``, ``truncate``, ``other`` for messages that change no table, or
            ``damaged`` for those that do not follow the format; a damaged one has a problem.
        table: the source's name of it, for messages; of rows and truncates, the one under which it is
            followed. For a schema change that may touch any table: ``DATABASE.*``, or None.
        op: the operation, ``insert``, ``update`` or ``delete``.
        log_position: three numbers that order the log, or None.
        log: the log to which they belong.
        schema: text that defines how values are read, or None.
        key: fields of the message's key, or None.
        key_names: columns of the key, if the message names them.
        rows: the rows.
        text: description of a schema change.
        problem: what is wrong with the message, or None.
        id: the source's table, of rows and truncates.
        touches: the tables that a schema change may concern.
        mentions: names in its statement, in lower case; it may concern any table of such a name.
        origins: what counts the position besides ``log``: kind and name of servers.
        snapshot: of a row that a snapshot read, the snapshot's position as a text, or INCREMENTAL; None of
            other rows.
        time: when the source wrote the change, in milliseconds; None if the message does not tell.
    """

    kind: str
    table: str | None = None
    op: str | None = None
    log_position: tuple[int, int, int] | None = None
    log: str | None = None
    schema: str | None = None
    key: Fields | None = None
    key_names: tuple[str, ...] | None = None
    rows: Sequence[Images] = ()
    text: str | None = None
    problem: Problem | None = None
    id: TableId | None = None
    touches: tuple[TableId, ...] = ()
    mentions: frozenset[str] = frozenset()
    origins: tuple[tuple[str, str], ...] = ()
    snapshot: str | None = None
    time: int | None = None


class LogPart(Protocol):
    """A part of a log in which messages have an order: a file, or a partition of a topic."""

    @property
    def number(self) -> int:
        """Orders the parts of a log."""

    @property
    def name(self) -> str:
        """For messages."""

    def shown(self, offset: int, field: str | None = None) -> str:
        """The place of a message in this part, for messages; ``field``: a field of it. Raises OSError."""


class Place(NamedTuple):
    """The place of a message: index of the file, and the byte at which its line begins.

    In a log that is not in files: index of the part, and the message's offset in it.
    """

    file: int
    offset: int

    def shown(self, files: Sequence[LogPart], field: str | None = None) -> str:
        """For messages: file, line and, if given, field. Raises OSError."""
        return files[self.file].shown(self.offset, field)


class LoggedEvent(NamedTuple):
    """An event and its place."""

    place: Place
    event: Event


class MessageFormat(Protocol):
    """Meaning of a tool's messages; pickled for tasks."""

    @property
    def name(self) -> str:
        """The tool's name in lower case."""

    @property
    def unlogged(self) -> Unlogged | None:
        """What messages have in place of a value that was not logged; None if all values are logged."""

    @property
    def is_flattened(self) -> bool:
        """Whether a message is a row, and one without value deletes the row of its key."""

    @property
    def metadata_prefixes(self) -> tuple[str, ...]:
        """Begin the names of a row's fields that are not columns of the source."""

    def event(self, message: Message, positions: Positions) -> Event:
        """The meaning of a message.

        Args:
            message: its value is not None, unless messages are flattened.
            positions: what orders operations.
        """

    def readers(
        self, table: str, columns: Mapping[str, HiveType], schema: str | None
    ) -> Mapping[str, Reader]:
        """Readers of the values of columns.

        Args:
            table: the source's name of the table.
            columns: types of the target's columns, by the source's names.
            schema: ``schema`` of the events, or None.

        Raises:
            RecordLayoutError: values of a column cannot be read, or the user has to say how.
        """


def bigint(text: str | None) -> int | None:
    """The number that a text is; None if it is none, or has more than 64 bits."""
    try:
        number = int(text or "")
    except ValueError:
        return None
    return number if number in _BIGINTS else None


def number_of(value: object) -> int | None:
    """The number that a value of JSON is, or a string has; None if it is none, or has more than 64 bits."""
    if value.__class__ is int:
        return value if value in _BIGINTS else None
    return bigint(value) if isinstance(value, str) else None


def origins_of(server_id: str | None, gtid: str | None) -> tuple[tuple[str, str], ...]:
    """The server of MySQL or MariaDB that wrote a change: its id, and its UUID, which begins the GTID.

    Rows of a snapshot have neither: their id is 0. GTIDs of MariaDB have no UUID.
    """
    uuid, colon, _ = (gtid or "").partition(":")
    return _origins(server_id, uuid if colon else "")


@functools.lru_cache(maxsize=256)
def _origins(server_id: str | None, uuid: str) -> tuple[tuple[str, str], ...]:
    server = [] if server_id is None or server_id == "0" else [("server_id", server_id)]
    return (*server, *([("server UUID", uuid.strip().lower())] if uuid else []))
