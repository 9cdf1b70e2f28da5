"""Statements in the binary log: which of them change the rows or columns of a table.

Rows are in row events. A statement beside them is DDL, the frame of a transaction, or a change that has no
row events. The effect of a statement is derived from its words. In doubt it counts as a change, so that a
table never differs from its source silently.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Effect", "Statement", "effect_on"]


class Effect(enum.Enum):
    """What a statement means for one table."""

    NONE = "none"
    ADDS_COLUMN = "adds a column that is NULL in all rows"
    CHANGES = "changes its rows or columns without row events"


@dataclass(frozen=True)
class Statement:
    """A statement, and the database in which it ran."""

    database: str
    text: str

    @property
    def words(self) -> tuple[str, ...]:
        """Its words: names without quotes, literals as ``'…'``, punctuation as single words, no comments."""
        return tuple(_words(self.text))


_TOKEN = re.compile(
    r"""/\*M?!\d*|\*/            # the server runs what looks like a comment
      | /\*.*?\*/ | --[ \t].*?(?:\n|$) | \#.*?(?:\n|$)
      | `(?P<quoted>(?:[^`]|``)*)`
      | (?P<text>'(?:[^'\\]|\\.|'')*')
      | (?P<double>"(?:[^"\\]|\\.|"")*")
      | (?P<word>[\w$]+)
      | (?P<mark>[^\s])""",
    re.X | re.S,
)
# These name a table and do not change its rows or columns.
_HARMLESS = (
    ("analyze",),
    ("check",),
    ("flush",),
    ("grant",),
    ("optimize",),
    ("repair",),
    ("revoke",),
    ("create", "view"),
    ("create", "index"),
    ("create", "trigger"),
    ("create", "procedure"),
    ("create", "function"),
    ("create", "event"),
    ("create", "user"),
    ("create", "role"),
    ("drop", "view"),
    ("drop", "index"),
    ("drop", "trigger"),
    ("drop", "procedure"),
    ("drop", "function"),
    ("drop", "event"),
    ("drop", "user"),
    ("drop", "role"),
)
# Between CREATE or DROP and the kind of thing.
_MODIFIERS = {"or", "replace", "unique", "fulltext", "spatial", "online", "offline", "aggregate", "sql"}
_MODIFIERS |= {"security", "invoker", "definer", "algorithm"}
_HARMLESS_CLAUSES = (
    ("add", "index"),
    ("add", "key"),
    ("add", "unique"),
    ("add", "fulltext"),
    ("add", "spatial"),
    ("drop", "index"),
    ("drop", "key"),
    ("rename", "index"),
    ("rename", "key"),
    ("alter", "index"),
    ("engine",),
    ("comment",),
    ("auto_increment",),
    ("row_format",),
    ("force",),
    ("algorithm",),
    ("lock",),
    ("disable", "keys"),
    ("enable", "keys"),
)
_NOT_COLUMNS = {"index", "key", "unique", "fulltext", "spatial", "constraint", "primary", "foreign", "check"}
_NOT_COLUMNS |= {"partition", "period", "system"}
# Words in the definition of a column that fill it in existing rows.
_FILLS = {"not", "auto_increment", "generated", "as", "virtual", "stored", "persistent", "primary", "serial"}


def effect_on(statement: Statement, database: str, tables: Sequence[str]) -> dict[str, Effect]:
    """Effects of a statement on tables of a database; tables without an effect are left out."""
    lower = tuple(word.lower() for word in statement.words)
    if lower[:2] == ("set", "statement") and "for" in lower:
        lower = lower[lower.index("for") + 1 :]
    if not lower or lower[0] in ("begin", "commit", "rollback", "savepoint", "release", "xa", "set"):
        return {}
    if lower[:2] in (("drop", "database"), ("drop", "schema")) and database.lower() in lower:
        return dict.fromkeys(tables, Effect.CHANGES)
    named = [table for table in tables if _names(lower, statement.database.lower(), database.lower(), table)]
    if not named or _is_harmless(lower):
        return {}
    effect = _effect_of_alter(lower) if lower[0] == "alter" else Effect.CHANGES
    return {} if effect is Effect.NONE else dict.fromkeys(named, effect)


def _words(text: str) -> Iterator[str]:
    for found in _TOKEN.finditer(text):
        if found["quoted"] is not None:
            yield found["quoted"].replace("``", "`")
        elif found["double"] is not None:  # a name under ANSI_QUOTES, else a literal
            yield found["double"][1:-1]
        elif found["text"] is not None:
            yield "'…'"
        elif found["word"] is not None or found["mark"] is not None:
            yield found["word"] or found["mark"]


