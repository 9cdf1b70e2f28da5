"""ReadPlan: which column of the source fills which column of Hive, and the statements that read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.table.acid_table import AcidTable
from mutation_api.types.hive_type import HiveType, parse_hive_type
from mutation_api.update.rdbms.database import CapturedTable, SourceColumn, SourceDatabase
from mutation_api.update.settings import UpdateSettings

__all__ = ["ReadPlan"]


@dataclass(frozen=True)
class ReadPlan:
    """How rows of one table are read.

    ``columns``: (name in Hive, its type, the source's column), data columns, then partition columns.
    """

    database: SourceDatabase
    table: CapturedTable
    key: tuple[SourceColumn, ...]
    columns: tuple[tuple[str, HiveType, SourceColumn], ...]
    time_zone: str

    @classmethod
    def of(
        cls, database: SourceDatabase, table: CapturedTable, target: AcidTable, settings: UpdateSettings
    ) -> ReadPlan:
        """Match both sides. Raises RecordLayoutError: columns do not agree, or cannot hold the values."""
        sources = _sources(table, settings, target.full_name)
        targets = (*target.columns, *target.partition_keys)
        wanted = {column.name.lower() for column in targets}
        missing = [column.name for column in targets if column.name.lower() not in sources]
        extra = [column.name for name, column in sources.items() if name not in wanted]
        no_key = [name for name in settings.key if name.lower() not in wanted or name.lower() not in sources]
        wrong = [f"the source lacks {', '.join(missing)}"] if missing else []
        if extra:
            options = " ".join(f"--ignore-column {name}" for name in extra)
            wrong.append(
                f"Hive lacks {', '.join(extra)}: add them there, or ignore them (hive-mutate update enable … "
                f"{options}, in Python ignored_columns={extra})"
            )
        wrong += [f"both must have the key columns {', '.join(no_key)}"] if no_key and not wrong else []
        if wrong:
            raise RecordLayoutError(
                f"source table {table.full_name} and {target.full_name} differ: {'; '.join(wrong)}"
            )
        columns = tuple(
            (column.name, parse_hive_type(column.type), sources[column.name.lower()]) for column in targets
        )
        database.check_time_zone(table, settings.time_zone)
        for _, kind, column in columns:
            database.check_column(table, column, kind)
            if column.name.lower() in {name.lower() for name in settings.key}:
                database.check_key(table, column, kind, settings.time_zone)
        key = tuple(sources[name.lower()] for name in settings.key)
        columns = tuple((name, kind, _marked(name, column, settings)) for name, kind, column in columns)
        return cls(database, table, key, columns, settings.time_zone)

    @property
    def table_name(self) -> str:
        """The source's table in a statement."""
        return self.database.quoted(self.table.schema, self.table.name)

    def selected(self, table: str, log: str) -> list[str]:
        """The expressions of all columns: the key from the log, the others from the table."""
        keys = {column.name for column in self.key}
        return [
            self.database.selected_from_log(column, self.time_zone, log)
            if column.name in keys
            else self.database.selected(column, self.time_zone, table)
            for _, _, column in self.columns
        ]

    def select_all(self, condition: str = "") -> str:
        """The statement that reads the table; ``condition``: which rows."""
        values = [self.database.selected(column, self.time_zone) for _, _, column in self.columns]
        where = f" WHERE {condition}" if condition else ""
        return f"SELECT {', '.join(values)} FROM {self.table_name}{where}"

    def select_unlogged(self, part: str, log: str) -> str:
        """The statement that reads the rows of a partition whose keys are not in the log."""
        values = [self.database.selected(column, self.time_zone, "t") for _, _, column in self.columns]
        same = " AND ".join(self.database.same_key(column, "t", "l") for column in self.key)
        return (
            f"SELECT {', '.join(values)} FROM {part} t WHERE NOT EXISTS (SELECT 1 FROM {log} l WHERE {same})"
        )

    def columns_of(self, rows: Sequence[Sequence[Any]]) -> dict[str, pa.Array]:
        """The values of rows, by column of Hive. Raises RecordValueError: a value does not fit."""
        found = {}
        lists = zip(*rows, strict=True) if rows else [[] for _ in self.columns]
        for (name, kind, column), values in zip(self.columns, lists, strict=True):
            try:
                found[name] = self.database.to_column(column, kind, list(values), self.time_zone)
            except RecordValueError as error:
                raise self._misfit(rows, name, error) from error
        return found

    def _misfit(self, rows: Sequence[Sequence[Any]], name: str, error: RecordValueError) -> RecordValueError:
        """Return the error of the first row whose value does not fit, with table and key."""
        what = f"source table {self.table.full_name}"
        at = [column for column, _, _ in self.columns].index(name)
        _, kind, column = self.columns[at]
        for row in rows:
            try:
                self.database.to_column(column, kind, [row[at]], self.time_zone)
            except RecordValueError as found:
                return RecordValueError(f"{what}, row {self._key_text(row)}: {found}")
        return RecordValueError(f"{what}: {error}")

    def _key_text(self, row: Sequence[Any]) -> str:
        """Return the key of a row as the driver read it."""
        keys = {column.name for column in self.key}
        pairs = zip(self.columns, row, strict=True)
        return ", ".join(
            f"{column.name}={_shown(value)}" for (_, _, column), value in pairs if column.name in keys
        )


def _shown(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _marked(name: str, column: SourceColumn, settings: UpdateSettings) -> SourceColumn:
    """Return the column of ``name`` in Hive, with what the settings say of it."""
    is_key = column.name.lower() in {each.lower() for each in settings.key}
    is_nulled = name.lower() in {each.lower() for each in settings.null_for}
    return replace(column, is_key=is_key, nulls_invalid=is_nulled)


def _sources(table: CapturedTable, settings: UpdateSettings, target: str) -> dict[str, SourceColumn]:
    """The columns that are not ignored, by name in lower case, as Hive has it.

    Raises RecordLayoutError: names of two columns differ in case only.
    """
    ignored = settings.ignored_among([column.name for column in table.columns])
    found: dict[str, SourceColumn] = {}
    for column in table.columns:
        if column.name in ignored:
            continue
        twin = found.setdefault(column.name.lower(), column)
        if twin is not column:
            raise RecordLayoutError(
                f"source table {table.full_name} has the columns {twin.name!r} and {column.name!r}, and "
                f"names in {target} do not differ in case: ignore one of them (hive-mutate update enable … "
                f"--ignore-column {twin.name}, in Python ignored_columns=[{twin.name!r}])"
            )
    return found
