"""A transaction that somebody else ended, or that another process uses, never ends in silence."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import Hive, HiveTransaction, MutatorClientBuilder, connect
from mutation_api.errors import MutationError, TransactionStateError
from mutation_api.upkeep.create_acid_table import create_acid_table

TABLE = "default.t"
ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def metastore(tmp_path: Path) -> InMemoryMetastore:
    made = InMemoryMetastore(tmp_path / "warehouse", capabilities=HIVE_4_1)
    create_acid_table(made, TABLE, [ColumnInfo("id", "bigint")], clustered_by=["id"], num_buckets=1)
    return made


def ids(metastore: InMemoryMetastore) -> list[int]:
    with connect(metastore) as hive, hive.snapshot(TABLE) as view:
        found: list[int] = sorted(view.table(TABLE).scan().to_arrow()["id"].to_pylist())
        return found


def by_a_thread(hive: Hive) -> None:
    other = threading.Thread(target=hive.close)
    other.start()
    other.join()


@pytest.mark.parametrize("end", [Hive.close, by_a_thread, lambda hive: hive._users[0][1].close()])
def test_a_connection_that_is_closed_in_the_block(
    metastore: InMemoryMetastore, end: Callable[[Hive], None]
) -> None:
    """The end of the block says that nothing was written."""
    hive = connect(metastore)
    with (
        pytest.raises(
            TransactionStateError, match=r"aborted while its block ran: .*None of its changes are visible"
        ),
        hive.transaction(TABLE) as tx,
    ):
        tx.table(TABLE).append(ROWS)
        end(hive)
    assert ids(metastore) == []


def test_blocks_that_end_in_the_wrong_order(metastore: InMemoryMetastore) -> None:
    """The connection's exit comes first."""
    ended = pytest.raises(TransactionStateError, match="aborted while its block ran")
    with ended, contextlib.ExitStack() as stack:
        hive = connect(metastore)
        tx = stack.enter_context(hive.transaction(TABLE))
        stack.enter_context(hive)
        tx.table(TABLE).append(ROWS)
    assert ids(metastore) == []


def test_a_client_that_is_closed_in_the_block(metastore: InMemoryMetastore) -> None:
    """The same, of the API for workers."""
    client = MutatorClientBuilder().metastore(metastore).add_sink_table(TABLE).build().connect()
    with pytest.raises(TransactionStateError, match="its client was closed"), client.new_transaction():
        client.close()


def test_who_ends_it_on_purpose_hears_nothing(metastore: InMemoryMetastore) -> None:
    """Abort and commit within the block."""
    with connect(metastore) as hive:
        with hive.transaction(TABLE) as tx:
            tx.table(TABLE).append(ROWS)
            tx.abort()
        with hive.transaction(TABLE) as tx:
            tx.table(TABLE).append(ROWS)
            tx.commit()
            hive.close()
    assert ids(metastore) == [1, 2]


def _in_child(tx: HiveTransaction, work: Callable[[HiveTransaction], Any], answers: Any) -> None:
    try:
        answers.put(("ended", repr(work(tx))))
    except MutationError as error:
        answers.put((type(error).__name__, str(error)))


def _end_block(tx: HiveTransaction) -> None:
    tx.__exit__(None, None, None)


def _fail_in_block(tx: HiveTransaction) -> None:
    tx.__exit__(ValueError, ValueError("x"), None)
    tx.close()


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    "work",
    [
        lambda tx: tx.table(TABLE).append(pa.table({"id": [9]})),
        lambda tx: tx.table(TABLE).scan().to_arrow(),
        lambda tx: tx.commit(),
        _end_block,
    ],
    ids=["append", "scan", "commit", "end of the block"],
)
def test_a_forked_process_cannot_use_it(metastore: InMemoryMetastore, work: Callable[..., Any]) -> None:
    """It gets a typed error, and the first process commits what is its own."""
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    with connect(metastore) as hive, hive.transaction(TABLE) as tx:
        tx.table(TABLE).append(ROWS)
        child = fork.Process(target=_in_child, args=(tx, work, answers))
        child.start()
        name, text = answers.get(timeout=60)
        child.join()
        assert name == "TransactionStateError", (name, text)
        assert f"belongs to process {os.getpid()}" in text
    assert ids(metastore) == [1, 2]


def test_a_forked_process_that_fails_in_the_block_ends_nothing(metastore: InMemoryMetastore) -> None:
    """Neither does one that closes the connection."""
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    with connect(metastore) as hive, hive.transaction(TABLE) as tx:
        tx.table(TABLE).append(ROWS)

        def work(tx: HiveTransaction) -> None:
            _fail_in_block(tx)
            hive.close()

        child = fork.Process(target=_in_child, args=(tx, work, answers))
        child.start()
        assert answers.get(timeout=60) == ("ended", "None")
        child.join()
    assert ids(metastore) == [1, 2]


def test_it_cannot_be_pickled(metastore: InMemoryMetastore) -> None:
    """The error says what to send instead."""
    with connect(metastore) as hive, hive.transaction(TABLE) as tx:
        for thing in (tx, tx.table(TABLE)):
            with pytest.raises(TransactionStateError, match=r"cannot be pickled .*descriptor of a table"):
                pickle.dumps(thing)


def test_connections_cannot_be_pickled(metastore: InMemoryMetastore) -> None:
    """Nor what belongs to one: the error says what to do in the other process."""
    with connect(metastore) as hive, hive.snapshot("default.t") as snapshot:
        client = MutatorClientBuilder().metastore(metastore).add_sink_table("default.t").build()
        for thing in (hive, snapshot, snapshot.table("default.t"), client):
            with pytest.raises(TransactionStateError, match=r"cannot be pickled .*connect in each process"):
                pickle.dumps(thing)
            with pytest.raises(TransactionStateError, match="cannot be pickled"):
                copy.deepcopy(thing)
