"""How many requests listing and reading a table takes, and that they find the same on every storage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from judges.storages.s3_server import S3Server
from metastore_client.valid_ids import ValidTxnList
from mutation_api.format.layout import AcidVersion
from mutation_api.read.partition_plan import plan_partitions, plan_splits
from mutation_api.read.read_ahead import read_in_turn
from mutation_api.read.snapshot_reader import read_split
from mutation_api.storage.connect import configure_storage, storage_at
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.storage.tree import directories_below, side_by_side
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.transaction.base_files import refuse_old_events
from tests.support.acid_files import inserts, write_events

pytestmark = pytest.mark.slow

ALL = ValidTxnList.everything()
PARTITIONS = [f"ds={number:02d}" for number in range(12)]
DELTAS = ("delta_0000001_0000001_0000", "delta_0000002_0000002_0000")
BUCKETS = 2
FILES = len(PARTITIONS) * len(DELTAS) * BUCKETS


@pytest.fixture
def table(storage_root: Location, tmp_path: Path) -> AcidTable:
    """Twelve partitions of two deltas with two buckets."""
    return _written(storage_root, tmp_path)


@pytest.fixture
def table_on_s3(s3_root: Location, tmp_path: Path) -> AcidTable:
    """The same on S3."""
    return _written(s3_root, tmp_path)


def _written(root: Location, folder: Path) -> AcidTable:
    storage = storage_at(root)

    def put(partition: str) -> None:
        for txn, delta in enumerate(DELTAS, start=1):
            storage.create_directory(root / partition / delta)
            for bucket in range(BUCKETS):
                path = folder / "files" / partition / delta / f"bucket_{bucket:05d}"
                write_events(path, inserts(txn, bucket, 0, [(txn, f"{partition} {bucket}")]))
                file = storage.create(root / partition / delta / path.name)
                file.write(path.read_bytes())
                file.close()

    side_by_side(put, PARTITIONS, storage.threads)
    return AcidTable(
        database="d",
        name="t",
        location=root,
        columns=(AcidColumn("id", "bigint"), AcidColumn("msg", "string")),
        partition_keys=(AcidColumn("ds", "string"),),
        num_buckets=BUCKETS,
        bucket_columns=("id",),
        version=AcidVersion.V1_SPLIT,
    )


def _locations(table: AcidTable, count: int = len(PARTITIONS)) -> dict[str, Location]:
    return {name: table.partition_location(name) for name in PARTITIONS[:count]}


def _rows(table: AcidTable, *, is_whole_table: bool) -> list[tuple[Any, ...]]:
    splits = plan_partitions(table, _locations(table), ALL, None, is_whole_table=is_whole_table)
    found = read_in_turn(splits, lambda split: read_split(table, split, ALL))
    return [
        (split.partition_name, split.bucket_id, row["id"], row["msg"])
        for split, batch in found
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("is_whole_table", [True, False])
def test_the_same_rows_in_the_same_order(table: AcidTable, is_whole_table: bool) -> None:
    """By partition and bucket, whatever was listed and read ahead."""
    expected = [
        (name, bucket, txn, f"{name} {bucket}")
        for name in PARTITIONS
        for bucket in range(BUCKETS)
        for txn in (1, 2)
    ]
    assert _rows(table, is_whole_table=is_whole_table) == expected


def test_all_that_lies_below_a_place_is_listed_as_its_directories_are(storage_root: Location) -> None:
    """Marks that others leave for directories included."""
    storage = storage_at(storage_root)
    names = ("t/a/b/file", "t/a/file", "t/ü %3A/file", "t2/file")
    for name in names:
        storage.create_directory((storage_root / name).parent)
        file = storage.create(storage_root / name)
        file.write(b"x")
        file.close()
    if not storage.publishes_by_rename:
        storage.create(storage_root / "t/c_$folder$").close()
    directories = directories_below([storage_root / "t"])
    for name in ("t", "t/a", "t/a/b", "t/ü %3A"):
        assert directories.list(storage_root / name) == storage.list(storage_root / name)
    with pytest.raises(FileNotFoundError):
        directories.list(storage_root / "t/none")


def test_requests_of_listing(table_on_s3: AcidTable, s3: S3Server) -> None:
    """A whole table takes one for a thousand files, some of its partitions take one each."""
    table = table_on_s3
    s3.take_counts()
    whole = plan_partitions(table, _locations(table), ALL, None, is_whole_table=True)
    assert s3.take_counts() == {"list": 1}
    some = plan_partitions(table, _locations(table, 5), ALL, None, is_whole_table=False)
    assert s3.take_counts() == {"list": 5}
    each = [
        split
        for name, location in _locations(table).items()
        for split in plan_splits(table, name, location, ALL)
    ]
    assert s3.take_counts() == {"list": (1 + len(DELTAS)) * len(PARTITIONS)}, "what it would take"
    assert whole == each
    assert some == each[: 5 * BUCKETS]


def test_requests_of_reading(table_on_s3: AcidTable, s3: S3Server) -> None:
    """A small file takes one, which is its opening."""
    table = table_on_s3
    splits = plan_partitions(table, _locations(table), ALL, None, is_whole_table=True)
    s3.take_counts()
    assert len(list(read_in_turn(splits, lambda split: read_split(table, split, ALL)))) == 2 * len(splits)
    assert s3.take_counts() == {"get": FILES}


def test_requests_of_looking_for_old_events(table_on_s3: AcidTable, s3: S3Server) -> None:
    """One for a partition, and one for each file without a mark of the new format."""
    s3.take_counts()
    refuse_old_events(table_on_s3, PARTITIONS)
    assert s3.take_counts() == {"list": len(PARTITIONS), "get": FILES}


def test_a_program_that_tells_no_keys_is_named(
    s3_root: Location, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer may be half a secret, so it is not shown."""
    (tmp_path / "answer").write_text('{"Version": 1, "SecretAccessKey": "half')
    (tmp_path / "config").write_text(f"[default]\ncredential_process = cat {tmp_path / 'answer'}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    keys = ("fs.s3a.access.key", "fs.s3a.secret.key")
    configure_storage(HadoopSettings({name: text for name, text in s3.settings.items() if name not in keys}))
    with pytest.raises(PermissionError, match="did not answer with JSON") as caught:
        storage_at(s3_root).list(s3_root)
    assert "half" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_what_breaks_off_is_asked_for_again(s3_root: Location, s3: S3Server) -> None:
    """Where a file is opened and further on; a store that never ends an answer is told in one line."""
    storage, content = storage_at(s3_root), os.urandom(700_000)
    file = storage.create(s3_root / "f")
    file.write(content)
    file.close()
    s3.fail(torn_answers=2)
    with storage.open_input(s3_root / "f") as stream:
        s3.fail(torn_answers=3)
        assert stream.read() == content
    configure_storage(HadoopSettings({**s3.settings, "fs.s3a.attempts.maximum": "2"}))
    s3.fail(torn_answers=100)
    with pytest.raises(ConnectionError, match="the connection broke in the middle of an answer"):
        storage_at(s3_root).open_input(s3_root / "f")
