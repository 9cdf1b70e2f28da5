"""Logs of JSON messages: what Debezium, Maxwell and Canal share."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mutation_api.cdc.messages.canal import CanalSource
from mutation_api.cdc.messages.debezium import DebeziumSource
from mutation_api.cdc.messages.events import LogOptions
from mutation_api.cdc.messages.maxwell import MaxwellSource
from mutation_api.cdc.messages.message_source import MessageSource
from mutation_api.cdc.source import OPERATION, POSITION, LocalBatch, Position, SourceTable
from mutation_api.errors import (
    ConfigurationError,
    InputFormatError,
    MutationError,
    RecordLayoutError,
    RecordValueError,
    SourcePositionError,
)
from mutation_api.table.acid_table import AcidTable
from tests.support.json_messages import (
    CHANGES,
    FIRST,
    HUGE,
    MOVED,
    ORDERS,
    Change,
    canal,
    debezium,
    in_order,
    maxwell,
    small_table,
    write_log,
)

SEED = 20240601
SMALL = small_table(("id", "bigint"), ("price", "decimal(6,2)"))

Kind = Callable[..., MessageSource]
Writer = Callable[..., str]
KINDS: Sequence[tuple[Kind, Writer]] = (
    (MaxwellSource, maxwell),
    (CanalSource, canal),
    (DebeziumSource, debezium),
)


def read(
    kind: Kind,
    folder: Path,
    target: AcidTable = ORDERS,
    key: tuple[str, ...] = (),
    after: Position | None = None,
    **options: Any,
) -> LocalBatch:
    log = kind(folder, "test", options=LogOptions(**options))
    known = {} if after is None else {"shop.orders": after}
    return log.read_local([SourceTable("shop.orders", target, key)], known)


def operations(batch: LocalBatch) -> list[tuple[Any, ...]]:
    """Operations in their order, without their positions."""
    (table,) = batch.tables
    return in_order(table)


def row(values: dict[str, Any] | None, key: int | None = None) -> tuple[Any, ...]:
    return (key, *[None] * 6) if values is None else tuple(values.values())


EXPECTED = [
    ("insert", *row(FIRST)),
    ("insert", *row(HUGE)),
    ("delete", *row(None, 2**63 - 1)),
    ("insert", *row(MOVED)),
    ("update", *row({**FIRST, "note": "new"})),
    ("delete", *row(None, 7)),
]


@pytest.mark.parametrize(("kind", "writer"), KINDS)
def test_one_workload_in_all_formats(tmp_path: Path, kind: Kind, writer: Writer) -> None:
    """The operations are the same, every digit of them; a changed key is a delete and an insert."""
    batch = read(kind, write_log(tmp_path, [writer(change) for change in CHANGES]))
    assert operations(batch) == EXPECTED
    assert batch.tables[0].table.key == ("id",)
    first = next(iter(batch.tables[0].operations))
    assert first.schema.names == [OPERATION, POSITION, *ORDERS.column_names, *ORDERS.partition_key_names]


@pytest.mark.slow
def test_tasks_of_spark_read_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Range by range: operations, positions and the key; and what is wrong in a range."""
    folder = write_log(tmp_path, [debezium(change) for change in CHANGES])
    here = read(DebeziumSource, folder)
    monkeypatch.setattr("mutation_api.cdc.messages.json_lines.RANGE_BYTES", 5000)
    source, table = DebeziumSource(folder, "test"), SourceTable("shop.orders", ORDERS)
    batch = source.read(spark, [table], {})
    assert batch.position == here.position
    (found,) = batch.tables
    assert found.table == here.tables[0].table
    rows = [tuple(row)[:1] + tuple(row)[2:] for row in found.operations.orderBy(POSITION).collect()]
    assert [tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in rows] == EXPECTED
    (path,) = folder.iterdir()
    path.write_text(path.read_text() + "\n{")
    with pytest.raises(
        InputFormatError, match=rf"^{path}, line {len(CHANGES) + 1}: a message is spread over several lines"
    ):
        source.read(spark, [table], {})


def test_places_in_the_log_order_operations_whatever_the_files(tmp_path: Path) -> None:
    """Binlog files count by their numbers; what lies at or before the watermark is left out."""
    texts = [maxwell(change) for change in CHANGES]
    folder = write_log(tmp_path, texts[3:], [texts[2]], [texts[1], texts[0], ""])
    whole = read(MaxwellSource, folder)
    assert operations(whole) == EXPECTED
    assert whole.position is not None
    assert whole.position.order[:3] == (1_000_000, 4, 0)
    (table,) = whole.tables
    places = [tuple(each.values()) for b in table.operations for each in b.column(POSITION).to_pylist()]
    second = sorted(places)[1]
    after = Position(second, whole.position.text)
    rest = read(MaxwellSource, folder, after=after)
    assert operations(rest) == EXPECTED[2:]
    nothing = read(MaxwellSource, folder, after=whole.position)
    assert (nothing.tables, nothing.position) == ((), None)
    other = Position(whole.position.order, json.dumps({"by": "message", "log": "other-bin", "at": []}))
    with pytest.raises(SourcePositionError, match=r"positions in other-bin.*positions in master.*replaced"):
        read(MaxwellSource, folder, after=other)


