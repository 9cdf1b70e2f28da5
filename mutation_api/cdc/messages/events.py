"""Events, into which a tool's messages are converted: operations, options of a log, and values that are not
logged.

A format converts messages to events, which other modules read. There is one event for each message, so events
are named tuples, which are created in a third of the time that frozen dataclasses need.

A connector writes a placeholder for values that its source did not log, in the form of the column's type.
:class:`Unlogged` checks values of all columns before they are converted, so readers need no rules for
placeholders.

=======================  =============================================================================
type of the column       placeholder ``P``
=======================  =============================================================================
text, json, xml, …       ``P``
bytes                    base64 of ``P``, plain or for URLs, or its hexadecimal digits, or ``P`` itself
text[], json[], bytea[]  an array of one of these
uuid[]                   an array of the UUID (version 3) of ``P``
int[], bigint[], date[]  an array of the bytes of ``P``, as signed numbers
hstore, other maps       ``{"P": "P"}``, as an object or as a string
=======================  =============================================================================

Source: ``UnchangedToastedPlaceholder`` and ``PostgresValueConverter`` of Debezium's connector for PostgreSQL;
``convertBinary`` in the value converters of those for Oracle, SQL Server, MySQL and MariaDB.
"""

from __future__ import annotations

import base64
import enum
import functools
import hashlib
import uuid
from abc import ABC, abstractmethod
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


class PositionSource(enum.Enum):
    """The order of operations."""

    AUTO = "auto"
    """The messages' positions in the source's log if they have them, else the order of lines."""
    MESSAGE = "message"
    LINE = "line"


class NewSnapshot(enum.Enum):
    """The treatment of a snapshot of a table that was taken after changes of the table."""

    REFUSE = "refuse"
    REPLACE = "replace"
    """The snapshot contains all rows of the table: rows of the target that are in neither it nor a later
    change are deleted."""
    MERGE = "merge"
    """The rows of the snapshot are handled like all others."""


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """The user's choices about a log.

    Columns are named ``TABLE.COLUMN``, with the source's name of the table and the column name in the target
    or in the source.

    Attributes:
        ignored_columns: columns of the source that the target does not have.
        null_if_missing: columns of the target that are NULL in a message that lacks them.
        default_if_missing: columns of the target that get the value of their DEFAULT constraint in a message
            that lacks them, even if the row is updated.
        trusted_keys: tables, by the source's names, for which every change of the key is logged, although
            messages do not show the old key of a row.
        accepts_schema_changes: leave out messages about a changed table, because the target already fits the
            rows that follow.
        applies_truncates: if a table was truncated, delete the rows that no later operation writes. If False,
            a truncate is refused.
        new_snapshot: the treatment of a second snapshot of a table.
        shard_column: column in the targets of tables whose name has ``*`` or ``?``, which matches several
            tables of the source. It holds the source's name of the table, and belongs to the key.
        adds_columns: read a column that the source added as NULL in the messages from before; set by
            ``ingest`` with ``schema="add"``.
    """

    positions: PositionSource = PositionSource.AUTO
    ignored_columns: Collection[str] = frozenset()
    null_if_missing: Collection[str] = frozenset()
    default_if_missing: Collection[str] = frozenset()
    trusted_keys: Collection[str] = frozenset()
    accepts_schema_changes: bool = False
    applies_truncates: bool = False
    new_snapshot: NewSnapshot = NewSnapshot.REFUSE
    shard_column: str | None = None
    adds_columns: bool = False


_HEX = "hex:"
"""The prefix of a placeholder that is given by the hexadecimal digits of its bytes."""


@dataclass(frozen=True)
class Unlogged:
    """The placeholder that a connector writes in place of a value that was not logged.

    ``placeholder``: the connector's ``unavailable.value.placeholder``.

    Raises:
        ConfigurationError: If it is empty, or if ``hex:`` is not followed by hexadecimal digits.
    """

    placeholder: str

    def __post_init__(self) -> None:
        """Check the placeholder."""
        try:
            is_empty = not self._bytes
        except ValueError as error:
            raise ConfigurationError(
                f"unavailable value: got {self.placeholder!r}, expected hexadecimal digits after {_HEX}"
            ) from error
        if is_empty:
            raise ConfigurationError("unavailable value: got an empty string, expected the placeholder")

    @cached_property
    def texts(self) -> pa.StringArray:
        """All strings that stand for a value that was not logged."""
        text = self._text
        whole = [[text], list(map(int, self._signed)), {text: text}]
        return pa.array([*sorted(self._scalars), *(found for each in whole if (found := text_of(each)))])

    def is_within(self, value: object) -> bool:
        """Return True if a part of an array or object was not logged, at any depth."""
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
"""The ``Event.snapshot`` of rows that are read while changes are logged, and that count as changes."""

_BIGINTS = range(-(2**63), 2**63)


class Message(NamedTuple):
    """A message and its key, as JSON values; ``key`` may be None. ``topic``: its topic, if known."""

    key: object
    value: object
    topic: str | None = None


