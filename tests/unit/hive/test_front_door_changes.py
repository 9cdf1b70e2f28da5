"""Changing tables through the front door: what a reader finds, what is refused, and what remains."""

from __future__ import annotations

import dataclasses
import datetime
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.model import TxnState
from mutation_api.errors import (
    ConfigurationError,
    LockNotAcquiredError,
    PartitionCreationError,
    RecordLayoutError,
    RecordSequenceError,
    RecordValueError,
    RowIdNotFoundError,
    TableNotMutableError,
    TransactionStateError,
)
from mutation_api.hive.connection import Hive
from mutation_api.merge.merge_report import MergeCounts
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.write.local_plan import MEMORY_BYTES_MIN, LocalOptions
from tests.support.left_threads import no_thread_is_left
from tests.unit.hive.conftest import NAME, MakeHive

MAY = datetime.date(2024, 5, 1)
JUNE = datetime.date(2024, 6, 1)

Row = tuple[int, str, str, datetime.date]


def rows(*given: Row) -> pa.Table:
    """Rows to append."""
    ids, items, prices, days = zip(*given, strict=True) if given else ((), (), (), ())
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "item": pa.array(items, pa.string()),
            "price": pa.array(map(Decimal, prices), pa.decimal128(8, 2)),
            "day": pa.array(days, pa.date32()),
        }
    )


def read(hive: Hive) -> list[tuple[Any, ...]]:
    """All rows, ordered."""
    with hive.snapshot(NAME) as view:
        found = view.table(NAME).scan().to_arrow().to_pylist()
    return sorted((r["id"], r["item"], str(r["price"]), *list(r.values())[3:]) for r in found)


FIRST = (1, "tea", "3.50", MAY), (2, "coffee", "4.20", MAY), (3, "water", "1.00", JUNE)


@pytest.fixture(params=["2.3", "3.1", "4.1"])
def hive(request: pytest.FixtureRequest, make_hive: MakeHive) -> Hive:
    """A table with three rows."""
    connected = make_hive(request.param)
    with connected.transaction(NAME, create_partitions=True) as tx:
        assert tx.table(NAME).append(rows(*FIRST)) == 3
    return connected


@pytest.mark.thorough(1)
def test_the_calls_of_a_transaction_are_visible_at_its_end(hive: Hive) -> None:
    """Inserts, updates, deletes and a merge of one table."""
    with hive.transaction(NAME, create_partitions=True) as tx:
        orders = tx.table(NAME.upper())
        dearer = orders.scan(row_ids=True, where=pc.field("item") == "coffee").to_arrow()
        water = orders.scan(columns=["id"], row_ids=True, where=pc.field("id") == 3).to_arrow()
        source = rows((1, "green tea", "5.00", MAY), (4, "juice", "2.50", JUNE))
        merge = orders.merge(source, on=["id"]).when_matched_update_all().when_not_matched_insert_all()
        report = merge.execute()
        assert report.total == MergeCounts(1, 1, 0, 0, 0)
        at = dearer.schema.get_field_index("price")
        price = pa.array([Decimal("9.00")], pa.decimal128(8, 2))
        assert orders.update(dearer.set_column(at, "price", price)) == 1
        assert orders.append(rows((5, "milk", "1.10", MAY))) == 1
        assert orders.append(rows((6, "milk", "1.20", JUNE))) == 1
        assert orders.delete(water) == 1
        assert read(hive) == sorted(FIRST)
    (summary,) = tx.summary.tables
    assert (summary.inserted, summary.updated, summary.deleted) == (3, 2, 1)
    assert read(hive) == [
        (1, "green tea", "5.00", MAY),
        (2, "coffee", "9.00", MAY),
        (4, "juice", "2.50", JUNE),
        (5, "milk", "1.10", MAY),
        (6, "milk", "1.20", JUNE),
    ]


