"""``hive-mutate explain``: explain the state of a transaction, and what to do next.

The command prints the transaction's state, its locks and the locks that it waits for, its tables and write
ids, its files (staged and published), and probable reasons for an abort (the metastore does not record the
reason). Nothing is changed. A transaction that has ended holds no locks; use --table to look for its files in
a table.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from metastore_client.model import LockInfo
from mutation_api.cli.parsers import add_flag, add_repeatable, describe
from mutation_api.cli.table_arguments import add_metastore_arguments, metastore_from
from mutation_api.cli.terminal import say
from mutation_api.errors import ReadError
from mutation_api.format.printable import one_line
from mutation_api.upkeep.explain import TransactionExplanation, TransactionTable, explain_transaction


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    describe(parser, __doc__, fills_lines=True)
    parser.add_argument(
        "txn", metavar="TXN", type=int, help="id of the transaction, as listed by hive-mutate show txns"
    )
    add_repeatable(
        parser, "--table", "DB.TABLE", "table in which to look for files of the transaction (repeatable)"
    )
    add_flag(parser, "--json", "print one JSON object")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation. Return 0."""
    with metastore_from(arguments) as metastore:
        try:
            explained = explain_transaction(metastore, arguments.txn, arguments.table)
        except OSError as error:
            raise ReadError(
                f"transaction {arguments.txn}: the directories of its tables cannot be read: {error}"
            ) from error
    if arguments.json:
        say(json.dumps(explained.to_dict()))
        return 0
    for line in _lines(explained):
        say(one_line(line))
    return 0


def _lines(explained: TransactionExplanation) -> Iterator[str]:
    yield f"transaction {explained.txn_id}: {explained.state}"
    txn = explained.txn
    if txn is not None:
        agent = f" ({txn.agent_info})" if txn.agent_info else ""
        yield f"  of {txn.user}@{txn.hostname}{agent}"
        beat = f"last heartbeat {_time(txn.last_heartbeat_time)}{_age(txn.last_heartbeat_time)}"
        yield f"  began {_time(txn.started_time)}, {beat}"
    for lock in explained.locks:
        yield f"  lock {_lock(lock)}"
    for each in explained.held_up:
        by = (
            "an unknown owner (the server does not report it)"
            if each.blocked_by is None
            else _owner(each.blocked_by)
        )
        yield f"  lock {each.lock.lock_id} on {_resource(each.lock)} waits for {by}"
    for lock in explained.holds_up:
        yield f"  {_owner(lock)} waits for this transaction on {_resource(lock)}"
    for table in explained.tables:
        yield from _table_lines(table)
    for cause in explained.causes:
        yield f"why: {cause}"
    for advice in explained.advice:
        yield f"next: {advice}"


def _table_lines(table: TransactionTable) -> Iterator[str]:
    own = "its write id is not known" if table.own_id is None else f"id {table.own_id}"
    yield f"  table {table.table}: {own if table.reason is None else table.reason}"
    for each in table.directories:
        kind = "staged" if each.is_staged else "published"
        yield f"    {kind}: {each.location}: {each.file_count:,} files, {each.byte_count:,} bytes"


def _lock(lock: LockInfo) -> str:
    state, kind = lock.state.name.lower(), lock.type.name.lower()
    return f"{lock.lock_id}: {kind} on {_resource(lock)}, {state}"


def _resource(lock: LockInfo) -> str:
    return "/".join(part for part in (f"{lock.database}.{lock.table or '*'}", lock.partition) if part)


def _owner(lock: LockInfo) -> str:
    of = "no transaction" if lock.txn_id is None else f"transaction {lock.txn_id}"
    return f"{of} of {lock.user}@{lock.hostname} (lock {lock.lock_id})"


def _age(millis: int | None) -> str:
    return f" ({max(0.0, time.time() - millis / 1000):.0f} s ago)" if millis else ""


def _time(millis: int | None) -> str:
    return (
        "unknown" if not millis else datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="seconds")
    )
