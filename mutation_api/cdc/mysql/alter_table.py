"""Statements in the log that change tables without row events.

Clauses of ALTER TABLE may change rows, columns or the key of a table. An unknown clause counts as a change.

A session may log INSERT, UPDATE, DELETE and similar statements instead of rows, regardless of the server's
setting. The log then does not contain the changes of the statement. Such a statement may also write a table
that it does not name, through a view, a trigger, a foreign key or a function.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from mutation_api.cdc.mysql.sql_tokens import Cursor, Kind, Token, UnknownSyntaxError, is_call_without_effect


class Effect(enum.Enum):
    """The effect of a statement on one table; a later member takes precedence over the earlier ones."""

    NONE = "changes nothing"
    ADDS_COLUMN = "adds a column that is NULL in all rows"
    MAY_CHANGE = "may change its rows without logging them"
    CASCADES = "adds a foreign key that changes its rows without logging them"
    CHANGES = "changes its rows, columns or key without logging rows"

    @property
    def weight(self) -> int:
        """The rank of this effect; a higher rank takes precedence."""
        return list(Effect).index(self)


# A table can be moved between these engines, because they store its rows as they are written.
_PLAIN_ENGINES = {"innodb", "aria", "myisam", "rocksdb", "ndb", "ndbcluster", "tokudb"}
# Options whose value is one token.
_OPTIONS = {
    "auto_increment",
    "autoextend_size",
    "avg_row_length",
    "checksum",
    "comment",
    "compression",
    "connection",
    "delay_key_write",
    "encrypted",
    "encryption",
    "encryption_key_id",
    "engine_attribute",
    "ietf_quotes",
    "insert_method",
    "key_block_size",
    "max_rows",
    "min_rows",
    "pack_keys",
    "page_checksum",
    "page_compressed",
    "page_compression_level",
    "row_format",
    "secondary_engine_attribute",
    "stats_auto_recalc",
    "stats_persistent",
    "stats_sample_pages",
    "tablespace",
    "table_checksum",
    "transactional",
}
_INDEXES = ("index", "key", "fulltext", "spatial", "vector", "unique")
_NUMBER_WORDS = {
    "unsigned",
    "signed",
    "zerofill",
    "precision",
    "varying",
    "binary",
    "ascii",
    "unicode",
    "byte",
}
_FREE_WORDS = {"null", "invisible", "visible", "unique", "first", "compressed"}
# Attributes that take a value.
_VALUED = {"collate", "comment", "after", "column_format", "storage", "srid", "ref_system_id", "charset"}
_TYPES_OF_TWO_WORDS = {"double", "national", "long", "character", "char"}


def effect_of_clause(clause: Cursor, left_out: Collection[str]) -> Effect:
    """Return the effect of a clause.

    Args:
        clause: the clause.
        left_out: lower-case names of columns that are ignored and do not exist in Hive.
    """
    try:
        return _effect(clause, {name.lower() for name in left_out})
    except UnknownSyntaxError:
        return Effect.CHANGES


def cascades(tokens: Collection[Token]) -> bool:
    """Return True if a foreign key makes the server change rows of this table, such as ON DELETE CASCADE."""
    words = [token.text.lower() if token.kind is Kind.WORD else "" for token in tokens]
    for at, word in enumerate(words[:-2]):
        if word == "on" and words[at + 1] in ("delete", "update") and words[at + 2] in ("cascade", "set"):
            return True
    return False


def _effect(clause: Cursor, left_out: Collection[str]) -> Effect:
    if clause.accept("add"):
        return _effect_of_add(clause, left_out)
    if clause.accept("drop"):
        return _effect_of_drop(clause, left_out)
    if clause.accept("modify"):
        return _NONE_IF[_column(clause) in left_out and not _has_key(clause)]
    if clause.accept("alter"):
        return _effect_of_alter(clause)
    if clause.accept("rename"):
        return _NONE_IF[clause.peek("index", "key")]
    if clause.accept("algorithm") or clause.accept("lock"):
        clause.accept("=")
        clause.word()
        return _NONE_IF[clause.is_done]
    for words in (("enable", "keys"), ("disable", "keys"), ("force",), ("with", "validation"), _WITHOUT):
        if clause.accept(*words):
            return _NONE_IF[clause.is_done]
    if clause.accept("order", "by"):
        return Effect.NONE
    if clause.peek("rebuild", "analyze", "check", "optimize", "coalesce", "reorganize"):
        clause.word()
        return _NONE_IF[clause.accept("partition")]
    return _effect_of_options(clause)


_NONE_IF = {True: Effect.NONE, False: Effect.CHANGES}
_WITHOUT = ("without", "validation")


def _effect_of_options(clause: Cursor) -> Effect:
    """Return the effect of table options, which may follow each other without commas, and of partitioning."""
    while not clause.is_done:
        if clause.accept("partition", "by") or clause.accept("remove", "partitioning"):
            return Effect.NONE  # this moves rows but loses none: a row that fits no partition is an error
        clause.accept("default")
        if clause.accept("engine"):
            clause.accept("=")
            if clause.name().lower() not in _PLAIN_ENGINES:
                return Effect.CHANGES
            continue
        is_charset = clause.accept("character", "set") or clause.accept_any(("charset", "collate"))
        is_path = not is_charset and (
            clause.accept("data", "directory") or clause.accept("index", "directory")
        )
        if not (is_charset or is_path or clause.accept_any(_OPTIONS)):
            return Effect.CHANGES
        clause.accept("=")
        if clause.is_done:
            return Effect.CHANGES
        clause.at += 1
    return Effect.NONE


def _effect_of_alter(clause: Cursor) -> Effect:
    """Return the effect of ALTER COLUMN, INDEX or CHECK.

    The log contains the defaults of later rows; the visibility of an index and the enforcement of a check do
    not change rows.
    """
    if clause.peek("index", "key", "check", "constraint"):
        return Effect.NONE
    clause.accept("column")
    clause.name()
    wanted = clause.accept("set", "default") or clause.accept("drop", "default")
    seen = clause.accept("set", "visible") or clause.accept("set", "invisible")
    return _NONE_IF[wanted or (seen and clause.is_done)]


def _effect_of_drop(clause: Cursor, left_out: Collection[str]) -> Effect:
    if clause.accept("foreign", "key") or clause.accept("check"):
        return Effect.NONE
    if clause.accept_any(("index", "key", "constraint")):
        clause.accept("if", "exists")
        return _NONE_IF[clause.name().lower() != "primary"]
    if clause.peek("primary", "partition", "system", "period"):
        return Effect.CHANGES
    return _NONE_IF[_column(clause) in left_out]


def _has_key(definition: Cursor) -> bool:
    return any(token.is_word("primary", "key") for token in definition.rest)


def _column(clause: Cursor) -> str:
    """Read [COLUMN] [IF EXISTS] name; return the name in lower case."""
    clause.accept("column")
    clause.accept("if", "exists")
    return clause.name().lower()


def _effect_of_add(clause: Cursor, left_out: Collection[str]) -> Effect:
    is_column = clause.accept("column")
    clause.accept("if", "not", "exists")
    if clause.peek("("):
        parts = list(Cursor(clause.parentheses()).split())
        effects = [_effect_of_add(part, left_out) for part in parts]
        return max(effects, key=lambda effect: effect.weight) if clause.is_done else Effect.CHANGES
    if not is_column and clause.peek("constraint", "primary", "foreign", "check", "partition", *_INDEXES):
        return _effect_of_constraint(clause)
    if not is_column and (clause.accept("system", "versioning") or clause.accept("period", "for")):
        return Effect.CHANGES
    definition = list(clause.rest)
    name = clause.name().lower()
    if cascades(definition):
        return Effect.CASCADES
    if name in left_out and not _has_key(clause):
        return Effect.NONE
    return Effect.ADDS_COLUMN if _is_null_in_all_rows(clause) else Effect.CHANGES


def _effect_of_constraint(clause: Cursor) -> Effect:
    if cascades(clause.rest):
        return Effect.CASCADES
    if clause.accept("partition"):
        return Effect.NONE
    if clause.accept("constraint") and not clause.peek("primary", "foreign", "check", "unique"):
        clause.accept("if", "not", "exists")
        clause.name()
    return _NONE_IF[not clause.is_done and not clause.peek("primary")]


def _is_null_in_all_rows(definition: Cursor) -> bool:
    """Return True if a new column of this type and with these attributes is NULL in all existing rows."""
    kind = definition.word()
    if not kind or kind == "serial":
        return False
    if kind in _TYPES_OF_TWO_WORDS:
        definition.accept_any(("precision", "char", "character", "varchar", "varbinary", "varying", "text"))
        definition.accept("varying")
    if definition.peek("("):
        definition.parentheses()
    is_nullable = (
        kind != "timestamp"
    )  # an old server makes such a column NOT NULL unless the statement says NULL
    while not definition.is_done:
        if definition.accept("null"):
            is_nullable = True
        elif definition.accept("default", "null") or definition.accept("unique", "key"):
            continue
        elif definition.accept("character", "set") or definition.accept_any(_VALUED):
            definition.accept("=")
            if definition.is_done:
                return False
            definition.at += 1
        elif definition.accept("check") or definition.accept("references"):
            if definition.peek("("):
                definition.parentheses()
            else:
                definition.table("")
                definition.parentheses()
        elif definition.accept("on", "delete") or definition.accept("on", "update"):
            is_time = definition.accept_any(("current_timestamp", "localtimestamp", "now"))
            if is_time and definition.peek("("):
                definition.parentheses()
            if not (is_time or definition.accept("restrict") or definition.accept("no", "action")):
                return False
        elif not definition.accept_any(_NUMBER_WORDS | _FREE_WORDS):
            return False
    return is_nullable


CHANGING_VERBS = ("insert", "replace", "update", "delete", "load", "with", "do", "select", "values", "table")
"""Verbs of statements that change rows or evaluate expressions; ``call`` and others are not understood."""

_MODIFIERS = ("low_priority", "high_priority", "delayed", "quick", "ignore", "concurrent", "local", "history")
_TableName = tuple[str, str]


@dataclass(frozen=True)
class Writes:
    """The tables or views that a statement writes directly, each with its database."""

    targets: tuple[_TableName, ...]


def writes_of(cursor: Cursor, database: str) -> Writes:
    """Return the tables that a statement writes.

    Args:
        cursor: a cursor before the verb.
        database: the database of names without one.

    Raises:
        UnknownSyntaxError: If the statement is not understood, or calls a function that is not built in.
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
    raise UnknownSyntaxError(f"the effect of {verb.upper() or 'this'} is unknown")


def check_calls(tokens: Sequence[Token]) -> None:
    """Raise UnknownSyntaxError if an expression calls a function that is not built in."""
    for before, token, following in zip([None, *tokens], tokens, tokens[1:], strict=False):
        if token.is_name and following.is_word("("):
            is_qualified = before is not None and before.is_word(".")
            if token.kind is Kind.NAME or is_qualified or not is_call_without_effect(token.text):
                raise UnknownSyntaxError(f"it may call the function {token.text}")


def _skip_common_tables(cursor: Cursor) -> None:
    """Skip the common table expressions after WITH."""
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
    """Return the tokens up to a keyword that is not in parentheses, or up to the end."""
    start, depth = cursor.at, 0
    while not cursor.is_done:
        depth += cursor.peek("(") - cursor.peek(")")
        if depth == 0 and cursor.peek(word):
            break
        cursor.at += 1
    return cursor.tokens[start : cursor.at]


def _referenced(tokens: Sequence[Token], database: str) -> Iterator[_TableName]:
    """Yield the tables in a list of joined tables; other names may be included, which is safe."""
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
    """Return the tokens without the columns of USING (…)."""
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