@pytest.mark.thorough(1)
def test_a_block_that_raises_changes_nothing(hive: Hive, tmp_path: Path) -> None:
    """Nor does a transaction that is aborted, or forgotten when the connection is closed."""
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(KeyError), hive.transaction(NAME) as tx:
        tx.table(NAME).append(rows((7, "x", "1.00", MAY)))
        raise KeyError
    with hive.transaction(NAME) as tx:
        tx.table(NAME).append(rows((7, "x", "1.00", MAY)))
        tx.abort()
    assert tx.summary.state == "aborted"
    forgotten = hive.transaction(NAME).begin()
    forgotten.table(NAME).append(rows((7, "x", "1.00", MAY)))
    assert read(hive) == sorted(FIRST)
    hive.close()
    assert forgotten.summary.state == "aborted"
    assert sorted(tmp_path.rglob("*")) == files


def whole(hive: Hive, id_: int) -> pa.Table:
    with hive.snapshot(NAME) as view:
        return view.table(NAME).scan(row_ids=True, where=pc.field("id") == id_).to_arrow()


@pytest.mark.thorough(1)
@pytest.mark.parametrize("second", ["update", "delete", "merge"])
def test_a_row_is_changed_once(hive: Hive, second: str) -> None:
    """Whatever calls named it; it is refused and nothing is changed."""
    error = (RecordSequenceError, RowIdNotFoundError)
    with pytest.raises(error, match=r"twice|same|does not contain"), hive.transaction(NAME) as tx:
        orders = tx.table(NAME)
        row = orders.scan(row_ids=True, where=pc.field("id") == 1).to_arrow()
        if second == "merge":
            orders.merge(rows((1, "x", "1.00", MAY)), on=["id"]).when_matched_delete().execute()
        else:
            getattr(orders, second)(row)
        orders.update(row)
    assert read(hive) == sorted(FIRST)


@pytest.mark.thorough
def test_a_merge_that_was_only_described_stops_the_commit(hive: Hive) -> None:
    """Whoever forgets execute() believes that it was done; a dry run is what its user wants."""
    changed = rows((1, "x", "1.00", MAY))
    message = r"default\.orders: .*described but not executed.*\.execute\(\).*Nothing was committed"
    with pytest.raises(TransactionStateError, match=message), hive.transaction(NAME) as tx:
        tx.table(NAME).merge(changed, on="id").when_matched_update_all()
    with hive.transaction(NAME) as tx:
        tx.table(NAME).merge(changed, on="id").when_matched_update_all().dry_run()
    assert read(hive) == sorted(FIRST)
    with hive.transaction(NAME) as tx:
        tx.table(NAME).merge(changed, on="ID").when_matched_delete().execute()
    assert read(hive) == sorted(FIRST)[1:]
    with hive.snapshot(NAME) as view:
        assert view.table(NAME).scan("id").to_arrow().column_names == ["id"]


@pytest.mark.thorough(1)
def test_a_merge_without_changes_leaves_room_for_another(hive: Hive) -> None:
    """It wrote nothing that the other would miss."""
    with hive.transaction(NAME) as tx:
        orders = tx.table(NAME)
        same = orders.merge(rows(FIRST[0]), on=["id"]).when_matched_update_all().execute()
        assert same.total.unchanged == 1
        assert orders.merge(rows(FIRST[0]), on=["id"]).when_matched_delete().execute().total.deleted == 1
    assert len(read(hive)) == 2


FORMS: dict[str, Callable[[pa.Table], object]] = {
    "table": lambda t: t,
    "batch": lambda t: t.combine_chunks().to_batches()[0],
    "reader": lambda t: t.to_reader(),
    "pandas": lambda t: t.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.from_arrow,
    "duckdb": lambda t: duckdb.sql("select * from t"),
    "dictionary": lambda t: t.set_column(1, "ITEM", t["item"].dictionary_encode()),
    "order": lambda t: t.select(["day", "price", "item", "id"]),
    "narrow": lambda t: t.set_column(0, "id", t["id"].cast(pa.int8())),
}


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_whatever_speaks_arrow_goes_in(hive: Hive, form: str) -> None:
    """Several forms in one change set, too: where types differ, values get the column's own."""
    with hive.transaction(NAME) as tx:
        orders = tx.table(NAME)
        assert orders.append(FORMS[form](rows((8, "a", "1.00", MAY)))) == 1
        assert orders.append(rows((9, "b", "2.00", JUNE))) == 1
    assert read(hive)[3:] == [(8, "a", "1.00", MAY), (9, "b", "2.00", JUNE)]


