"""latest_operations: what is left of a log equals what replaying it leaves; contradictions are found."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from mutation_api.cdc import Contradictions, latest_operations, open_log_reduction
from mutation_api.cdc.log_walk import FIRST_OPERATION, FIRST_POSITION
from mutation_api.cdc.source import PARTITION
from mutation_api.errors import (
    ConfigurationError,
    ContradictionError,
    MutationError,
    RecordLayoutError,
    RecordValueError,
)
from mutation_api.spark.worker_errors import translated_worker_errors
from tests.support.operation_logs import KEY, LETTERS, random_log, replayed

pytestmark = pytest.mark.slow

SCHEMA = (
    "operation string, position struct<seqno:bigint,row:bigint>, number decimal(12,2), day date, text "
    "string, value double, items array<int>"
)


@pytest.mark.long
def test_reduction_equals_replaying_row_by_row(spark: SparkSession) -> None:
    """Random logs on composite keys (decimal, date, text): rows, deleted keys, counts, first operations."""
    rng = random.Random(7)
    log = random_log(rng, 3000)
    frame = spark.createDataFrame(log, SCHEMA).repartition(3)
    with open_log_reduction(frame, KEY, "position") as reduced:
        left = reduced.rows.collect()
    rows, gone, contradictions = replayed(log)
    names = [*KEY, "value", "items"]
    assert len(left) == len({tuple(row[k] for k in KEY) for row in left}) == reduced.key_count
    assert {
        tuple(r[k] for k in KEY): tuple(r[n] for n in names) for r in left if r.operation != "delete"
    } == rows
    assert {tuple(r[k] for k in KEY) for r in left if r.operation == "delete"} == gone
    assert reduced.operation_count == len(log)
    assert reduced.contradictions == Contradictions(**contradictions)
    assert min(contradictions.values()) > 100
    first: dict[Any, Any] = {}
    for operation, place, *values in sorted(log, key=lambda each: each[1]):
        first.setdefault(tuple(values[:3]), (operation, place))
    assert {
        tuple(r[k] for k in KEY): (r[FIRST_OPERATION], tuple(r[FIRST_POSITION].position)) for r in left
    } == first


def test_order_of_several_columns_and_other_names(spark: SparkSession) -> None:
    """Later columns of the order decide where earlier ones are equal; the order leaves the result."""
    rows = [("insert", 1, 2, 7, "b"), ("update", 1, 10, 7, "c"), ("insert", 1, 9, 8, "d")]
    frame = spark.createDataFrame(rows, "`op.code` string, seqno bigint, row_id bigint, ID int, msg string")
    left = latest_operations(frame, ["id"], ["seqno", "row_id"], operation_column="OP.code")
    assert left.columns == ["op.code", "ID", "msg"]
    assert sorted(map(tuple, left.collect())) == [("insert", 8, "d"), ("update", 7, "c")]


def test_no_operations(spark: SparkSession) -> None:
    """An empty log is reduced to nothing."""
    with open_log_reduction(operations(spark, {}), ["id"], "position") as reduced:
        assert reduced.rows.count() == reduced.key_count == reduced.operation_count == 0
    assert reduced.contradictions.total == 0


def operations(spark: SparkSession, logs: Mapping[str, str]) -> DataFrame:
    """``{"a": "IU"}``: an insert, then an update of key a; values distinguish them."""
    rows = [
        (LETTERS[letter], (place,), key, f"{letter}{place}")
        for key, letters in logs.items()
        for place, letter in enumerate(letters)
    ]
    return spark.createDataFrame(rows, "operation string, position struct<at:bigint>, id string, msg string")


def left_of(spark: SparkSession, logs: Iterable[str]) -> dict[str, str]:
    """What is left of each log, as its letter and position, such as ``U1``."""
    frame = operations(spark, {log: log for log in logs})
    return {row.id: row.msg for row in latest_operations(frame, ["id"], "position").collect()}


def test_the_last_of_several_operations_of_a_key_is_left(spark: SparkSession) -> None:
    """The last operation alone; no key is both upserted and deleted."""
    expected = {
        "IU": "U1",
        "ID": "D1",
        "UD": "D1",
        "DI": "I1",
        "DIU": "U2",
        "IDI": "I2",
        "IDID": "D3",
        "UU": "U1",
    }
    assert left_of(spark, expected) == expected


@pytest.mark.long
def test_repeated_inserts_and_deletes_count_once(spark: SparkSession) -> None:
    """A later insert replaces an earlier one, a doubled delete is one; both are counted."""
    assert left_of(spark, ["II", "DD"]) == {"II": "I1", "DD": "D1"}
    with open_log_reduction(operations(spark, {"a": "II", "b": "DD"}), ["id"], "position") as reduced:
        assert reduced.contradictions == Contradictions(inserts_of_present=1, deletes_of_absent=1)


def test_a_changed_key_is_a_delete_and_an_insert(spark: SparkSession) -> None:
    """Of a chain of key changes, in one log, each old key is deleted and the last one is there."""
    rows = [
        ("delete", (1,), 1, None),
        ("insert", (2,), 2, "x"),
        ("delete", (3,), 2, None),
        ("insert", (4,), 1, "y"),
        ("delete", (5,), 1, None),
        ("insert", (6,), 3, "z"),
    ]
    frame = spark.createDataFrame(rows, "operation string, position struct<at:bigint>, id int, msg string")
    with open_log_reduction(frame, ["id"], "position", strict=True) as reduced:
        found = sorted((r.id, r.operation, r.msg) for r in reduced.rows.collect())
    assert found == [(1, "delete", None), (2, "delete", None), (3, "insert", "z")]


def test_reverse_walk_and_reduction_agree(spark: SparkSession) -> None:
    """The documented walk from the end leaves for every log what the reduction leaves."""
    logs = ["".join(log) for count in range(1, 5) for log in _words("IUD", count)]
    found = left_of(spark, logs)
    for log in logs:
        assert {found[log]} == walked_in_reverse(log), log


def _words(letters: str, count: int) -> list[tuple[str, ...]]:
    words: list[tuple[str, ...]] = [()]
    for _ in range(count):
        words = [(*word, letter) for word in words for letter in letters]
    return words


def walked_in_reverse(log: str) -> set[str]:
    """The documented rules. They also leave out an insert before an insert, and a delete before a delete or
    an update.
    """
    met: set[str] = set()
    written = set()
    for place, letter in reversed(list(enumerate(log))):
        if not met:
            written.add(f"{letter}{place}")
        met.add(letter)
    return written


@pytest.mark.long
@pytest.mark.parametrize(
    ("logs", "message"),
    [
        ({"a": "IUDI", "b": "II"}, '1 inserts of present keys: insert of present key {"id":"b"} at '),
        (
            {"a": "DU"},
            'update of absent key {"id":"a"} at {"position":{"at":1}}',
        ),
        (
            {"a": "IDD"},
            'delete of absent key {"id":"a"} at {"position":{"at":2}}',
        ),
    ],
)
def test_strict_refuses_a_log_that_contradicts_itself(
    spark: SparkSession, logs: dict[str, str], message: str
) -> None:
    """Key and position of the first contradiction."""
    with (
        pytest.raises(ContradictionError) as caught,
        open_log_reduction(
            operations(spark, logs), ["id"], "position", strict=True, what="table d.t: the log"
        ),
    ):
        pytest.fail("the log was taken")
    assert str(caught.value).startswith("table d.t: the log contradicts itself: ")
    assert message in str(caught.value)


def test_a_strict_message_names_some_of_many(spark: SparkSession) -> None:
    """Five keys, and that there are more."""
    logs = {f"k{n}": "II" for n in range(9)}
    with (
        pytest.raises(ContradictionError) as caught,
        open_log_reduction(operations(spark, logs), ["id"], "position", strict=True),
    ):
        pytest.fail("the log was taken")
    assert "9 inserts of present keys: " in str(caught.value)
    assert str(caught.value).count("insert of present key") == 5
    assert ", …. Nothing was written." in str(caught.value)


BAD = "operation string, position struct<at:bigint>, id int, region string"


WRONG_ROWS: Any = [
    (
        [("insert", (1,), 1, "x"), ("update", (2,), 1, None)],
        RecordValueError,
        'operation {"operation":"update"}, key {"id":1,"region":null}, position {"position":{"at":2}}: a '
        "key column is null, so the row of the operation is not known",
    ),
    (
        [("insert", (1,), 1, "x"), ("delete", (1,), 1, "x"), ("delete", (1,), 2, "x")],
        ContradictionError,
        'two operations on key {"id":1,"region":"x"} have the same position {"position":{"at":1}}, so '
        "it is not known which of them is later",
    ),
    (
        [("INSERT", (1,), 1, "x")],
        RecordValueError,
        'operation {"operation":"INSERT"}, key {"id":1,"region":"x"}, position {"position":{"at":1}}: '
        "the operation must be one of insert, update, delete",
    ),
    (
        [(None, (1,), 1, "x")],
        RecordValueError,
        'operation {"operation":null}, key {"id":1,"region":"x"}, position {"position":{"at":1}}: '
        "the operation must be one of insert, update, delete",
    ),
    (
        [("insert", None, 1, "a\nb")],
        RecordValueError,
        'operation {"operation":"insert"}, key {"id":1,"region":"a\\nb"}, position {"position":null}: an '
        "operation needs a position",
    ),
]


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("rows", "error", "message"), WRONG_ROWS)
def test_rows_that_are_no_operations(
    spark: SparkSession, rows: Sequence[tuple[Any, ...]], error: type[MutationError], message: str
) -> None:
    """Refused in the job, word for word, in the lazy form and in the one that counts; whatever is read."""
    frame = spark.createDataFrame(rows, BAD)
    with pytest.raises(error) as caught, open_log_reduction(frame, ["id", "region"], "position"):
        pytest.fail("it was taken")
    assert str(caught.value) == message
    left = latest_operations(frame, ["id", "region"], "position").select("id")
    with pytest.raises(error) as caught, translated_worker_errors("reading"):
        left.collect()
    assert str(caught.value) == message


@pytest.mark.long
@pytest.mark.parametrize("partitions", [(0, 0), (0, 3)])
def test_a_key_in_two_partitions_has_no_order(spark: SparkSession, partitions: tuple[int, int]) -> None:
    """Whatever its offsets are."""
    first, second = partitions
    rows = [("insert", (first, 9), 1), ("update", (second, 10), 1)]
    schema = f"operation string, position struct<{PARTITION}:bigint,offset:bigint>, id int"
    frame = spark.createDataFrame(rows, schema)
    last = latest_operations(frame, ["id"], "position").select("id", "operation")
    if first == second:
        assert last.collect() == [(1, "update")]
        return
    said = 'two operations on key {"id":1} are in two partitions, the second at {"position":{"__partition":3,'
    with pytest.raises(ContradictionError) as caught, translated_worker_errors("reading"):
        last.collect()
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("key", "order", "error", "message"),
    [
        (
            [],
            "position",
            ConfigurationError,
            r"key=\[\], order_by=\['position'\]: name at least",
        ),
        (["id"], [], ConfigurationError, r"order_by=\[\]"),
        (
            ["no"],
            "seqno",
            RecordLayoutError,
            "the operations lack columns no, seqno; they have opera",
        ),
        (["tags"], "position", RecordLayoutError, "key column 'tags' has the type map<string,int>"),
    ],
)
def test_columns_that_do_not_do(
    spark: SparkSession, key: list[str], order: str, error: type[MutationError], message: str
) -> None:
    """Refused before anything runs."""
    frame = spark.createDataFrame([], "operation string, position int, id int, tags map<string,int>")
    with pytest.raises(error, match=message):
        latest_operations(frame, key, order)
