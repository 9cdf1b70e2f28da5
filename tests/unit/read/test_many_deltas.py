"""The memory that reading many deltas takes."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList
from mutation_api import connect
from mutation_api.read.partition_plan import plan_splits
from mutation_api.read.snapshot_reader import read_split
from mutation_api.transaction.builder import MutatorClientBuilder

DELTAS, ROWS = 20, 20_000


@pytest.mark.thorough
def test_deltas_that_were_read_are_not_held(tmp_path: Path) -> None:
    """The rows of each delta follow those of the earlier ones, so one delta is in memory.

    Small files would be read several at a time, so the rows are hard to compress.
    """
    randomness = random.Random(1)
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    with connect(metastore) as hive:
        hive.create_table("default.t", "id bigint, item string", clustered_by=["id"], num_buckets=1)
        for number in range(DELTAS):
            ids = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
            items = pa.array([randomness.randbytes(10).hex() for _ in range(ROWS)])
            hive.table("default.t").append(pa.table({"id": ids, "item": items}))
    with MutatorClientBuilder().metastore(metastore).add_sink_table("default", "t").build() as client:
        (table,) = client.tables
    valid = ValidWriteIdList(DELTAS, table="default.t")
    (split,) = plan_splits(table, "", table.location, valid, ValidTxnList.everything())
    before, held, count = pa.total_allocated_bytes(), [], 0
    for batch in read_split(table, split, valid):
        held.append(pa.total_allocated_bytes() - before)
        count += batch.num_rows
        size = batch.nbytes
    assert count == DELTAS * ROWS
    assert max(held) < 5 * size, (held, size)
