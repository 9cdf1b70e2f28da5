"""SourceDatabase: what a relational database must offer so that changes of its tables can be captured.

One more database is a subclass of :class:`~mutation_api.update.rdbms.sql_database.SqlDatabase`, or any class
that fulfils this protocol, and a line in :mod:`mutation_api.update.rdbms.connect`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa

from mutation_api.errors import RecordLayoutError
from mutation_api.types.hive_type import HiveType
from mutation_api.update.fingerprint import Fingerprint
from mutation_api.update.method import CaptureMethod
from mutation_api.update.settings import ObjectNames, UpdateSettings

__all__ = ["CapturedTable", "SourceColumn", "SourceDatabase", "SourceObject", "SourceSnapshot"]


@dataclass(frozen=True)
class SourceColumn:
    """A column of the source.

    Attributes:
        name: its name.
        type_text: its type in the source's words.
        detail: the database's own.
        is_key: whether it is part of the key by which rows are followed.
        nulls_invalid: whether values that are not a date or a finite number of Hive become NULL.
    """

    name: str
    type_text: str
    detail: Any = None
    is_key: bool = False
    nulls_invalid: bool = False


@dataclass(frozen=True)
class CapturedTable:
    """A table of the source, as its catalog describes it.

    ``schema``: '' where there are none. ``primary_key``: column names, empty without one. ``unique_keys``:
    all keys that are unique and never null, the primary one first. ``detail`` is the database's own.
    """

    schema: str
    name: str
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[str, ...]
    unique_keys: tuple[tuple[str, ...], ...]
    detail: Any = None

    @property
    def full_name(self) -> str:
        """``schema.name``, or the name alone."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    def column(self, name: str) -> SourceColumn:
        """Return a column by its name; in any case if no column is spelled so.

        Raises RecordLayoutError: there is none.
        """
        exact = {each.name: each for each in self.columns}
        found = exact.get(name) or {each.name.lower(): each for each in self.columns}.get(name.lower())
        if found is None:
            raise RecordLayoutError(
                f"source table {self.full_name} has no column {name}; it has {', '.join(exact)}"
            )
        return found


@dataclass(frozen=True)
class SourceObject:
    """An object that ``enable`` makes in the source: what it is, and the statements that make and remove it.

    Each statement may be repeated. ``create`` is empty for an object that was found in the catalog.
    """

    kind: str
    name: str
    create: tuple[str, ...]
    drop: tuple[str, ...]


class SourceSnapshot(Protocol):
    """One consistent view of the source, as long as its block."""

    def value(self, statement: str) -> Any:
        """The only value of a query; None without a row."""

    def chunks(self, statement: str) -> Iterator[list[Sequence[Any]]]:
        """The rows of a query, in chunks of limited size."""


