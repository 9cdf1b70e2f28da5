"""What is refused before anything is published, and that a failure leaves no trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from metastore_client.errors import MetastoreUnavailableError
from metastore_client.model import PartitionInfo
from metastore_client.testing import InMemoryMetastore
from mutation_api.errors import (
    DeltaWriteError,
    LockLostError,
    ManifestError,
    PartitionCreationError,
    RowIdNotFoundError,
)
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Staged
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.transaction import committer
from mutation_api.transaction.committer import Committer
from mutation_api.transaction.descriptors import describe, with_partitions
from mutation_api.transaction.manifest import DeltaManifest, FileKind, TableOutput
from mutation_api.transaction.staging import list_staged
from mutation_api.transaction.written_tables import PartitionCreator
from tests.support.client_support import WRITER, files_below, stage, table_info

PARTITION = "ds=a/hr=1"
DELTA = "delta_0000001_0000001_0000/bucket_00000"

Change = Callable[[DeltaManifest], DeltaManifest]


@pytest.fixture
def metastore(tmp_path: Path) -> InMemoryMetastore:
    result = InMemoryMetastore(tmp_path)
    result.create_table(table_info("t"))
    result.add_partitions("default", "t", [("a", "1")])
    return result


def _table(metastore: InMemoryMetastore, version: AcidVersion = AcidVersion.V1_LEGACY) -> AcidTable:
    info = metastore.get_table("default", "t")
    table = describe(info, version, TableRole.SINK, create_partitions=False, time_zone=None)
    return table.bind(metastore.open_txn("u", "h", ""))


def _publish(
    metastore: InMemoryMetastore,
    table: AcidTable,
    *manifests: DeltaManifest,
    check: Callable[[], None] = lambda: None,
) -> Committer:
    committer = Committer(metastore, PartitionCreator(metastore), table.required_txn_id(), check)
    info = metastore.get_table("default", "t")
    try:
        existing = frozenset(metastore.get_partition_names("default", "t"))
        committer.publish([TableOutput(table, info, frozenset([WRITER]), manifests, existing)])
    except BaseException:
        committer.remove_published()
        raise
    return committer


REFUSED: dict[str, tuple[Change, str]] = {
    "another table": (lambda m: dataclasses.replace(m, table="other"), "handed in for table default.t"),
    "another transaction": (lambda m: dataclasses.replace(m, txn_id=99), "handed in to transaction 1"),
    "a stranger": (lambda m: dataclasses.replace(m, writer_id="x"), "has not been announced"),
    "bucket too high": (lambda m: dataclasses.replace(m, bucket_id=2), "buckets 0 to 1"),
    "bucket below zero": (lambda m: dataclasses.replace(m, bucket_id=-1), "buckets 0 to 1"),
    "a value missing": (lambda m: dataclasses.replace(m, partition_values=("a",)), "1 partition values"),
    "no partition": (
        lambda m: dataclasses.replace(m, partition_name="", partition_values=("a", "1")),
        "partition's name does not match",
    ),
    "another final path": (
        lambda m: dataclasses.replace(m, target=Location.parse("/elsewhere")),
        "does not end in",
    ),
    "counts that do not add up": (lambda m: dataclasses.replace(m, row_count=7), "7 rows"),
    "a negative count": (lambda m: dataclasses.replace(m, insert_count=2, delete_count=-1), "-1 deletes"),
    "a delete delta in a legacy table": (
        lambda m: dataclasses.replace(m, kind=FileKind.DELETE_DELTA),
        "has no delete deltas",
    ),
    "a size that differs": (lambda m: dataclasses.replace(m, byte_count=1), "its manifest says 1 bytes"),
    "a file that is not there": (
        lambda m: dataclasses.replace(m, staged=Staged(Location.parse("/gone"))),
        "is not in the directory of the attempt",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_contradictory_manifests_are_refused(metastore: InMemoryMetastore, tmp_path: Path, case: str) -> None:
    """Nothing is registered, created or visible after a refusal."""
    change, text = REFUSED[case]
    table = _table(metastore)
    with pytest.raises(ManifestError, match=text):
        _publish(metastore, table, change(stage(table, PARTITION)))
    assert files_below(tmp_path) == []
    assert "add_dynamic_partitions" not in metastore.calls


@pytest.mark.parametrize("upload_id", ["", "u"])
@pytest.mark.parametrize("is_directory", [False, True])
def test_a_manifest_moves_nothing_but_its_own_file(
    metastore: InMemoryMetastore, tmp_path: Path, upload_id: str, is_directory: bool
) -> None:
    """Whatever the driver may move, a worker cannot make it rows of the table."""
    precious = tmp_path / "precious"
    if is_directory:
        precious.mkdir()
    else:
        precious.write_bytes(b"0123456789")
    table = _table(metastore)
    manifest = stage(table, PARTITION)
    stolen = Staged(Location.parse(precious.as_uri()), upload_id)
    with pytest.raises(ManifestError, match=r"precious"):
        _publish(metastore, table, dataclasses.replace(manifest, staged=stolen, byte_count=10))
    assert precious.is_dir() if is_directory else precious.read_bytes() == b"0123456789"
    assert "add_dynamic_partitions" not in metastore.calls


def test_a_group_that_comes_twice_is_refused(metastore: InMemoryMetastore) -> None:
    """Two attempts of one task that both win would double every row."""
    table = _table(metastore)
    twice = [stage(table, PARTITION, attempt_id=a) for a in ("0", "1")]
    with pytest.raises(ManifestError, match="written 2 times"):
        _publish(metastore, table, *twice)


@pytest.mark.parametrize(("deleted", "inserted"), [(3, 2), (0, 2), (3, 0)])
def test_half_an_update_is_refused(metastore: InMemoryMetastore, deleted: int, inserted: int) -> None:
    """In a split table a lost delete delta would double the updated rows, a lost delta would remove them."""
    table = _table(metastore, AcidVersion.V1_SPLIT)
    halves = []
    if inserted:
        halves.append(stage(table, PARTITION, inserts=0, updates=inserted))
    if deleted:
        halves.append(stage(table, PARTITION, kind=FileKind.DELETE_DELTA, inserts=0, updates=deleted))
    with pytest.raises(ManifestError, match="updates in the delta but"):
        _publish(metastore, table, *halves)


def test_a_file_that_its_attempt_does_not_report_is_refused(metastore: InMemoryMetastore) -> None:
    """One of two groups of a coordinator is missing from the list: its rows would be lost."""
    table = _table(metastore)
    reported = stage(table, PARTITION)
    stage(table, PARTITION, 1)
    with pytest.raises(ManifestError, match="no manifest for"):
        _publish(metastore, table, reported)


def test_a_lost_transaction_publishes_nothing(metastore: InMemoryMetastore, tmp_path: Path) -> None:
    """The check runs just before files become visible."""
    table = _table(metastore)

    def lost() -> None:
        raise LockLostError("gone")

    with pytest.raises(LockLostError):
        _publish(metastore, table, stage(table, PARTITION), check=lost)
    assert files_below(tmp_path) == []


def test_a_directory_that_is_there_already_is_left_alone(
    metastore: InMemoryMetastore, tmp_path: Path
) -> None:
    """Files of the same transaction id cannot be ours; neither overwritten nor removed."""
    table = _table(metastore)
    strange = tmp_path / "t" / PARTITION / DELTA
    strange.parent.mkdir(parents=True)
    strange.write_bytes(b"whose?")
    with pytest.raises(DeltaWriteError, match="it already exists"):
        _publish(metastore, table, stage(table, PARTITION))
    assert strange.read_bytes() == b"whose?"


def test_a_failure_half_way_removes_what_was_published(
    metastore: InMemoryMetastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that already have their final names are removed again."""
    table = _table(metastore)
    manifests = [stage(table, PARTITION, bucket) for bucket in (0, 1)]

    seen = []

    def full(*_: object) -> None:
        seen.append(len(files_below(tmp_path)))
        raise LockLostError("in between")

    monkeypatch.setattr(committer, "remove_staging", full)
    with pytest.raises(LockLostError):
        _publish(metastore, table, *manifests)
    assert seen == [2]
    assert files_below(tmp_path) == []
    assert metastore.calls.count("record_row_counts") == 2  # what was recorded is taken back, too


