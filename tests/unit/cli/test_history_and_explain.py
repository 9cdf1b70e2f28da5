"""``hive-mutate history`` and ``hive-mutate explain`` on a real metastore."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from metastore_client.embedded.server import EmbeddedMetastore
from metastore_client.model import (
    ColumnInfo,
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockType,
)
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from mutation_api.hive.connect import connect as connect_hive
from mutation_api.upkeep.create_acid_table import create_acid_table

pytestmark = pytest.mark.slow

TABLE = "default.told"


@pytest.fixture
def metastore(embedded_metastore: EmbeddedMetastore) -> Iterator[ThriftMetastoreClient]:
    """With a partitioned table in which two rows were inserted, and one was updated."""
    with open_client(embedded_metastore.uri) as client:
        create_acid_table(
            client,
            TABLE,
            [ColumnInfo("id", "int"), ColumnInfo("msg", "string")],
            [ColumnInfo("ds", "string")],
            clustered_by=["id"],
            num_buckets=2,
        )
        rows = pa.table({"id": pa.array([1, 2], pa.int32()), "msg": ["x", "y"], "ds": ["a", "b"]})
        with connect_hive(client) as hive:
            with hive.transaction(TABLE, create_partitions=True) as tx:
                tx.table(TABLE).append(rows)
            with hive.transaction(TABLE) as tx:
                merge = tx.table(TABLE).merge(rows.slice(0, 1).set_column(1, "msg", [["new"]]), on=["id"])
                merge.when_matched_update_all().execute()
        yield client
        client.drop_table("default", "told", delete_data=True)


def _told(capsys: pytest.CaptureFixture[str], uri: str, *words: str) -> str:
    capsys.readouterr()
    assert main([*words, "--metastore", uri]) == EXIT_OK
    return capsys.readouterr().out


def test_history(
    metastore: ThriftMetastoreClient,
    embedded_metastore: EmbeddedMetastore,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A line for each id, or for each partition of it; JSON has the same."""
    uri = embedded_metastore.uri
    head, first, second = _told(capsys, uri, "history", TABLE).splitlines()
    assert head.split() == [
        *("ID", "TXN", "STATE", "WRITTEN", "WHO", "PARTITION"),
        *("INSERTS", "UPDATES", "DELETES"),
    ]
    assert first.split()[-5:] == ["2", "partitions", "2", "0", "0"]
    assert second.split()[-4:] == ["ds=a", "1", "0", "1"]  # a split update
    assert first.split()[2] == second.split()[2] == "committed"
    by_partition = _told(capsys, uri, "history", TABLE, "--by-partition").splitlines()[1:]
    assert [line.split()[-4:] for line in by_partition] == [
        ["ds=a", "1", "0", "0"],
        ["ds=b", "1", "0", "0"],
        ["ds=a", "1", "0", "1"],
    ]
    found = json.loads(_told(capsys, uri, "history", TABLE, "--json"))
    assert (found["table"], found["problems"], len(found["ids"])) == (TABLE, [], 2)


def test_history_of_nothing(
    metastore: ThriftMetastoreClient,
    embedded_metastore: EmbeddedMetastore,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A table that does not exist is an error, by name."""
    assert main(["history", "default.nothing", "--metastore", embedded_metastore.uri]) == EXIT_FAILED
    assert "default.nothing" in capsys.readouterr().err


def test_explain(
    metastore: ThriftMetastoreClient,
    embedded_metastore: EmbeddedMetastore,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its owner, its locks, who waits for whom, and what to do next; JSON has the same."""
    uri = embedded_metastore.uri
    component = LockComponent(
        LockType.EXCLUSIVE, LockLevel.TABLE, "default", "told", None, DataOperationType.UPDATE
    )
    txns = [metastore.open_txn(user, "host", "etl") for user in ("ann", "bob")]
    for txn, user in zip(txns, ("ann", "bob"), strict=True):
        metastore.lock(LockRequest((component,), txn, user, "host", "etl"))
    holder, waiting = txns
    told = _told(capsys, uri, "explain", str(waiting))
    assert told.startswith(f"transaction {waiting}: open\n  of bob@host")
    assert f"on default.told waits for transaction {holder} of ann@host" in told
    assert f"next: it waits for transaction {holder}: hive-mutate explain {holder}" in told
    assert f"transaction {waiting} of bob@host" in _told(capsys, uri, "explain", str(holder))
    found = json.loads(_told(capsys, uri, "explain", str(waiting), "--json"))
    assert found["held_up"][0]["by"]["user"] == "ann"
    for txn in txns:
        metastore.abort_txn(txn)
    over = _told(capsys, uri, "explain", str(holder), "--table", TABLE)
    assert "table default.told" in over


def test_readers_wait_for_a_lock_as_long_as_they_are_told(
    metastore: ThriftMetastoreClient,
    embedded_metastore: EmbeddedMetastore,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Somebody has the table for himself; the error names him and the option."""
    component = LockComponent(
        LockType.EXCLUSIVE, LockLevel.TABLE, "default", "told", None, DataOperationType.UPDATE
    )
    txn = metastore.open_txn("ann", "host", "etl")
    metastore.lock(LockRequest((component,), txn, "ann", "host", "etl"))
    for words in (
        ("read", TABLE),
        ("diff", "--table", TABLE, "--key", "id", "--since", "1", "--summary"),
    ):
        waits = ("--lock-timeout", "0.3", "--metastore", embedded_metastore.uri)
        assert main([*words, *waits]) == EXIT_FAILED
        printed, err = capsys.readouterr()
        assert printed == ""
        assert f"transaction {txn}, ann@host (etl)" in err
        assert "raise --lock-timeout, or abort" in err
    metastore.abort_txn(txn)


@pytest.mark.parametrize("words", [["history"], ["explain"], ["explain", "x"]])
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A table, or a number, is needed."""
    with pytest.raises(SystemExit) as exited:
        main(words)
    assert exited.value.code == EXIT_USAGE
    assert "error" in capsys.readouterr().err
