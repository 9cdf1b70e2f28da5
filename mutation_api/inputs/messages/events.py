"""Events: the meaning of a tool's messages. A format makes them of messages; other modules read events.

There is one of each for each message, so they are named tuples, which are made in a third of the time of
frozen dataclasses.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from mutation_api.errors import MutationError
from mutation_api.inputs.messages.json_text import Fields
from mutation_api.inputs.messages.json_values import Reader
from mutation_api.inputs.messages.log_options import Positions
from mutation_api.inputs.messages.table_names import TableId
from mutation_api.inputs.messages.unlogged import Unlogged
from mutation_api.types.hive_type import HiveType

__all__ = [
    "INCREMENTAL",
    "Event",
    "Images",
    "LogPart",
    "LoggedEvent",
    "Message",
    "MessageFormat",
    "Place",
    "Problem",
    "bigint",
    "number_of",
    "origins_of",
]

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
