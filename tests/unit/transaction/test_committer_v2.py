"""What the committer does for tables with write ids: marks, ids in the calls, names for replication."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from metastore_client.errors import MetastoreError
from metastore_client.model import WriteNotification
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from metastore_client.valid_ids import ValidTxnList
from mutation_api.errors import CorruptFileError, TableNotMutableError
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.format.tail import parse_tail
from mutation_api.orc.write.event_writer import append_user_metadata
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.transaction.committer import Committer
from mutation_api.transaction.descriptors import describe
from mutation_api.transaction.manifest import DeltaManifest, FileKind, TableOutput
from mutation_api.transaction.preconditions import check_mutable
from mutation_api.transaction.written_tables import PartitionCreator
from tests.support.acid_files import inserts, write_events
from tests.support.client_support import WRITER, files_below, stage, table_info

PARTITION = "ds=a/hr=1"
DML_EVENTS = {"hive.metastore.dml.events": "TRUE"}
INSERT_ONLY = {"parameters": {"transactional": "true", "transactional_properties": "insert_only"}}


def _metastore(tmp_path: Path, *, partitioned: bool = True, **changes: Any) -> InMemoryMetastore:
    result = InMemoryMetastore(
        tmp_path, capabilities=HIVE_4_1, configuration=changes.pop("configuration", {})
    )
    result.create_table(table_info("t", partitioned=partitioned, **changes))
    if partitioned:
        result.add_partitions("default", "t", [("a", "1")])
    # so that write ids and transaction ids differ
    for _ in range(4):
        result.open_txn("u", "h", "")
    return result


def _table(metastore: InMemoryMetastore) -> AcidTable:
    info = metastore.get_table("default", "t")
    version = check_mutable(info, metastore.capabilities(), TableRole.SINK)
    table = describe(info, version, TableRole.SINK, create_partitions=True, time_zone=None)
    txn_id = metastore.open_txn("u", "h", "")
    return table.bind(txn_id, metastore.allocate_write_id(txn_id, "default", "t"))


def _publish(metastore: InMemoryMetastore, table: AcidTable, *manifests: DeltaManifest) -> None:
    txn_id = table.required_txn_id()
    valid = metastore.get_valid_write_ids(
        ["default.t"], ValidTxnList.from_open_txns(metastore.get_open_txns(), txn_id, has_write_ids=True)
    )
    committer = Committer(metastore, PartitionCreator(metastore), txn_id, lambda: None)
    existing = frozenset(metastore.get_partition_names("default", "t"))
    output = TableOutput(
        table,
        metastore.get_table("default", "t"),
        frozenset([WRITER]),
        manifests,
        existing,
        valid_write_ids=valid["default.t"],
    )
    try:
        committer.publish([output])
    except BaseException:
        committer.remove_published()
        raise


def test_each_directory_is_named_by_the_write_id_and_marked(tmp_path: Path) -> None:
    """Hive 3 and 4 mark each delta and delete delta; the mark that Hive 2 puts beside them is missing."""
    metastore = _metastore(tmp_path, partitioned=False)
    table = _table(metastore)
    assert (table.txn_id, table.write_id) == (5, 1)
    _publish(metastore, table, stage(table), stage(table, kind=FileKind.DELETE_DELTA, inserts=0, deletes=1))
    names = ("delta_0000001_0000001_0000", "delete_delta_0000001_0000001_0000")
    assert files_below(tmp_path, hidden=True) == sorted(
        f"t/{name}/{file}" for name in names for file in ("_orc_acid_version", "bucket_00000")
    )
    assert {(tmp_path / "t" / name / "_orc_acid_version").read_bytes() for name in names} == {b"2"}


def test_insert_only_tables_get_plain_files(tmp_path: Path) -> None:
    """No events, hence no mark of their version."""
    metastore = _metastore(tmp_path, **INSERT_ONLY)
    table = _table(metastore)
    assert table.version is AcidVersion.INSERT_ONLY_HIVE4
    _publish(metastore, table, stage(table, PARTITION))
    assert files_below(tmp_path, hidden=True) == [f"t/{PARTITION}/delta_0000001_0000001_0000/000000_0"]


def test_partitions_and_statistics_go_with_the_write_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compactor needs it with the partition, the check of the statistics needs both ids."""
    metastore = _metastore(tmp_path)
    seen: dict[str, dict[str, Any]] = {}
    for call in ("add_dynamic_partitions", "record_row_counts"):
        monkeypatch.setattr(metastore, call, lambda *_, _call=call, **ids: seen.__setitem__(_call, ids))
    table = _table(metastore)
    _publish(metastore, table, stage(table, PARTITION))
    assert seen["add_dynamic_partitions"] == {"write_id": 1}
    assert seen["record_row_counts"]["write_id"] == 1
    valid = seen["record_row_counts"]["valid_write_ids"]
    assert (valid.table, valid.high_watermark) == ("default.t", 1)


