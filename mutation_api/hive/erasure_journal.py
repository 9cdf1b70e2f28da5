"""The journal of an erasure: one row of the watermark table for each of its tables.

A row holds what cannot be found out again later: when the erasure began, the salt of the hashes, and what was
found where. The rows are written in the transaction of the deletion, and again after the first search. A run
that was killed is found by its tables and by a salted hash of its keys, so nobody has to name it; the journal
holds no key.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import SourcePositionError
from mutation_api.hive.erasure_keys import ErasedKeys
from mutation_api.hive.hive_table import HiveTable, SnapshotTable
from mutation_api.upkeep.watermark_table import WATERMARK_KEY, check_watermark_columns

ERASURE_PREFIX = "erasure:"
"""The prefix of an erasure's name in the column source_id."""


class Step:
    """The last step that an erasure has done: the number in the column position_order."""

    BEGUN, DELETED, ERASED = range(3)


@dataclass(frozen=True)
class TableState:
    """One table: the key column, a salted hash of all its keys, and what was done.

    ``before`` is what the first search found, empty before it. ``rewritten`` are the partitions that were
    compacted.
    """

    column: str
    digest: str
    before: Mapping[str, Any] = field(default_factory=dict)
    rows_deleted: int = 0
    rewritten: tuple[str, ...] = ()
    statistics_removed: int = 0
    partitions_dropped: int = 0


@dataclass(frozen=True)
class ErasureState:
    """The state of an erasure, as the journal keeps it. ``tables`` is in the order of their names."""

    name: str
    step: int
    salt: bytes
    began_at: datetime
    invisible_at: datetime | None
    gone_at: datetime | None
    tables: Mapping[str, TableState]

    @classmethod
    def begun(
        cls,
        keys: Mapping[str, ErasedKeys],
        columns: Mapping[str, str],
        now: datetime,
    ) -> ErasureState:
        """Return the state of a new erasure. Keys and columns are by table."""
        salt = secrets.token_bytes(16)
        tables = {
            name: TableState(column, keys[name].digest(salt)) for name, column in sorted(columns.items())
        }
        return cls(uuid.uuid4().hex[:12], Step.BEGUN, salt, now, None, None, tables)

    @property
    def is_searched(self) -> bool:
        """True if it has what the first search found."""
        return all(table.before for table in self.tables.values())

    def is_of(self, columns: Mapping[str, str], keys: Mapping[str, ErasedKeys]) -> bool:
        """Return True if it erases these keys from these columns, by table."""
        return {name: each.column for name, each in self.tables.items()} == dict(columns) and all(
            keys[name].digest(self.salt) == each.digest for name, each in self.tables.items()
        )

    def with_table(self, name: str, **changes: Any) -> ErasureState:
        """Return the state with some fields of a table changed."""
        changed = dataclasses.replace(self.tables[name], **changes)
        return dataclasses.replace(self, tables={**self.tables, name: changed})

    def rows(self, names: Sequence[str], txn_id: int, now: datetime) -> list[dict[str, Any]]:
        """Return its rows for the columns ``names`` of the watermark table."""
        return [
            dict(zip(names, self._row(table, state, txn_id, now), strict=True))
            for table, state in self.tables.items()
        ]

    def _row(self, table: str, state: TableState, txn_id: int, now: datetime) -> tuple[Any, ...]:
        text = {
            "salt": self.salt.hex(),
            "keys": state.digest,
            "began_at": self.began_at.isoformat(),
            "invisible_at": None if self.invisible_at is None else self.invisible_at.isoformat(),
            "gone_at": None if self.gone_at is None else self.gone_at.isoformat(),
            "column": state.column,
            "rows_deleted": state.rows_deleted,
            "rewritten": list(state.rewritten),
            "before": state.before,
            "statistics_removed": state.statistics_removed,
            "partitions_dropped": state.partitions_dropped,
        }
        return (
            f"{ERASURE_PREFIX}{self.name}",
            table,
            table,
            f"[{self.step}]",
            json.dumps(text, sort_keys=True),
            txn_id,
            now.astimezone(UTC).replace(tzinfo=None),
        )


def find_state(
    table: SnapshotTable, columns: Mapping[str, str], keys: Mapping[str, ErasedKeys]
) -> ErasureState | None:
    """Return the erasure of these keys in these columns, by table; the last of several.

    Raises:
        ConfigurationError: If the table is not a watermark table.
        SourcePositionError: If rows of an erasure were changed by another program.
    """
    check_watermark_columns(table.descriptor)
    is_own = pc.starts_with(pc.field("source_id"), ERASURE_PREFIX)
    names = ["source_id", "source_table", "position_order", "position_text"]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in table.scan(names, is_own).to_arrow().to_pylist():
        by_name.setdefault(row["source_id"].removeprefix(ERASURE_PREFIX), []).append(row)
    states = [_parsed(name, rows) for name, rows in by_name.items()]
    fitting = [state for state in states if state.is_of(columns, keys)]
    return max(fitting, key=lambda state: state.began_at, default=None)


def _parsed(name: str, rows: Sequence[Mapping[str, Any]]) -> ErasureState:
    try:
        texts = {row["source_table"]: json.loads(row["position_text"]) for row in rows}
        first = next(iter(texts.values()))
        tables = {
            table: TableState(
                text["column"],
                text["keys"],
                text["before"],
                int(text["rows_deleted"]),
                tuple(text["rewritten"]),
                int(text["statistics_removed"]),
                int(text["partitions_dropped"]),
            )
            for table, text in sorted(texts.items())
        }
        return ErasureState(
            name,
            min(json.loads(row["position_order"])[0] for row in rows),
            bytes.fromhex(first["salt"]),
            datetime.fromisoformat(first["began_at"]),
            _moment(first["invisible_at"]),
            _moment(first["gone_at"]),
            tables,
        )
    except (LookupError, TypeError, ValueError) as error:
        raise SourcePositionError(
            f"erasure {name}: its rows in the watermark table cannot be read: {error!r}. Remove them: "
            f"hive-mutate watermarks --source {ERASURE_PREFIX}{name} --remove"
        ) from error


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def write_state(table: HiveTable, state: ErasureState, txn_id: int, now: datetime) -> None:
    """Write the rows of an erasure in an open transaction of the watermark table.

    Raises MutationError: See ``HiveTable.upsert``.
    """
    rows = state.rows(table.schema.names, txn_id, now)
    table.upsert(pa.Table.from_pylist(rows, table.schema), on=list(WATERMARK_KEY))