def test_timestamps_of_different_units_are_joined(make_hive: MakeHive) -> None:
    """In the unit that holds their digits."""
    hive = make_hive()
    hive.metastore.create_table(_with_timestamp(hive))
    at = datetime.datetime(2024, 5, 1, 12, 30)
    nanos = pa.array([1714566600000000001], pa.timestamp("ns"))

    def add(*columns: pa.Array) -> None:
        with hive.transaction("default.moments") as tx:
            for column in columns:
                tx.table("default.moments").append(pa.table({"id": [1], "at": column}))

    add(pa.array([at], pa.timestamp("s")), pa.array([at], pa.timestamp("ms")))
    add(nanos)
    add(pa.array([at], pa.timestamp("s")), nanos)
    with hive.snapshot("default.moments") as view:
        table = view.table("default.moments")
        assert table.scan(["at"], truncate_nanoseconds=True).to_arrow()["at"].to_pylist() == [at] * 5
        read = table.scan(["at"], timestamps=TimestampForm.NANOSECONDS).to_arrow()["at"].cast(pa.int64())
        assert sorted(each % 1000 for each in read.to_pylist()) == [0, 0, 0, 1, 1]


def _with_timestamp(hive: Hive) -> Any:
    info = hive.metastore.get_table("default", "orders")
    columns = (info.columns[0], dataclasses.replace(info.columns[1], name="at", type="timestamp"))
    return dataclasses.replace(info, name="moments", columns=columns, partition_keys=(), location="")


@pytest.mark.long
@pytest.mark.parametrize("form", ["column", "array", "chunked", "fields", "polars", "others"])
def test_a_delete_needs_only_row_ids(hive: Hive, form: str) -> None:
    """As a column, or alone; other columns do not count."""
    row = whole(hive, 2)
    row_ids = row["ROW__ID"]
    given: object = {
        "column": row.select(["ROW__ID"]),
        "array": row_ids.combine_chunks(),
        "chunked": row_ids,
        "fields": pa.Table.from_struct_array(row_ids),
        "polars": pl.from_arrow(row)["ROW__ID"],  # type: ignore[index]
        "others": row.append_column("reason", pa.array(["sold"])).rename_columns(
            ["row__id", *row.column_names[1:], "reason"]
        ),
    }[form]
    with hive.transaction(NAME) as tx:
        assert tx.table(NAME).delete(given) == 1
        assert tx.table(NAME).append(rows((2, "new", "1.00", JUNE))) == 1
    assert read(hive)[1] == (2, "new", "1.00", JUNE)


@pytest.mark.thorough(1)
def test_a_delete_may_name_the_partition_by_columns(hive: Hive) -> None:
    """Where ROW__ID does not; also beside changes that have it in ROW__ID."""
    row, other = whole(hive, 2), whole(hive, 3)
    bare = pa.StructArray.from_arrays(
        row["ROW__ID"].combine_chunks().flatten()[:3], fields=list(row.schema.field("ROW__ID").type)[:3]
    )
    with hive.transaction(NAME) as tx:
        orders = tx.table(NAME)
        with pytest.raises(RecordLayoutError, match="day"):
            orders.delete(bare)
        assert orders.delete(pa.table({"ROW__ID": bare, "day": row["day"]})) == 1
        assert orders.delete(other.select(["ROW__ID"])) == 1
    assert read(hive) == [FIRST[0]]


