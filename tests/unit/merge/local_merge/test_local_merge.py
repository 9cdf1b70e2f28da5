"""Merges of Arrow data in memory: who may be given, what is refused and how it reads."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client import ColumnInfo
from metastore_client.testing import HIVE_3_1, InMemoryMetastore
from mutation_api import (
    ConfigurationError,
    DuplicateKeyError,
    MergeCounts,
    MutationError,
    MutatorClient,
    MutatorClientBuilder,
    RecordLayoutError,
    RecordValueError,
    TableNotMutableError,
    TableScan,
    Transaction,
    UnsupportedLocallyError,
    create_acid_table,
    first_by,
    open_table,
)
from mutation_api.merge.local_merge import LocalMerge, local_merge
from mutation_api.merge.merge_report import DUE_DIRECTORIES
from mutation_api.write.apply import apply_arrow
from mutation_api.write.local_plan import LocalOptions

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("name", "varchar(5)"), ColumnInfo("price", "decimal(6,2)"))
DAY = ColumnInfo("day", "date")
D1, D2, D3 = (datetime.date(2024, 5, day) for day in (1, 2, 3))
ROWS = [
    {"id": 1, "name": "tea", "price": 3, "day": D1},
    {"id": 2, "name": "juice", "price": 4, "day": D1},
    {"id": 3, "name": None, "price": None, "day": D2},
]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[MutatorClient]:
    """A client of ``default.t``, which has ROWS, and of ``default.log``, which is insert-only."""
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_3_1)
    create_acid_table(
        metastore, "default.t", COLUMNS, partitioned_by=[DAY], clustered_by=["id"], num_buckets=2
    )
    create_acid_table(metastore, "default.log", COLUMNS, insert_only=True)
    builder = MutatorClientBuilder().metastore(metastore)
    for name in ("t", "log"):
        builder = builder.add_sink_table(f"default.{name}", create_partitions=True)
    with builder.build() as made:
        with made.new_transaction() as transaction:
            rows = table(ROWS).append_column("operation", pa.array(["insert"] * len(ROWS)))
            apply_arrow(transaction, "default.t", rows)
        yield made


def table(rows: list[dict[str, Any]], **types: pa.DataType) -> pa.Table:
    """Rows with the types of the table, or others."""
    known = {"id": pa.int64(), "name": pa.string(), "price": pa.decimal128(8, 3), "day": pa.date32(), **types}
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: pa.array([row.get(name) for row in rows], known.get(name)) for name in names})


def rows_of(client: MutatorClient) -> list[tuple[Any, ...]]:
    """The rows, sorted."""
    with client.open_snapshot("default.t") as view:
        found = TableScan(open_table(view, "default.t")).to_arrow().to_pylist()
    return sorted(((row["id"], row["name"], row["price"], row["day"]) for row in found), key=str)


def upsert(transaction: Transaction, source: object, **options: Any) -> LocalMerge:
    """Update what matches and insert the rest, by id."""
    merge = local_merge(transaction, "default.t", source=source, on=["id"], **options)
    return merge.when_matched_update_all().when_not_matched_insert_all()


def test_all_outcomes(client: MutatorClient) -> None:
    """Updated, moved, unchanged, inserted and deleted rows, and a partition that is new."""
    source = table(
        [
            {"id": 1, "name": "tea", "price": 5, "day": D1},
            {"id": 2, "name": "juice", "price": 4, "day": D3},
            {"id": 3, "name": None, "price": None, "day": D2},
            {"id": 4, "name": "new", "price": 1, "day": D2},
        ]
    )
    with client.new_transaction() as transaction:
        report = upsert(transaction, source).execute()
    assert report.total == MergeCounts(inserted=1, updated=1, moved=1, unchanged=1)
    assert report.new_partitions == ("day=2024-05-03",)
    assert report.written is not None
    assert [row[0] for row in rows_of(client)] == [1, 2, 3, 4]
    assert rows_of(client)[1][3] == D3


def test_conditions_and_values(client: MutatorClient) -> None:
    """Expressions over both sides, names of columns, and plain values; a row that only the table has."""
    source = table([{"id": 1, "gone": True}, {"id": 2, "gone": False}, {"id": 9, "gone": False}])
    with client.new_transaction() as transaction:
        report = (
            local_merge(transaction, "default.t", source=source, on=["ID"])
            .when_matched_delete("gone")
            .when_matched_update(
                {"PRICE": pc.field("target", "price") * pc.scalar(Decimal(2)), "name": pc.scalar("x")}
            )
            .when_not_matched_insert({"id": "id", "day": D2, "price": 7})
            .when_not_matched_by_source_update(
                {"name": "target.name", "price": 1}, when=pc.field("target", "id") == 3
            )
            .execute()
        )
    assert report.total == MergeCounts(inserted=1, updated=2, deleted=1)
    assert [(i, n, p and float(p)) for i, n, p, _ in rows_of(client)] == [
        (2, "x", 8.0),
        (3, None, 1.0),
        (9, None, 7.0),
    ]


def test_a_dry_run_writes_nothing(client: MutatorClient) -> None:
    """It reports what the merge would do, with samples by the least key."""
    before = rows_of(client)
    with client.new_transaction() as transaction:
        source = table(
            [{"id": 1, "name": "x", "price": 1, "day": D1}, {"id": 8, "name": "y", "price": 1, "day": D3}]
        )
        report = upsert(transaction, source).dry_run()
    assert report.total == MergeCounts(inserted=1, updated=1)
    assert (report.file_count, report.is_dry_run, report.written) == (3, True, None)
    assert [str(each) for each in report.samples] == [
        'inserted in day=2024-05-03 {"id":8}: id 8, name "y", price "1", day "2024-05-03"',
        'updated in day=2024-05-01 {"id":1}: name "tea" → "x", price "3" → "1"',
    ]
    assert rows_of(client) == before


def test_the_first_of_several_counts(client: MutatorClient) -> None:
    """By the columns of first_by; NULL is last in descending order."""
    rows = [
        {"id": 1, "name": n, "price": 1, "day": D1, "seq": s} for n, s in (("a", 1), ("b", 3), ("c", None))
    ]
    rows += [{"id": 7, "name": n, "price": 1, "day": D1, "seq": s} for n, s in (("d", None), ("e", 0))]
    with client.new_transaction() as transaction:
        upsert(transaction, table(rows), on_duplicate=first_by(("seq", "descending"))).execute()
    assert {row[0]: row[1] for row in rows_of(client) if row[0] in (1, 7)} == {1: "b", 7: "e"}


BAD = [
    (
        [{"id": 1, "name": "a", "price": 1, "day": D1}, {"id": 1, "name": "b", "price": 1, "day": D1}],
        {},
        DuplicateKeyError,
        r"1 key has more than one source row that would act, .*\(id=1\) in 2 rows: \{",
    ),
    (
        [{"id": 7, "name": "a", "price": 1, "day": D1}, {"id": 7, "name": "b", "price": 1, "day": D1}],
        {},
        DuplicateKeyError,
        r"1 key has more than one source row",
    ),
    (
        [{"id": 1, "name": "a", "price": 10_000, "day": D1}],
        {},
        RecordValueError,
        r"table default\.t: row \{\"id\":1\}: column 'price' \(decimal\(6,2\)\)",
    ),
    (
        [{"id": 1, "extra": 1}],
        {},
        RecordLayoutError,
        "columns that are not in the table and that no condition reads: extra",
    ),
    (
        [{"id": 1}],
        {"missing_columns": "error"},
        RecordLayoutError,
        "the source lacks the columns name, price, day",
    ),
    ([{"name": "a"}], {}, RecordLayoutError, "the source has no key column id"),
    ([{"id": 1}], {"on_duplicate": "first"}, ConfigurationError, "on_duplicate must be .*, got 'first'"),
    (
        [{"id": 1}],
        {"on_duplicate": first_by("seq")},
        ConfigurationError,
        "first_by .*expected a column of the source",
    ),
    ([{"id": 1}], {"count_by": "x"}, RecordLayoutError, "count_by='x'"),
]


@pytest.mark.thorough(1)
@pytest.mark.parametrize(("rows", "options", "error", "message"), BAD)
def test_what_is_refused(
    client: MutatorClient,
    rows: list[dict[str, Any]],
    options: dict[str, Any],
    error: type[MutationError],
    message: str,
) -> None:
    """Before anything is written, naming table, key and what to do."""
    before = rows_of(client)
    with pytest.raises(error, match=message), client.new_transaction() as transaction:
        upsert(transaction, table(rows), **options).execute()
    assert rows_of(client) == before


def test_types_that_cannot_be_compared(client: MutatorClient) -> None:
    """A key of another kind is refused, and so are values that can never be stored."""
    with client.new_transaction() as transaction:
        with pytest.raises(RecordLayoutError, match=r"key column 'id': .*cannot be compared"):
            source = table([{"id": "1"}], id=pa.string())
            local_merge(transaction, "default.t", source=source, on=["id"]).when_matched_delete().execute()
        with pytest.raises(
            RecordLayoutError, match=r"column 'price' \(decimal\(6,2\)\) cannot hold bool values"
        ):
            upsert(transaction, table([{"id": 1, "price": True}], price=pa.bool_())).execute()
        with pytest.raises(RecordLayoutError, match="must be boolean"):
            local_merge(transaction, "default.t", source=table([{"id": 1}]), on=["id"]).when_matched_delete(
                "id"
            ).execute()
        with pytest.raises(RecordLayoutError, match="no clauses"):
            local_merge(transaction, "default.t", source=table([{"id": 1}]), on=["id"]).execute()


def test_conditions_in_sql(client: MutatorClient) -> None:
    """Over both sides; a column without a side is the source's, or that of the only side with such rows."""
    source = table(
        [
            {"id": 1, "name": "tea", "price": Decimal("9.5"), "gone": "y"},
            {"id": 2, "name": "mate", "price": Decimal("9.5")},
            {"id": 8, "name": "rum", "price": Decimal("1.5")},
            {"id": 9, "name": "gin", "price": Decimal("2.5"), "day": D2},
        ]
    )
    before = {row[0]: row for row in rows_of(client)}
    with client.new_transaction() as transaction:
        report = (
            local_merge(transaction, "default.t", source=source, on=["id"])
            .when_matched_delete("false")
            .when_matched_delete("gone = 'y' OR source.gone = 'Y' AND target.day IS NULL")
            .when_matched_update({"name": "name"}, when="SOURCE.price > `target`.price AND name LIKE 'm%'")
            .when_not_matched_insert_all(when="name IN ('gin', 'rum') AND price >= 2")
            .when_not_matched_by_source_update({"name": pc.scalar("old")}, when="NOT id BETWEEN 4 AND 9")
            .execute()
        )
    assert report.total == MergeCounts(inserted=1, updated=2, deleted=1)
    names = {row[0]: row[1] for row in rows_of(client)}
    assert names == {2: "mate", 3: "old", 9: "gin"}
    assert [*before] == [1, 2, 3]


