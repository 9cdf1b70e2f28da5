"""What goes wrong on HDFS in the middle of a change set: all of it is there, or nothing; and it is swept."""

from __future__ import annotations

import os
import signal

import pytest

from metastore_client.remote.thrift_client import open_client
from mutation_api.errors import DeltaWriteError, MutationError
from mutation_api.storage.connect import storage_at
from mutation_api.write.coordinator import MutatorCoordinator
from tests.fixtures.fix_hdfs import as_user
from tests.fixtures.fix_hdfs_faults import At, FaultyTable
from tests.integration.storages.remote_table import client_of, hidden, insert, rows_with_ids

pytestmark = pytest.mark.slow

NEW = {"a": [5, 6], "b": [7, 8], "c": [9, 10]}
MANY = {"a": list(range(10, 40)), **{part: [40, 41] for part in "cdefg"}}


def test_a_data_node_that_is_down_when_a_file_begins(faulty_table: FaultyTable) -> None:
    """The NameNode gives it out for ten minutes; another pipeline is asked for."""
    faulty_table.hdfs.stop_datanode(0)
    faulty_table.write(MANY)
    faulty_table.expect(MANY)


@pytest.mark.long
def test_a_data_node_that_goes_down_while_files_are_open(faulty_table: FaultyTable) -> None:
    """Each in turn; of the two in the file's pipeline the other one goes on."""
    storage, place = storage_at(faulty_table.location), faulty_table.location / "_mutation_probe_big"
    content = os.urandom(6_000_000)
    for number in range(3):
        file = storage.create(place)
        file.write(content[:3_000_000])
        faulty_table.hdfs.stop_datanode(number)
        file.write(content[3_000_000:])
        file.close()
        with storage.open_input(place) as stream:
            assert stream.read() == content
        storage.delete_file(place)
        faulty_table.hdfs.heal()


@pytest.mark.long
def test_data_nodes_go_down_while_a_change_set_is_written(faulty_table: FaultyTable, at: At) -> None:
    """One between two files."""
    at("open_writer", 4, lambda: faulty_table.hdfs.stop_datanode(1))
    faulty_table.write(MANY)
    faulty_table.expect(MANY)


@pytest.mark.long
def test_too_few_data_nodes(faulty_table: FaultyTable) -> None:
    """It fails when it is written, and nothing is there."""
    for _ in range(2):
        faulty_table.hdfs.stop_datanode(0)
    with pytest.raises(DeltaWriteError, match=r"refused|DataTransferError"):
        faulty_table.write(MANY)


@pytest.mark.long
def test_a_data_node_goes_down_while_we_read(faulty_table: FaultyTable) -> None:
    """There is another copy; ten megabytes are read from where the first stopped."""
    storage, place = storage_at(faulty_table.location), faulty_table.location / "_mutation_probe_read"
    content = os.urandom(10_000_000)
    file = storage.create(place)
    file.write(content)
    file.close()
    with storage.open_input(place) as stream:
        assert stream.read(1000) == content[:1000]
        faulty_table.hdfs.stop_datanode(0)
        assert stream.read() == content[1000:]
    storage.delete_file(place)
    with client_of(faulty_table.hive, faulty_table.name) as client, client.new_transaction() as transaction:
        assert len(rows_with_ids(transaction, faulty_table.name)) == 4


@pytest.mark.parametrize("method", [pytest.param("create_directory", marks=pytest.mark.long), "rename"])
def test_safe_mode_in_the_middle_of_a_commit(faulty_table: FaultyTable, at: At, method: str) -> None:
    """By hand, so nobody waits for its end; what could not be removed is overlooked by readers."""
    with (
        pytest.raises(DeltaWriteError, match="safe mode"),
        client_of(faulty_table.hive, faulty_table.name) as client,
        client.new_transaction() as transaction,
    ):
        insert(transaction, faulty_table.name, NEW)
        at(method, 3, lambda: faulty_table.hdfs.safe_mode(True))


@pytest.mark.long
@pytest.mark.parametrize("bound", [{"names": 1}, {"space_bytes": 1000}])
def test_a_quota_in_the_middle_of_writing(faulty_table: FaultyTable, at: At, bound: dict[str, int]) -> None:
    """Of names, and of bytes."""
    place = faulty_table.location.path
    at("open_writer", 3, lambda: faulty_table.hdfs.set_quota(place, **bound))
    try:
        with pytest.raises(DeltaWriteError, match="QuotaExceededException"):
            faulty_table.write(NEW)
    finally:
        faulty_table.hdfs.set_quota(place)
    assert hidden(faulty_table.location) == []


def test_a_quota_in_the_middle_of_a_commit(faulty_table: FaultyTable, at: At) -> None:
    """The directories of deltas are names, too."""
    place = faulty_table.location.path
    try:
        with (
            pytest.raises(MutationError, match="QuotaExceededException"),
            client_of(faulty_table.hive, faulty_table.name) as client,
            client.new_transaction() as transaction,
        ):
            insert(transaction, faulty_table.name, NEW)
            at("create_directory", 3, lambda: faulty_table.hdfs.set_quota(place, names=1))
    finally:
        faulty_table.hdfs.set_quota(place)
    assert hidden(faulty_table.location) == []


@pytest.mark.parametrize(
    ("method", "number"), [("rename", 2), pytest.param("list", 2, marks=pytest.mark.long)]
)
def test_a_permission_is_taken_in_the_middle(
    faulty_table: FaultyTable, at: At, method: str, number: int
) -> None:
    """While files are published, or before; whoever comes back may remove what had to stay."""
    hdfs, place = faulty_table.hdfs, f"{faulty_table.location.path}/ds=a"
    hdfs.make_directory(place, mode="777")
    try:
        with (
            as_user("etl"),
            pytest.raises(DeltaWriteError, match="Permission denied: user=etl"),
            client_of(faulty_table.hive, faulty_table.name) as client,
            client.new_transaction() as transaction,
        ):
            insert(transaction, faulty_table.name, {"a": [5, 6], "b": [7, 8]})
            at(method, number, lambda: hdfs.make_directory(place, mode="700"))
    finally:
        hdfs.make_directory(place, mode="777")


@pytest.mark.parametrize("aborts", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_worker_is_killed_with_open_files(faulty_table: FaultyTable, aborts: bool) -> None:
    """Its leases stop neither an abort nor a sweep."""
    hive, name = faulty_table.hive, faulty_table.name
    with client_of(hive, name) as client:
        transaction = client.new_transaction()
        transaction.begin()
        table = transaction.table(name)
        child = os.fork()
        if child == 0:
            coordinator = MutatorCoordinator(table)
            for number in range(1, 4):
                coordinator.insert([f"p{number}"], {"id": number, "msg": "never"})
            files = [storage_at(table.location).create(table.location / f"_mutation_{transaction.txn_id}/x")]
            files[0].write(b"x" * 3_000_000)
            os.kill(os.getpid(), signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert len(hidden(faulty_table.location)) == 1
        if aborts:
            transaction.abort()
            assert hidden(faulty_table.location) == []
        else:
            with open_client(hive.uri) as metastore:
                metastore.abort_txn(transaction.txn_id)
