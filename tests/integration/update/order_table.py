"""A table of many types in each kind of source, random transactions on it, and its rows as Hive has to show
them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from metastore_client.model import ColumnInfo
from tests.support.shops import Source

COLUMNS = (
    ColumnInfo("region", "string"),
    ColumnInfo("id", "bigint"),
    ColumnInfo("item", "varchar(40)"),
    ColumnInfo("amount", "decimal(12,2)"),
    ColumnInfo("weight", "double"),
    ColumnInfo("placed", "timestamp"),
    ColumnInfo("seen", "timestamp"),
    ColumnInfo("blob", "binary"),
    ColumnInfo("note", "string"),
)
DAY = ColumnInfo("day", "date")

CREATE = {
    "postgresql": (
        "CREATE TABLE orders (region text NOT NULL, id bigint NOT NULL, item varchar(40), "
        "amount numeric(12,2), weight double precision, placed timestamp, seen timestamptz, blob bytea, "
        "note jsonb, "
        "day date NOT NULL, PRIMARY KEY (region, id))"
    ),
    "mysql": (
        "CREATE TABLE orders (region VARCHAR(8) CHARACTER SET latin1 NOT NULL, id BIGINT NOT NULL, item "
        "VARCHAR(40), "
        "amount DECIMAL(12,2), weight DOUBLE, placed DATETIME(6), seen TIMESTAMP(6) NULL, `blob` BLOB, "
        "note TEXT, "
        "day DATE NOT NULL, PRIMARY KEY (region, id))"
    ),
    "sqlite": (
        "CREATE TABLE orders (region TEXT NOT NULL, id INTEGER NOT NULL, item TEXT, amount TEXT, weight "
        "REAL, placed TEXT, "
        "seen TEXT, blob BLOB, note TEXT, day TEXT NOT NULL, PRIMARY KEY (region, id))"
    ),
}

REGIONS = ("nörd", "süd", "Süd")
IDS = 30


@dataclass(frozen=True)
class Order:
    """A row."""

    region: str
    id: int
    item: str | None
    amount: Decimal | None
    weight: float | None
    placed: datetime | None
    blob: bytes | None
    day: date

    @classmethod
    def random(cls, rng: random.Random) -> Order:
        """Any row of the few keys."""
        return cls(
            rng.choice(REGIONS[:2]),
            rng.randrange(IDS),
            rng.choice((None, "tea", "кофе", "it's", "a\\b")),
            rng.choice((None, Decimal(rng.randrange(10**9)).scaleb(-2))),
            rng.choice((None, rng.uniform(-1e9, 1e9), 0.1)),
            rng.choice((None, datetime(2024, 5, rng.randrange(1, 28), 12, 30, 15, rng.randrange(10**6)))),
            rng.choice((None, rng.randbytes(3))),
            date(2024, 5, rng.randrange(1, 4)),
        )

    def literals(self, kind: str) -> list[str]:
        """The values of all columns, as SQL."""
        placed = "NULL" if self.placed is None else f"'{self.placed.isoformat(' ', 'microseconds')}'"
        blob = (
            "NULL"
            if self.blob is None
            else {"postgresql": f"'\\x{self.blob.hex()}'"}.get(kind, f"x'{self.blob.hex()}'")
        )
        seen = placed if kind != "postgresql" or placed == "NULL" else f"{placed[:-1]}+00'"
        return [
            f"'{self.region}'",
            str(self.id),
            _quoted(self.item, kind),
            "NULL" if self.amount is None else (f"'{self.amount}'" if kind == "sqlite" else str(self.amount)),
            "NULL" if self.weight is None else repr(self.weight),
            placed,
            seen,
            blob,
            "'{\"a\": 1}'",
            f"'{self.day}'",
        ]


def _quoted(text: str | None, kind: str) -> str:
    if text is None:
        return "NULL"
    escaped = text.replace("'", "''")
    return f"'{escaped}'" if kind != "mysql" else "'" + escaped.replace("\\", "\\\\") + "'"


NAMES = [column.name for column in (*COLUMNS, DAY)]
_UPSERT = {
    "postgresql": "ON CONFLICT (region, id) DO UPDATE SET item = EXCLUDED.item, amount = EXCLUDED.amount",
    "mysql": "ON DUPLICATE KEY UPDATE item = VALUES(item), amount = VALUES(amount)",
    "sqlite": "ON CONFLICT (region, id) DO UPDATE SET item = excluded.item, amount = excluded.amount",
}


def quoted_names(kind: str) -> str:
    """The column names, as SQL."""
    mark = "`" if kind == "mysql" else '"'
    return ", ".join(f"{mark}{name}{mark}" for name in NAMES)


def statement(rng: random.Random, kind: str) -> str:
    """A random statement of one or many rows; a duplicate key is never an error."""
    order = Order.random(rng)
    values = f"({', '.join(order.literals(kind))})"
    key = f"region = '{order.region}' AND id = {order.id}"
    free = IDS + rng.randrange(10**9)
    choices = [
        f"INSERT INTO orders ({quoted_names(kind)}) VALUES {values} {_UPSERT[kind]}",
        f"DELETE FROM orders WHERE {key}",
        f"DELETE FROM orders WHERE id BETWEEN {order.id} AND {order.id + 3}",
        f"UPDATE orders SET item = 'changed', amount = 1.25 WHERE id % 7 = {rng.randrange(7)}",
        f"UPDATE orders SET id = {free} WHERE {key}",
        f"UPDATE orders SET day = '2024-05-0{rng.randrange(1, 4)}' WHERE {key}",
        f"UPDATE orders SET region = 'S' WHERE {key} AND id < 0",
    ]
    if kind == "mysql":
        choices.append(f"REPLACE INTO orders ({quoted_names(kind)}) VALUES {values}")
    return rng.choices(choices, weights=[6, 2, 1, 1, 1, 1, 1, 2][: len(choices)])[0]


def source_rows(source: Source) -> list[tuple[Any, ...]]:
    """The rows of the source as plain values, sorted."""
    seen = {"postgresql": "(seen AT TIME ZONE 'UTC')", "mysql": "CONVERT_TZ(seen, @@time_zone, '+00:00')"}
    note = {"postgresql": "note::text"}.get(source.kind, "note")
    names = quoted_names(source.kind).split(", ")
    selected = [*names[:6], seen.get(source.kind, "seen"), names[7], note, names[9]]
    return in_order(source.rows(f"SELECT {', '.join(selected)} FROM orders"))


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows as they can be compared and sorted."""
    return sorted((tuple(_plain(index, value) for index, value in enumerate(row)) for row in rows), key=str)


def _plain(index: int, value: Any) -> Any:
    if value is None:
        return None
    name = NAMES[index]
    if name in ("placed", "seen"):
        return datetime.fromisoformat(str(value))
    if name == "day":
        return date.fromisoformat(str(value))
    if name == "amount":
        return Decimal(str(value)).quantize(Decimal("0.01"))
    return bytes(value) if name == "blob" else value
