"""apply_arrow on tables of every layout: what a reader finds, and that nothing is left if it fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mutation_api.errors import (
    ConfigurationError,
    LockLostError,
    RecordLayoutError,
    RecordSequenceError,
    RecordValueError,
    RowIdNotFoundError,
    TransactionStateError,
)
from mutation_api.format.event import ROW_ID_COLUMN, Operation
from mutation_api.format.layout import AcidVersion
from mutation_api.table.acid_table import WriterOptions
from mutation_api.write import apply as apply_module
from mutation_api.write import local_plan
from mutation_api.write.apply import apply_arrow
from mutation_api.write.local_plan import MEMORY_BYTES_MIN, LocalOptions
from mutation_api.write.writing_order import write_batch
from tests.support.one_table import OneTable
from tests.unit.write.conftest import DS, LocalTable, MakeTable
from tests.unit.write.tables import acid_table, events, files_below

BUCKETED: dict[str, Any] = {"clustered_by": ["id"], "num_buckets": 3}
PARTITIONED: dict[str, Any] = {"partitioned_by": DS}
LAYOUTS: list[tuple[str, dict[str, Any]]] = [
    ("2.3", {"legacy": True}),
    ("2.3", {"legacy": True, **PARTITIONED}),
    ("2.3", PARTITIONED),
    ("3.1", {}),
    ("3.1", BUCKETED | PARTITIONED),
    ("4.1", BUCKETED),
    ("4.1", PARTITIONED),
]
THREADS = LocalOptions(threads=4)


@pytest.fixture(params=[None, 1], ids=["small", "as large"])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few changes are written by one thread; here by several as well."""
    if request.param is not None:
        monkeypatch.setattr(apply_module, "SMALL_ROWS", request.param)


def inserts(ids: range, **columns: Any) -> pa.Table:
    """Rows (id, msg, ds) to insert."""
    return pa.table(
        {
            "operation": ["insert"] * len(ids),
            "id": list(ids),
            "msg": [f"m{i}" for i in ids],
            "ds": [f"d{i % 5}" for i in ids],
            **columns,
        }
    )


def apply(table: LocalTable, changes: object, **how: Any) -> Any:
    """In a transaction of its own."""
    with table.client.new_transaction() as transaction:
        is_partitioned = bool(transaction.table(table.name).partition_keys)
        if isinstance(changes, pa.Table) and not is_partitioned and "ds" in changes.column_names:
            changes = changes.drop_columns(["ds"])
        return apply_arrow(transaction, table.name, changes, **{"local": THREADS, **how})


@pytest.mark.thorough(1)
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("line", "how"), LAYOUTS, ids=str)
def test_inserts_updates_and_deletes(make_table: MakeTable, line: str, how: dict[str, Any]) -> None:
    """Rows of every operation, in any case of the words, in one change set; the counts are right."""
    table = make_table(line, **how)
    summary = apply(table, inserts(range(100)))
    assert (summary.inserted, summary.updated, summary.deleted) == (100, 0, 0)
    known = table.rows(row_ids=True)
    changes = [
        *({**row, "operation": "Update", "msg": "new"} for row in known if row["id"] % 3 == 0),
        *({ROW_ID_COLUMN: row[ROW_ID_COLUMN], "operation": "DELETE"} for row in known if row["id"] % 3 == 1),
        *({**row, "operation": "insert", "id": row["id"] + 1000} for row in known if row["id"] < 10),
    ]
    names = ["operation", *known[0]]
    rows = pa.Table.from_pylist([{name: change.get(name) for name in names} for change in changes])
    summary = apply(table, rows, verify_row_ids=True)
    assert (summary.inserted, summary.updated, summary.deleted) == (10, 34, 33)
    assert summary.verify_seconds > 0
    expected = [
        {**row, "msg": "new" if row["id"] % 3 == 0 else row["msg"]} for row in known if row["id"] % 3 != 1
    ] + [{**row, "id": row["id"] + 1000} for row in known if row["id"] < 10]
    assert table.rows() == sorted(
        ({k: v for k, v in row.items() if k != ROW_ID_COLUMN} for row in expected), key=repr
    )
    assert not [file for file in table.files() if file.startswith(("_", "."))]


