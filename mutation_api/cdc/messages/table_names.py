"""Names of a source's tables in all spellings, and the identity of a log.

Messages of rows, messages of schema changes and users spell one table in different ways: with or without
quotes, database and schema, in upper or lower case. This is the only module that compares spellings.

A position is valid only together with its origin: a server's binary log, the database and connector of a
table, the snapshot that a table began with, or the bytes of files that were read. The text of a watermark has
these under ``identity``, so that positions of another log are detected. A watermark of an earlier version has
no identity, so it is not compared.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mutation_api.cdc.messages.json_lines import CompressedFileError, LogFile, is_compressed, opened_bytes
from mutation_api.cdc.source import IDENTITY, Position
from mutation_api.cdc.source_url import FINGERPRINT_BYTES, fingerprint, fingerprint_of

_QUOTED = r'"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[(?:[^\]]|\]\])*\]'
_PART = re.compile(rf'\s*({_QUOTED}|[^.,"`\[\]]+)\s*')
_WORD_OR_TEXT = re.compile(rf"'(?:[^'\\]|''|\\.)*'|({_QUOTED}|[^\W\d][\w$#@]*|\d+[^\W\d][\w$]*)", re.DOTALL)
_CLOSING = {'"': '"', "`": "`", "[": "]"}
_MOVING = frozenset({"rename", "exchange", "switch", "sp_rename", "swap"})
_NEAR = 5
"""The maximum number of names that a message suggests."""


class TableId(NamedTuple):
    """A table of a source; a part that is None is not known.

    ``log`` is the connector's name for the source. A table without a name stands for all tables of its
    database or schema.
    """

    log: str | None
    database: str | None
    schema: str | None
    table: str | None

    @property
    def short(self) -> str | None:
        """``SCHEMA.TABLE``, or ``DATABASE.TABLE`` if the source has no schemas; None if a part is unknown."""
        first = self.database if self.schema is None else self.schema
        return None if first is None or self.table is None else f"{first}.{self.table}"

    @property
    def full(self) -> str:
        """All parts except the log."""
        return ".".join(part for part in self[1:] if part is not None)

    def spellings(self) -> tuple[str, ...]:
        """Return the names that a user can use for it, the shortest first."""
        return _spellings(self)

    def may_be(self, name: str) -> bool:
        """Return True if a name in upper or lower case may be that of this table, or of one of these."""
        given = name.casefold()
        if self.table is not None:
            if self.database is self.schema is None:
                return given.rpartition(".")[2] == self.table.casefold()
            return given in self._owned()
        return self[1:3] == (None, None) or f"{given.rpartition('.')[0]}." in self._owned()

    def _owned(self) -> set[str]:
        """Return all spellings in lower case, including those of a schema's table without the schema."""
        without_schema = self._replace(schema=None).spellings() if self.database is not None else ()
        return {each.casefold() for each in (*self.spellings(), *without_schema)}


