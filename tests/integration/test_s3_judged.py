"""Tables on S3: real Hive reads what we write there, and we what it writes."""

from __future__ import annotations

import pytest

from judges.hive import HiveJudge
from judges.s3_server import S3Server
from metastore_client.thrift_client import connect
from mutation_api.client.sweep import sweep
from mutation_api.errors import ManifestError
from mutation_api.storage.connect import storage_at
from tests.integration.remote_table import check_turns, client_of, create, hidden, insert, seen

pytestmark = pytest.mark.slow

on_each_line = pytest.mark.parametrize("hive_on_s3", ["2.3", "4.1"], indirect=True)


@pytest.mark.feature("S3")
@on_each_line
def test_ours_and_theirs_by_turns(hive_on_s3: HiveJudge, database_on_s3: str) -> None:
    """Our rows, SQL's changes over them, ours over SQL's, compactions: Hive reads all of it right."""
    location = check_turns(hive_on_s3, f"{database_on_s3}.t")
    assert storage_at(location).unfinished(location) == []


@on_each_line
def test_nothing_is_left_of_what_ended_badly(hive_on_s3: HiveJudge, database_on_s3: str) -> None:
    """Of an abort, and, once it is over, of a transaction whose driver died: neither marks nor uploads."""
    hive, name = hive_on_s3, f"{database_on_s3}.t"
    create(hive, name)
    with client_of(hive, name) as client:
        location = client.tables[0].location
        storage = storage_at(location)
        aborted = client.new_transaction()
        aborted.begin()
        insert(aborted, name, {"a": [1, 2]})
        assert len(storage.unfinished(location)) == 2
        aborted.abort()
        assert storage.unfinished(location) == []
        dead, alive = client.new_transaction(), None
        dead.begin()
        insert(dead, name, {"a": [1, 2]})
        with connect(hive.uri) as metastore:
            (swept,) = sweep(metastore, *name.split("."))
            assert swept.found == ()
            assert len(storage.unfinished(location)) == 2
            metastore.abort_txn(dead.id)
            (swept,) = sweep(metastore, *name.split("."))
        assert [each.txn_id for each in swept.removed] == [dead.id]
        assert storage.unfinished(location) == []
        assert alive is None
    assert seen(hive, name) == []


@pytest.mark.parametrize("hive_on_s3", ["4.1"], indirect=True)
def test_a_writer_that_hands_nothing_in_is_refused(hive_on_s3: HiveJudge, database_on_s3: str) -> None:
    """Its rows would be lost; its mark tells of it."""
    hive, name = hive_on_s3, f"{database_on_s3}.t"
    create(hive, name)
    with client_of(hive, name) as client:
        transaction = client.new_transaction()
        transaction.begin()
        insert(transaction, name, {"a": [1, 2]})
        transaction._manifests.clear()
        transaction._writers.clear()
        with pytest.raises(ManifestError, match="handed in no manifests"):
            transaction.commit()
    assert seen(hive, name) == []


@pytest.mark.parametrize("hive_on_s3", ["4.1"], indirect=True)
def test_requests_of_a_file(hive_on_s3: HiveJudge, database_on_s3: str, s3: S3Server) -> None:
    """Two by the worker and one by the driver, and none whose number grows with rows."""
    hive, name = hive_on_s3, f"{database_on_s3}.t"
    create(hive, name)
    with client_of(hive, name) as client:
        for count in (40, 4000):
            with client.new_transaction() as transaction:
                s3.take_counts()
                insert(transaction, name, {"a": [*range(count)], "b": [*range(count)]})
                written = s3.take_counts()
                assert (written["create_upload"], written["upload_part"]) == (4, 4)
                assert written.get("put") == 1, "the mark of the attempt"
            committed = s3.take_counts()
            assert committed["complete_upload"] == 4
            assert committed.get("get", 0) + committed.get("head", 0) <= 4


@pytest.mark.parametrize("hive_on_s3", ["4.1"], indirect=True)
def test_a_bad_network(hive_on_s3: HiveJudge, database_on_s3: str, s3: S3Server) -> None:
    """Slow, busy, and its answers lost: the change set appears, once."""
    hive, name = hive_on_s3, f"{database_on_s3}.t"
    create(hive, name)
    lost = {"complete_upload": 3, "put": 2, "upload_part": 1, "delete_many": 1, "create_upload": 1}
    with client_of(hive, name) as client:
        s3.fail(busy_every=7, lost_answers=lost, latency_seconds=0.01)
        with client.new_transaction() as transaction:
            insert(transaction, name, {"a": [1, 2, 3], "b": [4, 5]})
        s3.fail()
        location = client.tables[0].location
        assert hidden(location) == []
    assert [row[0] for row in seen(hive, name)] == [1, 2, 3, 4, 5]
