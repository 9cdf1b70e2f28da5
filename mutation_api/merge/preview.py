"""Preview: the changes that a merge would write, the locks of other clients there, and some rows before and
after.

A preview writes nothing. Other clients wait for it only as long as its transaction is open.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from metastore_client.model import LockInfo, LockState
from mutation_api.format.json_values import to_json
from mutation_api.format.plain_array import plain_array
from mutation_api.table.acid_table import AcidTable
from mutation_api.write.forecast import Forecast
from mutation_api.write.staged_writer import LookingTransaction

SAMPLES_DEFAULT = 3
"""The number of sample rows of each kind in a preview."""

SHOWN_KINDS = ("inserted", "updated", "deleted", "moved")
"""The kinds of rows that are shown, in this order. Unchanged rows are not shown."""

_VALUE_CHARACTERS = 60
_COLUMNS_SHOWN = 8


@dataclass(frozen=True)
class ForeignLock:
    """A lock of another client on a partition that the merge would write.

    ``partition`` is the escaped partition name, or None if the lock covers the table. ``type`` and ``state``
    are Hive's terms (SHARED_WRITE; ACQUIRED, WAITING). ``txn_id`` is None if the lock has no transaction.
    """

    txn_id: int | None
    user: str
    hostname: str
    type: str
    state: str
    partition: str | None

    def __str__(self) -> str:
        """Return the owner, the lock, its location and its consequence."""
        owner = "a client without a transaction" if self.txn_id is None else f"transaction {self.txn_id}"
        where = self.partition or "the whole table"
        if self.state == LockState.ACQUIRED.name:
            does = (
                f"holds {self.type} on {where}: if both change rows of the same partition, the commit of the "
            )
            does += "second is refused"
        else:
            does = f"waits for {self.type} on {where}"
        return f"{owner} ({self.user}@{self.hostname}) {does}"


@dataclass(frozen=True)
class SampleRow:
    """A row before and after the merge, as JSON values by column name.

    The values are those of files of changes: decimals, dates and timestamps are strings, binary is base64.

    ``kind`` is a field of MergeCounts. ``before`` is None if the row is inserted, or if the merge reads no
    columns of the table. It lacks the columns that the merge does not need. ``after`` is None if the row is
    deleted. ``key`` is a JSON string of the key columns. ``partition`` is None if the table has no
    partitions.
    """

    kind: str
    partition: str | None
    key: str | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    def to_dict(self) -> dict[str, object]:
        """Return the row as JSON types only."""
        return dict(vars(self))

    def __str__(self) -> str:
        """Return kind, partition, key and values. For a row on both sides, only the values that differ."""
        where = f" in {self.partition}" if self.partition else ""
        key = f" {_cut(self.key)}" if self.key else ""
        values = _shown(self.before, self.after)
        return f"{self.kind}{where}{key}{': ' if values else ''}{values}"


@dataclass(frozen=True)
class Preview:
    """The parts of a dry run's report besides the counts by partition."""

    forecast: Forecast
    locks: tuple[ForeignLock, ...] = ()
    samples: tuple[SampleRow, ...] = ()

    @classmethod
    def of(
        cls,
        transaction: LookingTransaction,
        table: AcidTable,
        forecast: Forecast,
        samples: tuple[SampleRow, ...],
    ) -> Preview:
        """Return the preview with the locks of other clients on the partitions of the forecast."""
        touched = {group.partition for group in forecast.groups}
        locks = foreign_locks(transaction.other_locks(table.full_name), touched) if touched else ()
        return cls(forecast, locks, samples)


def foreign_locks(locks: Sequence[LockInfo], partitions: Collection[str | None]) -> tuple[ForeignLock, ...]:
    """Return the locks on a table that cover one of the partitions, each once, ordered by transaction.

    A lock on the whole table covers all partitions. A lock on only the first partition keys, such as Hive's
    DDL takes, covers the partitions below (``ds=a`` covers ``ds=a/hr=1``).
    """
    found = {
        ForeignLock(i.txn_id, i.user, i.hostname, i.type.name, i.state.name, i.partition or None)
        for i in locks
        if not i.partition or any(f"{name}/".startswith(f"{i.partition}/") for name in partitions if name)
    }
    return tuple(
        sorted(found, key=lambda lock: (lock.txn_id or 0, lock.partition or "", lock.type, lock.state))
    )


def row_values(rows: pa.Array) -> list[dict[str, Any] | None]:
    """Return structs in the form of a sample row.

    A null struct is None, and so is a value of another type.
    """
    return to_json(plain_array(rows)) if pa.types.is_struct(rows.type) else [None] * len(rows)


def _text(value: Any) -> str:
    """Return the value in readable form: NULL, or JSON."""
    return "NULL" if value is None else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[: _VALUE_CHARACTERS - 1]}…"


def _shown(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    if before is None or after is None:
        shown = [f"{name} {_cut(_text(value))}" for name, value in (before or after or {}).items()]
    else:
        shown = [
            f"{name} {_cut(_text(before[name])) + ' ' if name in before else ''}→ {_cut(_text(value))}"
            for name, value in after.items()
            if name not in before or before[name] != value
        ]
    more = len(shown) - _COLUMNS_SHOWN
    return ", ".join(shown[:_COLUMNS_SHOWN]) + (f", … and {more} more columns" if more > 0 else "")
