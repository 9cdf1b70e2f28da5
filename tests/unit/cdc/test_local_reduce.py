"""reduce_here: the reduction without Spark, by the rules that test_reduce has for Spark's."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from mutation_api.cdc import Contradictions, local_reduce
from mutation_api.cdc.local_reduce import HeldOperations, LocalLog, collected, reduce_here
from mutation_api.cdc.log_walk import FIRST_OPERATION, FIRST_POSITION
from mutation_api.cdc.source import OPERATION, PARTITION, POSITION, SourceTable
from mutation_api.errors import ConfigurationError, ContradictionError, MutationError, RecordLayoutError
from mutation_api.format.layout import AcidVersion
from mutation_api.table.acid_table import AcidColumn, AcidTable
from tests.support.operation_logs import KEY, LETTERS, random_log, replayed
from tests.unit.cdc.test_reduce import WRONG_ROWS

TABLE = AcidTable("d", "t", "/nowhere", (AcidColumn("id", "string"),), (), 0, (), AcidVersion.V2_HIVE4)
PLENTY = 1 << 30

Rows = Sequence[tuple[Any, ...]]


def reduced(
    rows: Rows | pa.Table,
    columns: Mapping[str, pa.DataType],
    key: Sequence[str],
    *,
    byte_limit: int = PLENTY,
    batch_rows: int = 7,
    strict: bool = False,
) -> LocalLog:
    """Reduce rows of operation, position (numbers) and values."""
    names = [OPERATION, POSITION, *columns]
    count = len(rows[0][1] or ()) if rows and rows[0][1] is not None else 1
    position = pa.struct([(f"n{number}" if count > 1 else "at", pa.int64()) for number in range(count)])
    schema = pa.schema([(OPERATION, pa.string()), (POSITION, position), *columns.items()])
    plain = [
        (row[0], row[1] and dict(zip((f.name for f in position), row[1], strict=True)), *row[2:])
        for row in rows
    ]
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in plain], schema)
    source, what = SourceTable("t", TABLE, tuple(key)), "table d.t: the log"
    batches = table.to_batches(max_chunksize=batch_rows)
    found = collected(source, batches, HeldOperations(byte_limit), what)
    return reduce_here(source, found, strict=strict, what=what)


@pytest.mark.thorough(1)
@pytest.mark.parametrize("step", [1, 10, 100_000])
def test_reduction_equals_replaying_row_by_row(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Random logs on composite keys (decimal, date, text): rows, deleted keys, counts, first operations."""
    monkeypatch.setattr(local_reduce, "ROWS_PER_STEP", step)
    log = random_log(random.Random(7), 500 if step == 1 else 3000)
    random.Random(8).shuffle(log)
    columns = {
        "number": pa.decimal128(12, 2),
        "day": pa.date32(),
        "text": pa.string(),
        "value": pa.float64(),
        "items": pa.list_(pa.int32()),
    }
    found = reduced(log, columns, KEY)
    left = found.rows.to_pylist()
    rows, gone, contradictions = replayed(log)
    names = [*KEY, "value", "items"]
    assert len(left) == found.counts.key_count == len(rows) + len(gone)
    kept = [row for row in left if row[OPERATION] != "delete"]
    assert {tuple(r[k] for k in KEY): tuple(r[n] for n in names) for r in kept} == rows
    assert {tuple(r[k] for k in KEY) for r in left if r[OPERATION] == "delete"} == gone
    assert found.counts.operation_count == len(log)
    assert found.counts.contradictions == Contradictions(**contradictions)
    first: dict[Any, Any] = {}
    for operation, place, *values in sorted(log, key=lambda each: each[1]):
        first.setdefault(tuple(values[:3]), (operation, place))
    assert {
        tuple(r[k] for k in KEY): (r[FIRST_OPERATION], tuple(r[FIRST_POSITION]["position"].values()))
        for r in left
    } == first


def test_no_operations() -> None:
    """An empty log is reduced to nothing, in the table's columns."""
    found = reduced([], {"id": pa.string()}, ["id"])
    assert (found.rows.num_rows, found.counts.key_count, found.counts.operation_count) == (0, 0, 0)
    table = SourceTable("t", TABLE, ("id",))
    nothing = reduce_here(table, collected(table, [], HeldOperations(1), "log"), strict=True, what="log")
    assert nothing.rows.column_names == [OPERATION, "id", FIRST_OPERATION, FIRST_POSITION]


