"""ingest with schema="add": columns that the schemas of Debezium's messages have, and Hive lacks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import LocalOptions, connect
from mutation_api.cdc import (
    DebeziumSource,
    FlattenedMessages,
    HistoryMapping,
    LogOptions,
    MaxwellSource,
    PositionSource,
    TableMapping,
    ingest,
)
from mutation_api.cdc.messages.events import Event, LoggedEvent, Place
from mutation_api.cdc.messages.new_columns import SchemaPlaces, added_later, hive_type_of
from mutation_api.cdc.messages.order import Order
from mutation_api.errors import ConfigurationError, MutationError, RecordLayoutError
from mutation_api.upkeep.create_acid_table import create_acid_table

NAME, HISTORY = "default.orders", "default.orders_history"
MAPPING = TableMapping("shop.orders", NAME, ("id",))
OLD = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "note"},
]
Field = Mapping[str, Any]


def added(name: str, kind: str, semantic: str | None = None, **others: Any) -> Field:
    """A nullable column."""
    named = {} if semantic is None else {"name": semantic}
    return {"type": kind, "optional": True, **named, "field": name, **others}


PRICE = added(
    "Price",
    "bytes",
    "org.apache.kafka.connect.data.Decimal",
    parameters={"scale": "2", "connect.decimal.precision": "9"},
)


class Shop:
    """A log, and the table that follows it."""

    def __init__(self, place: Path) -> None:
        self.metastore = InMemoryMetastore(place / "warehouse", capabilities=HIVE_4_1)
        self.log = place / "log"
        self.log.mkdir()
        self.create(NAME)
        self._position = 0

    def create(self, name: str, *columns: ColumnInfo) -> None:
        infos = [ColumnInfo("id", "bigint"), ColumnInfo("note", "string"), *columns]
        create_acid_table(self.metastore, name, infos, clustered_by=["id"], num_buckets=1)

    def write(self, fields: Sequence[Field] | None, *rows: Mapping[str, Any], flat: bool = False) -> None:
        """Append a file of messages; without fields they have no schema."""
        lines = []
        for row in rows:
            self._position += 1
            source = {"db": "shop", "table": "orders", "file": "bin.000001", "pos": self._position, "row": 0}
            source |= {"ts_ms": 1000 * self._position, "connector": "mysql"}
            value: Any = {"op": "c", "before": None, "after": row, "source": source}
            schema: Any = {"type": "struct", "fields": [{"field": "after", "fields": list(fields or ())}]}
            if flat:
                value, schema = {**row, "__op": "c", "__deleted": "false"}, {"type": "struct"}
                schema["fields"] = [*(fields or ()), added("__op", "string"), added("__deleted", "string")]
            lines.append(json.dumps(value if fields is None else {"schema": schema, "payload": value}))
        path = self.log / f"orders-{self._position}.json"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def ingest(self, *mappings: Any, schema: Any = "add", source: Any = None, **options: Any) -> Any:
        source = source or DebeziumSource(self.log, "erp")
        return ingest(
            self.metastore, mappings or [MAPPING], source, schema=schema, local=LocalOptions(), **options
        )

    def types(self, name: str = NAME) -> dict[str, str]:
        table = self.metastore.get_table(*name.split("."))
        return {column.name: column.type for column in table.columns}

    def rows(self, name: str = NAME, *columns: str) -> list[tuple[Any, ...]]:
        with connect(self.metastore) as hive, hive.snapshot(name) as view:
            found = view.table(name).scan(list(columns) or None).to_arrow().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=repr)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.mark.thorough
def test_columns_are_added_with_their_types(shop: Shop) -> None:
    """Rows of messages from before a column was added are NULL in it, in one run with those after."""
    shop.write(OLD, {"id": 1, "note": "a"})
    shop.ingest()
    fields = [*OLD, PRICE, added("day", "int32", "io.debezium.time.Date")]
    shop.write(OLD, {"id": 2, "note": "b"})
    shop.write(fields, {"id": 3, "note": "c", "Price": "ANI=", "day": 3})
    tried = shop.ingest(dry_run=True)
    assert list(shop.types()) == ["id", "note"] and tried.tables[0].merge.total.inserted == 2
    with pytest.raises(RecordLayoutError, match="does not have this column"):
        shop.ingest(schema="exact")
    shop.ingest()
    assert shop.types() == {"id": "bigint", "note": "string", "price": "decimal(9,2)", "day": "date"}
    assert shop.rows() == [
        (1, "a", None, None),
        (2, "b", None, None),
        (3, "c", Decimal("2.10"), date(1970, 1, 4)),
    ]
    assert shop.ingest().position is None
    shop.write(fields, {"id": 4, "note": "d", "Price": None, "day": None})
    shop.ingest(schema="exact")


def test_a_run_that_died_after_the_alteration_goes_on(shop: Shop) -> None:
    """The column is no longer new, but rows from before it are still NULL in it."""
    shop.write(OLD, {"id": 1, "note": "a"})
    shop.write([*OLD, added("n", "int32")], {"id": 2, "note": "b", "n": 7})
    with connect(shop.metastore) as hive:
        hive.alter_table(NAME, add={"n": "int"})
    shop.ingest()
    assert shop.rows() == [(1, "a", None), (2, "b", 7)]


def test_all_targets_get_the_columns(shop: Shop) -> None:
    """A history too; a column that the user leaves out is not added."""
    interval = (ColumnInfo("valid_from", "timestamp"), ColumnInfo("valid_to", "timestamp"))
    shop.create(HISTORY, *interval, ColumnInfo("log_position", "string"))
    shop.write(
        [*OLD, added("n", "int32"), added("secret", "string")], {"id": 1, "note": "a", "n": 1, "secret": "x"}
    )
    options = LogOptions(ignored_columns={"shop.orders.secret"})
    source = DebeziumSource(shop.log, "erp", options=options)
    shop.ingest(MAPPING, HistoryMapping("shop.orders", HISTORY), source=source)
    assert list(shop.types()) == ["id", "note", "n"]
    assert shop.types(HISTORY)["n"] == "int"
    assert shop.rows(HISTORY, "id", "n", "valid_from") == [(1, 1, datetime(1970, 1, 1, 0, 0, 1))]


@pytest.mark.parametrize("positions", [PositionSource.AUTO, PositionSource.LINE])
def test_flattened_messages(shop: Shop, positions: PositionSource) -> None:
    """Their metadata are not columns."""
    shop.write([*OLD, added("n", "boolean")], {"id": 1, "note": "a", "n": True}, flat=True)
    flattened = FlattenedMessages(table="shop.orders")
    options = LogOptions(positions=positions)
    shop.ingest(source=DebeziumSource(shop.log, "flat", flattened=flattened, options=options))
    assert shop.rows() == [(1, "a", True)]


def test_a_column_that_may_be_renamed_is_not_added(shop: Shop) -> None:
    """Nor one that disappears again: the messages are refused, as without the option."""
    shop.write([OLD[0], added("remark", "string")], {"id": 1, "remark": "a"})
    with pytest.raises(RecordLayoutError, match="does not have this column"):
        shop.ingest()
    assert list(shop.types()) == ["id", "note"]
    (shop.log / "orders-1.json").unlink()
    shop.write([*OLD, added("n", "int32")], {"id": 1, "note": "a", "n": 1})
    shop.write(OLD, {"id": 2, "note": "b"})
    with pytest.raises(RecordLayoutError, match=r"n: default\.orders does not have this column"):
        shop.ingest()
    assert list(shop.types()) == ["id", "note"]


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("field", "message"),
    [
        (added("n", "int32", default=5), "with a value in the rows that it had"),
        ({"type": "int32", "optional": False, "field": "n"}, "with a value in the rows that it had"),
        (added("n", "struct", "io.debezium.data.VariableScaleDecimal"), "any number of digits"),
        (added("n", "int99"), "Hive has no type for it"),
        (None, "messages have no schema, so the types"),
    ],
    ids=range(5),
)
def test_what_is_refused(shop: Shop, field: Field | None, message: str) -> None:
    """Nothing is altered or written."""
    shop.write(OLD, {"id": 1, "note": "a"})
    shop.ingest()
    shop.write(None if field is None else [*OLD, field], {"id": 2, "note": "b", "n": 1})
    with pytest.raises(RecordLayoutError, match=message):
        shop.ingest()
    assert (list(shop.types()), shop.rows()) == (["id", "note"], [(1, "a")])


def test_messages_that_do_not_describe_their_columns(shop: Shop) -> None:
    """Maxwell's and Canal's."""
    with pytest.raises(ConfigurationError, match=r"but those of maxwell do not\. Add columns with"):
        shop.ingest(source=MaxwellSource(shop.log, "erp"))


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (added("n", "int16"), "smallint"),
        (added("n", "int64", "io.debezium.time.MicroTimestamp"), "timestamp"),
        (added("n", "int64", "io.debezium.time.MicroTime"), "string"),
        (added("n", "string", "io.debezium.data.Uuid"), "string"),
        (added("n", "int32", "io.debezium.time.Year"), "int"),
        (added("n", "bytes", "io.debezium.data.Bits", parameters={"length": "11"}), "bigint"),
        (added("n", "bytes", "io.debezium.data.Bits", parameters={"length": "64"}), "binary"),
        (added("n", "array"), "string"),
        (added("n", "float"), "float"),
    ],
    ids=range(9),
)
def test_types(field: Field, expected: str) -> None:
    """The type that holds all values of the source's column."""
    assert hive_type_of("t", field) == expected


