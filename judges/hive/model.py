"""Answers of judges: rows, compactions, the state of a directory, an ORC file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class HiveRow:
    """A row as one of Hive's readers returns it.

    ``partition`` is the directory below the table (``ds=x/hr=1``, escaped; empty if unpartitioned).
    ``row_id`` is (original transaction or write id, bucket or bucket property, row id), or None if the reader
    hides it. ``values`` are in the notation of ``Values.java``: decimals, dates, timestamps and non-finite
    numbers as text, binary as hex; nested ones as JSON text if they came through SQL, else as lists, with
    maps as sorted [key, value] lists.
    """

    partition: str
    row_id: tuple[int, int, int] | None
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Compaction:
    """A compaction from ``SHOW COMPACTIONS``; ``partition`` is None for an unpartitioned table."""

    id: int
    database: str
    table: str
    partition: str | None
    kind: str
    state: str


@dataclass(frozen=True)
class DirectoryState:
    """Hive's choice among a directory's children, each a name or path relative to the directory.

    ``base`` is None without one; ``deltas`` are in reading order and include delete deltas.
    """

    base: str | None
    deltas: tuple[str, ...]
    originals: tuple[str, ...]
    obsolete: tuple[str, ...]


@dataclass(frozen=True)
class JavaOrcFile:
    """Contents of a file according to the Java ORC reader.

    ``acid_stats`` is (inserts, updates, deletes), None if the file has none; ``events`` is None unless
    requested, else one list per event: operation, original transaction, bucket, row id, current transaction,
    row.
    """

    rows: int
    schema: str
    compression: str
    stripe_rows: tuple[int, ...]
    metadata: Mapping[str, str]
    acid_stats: tuple[int, int, int] | None
    events: list[Any] | None