class Problem(NamedTuple):
    """An error in a message: class of the error, field, and description."""

    error: type[MutationError]
    field: str | None
    text: str


class Images(NamedTuple):
    """A row before and after an operation; None if the message does not have it.

    ``is_partial``: True if the row before may have nulls and zeros in place of values that were not logged,
    in all columns except those of the message's key.
    """

    before: Fields | None
    after: Fields | None
    is_partial: bool = False


class Event(NamedTuple):
    """The event that a message describes.

    Attributes:
        kind: ``row``, ``schema change``, ``truncate``, ``other`` for messages that change no table, or
            ``damaged`` for those that do not follow the format; a damaged event has a problem.
        table: the source's name of the table, for messages. For rows and truncates, the name under which it
            is followed. For a schema change that may concern any table, ``DATABASE.*`` or None.
        op: the operation, ``insert``, ``update`` or ``delete``.
        log_position: three numbers that order the log, or None.
        log: the log to which these numbers belong.
        schema: string that defines how values are read, or None.
        key: fields of the message's key, or None.
        key_names: columns of the key, if the message names them.
        rows: the rows.
        text: description of a schema change.
        problem: what is wrong with the message, or None.
        id: the source's table, for rows and truncates.
        touches: the tables that a schema change may concern.
        mentions: names in its statement, in lower case; it may concern any table with such a name.
        origins: the servers that assign the position, in addition to ``log``: kind and name.
        snapshot: for a row that a snapshot read, the snapshot's position as a string, or INCREMENTAL. For
            other rows, None.
        time: when the source wrote the change, in milliseconds; None if the message does not contain it.
        changed_at: when the source made the change, in microseconds since 1970 in UTC; None if the message
            does not contain it. Unlike ``time``, it may be the time at which the statement began.
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
    changed_at: int | None = None


class LogPart(Protocol):
    """A part of a log in which messages have an order: a file, or a partition of a topic."""

    @property
    def number(self) -> int:
        """The number that orders the parts of a log."""

    @property
    def name(self) -> str:
        """The name for messages."""

    def shown(self, offset: int, field: str | None = None) -> str:
        """Return the place of a message in this part and, if given, of its field. Raises OSError."""


class Place(NamedTuple):
    """The place of a message: index of the file, and the byte at which its line begins.

    If the log is not in files: index of the part, and the message's offset in it.
    """

    file: int
    offset: int

    def shown(self, files: Sequence[LogPart], field: str | None = None) -> str:
        """Return the place for messages: file, line and, if given, field. Raises OSError."""
        return files[self.file].shown(self.offset, field)


class LoggedEvent(NamedTuple):
    """An event and its place."""

    place: Place
    event: Event


class MessageFormat(ABC):
    """The format of a tool's messages, which converts them to events; pickled for tasks."""

    name: str
    """The tool's name in lower case."""

    @property
    def unlogged(self) -> Unlogged | None:
        """The placeholders for values that were not logged; None if all values are logged."""
        return None

    @property
    def is_flattened(self) -> bool:
        """True if a message is a row, and a message without a value deletes the row of its key."""
        return False

    @property
    def metadata_prefixes(self) -> tuple[str, ...]:
        """The prefixes of the names of a row's fields that are not columns of the source."""
        return ()

    @abstractmethod
    def event(self, message: Message, positions: PositionSource) -> Event:
        """Return the event of a message.

        Args:
            message: the message; its value is None only if messages are flattened.
            positions: what orders operations.
        """

    @abstractmethod
    def readers(
        self, table: str, columns: Mapping[str, HiveType], schema: str | None
    ) -> Mapping[str, Reader]:
        """Return the readers of the values of columns.

        Args:
            table: the source's name of the table.
            columns: types of the target's columns, by the source's names.
            schema: ``schema`` of the events, or None.

        Raises:
            RecordLayoutError: If values of a column cannot be read, or the user has to define how.
        """


def bigint(text: str | None) -> int | None:
    """Parse a number; return None if the string is not a number of at most 64 bits."""
    try:
        number = int(text or "")
    except ValueError:
        return None
    return number if number in _BIGINTS else None


def number_of(value: object) -> int | None:
    """Return the number in a JSON number or string; None if it is not a number of at most 64 bits."""
    if value.__class__ is int:
        return value if value in _BIGINTS else None
    return bigint(value) if isinstance(value, str) else None


def origins_of(server_id: str | None, gtid: str | None) -> tuple[tuple[str, str], ...]:
    """Return the MySQL or MariaDB server that wrote a change: its id, and its UUID, which begins the GTID.

    Rows of a snapshot have neither: their id is 0. GTIDs of MariaDB have no UUID.
    """
    uuid, colon, _ = (gtid or "").partition(":")
    return _origins(server_id, uuid if colon else "")


@functools.lru_cache(maxsize=256)
def _origins(server_id: str | None, uuid: str) -> tuple[tuple[str, str], ...]:
    server = [] if server_id is None or server_id == "0" else [("server_id", server_id)]
    return (*server, *([("server UUID", uuid.strip().lower())] if uuid else []))
