"""The statements of a log while it is read: which of them stop the reading, and what they say about temporary
tables.

A statement that writes another table is passed only if that is a plain table without triggers. What the
catalog says now held at that time too, unless a later statement in the log changed it; that is checked
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from mutation_api.cdc.mysql.column_types import codec_of
from mutation_api.cdc.mysql.statements import Effect, Followed, Statement, TableName, verdict_on
from mutation_api.cdc.mysql.table_plan import charset_of

__all__ = ["Barrier", "LoggedStatements", "statement_of"]

_ANSI_QUOTES = 4
_NO_BACKSLASH_ESCAPES = 1 << 20
_UTF8MB4 = 45
"""Number of a collation of utf8mb4."""
_PACKET_BYTES = 1 + 19
_QUERY_BYTES = _PACKET_BYTES + 13
"""The packet's first byte, the event's header, and numbers before the status variables."""


@dataclass(frozen=True)
class Barrier:
    """A statement at which the reading stops: everything before it was given, and nothing behind it.

    Attributes:
        at: position of the statement, ``file:offset``; a later one of its transaction has its number behind.
        text: the statement.
        effects: by table, what it does or may do.
        reason: why that is not known, if it is not.
        boundary: file and offset of the end of the transaction before it.
        gtid: the last transaction before it, of MySQL.
        transaction: first two numbers of the positions of rows that its transaction logged before it.
        events: the first and the last number of these rows' events; None if there are none.
        seen_before: positions of statements between the boundary and this one that were seen to.
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
    """The statement of the library's event."""
    mode = getattr(event, "sql_mode", 0)
    return Statement(
        event.schema.decode(),
        _text_of(event),
        temporary,
        ansi_quotes=bool(mode & _ANSI_QUOTES),
        backslashes=not mode & _NO_BACKSLASH_ESCAPES,
    )


def _text_of(event: Any) -> str | None:
    """The statement in the character set of its session; None if that is not known.

    The library takes all statements for UTF-8, so a name in another character set would be another name.
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
    """A statement that was passed since the catalog says that its table is a plain one.

    ``position``: its name; ``place``: number of the file, and offset.
    """

    position: str
    place: tuple[int, int]
    table: TableName


@dataclass
class LoggedStatements:
    """Judges statements.

    Attributes:
        followed: the followed tables.
        why_unproven: why a change of a table may change others; empty if it cannot.
        must_stop: positions of statements that a later one has shown not to be proven.
        refuted: positions of statements that were passed because of the catalog, and of which a later one
        shows
            that the catalog was another then.
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
        """Whether a statement was passed because of the catalog."""
        return bool(self._trusted)

    def forget_sessions(self) -> None:
        """Forget temporary tables: after a restart of the server, numbers of sessions come again."""
        self._temporary.clear()

    def verdict(self, event: Any, at: str, place: tuple[int, int]) -> tuple[Mapping[str, Effect], str]:
        """Return the effects of a statement by table, and why they are not known.

        Args:
            event: the library's event.
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
        """Note a statement behind those that were read."""
        self._note(verdict_on(statement_of(event), self.followed).touches, place)

    def _note(self, touches: Collection[TableName] | None, place: tuple[int, int]) -> None:
        """Forget what is known of tables whose definition, views or triggers change."""
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
            return ""  # by the log, which has made no trigger since
        if at in self.must_stop:
            return f"{name[0]}.{name[1]}, a view or a trigger was changed later in the log"
        if name not in self._known:
            self._known[name] = self.why_unproven(*name)
        if not self._known[name]:
            self._trusted.append(_Trusted(at, place, name))
        return self._known[name]