@pytest.mark.thorough(1)
def test_mixed_changes_are_applied(hive: Hive) -> None:
    """Each with its operation; a change set of deletes alone may lack columns, beside others too."""
    row, gone = whole(hive, 1), whole(hive, 3)
    changes = pa.concat_tables(
        [
            row.append_column("op", pa.array(["UPDATE"])).set_column(2, "item", pa.array(["dark tea"])),
            rows((4, "juice", "2.50", JUNE)).append_column("op", pa.array(["insert"])),
        ],
        promote_options="default",
    )
    deletes = pa.table({"op": ["delete"], "ROW__ID": gone["ROW__ID"]})
    with hive.transaction(NAME) as tx:
        orders = tx.table(NAME)
        assert orders.apply(changes, operation_column="op") == 2
        assert orders.apply(deletes, operation_column="op") == 1
        wrong = deletes.set_column(0, "op", pa.array(["update"]))
        with pytest.raises(RecordLayoutError, match="lacks the columns id, item, price;"):
            orders.apply(wrong, operation_column="op")
    assert [r[1] for r in read(hive)] == ["dark tea", "coffee", "juice"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("call", "columns", "message"),
    [
        ("append", ["id", "item", "price"], "lacks the .*day"),
        ("append", ["id", "price", "day"], "lacks the columns item"),
        ("update", ["id", "item", "price", "day"], "updates need ROW__ID"),
        ("update", ["ROW__ID", "id", "price", "day"], "whole new row; it lacks item"),
        ("update", ["ROW__ID", "id", "item", "price"], "whole new row; it lacks day"),
        ("delete", ["id", "day"], "deletes need ROW__ID"),
        ("apply", ["ROW__ID", "id"], "no column 'operation'"),
    ],
)
def test_wrong_columns_are_refused_at_once(hive: Hive, call: str, columns: list[str], message: str) -> None:
    """The transaction goes on."""
    row = whole(hive, 1).select(columns)
    with hive.transaction(NAME) as tx:
        with pytest.raises(RecordLayoutError, match=message):
            getattr(tx.table(NAME), call)(row)
        with pytest.raises(RecordLayoutError, match="incompatible types"):
            tx.table(NAME).append(rows(FIRST[0]).set_column(2, "price", pa.array([b"x"])))
        with pytest.raises(RecordLayoutError, match="list"):
            tx.table(NAME).append([1, 2])
    assert read(hive) == sorted(FIRST)


@pytest.mark.thorough(1)
@pytest.mark.parametrize("call", ["append", "merge"])
def test_the_index_of_a_filtered_frame_is_named(hive: Hive, call: str) -> None:
    """It is told from other columns, and without it the rows are taken."""
    given = rows((1, "tea", "3.50", MAY), (4, "milk", "1.00", MAY)).to_pandas()
    given = given[given.id > 1]

    def change(frame: pd.DataFrame) -> None:
        with hive.transaction(NAME) as tx:
            orders = tx.table(NAME)
            if call == "append":
                orders.append(frame)
            else:
                orders.merge(frame, on=["id"]).when_not_matched_insert_all().execute()

    message = "__index_level_0__ is the index of a pandas DataFrame.* reset_index.drop=True. removes it$"
    with pytest.raises(
        RecordLayoutError, match=f"(does not have|not in the table).*: __index_level_0__[;.] .*{message}"
    ):
        change(given)
    change(given.reset_index(drop=True))
    assert read(hive) == sorted([*FIRST, (4, "milk", "1.00", MAY)])


def test_the_commit_refuses_wrong_values(hive: Hive) -> None:
    """And nothing is changed."""
    with pytest.raises(RecordValueError, match="price"), hive.transaction(NAME) as tx:
        orders = tx.table(NAME)
        orders.append(rows((8, "a", "1.00", MAY)))
        wide = pa.array([Decimal("1234567.00")], pa.decimal128(12, 2))
        orders.append(rows((9, "a", "1.00", MAY)).set_column(2, "price", wide))
    with pytest.raises(PartitionCreationError, match="2030"), hive.transaction(NAME) as tx:
        tx.table(NAME).append(rows((8, "a", "1.00", datetime.date(2030, 1, 1))))
    assert read(hive) == sorted(FIRST)
    assert tx.summary.state == "aborted"


@pytest.mark.thorough(1)
def test_row_ids_are_looked_up_if_wanted(hive: Hive) -> None:
    """For those that were not read in the transaction."""
    stale = whole(hive, 1)
    with hive.transaction(NAME) as tx:
        tx.table(NAME).delete(stale)
    with pytest.raises(RowIdNotFoundError), hive.transaction(NAME) as tx:
        tx.table(NAME).delete(stale, verify_row_ids=True)
    with pytest.raises(RowIdNotFoundError), hive.transaction(NAME) as tx:
        tx.table(NAME).update(stale, verify_row_ids=True)