TRUNCATES: Sequence[tuple[Kind, Writer, str]] = (
    (
        CanalSource,
        canal,
        '{"database": "shop", "table": "orders", "type": "TRUNCATE", "isDdl": true, "data": null, '
        '"old": null, "sql": "TRUNCATE TABLE orders"}',
    ),
    (
        DebeziumSource,
        debezium,
        '{"source": {"connector": "mysql", "name": "erp", "db": "shop", "table": "orders", '
        '"file": "mysql-bin.000010", "pos": 60, "row": 0, "snapshot": "false"}, "op": "t"}',
    ),
)


@pytest.mark.parametrize(("kind", "writer", "truncate"), TRUNCATES)
def test_truncates_are_applied_for_who_asks(
    tmp_path: Path, kind: Kind, writer: Writer, truncate: str
) -> None:
    """Only what came later is left; the position is behind the truncate, even if nothing came."""
    lines = [writer(change) for change in CHANGES]
    folder = write_log(tmp_path, [*lines[:3], truncate])
    with pytest.raises(
        InputFormatError, match=r"line 4: truncate of shop\.orders.*choose to apply truncates"
    ):
        read(kind, folder)
    batch = read(kind, folder, applies_truncates=True)
    assert batch.tables[0].is_emptied
    assert operations(batch) == []

    write_log(tmp_path, [*lines[:3], truncate, *lines[3:]])
    batch = read(kind, folder, after=batch.position, applies_truncates=True)
    assert not batch.tables[0].is_emptied
    assert operations(batch) == EXPECTED[4:]
    batch = read(kind, folder, applies_truncates=True)
    assert batch.tables[0].is_emptied
    assert operations(batch) == EXPECTED[4:]
    assert read(kind, folder, after=batch.position).position is None


def test_order_of_lines(tmp_path: Path) -> None:
    """Without positions the numbers of files and the lines order operations: 2 comes before 10."""
    texts = [maxwell(change, position=None) for change in CHANGES]
    for number, lines in ((2, texts[:2]), (10, texts[2:])):
        (tmp_path / f"part-{number}.json").write_text("\n".join(lines), encoding="utf-8")
    batch = read(MaxwellSource, tmp_path)
    assert operations(batch) == EXPECTED
    assert batch.position is not None
    (tmp_path / "other-2.json").write_text(texts[0], encoding="utf-8")
    with pytest.raises(InputFormatError, match=r"other-2\.json and .*part-2\.json have the same number 2"):
        read(MaxwellSource, tmp_path)


def simple(operation: str, before: dict[str, Any] | None, after: dict[str, Any] | None, place: int) -> str:
    return maxwell(Change(operation, before, after, 1, place))


ROW = {"id": 1, "price": Decimal("1.25")}
GOOD = simple("insert", None, ROW, 4)


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        (GOOD[:-1], InputFormatError, "not one whole JSON message"),
        (simple("insert", None, {"id": 2}, 5), RecordLayoutError, "field price: the message does not have"),
        (
            simple("insert", None, {**ROW, "odd": 1}, 5),
            RecordLayoutError,
            "field odd: sales.small does not have this column",
        ),
        (
            simple("insert", None, {**ROW, "id": None}, 5),
            RecordValueError,
            "field id: a key column must not be NULL",
        ),
        (
            simple("insert", None, {**ROW, "id": 2**63}, 5),
            RecordValueError,
            "field id: '9223372036854775808'",
        ),
        (
            simple("insert", None, {**ROW, "price": Decimal("1.125")}, 5),
            RecordValueError,
            "field price: '1.125' is not a number of at most 4 digits before and 2 after",
        ),
        (
            GOOD.replace("1.25", "1.2345678901234567890E+1"),
            RecordValueError,
            "field price: the value has a number with more digits",
        ),
        (
            maxwell(Change("insert", None, ROW, 1, 5), position=None),
            InputFormatError,
            "1 of 2 messages have one",
        ),
        (
            maxwell(Change("insert", None, ROW, 1, 5), position="other.000001:5"),
            SourcePositionError,
            "several logs, .*: master; other",
        ),
        (
            json.dumps({"type": "table-alter", "database": "shop", "table": "orders", "sql": "alter x"}),
            InputFormatError,
            "schema change of shop.orders: alter x; change the target in the same way",
        ),
    ],
)
def test_refused(tmp_path: Path, line: str, error: type[MutationError], message: str) -> None:
    """What is wrong is refused, naming file, line and field."""
    with pytest.raises(error, match=message) as refused:
        operations(read(MaxwellSource, write_log(tmp_path, [GOOD, line]), SMALL))
    if error is not SourcePositionError:
        assert f"{tmp_path}/log-1.json, line 2" in str(refused.value)


