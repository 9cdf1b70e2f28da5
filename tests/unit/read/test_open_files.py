"""Many deltas in one bucket, and faults of the machine that reads: no file is called damaged for them."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import connect
from mutation_api.errors import CorruptFileError, ReadError
from mutation_api.orc.read import open_files
from mutation_api.orc.read.open_files import OPEN_FILES
from mutation_api.upkeep import verify_table
from mutation_api.upkeep.create_acid_table import create_acid_table

TABLE = "default.t"
SPARE_FILES = 40
"""That a process may open besides those that it has open."""


@contextmanager
def few_files() -> Iterator[None]:
    """The process may open few files more."""
    open_now = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before, OPEN_FILES.limit = OPEN_FILES.limit, SPARE_FILES // 4
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + SPARE_FILES, hard))
    try:
        with mock.patch.object(open_files, "SMALL_FILE_BYTES", 0):  # none is read whole and closed
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        OPEN_FILES.limit = before


def written(folder: Path, deltas: int) -> InMemoryMetastore:
    """A table of one bucket; each delta has rows, and the first few are changed again."""
    metastore = InMemoryMetastore(folder / "warehouse", capabilities=HIVE_4_1)
    columns = [ColumnInfo("id", "bigint"), ColumnInfo("item", "string")]
    create_acid_table(metastore, TABLE, columns, clustered_by=["id"], num_buckets=1)
    with connect(metastore) as hive:
        for number in range(deltas):
            with hive.transaction(TABLE) as tx:
                tx.table(TABLE).append(pa.table({"id": [2 * number, 2 * number + 1], "item": ["a", "b"]}))
        for _ in range(3):
            with hive.transaction(TABLE) as tx:
                rows = tx.table(TABLE).scan(row_ids=True, where=pc.field("id") < 10).to_arrow()
                at = rows.schema.get_field_index("item")
                tx.table(TABLE).update(rows.set_column(at, "item", pa.array(["c"] * len(rows))))
    return metastore


@pytest.mark.thorough
@pytest.mark.parametrize("deltas", [120, pytest.param(1_100, marks=[pytest.mark.slow, pytest.mark.long])])
def test_more_deltas_than_files_may_be_open(tmp_path: Path, deltas: int) -> None:
    """Scans, rows of given keys, and the check of all files."""
    metastore = written(tmp_path, deltas)
    with few_files(), connect(metastore) as hive:
        with hive.snapshot(TABLE) as view:
            found = view.table(TABLE).scan().to_arrow().sort_by("id")
            assert found["id"].to_pylist() == list(range(2 * deltas))
            assert found["item"].to_pylist() == ["c"] * 10 + ["a", "b"] * (deltas - 5)
            one = view.table(TABLE).scan(where=pc.field("id") == 2 * deltas - 1).to_arrow()
            assert one["item"].to_pylist() == ["b"]
        source = pa.table({"id": [3, 2 * deltas - 2], "item": ["x", "y"]})
        with hive.transaction(TABLE) as tx:
            merge = tx.table(TABLE).merge(source, on=["id"]).when_matched_update_all()
            assert merge.execute().total.updated == 2
        assert not verify_table(metastore, TABLE).findings


def test_too_many_open_files_are_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is of this machine; verify does not advise to bring the file back from a copy."""
    metastore = written(tmp_path, 2)

    def refuse(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("mutation_api.orc.read.orc_input.open_file", refuse)
    with connect(metastore) as hive, hive.snapshot(TABLE) as view:
        with pytest.raises(
            ReadError, match=r"the file itself may be intact: .*Too many open files"
        ) as caught:
            view.table(TABLE).scan().to_arrow()
        assert not isinstance(caught.value, CorruptFileError)
    with pytest.raises(ReadError, match="the file itself may be intact"):
        verify_table(metastore, TABLE)
