"""Change and read a table as Arrow data, without Spark, as a small service or a notebook does.

    python -m examples.without_spark [METASTORE_URI]

A shop keeps its orders in a Hive table. A delivery of orders is appended, rows are deleted and updated by a
condition, and corrections are upserted by key. Then the rows are read again as Arrow data. Every library that
supports Arrow works the same way: pandas, Polars, DuckDB.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import date
from decimal import Decimal

import pyarrow as pa

from examples.local import create_table, metastore_address
from mutation_api import Hive, connect

TABLE = "default.orders"
PRICE = pa.decimal128(8, 2)


def main(arguments: Sequence[str]) -> int:
    """Fill the table, change it, and read it. Return 0 if it holds the expected rows."""
    with metastore_address(arguments) as uri:
        create_table(uri, TABLE, "id bigint, item string, price decimal(8,2)", "day date", "id", 4)
        with connect(uri) as hive:
            fill(hive)
            change(hive)
            rows = read(hive)
    print(f"the table holds {rows}")
    return 0 if rows == [("coffee", "5.20"), ("green tea", "3.50"), ("juice", "2.50")] else 1


def orders(*rows: tuple[int, str, str, date]) -> pa.Table:
    """Return rows as Arrow data with the table's columns."""
    ids, items, prices, days = zip(*rows, strict=True)
    price = pa.array([Decimal(text) for text in prices], PRICE)
    return pa.table({"id": ids, "item": items, "price": price, "day": days})


def fill(hive: Hive) -> None:
    """Append rows. Missing partitions are created."""
    with hive.transaction(TABLE, create_partitions=True) as transaction:
        transaction.table(TABLE).append(
            orders(
                (1, "tea", "3.50", date(2024, 5, 1)),
                (2, "coffee", "4.20", date(2024, 5, 1)),
                (3, "water", "1.00", date(2024, 5, 2)),
            )
        )
    print(transaction.summary)


def change(hive: Hive) -> None:
    """Delete, update and upsert rows; each change is one transaction: all or nothing."""
    table = hive.table(TABLE)
    table.delete(where="price < 2")
    table.update(set={"price": "price + 1"}, where="item = 'coffee'")
    corrections = orders((1, "green tea", "3.50", date(2024, 5, 1)), (4, "juice", "2.50", date(2024, 5, 3)))
    report = table.upsert(corrections, on=["id"], create_partitions=True)
    print(f"upserted: {report.total}")


def read(hive: Hive) -> list[tuple[str, str]]:
    """Return the items and prices of all rows in a snapshot."""
    with hive.snapshot(TABLE) as view:
        rows = view.table(TABLE).scan(["item", "price"]).to_arrow().sort_by("item")
    return [(row["item"], str(row["price"])) for row in rows.to_pylist()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
