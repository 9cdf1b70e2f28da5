"""What a dry run shows beside counts: rows before and after, and the locks of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metastore_client.model import LockInfo, LockState, LockType
from mutation_api.format.layout import AcidVersion
from mutation_api.merge.acting import Candidates, ClauseRule, RowRules, act
from mutation_api.merge.clauses import Action, Match
from mutation_api.merge.outcome import MergeOutcome
from mutation_api.merge.preview import ForeignLock, SampleRow, foreign_locks
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable


def lock(partition: str | None, txn_id: int | None = 7, **changes: Any) -> LockInfo:
    values = {"state": LockState.ACQUIRED, "type": LockType.SHARED_WRITE} | changes
    return LockInfo(1, "d", "t", partition, txn_id=txn_id, user="etl", hostname="host", **values)


def test_locks_that_cover_a_touched_partition() -> None:
    """Locks on the partition, on the table and on the first partition keys; each once."""
    locks = [
        lock("ds=a/hr=1"),
        lock("ds=a/hr=1"),
        lock("ds=a"),
        lock("ds=a/hr=11"),
        lock("ds=b"),
        lock(None, None, type=LockType.EXCLUSIVE, state=LockState.WAITING),
    ]
    found = foreign_locks(locks, {"ds=a/hr=1", "ds=c/hr=1"})
    assert found == (
        ForeignLock(None, "etl", "host", "EXCLUSIVE", "WAITING", None),
        ForeignLock(7, "etl", "host", "SHARED_WRITE", "ACQUIRED", "ds=a"),
        ForeignLock(7, "etl", "host", "SHARED_WRITE", "ACQUIRED", "ds=a/hr=1"),
    )
    assert str(found[0]) == "a client without a transaction (etl@host) waits for EXCLUSIVE on the whole table"


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (
            SampleRow("updated", "", '{"id":5}', {"id": 5, "n": "1.5"}, {"id": 5, "n": None}),
            'updated {"id":5}: n "1.5" → NULL',
        ),
        (SampleRow("updated", "", '{"id":5}', {"id": 5}, {"id": 5, "n": "b"}), 'updated {"id":5}: n → "b"'),
        (
            SampleRow("inserted", "ds=a", None, None, {"d": "2024-01-02", "s": "x" * 99}),
            f'inserted in ds=a: d "2024-01-02", s "{"x" * 58}…',
        ),
        (SampleRow("deleted", "", '{"id":5}', {}, None), 'deleted {"id":5}'),
        (
            SampleRow("inserted", "", "k", None, {f"c{n}": n for n in range(10)}),
            f"inserted k: {', '.join(f'c{n} {n}' for n in range(8))}, … and 2 more columns",
        ),
    ],
)
def test_a_sample_row_as_text(row: SampleRow, text: str) -> None:
    """What differs; a value that was not read has nothing before its arrow."""
    assert str(row) == text


ID = pa.int64()
TABLE = AcidTable(
    database="d",
    name="t",
    location=Location.parse("/t"),
    columns=(AcidColumn("id", "bigint"), AcidColumn("late", "date"), AcidColumn("tag", "binary")),
    partition_keys=(),
    num_buckets=2,
    bucket_columns=("id",),
    version=AcidVersion.V2_HIVE4,
)
RULES = RowRules(
    ("id",),
    (
        ClauseRule(Match.NOT_MATCHED, Action.INSERT, frozenset(("id", "late", "tag")), {}),
        ClauseRule(Match.MATCHED, Action.DELETE, frozenset(), {}),
    ),
)
LATE = pa.array([4_000_000], pa.int32()).cast(pa.date32())


def outcome(parts: Iterable[Sequence[int | None]]) -> MergeOutcome:
    """Rows to insert and to delete, in parts: odd ids are deleted, NULL is inserted again and again."""
    total = MergeOutcome(("id",), None, 3)
    for part in parts:
        each = MergeOutcome(("id",), None, 3)
        inserted = pa.array([n for n in part if n is None or n % 2 == 0], ID)
        tags = pa.array([b"\xff" if n is None else b"%d" % n for n in inserted.to_pylist()], pa.binary())
        source = pa.record_batch({"id": inserted})
        given = {"id": inserted, "late": pa.nulls(len(inserted)), "tag": tags}
        rows = Candidates(Match.NOT_MATCHED, source, np.arange(len(inserted)), None)
        each.add(act(TABLE, RULES, 0, rows, given, write_unchanged=False))
        deleted = pa.array([n for n in part if n is not None and n % 2], ID)
        source = pa.record_batch({"id": deleted})
        late = pa.repeat(LATE[0], len(deleted))
        rows = Candidates(Match.MATCHED, source, np.arange(len(deleted)), {"id": deleted, "late": late})
        each.add(act(TABLE, RULES, 1, rows, {}, write_unchanged=False))
        total.add_outcome(each)
    return total


def test_samples_are_the_same_however_rows_were_cut_into_parts() -> None:
    """Also of rows with equal keys; values are those of JSON files."""
    ids = [*range(40), None, None]
    found = outcome([ids]).samples
    assert found == outcome([ids[30:], [], ids[11:30], ids[10::-1]]).samples
    assert [(row.kind, row.key) for row in found] == [
        ("inserted", '{"id":0}'),
        ("inserted", '{"id":10}'),
        ("inserted", '{"id":12}'),
        ("deleted", '{"id":11}'),
        ("deleted", '{"id":13}'),
        ("deleted", '{"id":15}'),
    ]
    assert (found[0].before, found[0].after) == (None, {"id": 0, "late": None, "tag": "MA=="})
    assert (found[3].before, found[3].after) == ({"id": 11, "late": "12921-08-18"}, None)
    assert MergeOutcome(("id",), None).samples == ()


def test_samples_of_equal_keys_are_those_with_the_least_content() -> None:
    """NULL keys are inserted as often as they occur."""
    rows = [pa.array([None] * 9, ID), pa.array([b"%d" % (n * 5 % 9) for n in range(9)], pa.binary())]
    shown = []
    for size in (9, 4, 1):
        total = MergeOutcome(("id",), None, 2)
        for start in range(0, 9, size):
            ids, tags = (column.slice(start, size) for column in rows)
            source, given = pa.record_batch({"id": ids}), {"id": ids, "late": pa.nulls(len(ids)), "tag": tags}
            candidates = Candidates(Match.NOT_MATCHED, source, np.arange(len(ids)), None)
            total.add(act(TABLE, RULES, 0, candidates, given, write_unchanged=False))
        shown.append([row.after["tag"] for row in total.samples if row.after])
    assert shown == [["MA==", "MQ=="]] * 3
