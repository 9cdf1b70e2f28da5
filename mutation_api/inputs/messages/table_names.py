"""Names of a source's tables: the parts of a name, all its spellings, and the names that a text has. Pure.

Messages of rows, messages of schema changes and users spell one table in different ways: with or without
quotes, database and schema, in upper or lower case. This is the only module that compares spellings.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = [
    "ANY_TABLE",
    "TableId",
    "moves_tables",
    "names_in",
    "near_names",
    "parts_of_names",
    "replaces_table",
]

_QUOTED = r'"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[(?:[^\]]|\]\])*\]'
_PART = re.compile(rf'\s*({_QUOTED}|[^.,"`\[\]]+)\s*')
_WORD_OR_TEXT = re.compile(rf"'(?:[^'\\]|''|\\.)*'|({_QUOTED}|[^\W\d][\w$#@]*|\d+[^\W\d][\w$]*)", re.DOTALL)
_CLOSING = {'"': '"', "`": "`", "[": "]"}
_MOVING = frozenset({"rename", "exchange", "switch", "sp_rename", "swap"})
_NEAR = 5
"""Names that a message offers at most."""


class TableId(NamedTuple):
    """A table of a source; what is None is not known.

    ``log`` is the connector's name for the source. A table without a name stands for all tables of its
    database or schema.
    """

    log: str | None
    database: str | None
    schema: str | None
    table: str | None

    @property
    def short(self) -> str | None:
        """``SCHEMA.TABLE``, or ``DATABASE.TABLE`` of a source without schemas; None if a part is unknown."""
        first = self.database if self.schema is None else self.schema
        return None if first is None or self.table is None else f"{first}.{self.table}"

    @property
    def full(self) -> str:
        """All parts but the log."""
        return ".".join(part for part in self[1:] if part is not None)

    def spellings(self) -> tuple[str, ...]:
        """The names by which a user can name it, the shortest first."""
        return _spellings(self)

    def may_be(self, name: str) -> bool:
        """Whether the table that a user named may be this one, or one of these; in any case of letters."""
        given = name.casefold()
        if self.table is not None:
            if self.database is self.schema is None:
                return given.rpartition(".")[2] == self.table.casefold()
            return given in self._owned()
        return self[1:3] == (None, None) or f"{given.rpartition('.')[0]}." in self._owned()

    def _owned(self) -> set[str]:
        """All spellings in lower case, including those of a schema's table by its database alone."""
        without_schema = self._replace(schema=None).spellings() if self.database is not None else ()
        return {each.casefold() for each in (*self.spellings(), *without_schema)}


ANY_TABLE = TableId(None, None, None, None)
"""Stands for all tables of a source."""


@functools.lru_cache(maxsize=4096)
def _spellings(table: TableId) -> tuple[str, ...]:
    name = "" if table.table is None else table.table
    owners = [(table.schema,), (table.database, table.schema), (table.log, table.schema), table[:3]]
    if table.schema is None:
        owners = [(table.database,), (table.log, table.database)]
    found = [
        ".".join((*(part for part in owner if part is not None), name))
        for owner in owners
        if owner.count(None) < len(owner)
    ]
    return tuple(dict.fromkeys(found))


def parts_of_names(text: str | None) -> list[tuple[str, ...]] | None:
    """The parts of each of several names with commas between, without quotes; None if it is not such a text.

    ``"shop"."t","shop"."t_old"`` are ``("shop", "t")`` and ``("shop", "t_old")``.
    """
    names: list[list[str]] = [[]]
    at = 0
    while text is not None:
        found = _PART.match(text, at)
        if found is None:
            return None
        names[-1].append(_unquoted(found[1].strip()))
        at = found.end()
        if at == len(text):
            return [tuple(parts) for parts in names]
        if text[at] not in ".,":
            return None
        if text[at] == ",":
            names.append([])
        at += 1
    return None


def names_in(statement: str | None) -> frozenset[str]:
    """All words and quoted names of a statement, in lower case; not what is in strings."""
    words = (found[1] for found in _WORD_OR_TEXT.finditer(statement or ""))
    return frozenset(_unquoted(word).casefold() for word in words if word is not None)


def moves_tables(statement: str | None) -> bool:
    """Whether a statement may give a table the name, or the rows, of another one that it names."""
    return not _MOVING.isdisjoint(names_in(statement))


def replaces_table(statement: str | None) -> bool:
    """Whether a statement that creates a table may drop one of that name."""
    return {"or", "replace"} <= names_in(statement)


def near_names(name: str, seen: Iterable[TableId]) -> list[str]:
    """Names of tables that a user may have meant by a name which no message has, the nearest first."""
    wanted = _loosely(name)
    ranked: list[tuple[int, str]] = []
    for table in seen:
        short = table.short
        if short is None:
            continue
        spellings = [_loosely(each) for each in table.spellings()]
        if wanted in spellings:
            ranked.append((0, short))
        elif wanted[-1:] == spellings[0][-1:]:
            ranked.append((1, short))
        elif _are_similar("".join(wanted), "".join(spellings[0])):
            ranked.append((2, short))
    return list(dict.fromkeys(short for _, short in sorted(ranked)))[:_NEAR]


def _unquoted(text: str) -> str:
    closing = _CLOSING.get(text[:1])
    return text if closing is None else text[1:-1].replace(closing * 2, closing)


def _loosely(name: str) -> tuple[str, ...]:
    """The parts of a name in any spelling, in lower case."""
    names = parts_of_names(name)
    parts: Sequence[str] = names[0] if names is not None and len(names) == 1 else name.split(".")
    return tuple(part.strip().casefold() for part in parts)


def _are_similar(one: str, other: str) -> bool:
    """Whether at most two letters differ, or one in four."""
    previous = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        current = [row]
        for column, opposite in enumerate(other, 1):
            changed = previous[column - 1] + (letter != opposite)
            current.append(min(changed, previous[column] + 1, current[column - 1] + 1))
        previous = current
    return previous[-1] <= min(2, max(len(one), len(other)) // 4)
