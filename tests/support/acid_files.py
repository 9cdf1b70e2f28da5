"""Small ACID files for tests of the reader, written by pyarrow straight from a list of events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc

from mutation_api.format.event import event_schema

Event = tuple[int, int, int, int, int, Any]
"""(operation, original transaction, bucket, row id, current transaction, row or None)."""

ROW_TYPE = pa.struct([("id", pa.int64()), ("msg", pa.string())])


def write_events(path: Path, events: Sequence[Event], row_type: pa.StructType = ROW_TYPE) -> None:
    """Write one ACID file."""
    schema = event_schema(row_type)
    columns = zip(*events, strict=True) if events else [[]] * len(schema)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)]
    write_orc(path, pa.Table.from_arrays(arrays, schema=schema))


def write_orc(path: Path, table: pa.Table) -> None:
    """Write a plain ORC file.

    A stripe ends as soon as ORC's smallest buffer, 64 KiB, is full: rows with long texts make many stripes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    batch = 50
    with pa.orc.ORCWriter(
        str(path),
        compression="uncompressed",
        stripe_size=1,
        batch_size=batch,
        dictionary_key_size_threshold=0,
    ) as writer:
        for start in range(0, max(table.num_rows, 1), batch):
            writer.write(table.slice(start, batch))


def inserts(txn: int, bucket: int, first_row_id: int, values: Sequence[tuple[int, str]]) -> list[Event]:
    """Insert events of one transaction with consecutive row ids."""
    return [
        (0, txn, bucket, first_row_id + n, txn, {"id": id_, "msg": msg})
        for n, (id_, msg) in enumerate(values)
    ]
