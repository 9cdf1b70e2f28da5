"""Hold: prevents Hive's cleaner from removing files of tables while they are not being read.

A change feed that looks for changes periodically needs the deltas that were written since it last looked,
even if a major compaction has replaced them. While a hold is open, the cleaner removes no file of a snapshot
that was taken after the hold began, and no later file.

On Hive 4 it is an open transaction, which reports the tables to servers that accept such reports. It locks
nothing. The cleaners of Hive 2 and 3 only wait for locks, so there it is a snapshot with read locks on the
table and its partitions. Statements that need an exclusive lock then wait for the hold, and partitions that
are created later are not held.

A hold ends by itself after a time limit, since the space of obsolete files is not freed as long as the hold
lasts.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
import threading
from collections.abc import Mapping, Sequence

from metastore_client.errors import MetastoreError
from metastore_client.model import OpenTxns, TxnState
from metastore_client.valid_ids import ValidIdList
from mutation_api.errors import ClientError, ConfigurationError, LockLostError
from mutation_api.transaction.catalog import TableSpec
from mutation_api.transaction.feed_position import unseen_id
from mutation_api.transaction.heartbeat import Heartbeat
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.snapshot import ClientSession, NotPickled, Snapshot

_HOLDS = " holds "
_HOST_LENGTH = 120

_log = logging.getLogger(__name__)


HoldTime = float | datetime.timedelta
"""The time limit of a hold: seconds, or a timedelta."""


def hold_seconds(hold: HoldTime) -> float:
    """Return seconds. Raises ConfigurationError if it is not a time above 0."""
    seconds = hold.total_seconds() if isinstance(hold, datetime.timedelta) else hold
    if not seconds > 0:
        raise ConfigurationError(f"hold={hold}: expected a time above 0")
    return seconds


class Hold(NotPickled):
    """Files of tables that the cleaner must not remove, until :meth:`close` or a time limit.

    Args:
        session: the client's session. Its metastore must stay open.
        specs: the tables.
        seconds: the time limit.
    """

    WHAT = "a hold"

    def __init__(self, session: ClientSession, specs: Sequence[TableSpec], seconds: float) -> None:
        names = [spec.full_name for spec in specs]
        settings = session.settings
        host = f"{settings.marks.hostname}{_HOLDS}{','.join(names)}"[:_HOST_LENGTH]
        marks = dataclasses.replace(settings.marks, hostname=host)
        self._session = dataclasses.replace(session, settings=dataclasses.replace(settings, marks=marks))
        self._specs = tuple(specs)
        self._names = names
        self._seconds = seconds
        self._snapshot: Snapshot | None = None
        self._heartbeat: Heartbeat | None = None
        self._txn_id: int | None = None
        self._since: Mapping[str, ValidIdList] | None = None
        self._mutex = threading.Lock()
        self._ended = threading.Event()

    def open(self) -> Hold:
        """Begin. Take the snapshots that the hold is to protect after this call.

        Raises:
            TableNotMutableError, LockNotAcquiredError, ConnectionFailedError: See ``Snapshot.open``.
        """
        session = self._session
        capabilities = session.metastore.capabilities()
        if not capabilities.cleaner_waits_for_transactions:
            self._snapshot = Snapshot(session, self._specs).open()
        else:
            marks = session.settings.marks
            with metastore_errors_as_ours(f"could not hold the files of {', '.join(self._names)}"):
                self._txn_id = session.metastore.open_txn(marks.user, marks.hostname, marks.agent_info)
                try:
                    if capabilities.has_min_history:
                        session.metastore.keep_files(self._txn_id, self._names)
                except BaseException:
                    self.close()
                    raise
            self._heartbeat = Heartbeat(
                session.metastore,
                self._txn_id,
                session.settings.txn_timeout_seconds,
                session.clock,
                self._lose,
            )
            self._heartbeat.start()
        threading.Thread(target=self._end_in_time, name="mutation-hold", daemon=True).start()
        return self

    def protect(self, since: Mapping[str, ValidIdList]) -> None:
        """Record, by table, that all changes after a position existed when the hold began."""
        self._since = since

    def covers(self, seen: Mapping[str, ValidIdList]) -> bool:
        """Return True if it certainly keeps all changes after a position."""
        since = self._since
        return (
            since is not None
            and self.lost is None
            and all(name in since and unseen_id(since[name], ids) is None for name, ids in seen.items())
        )

    def keeps(self, table: str, partition: str) -> bool:
        """Return True if it keeps the files of a partition: on Hive 2 and 3 those that it has locked."""
        snapshot = self._snapshot
        if snapshot is None:
            return self.lost is None
        return not partition or partition in {each.name for each in snapshot.partitions(table)}

    @property
    def lost(self) -> ClientError | None:
        """The reason why it no longer protects the files; None if it still does."""
        if self._ended.is_set():
            what = f"the hold on {', '.join(self._names)} has ended"
            return LockLostError(f"{what}: it was closed, or had lasted {self._seconds:g} s")
        if self._heartbeat is not None:
            return self._heartbeat.lost
        try:
            if self._snapshot is not None:
                self._snapshot.check()
        except ClientError as error:
            return error
        return None

    def check(self) -> None:
        """Raise LockLostError or TransactionAbortedError if it no longer protects the files."""
        if self._heartbeat is not None and not self._ended.is_set():
            self._heartbeat.confirm()
        if (lost := self.lost) is not None:
            raise type(lost)(str(lost)) from lost

    def close(self) -> None:
        """End. May be called twice. A failure is only logged, since the transaction times out."""
        with self._mutex:
            if self._ended.is_set():
                return
            self._ended.set()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._snapshot is not None:
            self._snapshot.close()
        if self._txn_id is not None:
            try:
                self._session.metastore.commit_txn(self._txn_id)
            except MetastoreError as error:
                _log.warning("could not end transaction %d of a hold: %s", self._txn_id, error)

    def _end_in_time(self) -> None:
        if not self._session.clock.wait(self._ended, self._seconds):
            _log.warning("the hold on %s ends after %g s", ", ".join(self._names), self._seconds)
            self.close()

    def _lose(self, error: ClientError) -> None:
        _log.error("the hold on %s is lost: %s", ", ".join(self._names), error)


class Holds:
    """The holds of a connection, at most one for each set of tables."""

    def __init__(self) -> None:
        self._found: dict[frozenset[str], Hold] = {}

    def of(self, tables: Sequence[str]) -> Hold | None:
        """Return the hold on tables, if it still protects them."""
        hold = self._found.get(frozenset(tables))
        if hold is not None and hold.lost is not None:
            self._found.pop(frozenset(tables)).close()
            return None
        return hold

    def keep(self, tables: Sequence[str], hold: Hold) -> None:
        """Store a hold in place of the earlier one, which is ended."""
        old = self._found.get(frozenset(tables))
        self._found[frozenset(tables)] = hold
        if old is not None and old is not hold:
            old.close()

    def close(self) -> None:
        """End all."""
        while self._found:
            self._found.popitem()[1].close()


def open_holds(open_txns: OpenTxns) -> list[tuple[str, str, int | None]]:
    """Return host, tables and start (milliseconds since 1970, if known) of a server's open holds."""
    found = []
    for txn in open_txns.txns:
        host, holds, tables = txn.hostname.partition(_HOLDS)
        if holds and txn.state is TxnState.OPEN:
            found.append((host, tables, txn.started_time))
    return found
