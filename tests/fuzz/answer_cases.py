"""Damaged answers of a metastore, to the calls of the client and to what the front door does with them."""

from __future__ import annotations

import copy
import functools
import random
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from thrift.Thrift import TType

from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError, UnsupportedByServerError
from metastore_client.model import (
    ColumnInfo,
    ColumnStatistics,
    CompactionEnd,
    CompactionInfo,
    CompactionJob,
    CompactionType,
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockType,
    TableInfo,
    WriteNotification,
)
from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList
from mutation_api.errors import MutationError
from mutation_api.hive.connect import connect
from mutation_api.upkeep.doctor import doctor
from mutation_api.upkeep.explain import explain_transaction
from mutation_api.upkeep.history import table_history
from mutation_api.upkeep.replication import replication_of
from mutation_api.upkeep.sweep import sweep
from mutation_api.upkeep.verify.verify import verify_table
from tests.fuzz.damage import damaged_bytes, odd_number
from tests.fuzz.sound_server import LOCK, RELEASES, TXN, WRITE_ID, SoundServer

Act = Callable[[MetastoreClient, bool], object]
"""Does something with a client; the truth says whether the server's table is partitioned."""

_IDS = ValidWriteIdList(WRITE_ID, table="d.t")
_LOCK = LockComponent(LockType.SHARED_READ, LockLevel.TABLE, "d", "t", None, DataOperationType.SELECT)

CALLS: Mapping[str, Callable[[MetastoreClient], object]] = {
    "capabilities": lambda c: c.capabilities(),
    "get_config_value": lambda c: c.get_config_value("x", "y"),
    "create_database": lambda c: c.create_database("d"),
    "get_database_parameters": lambda c: c.get_database_parameters("d"),
    "get_all_tables": lambda c: c.get_all_tables("d"),
    "create_table": lambda c: c.create_table(TableInfo("d", "t", ())),
    "drop_table": lambda c: c.drop_table("d", "t", delete_data=False),
    "get_table": lambda c: c.get_table("D", "T"),
    "get_constraints": lambda c: c.get_constraints("d", "t"),
    "get_primary_key": lambda c: c.get_primary_key("d", "t"),
    "set_columns": lambda c: c.set_columns("d", "t", [ColumnInfo("id", "int")]),
    "get_partition_names": lambda c: c.get_partition_names("d", "t"),
    "get_partitions_by_names": lambda c: c.get_partitions_by_names("d", "t", ["ds=a", "ds=b"]),
    "add_partitions": lambda c: c.add_partitions("d", "t", [["b"], ["c"]]),
    "drop_partition": lambda c: c.drop_partition("d", "t", "ds=a"),
    "set_table_parameters": lambda c: c.set_table_parameters("d", "t", {"a": "b", "x": None}),
    "record_row_counts": lambda c: c.record_row_counts(
        "d", "t", ["ds=a"], lambda found: dict.fromkeys(found, 1), write_id=WRITE_ID, valid_write_ids=_IDS
    ),
    "get_column_statistics": lambda c: c.get_column_statistics("d", "t", ["ds=a"], ["id"]),
    "merge_column_statistics": lambda c: c.merge_column_statistics(
        "d",
        "t",
        {"ds=a": [ColumnStatistics("id", "int", 0, 1, 2, distinct_count=2)]},
        replaces=True,
        write_id=WRITE_ID,
        valid_write_ids=_IDS,
    ),
    "delete_column_statistics": lambda c: c.delete_column_statistics("d", "t", ["ds=a"], "id"),
    "open_txn": lambda c: c.open_txn("u", "h", "a"),
    "get_open_txns": lambda c: ValidTxnList.from_open_txns(c.get_open_txns(), TXN),
    "heartbeat_txn_range": lambda c: c.heartbeat_txn_range(TXN, TXN),
    "commit_txn": lambda c: c.commit_txn(TXN),
    "abort_txn": lambda c: c.abort_txn(TXN),
    "add_dynamic_partitions": lambda c: c.add_dynamic_partitions(
        TXN, "d", "t", ["ds=a"], DataOperationType.INSERT, write_id=WRITE_ID
    ),
    "allocate_write_id": lambda c: c.allocate_write_id(TXN, "d", "t"),
    "get_valid_write_ids": lambda c: c.get_valid_write_ids(["d.t", "d.u"], ValidTxnList(TXN)),
    "keep_files": lambda c: c.keep_files(TXN, ["d.t"]),
    "add_write_notifications": lambda c: c.add_write_notifications(
        [WriteNotification(TXN, WRITE_ID, "d", "t", (), (("file:/w/t/x/f", "x"),))]
    ),
    "lock": lambda c: c.lock(LockRequest((_LOCK,), TXN, "u", "h", "a")),
    "check_lock": lambda c: c.check_lock(LOCK, TXN),
    "unlock": lambda c: c.unlock(LOCK),
    "show_locks": lambda c: c.show_locks("d", "t"),
    "compact": lambda c: c.compact("d", "t", "ds=a", CompactionType.MAJOR),
    "show_compactions": lambda c: c.show_compactions(),
    # older releases refuse these without a call
    "next_compaction": lambda c: (c.show_compactions(), c.next_compaction("w", "1")),
    "compaction_began": lambda c: c.compaction_began(_job(c), TXN, WRITE_ID, "hive"),
    "compaction_ended": lambda c: c.compaction_ended(_job(c), CompactionEnd.FAILED, "because"),
}
"""Every call of a client but ``close``."""