@pytest.mark.long
def test_changes_that_do_not_fit_wait_in_a_file(make_hive: MakeHive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is gone with the transaction."""
    opened: list[Any] = []
    real = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **how: opened.append(real(**how)) or opened[-1])
    hive = make_hive(local=LocalOptions(memory_bytes=MEMORY_BYTES_MIN))
    wide = "x" * 1000
    with hive.transaction(NAME, create_partitions=True) as tx:
        for start in range(0, 1000, 100):
            added = rows(*((start + n, wide, "1.00", MAY) for n in range(100)))
            assert tx.table(NAME).append(added) == 100
        own = [file for file in opened if not file.closed]
        assert own
    assert all(file.closed for file in own)
    assert [row[0] for row in read(hive)] == list(range(1000))


@pytest.mark.thorough(1)
def test_two_tables_are_changed_together(hive: Hive) -> None:
    """And a third is only read."""
    for name in ("copies", "other"):
        info = hive.metastore.get_table("default", "orders")
        hive.metastore.create_table(dataclasses.replace(info, name=name, location=""))
    with hive.transaction("default.copies", "default.other", read=[NAME], create_partitions=True) as tx:
        orders = tx.table(NAME)
        tx.table("default.copies").append(orders.scan(row_ids=True))
        tx.table("default.other").append(orders.scan(where=pc.field("id") > 1).to_arrow())
        with pytest.raises(TransactionStateError, match="only read"):
            orders.append(rows(FIRST[0]))
    with hive.snapshot("default.copies", "default.other") as view:
        assert view.table("default.copies").scan().count() == 3
        assert view.table("default.other").scan().count() == 2


def test_names_must_make_sense(make_hive: MakeHive) -> None:
    """Tables are declared first."""
    hive = make_hive()
    with pytest.raises(ConfigurationError, match="at least one table"):
        hive.transaction()
    with pytest.raises(ConfigurationError, match="full name"):
        hive.transaction("orders")
    with pytest.raises(ConfigurationError, match="at least one table"):
        hive.snapshot()
    with hive.transaction(NAME) as tx, pytest.raises(ConfigurationError, match="not part"):
        tx.table("default.others")
    with hive.snapshot(NAME) as view, pytest.raises(ConfigurationError, match="not in this snapshot"):
        view.table("default.others")


def test_what_is_over_is_over(hive: Hive) -> None:
    """Tables and scans of a transaction or snapshot work as long as it is open."""
    for user in (hive.transaction(NAME), hive.snapshot(NAME)):
        with pytest.raises(TransactionStateError, match="with statement"):
            user.table(NAME)
        with user:
            table = user.table(NAME)
            scan = table.scan()
            assert scan.count() == 3
        with pytest.raises(TransactionStateError):
            scan.to_arrow()
        with pytest.raises(TransactionStateError):
            table.scan()
        with pytest.raises(TransactionStateError), user:
            pass
    with pytest.raises(TransactionStateError), hive.transaction(NAME) as tx:
        orders = tx.table(NAME)
        tx.commit()
        orders.append(rows(FIRST[0]))
    hive.close()
    with pytest.raises(TransactionStateError, match="closed"):
        hive.transaction(NAME)
    with pytest.raises(TransactionStateError, match="closed"):
        hive.snapshot(NAME)


def test_a_failure_to_begin_leaves_nothing(make_hive: MakeHive) -> None:
    """No lock, no thread; the error is that of the metastore."""
    hive = make_hive("2.3", lock_timeout_seconds=0.05)
    with hive.transaction(NAME):
        locks = hive.metastore.show_locks("default", "orders")
        with no_thread_is_left(), pytest.raises(LockNotAcquiredError), hive.transaction(NAME):
            pass
        assert hive.metastore.show_locks("default", "orders") == locks
    with pytest.raises(TableNotMutableError, match="does not exist"), hive.transaction("default.nope"):
        pass
    with pytest.raises(TableNotMutableError, match="does not exist"), hive.snapshot("default.nope"):
        pass
    assert not [txn for txn in hive.metastore.get_open_txns().txns if txn.state is TxnState.OPEN]
