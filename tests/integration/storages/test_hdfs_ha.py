"""Two NameNodes: one hands over, dies, or loses an answer; the change set is there once, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from judges.hive.judge import HiveJudge
from judges.storages.hdfs_cluster import MiniHdfs
from mutation_api.errors import DeltaWriteError, MutationError
from mutation_api.storage.connect import configure_storage, settings, storage_at
from tests.fixtures.fix_hdfs_faults import At, FaultyTable, NameNodeProxy
from tests.fixtures.fix_judge import new_database
from tests.integration.storages.remote_table import change, check_turns, client_of, insert, rows_with_ids

pytestmark = pytest.mark.slow

NEW = {"a": [5, 6], "b": [7, 8], "c": [9, 10]}
CHANGES = ("create", "addBlock", "complete", "mkdirs", "rename2", "delete")
"""What a change set asks of a NameNode."""


def later(seconds: float, event: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, event)
    timer.start()
    return timer


def hand_over(hdfs: MiniHdfs) -> None:
    """To the one that is a standby now."""
    hdfs.fail_over(1 - hdfs.active())


def die(hdfs: MiniHdfs) -> None:
    """The active one; the other takes over a moment later, as it does by ZooKeeper."""
    active = hdfs.active()
    hdfs.stop_namenode(active)
    later(1.0, lambda: hdfs.fail_over(1 - active))


EVENTS = [hand_over, die]


@pytest.mark.parametrize(
    "hive_on_ha",
    [
        pytest.param("2.3", marks=[pytest.mark.feature("HDFS HA"), pytest.mark.long]),
        pytest.param("3.1", marks=pytest.mark.long),
        pytest.param("4.1", marks=pytest.mark.long),
    ],
    indirect=True,
)
def test_ours_and_theirs_by_turns(hdfs_ha: MiniHdfs, hive_on_ha: HiveJudge, at: At) -> None:
    """On a name service that Hadoop's files tell, with one fail-over while we publish."""
    at("rename", 2, lambda: hand_over(hdfs_ha))
    with new_database(hive_on_ha) as database:
        location = check_turns(hive_on_ha, f"{database}.t")
    assert location.authority == "cluster"


@pytest.mark.parametrize(
    ("method", "event"),
    [
        ("rename", die),
        pytest.param("rename", hand_over, marks=pytest.mark.long),
        pytest.param("create_directory", die, marks=pytest.mark.long),
        pytest.param("create_directory", hand_over, marks=pytest.mark.long),
    ],
)
def test_a_fail_over_in_the_middle_of_a_commit(
    faulty_table: FaultyTable, at: At, method: str, event: Callable[[MiniHdfs], None]
) -> None:
    """All of it appears, once."""
    with client_of(faulty_table.hive, faulty_table.name) as client, client.new_transaction() as transaction:
        insert(transaction, faulty_table.name, NEW)
        at(method, 3, lambda: event(faulty_table.hdfs))
    faulty_table.expect(NEW)


@pytest.mark.long
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("method", ["open_writer", "_status"])
def test_a_fail_over_in_the_middle_of_writing(
    faulty_table: FaultyTable, at: At, method: str, event: Callable[[MiniHdfs], None]
) -> None:
    """Between files, and among the questions before one; files that are open live on."""
    at(method, 4, lambda: event(faulty_table.hdfs))
    faulty_table.write(NEW)
    faulty_table.expect(NEW)


@pytest.mark.long
def test_a_fail_over_while_a_file_is_open(faulty_table: FaultyTable) -> None:
    """With and without bytes in it; the one that took over completes it."""
    place = faulty_table.location / "_mutation_probe_open"
    storage = storage_at(place)
    for content in (b"", b"x" * 3_000_000):
        file = storage.create(place)
        file.write(content)
        die(faulty_table.hdfs)
        file.close()
        found = storage.stat(place)
        assert found is not None
        assert found.size == len(content)
        storage.delete_file(place)
        faulty_table.hdfs.heal()


@pytest.fixture
def proxies(faulty_table: FaultyTable) -> Iterator[list[NameNodeProxy]]:
    """In front of both NameNodes, for this process alone."""
    found = settings()
    keys = [f"dfs.namenode.rpc-address.cluster.nn{number}" for number in range(2)]
    with (
        NameNodeProxy(found.properties[keys[0]]) as first,
        NameNodeProxy(found.properties[keys[1]]) as second,
    ):
        configure_storage(
            found.with_properties(dict(zip(keys, (first.address, second.address), strict=True)))
        )
        yield [first, second]
        configure_storage(None)