def _job(client: MetastoreClient) -> CompactionJob:
    client.show_compactions()
    return client.compaction_job(CompactionInfo("d", "t", "ds=a", CompactionType.MAJOR, "working", 1))


def _write(client: MetastoreClient, is_partitioned: bool) -> None:
    rows = {"id": pa.array([1, 2], pa.int32()), "msg": ["a", "b"]}
    table = pa.table(rows | ({"ds": ["a", "b"]} if is_partitioned else {}))
    with (
        connect(client, lock_timeout_seconds=2) as hive,
        hive.transaction("d.t", create_partitions=True) as transaction,
    ):
        transaction.table("d.t").append(table)


def _read(client: MetastoreClient, is_partitioned: bool) -> None:
    with connect(client, lock_timeout_seconds=2) as hive, hive.snapshot("d.t") as snapshot:
        snapshot.table("d.t").scan().to_arrow()


_FRONT: Mapping[str, Act] = {
    "write": _write,
    "read": _read,
    "verify": lambda client, _: verify_table(client, "d.t"),
    "doctor": lambda client, _: doctor(client, "d"),
    "sweep": lambda client, _: list(sweep(client, "d.t", dry_run=True)),
    "explain": lambda client, _: explain_transaction(client, TXN),
    "history": lambda client, _: table_history(client, "d.t"),
    "replication": lambda client, _: replication_of(client, "d"),
}


def _call(random: random.Random) -> None:
    """One call of the client: nothing but errors of the client may come out."""
    name = random.choice(sorted(CALLS))
    _damaged(random, f"call {name}", _act(name), MetastoreError)


def _act(name: str) -> Act:
    return lambda client, _: CALLS[name](client)


def _front(random: random.Random) -> None:
    """What users do: nothing but errors of ours may come out, of any thread."""
    name = random.choice(sorted(_FRONT))
    _damaged(random, f"front {name}", _FRONT[name], MutationError)


def _damaged(
    random: random.Random,
    name: str,
    act: Act,
    allowed: type[Exception],
) -> None:
    release = random.choice(sorted(RELEASES))
    is_partitioned = name.startswith("call") or random.random() < 0.7
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        server = SoundServer(release, Path(folder), is_partitioned=is_partitioned)
        (Path(folder) / "ds=a").mkdir()
        server.damaged = random.randrange(_count(name, release, is_partitioned, act))
        if random.random() < 0.2:
            server.damage_bytes = functools.partial(damaged_bytes, random)
        else:
            server.damage_value = functools.partial(_damaged_value, random)
        faults: list[BaseException] = []
        hook, threading.excepthook = (
            threading.excepthook,
            lambda args: faults.append(args.exc_value or args.exc_type()),
        )
        try:
            with server.client() as client:
                act(client, is_partitioned)
        except allowed:
            pass
        except (MetastoreError, MutationError) as error:
            raise AssertionError(f"{name}: not one of {allowed.__name__}: {type(error)}") from error
        finally:
            threading.excepthook = hook
        for fault in faults:
            raise AssertionError(f"{name}: in a thread: {fault!r}") from fault


def call_count(name: str, release: str) -> int:
    """Return how many answers of a sound server a call of the client reads."""
    return _count(f"call {name}", release, True, _act(name))