def _names(words: Sequence[str], current: str, database: str, table: str) -> bool:
    """Whether the words name the table: with its database before it, or alone in that database."""
    for at, word in enumerate(words):
        if word == table.lower():
            has_database = at >= 2 and words[at - 1] == "."
            if (words[at - 2] if has_database else current) == database:
                return True
    return False


def _is_harmless(words: Sequence[str]) -> bool:
    verb = words[0]
    if (verb,) in _HARMLESS or (verb == "create" and "temporary" in words[1:4]):
        return True
    return (verb, _kind(words)) in _HARMLESS


def _kind(words: Sequence[str]) -> str:
    """The kind of object that CREATE or DROP names: the first word that is not a modifier."""
    before = ""
    for word in words[1:]:
        # DEFINER = name @ host, where the host may be missing; SQL SECURITY DEFINER has no name.
        is_name = before in ("=", "@") or word in ("=", "@")
        if not is_name and word not in _MODIFIERS:
            return word
        before = word
    return ""


def _effect_of_alter(words: Sequence[str]) -> Effect:
    if "table" not in words[:4]:
        return Effect.CHANGES
    clauses = _clauses(words)
    effects = {_effect_of_clause(clause) for clause in clauses}
    if Effect.CHANGES in effects or not clauses:
        return Effect.CHANGES
    return Effect.ADDS_COLUMN if Effect.ADDS_COLUMN in effects else Effect.NONE


def _clauses(words: Sequence[str]) -> list[tuple[str, ...]]:
    """The parts of ALTER TABLE name, split at the commas that are not in parentheses."""
    start = words.index("table") + 1
    if words[start : start + 2] == ("if", "exists"):
        start += 2
    start += 3 if words[start + 1 : start + 2] == (".",) else 1
    clauses: list[tuple[str, ...]] = []
    clause: list[str] = []
    depth = 0
    for word in words[start:]:
        depth += (word == "(") - (word == ")")
        if word == "," and depth == 0:
            clauses.append(tuple(clause))
            clause = []
        else:
            clause.append(word)
    return [*clauses, tuple(clause)] if clause else clauses


def _effect_of_clause(clause: tuple[str, ...]) -> Effect:
    if any(clause[: len(harmless)] == harmless for harmless in _HARMLESS_CLAUSES):
        return Effect.NONE
    if clause[:1] != ("add",):
        return Effect.CHANGES
    rest = clause[1:]
    if rest[:1] == ("column",):
        rest = rest[1:]
    elif rest[:1] and rest[0] in _NOT_COLUMNS:
        return Effect.CHANGES
    if rest[:3] == ("if", "not", "exists"):
        rest = rest[3:]
    defaults = [rest[at + 1] for at, word in enumerate(rest[:-1]) if word == "default"]
    fills = any(word in _FILLS for word in rest[1:]) or any(value != "null" for value in defaults)
    # An old server makes such a column NOT NULL unless the statement says NULL.
    fills = fills or ("timestamp" in rest[1:] and "null" not in rest)
    return Effect.CHANGES if fills or rest[:1] == ("(",) else Effect.ADDS_COLUMN
