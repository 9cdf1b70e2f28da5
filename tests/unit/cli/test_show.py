"""``hive-mutate show`` on a real metastore."""

from __future__ import annotations

import json

import pytest

from metastore_client.embedded.server import EmbeddedMetastore
from metastore_client.model import (
    CompactionType,
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockType,
)
from metastore_client.remote.thrift_client import open_client
from mutation_api.cli.main import main
from mutation_api.cli.show import ABORTED_SHOWN
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK

pytestmark = pytest.mark.slow


def lines_of(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(words) == EXIT_OK
    return capsys.readouterr().out.splitlines()


def test_transactions_as_table_and_json(
    embedded_metastore: EmbeddedMetastore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Columns are aligned; JSON has one object a line, times as ISO text in UTC."""
    uri = embedded_metastore.uri
    with open_client(uri) as client:
        txn_id = client.open_txn("shown", "host", "agent")
    head, *rows = lines_of(capsys, "show", "txns", "--metastore", uri)
    assert head.split()[:3] == ["ID", "STATE", "USER"]
    (row,) = [each for each in rows if "shown" in each]
    assert row.split()[:4] == [str(txn_id), "open", "shown", "host"]
    assert row.index("open") == head.index("STATE")
    objects = [json.loads(each) for each in lines_of(capsys, "show", "txns", "--json", "--metastore", uri)]
    (shown,) = [each for each in objects if each["id"] == txn_id]
    assert (shown["state"], shown["user"]) == ("open", "shown")
    assert shown["started_time"].endswith("+00:00")
    with open_client(uri) as client:
        client.commit_txn(txn_id)


def test_the_open_transactions_come_first(
    embedded_metastore: EmbeddedMetastore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then the latest aborted ones and the number of the others; --all and --json show each."""
    uri = embedded_metastore.uri
    component = LockComponent(
        LockType.SHARED_WRITE, LockLevel.TABLE, "default", "show_txns", None, DataOperationType.UPDATE
    )
    with open_client(uri) as client:
        known = len(client.get_open_txns().txns)
        aborted = [client.open_txn("gone", "h", "a") for _ in range(ABORTED_SHOWN + 3)]
        for each in aborted:  # with a lock, or the server forgets it
            client.lock(LockRequest((component,), each, "gone", "h", "a"))
            client.abort_txn(each)
        first, second = (client.open_txn("at_work", "h", "a") for _ in range(2))
        how = ((), ("--all",), ("--json",))
        short, full, objects = (lines_of(capsys, "show", "txns", *each, "--metastore", uri) for each in how)
        for each in (first, second):
            client.commit_txn(each)
    states = [row.split()[1] for row in full[1:]]
    assert states == sorted(states, reverse=True)
    ids = [int(row.split()[0]) for row in full[1:]]
    assert len(ids) == len(objects) == known + len(aborted) + 2
    opened = ids[: states.count("open")]
    assert opened == sorted(opened)
    assert opened[-2:] == [first, second]
    shown = [
        row.split() for row in full[: 1 + len(opened) + ABORTED_SHOWN]
    ]  # columns are as wide as what they show
    assert [row.split() for row in short[:-1]] == shown
    assert [int(row.split()[0]) for row in short[1 + len(opened) : -1]] == aborted[: -ABORTED_SHOWN - 1 : -1]
    left_out = states.count("aborted") - ABORTED_SHOWN
    assert left_out >= 3
    assert (
        short[-1]
        == f"and {left_out} older aborted transactions that are not yet cleaned: use --all to show them"
    )


def test_locks(embedded_metastore: EmbeddedMetastore, capsys: pytest.CaptureFixture[str]) -> None:
    """Each component of each lock, with what blocks it."""
    uri = embedded_metastore.uri
    component = LockComponent(
        LockType.SHARED_WRITE, LockLevel.TABLE, "default", "show_locks", None, DataOperationType.UPDATE
    )
    with open_client(uri) as client:
        txn_ids = [client.open_txn("u", "h", "a") for _ in range(2)]
        locks = [client.lock(LockRequest((component,), each, "u", "h", "a")).lock_id for each in txn_ids]
        objects = [json.loads(x) for x in lines_of(capsys, "show", "locks", "--json", "--metastore", uri)]
        shown = [each for each in objects if each["table"] == "show_locks"]
        assert [(each["lock_id"], each["state"], each["blocked_by"]) for each in shown] == [
            (locks[0], "acquired", None),
            (locks[1], "waiting", locks[0]),
        ]
        for txn_id in txn_ids:
            client.abort_txn(txn_id)


def test_locks_of_many_partitions_are_one_line(
    embedded_metastore: EmbeddedMetastore, capsys: pytest.CaptureFixture[str]
) -> None:
    """With their number, apart from another lock's and from the table's own; --all and --json show each."""
    uri = embedded_metastore.uri

    def component(partition: str | None) -> LockComponent:
        level = LockLevel.PARTITION if partition else LockLevel.TABLE
        return LockComponent(
            LockType.SHARED_READ, level, "default", "folded", partition, DataOperationType.SELECT
        )

    many = tuple(component(f"ds={n}") for n in range(30))
    with open_client(uri) as client:
        first, second = (client.open_txn("u", "h", "a") for _ in range(2))
        client.lock(LockRequest((component(None), *many), first, "u", "h", "a"))
        client.lock(LockRequest((component("ds=7"),), second, "u", "h", "a"))
        rows, each, objects = (
            [row for row in lines_of(capsys, "show", "locks", *how, "--metastore", uri) if "folded" in row]
            for how in ((), ("--all",), ("--json",))
        )
        for txn_id in (first, second):
            client.abort_txn(txn_id)
    assert sorted(partition_of(row) for row in rows) == ["-", "30 partitions", "ds=7"]
    assert sorted(map(partition_of, each)) == sorted(["-", "ds=7", *(f"ds={n}" for n in range(30))])
    assert len(objects) == 32


def partition_of(row: str) -> str:
    """The partition's column, which stands between the table's name and the state."""
    return row.partition("folded")[2].partition("acquired")[0].strip()


def test_compactions(embedded_metastore: EmbeddedMetastore, capsys: pytest.CaptureFixture[str]) -> None:
    """A queued compaction is shown."""
    uri = embedded_metastore.uri
    with open_client(uri) as client:
        client.compact("default", "show_compactions", None, CompactionType.MINOR)
    rows = lines_of(capsys, "show", "compactions", "--metastore", uri)
    assert any("show_compactions" in row and "minor" in row and "initiated" in row for row in rows)


def test_no_server_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the address; the exit status says that it failed."""
    assert main(["show", "txns", "--metastore", "thrift://127.0.0.1:1"]) == EXIT_FAILED
    assert "thrift://127.0.0.1:1" in capsys.readouterr().err
