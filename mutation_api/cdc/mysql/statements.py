"""Statements in the binary log: which of them change the rows or columns of a table.

Rows are logged as row events. Any other statement is DDL, begins or ends a transaction, or makes a change
that has no row events. A statement is parsed only as far as needed. Unless its effect is known, it counts as
a change, so that a table never silently differs from its source.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mutation_api.cdc.mysql.alter_table import (
    CHANGING_VERBS,
    Effect,
    cascades,
    check_calls,
    effect_of_clause,
    writes_of,
)
from mutation_api.cdc.mysql.sql_tokens import Cursor, Token, UnknownSyntaxError, tokens_of

TableName = tuple[str, str]
"""A database and a table."""

_HARMLESS_VERBS = (
    "check",
    "checksum",
    "flush",
    "grant",
    "install",
    "kill",
    "optimize",
    "revoke",
    "uninstall",
)
_FRAMES = ("begin", "commit", "rollback", "savepoint", "release", "xa", "set", "start")
# Objects that hold no rows of a table; a trigger's changes are logged as rows.
_OBJECTS = {
    "event",
    "function",
    "index",
    "instance",
    "library",
    "logfile",
    "package",
    "procedure",
    "reference",  # CREATE SPATIAL REFERENCE SYSTEM
    "resource",
    "role",
    "server",
    "tablespace",
    "trigger",
    "undo",
    "user",
    "view",
}
_PLAIN_MODIFIERS = (
    "or",
    "replace",
    "online",
    "offline",
    "aggregate",
    "unique",
    "fulltext",
    "spatial",
    "vector",
    "ignore",
)


@dataclass(frozen=True)
class Statement:
    """A statement in a log.

    ``database``: the one in which it ran. ``temporary``: known temporary tables of its session.
    ``ansi_quotes`` and ``backslashes``: the session's rules for strings. ``text`` is None if its character
    set is unknown.
    """

    database: str
    text: str | None
    temporary: Collection[TableName] = ()
    ansi_quotes: bool = False
    backslashes: bool = True


@dataclass(frozen=True)
class Followed:
    """The tables that are followed.

    ``left_out``: by table, columns that are ignored and do not exist in Hive. ``folds_case``: True if the
    server ignores the case of table names.
    """

    database: str
    tables: Sequence[str]
    left_out: Mapping[str, Collection[str]] = field(default_factory=dict)
    folds_case: bool = False

    def same(self, one: str, other: str) -> bool:
        """Return True if two names of tables or databases are the same name."""
        return one.lower() == other.lower() if self.folds_case else one == other

    def find(self, name: TableName) -> str | None:
        """Return the followed table with this name, or None."""
        if not self.same(name[0], self.database):
            return None
        return next((table for table in self.tables if self.same(name[1], table)), None)


@dataclass(frozen=True)
class Verdict:
    """The effects of a statement.

    Attributes:
        effects: by followed table; tables without an effect are omitted.
        reason: why it may change rows, if this was not proven.
        writes: tables that it writes and that are not followed. It has no effect only if each of them is a
            plain table without triggers.
        creates: plain tables that it creates, which have no triggers.
        begins: temporary tables that it creates.
        ends: temporary tables that it drops.
        touches: tables, views or triggers whose definition it changes. If None, it may change all of them.
    """

    effects: Mapping[str, Effect] = field(default_factory=dict)
    reason: str = ""
    writes: tuple[TableName, ...] = ()
    creates: tuple[TableName, ...] = ()
    begins: tuple[TableName, ...] = ()
    ends: tuple[TableName, ...] = ()
    touches: tuple[TableName, ...] | None = ()


_NOTHING = Verdict()


def verdict_on(statement: Statement, followed: Followed) -> Verdict:
    """Return the effects of a statement on the followed tables."""
    verdicts = []
    if statement.text is None:
        reason = "its character set is unknown"
        return Verdict(dict.fromkeys(followed.tables, Effect.MAY_CHANGE), reason, touches=None)
    try:
        readings = {
            tuple(
                tokens_of(
                    statement.text,
                    ansi_quotes=statement.ansi_quotes,
                    backslashes=statement.backslashes,
                    doubtful=doubtful,
                )
            )
            for doubtful in (True, False)
        }
        for tokens in readings:
            verdicts.append(_Judge(statement, followed).verdict(Cursor(tokens)))
    except UnknownSyntaxError as error:
        return Verdict(dict.fromkeys(followed.tables, Effect.MAY_CHANGE), str(error), touches=None)
    return verdicts[0] if len(verdicts) == 1 else _both(*verdicts)


def _both(one: Verdict, other: Verdict) -> Verdict:
    """Return the worse of two interpretations of one statement."""
    effects = dict(one.effects)
    for table, effect in other.effects.items():
        effects[table] = max(effect, effects.get(table, Effect.NONE), key=lambda each: each.weight)
    touches = None if one.touches is None or other.touches is None else (*one.touches, *other.touches)
    # A temporary table is known only if both readings create it.
    begins = tuple(name for name in one.begins if name in other.begins)
    reason = one.reason or other.reason
    writes, ends = (*one.writes, *other.writes), (*one.ends, *other.ends)
    return Verdict(effects, reason, writes, begins=begins, ends=ends, touches=touches)


@dataclass(frozen=True)
class _Judge:
    statement: Statement
    followed: Followed

    def verdict(self, cursor: Cursor) -> Verdict:
        if cursor.accept("set", "statement"):
            while not cursor.is_done and not cursor.accept("for"):
                cursor.at += 1
        if cursor.is_done or cursor.peek(*_FRAMES):
            return _NOTHING
        if cursor.peek(*_HARMLESS_VERBS):
            return _NOTHING
        if cursor.peek(*CHANGING_VERBS):
            return self._of_change(cursor)
        verb = cursor.word()
        if verb == "analyze":
            cursor.accept_any(("no_write_to_binlog", "local"))
            if cursor.accept_any(("table", "tables")):  # MariaDB's ANALYZE also runs statements
                return _NOTHING
        if verb == "create":
            return self._of_create(cursor)
        if verb == "drop":
            return self._of_drop(cursor)
        if verb == "alter":
            return self._of_alter(cursor)
        if verb == "rename":
            return self._of_rename(cursor)
        if verb == "truncate":
            cursor.accept("table")
            return self._changes([self._table(cursor)])
        if verb == "repair":
            cursor.accept_any(("no_write_to_binlog", "local"))
            if not cursor.accept_any(("table", "tables")):
                return _NOTHING
            return self._changes([Cursor(part.rest).table(self._database) for part in cursor.split()])
        raise UnknownSyntaxError(f"the effect of {verb.upper() or 'this statement'} is unknown")

    @property
    def _database(self) -> str:
        return self.statement.database

    def _table(self, cursor: Cursor) -> TableName:
        return cursor.table(self._database)

    def _is_temporary(self, name: TableName) -> bool:
        return name in self.statement.temporary

    def _named(self, names: Collection[TableName]) -> list[str]:
        """Return the followed tables among these names, unless a temporary table hides them."""
        found = [self.followed.find(name) for name in names if not self._is_temporary(name)]
        return [table for table in found if table is not None]

    def _changes(self, names: Collection[TableName], effect: Effect = Effect.CHANGES) -> Verdict:
        return Verdict(dict.fromkeys(self._named(names), effect), touches=tuple(names))

    def _of_change(self, cursor: Cursor) -> Verdict:
        found = writes_of(cursor, self._database)
        targets = tuple(name for name in found.targets if not self._is_temporary(name))
        effects = dict.fromkeys(self._named(targets), Effect.CHANGES)
        return Verdict(effects, writes=tuple(name for name in targets if self.followed.find(name) is None))

    def _of_rename(self, cursor: Cursor) -> Verdict:
        if cursor.accept("user"):
            return _NOTHING
        if not cursor.accept_any(("table", "tables")):
            raise UnknownSyntaxError("the effect of RENAME is unknown")
        cursor.accept("if", "exists")
        names = []
        for part in cursor.split():
            names.append(self._table(part))
            _skip_wait(part)
            if not part.accept("to"):
                raise UnknownSyntaxError("RENAME TABLE without TO")
            names.append(self._table(part))
        return self._changes(names)

    def _of_drop(self, cursor: Cursor) -> Verdict:
        if cursor.accept_any(("database", "schema")):
            cursor.accept("if", "exists")
            return self._all_if(self.followed.same(cursor.name(), self.followed.database))
        is_temporary = cursor.accept("temporary")
        if cursor.accept_any(("table", "tables")):
            cursor.accept("if", "exists")
            names = tuple(self._table(part) for part in cursor.split())
            if is_temporary:
                return Verdict(ends=names)
            own = tuple(name for name in names if self._is_temporary(name))
            return Verdict(self._changes(names).effects, ends=own, touches=names)
        if is_temporary or cursor.accept("sequence"):
            return _NOTHING
        if cursor.accept("index"):
            cursor.accept("if", "exists")
            is_key = cursor.name().lower() == "primary"
            if not cursor.accept("on"):
                raise UnknownSyntaxError("DROP INDEX without ON")
            return self._changes([self._table(cursor)]) if is_key else _NOTHING
        if cursor.peek("prepare"):
            return _NOTHING
        return self._of_object(cursor)

    def _of_create(self, cursor: Cursor) -> Verdict:
        replaces = cursor.accept("or", "replace")
        if cursor.accept_any(("database", "schema")):
            cursor.accept("if", "not", "exists")
            return self._all_if(replaces and self.followed.same(cursor.name(), self.followed.database))
        is_temporary = cursor.accept("temporary")
        if cursor.accept("sequence"):
            cursor.accept("if", "not", "exists")
            return self._changes([self._table(cursor)] if replaces and not is_temporary else [])
        if cursor.accept("table"):
            return self._of_create_table(cursor, replaces=replaces, is_temporary=is_temporary)
        return self._of_object(cursor)

    def _of_create_table(self, cursor: Cursor, *, replaces: bool, is_temporary: bool) -> Verdict:
        is_new = not cursor.accept("if", "not", "exists")
        name = self._table(cursor)
        definition = cursor.rest
        if any(token.is_word("select") for token in definition):
            start = next(at for at, token in enumerate(definition) if token.is_word("select", "with"))
            check_calls(definition[start:])
        if is_temporary:
            return Verdict(begins=(name,))
        effect = Effect.CHANGES if replaces or _is_select(definition) else Effect.ADDS_COLUMN
        if cascades(definition):
            effect = Effect.CASCADES
        found = dict(self._changes([name], effect).effects) | self._merged(definition)
        # Another engine may keep its rows in other tables, and LIKE may copy such an engine.
        is_plain = is_new and not any(token.is_word("engine", "like", "union") for token in definition)
        return Verdict(found, creates=(name,) if is_plain else (), touches=(name,))

    def _of_alter(self, cursor: Cursor) -> Verdict:
        cursor.accept_any(("online", "offline"))
        ignores = cursor.accept("ignore")
        if cursor.accept_any(("database", "schema")):
            return _NOTHING  # only defaults of new tables
        if cursor.accept("sequence"):
            return _NOTHING
        if not cursor.accept("table"):
            return self._of_object(cursor)
        cursor.accept("if", "exists")
        name = self._table(cursor)
        _skip_wait(cursor)
        if self._is_temporary(name):
            return _NOTHING
        effects: dict[str, Effect] = {}
        clauses = list(cursor.split())
        for clause in clauses:
            effects |= dict.fromkeys(self._other_table(clause), Effect.CHANGES)
        effects |= self._merged(cursor.rest)
        table = self.followed.find(name)
        if table is not None:
            left_out = self.followed.left_out.get(table, ())
            found = [effect_of_clause(Cursor(clause.rest), left_out) for clause in clauses]
            worst = max(found, key=lambda effect: effect.weight)
            effects[table] = Effect.CHANGES if ignores else worst
        return Verdict({t: e for t, e in effects.items() if e is not Effect.NONE}, touches=(name,))

    def _other_table(self, clause: Cursor) -> list[str]:
        """Return other followed tables that a clause fills or empties, or whose name it takes."""
        clause = Cursor(clause.rest)
        if clause.accept("rename"):
            if clause.peek("index", "key", "column"):
                return []
            clause.accept_any(("to", "as", "="))
            return self._named([self._table(clause)])
        if not (clause.accept("exchange", "partition") or clause.accept("convert")):
            return []
        while not clause.is_done:
            if clause.accept("table"):
                return self._named([self._table(clause)])
            clause.at += 1
        return []

    def _merged(self, definition: Sequence[Token]) -> dict[str, Effect]:
        """Return followed tables that a MERGE table writes; it logs their rows as its own."""
        for at, token in enumerate(definition[:-1]):
            if token.is_word("union"):
                cursor = Cursor(definition, at + 1)
                cursor.accept("=")
                if cursor.peek("("):
                    inner = Cursor(cursor.parentheses())
                    if inner.peek("select", "with", "values", "(", "table"):
                        return {}
                    names = [self._table(part) for part in inner.split() if not part.is_done]
                    return dict.fromkeys(self._named(names), Effect.MAY_CHANGE)
        return {}

    def _of_object(self, cursor: Cursor) -> Verdict:
        """Return the effects of CREATE, ALTER or DROP of an object without rows."""
        while True:
            if cursor.accept("definer", "="):
                _skip_account(cursor)
            elif cursor.accept("algorithm", "=") or cursor.accept("sql", "security"):
                cursor.word()
            elif not cursor.accept_any(_PLAIN_MODIFIERS):
                break
        kind = cursor.word()
        if kind not in _OBJECTS:
            raise UnknownSyntaxError(f"the effect of {kind.upper() or 'this statement'} is unknown")
        return Verdict(touches=None) if kind in ("trigger", "view") else _NOTHING

    def _all_if(self, is_ours: bool) -> Verdict:
        effects = dict.fromkeys(self.followed.tables, Effect.CHANGES) if is_ours else {}
        return Verdict(effects, touches=None)


def _is_select(definition: Sequence[Token]) -> bool:
    """Return True if a query fills the table."""
    if any(token.is_word("select") for token in definition):
        return True
    pairs = itertools.pairwise(definition)
    return any(
        token.is_word("as", "ignore", "replace", ")") and following.is_word("values", "table", "with")
        for token, following in pairs
        if not (token.is_word(")") and following.is_word("with"))
    )


def _skip_wait(cursor: Cursor) -> None:
    if cursor.accept("wait"):
        cursor.word()
    else:
        cursor.accept("nowait")


def _skip_account(cursor: Cursor) -> None:
    """Skip an account: name@host, CURRENT_USER or CURRENT_USER()."""
    cursor.at += 1
    if cursor.accept("@"):
        cursor.at += 1
    elif cursor.peek("("):
        cursor.parentheses()
