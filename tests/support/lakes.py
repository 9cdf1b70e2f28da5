"""Places for targets, and their rows as readers of the formats return them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from judges.duckdb_reader import duckdb_rows

KINDS = ("delta", "iceberg")


class Lake:
    """A folder with targets of one format; Iceberg's catalog is SQLite."""

    def __init__(self, folder: Path, kind: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.kind = folder, kind
        self.options = {}
        if kind == "iceberg":
            uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}"
            self.options = {"type": "sql", "uri": uri, "warehouse": warehouse}

    @property
    def words(self) -> list[str]:
        """The options as words of the command."""
        return [word for pair in self.options.items() for word in ("--target-conf", "=".join(pair))]

    def address(self, table: str = "orders") -> str:
        """The address of a target."""
        return f"delta:{self.folder}/{table}" if self.kind == "delta" else f"iceberg:lake.copies.{table}"

    def arrow(self, table: str = "orders") -> pa.Table:
        """The rows of a target, as deltalake or pyiceberg reads them."""
        if self.kind == "delta":
            return DeltaTable(str(self.folder / table)).to_pyarrow_table()
        return self.iceberg(table).scan().to_arrow()

    def iceberg(self, table: str = "orders") -> Any:
        """A table of Iceberg's catalog."""
        return load_catalog("lake", **self.options).load_table(f"copies.{table}")

    def rows(self, table: str = "orders") -> list[str]:
        """The rows, as strings in order."""
        return in_order(self.arrow(table))

    def by_duckdb(self, columns: str, table: str = "orders") -> list[Any]:
        """Columns of a target, as DuckDB reads them."""
        source = f"delta_scan('{self.folder / table}')"
        if self.kind == "iceberg":
            source = f"iceberg_scan('{self.iceberg(table).metadata_location.removeprefix('file://')}')"
        return duckdb_rows(f"SELECT {columns} FROM {source}")


def in_order(rows: pa.Table) -> list[str]:
    """Rows as strings, sorted."""
    return sorted(map(str, rows.select(sorted(rows.column_names)).to_pylist()))
