"""A history of committed transactions as row events: what every tool for change data capture begins with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

import numpy as np

Value = int | float | Decimal | str | bytes | date | datetime | None
Row = Mapping[str, Value]
Image = tuple[Row | None, Row | None]
"""A row before and after a change; None where there is none."""


@dataclass(frozen=True)
class Table:
    """A table of the source; ``columns`` are those that the tool passes on, with their types in MariaDB."""

    database: str
    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...]

    @property
    def full_name(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.name}"

    def key_of(self, row: Row) -> tuple[Value, ...]:
        """The values of the key."""
        return tuple(row[name] for name in self.key)


@dataclass(frozen=True)
class RowsEvent:
    """Rows of one table that a statement changed.

    ``operation`` is ``insert``, ``update`` or ``delete``. ``file`` is the number of the log's file, ``end``
    the byte at which the event ends there. ``begun``: when the statement began, in UTC.
    """

    table: Table
    operation: str
    file: int
    end: int
    images: tuple[Image, ...]
    begun: datetime | None = None


@dataclass(frozen=True)
class Transaction:
    """A committed transaction; ``number`` increases by one with each, ``committed`` is of UTC."""

    number: int
    committed: datetime
    events: tuple[RowsEvent, ...]


def single_rows(event: RowsEvent) -> Iterator[tuple[str, Row]]:
    """Operations that each touch one key: an update that changes it is a delete and an insert."""
    for before, after in event.images:
        if before is None or after is None:
            yield event.operation, present(before, after)
        elif event.table.key_of(before) == event.table.key_of(after):
            yield "update", after
        else:
            yield from (("delete", before), ("insert", after))


def present(before: Row | None, after: Row | None) -> Row:
    """The row after a change, or the one before if it is gone."""
    found = before if after is None else after
    assert found is not None
    return found


class Digits(str):
    """The text of a number, which a log has without quotes."""


def digits(value: float | Decimal, kind: str) -> str:
    """A number's text, the shortest that is exact for the type: of a FLOAT no more digits than it has."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(np.float32(value)) if kind == "FLOAT" else repr(value)


def fraction(moment: datetime, kind: str) -> str:
    """A point and as many digits of a second as the column has; nothing if that is none."""
    found = re.search(r"\((\d)\)", kind)
    return f".{moment.microsecond:06}"[: 1 + int(found[1])] if found else ""


def events_of(transactions: Iterable[Transaction], table: Table) -> list[RowsEvent]:
    """The events of one table."""
    return [event for each in transactions for event in each.events if event.table == table]


def batches(transactions: Sequence[Transaction], transactions_each: int) -> Iterator[Sequence[Transaction]]:
    """Transactions in groups, as tools write them out."""
    for start in range(0, len(transactions), transactions_each):
        yield transactions[start : start + transactions_each]
