"""INSERT, UPDATE, DELETE and the like that a log holds as statements: the tables that they write, and what
else.

A session may log statements in place of rows, whatever the server's setting is. What such a statement changes
is not in the log. It may write a table that it does not name: by a view, a trigger, a foreign key or a
function.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mutation_api.inputs.mysql.native_functions import is_call_without_effect
from mutation_api.inputs.mysql.sql_tokens import Cursor, Kind, Token, UnknownSyntaxError

__all__ = ["CHANGING_VERBS", "Writes", "check_calls", "writes_of"]

CHANGING_VERBS = ("insert", "replace", "update", "delete", "load", "with", "do", "select", "values", "table")
"""Verbs of statements that change rows, or evaluate expressions; ``call`` and others are never understood."""

_MODIFIERS = ("low_priority", "high_priority", "delayed", "quick", "ignore", "concurrent", "local", "history")
_TableName = tuple[str, str]


@dataclass(frozen=True)
class Writes:
    """What a statement writes by itself: names of tables or views, with their databases."""

    targets: tuple[_TableName, ...]


def writes_of(cursor: Cursor, database: str) -> Writes:
    """Return what a statement writes.

    Args:
        cursor: stands before the verb.
        database: of names without one.

    Raises:
        UnknownSyntaxError: If the statement is not understood, or calls a function that the server does not
        bring.
    """
    verb = cursor.word()
    if verb == "with":
        _skip_common_tables(cursor)
        return writes_of(cursor, database)
    if verb in ("insert", "replace"):
        return _inserted(cursor, database)
    if verb == "update":
        return _updated(cursor, database)
    if verb == "delete":
        return _deleted(cursor, database)
    if verb == "load":
        return _loaded(cursor, database)
    if verb in ("do", "select", "values", "table"):
        check_calls(cursor.rest)
        return Writes(())
    raise UnknownSyntaxError(f"the effect of {verb.upper() or 'this'} is not known")


def check_calls(tokens: Sequence[Token]) -> None:
    """Raise UnknownSyntaxError if an expression calls a function that the server does not bring."""
    for before, token, following in zip([None, *tokens], tokens, tokens[1:], strict=False):
        if token.is_name and following.is_word("("):
            is_qualified = before is not None and before.is_word(".")
            if token.kind is Kind.NAME or is_qualified or not is_call_without_effect(token.text):
                raise UnknownSyntaxError(f"it may call the function {token.text}")


def _skip_common_tables(cursor: Cursor) -> None:
    """Read the common table expressions behind WITH."""
    cursor.accept("recursive")
    while True:
        cursor.name()
        if cursor.peek("("):
            cursor.parentheses()
        if not cursor.accept("as"):
            raise UnknownSyntaxError("WITH without AS")
        check_calls(cursor.parentheses())
        if not cursor.accept(","):
            return


def _inserted(cursor: Cursor, database: str) -> Writes:
    while cursor.accept_any(_MODIFIERS):
        pass
    cursor.accept("into")
    target = cursor.table(database)
    if cursor.accept("partition"):
        cursor.parentheses()
    if cursor.peek("(") and not cursor.tokens[cursor.at + 1].is_word("select", "with", "values", "("):
        cursor.parentheses()
    check_calls(cursor.rest)
    return Writes((target,))


def _updated(cursor: Cursor, database: str) -> Writes:
    while cursor.accept_any(_MODIFIERS):
        pass
    references = _until(cursor, "set")
    check_calls(cursor.rest)
    return Writes(tuple(_referenced(references, database)))


def _deleted(cursor: Cursor, database: str) -> Writes:
    while cursor.accept_any(_MODIFIERS):
        pass
    check_calls(cursor.rest)
    if cursor.accept("from"):
        single = Cursor(cursor.rest)
        target = single.table(database)
        if single.is_done or single.peek("where", "order", "limit", "returning", "partition"):
            return Writes((target,))
    return Writes(tuple(_referenced(_until(cursor, "where"), database)))


def _loaded(cursor: Cursor, database: str) -> Writes:
    while not cursor.is_done and not cursor.accept("into", "table"):
        cursor.at += 1
    target = cursor.table(database)
    for at, token in enumerate(cursor.rest):
        if token.is_word("set"):
            check_calls(cursor.rest[at:])
            break
    return Writes((target,))


def _until(cursor: Cursor, word: str) -> Sequence[Token]:
    """Read up to a keyword that is not in parentheses, or the end."""
    start, depth = cursor.at, 0
    while not cursor.is_done:
        depth += cursor.peek("(") - cursor.peek(")")
        if depth == 0 and cursor.peek(word):
            break
        cursor.at += 1
    return cursor.tokens[start : cursor.at]


def _referenced(tokens: Sequence[Token], database: str) -> Iterator[_TableName]:
    """The names in a list of joined tables; also names that are none, which is the safe side."""
    if any(token.is_word("(") for token in _without_using(tokens)):
        raise UnknownSyntaxError("its tables are in parentheses")
    cursor = Cursor(_without_using(tokens))
    is_expected = True
    while not cursor.is_done:
        if cursor.accept_any(("from", "using", "join", ",", "straight_join")):
            is_expected = True
        elif is_expected:
            yield cursor.table(database)
            is_expected = False
        else:
            cursor.at += 1


def _without_using(tokens: Sequence[Token]) -> list[Token]:
    """Leave out the columns of USING (…)."""
    found: list[Token] = []
    cursor = Cursor(tokens)
    while not cursor.is_done:
        token = cursor.rest[0]
        cursor.at += 1
        if token.is_word("using") and cursor.peek("("):
            cursor.parentheses()
        else:
            found.append(token)
    return found
