"""Change and read a table as Arrow data, without Spark, as a small service or a notebook does.

    python -m examples.without_spark [METASTORE_URI]

A shop keeps its orders in a Hive table. A delivery of orders is appended, corrections are merged by key, and
rows that a scan found are updated and deleted. All changes of a block are one transaction. Then the rows are
read again as Arrow data. Every library that supports Arrow works the same way: pandas, Polars, DuckDB.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

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
    """Merge by key, then change rows by their ROW__ID, as one change set: all or nothing."""
    corrections = orders((1, "green tea", "3.50", date(2024, 5, 1)), (4, "juice", "2.50", date(2024, 5, 3)))
    with hive.transaction(TABLE, create_partitions=True) as transaction:
        table = transaction.table(TABLE)
        merge = table.merge(corrections, on=["id"])
        report = merge.when_matched_update_all().when_not_matched_insert_all().execute()
        print(f"merged: {report.total}")
        coffee = table.scan(where=pc.field("item") == "coffee", row_ids=True).to_arrow()
        dearer = pc.add(coffee["price"], pa.scalar(Decimal("1.00"), PRICE)).cast(PRICE)
        table.update(coffee.set_column(coffee.schema.get_field_index("price"), "price", dearer))
        table.delete(table.scan(columns=[], where=pc.field("price") < Decimal(2), row_ids=True))


def read(hive: Hive) -> list[tuple[str, str]]:
    """Return the items and prices of all rows in a snapshot."""
    with hive.snapshot(TABLE) as view:
        rows = view.table(TABLE).scan(["item", "price"]).to_arrow().sort_by("item")
    return [(row["item"], str(row["price"])) for row in rows.to_pylist()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