def test_sql_that_is_refused(client: MutatorClient) -> None:
    """Unknown columns, SQL that only Spark interprets, and a failure in a row."""
    with client.new_transaction() as transaction:
        source = table([{"ID": 1, "op": "D", "n": 2**62}])
        merge = local_merge(transaction, "default.t", source=source, on=["id"])
        with pytest.raises(
            RecordLayoutError,
            match=r"default\.t: the condition 'oops = 1' cannot be resolved over source \(id, op, n\) and "
            r"target \(id, name, price, day\): column oops does not exist",
        ):
            merge.when_matched_delete("oops = 1")
        with pytest.raises(
            RecordLayoutError,
            match=r"the condition 'gone' cannot be resolved over target \(id, name, price, day\)",
        ):
            merge.when_not_matched_by_source_delete("gone")
        with pytest.raises(RecordLayoutError, match=r"target.cost does not exist\. A constant string is pc"):
            merge.when_matched_update({"price": "target.cost * 2"})
        with pytest.raises(
            UnsupportedLocallyError,
            match=r"table default\.t: only Spark can interpret the condition .upper\(op\) = 'D'., because of "
            r'the function upper\. Pass an Arrow expression, such as pc\.field\("source", "id"\) > 1, or '
            r"merge with Spark: merge_into, or hive-mutate merge with --engine spark",
        ):
            merge.when_matched_delete("upper(op) = 'D'")
        assert merge.clauses == []
        with pytest.raises(RecordLayoutError, match=r"must be boolean, got int64"):
            merge.when_matched_delete("n + 1")
        merge.when_matched_delete("n * 4 > 1")
        with pytest.raises(RecordValueError, match=r"cannot be evaluated for a row: overflow"):
            merge.execute()


