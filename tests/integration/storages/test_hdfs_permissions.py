"""An ETL user and Hive's user share tables on HDFS: who may do what, and what is refused beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from judges.errors import HiveError
from judges.hive.judge import HiveJudge
from judges.storages.hdfs_cluster import MiniHdfs
from metastore_client.remote.thrift_client import open_client
from mutation_api.errors import DeltaWriteError, TableNotMutableError
from mutation_api.storage.connect import configure_storage, storage_at
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.upkeep.doctor import doctor
from tests.fixtures.fix_hdfs import as_user
from tests.fixtures.fix_hive_elsewhere import KINDS
from tests.fixtures.fix_judge import note_judge
from tests.integration.storages.remote_table import change, client_of, create, hidden, insert, seen

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hives(hdfs: MiniHdfs) -> Iterator[dict[str, HiveJudge]]:
    """Judges by line, who are ``hive`` to HDFS and no superuser; filled by those who ask."""
    started: dict[str, HiveJudge] = {}
    yield started
    for judge in started.values():
        judge.close()


@pytest.fixture
def hive_as_hive(
    hdfs: MiniHdfs,
    hives: dict[str, HiveJudge],
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[HiveJudge]:
    """The judge of the line that an indirect parameter names (2.3)."""
    line = str(getattr(request, "param", "2.3"))
    if line not in hives:
        settings = {"dfs.replication": "1", "fs.permissions.umask-mode": "002"}
        for key, name in (("hive.metastore.warehouse.dir", "warehouse"), ("hive.exec.scratchdir", "scratch")):
            place = f"/as_hive/{line}/{name}"
            hdfs.make_directory(place, mode="777", user="hive")
            settings[key] = f"{hdfs.location}{place}"
        hives[line] = KINDS[line](tmp_path_factory.mktemp("hive_as_hive"), settings, user="hive")
        note_judge(request.config, f"{hives[line].description} on HDFS as another user")
    configure_storage(HadoopSettings(hdfs.settings))
    yield hives[line]
    configure_storage(None)


@pytest.fixture
def table(hive_as_hive: HiveJudge, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new table of Hive's, which it made as it makes tables; dropped after the test."""
    name = "default.t"
    create(hive_as_hive, name)
    yield name
    hive_as_hive.time_out_transactions(0)
    hive_as_hive.sql(f"DROP TABLE {name}")


def location_of(hive: HiveJudge, name: str) -> Location:
    with open_client(hive.uri) as metastore:
        return Location.parse(metastore.get_table(*name.split(".")).location)


def mode_of_a_group(hdfs: MiniHdfs, path: str) -> None:
    hdfs.make_directory(path, mode="775", user="hive", group="lake")


def default_acl(hdfs: MiniHdfs, path: str) -> None:
    hdfs.make_directory(path, mode="755", user="hive")
    hdfs.add_acl(path, "user:etl:rwx,default:user:etl:rwx,default:user:hive:rwx")


def modes(place: Location) -> list[tuple[str, str]]:
    """Name and mode of a partition directory, its deltas and their files."""
    storage = storage_at(place)
    found = [(place.name, f"{storage._status(place).permission:o}")]  # type: ignore[attr-defined]
    for entry in storage.list(place) if found else []:
        if entry.is_directory:
            found += modes(entry.location)
        else:
            mode = f"{storage._status(entry.location).permission:o}"  # type: ignore[attr-defined]
            found.append((entry.name, mode))
    return found


lines = pytest.mark.parametrize(
    "hive_as_hive",
    ["2.3", pytest.param("3.1", marks=pytest.mark.long), pytest.param("4.1", marks=pytest.mark.long)],
    indirect=True,
)