def test_what_the_user_says_of_columns_and_schemas(tmp_path: Path) -> None:
    """Columns that are left out or may be missing, keys by name, and changes that the target followed."""
    lines = [
        simple("insert", None, {"ID": 1}, 4),
        json.dumps(
            {"type": "table-alter", "database": "shop", "table": "orders", "position": "master.000001:5"}
        ),
        simple("update", {"ID": 1}, {"ID": 1, "Price": Decimal(2), "odd": [1]}, 6),
    ]
    batch = read(
        MaxwellSource,
        write_log(tmp_path, lines),
        SMALL,
        ("ID",),
        ignored_columns=["shop.orders.odd"],
        null_if_missing=["shop.orders.price"],
        accepts_schema_changes=True,
    )
    assert operations(batch) == [("insert", 1, None), ("update", 1, Decimal(2))]
    assert batch.tables[0].table.key == ("id",)


def test_a_default_stands_for_what_messages_lack(tmp_path: Path) -> None:
    """In inserts and updates, not in deletes, and never for a NULL that is given."""
    target = small_table(("id", "bigint"), ("price", "decimal(9,2)"), ("note", "varchar(9)"))
    columns = (target.columns[0], replace(target.columns[1], default="1.5"), target.columns[2])
    rows = [{"ID": 1}, {"id": 2, "price": None}, {"id": 3, "Price": 2}]
    changes = [Change("insert", None, row | {"note": "a"}, 1, place) for place, row in enumerate(rows, 1)]
    changes.append(Change("delete", {"id": 9}, None, 1, 9))
    folder = write_log(tmp_path, [maxwell(each) for each in changes])
    with_default = replace(target, columns=columns)
    batch = read(
        MaxwellSource,
        folder,
        with_default,
        ("id",),
        default_if_missing=["shop.orders.PRICE", "other.table.x"],
    )
    assert operations(batch) == [
        ("insert", 1, Decimal("1.50"), "a"),
        ("insert", 2, None, "a"),
        ("insert", 3, Decimal("2.00"), "a"),
        ("delete", 9, None, None),
    ]
    with pytest.raises(
        RecordLayoutError, match=r"price: the message does not have this column.*--default-if"
    ):
        operations(read(MaxwellSource, folder, with_default, ("id",)))
    with pytest.raises(ConfigurationError, match=r"note.*no DEFAULT for such a column \(columns .*: price\)"):
        read(MaxwellSource, folder, with_default, ("id",), default_if_missing=["shop.orders.note"])


def test_tables_and_keys_that_are_not_clear(tmp_path: Path) -> None:
    """No key is named; a key that the target does not have; a table twice; no such file."""
    folder = write_log(tmp_path, [maxwell(Change("insert", None, ROW, 1, 4), primary_key_columns=None)])
    with pytest.raises(ConfigurationError, match=r"the messages have no key; name the columns"):
        read(MaxwellSource, folder, SMALL)
    with pytest.raises(RecordLayoutError, match=r"sales\.small lacks key columns code"):
        read(MaxwellSource, folder, SMALL, ("code",))
    table = SourceTable("shop.orders", SMALL)
    log = MaxwellSource(folder, "test")
    with pytest.raises(ConfigurationError, match=r"listed twice: shop\.orders"):
        log.read_local([table, table], {})
    with pytest.raises(ConfigurationError, match="does not exist"):
        MaxwellSource(tmp_path / "none", "test").read_local([table], {})
    empty = tmp_path / "empty"
    empty.mkdir()
    assert MaxwellSource(empty, "test").read_local([table], {}) == LocalBatch((), None)


@pytest.mark.parametrize(("kind", "writer"), KINDS[:1])
def test_logs_are_read_right_or_refused(tmp_path: Path, kind: Kind, writer: Writer) -> None:
    """Lines in another order or read twice, and files cut in pieces, give what the log says."""
    chance = random.Random(SEED)
    texts = [writer(change) for change in CHANGES] * 2
    chance.shuffle(texts)
    batch = read(kind, write_log(tmp_path, texts[:3], texts[3:4], texts[4:]))
    found = operations(batch)
    assert [each for i, each in enumerate(found) if each not in found[:i]] == EXPECTED
