"""pyiceberg, with a catalog in SQLite. Its upsert knows no deletes, so these are left out."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog

TABLE = "default.peer"


def version() -> str:
    """Name and version."""
    return f"pyiceberg {pyiceberg.__version__}"


def load(folder: str, base: str) -> None:
    """Write a table of the rows in Parquet files."""
    rows = pq.read_table(base)
    Path(folder).mkdir(parents=True)
    catalog = _catalog(folder)
    catalog.create_namespace("default")
    catalog.create_table(TABLE, schema=rows.schema).append(rows)


def upsert(folder: str, changes: str) -> None:
    """Upsert the updates and inserts of a Parquet file of changes by id."""
    rows = pq.read_table(changes)
    rows = rows.filter(pc.not_equal(rows["op"], "D")).drop_columns(["op"])
    _catalog(folder).load_table(TABLE).upsert(rows, join_cols=["id"])


def files(folder: str) -> list[str]:
    """Parquet files of the newest version."""
    return [task.file.file_path for task in _catalog(folder).load_table(TABLE).scan().plan_files()]


def _catalog(folder: str) -> SqlCatalog:
    return SqlCatalog("peer", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