def test_the_server_is_told_every_file_if_it_wants_to_know(tmp_path: Path) -> None:
    """Delete deltas too, each with its directory; without them a replica gets the commit but no rows."""
    metastore = _metastore(tmp_path, configuration=DML_EVENTS)
    table = _table(metastore)
    _publish(
        metastore,
        table,
        stage(table, PARTITION),
        stage(table, PARTITION, 1, kind=FileKind.DELETE_DELTA, inserts=0, deletes=3),
        stage(table, "ds=new/hr=2"),
    )
    delta, delete_delta = "delta_0000001_0000001_0000", "delete_delta_0000001_0000001_0000"
    old, new = f"{table.location}/{PARTITION}", f"{table.location}/ds=new/hr=2"
    assert metastore.write_notifications == [
        WriteNotification(
            5,
            1,
            "default",
            "t",
            ("a", "1"),
            ((f"{old}/{delete_delta}/bucket_00001", delete_delta), (f"{old}/{delta}/bucket_00000", delta)),
        ),
        WriteNotification(5, 1, "default", "t", ("new", "2"), ((f"{new}/{delta}/bucket_00000", delta),)),
    ]
    for notification in metastore.write_notifications:
        assert all(Path(Location.parse(path).path).is_file() for path, _ in notification.files)


def test_a_table_without_partitions_is_told_as_a_whole(tmp_path: Path) -> None:
    """One message, no partition values."""
    metastore = _metastore(tmp_path, partitioned=False, configuration=DML_EVENTS)
    table = _table(metastore)
    _publish(metastore, table, stage(table), stage(table, bucket_id=1))
    (told,) = metastore.write_notifications
    assert (told.partition_values, len(told.files)) == ((), 2)


@pytest.mark.parametrize("configuration", [{}, {"hive.metastore.dml.events": "false"}])
def test_a_server_that_does_not_want_to_know_is_told_nothing(
    tmp_path: Path, configuration: dict[str, str]
) -> None:
    """Its setting decides; it is off by default."""
    metastore = _metastore(tmp_path, configuration=configuration)
    table = _table(metastore)
    _publish(metastore, table, stage(table, PARTITION))
    assert "add_write_notifications" not in metastore.calls


def test_a_refused_notification_refuses_the_commit(tmp_path: Path) -> None:
    """A commit that replicas do not see would be lost there."""
    metastore = _metastore(tmp_path, configuration=DML_EVENTS)
    table = _table(metastore)
    metastore.fail_next("add_write_notifications", MetastoreError("no"))
    with pytest.raises(MetastoreError, match="no"):
        _publish(metastore, table, stage(table, PARTITION))
    assert files_below(tmp_path) == []


def _old_delta(tmp_path: Path, operations: list[int], statistics: str, partition: str = PARTITION) -> Path:
    """A delta as Hive 2 wrote it: without a mark, events by operation."""
    path = tmp_path / "t" / partition / "delta_0000003_0000003_0000" / "bucket_00000"
    rows = [(op, *event[1:]) for op, event in zip(operations, inserts(3, 0, 0, [(1, "a")] * 9), strict=False)]
    write_events(path, rows)
    data = path.read_bytes()
    added = {"hive.acid.stats": statistics.encode()}
    path.write_bytes(append_user_metadata(data, added, parse_tail(data)))
    return path


@pytest.mark.parametrize(
    ("operations", "statistics", "is_refused"),
    [
        ([0, 0], "2,0,0", False),
        ([1, 0], "1,1,0", True),
        ([2], "0,0,1", True),
        ([0, 0], "0,0,2", False),  # Hive 2.3 gives an insert delta the counts of its delete delta
    ],
)
def test_updates_of_hive_2_are_refused_with_advice(
    tmp_path: Path, operations: list[int], statistics: str, is_refused: bool
) -> None:
    """The server's Hive would read them as inserts; only touched partitions are checked."""
    metastore = _metastore(tmp_path)
    _old_delta(tmp_path, operations, statistics)
    table = _table(metastore)
    if is_refused:
        with pytest.raises(TableNotMutableError, match=r"default\.t partition ds=a/hr=1 .*COMPACT 'major'"):
            _publish(metastore, table, stage(table, PARTITION))
        assert "add_dynamic_partitions" not in metastore.calls
    else:
        _publish(metastore, table, stage(table, PARTITION))


def test_marked_deltas_are_not_opened(tmp_path: Path) -> None:
    """So the check costs little: directories that Hive 3 and 4 wrote have the mark."""
    metastore = _metastore(tmp_path)
    old = _old_delta(tmp_path, [1], "0,1,0")
    (old.parent / "_orc_acid_version").write_text("2")
    table = _table(metastore)
    _publish(metastore, table, stage(table, PARTITION))


def test_an_unmarked_file_that_is_no_orc_is_refused(tmp_path: Path) -> None:
    """Its contents are unknown."""
    metastore = _metastore(tmp_path)
    path = tmp_path / "t" / PARTITION / "delta_0000003_0000003" / "bucket_00000"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not ORC")
    table = _table(metastore)
    with pytest.raises(CorruptFileError, match=r"bucket_00000 .* is not a complete ORC file"):
        _publish(metastore, table, stage(table, PARTITION))
