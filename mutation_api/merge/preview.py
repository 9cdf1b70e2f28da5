"""Preview: what a merge would write, which locks others have there, and some rows before and after.

Nothing is written, and others wait no longer than for the open transaction itself.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from metastore_client.model import LockInfo, LockState
from mutation_api.write.forecast import Forecast

__all__ = [
    "SAMPLES_DEFAULT",
    "SHOWN_KINDS",
    "ForeignLock",
    "Preview",
    "SampleRow",
    "foreign_locks",
    "python_value",
    "row_values",
]

SAMPLES_DEFAULT = 3
"""Number of rows of each kind that a preview shows."""

SHOWN_KINDS = ("inserted", "updated", "deleted", "moved")
"""The kinds of rows that are shown, in their order. Unchanged rows are not shown."""

_VALUE_CHARACTERS = 60
_COLUMNS_SHOWN = 8
_NO_JSON = object()


@dataclass(frozen=True)
class ForeignLock:
    """A lock of another client on a partition that the merge would write.

    ``partition`` is its escaped name, None for the whole table. ``type`` and ``state`` are Hive's terms
    (SHARED_WRITE; ACQUIRED, WAITING). ``txn_id`` is None for a lock without a transaction.
    """

    txn_id: int | None
    user: str
    hostname: str
    type: str
    state: str
    partition: str | None

    def __str__(self) -> str:
        """The owner, the lock, its location and its consequence."""
        owner = "a client without transaction" if self.txn_id is None else f"transaction {self.txn_id}"
        where = self.partition or "the whole table"
        if self.state == LockState.ACQUIRED.name:
            does = (
                f"holds {self.type} on {where}: if both change rows of one partition, the second to commit "
            )
            does += "is refused"
        else:
            does = f"waits for {self.type} on {where}"
        return f"{owner} ({self.user}@{self.hostname}) {does}"


@dataclass(frozen=True)
class SampleRow:
    """A row before and after the merge, as Python values by column name.

    ``kind`` is a field of MergeCounts. ``before`` is None for an inserted row. It lacks the columns that the
    merge need not read, and is None if the merge reads none. ``after`` is None for a deleted row. ``key``
    names the row: JSON text of its key columns. ``partition`` is None if the table is not partitioned.
    """

    kind: str
    partition: str | None
    key: str | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    def to_dict(self) -> dict[str, object]:
        """The row in JSON's types only: dates, decimals and timestamps are text, bytes are base64."""
        return {name: _plain(value) for name, value in vars(self).items()}

    def __str__(self) -> str:
        """Kind, partition, key and values; of a row on both sides only values that differ."""
        where = f" in {self.partition}" if self.partition else ""
        key = f" {_cut(self.key)}" if self.key else ""
        values = _shown(self.before, self.after)
        return f"{self.kind}{where}{key}{': ' if values else ''}{values}"


@dataclass(frozen=True)
class Preview:
    """What a dry run reports besides the counts by partition."""

    forecast: Forecast
    locks: tuple[ForeignLock, ...] = ()
    samples: tuple[SampleRow, ...] = ()


def foreign_locks(locks: Sequence[LockInfo], partitions: Collection[str | None]) -> tuple[ForeignLock, ...]:
    """The locks on a table that cover one of the partitions, each once, ordered by transaction.

    A lock on the whole table covers all partitions. A lock on the first partition keys only, as Hive's DDL
    takes it, covers the partitions below (``ds=a`` covers ``ds=a/hr=1``).
    """
    found = {
        ForeignLock(i.txn_id, i.user, i.hostname, i.type.name, i.state.name, i.partition or None)
        for i in locks
        if not i.partition or any(f"{name}/".startswith(f"{i.partition}/") for name in partitions if name)
    }
    return tuple(
        sorted(found, key=lambda lock: (lock.txn_id or 0, lock.partition or "", lock.type, lock.state))
    )


def row_values(row: pa.Scalar) -> dict[str, Any] | None:
    """The fields of a struct as Python values; None if it is null."""
    return {name: python_value(value) for name, value in row.items()} if row.is_valid else None


def python_value(scalar: pa.Scalar) -> Any:
    """The value in Python's type, or as text if the type cannot hold it: Python has no year 10000."""
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(scalar.type):
        return row_values(scalar)
    if pa.types.is_map(scalar.type):
        pairs = [(python_value(each["key"]), python_value(each["value"])) for each in scalar.values]
        return pairs if pa.types.is_nested(scalar.type.key_type) else dict(pairs)
    if pa.types.is_union(scalar.type):
        return python_value(scalar.value)
    if pa.types.is_nested(scalar.type):
        return [python_value(each) for each in scalar.values]
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.cast(pa.string()).as_py()


def _plain(value: Any) -> object:
    """The value in JSON's types."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case Decimal():
            return format(value, "f")
        case datetime():
            return value.isoformat(" ")
        case date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {k if isinstance(k, str) else _text(k): _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return str(value)


def _text(value: Any) -> str:
    """The value for people: NULL, or JSON."""
    plain = _plain(value)
    if isinstance(value, Decimal | date | time):
        return str(plain)
    return "NULL" if plain is None else json.dumps(plain, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[: _VALUE_CHARACTERS - 1]}…"


def _shown(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    if before is None or after is None:
        shown = [f"{name} {_cut(_text(value))}" for name, value in (before or after or {}).items()]
    else:
        pairs = {name: (_plain(before.get(name, _NO_JSON)), _plain(value)) for name, value in after.items()}
        shown = [
            f"{name} {_cut(_text(before[name])) + ' ' if name in before else ''}→ {_cut(_text(after[name]))}"
            for name, (old, new) in pairs.items()
            if old != new
        ]
    more = len(shown) - _COLUMNS_SHOWN
    return ", ".join(shown[:_COLUMNS_SHOWN]) + (f", … and {more} more columns" if more > 0 else "")
