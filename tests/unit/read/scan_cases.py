"""Directories of tables for the tests of scans, written as Hive 2 writes them."""

from __future__ import annotations

from pathlib import Path

from mutation_api.read.directory_scan import open_directory
from mutation_api.read.table_view import TableView
from tests.support.acid_files import inserts, write_events

DAYS = ("2015-11-19", "2015-11-20", "__HIVE_DEFAULT_PARTITION__")
SCHEMA = "id bigint, msg string"


def partitioned_directory(root: Path) -> Path:
    """Three days of one hour, spelled 01, with a row each: ids 1 to 3."""
    for id_, day in enumerate(DAYS, 1):
        path = root / "t" / f"ds={day}" / "hr=01" / "delta_0000001_0000001/bucket_00000"
        write_events(path, inserts(1, 0, 0, [(id_, f"m{id_}")]))
    return root / "t"


def partitioned_view(root: Path) -> TableView:
    """The same with typed partition columns: ds date, hr int."""
    return open_directory(partitioned_directory(root), SCHEMA, partition_schema="ds date, hr int")


def plain_view(root: Path, row_count: int = 3) -> TableView:
    """A table without partition keys; ids from 0 on."""
    rows = [(n, f"m{n}") for n in range(row_count)]
    write_events(root / "p" / "delta_0000001_0000001/bucket_00000", inserts(1, 0, 0, rows))
    return open_directory(root / "p", SCHEMA)