@pytest.mark.long
@lines
@pytest.mark.parametrize("share", [mode_of_a_group, default_acl])
def test_an_etl_user_and_hive_clean_up_after_each_other(
    hdfs: MiniHdfs, hive_as_hive: HiveJudge, table: str, share: Callable[[MiniHdfs, str], None]
) -> None:
    """Neither is the superuser.

    Each changes what the other wrote, in partitions that either made, and Hive's cleaner deletes the deltas
    of both.
    """
    hive, place = hive_as_hive, location_of(hive_as_hive, table)
    share(hdfs, place.path)
    with as_user("etl"), client_of(hive, table) as client, client.new_transaction() as transaction:
        insert(transaction, table, {"a": [1, 2, 3, 4]})
    for part in "bc":
        hive.sql(f"INSERT INTO {table} PARTITION (ds='{part}') VALUES (5, 'm5'), (6, 'm6')")
    hive.sql(f"UPDATE {table} SET msg = 'sql' WHERE id = 4")
    with as_user("etl"), client_of(hive, table) as client, client.new_transaction() as transaction:
        change(transaction, table)
    expected = [(2, "new2", "ds=a"), (4, "new4", "ds=a"), (6, "new6", "ds=b"), (6, "new6", "ds=c")]
    assert seen(hive, table) == expected
    storage = storage_at(place)
    for part in "abc":
        hive.compact(table, "major", partition=f"ds='{part}'")
        left = [entry.name for entry in storage.list(place / f"ds={part}") if entry.is_directory]
        assert [name.partition("_")[0] for name in left] == ["base"], left
    assert seen(hive, table) == expected
    with as_user("etl"), client_of(hive, table) as client, client.new_transaction() as transaction:
        insert(transaction, table, {"b": [7]})
    assert len(seen(hive, table)) == 5
    assert hidden(place) == []


@pytest.mark.long
def test_hive_cannot_remove_its_own_deltas_from_a_partition_of_somebody_else(
    hdfs: MiniHdfs, hive_as_hive: HiveJudge, table: str
) -> None:
    """Its cleaner works as the owner of the partition's directory, and its umask keeps others out.

    Whoever shares a table needs a common group and umask 002, or a default ACL; mode 777 is not enough.
    """
    place = location_of(hive_as_hive, table)
    hdfs.make_directory(place.path, mode="777")
    with as_user("etl"), client_of(hive_as_hive, table) as client, client.new_transaction() as transaction:
        insert(transaction, table, {"a": [1, 2]})
    settings = {"fs.permissions.umask-mode": "022", "fs.hdfs.impl.disable.cache": "true"}
    hive_as_hive.sql(f"INSERT INTO {table} PARTITION (ds='a') VALUES (3, 'm3')", settings=settings)
    with pytest.raises(HiveError, match=r'user=etl, access=\w+, inode=.*":hive:hive:drwxr-xr-x'):
        hive_as_hive.compact(table, "major", partition="ds='a'")
    assert [row[0] for row in seen(hive_as_hive, table)] == [1, 2, 3]


@pytest.mark.long
@lines
@pytest.mark.parametrize(("umask", "delta", "file"), [("022", "755", "644"), ("002", "775", "664")])
def test_modes_beside_those_of_hive(
    hdfs: MiniHdfs, hive_as_hive: HiveJudge, table: str, umask: str, delta: str, file: str
) -> None:
    """Hive's deltas have what its umask leaves; ours what their partition has, as Hive's have with 002."""
    hive, place = hive_as_hive, location_of(hive_as_hive, table)
    mode_of_a_group(hdfs, place.path)
    settings = {"fs.permissions.umask-mode": umask, "fs.hdfs.impl.disable.cache": "true"}
    hive.sql(f"INSERT INTO {table} PARTITION (ds='sql') VALUES (1, 'x')", settings=settings)
    with as_user("etl"), client_of(hive, table) as client, client.new_transaction() as transaction:
        insert(transaction, table, {"ours": [1, 2]})
    theirs, ours = dict(modes(place / "ds=sql")), dict(modes(place / "ds=ours"))
    assert {mode for name, mode in theirs.items() if name.startswith("delta")} == {delta}
    assert {mode for name, mode in theirs.items() if name.startswith("bucket")} == {file}
    assert {mode for name, mode in ours.items() if name.startswith(("ds", "delta"))} == {"775"}
    assert {mode for name, mode in ours.items() if name.startswith(("bucket", "_orc"))} == {"664"}


