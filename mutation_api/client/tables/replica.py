"""Decides whether a table is one that only a replication may write. Pure.

``REPL LOAD`` leaves marks in the properties of the database and of its tables. The database's decide: after a
fail-over the tables keep theirs, while the two databases change places.

Source: Hive 4.1.0 and 4.2.1, class ``ReplConst`` and what ``REPL DUMP`` and ``REPL LOAD`` were seen to leave;
3.1.3 marks a target by ``repl.last.id`` alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = [
    "ENDPOINT",
    "FAILBACK_BEGUN",
    "FAILBACK_ENDED",
    "LAST_EVENT",
    "READ_ONLY",
    "SOURCE_FOR",
    "TAKEN_OVER",
    "TARGET_FOR",
    "has_taken_over",
    "is_becoming_target",
    "is_target",
    "marks_of_replica",
    "why_not_writable",
]

SOURCE_FOR = "repl.source.for"
"""The database is dumped: names of the policies. Its removed files are kept by the change manager."""
TARGET_FOR = "repl.target.for"
"""The database is loaded into (Hive 4)."""
LAST_EVENT = "repl.last.id"
"""The last event that was loaded, in the database and in its tables."""
ENDPOINT = "repl.failover.endpoint"
"""A planned fail-over goes on: the database is its ``SOURCE``, or its ``TARGET``, which may be written."""
TAKEN_OVER = "repl.background.enable"
"""Set by an operator when a target has taken over: Hive then compacts it, and we write it."""
READ_ONLY = "readonly"
"""``true``: Hive's hook EnforceReadOnlyDatabaseHook refuses changes; REPL LOAD sets it if it has the hook."""
FAILBACK_BEGUN = "repl.metrics.last.failback.starttime"
"""Set by the first REPL LOAD that turns a source into a target, in milliseconds."""
FAILBACK_ENDED = "repl.metrics.last.failback.endtime"
"""Set by the second, which also sets ``repl.target.for``."""

_OF_TABLE = re.compile(r"repl\.last\.id|hive\.repl\..*|repl\.(?:target|incoming)\..*", re.IGNORECASE)


def why_not_writable(database: Mapping[str, str], table: Mapping[str, str]) -> str | None:
    """Why nobody but a replication may write a table; None if others may, too.

    Args:
        database: properties of its database.
        table: its own.
    """
    if _is(database, ENDPOINT, "SOURCE"):
        return (
            f"its database is failing over ({_shown(database, ENDPOINT)}), and what is written there now "
            "would not be replicated: write to the database that takes over"
        )
    if _is(database, READ_ONLY, "true"):
        return f"its database is read-only ({_shown(database, READ_ONLY)})"
    if has_taken_over(database):
        return None
    if is_target(database):
        mark = TARGET_FOR if database.get(TARGET_FOR) else LAST_EVENT
        return (
            f"its database is the target of a replication ({_shown(database, mark)}), and only that may "
            "write it. If it has taken over from its source, say so to Hive and to us: ALTER DATABASE … SET "
            f"DBPROPERTIES ('{TAKEN_OVER}'='true')"
        )
    if is_becoming_target(database):
        return (
            f"its database is becoming the target of a replication ({_shown(database, FAILBACK_BEGUN)}, "
            f"without a later {FAILBACK_ENDED!r}), and what is written there now would be lost: write to the "
            "database that has taken over"
        )
    of_table = marks_of_replica(table)
    if of_table and not database.get(SOURCE_FOR):
        return f"it is the target of a replication (property {of_table[0]!r}), and only that may write it"
    return None


def marks_of_replica(table: Mapping[str, str]) -> list[str]:
    """Those of a table's properties that a replication left there, sorted."""
    return sorted(name for name in table if _OF_TABLE.fullmatch(name))


def is_target(database: Mapping[str, str]) -> bool:
    """Whether a replication loads into a database with these properties, or did so until a fail-over."""
    return bool(database.get(TARGET_FOR) or database.get(LAST_EVENT))


def is_becoming_target(database: Mapping[str, str]) -> bool:
    """Whether a source has had the first of the two loads that make it the target of its own target."""
    return not is_target(database) and _time(database, FAILBACK_BEGUN) > _time(database, FAILBACK_ENDED)


def has_taken_over(database: Mapping[str, str]) -> bool:
    """Whether a target with these properties is written by others since a fail-over."""
    return bool(database.get(TAKEN_OVER)) or _is(database, ENDPOINT, "TARGET")


def _is(parameters: Mapping[str, str], name: str, value: str) -> bool:
    return (parameters.get(name) or "").strip().upper() == value.upper()


def _time(parameters: Mapping[str, str], name: str) -> int:
    text = (parameters.get(name) or "").strip()
    return int(text) if text.isdecimal() else 0


def _shown(parameters: Mapping[str, str], name: str) -> str:
    return f"property {name!r} is {parameters[name]!r}"