def test_a_change_set_of_deletes_may_lack_columns(make_table: MakeTable) -> None:
    """ROW__ID with its partition is enough; an insert among them is refused."""
    table = make_table("4.1", **PARTITIONED)
    apply(table, inserts(range(20)))
    row_ids = [row[ROW_ID_COLUMN] for row in table.rows(row_ids=True) if row["id"] < 15]
    changes = pa.table({"Operation": ["delete"] * 15, "row__id": row_ids})
    with pytest.raises(RecordLayoutError, match="lacks the columns id, msg; only a change set of deletes"):
        apply(table, pa.concat_tables([changes, pa.table({"Operation": ["insert"], "row__id": row_ids[:1]})]))
    assert apply(table, changes).deleted == 15
    assert [row["id"] for row in table.rows()] == [15, 16, 17, 18, 19]


@pytest.mark.thorough(1)
@pytest.mark.usefixtures("threads")
def test_any_form_of_arrow(make_table: MakeTable) -> None:
    """Views, dictionaries, large and chunked columns, a reader of small batches."""
    table = make_table("4.1", clustered_by=["msg"], num_buckets=2, **PARTITIONED)
    forms = {
        "operation": pa.string_view(),
        "msg": pa.string_view(),
        "ds": pa.dictionary(pa.int32(), pa.string()),
        "id": pa.int32(),
    }
    plain = inserts(range(50))
    rows = pa.table({name: plain[name].cast(form) for name, form in forms.items()})
    reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=7))
    assert apply(table, reader).inserted == 50
    apply(table, inserts(range(50, 60)).to_pandas())
    large = pa.table({"msg": plain["msg"].cast(pa.large_string())})
    apply(table, plain.slice(0, 1).set_column(2, "msg", large["msg"].slice(0, 1)))
    assert sorted(row["id"] for row in table.rows()) == sorted([0, *range(60)])