ANY_TABLE = TableId(None, None, None, None)
"""A stand-in for all tables of a source."""


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
    """Return the parts of several names separated by commas, without quotes; None if they are not names.

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
    """Return all words and quoted names of a statement in lower case, except those in strings."""
    words = (found[1] for found in _WORD_OR_TEXT.finditer(statement or ""))
    return frozenset(_unquoted(word).casefold() for word in words if word is not None)


def moves_tables(statement: str | None) -> bool:
    """Return True if a statement may give a table the name, or the rows, of another one that it names."""
    return not _MOVING.isdisjoint(names_in(statement))


def replaces_table(statement: str | None) -> bool:
    """Return True if a statement that creates a table may drop one with the same name."""
    return {"or", "replace"} <= names_in(statement)


def near_names(name: str, seen: Iterable[TableId]) -> list[str]:
    """Return the tables that a user may have meant by a name that is in no message, the nearest first."""
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
    """Return the parts of a name in any spelling, in lower case."""
    names = parts_of_names(name)
    parts: Sequence[str] = names[0] if names is not None and len(names) == 1 else name.split(".")
    return tuple(part.strip().casefold() for part in parts)


def _are_similar(one: str, other: str) -> bool:
    """Return True if at most two letters differ, or one in four."""
    previous = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        current = [row]
        for column, opposite in enumerate(other, 1):
            changed = previous[column - 1] + (letter != opposite)
            current.append(min(changed, previous[column] + 1, current[column - 1] + 1))
        previous = current
    return previous[-1] <= min(2, max(len(one), len(other)) // 4)


_ALL = 2**63 - 1
"""The number of read bytes if a whole file counts as read."""
_BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class KnownFile:
    """A file as a run read it: its name, the number in its name, its bytes, and the md5 of the last ones.

    The bytes of a compressed file are counted before the compression, so it may be compressed or decompressed
    later.
    """

    name: str
    number: int
    size: int
    md5: str

    @classmethod
    def of(cls, file: LogFile) -> KnownFile:
        """Return the present state of a file. Raises OSError, CompressedFileError."""
        size, md5 = _size_and_md5(file, None)
        return cls(file.location.name, file.number, size, md5)

    def begins(self, file: LogFile) -> bool:
        """Return True if a file still begins with these bytes. Raises OSError."""
        try:
            return _size_and_md5(file, self.size) == (self.size, self.md5)
        except CompressedFileError:  # the reader of the log reports what is wrong with it
            return False


@dataclass(frozen=True)
class TableIdentity:
    """The origin of the rows of a table.

    ``owner``: connector, database and schema; parts that messages do not name are None. ``snapshot``:
    position of the snapshot that the table began with, or None. ``is_streamed``: True if changes followed.
    """

    owner: tuple[str | None, str | None, str | None] = (None, None, None)
    snapshot: str | None = None
    is_streamed: bool = False

    def ids(self, tables: Iterable[str | None]) -> set[TableId]:
        """Return tables with these names, if their owner is known."""
        return {TableId(*self.owner, table) for table in tables} if any(self.owner) else set()


@dataclass(frozen=True)
class KnownParts:
    """The parts of a log's files that an earlier run had read.

    ``sizes``: bytes of each file. ``replaced``: files whose bytes have changed, or that are now shorter.
    ``renumbered``: files whose number has changed, with their former number.
    """

    sizes: tuple[int, ...]
    replaced: tuple[KnownFile, ...] = ()
    renumbered: tuple[tuple[LogFile, int], ...] = ()


@dataclass(frozen=True)
class LogIdentity:
    """The identity of a log, see the module. ``files`` is None if the watermark does not contain them."""

    origins: tuple[tuple[str, str], ...] = ()
    files: tuple[KnownFile, ...] | None = None
    tables: Mapping[str, TableIdentity] = field(default_factory=dict)

    @classmethod
    def of(cls, position: Position) -> LogIdentity:
        """Parse the identity in a watermark; return an empty one if it is missing or cannot be read."""
        try:
            found = json.loads(position.text)[IDENTITY]
            files = found.get("files")
            return cls(
                tuple((str(kind), str(name)) for kind, name in found.get("origins", ())),
                None if files is None else tuple(KnownFile(*each) for each in files),
                {name: _table(each) for name, each in found.get("tables", {}).items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def added_to(self, position: Position) -> Position:
        """Return the position with this identity added to its ``text``."""
        found: dict[str, object] = {"origins": [list(each) for each in self.origins]}
        if self.files is not None:
            found["files"] = [[each.name, each.number, each.size, each.md5] for each in self.files]
        found["tables"] = {
            name: {"of": list(each.owner), "snapshot": each.snapshot, "streamed": each.is_streamed}
            for name, each in sorted(self.tables.items())
        }
        return Position(position.order, json.dumps({**json.loads(position.text), IDENTITY: found}))

    def known_parts(self, files: Sequence[LogFile]) -> KnownParts:
        """Return the parts of these files that were read.

        Files are recognized by their bytes, not by their names.

        Raises OSError.
        """
        if self.files is None:
            return KnownParts(tuple(_ALL for _ in files))
        left = list(self.files)
        found: dict[int, KnownFile] = {}
        for by_name in (True, False):
            for index, file in enumerate(files):
                name = _plain_name(file.location.name)
                alike = [each for each in left if _plain_name(each.name) == name or not by_name]
                known = next((each for each in alike if each.size and each.begins(file)), None)
                if index not in found and known is not None:
                    found[index] = known
                    left.remove(known)
        names = {_plain_name(file.location.name) for file in files}
        return KnownParts(
            tuple(found[index].size if index in found else 0 for index in range(len(files))),
            tuple(each for each in left if each.size and _plain_name(each.name) in names),
            tuple((files[i], known.number) for i, known in found.items() if known.number != files[i].number),
        )


def _size_and_md5(file: LogFile, end: int | None) -> tuple[int, str]:
    """Return the number of a file's bytes, at most ``end``, and the md5 of the last ones. Raises OSError."""
    if not is_compressed(file.location.name):
        size = file.size if end is None else min(file.size, end)
        return size, fingerprint(file.location, size)
    size, last = 0, b""
    with opened_bytes(file.location, file.size) as stream:
        while (left := _ALL if end is None else end - size) and (
            block := stream.read(min(left, _BLOCK_BYTES))
        ):
            size += len(block)
            last = (last + block)[-FINGERPRINT_BYTES:]
    return size, fingerprint_of(last)


def _plain_name(name: str) -> str:
    return name.rpartition(".")[0] if is_compressed(name) else name


def _table(found: Mapping[str, object]) -> TableIdentity:
    of, snapshot = found["of"], found["snapshot"]
    assert isinstance(of, list)
    log, database, schema = of
    return TableIdentity(
        (log, database, schema), None if snapshot is None else str(snapshot), bool(found["streamed"])
    )