def test_keys_that_would_be_cut(client: MutatorClient) -> None:
    """A key that is stored as another one may be that of an existing row."""
    source = table([{"id": 5, "name": "tea", "price": "1.005", "day": D1}], price=pa.string())
    source = source.set_column(2, "price", source["price"].cast(pa.decimal128(8, 3)))
    with client.new_transaction() as transaction:
        merge = local_merge(transaction, "default.t", source=source, on=["price"])
        with pytest.raises(
            RecordValueError, match=r"keys to insert would be stored as different keys.*price="
        ):
            merge.when_not_matched_insert_all().execute()


def test_insert_only_tables_take_inserts(client: MutatorClient) -> None:
    """What is there stays; anything else is refused."""
    rows = table([{"id": 1, "name": "a", "price": 1}])
    for expected in (1, 0):
        with client.new_transaction() as transaction:
            merge = local_merge(transaction, "default.log", source=rows, on=["id"])
            assert merge.when_not_matched_insert_all().execute().total.inserted == expected
    with client.new_transaction() as transaction, pytest.raises(TableNotMutableError, match="insert-only"):
        local_merge(transaction, "default.log", source=rows, on=["id"]).when_matched_delete().execute()


def test_counts_by_a_column_of_the_source(client: MutatorClient) -> None:
    """Rows without a source row count under None."""
    rows = [
        {"id": 1, "name": "x", "price": 1, "day": D1, "op": "U"},
        {"id": 8, "name": "y", "price": 1, "day": D1, "op": "I"},
    ]
    with client.new_transaction() as transaction:
        report = upsert(transaction, table(rows), count_by="OP").when_not_matched_by_source_delete().execute()
    assert report.counts_by == {
        "U": MergeCounts(updated=1),
        "I": MergeCounts(inserted=1),
        None: MergeCounts(deleted=2),
    }


def test_a_source_that_is_too_large(client: MutatorClient) -> None:
    """It is refused with the setting to change, before the table is read."""
    source = table([{"id": 1, "name": "x" * (1 << 20), "price": 1, "day": D1}] * 2)
    refused = pytest.raises(ConfigurationError, match=r"the source would need more .*memory_bytes=…")
    with client.new_transaction() as transaction, refused:
        upsert(transaction, source, local=LocalOptions(memory_bytes=1 << 20))


@pytest.mark.thorough
def test_the_report_says_when_compaction_is_due(client: MutatorClient) -> None:
    """After so many deltas that merges take long; a compaction is Hive's to make."""
    found = []
    for number in range(DUE_DIRECTORIES // 2 + 1):
        with client.new_transaction() as transaction:
            source = table([{**ROWS[0], "name": str(number)}])
            found.append(upsert(transaction, source).execute())
    assert not any(report.compactions_due for report in found[:-1])
    day = f"day={D1}"
    assert found[-1].compactions_due == {day: DUE_DIRECTORIES + 1}
    assert f"compaction is due: {day} has {DUE_DIRECTORIES + 1} delta directories" in str(found[-1])