def partition_of_hive(hdfs: MiniHdfs, hive: HiveJudge, table: str, mode: str = "755") -> Location:
    """One of several, in a table that everybody may write."""
    place = location_of(hive, table)
    hdfs.make_directory(place.path, mode="777")
    hive.sql(f"INSERT INTO {table} PARTITION (ds='a') VALUES (1, 'm1')")
    hdfs.make_directory(f"{place.path}/ds=a", mode=mode, user="hive")
    return place


def sink(hive: HiveJudge, table: str, *, create_partitions: bool) -> MutatorClient:
    builder = MutatorClientBuilder().metastore(hive.uri)
    return builder.add_sink_table(*table.split("."), create_partitions=create_partitions).build()


def test_what_cannot_work_is_refused_before_a_transaction_begins(
    hdfs: MiniHdfs, hive_as_hive: HiveJudge, table: str
) -> None:
    """By a client that may not make partitions: directory, owner, group, mode and user are told."""
    place = partition_of_hive(hdfs, hive_as_hive, table)
    before = storage_at(place).list(place / "ds=a")
    with open_client(hive_as_hive.uri) as metastore:
        last = metastore.get_open_txns().high_watermark
        with as_user("etl"), pytest.raises(TableNotMutableError) as caught:
            sink(hive_as_hive, table, create_partitions=False).connect()
        for word in ("user=etl", f'inode="{place.path}/ds=a":hive:hive:drwxr-xr-x', table):
            assert word in str(caught.value)
        assert metastore.get_open_txns().high_watermark == last
    assert hidden(place) == []
    assert storage_at(place).list(place / "ds=a") == before
    assert seen(hive_as_hive, table) == [(1, "m1", "ds=a")]


def test_a_partition_that_cannot_be_written_does_not_stop_others(
    hdfs: MiniHdfs, hive_as_hive: HiveJudge, table: str
) -> None:
    """The client warns of it; who writes there is refused by the writer already, and nothing is left."""
    place = partition_of_hive(hdfs, hive_as_hive, table)
    with as_user("etl"), sink(hive_as_hive, table, create_partitions=True) as client:
        (warning,) = [each for each in client.warnings if "partition directories" in each]
        assert f'inode="{place.path}/ds=a":hive:hive:drwxr-xr-x' in warning
        (report,) = doctor(client.metastore, "default").tables
        assert report.version is not None
        assert report.reason == warning
        with client.new_transaction() as transaction:
            insert(transaction, table, {"b": [2]})
        with (
            pytest.raises(DeltaWriteError, match=r"user=etl, access=WRITE, .*ds=a"),
            client.new_transaction() as transaction,
        ):
            insert(transaction, table, {"a": [3]})
    assert hidden(place) == []
    assert seen(hive_as_hive, table) == [(1, "m1", "ds=a"), (2, "m2", "ds=b")]


@pytest.mark.long
@pytest.mark.parametrize(("mode", "may"), [("775", True), ("755", False), ("757", False), ("777", True)])
def test_groups_are_those_of_the_name_node(
    hdfs: MiniHdfs, hive_as_hive: HiveJudge, table: str, mode: str, may: bool
) -> None:
    """Who is in the directory's group has the group's rights, even if all others have more."""
    place = partition_of_hive(hdfs, hive_as_hive, table) / "ds=a"
    hdfs.make_directory(place.path, mode=mode, user="hive", group="lake")
    with as_user("etl"):
        refusal = storage_at(place).refusal(place)  # type: ignore[attr-defined]
    assert (refusal is None) == may
    assert storage_at(place).refusal(place) is None  # type: ignore[attr-defined]
    assert storage_at(place).refusal(place / "none") is None  # type: ignore[attr-defined]
