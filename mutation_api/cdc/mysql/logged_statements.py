"""Statements found while reading a log: which of them stop the reading, and which temporary tables exist.

A statement that writes another table is skipped only if that table is a plain one without triggers. The
current catalog proves this, unless a later statement in the log changed it, which is checked afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from mutation_api.cdc.mysql.alter_table import Effect
from mutation_api.cdc.mysql.column_types import codec_of
from mutation_api.cdc.mysql.statements import Followed, Statement, TableName, verdict_on
from mutation_api.cdc.mysql.table_plan import charset_of

_ANSI_QUOTES = 4
_NO_BACKSLASH_ESCAPES = 1 << 20
_UTF8MB4 = 45
"""The number of a collation of utf8mb4."""
_PACKET_BYTES = 1 + 19
_QUERY_BYTES = _PACKET_BYTES + 13
"""The packet's first byte, the event's header, and the numbers before the status variables."""


@dataclass(frozen=True)
class Barrier:
    """A statement that stops the reading: everything before it was yielded, and nothing after it.

    Attributes:
        at: position of the statement, ``file:offset``; ``+2`` and so on for further ones of a transaction.
        text: the statement.
        effects: the effects that it has or may have, by table.
        reason: why the effect is not certain; empty if it is.
        boundary: file and offset of the end of the transaction before it.
        gtid: the last transaction before it (MySQL only).
        transaction: first two numbers of the positions of rows that its transaction logged before it.
        events: the numbers of the first and the last event of these rows; None if there are none.
        seen_before: positions of handled statements between the boundary and this one.
    """

    at: str
    text: str
    effects: Mapping[str, Effect]
    reason: str
    boundary: tuple[str, int]
    gtid: str
    transaction: tuple[int, int]
    events: tuple[int, int] | None
    seen_before: tuple[str, ...]


def statement_of(event: Any, temporary: Collection[TableName] = ()) -> Statement:
    """Return the statement in an event of the replication library."""
    mode = getattr(event, "sql_mode", 0)
    return Statement(
        event.schema.decode(),
        _text_of(event),
        temporary,
        ansi_quotes=bool(mode & _ANSI_QUOTES),
        backslashes=not mode & _NO_BACKSLASH_ESCAPES,
    )


def _text_of(event: Any) -> str | None:
    """Return the statement, decoded with its session's character set, or None if that is unknown.

    The replication library decodes every statement as UTF-8, which gives wrong names for other character
    sets.
    """
    data = event.packet.packet.get_all_data()
    start = _QUERY_BYTES + event.status_vars_length + event.schema_length + 1
    query = data[start : _PACKET_BYTES + event.event_size]
    charset = charset_of(getattr(event, "character_set_client", _UTF8MB4))
    if query.isascii() or charset in ("utf8mb3", "utf8mb4", "utf8"):
        return str(query.decode(errors="surrogateescape"))
    decode = codec_of(charset)
    return None if decode is None else decode(query)


@dataclass(frozen=True)
class _Trusted:
    """A statement that was skipped because its table is a plain one according to the catalog.

    ``position``: the statement's name. ``place``: number of the file, and offset.
    """

    position: str
    place: tuple[int, int]
    table: TableName


@dataclass
class LoggedStatements:
    """Decides which statements stop the reading.

    Attributes:
        followed: the followed tables.
        why_unproven: returns why a change of a table may change others; empty if it cannot.
        must_stop: positions of statements that must not be skipped, as a later statement has shown. refuted:
            positions of statements that were skipped because of the catalog, although a later statement shows
            that the catalog was different then.
    """

    followed: Followed
    why_unproven: Callable[[str, str], str]
    must_stop: Collection[str] = ()
    refuted: set[str] = field(default_factory=set)
    _trusted: list[_Trusted] = field(default_factory=list)
    _temporary: dict[int, set[TableName]] = field(default_factory=dict)
    _known: dict[TableName, str] = field(default_factory=dict)
    _created: set[TableName] = field(default_factory=set)

    @property
    def has_trusted(self) -> bool:
        """True if a statement was skipped because of the catalog."""
        return bool(self._trusted)

    def forget_sessions(self) -> None:
        """Forget the temporary tables, since session numbers are reused after a restart of the server."""
        self._temporary.clear()

    def verdict(self, event: Any, at: str, place: tuple[int, int]) -> tuple[Mapping[str, Effect], str]:
        """Return the effects of a statement by table, and why they are not certain.

        Args:
            event: an event of the replication library.
            at: name of the statement's position.
            place: number of the file, and offset.
        """
        session = self._temporary.setdefault(event.slave_proxy_id, set())
        found = verdict_on(statement_of(event, frozenset(session)), self.followed)
        session |= set(found.begins)
        session -= set(found.ends)
        if not session:
            del self._temporary[event.slave_proxy_id]
        self._note(found.touches, place)
        self._created |= set(found.creates)
        reason = next(filter(None, [self._reason(name, at, place) for name in found.writes]), "")
        if not reason:
            return found.effects, found.reason
        unproven = dict.fromkeys(self.followed.tables, Effect.MAY_CHANGE)
        return unproven | dict(found.effects), found.reason or reason

    def note_later(self, event: Any, place: tuple[int, int]) -> None:
        """Note a statement after the part of the log that was read."""
        self._note(verdict_on(statement_of(event), self.followed).touches, place)

    def _note(self, touches: Collection[TableName] | None, place: tuple[int, int]) -> None:
        """Forget what is known about tables whose definition, views or triggers change."""
        before = [each for each in self._trusted if each.place < place]
        if touches is None:
            self.refuted |= {each.position for each in before}
            self._created.clear()
            self._known.clear()
            return
        for name in touches:
            self.refuted |= {each.position for each in before if self._is_same(each.table, name)}
            self._created = {each for each in self._created if not self._is_same(each, name)}
            self._known = {each: why for each, why in self._known.items() if not self._is_same(each, name)}

    def _is_same(self, one: TableName, other: TableName) -> bool:
        return self.followed.same(one[0], other[0]) and self.followed.same(one[1], other[1])

    def _reason(self, name: TableName, at: str, place: tuple[int, int]) -> str:
        if name in self._created:
            return ""  # by the log, which has created no trigger since
        if at in self.must_stop:
            return f"{name[0]}.{name[1]}, a view or a trigger was changed later in the log"
        if name not in self._known:
            self._known[name] = self.why_unproven(*name)
        if not self._known[name]:
            self._trusted.append(_Trusted(at, place, name))
        return self._known[name]