class SourceDatabase(Protocol):
    """A database of the source, connected when it is first asked.

    Every method raises ConnectionFailedError if the database cannot be reached or refuses a statement.
    """

    @property
    def kind(self) -> str:
        """``postgresql``, ``mysql``, ``sqlite``, …"""

    @property
    def source_id(self) -> str:
        """Name of the database in watermarks, without user and password."""

    def describe(self, table: str) -> CapturedTable:
        """A table by its name. Raises RecordLayoutError: there is none, or it is no table."""

    def check_capture(self, table: CapturedTable, key: Sequence[str], method: CaptureMethod) -> None:
        """Refuse a table some of whose changes the method would not see, or some of whose rows are hidden.

        Raises RecordLayoutError.
        """

    def check_privileges(self, table: CapturedTable, method: CaptureMethod) -> None:
        """Refuse an account that may not make the objects of a method. Raises ConfigurationError."""

    def check_version(self, table: CapturedTable, column: str, overlap: Decimal | None) -> None:
        """Refuse a growing column of which the database cannot tell that nothing appears below its bound any
        more.

        Raises RecordLayoutError, ConfigurationError.
        """

    def version_bound(
        self, snapshot: SourceSnapshot, table: CapturedTable, settings: UpdateSettings, before: str
    ) -> tuple[str, bool]:
        """Return the value of the growing column below which the snapshot has all rows that will ever appear.

        It is text that :meth:`from_version` takes; empty if no row has a value. The second value is True if
        the bound ``before`` cannot be compared with it: it is greater, or numbers have run in a circle since.
        """

    def from_version(self, table: CapturedTable, settings: UpdateSettings, bound: str) -> str:
        """Return the condition that a row's version is not below a bound, or cannot be compared with it."""

    def is_verifiable(self, settings: UpdateSettings) -> bool:
        """Return whether the application gives the versions, so that they must be verified."""

    def counts_below(
        self, snapshot: SourceSnapshot, table: CapturedTable, settings: UpdateSettings, bounds: Sequence[str]
    ) -> list[tuple[int, ...]]:
        """Return the numbers of rows that :meth:`from_version` leaves out for each bound, in groups of rows.

        A number that rises between two snapshots shows a row that no extraction would read.
        """

    def check_column(self, table: CapturedTable, column: SourceColumn, target: HiveType) -> None:
        """Refuse a column of Hive that cannot hold the values. Raises RecordLayoutError."""

    def check_key(self, table: CapturedTable, column: SourceColumn, target: HiveType, time_zone: str) -> None:
        """Refuse a key column of Hive in which two keys of the source may be one.

        Raises RecordLayoutError.
        """

    def check_time_zone(self, table: CapturedTable, time_zone: str) -> None:
        """Refuse a zone that is another one, or none, to the database. Raises ConfigurationError."""

    def objects(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[SourceObject]:
        """The log table and what fills it, in the order in which they are made."""

    def run(self, statements: Sequence[str]) -> None:
        """Run statements that change objects; all or nothing where the database can."""

    def snapshot(self) -> AbstractContextManager[SourceSnapshot]:
        """Open a repeatable-read view."""

    def log_name(self, names: ObjectNames) -> str:
        """The name of the log in a statement, wherever it is; '' if there is none."""

    def fingerprint(self, table: CapturedTable, names: ObjectNames | None) -> Fingerprint:
        """What rows and their capture depend on; ``names``: of the objects that capture, None without."""

    def flaws(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[str]:
        """How the objects in the source differ from :meth:`objects`; empty if changes are captured."""

    def made(self, names: ObjectNames) -> list[SourceObject]:
        """The objects with these names, wherever they are, in the order in which they can be removed."""

    def partition_rows(self, table: CapturedTable, partition: str) -> str:
        """The name, in a statement, of a partition of the fingerprint; '' if all of its rows are logged."""

    def quoted(self, *names: str) -> str:
        """A name in a statement; an empty part, as a schema where there are none, is left out."""

    def selected(self, column: SourceColumn, time_zone: str, table: str = "") -> str:
        """The expression that reads a column; ``table``: its alias."""

    def selected_from_log(self, column: SourceColumn, time_zone: str, table: str) -> str:
        """The expression that reads a key column from the log, with the value that :meth:`selected` reads."""

    def same_key(self, column: SourceColumn, table: str, log: str) -> str:
        """The condition that a row of the table has exactly the key of one of the log; an index may help."""

    def seconds(self, expression: str) -> str:
        """The expression of a log row's time as seconds since 1970."""

    def now(self) -> str:
        """The expression of the current time as seconds since 1970."""

    def to_column(
        self, column: SourceColumn, target: HiveType, values: Sequence[Any], time_zone: str
    ) -> pa.Array:
        """Values that :meth:`selected` read, as the target's type. Raises RecordValueError."""

    def delete_from_log(
        self, schema: str, log: str, sequences: Sequence[tuple[int, int]], extraction: int
    ) -> int:
        """Delete log rows by ranges of their numbers, both ends included; returns how many were deleted.

        First the number of the extraction that applied them is noted in the log: a row with this number,
        negative. It replaces the one before it; a greater one stays, and counts.
        """

    def unknown_statements(self, schema: str, log: str, extraction: int) -> list[str]:
        """Statements that note in a log the last extraction's number, and that any row may have changed."""

    def only_grows(self, settings: UpdateSettings) -> bool:
        """Whether the bound of the growing column, a number, never falls but by a restored backup."""

    def close(self) -> None:
        """Disconnect. May be called twice."""
