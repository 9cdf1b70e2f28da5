"""DistinctKeys: equal keys are found wherever they are, also through files, and no others."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from mutation_api.cdc import local_copy
from mutation_api.cdc.local_copy import DistinctKeys, copied_here
from mutation_api.cdc.source import OPERATION, POSITION, SourceTable
from mutation_api.errors import DuplicateKeyError, RecordLayoutError, RecordValueError
from mutation_api.format.layout import AcidVersion
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.write.local_plan import LocalOptions

LITTLE = LocalOptions(memory_bytes=1 << 20)
COLUMNS = (AcidColumn("a", "bigint"), AcidColumn("b", "decimal(9,2)"), AcidColumn("c", "array<int>"))
TABLE = AcidTable("d", "t", "/nowhere", COLUMNS, (), 0, (), AcidVersion.V2_HIVE4)


def _check(rows: pa.Table, key: tuple[str, ...], batch_rows: int = 1000) -> None:
    with DistinctKeys(SourceTable("t", TABLE, key), LITTLE, "the copy") as keys:
        for batch in rows.to_batches(max_chunksize=batch_rows):
            keys.add(batch)
        keys.check()


@pytest.mark.thorough
@pytest.mark.parametrize("hashes", [None, 1, 50])
def test_many_keys_through_files(monkeypatch: pytest.MonkeyPatch, hashes: int | None) -> None:
    """In any order; also if many, or all, share a hash."""
    if hashes is not None:
        plain = local_copy.hash_columns
        monkeypatch.setattr(local_copy, "hash_columns", lambda *given: plain(*given) % hashes)
    values = list(range(40_000))
    random.Random(1).shuffle(values)
    rows = pa.table({"a": values, "b": [Decimal(v % 7) for v in values]})
    _check(rows, ("a",))
    _check(rows, ("b", "a"))
    twice = pa.concat_tables([rows, rows.slice(20_000, 1), rows.slice(100, 2), rows.slice(100, 2)])
    with pytest.raises(DuplicateKeyError, match=r"the copy: 3 keys have more than one row") as found:
        _check(twice, ("a",))
    assert all(f'{{"a":{values[at]}}}' in str(found.value) for at in (100, 101, 20_000))


def test_few_are_named() -> None:
    """And the number of all others."""
    rows = pa.table({"a": [*range(20), *range(20)]})
    with pytest.raises(DuplicateKeyError, match=r"20 keys have more than one row.*; and 15 more\. Nothing"):
        _check(rows, ("a",), batch_rows=3)


@pytest.mark.parametrize(("key", "message"), [("x", "lack columns x"), ("c", "cannot be compared")])
def test_keys_that_cannot_be_checked(key: str, message: str) -> None:
    """They are missing, or nested."""
    rows = pa.table({"a": [1], "c": [[1]]})
    with pytest.raises(RecordLayoutError, match=message):
        _check(rows, (key,))


def test_no_rows() -> None:
    """Nothing is twice."""
    _check(pa.table({"a": pa.array([], pa.int64())}), ("a",))


def test_a_key_with_a_null_is_shown() -> None:
    """With values that Python does not hold."""
    columns = (AcidColumn("a", "timestamp"), AcidColumn("b", "bigint"))
    table = SourceTable("t", replace(TABLE, columns=columns), ("a", "b"))
    moments = pa.array([1_700_000_000_123_456_789, -(2**63)], pa.timestamp("ns"))
    for row in range(2):
        others = {name: pa.array(["", ""]) for name in (OPERATION, POSITION)}
        batch = pa.record_batch({"A": moments, "b": [1, None] if row else [None, 1], **others})
        with pytest.raises(
            RecordValueError, match=r'the copy, key \{"a":.*,"b":null\}: a key column is null'
        ):
            copied_here(table, [batch], LITTLE, is_emptied=False, what="the copy")