@functools.cache
def _counts() -> dict[tuple[str, str, bool], int]:
    return {}


def _count(
    name: str, release: str, is_partitioned: bool, act: Callable[[MetastoreClient, bool], object]
) -> int:
    """How many calls are made if all answers are sound; then nothing fails, but for what a release lacks."""
    known = _counts()
    if (name, release, is_partitioned) not in known:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            server = SoundServer(release, Path(folder), is_partitioned=is_partitioned)
            (Path(folder) / "ds=a").mkdir()
            with server.client() as client:
                try:
                    act(client, is_partitioned)
                except (MetastoreError, MutationError) as error:
                    if not isinstance(error, UnsupportedByServerError):
                        raise AssertionError(f"{name}: refused by a sound server of {release}") from error
        known[name, release, is_partitioned] = len(server.calls)
    return known[name, release, is_partitioned]


_TEXTS = (
    *("", "x", "X", "\0", "a/b", "..", "ds=", "=a", "ds=a/ds=b", "9" * 400, "-1", "1e9", "é" * 800, "true"),
)
_BITS = {TType.BYTE: 8, TType.I16: 16, TType.I32: 32, TType.I64: 64}


def _damaged_value(random: random.Random, value: Any, kind: int = TType.I64) -> Any:
    """A value with one part lost or replaced, at any depth; it still has its Thrift type, ``kind``."""
    spec = getattr(value, "thrift_spec", None)
    if spec is not None:
        entries = list(filter(None, spec))
        if not entries:
            return value
        given = [each for each in entries if getattr(value, each[2]) is not None]
        entry = random.choice(given if given and random.random() < 0.8 else entries)
        before = getattr(value, entry[2])
        setattr(value, entry[2], _damaged_field(random, before, entry))
        return value
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        bits = _BITS.get(kind, 64)
        found = (odd_number(random, abs(value)) * random.choice((1, 1, -1))) % 2**bits
        return found - 2**bits if found >= 2 ** (bits - 1) else found
    if isinstance(value, str):
        return random.choice((*_TEXTS, value.upper(), f"{value}x", value[:-1]))
    if isinstance(value, bytes):
        return damaged_bytes(random, value)
    if isinstance(value, float):
        return random.choice((float("nan"), float("inf"), -0.0, 1e308))
    if isinstance(value, set):
        return {odd_number(random) % 2**63 for _ in range(random.randrange(1, 4))}
    if isinstance(value, dict):
        return _damaged_map(random, value)
    return _damaged_list(random, value) if isinstance(value, list) else value


def _damaged_field(random: random.Random, value: Any, entry: Any) -> Any:
    """One field of a structure; a field that is absent gets a value."""
    _, kind, _, details, _ = entry
    if value is not None:
        return None if random.random() < 0.35 else _damaged_value(random, value, kind)
    if kind == TType.STRUCT:
        return details[0]()
    empty: dict[int, Any] = {TType.LIST: [], TType.SET: set(), TType.MAP: {}, TType.BOOL: False}
    texts = "" if details == "UTF8" else b""
    return (
        empty[kind] if kind in empty else _damaged_value(random, texts if kind == TType.STRING else 0, kind)
    )


def _damaged_map(random: random.Random, value: dict[Any, Any]) -> dict[Any, Any]:
    if not value or random.random() < 0.1:
        return {"": "x"} if not value else {}
    name = random.choice(sorted(value, key=str))
    rest = {key: each for key, each in value.items() if key != name}
    way = random.random()
    if way < 0.2:
        return rest
    return (
        {**rest, random.choice(_TEXTS): value[name]}
        if way < 0.5
        else {**rest, name: _damaged_value(random, value[name])}
    )


def _damaged_list(random: random.Random, value: list[Any]) -> list[Any]:
    if not value:
        return value
    at, way = random.randrange(len(value)), random.random()
    if way < 0.15:
        return value[:at] + value[at + 1 :]
    if way < 0.25:
        return [*value, copy.deepcopy(value[at])]
    if way < 0.3:
        return [*value, _damaged_value(random, copy.deepcopy(value[at]))]
    return [*value[:at], _damaged_value(random, value[at]), *value[at + 1 :]]


ANSWER_CASES: dict[str, Callable[[random.Random], None]] = {"answer": _call, "front-door": _front}