@pytest.mark.parametrize("after", [True, pytest.param(False, marks=pytest.mark.long)])
def test_an_answer_that_is_lost(faulty_table: FaultyTable, proxies: list[NameNodeProxy], after: bool) -> None:
    """What became of each change is found out: after the NameNode did it, and before."""
    with client_of(faulty_table.hive, faulty_table.name) as client, client.new_transaction() as transaction:
        for call in CHANGES:
            for proxy in proxies:
                proxy.cut(call, after=after, times=2)
        insert(transaction, faulty_table.name, NEW)
    faulty_table.expect(NEW)
    assert {call for proxy in proxies for call in proxy.calls} == set(CHANGES)


@pytest.mark.long
def test_a_rename_of_somebody_else_is_not_taken_for_ours(
    faulty_table: FaultyTable, proxies: list[NameNodeProxy]
) -> None:
    """The source is gone and the target is there, but it is another file."""
    storage, root = storage_at(faulty_table.location), faulty_table.location
    ours, other = (storage.create(root / f"_mutation_probe_{number}") for number in (1, 2))
    ours.write(b"1")
    other.write(b"22")
    ours.close()
    other.close()
    target = root / "_mutation_probe_3"
    for proxy in proxies:
        proxy.cut("rename2", after=True)
    storage.publish(other.staged, target)
    storage.delete_file(root / "_mutation_probe_1")
    for proxy in proxies:
        proxy.cut("rename2", after=False)
    with pytest.raises(FileNotFoundError):
        storage.publish(ours.staged, target)
    storage.delete_file(target)


@pytest.mark.long
def test_the_first_name_node_is_dead_from_the_start(faulty_table: FaultyTable) -> None:
    """And stays dead; what is new is the client."""
    faulty_table.hdfs.fail_over(1)
    faulty_table.hdfs.stop_namenode(0)
    configure_storage(settings().with_properties({"hadoop.test.client": "new"}))
    with client_of(faulty_table.hive, faulty_table.name) as client:
        with client.new_transaction() as transaction:
            insert(transaction, faulty_table.name, NEW)
        with client.new_transaction() as transaction:
            assert len(rows_with_ids(transaction, faulty_table.name)) == 10
    faulty_table.expect(NEW)
    configure_storage(None)


@pytest.mark.long
@pytest.mark.parametrize("method", ["rename", "open_writer"])
def test_no_name_node_comes_back(faulty_table: FaultyTable, at: At, method: str) -> None:
    """The wait is as long as Hadoop's settings say; then it is aborted, and swept once there is one again."""
    short = {"dfs.client.failover.max.attempts": "4", "dfs.client.failover.sleep.base.millis": "50"}
    configure_storage(settings().with_properties(short))

    def both_stop() -> None:
        faulty_table.hdfs.stop_namenode(0)
        faulty_table.hdfs.stop_namenode(1)

    at(method, 3, both_stop)
    with pytest.raises(DeltaWriteError, match="refused"):
        faulty_table.write(NEW)
    configure_storage(None)


@pytest.mark.long
@pytest.mark.parametrize("hive_on_hdfs", ["2.3"], indirect=True)
@pytest.mark.parametrize("method", ["rename", "open_writer"])
def test_a_name_node_that_is_started_again(
    hdfs: MiniHdfs, hive_on_hdfs: HiveJudge, database_on_hdfs: str, at: At, method: str
) -> None:
    """The only one, in the middle of a commit or of writing; it is in safe mode at first."""

    def restart() -> None:
        hdfs.stop_namenode(0)
        later(0.5, lambda: hdfs.start_namenode(0))

    table = FaultyTable(hdfs, hive_on_hdfs, f"{database_on_hdfs}.t")
    at(method, 3, restart)
    table.write(NEW)
    table.expect(NEW)
    hdfs.heal()
    table.check()


@pytest.mark.long
@pytest.mark.parametrize("number", range(1, 13))
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("method", ["rename", "open_writer", "create_directory", "_status", "list"])
def test_a_fail_over_at_every_step(
    faulty_table: FaultyTable, at: At, method: str, event: Callable[[MiniHdfs], None], number: int
) -> None:
    """Updates and deletes as well: all of it, or an error and nothing."""
    with client_of(faulty_table.hive, faulty_table.name) as client:
        transaction = client.new_transaction()
        at(method, number, lambda: event(faulty_table.hdfs))
        try:
            with transaction:
                change(transaction, faulty_table.name)
        except MutationError:
            return
    faulty_table.expected = [(2, "new2", "ds=a"), (4, "new4", "ds=b")]
