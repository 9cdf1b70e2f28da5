"""Behaviour of single releases of Hive, good or bad, on which the client relies; each tested on the real one.

The client avoids the faults of servers, so these tests call the servers past the client.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest

from judges.hive.hive_judges import Hive4, Hive31
from metastore_client._thrift.gen import Metastore2, Metastore3, Metastore4
from metastore_client.errors import MetastoreError, MetastoreUnavailableError, TxnAbortedError
from metastore_client.model import (
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    TxnState,
    WriteNotification,
)
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from metastore_client.remote.thrift_values import thrift_table, ttypes
from tests.fixtures.fix_metastore import acid_table_info, real_metastore_uri
from tests.fixtures.fix_newest import HIVE_4

pytestmark = pytest.mark.slow
UPDATE = DataOperationType.UPDATE
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def on_3(hive31: Hive31) -> Iterator[ThriftMetastoreClient]:
    """A client of Hive 3.1.3."""
    with open_client(hive31.uri) as client:
        yield client


@pytest.fixture(scope="module", params=HIVE_4)
def on_4(request: pytest.FixtureRequest) -> Iterator[ThriftMetastoreClient]:
    """A client of Hive 4.1.0 and of 4.2.1."""
    with open_client(real_metastore_uri(request, request.param)) as client:
        yield client


@pytest.fixture
def table() -> str:
    """A name that no other test uses; most calls here need no table."""
    return f"f{os.getpid()}_{next(_numbers)}"


def open_txn(client: ThriftMetastoreClient) -> int:
    return client.open_txn("user", "host", "agent")


def allocate(client: ThriftMetastoreClient, table: str, txn_ids: list[int]) -> dict[int, int]:
    request = ttypes.AllocateTableWriteIdsRequest(dbName="default", tableName=table, txnIds=txn_ids)
    answer = client._call("allocate_table_write_ids", request, service=Metastore3)
    return {pair["txnId"].id(): pair["writeId"].id() for pair in answer["txnToWriteIds"].elements()}


def watermark(client: ThriftMetastoreClient, full_name: str, valid_txns: str | None) -> int:
    request = ttypes.GetValidWriteIdsRequest(fullTableNames=[full_name], validTxnList=valid_txns)
    answer = client._call("get_valid_write_ids", request, service=Metastore3)
    return answer["tblValidWriteIds"].elements()[0]["writeIdHighWaterMark"].number()


def lock(
    client: ThriftMetastoreClient,
    txn_id: int,
    table: str,
    type: LockType,
    *,
    partition: str | None = None,
    operation: DataOperationType = UPDATE,
    is_transactional: bool = True,
) -> LockState:
    level = LockLevel.TABLE if partition is None else LockLevel.PARTITION
    component = LockComponent(
        type, level, "default", table, partition, operation, is_transactional=is_transactional
    )
    return client.lock(LockRequest((component,), txn_id, "user", "host", "agent")).state


def test_3_1_hangs_up_when_it_fails_inside_and_4_1_does_not(
    on_3: ThriftMetastoreClient, on_4: ThriftMetastoreClient, table: str
) -> None:
    """Write ids of a transaction that is not open: why a broken connection does not prove a dead node."""
    with pytest.raises(MetastoreUnavailableError, match="broke"):
        allocate(on_3, table, [9_000_000])
    with pytest.raises(MetastoreError, match="Internal error"):
        allocate(on_4, table, [9_000_000])
    for client in (on_3, on_4):
        with pytest.raises(MetastoreError, match="Internal error"):
            client._call("open_txns", ttypes.OpenTxnRequest(num_txns=0, user="u", hostname="h"))
        assert open_txn(client) > 0


def test_4_hangs_up_when_it_lists_transactions_with_a_missing_id(on_4: ThriftMetastoreClient) -> None:
    """It takes a missing id for open, for one second, and has no user for it; the client lists the ids."""
    for _ in range(100):
        before = open_txn(on_4)
        with pytest.raises(MetastoreError, match="Internal error"):  # the id is used up
            on_4._call("open_txns", ttypes.OpenTxnRequest(num_txns=1, user="u" * 5_000, hostname="h"))
        after = open_txn(on_4)
        try:
            on_4._call("get_open_txns_info")
        except MetastoreUnavailableError as error:
            assert error.outcome_unknown
            states = {each.id: each.state for each in on_4.get_open_txns().txns}
            assert states[before] is states[after] is TxnState.OPEN
            if before + 1 in states:
                assert states[before + 1] is TxnState.OPEN
                return
    pytest.fail("a missing id never disturbed the server")


def test_3_1_gives_a_second_write_id_to_a_transaction_in_a_mixed_list(
    on_3: ThriftMetastoreClient, table: str
) -> None:
    """Why write ids are asked for one transaction at a time."""
    known, new = open_txn(on_3), open_txn(on_3)
    assert allocate(on_3, table, [known]) == {known: 1}
    assert allocate(on_3, table, [known, new]) == {known: 2, new: 3}


def test_3_1_wants_a_list_of_transactions_and_names_in_lower_case(
    on_3: ThriftMetastoreClient, table: str
) -> None:
    """Otherwise it hangs up, or shows an empty table without an error."""
    txn_id = open_txn(on_3)
    allocate(on_3, table.upper(), [txn_id])
    with pytest.raises(MetastoreError):
        watermark(on_3, f"default.{table}", None)
    assert watermark(on_3, f"default.{table}", "") == 1
    assert watermark(on_3, f"DEFAULT.{table.upper()}", "") == 0


def test_3_1_does_not_read_the_registration_of_2_3(on_3: ThriftMetastoreClient, table: str) -> None:
    """Its fields moved; one layout for all releases is impossible."""
    request = ttypes.AddDynamicPartitions2(
        txnid=open_txn(on_3), dbname="default", tablename=table, partitionnames=["ds=1"], operationType=3
    )
    with pytest.raises(MetastoreError):
        on_3._call("add_dynamic_partitions", request, service=Metastore2)


def test_a_second_lock_of_one_transaction_passes_on_3_1_and_waits_on_4_1(
    on_3: ThriftMetastoreClient, on_4: ThriftMetastoreClient, table: str
) -> None:
    """Why ``lock`` is never repeated."""
    for client, type, second in (
        (on_3, LockType.SHARED_WRITE, LockState.ACQUIRED),
        (on_4, LockType.EXCL_WRITE, LockState.WAITING),
    ):
        holder, waiter = open_txn(client), open_txn(client)
        assert lock(client, holder, table, type) is LockState.ACQUIRED
        assert lock(client, waiter, table, type) is LockState.WAITING
        assert lock(client, waiter, table, type) is second
        for txn_id in (holder, waiter):
            client.abort_txn(txn_id)


@pytest.mark.parametrize(
    ("partitions", "is_transactional", "conflicts"),
    [((None, None), True, True), ((None, None), False, False), ((None, "ds=1"), True, False)],
)
def test_what_3_1_takes_for_a_conflict(
    on_3: ThriftMetastoreClient,
    table: str,
    partitions: tuple[str | None, str | None],
    is_transactional: bool,
    conflicts: bool,
) -> None:
    """Not what is sent as not transactional, nor a whole table beside one of its partitions."""
    both = open_txn(on_3), open_txn(on_3)
    for txn_id, partition in zip(both, partitions, strict=True):
        state = lock(
            on_3,
            txn_id,
            table,
            LockType.SHARED_READ,
            partition=partition,
            is_transactional=is_transactional,
        )
        assert state is LockState.ACQUIRED
    on_3.commit_txn(both[0])
    if conflicts:
        with pytest.raises(TxnAbortedError, match="write conflict"):
            on_3.commit_txn(both[1])
    else:
        on_3.commit_txn(both[1])


def test_3_1_lower_cases_the_whole_partition_name_in_locks(on_3: ThriftMetastoreClient, table: str) -> None:
    """Values too, so that two partitions block each other; the table is locked instead."""
    first, second = open_txn(on_3), open_txn(on_3)
    assert lock(on_3, first, table, LockType.SHARED_WRITE, partition="ds=P") is LockState.ACQUIRED
    assert lock(on_3, second, table, LockType.SHARED_WRITE, partition="ds=p") is LockState.WAITING
    assert {each.partition for each in on_3.show_locks("default", table)} == {"ds=p"}
    for txn_id in (first, second):
        on_3.abort_txn(txn_id)


def test_4_loses_updates_unless_told_to_look(on_4: ThriftMetastoreClient, table: str) -> None:
    """``exclWriteEnabled`` left out means: do not check. With false the first to commit wins."""
    for fields, loses in (({}, True), ({"exclWriteEnabled": False}, False)):
        name = f"{table}_{loses}".lower()
        winner, loser = open_txn(on_4), open_txn(on_4)
        for txn_id in (winner, loser):
            allocate(on_4, name, [txn_id])
            assert lock(on_4, txn_id, name, LockType.SHARED_WRITE) is LockState.ACQUIRED
        on_4._call("commit_txn", ttypes.CommitTxnRequest(txnid=winner, **fields))
        if loses:
            on_4._call("commit_txn", ttypes.CommitTxnRequest(txnid=loser, **fields))
        else:
            with pytest.raises(TxnAbortedError, match=f"committed by .txnid:{winner},"):
                on_4._call("commit_txn", ttypes.CommitTxnRequest(txnid=loser, **fields))


def test_4_makes_acid_tables_only_for_those_who_can_write_them(
    on_4: ThriftMetastoreClient, table: str
) -> None:
    """The creator must name its capabilities, and a change of statistics must carry a write id."""
    sent = thrift_table(acid_table_info("default", table), "someone")
    with pytest.raises(MetastoreError, match="capabilities"):
        on_4._call("create_table", sent)
    on_4.create_table(acid_table_info("default", table))
    raw: Any = on_4.get_table("default", table).sent
    raw.parameters["COLUMN_STATS_ACCURATE"] = '{"BASIC_STATS":"true"}'
    with pytest.raises(MetastoreError, match="without providing the transactional write state"):
        on_4._alter_raw_table(raw, {})


def test_4_hides_the_agent_and_3_1_does_not(on_3: ThriftMetastoreClient, on_4: ThriftMetastoreClient) -> None:
    """Our transactions are recognised by user and host there."""
    told = {}
    for client in (on_3, on_4):
        txn_id = open_txn(client)
        (info,) = [txn for txn in client.get_open_txns().txns if txn.id == txn_id]
        assert (info.user, info.hostname) == ("user", "host")
        told[client] = info.agent_info
    assert told[on_4] == "Unknown"


@pytest.mark.parametrize("hive_notifying", ["4.1"], indirect=True)
def test_4_keeps_the_names_of_written_files(hive_notifying: Hive4, table: str) -> None:
    """Each with its directory, where DML events are on; an empty list leaves a row too."""
    directories = ("delta_0000001_0000001_0000", "delete_delta_0000001_0000001_0000")
    files = tuple((f"file:/w/{table}/ds=a/{name}/bucket_00000", name) for name in directories)
    with open_client(hive_notifying.uri) as client:
        client.create_table(acid_table_info("default", table, "ds"))
        client.add_partitions("default", table, [("a",), ("b",)])
        txn_id = open_txn(client)
        write_id = client.allocate_write_id(txn_id, "default", table)
        client.add_write_notifications(
            [
                WriteNotification(txn_id, write_id, "default", table.upper(), ("a",), files),
                WriteNotification(txn_id, write_id, "default", table, ("b",), ()),
            ]
        )
        rows = hive_notifying.metastore_rows(
            "SELECT WNL_TXNID, WNL_WRITEID, WNL_PARTITION, WNL_FILES FROM TXN_WRITE_NOTIFICATION_LOG "
            f"WHERE WNL_TABLE = '{table}' ORDER BY WNL_PARTITION"
        )
        client.abort_txn(txn_id)
    assert [row[:3] for row in rows] == [[str(txn_id), str(write_id), f"ds={value}"] for value in "ab"]
    for path, directory in files:
        assert path in str(rows[0][3]) and f"#{directory}" in str(rows[0][3])


def read_mark(client: ThriftMetastoreClient, txn_id: int, name: str, write_id: int) -> None:
    """What Hive's own client says of a table that a query reads, with the first id beyond its snapshot."""
    client._call("add_write_ids_to_min_history", txn_id, {name: write_id}, service=Metastore4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("told", "spared_by"),
    [
        pytest.param(None, {"4.1"}, id="nothing"),
        pytest.param(3, {"4.1"}, id="as Hive"),
        pytest.param(1, {"4.1", "4.2"}, id="as we"),
    ],
)
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_4_2_cleans_under_a_reader_that_did_not_tell(
    hive_line: Hive4, line_database: str, told: int | None, spared_by: set[str]
) -> None:
    """4.1 spares what any open transaction may read; 4.2 what lies above the lowest write id it was told.

    Hive's own client tells the first id beyond its snapshot, so a compaction of what it reads is cleaned.
    """
    name = f"{line_database}.t"
    hive_line.sql(f"CREATE TABLE {name} (id int) STORED AS ORC TBLPROPERTIES ('transactional'='true')")
    for id in (1, 2):
        hive_line.sql(f"INSERT INTO {name} VALUES ({id})")
    with open_client(hive_line.uri) as client:
        reader = open_txn(client)
        if told is not None:
            read_mark(client, reader, name, told)
        hive_line.compact(name, "major")
        location = hive_line.warehouse / f"{line_database}.db" / "t"
        is_spared = bool([*location.glob("delta_*")])
        client.abort_txn(reader)
    assert is_spared == (hive_line.line in spared_by)