@pytest.mark.thorough(1)
@pytest.mark.parametrize("line", ["3.1", "4.1"])
def test_files_of_a_table_without_buckets(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """One for few rows; at most one a thread, four a partition; as many as asked for; one on Hive 3.1."""
    monkeypatch.setattr(apply_module, "SMALL_ROWS", 1)
    monkeypatch.setattr(local_plan, "ROWS_PER_INSERT_FILE", 10)
    table = make_table(line)
    found = [
        apply(
            table, inserts(range(count)), local=LocalOptions(threads=threads), insert_files=files
        ).file_count
        for count, threads, files in [(10, 4, None), (25, 4, None), (99, 4, None), (99, 6, None), (9, 1, 7)]
    ]
    assert found == ([1, 3, 4, 6, 7] if line == "4.1" else [1, 1, 1, 1, 7])


def test_at_most_four_files_a_partition(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load of many partitions would otherwise make very many files."""
    monkeypatch.setattr(local_plan, "ROWS_PER_INSERT_FILE", 1)
    table = make_table("4.1", **PARTITIONED)
    assert apply(table, inserts(range(50)), local=LocalOptions(threads=9)).file_count == 5 * 4
    with pytest.raises(ConfigurationError, match="insert_files=5000, but it must be between 1 and 4096"):
        apply(table, inserts(range(5)), insert_files=5000)


@pytest.mark.thorough
def test_what_does_not_fit_into_memory_is_sorted_in_files(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows and row ids without gaps."""
    monkeypatch.setattr(apply_module, "SMALL_ROWS", 1)
    table = make_table("4.1", **BUCKETED)
    count = 60_000
    local = LocalOptions(memory_bytes=MEMORY_BYTES_MIN, threads=2)
    apply(table, inserts(range(count)), local=local, options=WriterOptions(sort_memory_bytes=1 << 18))
    rows = table.rows(row_ids=True)
    assert sorted(row["id"] for row in rows) == list(range(count))
    numbers: dict[int, list[int]] = {}
    for row in rows:
        numbers.setdefault(row[ROW_ID_COLUMN]["bucketid"], []).append(row[ROW_ID_COLUMN]["rowid"])
    assert len(numbers) == 3
    assert all(sorted(found) == list(range(len(found))) for found in numbers.values())


@pytest.mark.parametrize("threads", [1, 3])
def test_a_union_below_a_struct(tmp_path: Path, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorting may make pyarrow abort the process on such rows."""
    monkeypatch.setattr(apply_module, "SMALL_ROWS", 1)
    columns = (("id", "bigint"), ("u", "struct<a:int,b:uniontype<int,string>>"))
    target = OneTable(acid_table(tmp_path, AcidVersion.V2_HIVE4, columns=columns))
    union = pa.UnionArray.from_dense(
        pa.array([1, 0, 1], pa.int8()),
        pa.array([0, 0, 1], pa.int32()),
        [pa.array([7], pa.int32()), pa.array(["x", "y"])],
        ["tag_0", "tag_1"],
    )
    row_id = {"writeid": 1, "bucketid": 536870912, "rowid": 0}
    changes = {
        "operation": ["insert", "insert", "delete"],
        "id": [2, 1, None],
        "u": pa.StructArray.from_arrays([pa.array([1, 2, 3], pa.int32()), union], names=["a", "b"]),
        ROW_ID_COLUMN: [None, None, row_id],
    }
    apply_arrow(target, "db.t", pa.table(changes), local=LocalOptions(threads=threads))
    written = [event for manifest in target.manifests for event in events(manifest)]
    rows = [row for operation, *_, row in written if operation == Operation.INSERT]
    assert len(written) == 3
    assert sorted(rows, key=repr) == [(1, {"a": 2, "b": 7}), (2, {"a": 1, "b": "x"})]


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (
            {"id": [1, 2, 2**40]},
            RecordValueError,
            r"table db\.t: column 'i' \(int\): row 2: value 1099511627776",
        ),
        ({"operation": ["insert", None, "insert"]}, RecordValueError, "must be one of 'insert', 'update'"),
        ({"x": [1, 2, 3]}, RecordLayoutError, "columns that the table does not have: x"),
        ({"ID": [1, 2, 3]}, RecordLayoutError, "duplicate columns .names are case-insensitive.: ID"),
        (
            {"at": pa.array([0, 0, 0], pa.timestamp("us", "UTC"))},
            RecordLayoutError,
            "instants, but the column has timestamps without time zone",
        ),
    ],
)
def test_a_wrong_change_set_leaves_nothing(
    tmp_path: Path, columns: dict[str, Any], error: type[Exception], message: str
) -> None:
    """The error of the other engine, and no file."""
    table = acid_table(tmp_path, columns=(("id", "bigint"), ("i", "int"), ("at", "timestamp")))
    given = {"operation": ["insert"] * 3, "id": [1, 2, 3], "at": pa.nulls(3), **columns}
    target = OneTable(table)
    with pytest.raises(error, match=message):
        apply_arrow(target, "db.t", pa.table({**given, "i": given["id"]}), local=THREADS)
    assert files_below(tmp_path) == []
    assert target.manifests == []


@pytest.mark.usefixtures("threads")
def test_one_row_twice_is_found_while_files_are_written(make_table: MakeTable) -> None:
    """They are removed, and the transaction can go on."""
    table = make_table("4.1", **BUCKETED)
    apply(table, inserts(range(30)))
    before, files = table.rows(), table.files()
    row_ids = [row[ROW_ID_COLUMN] for row in table.rows(row_ids=True)]
    twice = pa.table({"operation": ["delete"] * 31, ROW_ID_COLUMN: [*row_ids, row_ids[7]]})
    with table.client.new_transaction() as transaction:
        with pytest.raises(RecordSequenceError, match="twice"):
            apply_arrow(transaction, table.name, twice, local=THREADS)
        assert table.files() == files
        apply_arrow(transaction, table.name, twice.slice(0, 5), local=THREADS)
    assert len(table.rows()) == len(before) - 5


def test_rows_that_are_not_there_are_looked_up_before(make_table: MakeTable) -> None:
    """The message is that of the other engine; without the look-up Hive would take the update for a row."""
    table = make_table("4.1", **BUCKETED | PARTITIONED)
    apply(table, inserts(range(30)))
    known = table.rows(row_ids=True)
    apply(table, pa.table({"operation": ["delete"], ROW_ID_COLUMN: [known[3][ROW_ID_COLUMN]]}))
    changes = pa.table({"operation": ["delete"] * 30, ROW_ID_COLUMN: [row[ROW_ID_COLUMN] for row in known]})
    files, gone = table.files(), known[3][ROW_ID_COLUMN]
    numbers = ", ".join(str(gone[name]) for name in ("writeid", "bucketid", "rowid"))
    shown = f"delete of ({numbers}) in partition {gone['partition']}"
    with pytest.raises(RowIdNotFoundError) as caught:
        apply(table, changes, verify_row_ids=True)
    assert f"does not contain, among them: {shown}. They never existed or have since been deleted" in str(
        caught.value
    )
    assert table.files() == files
    other = {**gone, "partition": "ds=nowhere"}
    with pytest.raises(RowIdNotFoundError, match="in partitions that do not exist: ds=nowhere"):
        apply(table, pa.table({"operation": ["delete"], ROW_ID_COLUMN: [other]}))
    many = LocalOptions(memory_bytes=MEMORY_BYTES_MIN)
    several = pa.table({"operation": ["delete"] * 3000, ROW_ID_COLUMN: [known[0][ROW_ID_COLUMN]] * 3000})
    with pytest.raises(ConfigurationError, match=r"2,286 are too many: allow more with LocalOptions"):
        apply(table, several, verify_row_ids=True, local=many)


@pytest.mark.parametrize("version", ["2.3", "3.1", "4.1"])
def test_a_second_change_set_sees_the_first(make_table: MakeTable, version: str) -> None:
    """As by the other engine; Hive 2 takes one."""
    table = make_table(version, **BUCKETED)
    with table.client.new_transaction() as transaction:
        changes = inserts(range(3)).drop_columns(["ds"])
        with pytest.raises(
            RecordLayoutError, match=r"table default\.t: the change set: an object of type dict"
        ):
            apply_arrow(transaction, table.name, {})
        apply_arrow(transaction, table.name, changes)
        if version == "2.3":
            with pytest.raises(TransactionStateError, match="already has its changes"):
                apply_arrow(transaction, table.name, changes)
        else:
            apply_arrow(transaction, table.name, changes)
    assert len(table.rows()) == (3 if version == "2.3" else 6)


# -- loss and interruption -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("threads")
def test_a_lost_transaction_stops_the_work(tmp_path: Path) -> None:
    """Between batches; the loss is raised, and no file is left."""
    target = OneTable(acid_table(tmp_path))
    batch = pa.record_batch(inserts(range(10)).drop_columns(["ds"]).to_batches()[0])

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        target.lose(LockLostError("gone"))
        yield batch

    with pytest.raises(LockLostError, match="gone"):
        apply_arrow(target, "db.t", pa.RecordBatchReader.from_batches(batch.schema, batches()), local=THREADS)
    assert files_below(tmp_path) == []


def test_an_interrupt_leaves_no_thread_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while threads write."""
    monkeypatch.setattr(apply_module, "SMALL_ROWS", 1)
    target = OneTable(acid_table(tmp_path, AcidVersion.V2_HIVE4, num_buckets=7))
    before = set(threading.enumerate())
    real = write_batch
    calls = iter(range(100))

    def interrupted(*arguments: Any) -> None:
        real(*arguments)
        if next(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(apply_module, "write_batch", interrupted)
    ids = np.arange(50_000)
    changes = pa.table({"operation": ["insert"] * len(ids), "id": ids, "msg": ids.astype(str)})
    with pytest.raises(KeyboardInterrupt):
        apply_arrow(target, "db.t", changes, local=THREADS)
    assert files_below(tmp_path) == []
    assert set(threading.enumerate()) <= before
