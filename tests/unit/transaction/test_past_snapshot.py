"""Reading the past: which directories leave it complete, and which ids were there at a moment."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_client.testing import HIVE_3_1, HIVE_4_1, InMemoryMetastore
from metastore_client.valid_ids import ValidWriteIdList
from mutation_api.errors import ConfigurationError, DirectoryStateError
from mutation_api.format.layout import AcidVersion, BaseDirectory, DeltaDirectory, parse_directory_name
from mutation_api.hive.connect import connect
from mutation_api.transaction.past_snapshot import PastSnapshot, TimedDirectory, UnknownTime, ids_at
from tests.support.client_support import builder, table_info

LAST = 5
NEWEST = 9


@pytest.fixture
def metastore(tmp_path: Path) -> InMemoryMetastore:
    """A metastore of Hive 2.3 with a table and nine committed transactions."""
    metastore = InMemoryMetastore()
    metastore.create_table(table_info(partitioned=False, location=tmp_path.as_uri()))
    for _ in range(NEWEST - 1):
        metastore.commit_txn(metastore.open_txn("u", "h", "a"))
    return metastore


@pytest.mark.parametrize(
    ("directories", "culprit", "oldest"),
    [
        (["base_0000005", "delta_0000006_0000006_0000", "delta_0000007_0000009"], None, None),
        (
            ["delta_0000001_0000005", "delete_delta_0000001_0000005", "delta_0000006_0000009", "_tmp_base_9"],
            None,
            None,
        ),
        ([f"base_{-(2**63)}", "delta_0000002_0000002"], None, None),
        ([], None, None),
        # A minor compaction keeps every event with its id.
        (["delta_0000002_0000002", "delta_0000005_0000006"], None, None),
        (["delete_delta_0000001_0000009"], None, None),
        (["base_0000005", "base_0000008"], "base_0000008", 8),
        (["base_0000006", "base_0000009"], "base_0000006", 9),
    ],
)
def test_what_spans_the_id_is_refused(
    metastore: InMemoryMetastore,
    tmp_path: Path,
    directories: list[str],
    culprit: str | None,
    oldest: int | None,
) -> None:
    """A base above the id has replaced older files; other directories have not."""
    for name in directories:
        (tmp_path / name).mkdir()
    with builder(metastore, None).build() as client:
        if culprit is not None:
            with pytest.raises(
                DirectoryStateError,
                match=rf"as it was before id 6: {culprit} holds rows .* can still be read is {oldest};",
            ):
                client.open_snapshot("default.t", as_of=LAST)
            assert metastore.show_locks() == []
            return
        with client.open_snapshot("default.t", as_of=LAST) as past, client.open_snapshot("default.t") as now:
            assert past.valid_ids("default.t") == now.valid_ids("default.t").up_to(LAST)
        assert metastore.show_locks() == []


@pytest.mark.parametrize("last_id", [-1, 100])
def test_there_is_no_past_beyond_the_ids(metastore: InMemoryMetastore, last_id: int) -> None:
    """An id that was never given is a mistake, not an empty difference."""
    with builder(metastore, None).build() as client, client.open_snapshot("default.t") as opened:
        newest = opened.valid_ids("default.t").high_watermark
        with pytest.raises(
            ConfigurationError,
            match=f"cannot be read as it was at id {last_id}: its ids range from 0 to {newest}",
        ):
            PastSnapshot(opened, last_id)


@pytest.mark.parametrize(
    ("as_of", "message"),
    [
        (3, "an id belongs to one table"),
        (datetime(2026, 1, 1), "has no time zone"),
        ("2026-01-01T12:00:00Z", "expected an id, or a datetime with a time zone"),
        ({"default.other": 3}, "default.other, which the snapshot does not contain"),
    ],
)
def test_points_that_make_no_sense(metastore: InMemoryMetastore, as_of: object, message: str) -> None:
    """They are refused, and nothing stays locked."""
    metastore.create_table(table_info("u", partitioned=False, location="file:/nowhere"))
    with builder(metastore, None).build() as client, pytest.raises(ConfigurationError, match=message):
        client.open_snapshot("default.t", "default.u", as_of=as_of)  # type: ignore[arg-type]
    assert metastore.show_locks() == []


def test_rows_as_they_were(tmp_path: Path) -> None:
    """By id, by moment, and by table; files written a second apart."""
    metastore = InMemoryMetastore(warehouse=tmp_path, capabilities=HIVE_4_1)
    metastore.create_table(table_info(partitioned=False, location=tmp_path.as_uri()))
    began = datetime(2026, 3, 1, 12, tzinfo=UTC)
    with connect(metastore) as hive:
        for number in (1, 2, 3):
            with hive.transaction("default.t") as tx:
                tx.table("default.t").append(pa.table({"id": pa.array([number], pa.int32()), "msg": ["x"]}))
            _written_at(tmp_path, number, began + timedelta(minutes=number))

        def ids(as_of: object) -> list[int]:
            with hive.snapshot("default.t", as_of=as_of) as view:  # type: ignore[arg-type]
                found: list[int] = view.table("default.t").scan(["id"]).to_arrow()["id"].to_pylist()
            return sorted(found)

        assert [ids(n) for n in (0, 1, 2, 3)] == [[], [1], [1, 2], [1, 2, 3]]
        assert ids({"DEFAULT.T": 2}) == [1, 2]
        assert ids({}) == [1, 2, 3]
        assert ids(began) == []
        assert ids(began + timedelta(minutes=2, seconds=30)) == [1, 2]
        # An older transaction that wrote later was not there yet.
        _written_at(tmp_path, 1, began + timedelta(minutes=9))
        assert ids(began + timedelta(minutes=2, seconds=30)) == [2]


def _written_at(table: Path, write_id: int, moment: datetime) -> None:
    for file in table.glob(f"delta_{write_id:07d}_*/*"):
        os.utime(file, (moment.timestamp(), moment.timestamp()))


def test_a_compaction_hides_when_ids_were_written(tmp_path: Path) -> None:
    """Then a moment before it is refused, an id is not."""
    metastore = InMemoryMetastore(warehouse=tmp_path, capabilities=HIVE_3_1)
    metastore.create_table(table_info(partitioned=False, location=tmp_path.as_uri()))
    with connect(metastore) as hive:
        for _ in (1, 2):
            with hive.transaction("default.t") as tx:
                tx.table("default.t").append(pa.table({"id": pa.array([1], pa.int32()), "msg": ["x"]}))
        for directory in tmp_path.glob("delta_*"):
            directory.rename(tmp_path / f"_{directory.name}")
        compacted = tmp_path / "delta_0000001_0000002"
        compacted.mkdir()
        moment = datetime.fromtimestamp(compacted.stat().st_mtime, UTC)
        with (
            pytest.raises(DirectoryStateError, match=r"delta_0000001_0000002 was compacted after that"),
            hive.snapshot("default.t", as_of=moment - timedelta(minutes=1)),
        ):
            pass
        with hive.snapshot("default.t", as_of=moment + timedelta(minutes=1)) as view:
            assert view.table("default.t").scan().count() == 0
        with hive.snapshot("default.t", as_of=1) as view:
            assert view.table("default.t").scan().count() == 0


HIVE3 = AcidVersion.V2_HIVE3


def _timed(name: str, written: float, *, is_compacted: bool = False) -> TimedDirectory:
    directory = parse_directory_name(name, AcidVersion.V2_HIVE4)
    assert isinstance(directory, BaseDirectory | DeltaDirectory)
    return TimedDirectory(directory, written, is_compacted)


@pytest.mark.parametrize(
    ("directories", "version", "expected"),
    [
        ([("delta_0000001_0000001_0000", 10), ("delta_0000002_0000002_0000", 30)], HIVE3, {2}),
        # The youngest file of an id counts, in whatever partition and kind of delta.
        ([("delta_0000001_0000001_0000", 10), ("delete_delta_0000001_0000001_0000", 25)], HIVE3, {1}),
        # A minor compaction before the moment: all ids in it were there.
        ([("delta_0000001_0000003", 20), ("delta_0000004_0000004_0000", 21)], HIVE3, {4}),
        # After it, but the input is still there and tells.
        (
            [
                ("delta_0000001_0000002", 40),
                *((f"delta_000000{n}_000000{n}_0000", 10 * n) for n in (1, 2, 3)),
            ],
            HIVE3,
            {3},
        ),
        # On Hive 3 one id without a statement may be compacted; Hive 4 would have said so.
        ([("delta_0000002_0000002", 30)], AcidVersion.V2_HIVE4, {2}),
        ([("base_0000002", 30)], HIVE3, {2}),
    ],
)
def test_ids_by_time(directories: list[tuple[str, float]], version: AcidVersion, expected: set[int]) -> None:
    """Those whose files were written by then; a second is enough."""
    valid = ValidWriteIdList(9, table="d.t")
    found = ids_at(20.5, [_timed(*each) for each in directories], valid, version)
    assert found.exceptions == tuple(sorted(expected))
    assert found.high_watermark == 9


@pytest.mark.parametrize(
    "directories",
    [
        [("delta_0000001_0000003", 40.0), ("delta_0000001_0000001_0000", 10.0)],
        [("delta_0000002_0000002", 40.0)],
        [("delta_0000001_0000003", 30.0), ("delta_0000004_0000006", 40.0)],
    ],
)
def test_times_that_are_not_known_any_more(directories: list[tuple[str, float]]) -> None:
    """The youngest directory says from when on moments can be read."""
    valid = ValidWriteIdList(9, (8,), aborted=frozenset([8]), table="d.t")
    with pytest.raises(UnknownTime) as raised:
        ids_at(20.5, [_timed(*each) for each in directories], valid, HIVE3)
    assert raised.value.directory.written == 40
    aborted = ValidWriteIdList(9, tuple(range(1, 10)), table="d.t")
    assert ids_at(20.5, [_timed(*each) for each in directories], aborted, HIVE3) == aborted
