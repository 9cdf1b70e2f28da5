"""A change source whose log is a list in memory, for tests of what all sources have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampNTZType

from mutation_api.cdc.source import (
    CHANGED_AT,
    OPERATION,
    POSITION,
    Batch,
    LocalBatch,
    LocalOperations,
    Position,
    SourceTable,
    TableOperations,
)
from mutation_api.format.hive_type import arrow_type, parse_hive_type, spark_type

POSITION_TYPE = StructType([StructField("seqno", LongType()), StructField("row_id", LongType())])
ARROW_POSITION_TYPE = pa.struct([("seqno", pa.int64()), ("row_id", pa.int64())])


@dataclass(frozen=True)
class Entry:
    """One operation; columns that ``values`` does not name are null. ``truncate`` empties the table.

    ``at``: when the source made the change, in seconds since 1970.
    """

    seqno: int
    table: str
    operation: str
    values: Mapping[str, Any]
    at: int | None = None


def entries(text: str, table: str = "orders") -> list[Entry]:
    """``1 insert 7 seven``: seqno, operation, id, msg; a line for each."""
    lines = [line.split() for line in text.strip().splitlines()]
    return [
        Entry(int(seqno), table, operation, {"id": int(key), **({"msg": msg[0]} if msg else {})})
        for seqno, operation, key, *msg in lines
    ]


@dataclass
class ListSource:
    """The log; entries of one seqno keep their order. ``key`` is what the source says keys are.

    ``has_times``: whether it gives the times of changes if they are wanted.
    """

    log: Sequence[Entry]
    source_id: str = "list:test"
    key: tuple[str, ...] = ()
    has_times: bool = False

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """All entries later than the tables' positions, up to the end of the log."""
        end = self._end(tables, after)
        if end is None:
            return Batch((), None)
        found = [self._operations(spark, table, after.get(table.name)) for table in tables]
        return Batch(tuple(found), position(end))

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """The same without Spark."""
        end = self._end(tables, after)
        if end is None:
            return LocalBatch((), None)
        found = [self._local_operations(table, after.get(table.name)) for table in tables]
        return LocalBatch(tuple(found), position(end))

    def _end(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> int | None:
        """The last seqno; None if there is nothing new."""
        end = max((entry.seqno for entry in self.log), default=-1)
        reached = [after[t.name].order[0] if t.name in after else -1 for t in tables]
        return None if all(end <= seqno for seqno in reached) and end in (-1, *reached) else end

    def _operations(self, spark: SparkSession, table: SourceTable, after: Position | None) -> TableOperations:
        columns = table.target.all_columns
        types = [StructField(c.name, DataType.fromDDL(spark_type(parse_hive_type(c.type)))) for c in columns]
        schema = StructType([StructField(OPERATION, StringType()), *types])
        if self._gives_times(table):
            schema.add(CHANGED_AT, TimestampNTZType())
        schema.add(POSITION, POSITION_TYPE)
        rows, is_emptied = self._rows(table, after)
        frame = spark.createDataFrame(rows, schema)
        return TableOperations(self._named(table), frame, is_emptied=is_emptied)

    def _local_operations(self, table: SourceTable, after: Position | None) -> LocalOperations:
        """In batches of a row, the last one first: their order does not matter."""
        types = {c.name: arrow_type(parse_hive_type(c.type)) for c in table.target.all_columns}
        times = [(CHANGED_AT, pa.timestamp("us"))] if self._gives_times(table) else []
        schema = pa.schema(
            [(OPERATION, pa.string()), *types.items(), *times, (POSITION, ARROW_POSITION_TYPE)]
        )
        rows, is_emptied = self._rows(table, after)
        names = ("seqno", "row_id")
        plain = [(*row[:-1], dict(zip(names, row[-1], strict=True))) for row in reversed(rows)]
        batches = [
            pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True))], schema) for row in plain
        ]
        return LocalOperations(self._named(table), batches, is_emptied=is_emptied)

    def _rows(self, table: SourceTable, after: Position | None) -> tuple[list[tuple[Any, ...]], bool]:
        """Operation, values and position of the new entries; whether the table was emptied before them."""
        new = [
            (place, e)
            for place, e in enumerate(self.log)
            if e.table == table.name and (after is None or e.seqno > after.order[0])
        ]
        truncate = max((place for place, e in new if e.operation == "truncate"), default=-1)
        rows = [
            (
                e.operation,
                *[e.values.get(c.name) for c in table.target.all_columns],
                *([moment(e.at)] if self._gives_times(table) else []),
                (e.seqno, place),
            )
            for place, e in new
            if place > truncate
        ]
        return rows, truncate >= 0

    def _gives_times(self, table: SourceTable) -> bool:
        return self.has_times and table.wants_times

    def _named(self, table: SourceTable) -> SourceTable:
        return table if table.key else SourceTable(table.name, table.target, self.key)


def moment(at: int | None) -> datetime | None:
    """A number of seconds since 1970 as a time in UTC."""
    return None if at is None else datetime.fromtimestamp(at, UTC).replace(tzinfo=None)


def position(seqno: int) -> Position:
    """The position after all entries of this seqno."""
    return Position((seqno,), json.dumps({"seqno": seqno}))
