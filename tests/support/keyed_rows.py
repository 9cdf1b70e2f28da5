"""Keyed reading of a split against the same split read in full; for tests whose rows Hive has judged."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa

from metastore_client.valid_ids import ValidIdList
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.read.snapshot_reader import read_split, snapshot_schema
from mutation_api.table.acid_table import AcidTable

_SHARE_OF_KEYS = 0.3


def check_keyed_rows(table: AcidTable, split: SnapshotSplit, valid: ValidIdList, options: ReadOptions) -> int:
    """Look for a few of the values of each column, with NULL = NULL and without, and for all other rows.

    Returns:
        How many rows were found.
    """
    with_ids = table.version.has_row_ids
    rows = [row for batch in read_split(table, split, valid, None, with_ids, options) for row in _rows(batch)]
    rng = random.Random(len(rows))
    found = 0
    schema = snapshot_schema(table.version, table.columns, row_ids=False, options=options)
    for column in schema:
        if pa.types.is_nested(column.type):
            continue
        values = [row[column.name] for row in rows if rng.random() < _SHARE_OF_KEYS]
        for null_safe in (False, True):
            keys = pa.table({column.name: pa.array(values, column.type)})
            wanted = {plain(value) for value in values if null_safe or value is not None}
            for excludes in (False, True):
                only = KeyFilter(keys, null_safe, excludes)
                given = read_split(table, split, valid, None, with_ids, options, only)
                expected = [row for row in rows if (plain(row[column.name]) in wanted) != excludes]
                keyed = [row for batch in given for row in _rows(batch)]
                assert repr(keyed) == repr(expected), (table.full_name, column, values, excludes)
            found += sum(plain(row[column.name]) in wanted for row in rows)
    return found


def plain(value: Any) -> Any:
    """What equals another value as keys do: NaN equals NaN, -0.0 equals 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows
