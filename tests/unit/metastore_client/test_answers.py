"""Answers that can be decoded and lack a field, or hold what it cannot hold; tests/fuzz has random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metastore_client._thrift.gen import ttypes
from metastore_client.client import MetastoreClient
from metastore_client.errors import InvalidAnswerError
from metastore_client.model import TableInfo
from metastore_client.remote import thrift_values
from metastore_client.remote.thrift_answers import Answer
from metastore_client.valid_ids import NO_OPEN_ID, ValidWriteIdList
from tests.fuzz.answer_cases import CALLS
from tests.fuzz.sound_server import SoundServer

_STATE_OF_A_LOCK = r"1 \(ACQUIRED\), 2 \(WAITING\), 3 \(ABORT\), 4 \(NOT_ACQUIRED\)"


def _set(path: str, value: Any) -> Callable[[Any], Any]:
    """Set a field; a number in the path is the place in a list, no path the answer itself."""

    def damage(answer: Any) -> Any:
        *steps, last = path.split(".")
        at = answer
        for step in steps:
            at = at[int(step)] if step.isdigit() else getattr(at, step)
        if last.isdigit():
            at[int(last)] = value
        else:
            setattr(at, last, value)
        return answer

    return damage


def _lacks(*paths: tuple[str, str]) -> list[tuple[str, Callable[[Any], Any], str]]:
    found = []
    for call, path in paths:
        *steps, last = path.split(".")
        shown = "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in [*steps, last])
        pattern = shown.removeprefix(".").replace("[", r"\[").replace("]", r"\]").replace(".", r"\.")
        found.append((call, _set(path, None), f"{pattern} is absent, expected"))
    return found


CASES: list[tuple[str, Callable[[Any], Any], str]] = [
    *_lacks(
        *(("get_table", f"table.{name}") for name in ("dbName", "sd", "partitionKeys", "parameters")),
        *(("get_table", f"table.sd.{name}") for name in ("cols", "numBuckets", "cols.0.name", "cols.1.type")),
        *(("get_table", "table"), ("get_table", "table.partitionKeys.0.name")),
        *(("get_partitions_by_names", f"1.{name}") for name in ("values", "sd", "sd.location", "parameters")),
        *(("get_open_txns", f"open_txns.1.{name}") for name in ("id", "state", "user", "hostname")),
        *(("get_open_txns", name) for name in ("txn_high_water_mark", "open_txns")),
        *(("open_txn", "txn_ids"), ("heartbeat_txn_range", "aborted"), ("heartbeat_txn_range", "nosuch")),
        *(("allocate_write_id", "txnToWriteIds"), ("allocate_write_id", "txnToWriteIds.0.writeId")),
        *(("lock", "lockid"), ("lock", "state"), ("check_lock", "state"), ("compact", "accepted")),
        *(("show_locks", f"locks.0.{name}") for name in ("lockid", "dbname", "state", "type", "user")),
        *(("show_compactions", "compacts"), ("show_compactions", "compacts.0.type")),
        *(("get_constraints", f"allTableConstraints.checkConstraints.0.{n}") for n in ("check_expression",)),
        *(("get_constraints", f"allTableConstraints.notNullConstraints.0.{n}") for n in ("column_name",)),
        *(("get_constraints", f"allTableConstraints.defaultConstraints.0.{n}") for n in ("enable_cstr",)),
        *(("get_valid_write_ids", f"tblValidWriteIds.0.{n}") for n in ("abortedBits", "invalidWriteIds")),
    ),
    (
        "get_open_txns",
        _set("open_txns.1.state", 9),
        r"open_txns\[1\]\.state is 9, expected one of 2 \(AB",
    ),
    (
        "get_open_txns",
        _set("open_txns.0.state", 1),
        r"open_txns\[0\]\.state is 1, expected one of 2 \(AB",
    ),
    ("get_open_txns", _set("open_txns.0.id", 0), r"open_txns\[0\]\.id is 0, expected a number from 1"),
    ("get_open_txns", _set("txn_high_water_mark", -1), "txn_high_water_mark is -1, expected a number from 0"),
    ("open_txn", _set("txn_ids", [1, 2]), r"txn_ids is \[1, 2\], expected the id of one transaction"),
    ("heartbeat_txn_range", _set("aborted", {8}), r"aborted\[0\] is 8, expected a number from 7 up to 7"),
    ("lock", _set("state", 0), f"state is 0, expected one of {_STATE_OF_A_LOCK}"),
    ("lock", _set("lockid", -5), "lockid is -5, expected a number from 1"),
    ("check_lock", _set("lockid", 6), "lockid is 6, expected a number from 5 up to 5"),
    ("show_locks", _set("locks.0.type", 77), r"locks\[0\]\.type is 77, expected one of 1 \(SHARED_READ\)"),
    (
        "show_compactions",
        _set("compacts.0.type", -1),
        r"compacts\[0\]\.type is -1, expected one of 1",
    ),
    ("allocate_write_id", _set("txnToWriteIds.0.txnId", 8), "expected one write id, of transaction 7"),
    ("allocate_write_id", _set("txnToWriteIds.0.writeId", 0), r"\.writeId is 0, expected a number from 1"),
    (
        "get_valid_write_ids",
        _set("tblValidWriteIds.0.fullTableName", "d.x"),
        "is 'd.x', expected a requested",
    ),
    (
        "get_valid_write_ids",
        _set("tblValidWriteIds", []),
        r"expected the valid write ids of d\.t, d\.u",
    ),
    ("get_valid_write_ids", _set("tblValidWriteIds.0.invalidWriteIds.0", 0), r"invalidWriteIds\[0\] is 0"),
    (
        "get_table",
        _set("table.tableName", "other"),
        "is 'other', expected a requested name: 't'",
    ),
    (
        "get_partitions_by_names",
        _set("0.dbName", "x"),
        r"\[0\]\.dbName is 'x', expected a requested name",
    ),
    (
        "get_partitions_by_names",
        _set("0.values", ["a", "b"]),
        r"expected one value for each partition key",
    ),
    (
        "get_partition_names",
        _set("0", "a"),
        r"\[0\] is 'a', expected a partition name",
    ),
]
"""Method of the client, damage of its last answer, what the error says."""


@pytest.fixture
def server(tmp_path: Path) -> SoundServer:
    return SoundServer("4.1", tmp_path, is_partitioned=True)


@pytest.fixture
def client(server: SoundServer) -> Iterator[MetastoreClient]:
    with server.client() as made:
        made.capabilities()
        yield made


@pytest.mark.parametrize(("call", "damage", "what"), CASES, ids=[f"{c}: {w}" for c, _, w in CASES])
def test_the_error_names_call_field_and_value(
    server: SoundServer, client: MetastoreClient, call: str, damage: Callable[[Any], Any], what: str
) -> None:
    """And what to do."""
    CALLS[call](client)
    before = len(server.calls)
    CALLS[call](client)
    server.damaged = len(server.calls) + len(server.calls) - before - 1
    server.damage_value = damage
    with pytest.raises(InvalidAnswerError, match=what) as caught:
        CALLS[call](client)
    assert f"the answer of thrift://sound:1 to {server.calls[-1]}: " in str(caught.value)
    assert "see its log" in str(caught.value)
    CALLS[call](client)


def test_what_was_not_understood_is_not_written_back(server: SoundServer, client: MetastoreClient) -> None:
    """A table without properties would lose them all."""
    for call in ("set_table_parameters", "record_row_counts"):
        server.damaged = len(server.calls)
        server.damage_value = _set("table.parameters", None)
        with pytest.raises(InvalidAnswerError, match=r"table\.parameters is absent"):
            CALLS[call](client)
    assert not [name for name in server.calls if name.startswith("alter")]


def test_the_answer_to_another_call_is_refused(server: SoundServer, client: MetastoreClient) -> None:
    """Generated code would decode it as its own; the connection is out of step then."""
    server.damaged = len(server.calls)
    server.damage_bytes = lambda answer: answer.replace(b"get_table_req", b"get_catalogs_", 1)
    with pytest.raises(
        InvalidAnswerError, match="table_req could not be decoded: received an answer to 'get_cat"
    ):
        client.get_table("d", "t")
    assert client.get_table("d", "t").name == "t"


def test_no_base_is_valid_above_an_open_write() -> None:
    """Whatever an answer calls the least open id."""
    told, silent = (ValidWriteIdList.from_bits("d.t", 9, [3, 5], least, b"\1") for least in (8, None))
    assert told.min_open == silent.min_open == 5
    assert ValidWriteIdList.from_bits("d.t", 9, [3], None, b"\1").min_open == NO_OPEN_ID


def test_all_that_is_optional_may_be_absent() -> None:
    """As real servers leave it out."""
    storage = ttypes.StorageDescriptor(cols=[], numBuckets=-1)
    table = ttypes.Table("t", "D", sd=storage, partitionKeys=[], parameters={})
    found = thrift_values.table_info(Answer(table, "it"), "d", "t")
    expected = TableInfo("d", "t", (), table_type="", input_format="", output_format="", serde="")
    assert found == expected
    txn = thrift_values.txn_info(Answer(ttypes.TxnInfo(1, 3, "u", "h"), "it"))
    assert (txn.agent_info, txn.started_time) == ("", None)
