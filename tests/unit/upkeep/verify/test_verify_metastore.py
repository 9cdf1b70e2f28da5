"""What only a metastore can tell: partitions it does not know, and numbers of rows that it calls accurate."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_client.testing import HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.errors import ConfigurationError, TableNotMutableError
from mutation_api.hive.connect import connect
from mutation_api.upkeep.history import table_history
from mutation_api.upkeep.verify.verify import VerifyProgress, verify_table
from tests.support.client_support import table_info

PARTITION = "ds=a/hr=1"


@pytest.fixture
def metastore(tmp_path: Path) -> InMemoryMetastore:
    """Hive 3.1 with a partitioned table t of four rows, and an unpartitioned one u of two."""
    metastore = InMemoryMetastore(warehouse=tmp_path, capabilities=HIVE_3_1)
    metastore.create_table(table_info("t", location=f"file:{tmp_path}/t"))
    metastore.create_table(
        table_info(
            "u",
            partitioned=False,
            location=f"file:{tmp_path}/u",
            parameters={
                "transactional": "true",
                "numRows": "3",
                "COLUMN_STATS_ACCURATE": '{"BASIC_STATS":"true"}',
            },
        )
    )
    with connect(metastore) as hive, hive.transaction("default.t", create_partitions=True) as tx:
        tx.table("default.t").append(_rows([1, 2, 3, 4], ds=["a"] * 4, hr=[1, 1, 2, 2]))
    return metastore


def _rows(ids: list[int], **keys: list[object]) -> object:
    return pa.table({"id": pa.array(ids, pa.int32()), "msg": ["x"] * len(ids), **keys})


def test_a_sound_table(metastore: InMemoryMetastore) -> None:
    """All partitions are examined, progress is told, and nothing stays locked."""
    told: list[VerifyProgress] = []
    report = verify_table(metastore, "default.t", progress=told.append)
    assert (report.findings, report.row_count, report.partition_count) == ((), 4, 2)
    assert told[-1].file_count == told[-1].total_file_count == report.file_count
    assert told[-1].byte_count == told[-1].total_byte_count == report.byte_count
    assert metastore.show_locks() == []


def test_a_partition_that_the_metastore_does_not_know(metastore: InMemoryMetastore, tmp_path: Path) -> None:
    """Its rows are never read; staged and empty directories are no partitions."""
    table = tmp_path / "t"
    shutil.copytree(table / PARTITION, table / "ds=z" / "hr=9")
    (table / "ds=y" / "hr=1").mkdir(parents=True)
    (table / "_mutation_7" / "ds=x").mkdir(parents=True)
    (finding,) = verify_table(metastore, "default.t").findings
    assert (finding.rule_name, finding.location.path) == ("unregistered-partition", f"{table}/ds=z/hr=9")
    assert finding.is_damage


def test_a_table_without_partitions(metastore: InMemoryMetastore, tmp_path: Path) -> None:
    """Nothing is read but the table's own directory, whether it is there or not."""
    metastore.create_table(table_info("v", location=f"file:{tmp_path}/v"))
    assert verify_table(metastore, "default.v").is_sound
    shutil.rmtree(tmp_path / "v", ignore_errors=True)
    assert verify_table(metastore, "default.v").is_sound


def test_a_missing_partition_is_a_notice(metastore: InMemoryMetastore, tmp_path: Path) -> None:
    """Hive reads it as one without rows."""
    shutil.rmtree(tmp_path / "t" / PARTITION)
    report = verify_table(metastore, "default.t")
    assert [f.rule_name for f in report.findings] == ["missing-partition"]
    assert report.is_sound
    assert report.row_count == 2


def test_a_number_of_rows_that_is_called_accurate_and_is_not(metastore: InMemoryMetastore) -> None:
    """count(*) would be answered with it. The library's own commits clear the mark."""
    (finding,) = verify_table(metastore, "default.u").findings
    assert (finding.rule_name, finding.found, finding.expected) == (
        "row-statistics",
        "0 rows in the files",
        "numRows=3",
    )
    with connect(metastore) as hive, hive.transaction("default.u") as tx:
        tx.table("default.u").append(_rows([1, 2]))
    assert verify_table(metastore, "default.u").findings == ()


def test_ids_of_a_table_in_which_nothing_was_committed(tmp_path: Path) -> None:
    """Hive 4 names the lowest of several aborted ids only; the others are no ids of the future."""
    metastore = InMemoryMetastore(warehouse=tmp_path, capabilities=HIVE_4_1)
    metastore.create_table(table_info("t", partitioned=False, location=f"file:{tmp_path}/t"))
    for _ in range(3):
        txn = metastore.open_txn("u", "h", "")
        write_id = metastore.allocate_write_id(txn, "default", "t")
        (tmp_path / "t" / f"delta_{write_id:07d}_{write_id:07d}_0000").mkdir(parents=True)
        metastore.abort_txn(txn)
    report = verify_table(metastore, "default.t")
    assert report.is_sound, report.findings
    assert len(report.findings) == 3
    assert len(table_history(metastore, "default.t").entries) == 3


def test_what_cannot_be_examined(metastore: InMemoryMetastore) -> None:
    """A table that does not exist, and no threads."""
    with pytest.raises(TableNotMutableError, match="does not exist"):
        verify_table(metastore, "default.nothing")
    with pytest.raises(ConfigurationError, match="threads 0"):
        verify_table(metastore, "default.t", threads=0)
