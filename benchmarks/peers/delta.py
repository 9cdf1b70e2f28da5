"""delta-rs: its own engine in Rust, on all cores; a merge writes the files anew that hold matched rows."""

from __future__ import annotations

import functools

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.data.suite_clauses import ITEM, ORDER, add_clauses


def version() -> str:
    """Name and version."""
    return f"deltalake {deltalake.__version__}"


def load(folder: str, base: str) -> None:
    """Write a table of the rows in Parquet files, everything as delta-rs chooses."""
    deltalake.write_deltalake(folder, ds.dataset(base).scanner().to_reader())


def load_with_feed(folder: str, base: str) -> None:
    """The same with a change data feed, for which each later commit writes further files."""
    deltalake.write_deltalake(
        folder,
        ds.dataset(base).scanner().to_reader(),
        configuration={"delta.enableChangeDataFeed": "true"},
    )


def changes(folder: str, version: int) -> int:
    """Read the changes of a version and all later ones into memory, and return their number."""
    reader = deltalake.DeltaTable(folder).load_cdf(starting_version=version)
    return int(pa.table(reader).num_rows)


def rows_of(folder: str, low: int, high: int) -> int:
    """Read the rows of a range of ids by Polars, and return their number."""
    frame = pl.scan_delta(_opened(folder))
    wanted = pl.col("id") == low if low == high else pl.col("id").is_between(low, high)
    return len(frame.filter(wanted).collect())


def count_rows(folder: str) -> int:
    """Count the rows by Polars."""
    return int(pl.scan_delta(_opened(folder)).select(pl.len()).collect().item())


@functools.cache
def _opened(folder: str) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(folder)


def merge(folder: str, changes: str) -> None:
    """Merge a Parquet file of changes by id."""
    (
        deltalake.DeltaTable(folder)
        .merge(
            ds.dataset(changes).scanner().to_reader(),
            predicate="source.id = target.id",
            source_alias="source",
            target_alias="target",
        )
        .when_matched_delete(predicate="source.op = 'D'")
        .when_matched_update_all(except_cols=["op"])
        .when_not_matched_insert_all(except_cols=["op"])
        .execute()
    )


def merge_suite(folder: str, changes: str, clauses: str) -> None:
    """Merge a Parquet file by one of the sets of clauses of ``merge_suite``."""
    found = deltalake.DeltaTable(folder).merge(
        ds.dataset(changes).scanner().to_reader(),
        predicate=" and ".join(f"source.{name} = target.{name}" for name in (ITEM, ORDER)),
        source_alias="source",
        target_alias="target",
    )
    add_clauses(found, clauses)
    found.execute()


def files(folder: str) -> list[str]:
    """Parquet files of the newest version."""
    return list(deltalake.DeltaTable(folder).file_uris())


def delete(folder: str, condition: str) -> None:
    """Delete rows by a condition."""
    deltalake.DeltaTable(folder).delete(condition)


def count(folder: str) -> int:
    """Rows of the newest version."""
    return int(deltalake.DeltaTable(folder).count())
