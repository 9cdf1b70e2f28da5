"""FollowedTables: find the configured table that a message is about, in any spelling.

A user names a table as messages do, ``DATABASE.TABLE`` or ``SCHEMA.TABLE``, or more exactly with the database
and the connector's name before it. A name that matches tables of several databases, schemas or connectors is
refused. A name with ``*`` or ``?`` matches several tables on purpose: they are shards of one table, and a
column of the target holds the shard of each row.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mutation_api.cdc.messages.events import Event, Problem
from mutation_api.cdc.messages.json_text import Fields
from mutation_api.cdc.messages.table_names import TableId
from mutation_api.errors import ConfigurationError, RecordLayoutError

_WILDCARDS = {"*": "[^.]*", "?": "[^.]"}


@dataclass(frozen=True)
class FollowedTables:
    """The tables that a run follows; pickled for tasks.

    ``names``: the names given by the user. ``shard_column``: column for the shard, in the targets of names
    with wildcards. If None, there is no such column.
    """

    names: tuple[str, ...]
    shard_column: str | None = None

    def check(self) -> None:
        """Raise ConfigurationError if a name has wildcards but there is no shard column, or vice versa."""
        patterns = [name for name in self.names if self.is_sharded(name)]
        if patterns and self.shard_column is None:
            raise ConfigurationError(
                f"table {patterns[0]}: the name has wildcards, so one target has the rows of several tables: "
                "name the column that distinguishes them (--shard-column COLUMN, in Python shard_column)"
            )
        if self.shard_column is not None and not patterns:
            raise ConfigurationError(
                f"shard column {self.shard_column}: no table has a name with * or ?, such as "
                f"'shop_*.orders': got {', '.join(self.names)}"
            )

    @property
    def single_names(self) -> tuple[str, ...]:
        """The names, or () if one of them can match several tables."""
        return () if any(map(self.is_sharded, self.names)) else self.names

    @staticmethod
    def is_sharded(name: str) -> bool:
        """Return True if a name matches several tables on purpose."""
        return not _WILDCARDS.keys().isdisjoint(name)

    def name_of(self, table: TableId) -> str | None:
        """Return the most exact name under which a table is followed; None if it is not followed."""
        fitting = [name for name in self.names if any(_fits(name, each) for each in table.spellings())]
        return max(fitting, key=lambda name: (not self.is_sharded(name), len(name)), default=None)

    def named(self, event: Event) -> Event:
        """Return the event with the name under which its table is followed, and the shard in its rows."""
        if event.id is None or event.kind not in ("row", "truncate"):
            return event
        name = self._known.get(event.id, "")
        if name == "":
            name = self._known[event.id] = self.name_of(event.id)
        if name is None:
            return event
        if self.shard_column is not None and self.is_sharded(name):
            return _with_shard(event._replace(table=name), self.shard_column, event.id.full)
        return event if name == event.table else event._replace(table=name)

    def touched_by(self, event: Event) -> tuple[str, ...]:
        """Return the followed tables that a change of whole tables may concern."""
        if event.kind == "truncate":
            return tuple(name for name in self.names if name == event.table)
        if event.kind != "schema change":
            return ()
        return tuple(name for name in self.names if self._may_touch(event, name))

    def check_identity(self, name: str, tables: Collection[TableId]) -> None:
        """Raise ConfigurationError if a name without wildcards matches several tables of the log."""
        differing = _differing(tables)
        if self.is_sharded(name) or not differing:
            return
        spelled = {_exact_spelling(table, differing) for table in tables}
        owners = " and ".join(sorted({_owner(table, differing) for table in tables}))
        raise ConfigurationError(
            f"table {name}: the log has rows of several tables with this name, of {owners}. Use the exact "
            f"name of the table to follow: {', '.join(sorted(spelled))}; or follow all as shards, with a "
            f"name such as '*.{name}' and --shard-column COLUMN, in Python shard_column"
        )

    @functools.cached_property
    def _known(self) -> dict[TableId, str | None]:
        return {}

    def _may_touch(self, event: Event, name: str) -> bool:
        if self.is_sharded(name):
            return any(_may_fit(name, each) for each in event.touches) or any(
                _matches(name.rpartition(".")[2].casefold(), word) for word in event.mentions
            )
        is_mentioned = name.rpartition(".")[2].casefold() in event.mentions
        return is_mentioned or any(each.may_be(name) for each in event.touches)


@functools.lru_cache(maxsize=4096)
def _fits(name: str, spelling: str) -> bool:
    return name == spelling or (FollowedTables.is_sharded(name) and _matches(name, spelling))


def _matches(pattern: str, text: str) -> bool:
    return _regex(pattern).fullmatch(text) is not None


@functools.lru_cache(maxsize=256)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(_WILDCARDS.get(letter, re.escape(letter)) for letter in pattern))


def _may_fit(pattern: str, table: TableId) -> bool:
    """Return True if a pattern may match a table, or one of all tables of a database."""
    if table.table is None:
        return True
    if table.database is table.schema is None:
        return _matches(pattern.rpartition(".")[2].casefold(), table.table.casefold())
    return any(_matches(pattern.casefold(), each.casefold()) for each in table.spellings())


def _differing(tables: Collection[TableId]) -> list[int]:
    """Return the indices of the parts in which tables differ; an unknown part does not count as different."""
    return [i for i in range(3) if len({table[i] for table in tables if table[i] is not None}) > 1]


def _exact_spelling(table: TableId, differing: Iterable[int]) -> str:
    """Return the shortest name that has the parts that differ."""
    parts = {number for number in differing if table[number] is not None}
    needed = [part for part in (2, 1) if table[part] is not None][:1]
    return ".".join(str(table[i]) for i in sorted({*parts, *needed, 3}))


def _owner(table: TableId, differing: Iterable[int]) -> str:
    kinds = ("connector", "database", "schema")
    return ", ".join(f"{kinds[i]} {table[i]}" for i in differing if table[i] is not None)


def _with_shard(event: Event, column: str, shard: str) -> Event:
    """Add a column with the shard to the rows and the key of an event."""

    def added(row: Fields | None) -> Fields | None:
        return None if row is None else {**row, column: shard}

    images = [image for row in event.rows for image in (row.before, row.after) if image is not None]
    problem = event.problem
    if problem is None and any(column.lower() == name.lower() for image in images[:1] for name in image):
        text = "the source's table has a column with this name: name another column for the shard"
        problem = Problem(RecordLayoutError, column, text)
    rows = tuple(each._replace(before=added(each.before), after=added(each.after)) for each in event.rows)
    names = None if event.key_names is None else (*event.key_names, column)
    return event._replace(rows=rows, key=added(event.key), key_names=names, problem=problem)
