"""Tables on a real HDFS: real Hive of each line reads what we write, and we what it writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import open_client
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.transaction.staging import list_staged
from mutation_api.upkeep.doctor import doctor
from mutation_api.upkeep.sweep import sweep
from tests.fixtures.fix_judge import LINES
from tests.integration.storages.remote_table import check_turns, client_of, create, hidden, insert, seen

pytestmark = pytest.mark.slow

on_each_line = pytest.mark.parametrize(
    "hive_on_hdfs",
    [pytest.param(line, marks=[] if line == "2.3" else [pytest.mark.long]) for line in LINES],
    indirect=True,
)
"""By default on that which other tests start on HDFS; on S3 4.1 runs by default, too."""


@pytest.mark.feature("HDFS")
@on_each_line
def test_ours_and_theirs_by_turns(hive_on_hdfs: HiveJudge, database_on_hdfs: str) -> None:
    """Our rows, SQL's changes over them, ours over SQL's, compactions: Hive reads all of it right."""
    check_turns(hive_on_hdfs, f"{database_on_hdfs}.t")


@on_each_line
def test_an_abort_leaves_nothing(hive_on_hdfs: HiveJudge, database_on_hdfs: str) -> None:
    """Neither rows nor files; nor does a transaction whose driver is gone, once it is over."""
    hive, name = hive_on_hdfs, f"{database_on_hdfs}.t"
    create(hive, name)
    with client_of(hive, name) as client:
        location = client.tables[0].location
        aborted = client.new_transaction()
        aborted.begin()
        insert(aborted, name, {"a": [1, 2]})
        assert len(hidden(location)) == 1
        aborted.abort()
        assert hidden(location) == []
        dead = client.new_transaction()
        dead.begin()
        insert(dead, name, {"a": [1, 2]})
        with open_client(hive.uri) as metastore:
            metastore.abort_txn(dead.txn_id)
            (swept,) = sweep(metastore, name)
        assert [each.txn_id for each in swept.removed] == [dead.txn_id]
        assert hidden(location) == []
    assert seen(hive, name) == []


@pytest.mark.parametrize("hive_on_hdfs", ["2.3"], indirect=True)
def test_a_local_directory_of_that_name_is_left_alone(hive_on_hdfs: HiveJudge, database_on_hdfs: str) -> None:
    """What is removed on HDFS is removed there: a path without its scheme named a local directory once."""
    hive, name = hive_on_hdfs, f"{database_on_hdfs}.t"
    create(hive, name)
    with client_of(hive, name) as client:
        dead = client.new_transaction()
        dead.begin()
        insert(dead, name, {"a": [1]})
        table = dead.table(name)
        staging = table.location / f"_mutation_{dead.txn_id}"
        local = Path(staging.path)
        (local / "w").mkdir(parents=True)
        try:
            with open_client(hive.uri) as metastore:
                metastore.abort_txn(dead.txn_id)
            with client.new_transaction():
                pass
            assert storage_at(staging).stat(staging) is None
            assert (local / "w").is_dir()
        finally:
            for directory in [local / "w", *local.parents][: len(local.parents) - 1]:
                if directory.is_dir() and not any(directory.iterdir()):
                    directory.rmdir()


@pytest.mark.parametrize("hive_on_hdfs", ["2.3"], indirect=True)
def test_what_is_staged_is_found(hive_on_hdfs: HiveJudge, database_on_hdfs: str) -> None:
    """A writer that forgets to hand in its manifests is noticed before the commit."""
    hive, name = hive_on_hdfs, f"{database_on_hdfs}.t"
    create(hive, name)
    with client_of(hive, name) as client:
        transaction = client.new_transaction()
        transaction.begin()
        insert(transaction, name, {"a": [1, 2]})
        found = list_staged(transaction.table(name), transaction.txn_id)
        assert len(found.files) == 2
        assert found.uploads == ()
        transaction.abort()


@pytest.mark.parametrize("hive_on_hdfs", ["2.3"], indirect=True)
def test_the_doctor_says_who_may_not_write(
    hive_on_hdfs: HiveJudge, database_on_hdfs: str, hdfs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a transaction begins: which directory, its owner and its mode."""
    hive, name = hive_on_hdfs, f"{database_on_hdfs}.t"
    create(hive, name)
    with open_client(hive.uri) as metastore:
        info = metastore.get_table(*name.split("."))
        place = Location.parse(info.location)
        hdfs.make_directory(place.path, mode="755", user="hive")
        child = os.fork()
        if child == 0:
            os.environ["HADOOP_USER_NAME"] = "etl"
            status = 1
            try:
                with open_client(hive.uri) as own:
                    (report,) = doctor(own, database_on_hdfs).tables
                assert "cannot be written" in str(report.reason), report
                assert "hive:hive:drwxr-xr-x" in str(report.reason), report
                status = 0
            except BaseException as error:
                print(repr(error), flush=True)
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        hdfs.make_directory(place.path, mode="777")
