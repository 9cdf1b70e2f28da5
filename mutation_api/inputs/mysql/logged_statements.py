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

from mutation_api.inputs.mysql.statements import Effect, Followed, Statement, TableName, verdict_on

__all__ = ["Barrier", "LoggedStatements", "statement_of"]

_ANSI_QUOTES = 4
_NO_BACKSLASH_ESCAPES = 1 << 20


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
        event.query,
        temporary,
        ansi_quotes=bool(mode & _ANSI_QUOTES),
        backslashes=not mode & _NO_BACKSLASH_ESCAPES,
    )


@dataclass(frozen=True)
class _Trusted:
    """A statement that was passed since the catalog says that its table is a plain one.

    ``place``: number of the file, and offset; ``boundary``: file and offset of the transaction's begin.
    """

    position: str
    place: tuple[int, int]
    boundary: tuple[str, int]
    table: TableName


@dataclass
class LoggedStatements:
    """Judges statements.

    Attributes:
        followed: the followed tables.
        why_unproven: why a change of a table may change others; empty if it cannot.
        must_stop: positions of statements that a later one has shown not to be proven.
        trusted: statements that were passed because of the catalog.
    """

    followed: Followed
    why_unproven: Callable[[str, str], str]
    must_stop: Collection[str] = ()
    trusted: list[_Trusted] = field(default_factory=list)
    _temporary: dict[int, set[TableName]] = field(default_factory=dict)
    _known: dict[TableName, str] = field(default_factory=dict)
    _created: set[TableName] = field(default_factory=set)

    def forget_sessions(self) -> None:
        """Forget temporary tables: after a restart of the server, numbers of sessions come again."""
        self._temporary.clear()

    def verdict(
        self, event: Any, at: str, place: tuple[int, int], boundary: tuple[str, int]
    ) -> tuple[Mapping[str, Effect], str]:
        """Return the effects of a statement by table, and why they are not known.

        Args:
            event: the library's event.
            at: name of the statement's position.
            place: number of the file, and offset.
            boundary: file and offset of the end of the transaction before it.
        """
        session = self._temporary.setdefault(event.slave_proxy_id, set())
        found = verdict_on(statement_of(event, frozenset(session)), self.followed)
        session |= set(found.begins)
        session -= set(found.ends)
        self._created = set() if found.touches is None else self._created - set(found.touches)
        self._created |= set(found.creates)
        if not session:
            del self._temporary[event.slave_proxy_id]
        reason = next(filter(None, [self._reason(name, at, place, boundary) for name in found.writes]), "")
        if not reason:
            return found.effects, found.reason
        unproven = dict.fromkeys(self.followed.tables, Effect.MAY_CHANGE)
        return unproven | dict(found.effects), found.reason or reason

    def _reason(self, name: TableName, at: str, place: tuple[int, int], boundary: tuple[str, int]) -> str:
        if name in self._created:
            return ""  # by the log, which has made no trigger since
        if at in self.must_stop:
            return f"{name[0]}.{name[1]}, a view or a trigger was changed later in the log"
        if name not in self._known:
            self._known[name] = self.why_unproven(*name)
        if not self._known[name]:
            self.trusted.append(_Trusted(at, place, boundary, name))
        return self._known[name]

    def refuted(self, event: Any, place: tuple[int, int]) -> list[str]:
        """Positions of trusted statements before this one, which shows that the catalog was another then."""
        before = [each for each in self.trusted if each.place < place]
        touches = verdict_on(statement_of(event), self.followed).touches
        if touches is None:
            return [each.position for each in before]
        same = self.followed.same
        return [
            each.position
            for each in before
            if any(same(each.table[0], name[0]) and same(each.table[1], name[1]) for name in touches)
        ]