def test_decimals_without_digits() -> None:
    """Are refused: a decimal of Hive has a number of digits."""
    without: Any = {**PRICE, "parameters": {"scale": "2"}}
    with pytest.raises(MutationError, match="does not have the number of digits"):
        hive_type_of("t", without)


@pytest.mark.parametrize(
    ("messages", "is_added"),
    [
        ([("old", 0, 1, None), ("new", 0, 2, None), ("new", 1, 1, None)], True),
        ([("old", 0, 1, None), ("new", 0, 2, None), ("new", 1, 1, None), ("old", 1, 2, None)], False),
        ([("new", 0, 1, None), ("old", 1, 9, None)], True),
        ([("new", 0, 1, (1, 4, 0)), ("old", 1, 9, (1, 8, 0))], False),
        ([("old", 0, 1, (1, 4, 0)), ("new", 1, 1, (1, 8, 0))], True),
    ],
    ids=range(5),
)
def test_the_order_of_schemas_in_partitions(messages: Any, is_added: bool) -> None:
    """In one partition by offsets, in several by positions in the log too, if all messages have one."""
    fields = {"old": OLD, "new": [*OLD, added("n", "int32")]}
    places = SchemaPlaces()
    for name, part, offset, log in messages:
        event = Event("row", op="insert", log_position=log, schema=json.dumps({"fields": fields[name]}))
        places.add(LoggedEvent(Place(part, offset), event), part)
    order = Order(PositionSource.LINE, "", is_partitioned=True)
    assert added_later(places, order) == ({"n"} if is_added else set())