def test_keys_are_equal_as_spark_has_it() -> None:
    """NaN equals NaN, and the zeros are equal."""
    rows = [("insert", (n,), value) for n, value in enumerate([math.nan, 0.0, -0.0, -math.nan, 1.0])]
    assert reduced(rows, {"id": pa.float64()}, ["id"]).counts.key_count == 3


def logs(given: Mapping[str, str]) -> Rows:
    """``{"a": "IU"}``: an insert, then an update of key a."""
    return [
        (LETTERS[letter], (place,), key) for key, log in given.items() for place, letter in enumerate(log)
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": "IUDI", "b": "II"}, '1 inserts of present keys: insert of present key {"id":"b"} at '),
        ({"a": "DU"}, 'update of absent key {"id":"a"} at {"position":{"at":1}}'),
        ({"a": "IDD"}, 'delete of absent key {"id":"a"} at {"position":{"at":2}}'),
        ({f"k{n}": "II" for n in range(9)}, '{"id":"k4"} at {"position":{"at":1}}, …. Nothing was written.'),
    ],
)
def test_strict_refuses_a_log_that_contradicts_itself(given: Mapping[str, str], message: str) -> None:
    """Key and position of the first contradiction; of some keys."""
    with pytest.raises(ContradictionError) as caught:
        reduced(logs(given), {"id": pa.string()}, ["id"], strict=True)
    assert str(caught.value).startswith("table d.t: the log contradicts itself: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(("rows", "error", "message"), WRONG_ROWS)
def test_rows_that_are_no_operations(rows: Rows, error: type[MutationError], message: str) -> None:
    """Refused word for word as Spark's reduction does."""
    with pytest.raises(error) as caught:
        reduced(rows, {"id": pa.int32(), "region": pa.string()}, ["id", "region"])
    assert str(caught.value) == message


def test_a_key_in_two_partitions_has_no_order() -> None:
    """As Spark's reduction says it, with what to do."""
    position = pa.struct([(PARTITION, pa.int64()), ("offset", pa.int64())])
    schema = pa.schema([(OPERATION, pa.string()), (POSITION, position), ("id", pa.int32())])
    rows = [("insert", (0, 9), 1), ("update", (3, 10), 1), ("insert", (3, 7), 2), ("delete", (3, 8), 2)]
    plain = [
        {OPERATION: operation, POSITION: dict(zip((PARTITION, "offset"), at, strict=True)), "id": key}
        for operation, at, key in rows
    ]
    table, found = SourceTable("t", TABLE, ("id",)), pa.Table.from_pylist(plain, schema)
    reduced_rows = reduce_here(table, found.slice(2), strict=False, what="the log").rows
    assert reduced_rows[OPERATION].to_pylist() == ["delete"]
    with pytest.raises(ContradictionError) as caught:
        reduce_here(table, found, strict=False, what="the log")
    assert str(caught.value).startswith(
        'two operations on key {"id":1} are in two partitions, the second at '
        '{"position":{"__partition":3,"offset":10}}: their order is not known. '
    )
    assert "--positions message" in str(caught.value)


def test_more_than_fits_is_refused() -> None:
    """With the limit, and what to do."""
    with pytest.raises(
        ConfigurationError, match=r"^table d\.t: the log: the new operations need more than the 99"
    ):
        reduced(logs({str(n): "I" for n in range(50)}), {"id": pa.string()}, ["id"], byte_limit=99)


def test_columns_that_do_not_do() -> None:
    """Refused with name and type."""
    rows = logs({"a": "I"})
    with pytest.raises(RecordLayoutError, match="the operations lack columns no; they have __operation"):
        reduced(rows, {"id": pa.string()}, ["no"])
    nested = [("insert", (1,), ["a"])]
    with pytest.raises(
        RecordLayoutError, match=r"key column 'id' has the type list<.*compared without Spark"
    ):
        reduced(nested, {"id": pa.list_(pa.string())}, ["id"])
