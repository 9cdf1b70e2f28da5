"""A change source whose log is a list in memory, for tests of what all sources have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from mutation_api.inputs.source import (
    OPERATION,
    POSITION,
    Batch,
    Position,
    SourceTable,
    TableOperations,
)
from mutation_api.types.hive_type import parse_hive_type, spark_type

POSITION_TYPE = StructType([StructField("seqno", LongType()), StructField("row_id", LongType())])


@dataclass(frozen=True)
class Entry:
    """One operation; columns that ``values`` does not name are null. ``truncate`` empties the table."""

    seqno: int
    table: str
    operation: str
    values: Mapping[str, Any]


def entries(text: str, table: str = "orders") -> list[Entry]:
    """``1 insert 7 seven``: seqno, operation, id, msg; a line for each."""
    lines = [line.split() for line in text.strip().splitlines()]
    return [
        Entry(int(seqno), table, operation, {"id": int(key), **({"msg": msg[0]} if msg else {})})
        for seqno, operation, key, *msg in lines
    ]


@dataclass
class ListSource:
    """The log; entries of one seqno keep their order. ``key`` is what the source says keys are."""

    log: Sequence[Entry]
    source_id: str = "list:test"
    key: tuple[str, ...] = ()

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """All entries later than the tables' positions, up to the end of the log."""
        end = max((entry.seqno for entry in self.log), default=-1)
        reached = [after[t.name].order[0] if t.name in after else -1 for t in tables]
        if all(end <= seqno for seqno in reached) and end in (-1, *reached):
            return Batch((), None)
        found = [self._operations(spark, table, after.get(table.name)) for table in tables]
        return Batch(tuple(found), position(end))

    def _operations(self, spark: SparkSession, table: SourceTable, after: Position | None) -> TableOperations:
        columns = (*table.target.columns, *table.target.partition_keys)
        types = [StructField(c.name, DataType.fromDDL(spark_type(parse_hive_type(c.type)))) for c in columns]
        schema = StructType([StructField(OPERATION, StringType()), *types])
        schema.add(POSITION, POSITION_TYPE)
        new = [
            (place, e)
            for place, e in enumerate(self.log)
            if e.table == table.name and (after is None or e.seqno > after.order[0])
        ]
        truncate = max((place for place, e in new if e.operation == "truncate"), default=-1)
        rows = [
            (e.operation, *[e.values.get(c.name) for c in columns], (e.seqno, place))
            for place, e in new
            if place > truncate
        ]
        named = table if table.key else SourceTable(table.name, table.target, self.key)
        return TableOperations(named, spark.createDataFrame(rows, schema), is_emptied=truncate >= 0)


def position(seqno: int) -> Position:
    """The position after all entries of this seqno."""
    return Position((seqno,), json.dumps({"seqno": seqno}))
