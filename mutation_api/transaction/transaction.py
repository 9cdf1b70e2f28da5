"""Transaction: begin, write, commit or abort. One atomic change set over any number of tables.

::

    with client.new_transaction() as transaction:
        table = transaction.table("default.t")          # pass it to the workers
        transaction.add_manifests("default.t", writer_id, manifests)
    # committed here; aborted if the block raised

It is used once, by one thread; any thread may call :meth:`Transaction.check` and :meth:`Transaction.abort`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from metastore_client.errors import MetastoreError
from metastore_client.model import LockComponent, LockInfo, PartitionInfo
from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.errors import ClientError, ConfigurationError, TransactionStateError
from mutation_api.orc.read.event_file import EventFile
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.transaction.catalog import OpenTable
from mutation_api.transaction.commit_outcome import (
    COMMIT_RETRY_SECONDS,
    Outcome,
    commit_and_find_out,
    refused_commit,
    unknown_outcome,
)
from mutation_api.transaction.committer import Committer, PublishedTable
from mutation_api.transaction.lease import Lease
from mutation_api.transaction.listener import Phases, metastore_errors_as_ours
from mutation_api.transaction.lock import lock_components, locks_of_others
from mutation_api.transaction.machine_queue import AT_ONCE
from mutation_api.transaction.manifest import DeltaManifest, TableOutput
from mutation_api.transaction.snapshot import ClientSession, OfOneProcess, call_quietly
from mutation_api.transaction.staging import remove_abandoned, remove_staging
from mutation_api.transaction.transaction_state import (
    Step,
    TableSummary,
    TransactionState,
    TransactionSummary,
    ended_meanwhile,
    next_state,
    require,
)
from mutation_api.transaction.written_tables import PartitionCreator, WrittenTables

_log = logging.getLogger(__name__)


class Transaction(OfOneProcess):
    """One transaction over the tables of its client. Created by ``MutatorClient.new_transaction``."""

    def __init__(self, session: ClientSession) -> None:
        super().__init__()
        self._session = session
        self._state = TransactionState.INACTIVE
        self._mutex = threading.RLock()
        self._lease: Lease | None = None
        self._knows_tables = False
        self._tables: dict[str, OpenTable] = {}
        self._written = WrittenTables()
        self._published: dict[str, PublishedTable] = {}
        self._is_reported = False
        self._ended_because: str | None = None
        self._callbacks: list[Callable[[ClientError], None]] = []
        self._phases = Phases(session.clock)

    @property
    def state(self) -> TransactionState:
        """The transaction's state."""
        return self._state

    @property
    def txn_id(self) -> int:
        """The transaction's id. Raises TransactionStateError before :meth:`begin`."""
        return self._begun_lease().txn_id

    @property
    def valid_txn_list(self) -> ValidTxnList:
        """The transactions that its snapshot sees. Raises the errors of :attr:`txn_id`."""
        return self._begun_lease().valid_txn_list

    @property
    def tables(self) -> tuple[AcidTable, ...]:
        """The descriptors of all tables; see :meth:`table`."""
        return tuple(self.table(name) for name in self._tables)

    @property
    def summary(self) -> TransactionSummary:
        """The numbers of the transaction's changes so far."""
        lease = self._lease
        return TransactionSummary(
            txn_id=self._known_txn_id(),
            state=self._state.value,
            tables=tuple(self._table_summary(name) for name in self._sinks()),
            phase_seconds=dict(self._phases.seconds),
            lock_wait_seconds=0.0 if lease is None else lease.lock_wait_seconds,
            roll_overs=0 if lease is None else lease.roll_overs,
        )

    def table(self, table: str) -> AcidTable:
        """Return the descriptor of ``database.table`` for the workers; a sink's is bound to this transaction.

        Use it only while the transaction is open: :meth:`begin` may change its id.

        Raises:
            TransactionStateError: If the transaction is not open.
            ConfigurationError: If the table was not added to the client.
            ConnectionFailedError, TransactionError: If the metastore failed.
        """
        return self._bound(self._with_partitions(table))

    def valid_ids(self, table: str) -> ValidIdList:
        """Return the write ids (v1: transaction ids) that the snapshot sees. See :meth:`table` for errors."""
        return self._begun_lease().valid_ids(self._opened(table).table.full_name)

    def partitions(self, table: str) -> tuple[PartitionInfo, ...]:
        """Return a table's partitions as they were at the beginning; empty without partition keys."""
        return self._with_partitions(table).partitions or ()

    def other_locks(self, table: str) -> tuple[LockInfo, ...]:
        """Return write locks of others on a table; see :func:`.lock.locks_of_others` and :meth:`table`."""
        ours = self._begun_lease().txn_ids
        return locks_of_others(self._session.metastore, self._opened(table).table, ours)

    def begin(self, *, just_connected: bool = False) -> None:
        """Open the transaction, lock its tables, take the snapshot and read the tables again.

        If ``just_connected``, answers are reused that the client has just received while it connected.

        Raises:
            LockNotAcquiredError: If others held the lock for longer than ``lock_timeout_seconds``.
            TableNotMutableError: If a table no longer exists, or now violates a rule.
            ConnectionFailedError, LockLostError, TransactionError: If the metastore failed.
            TransactionStateError: If the transaction has already begun.
        """
        after = next_state(self._state, Step.BEGIN, self._known_txn_id())
        self._knows_tables = just_connected
        self._phases.restart()
        try:
            self._acquire()
        except BaseException:
            self._state = TransactionState.ABORTED
            raise
        self._phases.end("begin")
        self._state = after
        self.check()
        self._remove_abandoned(self._sinks())

    def changing(self, table: str) -> AbstractContextManager[None]:
        """Return the block in which a table receives a change set; see :meth:`WrittenTables.changing`."""
        return self._written.changing(self._opened(table).table)

    def may_replace(self, table: str) -> bool:
        """Return True if partitions may be replaced as a whole; see :meth:`WrittenTables.may_replace`."""
        lease, metastore = self._begun_lease(), self._session.metastore
        return self._written.may_replace(self._with_partitions(table), lease, metastore)

    def replace(self, table: str, rows: Mapping[str, int], as_deletes: Callable[[], None]) -> None:
        """Record that the last change set replaces partitions; see :meth:`WrittenTables.replace`."""
        self._written.replace(self._opened(table).table.full_name, rows, as_deletes)

    def settle(self, table: str) -> None:
        """Prepare an overwritten table for the next step; see :meth:`WrittenTables.settle`."""
        self._written.settle(self._opened(table).table.full_name)

    def own_files(self, table: str) -> dict[str, list[EventFile]]:
        """Return the files written to a table so far; see :meth:`WrittenTables.files`."""
        return self._written.files(self._opened(table).table.full_name)

    def add_manifests(self, table: str, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
        """Add the manifests of one writer (a Spark job, or a coordinator) for a table.

        Raises:
            TransactionStateError: If the transaction is not open.
            ConfigurationError: If the table is not a sink of this transaction.
            ManifestError: If manifests of this writer were added before. :meth:`commit` checks the rest.
        """
        self._written.add(self._opened(table).table, self.txn_id, writer_id, manifests)

    def merging(self, table: str, keys: Sequence[str] | None, *, inserts: bool) -> None:
        """Announce a merge by these columns (if None, by a condition), before the table is read.

        Raises ConfigurationError if the transaction has ``insert_only``; see also :meth:`table`.
        """
        self._written.merge(self._opened(table), keys, inserts=inserts)

    def commit(self) -> None:
        """Publish all written files, and commit.

        If this raises an error, nothing is visible. After CommitOutcomeUnknownError, nothing was removed.

        Raises:
            TransactionStateError: If the transaction is not open.
            LockLostError, TransactionAbortedError: If it is lost, or another transaction committed first.
            ManifestError, PartitionCreationError, TableNotMutableError, DeltaWriteError: See Committer.
            CommitOutcomeUnknownError: If the connection broke during commit and no answer followed.
            ConnectionFailedError, TransactionError: If the metastore failed before the commit.
        """
        self.check_process()
        require(self._state, TransactionState.OPEN, "commit", self._known_txn_id())
        self._phases.end("work")
        metastore, in_turn = self._session.metastore, self._session.in_turn
        committer = Committer(metastore, PartitionCreator(metastore), self.txn_id, self.check, in_turn)
        try:
            with metastore_errors_as_ours(f"could not publish transaction {self.txn_id}"):
                self._published = committer.publish(self._outputs(), self._beat_and_check)
                self._beat_and_check()
        except BaseException:
            self._roll_back(committer, Step.ABORT)
            raise
        self._phases.end("publish")
        self._finish(committer)
        self._phases.end("commit")

    def abort(self, *, because: str | None = None) -> None:
        """Abort, and remove the staged files. Harmless if the transaction has already been aborted.

        Args:
            because: the reason, if it is not aborted by its user; raised at the end of its block.

        Raises:
            TransactionStateError: If it is committed, of unknown outcome, or of another process.
            ConnectionFailedError: If there is no answer; the abort is repeated until the server's timeout.
        """
        self.check_process()
        with self._mutex:
            before, self._state = self._state, next_state(self._state, Step.ABORT, self._known_txn_id())
        if before is TransactionState.OPEN:
            self._ended_because = because
            try:
                with metastore_errors_as_ours(f"could not abort transaction {self.txn_id}"):
                    self._begun_lease().abort()
            finally:
                self._remove_staging()

    def check(self) -> None:
        """Raise an error if the transaction can no longer be committed. This is cheap: no call is made.

        Raises:
            LockLostError, TransactionAbortedError: If the transaction is lost; the message states the reason.
            TransactionStateError: If it is not open.
        """
        self.check_process()
        require(self._state, TransactionState.OPEN, "go on", self._known_txn_id())
        if (lost := self._begun_lease().lost) is not None:
            raise type(lost)(str(lost)) from lost

    def on_lost(self, callback: Callable[[ClientError], None]) -> None:
        """Register a callback for the loss of the transaction; a heartbeat's thread passes it the error.

        It is called immediately if the transaction is already lost. Its exceptions are logged.
        """
        with self._mutex:
            self._callbacks.append(callback)
            lost = None if self._lease is None else self._lease.lost
        if lost is not None:
            call_quietly(callback, lost)

    def __enter__(self) -> Transaction:
        """Begin, unless the transaction has begun."""
        if self._state is TransactionState.INACTIVE:
            self.begin()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit, or abort if the block raised; an error of the abort never replaces the block's error.

        Raises TransactionStateError if it was ended elsewhere, or ends in a forked process.
        """
        if error is None:
            self.check_process()
            if self._ended_because is not None:
                raise ended_meanwhile(self._known_txn_id(), self._ended_because)
            if self._state is TransactionState.OPEN:
                self.commit()
            return
        if self._state is not TransactionState.OPEN or self.is_of_another_process:
            return
        try:
            self.abort()
        except Exception:
            _log.exception("could not abort transaction %s after %r", self._known_txn_id(), error)

    def _acquire(self) -> None:
        session, catalog = self._session, self._session.catalog
        sinks = [s for s in session.specs if s.role is TableRole.SINK]
        changed = [s.full_name for s in sinks if not s.insert_only]
        excluding = changed if catalog.excludes_writers else []
        queues = {1: excluding, AT_ONCE: [s.full_name for s in sinks if s.full_name not in excluding]}
        known = (session.metastore, session.clock, self._to_lock, session.settings, self._on_lost)
        lease = Lease(*known, changed, queues=queues, under_lock=self._read_tables)
        lease.acquire()
        self._lease = lease

    def _to_lock(self) -> tuple[LockComponent, ...]:
        session, catalog = self._session, self._session.catalog
        if not self._knows_tables:
            catalog.forget()
        self._knows_tables = False
        turn = session.in_turn(sorted(s.full_name for s in session.specs))
        with turn, metastore_errors_as_ours("could not read the tables of a transaction"):
            return lock_components([catalog.to_lock(s) for s in session.specs])

    def _read_tables(self, may_know: bool) -> None:
        """Read the tables under the lock, so that Hive's DDL can no longer change them.

        If the lock was free, recent descriptions are sufficient: the committer compares them with new ones.
        """
        read, specs = self._session.catalog.read_with_partition_names, self._session.specs
        with metastore_errors_as_ours("could not read the tables of a transaction"):
            self._tables = {spec.full_name: read(spec, may_know=may_know) for spec in specs}

    def _with_partitions(self, table: str) -> OpenTable:
        """Return a table with its partitions, which are read at the first use."""
        opened = self._opened(table)
        if opened.partitions is None:
            name = opened.table.full_name
            with metastore_errors_as_ours(f"could not read the partitions of table {name}"):
                opened = self._session.catalog.with_partitions(opened)
            self._tables[name] = opened
            if opened.table.role is TableRole.SINK and opened.table.partition_locations:
                self._remove_abandoned([name])
        return opened

    def _bound(self, opened: OpenTable) -> AcidTable:
        table = opened.table
        if table.role is not TableRole.SINK:
            return table
        name = table.full_name
        return table.bind(self.txn_id, self._begun_lease().write_id(name), self._written.statement_id(name))

    def _remove_abandoned(self, names: Iterable[str]) -> None:
        for name in names:
            removed = remove_abandoned(self._tables[name].table, self._begun_lease().open_txns)
            if txn_ids := [each.txn_id for each in removed]:
                _log.info("removed files that transactions %s had left staged in %s", txn_ids, name)

    def _beat_and_check(self) -> None:
        self._begun_lease().beat()
        self.check()

    def _outputs(self) -> list[TableOutput]:
        lease, outputs, is_optimistic = self._begun_lease(), [], self._session.catalog.is_optimistic
        for name in self._sinks():
            # Locations of partitions are needed only if there is something to publish.
            opened = self._with_partitions(name) if self._written.is_written(name) else self._tables[name]
            table = self._bound(opened)
            outputs.append(self._written.output(opened, table, lease, is_optimistic=is_optimistic))
        return outputs

    def _finish(self, committer: Committer) -> None:
        """Send the commit. From here on, files are removed only if the server reports an abort."""
        self._step(Step.SEND_COMMIT)
        self._begun_lease().stop()
        try:
            outcome, error = commit_and_find_out(
                self._session.metastore,
                self._session.clock,
                self.txn_id,
                has_records=self._written.has_output,
                retry_seconds=min(COMMIT_RETRY_SECONDS, self._session.settings.txn_timeout_seconds / 2),
            )
        except BaseException:
            self._step(Step.LOSE_TRACK)
            _log.error("transaction %d was interrupted during its commit: look up its outcome", self.txn_id)
            raise
        finally:
            self._begun_lease().release()
        if outcome is Outcome.COMMITTED:
            self._step(Step.SUCCEED)
        elif outcome is Outcome.ABORTED:
            self._roll_back(committer, Step.REFUSE)
            raise refused_commit(self.txn_id, error) from error
        else:
            self._step(Step.LOSE_TRACK)
            raise unknown_outcome(self.txn_id, error) from error

    def _roll_back(self, committer: Committer, step: Step) -> None:
        """Abort first, so that no commit can follow, then remove the files."""
        self._step(step)
        try:
            self._begun_lease().abort()
        except MetastoreError as error:
            _log.warning("could not abort transaction %s: %s", self._known_txn_id(), error)
        committer.remove_published()
        self._remove_staging()

    def _remove_staging(self) -> None:
        for name in self._sinks():
            remove_staging(self._bound(self._tables[name]), self.txn_id)

    def _on_lost(self, error: ClientError) -> None:
        with self._mutex:
            if self._state is not TransactionState.OPEN or self._is_reported:
                return
            self._is_reported = True
            callbacks = list(self._callbacks)
        _log.error("%s", error)
        lease = self._begun_lease()
        self._session.tell_listener(lease.lock_id, lease.txn_id, list(self._tables), error)
        for callback in callbacks:
            call_quietly(callback, error)

    def _step(self, step: Step) -> None:
        with self._mutex:
            self._state = next_state(self._state, step, self._known_txn_id())

    def _sinks(self) -> list[str]:
        return [name for name, opened in self._tables.items() if opened.table.role is TableRole.SINK]

    def _opened(self, table: str) -> OpenTable:
        self.check_process()
        require(self._state, TransactionState.OPEN, f"use table {table}", self._known_txn_id())
        opened = self._tables.get(table.strip().lower())
        if opened is None:
            raise ConfigurationError(
                f"table {table} is not part of the transaction, which has {', '.join(self._tables)}: "
                "name it where the transaction is created, in Hive.transaction(…) or "
                "MutatorClientBuilder.add_sink_table(…)"
            )
        return opened

    def _table_summary(self, name: str) -> TableSummary:
        created = self._published[name].partitions_created if name in self._published else ()
        return TableSummary.of(name, self._written.manifests(name), created, self._written.replaced(name))

    def _begun_lease(self) -> Lease:
        if self._lease is None:
            raise TransactionStateError("the transaction has not begun; call begin() first")
        return self._lease

    def _known_txn_id(self) -> int | None:
        return None if self._lease is None else self._lease.txn_id