def test_row_counts_that_were_not_recorded_are_not_taken_back(metastore: InMemoryMetastore) -> None:
    """Otherwise the metastore would have too few rows."""
    table = _table(metastore)
    metastore.fail_next("record_row_counts", MetastoreUnavailableError("cut"))
    with pytest.raises(MetastoreUnavailableError):
        _publish(metastore, table, stage(table, PARTITION))
    assert metastore.calls.count("record_row_counts") == 1


def test_a_file_that_cannot_be_moved_is_our_error(metastore: InMemoryMetastore, tmp_path: Path) -> None:
    """The file system's complaint is wrapped and names table and transaction."""
    table = _table(metastore)
    manifest = stage(table, PARTITION)
    place = tmp_path / "t" / PARTITION
    place.rmdir()
    place.write_text("a file where the partition should be")
    with pytest.raises(DeltaWriteError, match=r"default\.t, transaction 1"):
        _publish(metastore, table, manifest)


def test_the_metastore_says_where_a_partition_lies(
    metastore: InMemoryMetastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that another writer has just created elsewhere gets its files there."""
    table = _table(metastore)
    elsewhere = tmp_path / "elsewhere"
    info = PartitionInfo("default", "t", ("a", "1"), PARTITION, f"file:{elsewhere}")
    monkeypatch.setattr(metastore, "get_partitions_by_names", lambda *_: [info])
    _publish(metastore, table, stage(table, PARTITION))
    assert files_below(elsewhere) == [DELTA]


def test_staging_of_partitions_elsewhere_is_looked_at(metastore: InMemoryMetastore, tmp_path: Path) -> None:
    """Their files are staged beside them, so that the rename stays within one file system."""
    elsewhere = tmp_path / "elsewhere"
    table = with_partitions(
        _table(metastore),
        [PartitionInfo("default", "t", ("a", "1"), PARTITION, f"file://{elsewhere}")],
    )
    assert table.partition_locations == {PARTITION: Location.given(elsewhere)}
    beside = dataclasses.replace(table, location=Location.given(elsewhere))
    stage(beside, PARTITION)
    assert [f.writer_id for f in list_staged(table, 1).files] == [WRITER]


def test_a_partition_at_its_default_place_is_no_exception(metastore: InMemoryMetastore) -> None:
    """However the location is spelled: file:/a, file:///a or /a."""
    table = _table(metastore)
    for prefix in ("file:", "file://", ""):
        info = PartitionInfo(
            "default", "t", ("a", "1"), PARTITION, f"{prefix}{table.location.path}/{PARTITION}"
        )
        assert with_partitions(table, [info]).partition_locations == {}


def test_another_spelling_that_came_meanwhile_is_refused(metastore: InMemoryMetastore) -> None:
    """Creating hr=1 beside hr=01 would split the rows of one value over two partitions."""
    table = dataclasses.replace(_table(metastore), create_partitions=True)
    metastore.add_partitions("default", "t", [("b", "01")])
    with pytest.raises(PartitionCreationError, match="ds=b/hr=1 was created as ds=b/hr=01"):
        PartitionCreator(metastore).ensure(table, {"ds=b/hr=1": ("b", "1")})


@pytest.mark.parametrize("operation", ["updates", "deletes"])
def test_rows_are_changed_in_partitions_of_the_snapshot_only(
    metastore: InMemoryMetastore, operation: str
) -> None:
    """A partition that is missing, or came later, holds no row of the snapshot; it is not created either."""
    table = dataclasses.replace(_table(metastore), create_partitions=True)
    changes = stage(table, "ds=b/hr=1", inserts=1, **{operation: 1})
    with pytest.raises(RowIdNotFoundError, match="ds=b/hr=1, which did not exist"):
        _publish(metastore, table, changes)
    assert metastore.get_partition_names("default", "t") == [PARTITION]


def test_statistics_that_would_lie_are_cleared(metastore: InMemoryMetastore) -> None:
    """Only those of the touched partitions."""
    accurate = {"COLUMN_STATS_ACCURATE": '{"BASIC_STATS":"true"}', "numRows": "5"}
    metastore.add_partitions("default", "t", [("b", "1")])
    for name in (PARTITION, "ds=b/hr=1"):
        metastore.set_parameters("default", "t", name, accurate)
    table = _table(metastore)
    _publish(metastore, table, stage(table, PARTITION))
    touched, other = metastore.get_partitions_by_names("default", "t", [PARTITION, "ds=b/hr=1"])
    assert "COLUMN_STATS_ACCURATE" not in touched.parameters
    assert other.parameters == accurate
