"""Heartbeat: keeps a transaction alive, and reports when it is lost.

The server aborts a transaction without a heartbeat for ``hive.txn.timeout``. After that nothing that the job
writes can become visible, so the job must stop. A transaction counts as lost in two cases:

* The server reports that it is aborted, or no longer knows it.
* No beat has succeeded for 0.8 of the timeout. A hung connection raises no error for minutes, so a second
  thread watches the time of the last success.

Beats run in separate threads, and so on a separate connection: the driver's connection may be busy for
minutes with a bulk call. A beat names only the transaction. If a beat names both transaction and lock, a 2.3
server reports that the lock is missing and hides that the transaction was aborted.

The server would answer a beat that is under way during the commit with "no such transaction". So
:meth:`Heartbeat.stop` shares a mutex with the evaluation of answers: later answers are ignored, and a hung
beat cannot delay the commit.

Source: Hive's DbTxnManager.Heartbeater and TxnHandler, observed on 2.3.10.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable

from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError
from mutation_api.errors import ClientError, LockLostError, TransactionAbortedError
from mutation_api.transaction.clock import FRESH_SECONDS, Clock

BEATS_PER_TIMEOUT = 3
"""The number of heartbeats per timeout. Hive sends two per timeout. Its Mutation API sends 1.33, so a single
lost heartbeat kills the job."""

LOST_AFTER_FRACTION = 0.8
"""A transaction counts as lost after this fraction of the timeout without success; the server aborts it
later."""

RETRY_FRACTION = 0.1
"""The pause after a failed beat, as a fraction of the interval."""

_log = logging.getLogger(__name__)


class Heartbeat:
    """The heartbeats of one transaction, from :meth:`start` to :meth:`stop`.

    Args:
        metastore: a client that allows calls from several threads.
        txn_id: the open transaction.
        timeout_seconds: the server's ``hive.txn.timeout``, > 0.
        clock: times the beats.
        on_lost: called once, from one of the heartbeat's threads or from the caller of :meth:`beat`.
        jitter: returns a number 0 <= n < 1, which spreads the first beats of jobs that start together.

    Attributes:
        txn_id: the transaction.
        interval_seconds: the time between two beats.
    """

    def __init__(
        self,
        metastore: MetastoreClient,
        txn_id: int,
        timeout_seconds: float,
        clock: Clock,
        on_lost: Callable[[ClientError], None],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.interval_seconds = timeout_seconds / BEATS_PER_TIMEOUT
        self.txn_id = txn_id
        self._metastore = metastore
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._on_lost = on_lost
        self._jitter = jitter
        self._mutex = threading.Lock()
        self._stopped = threading.Event()
        self._last_success = clock.now()
        self._confirmed_at = -math.inf
        self._last_failure: MetastoreError | None = None
        self._lost: ClientError | None = None

    @property
    def lost(self) -> ClientError | None:
        """The reason why the transaction is lost; None if it is not."""
        return self._lost

    def start(self) -> None:
        """Start sending heartbeats."""
        for work in (self._beat_on_time, self._watch):
            name = f"mutation-heartbeat-{self.txn_id}"
            threading.Thread(target=work, name=name, daemon=True).start()

    def stop(self) -> None:
        """Stop sending heartbeats; later answers are ignored. May be called twice; never waits for a call."""
        with self._mutex:
            self._stopped.set()

    def confirm(self) -> None:
        """Send a heartbeat now, unless one was answered less than FRESH_SECONDS ago."""
        if self._clock.now() - self._confirmed_at >= FRESH_SECONDS:
            self.beat()

    def beat(self) -> bool:
        """Send one heartbeat now.

        Return True if the server confirmed the transaction. Errors are not raised.
        """
        asked_at = self._clock.now()
        try:
            answer = self._metastore.heartbeat_txn_range(self.txn_id, self.txn_id)
        except MetastoreError as error:
            _log.warning("heartbeat of transaction %d failed: %s", self.txn_id, error)
            self._last_failure = error
            return False
        if self.txn_id in answer.aborted:
            self._lose(
                TransactionAbortedError(self._text("was aborted: it timed out, or another client aborted it"))
            )
        elif self.txn_id in answer.nosuch:
            self._lose(
                LockLostError(self._text("is no longer known to the metastore: another client ended it"))
            )
        else:
            self._last_success = max(self._last_success, asked_at)
            self._confirmed_at = max(self._confirmed_at, asked_at)
        return self._lost is None

    def require(self) -> None:
        """Send one heartbeat now, even if another one has just been answered.

        The clock of a machine may stand still while the machine sleeps, so an earlier answer proves nothing.

        Raises:
            LockLostError, TransactionAbortedError: If the server does not confirm the transaction.
        """
        if self.beat():
            return
        self._check_not_lost()
        raise LockLostError(self._text("was not confirmed by the metastore"))

    def check(self) -> None:
        """Confirm the transaction as :meth:`confirm` does, and raise the reason if it is lost.

        Raises:
            LockLostError, TransactionAbortedError: If it is lost.
        """
        self.confirm()
        self._check_not_lost()

    def _check_not_lost(self) -> None:
        if self._lost is not None:
            raise type(self._lost)(str(self._lost)) from self._lost

    def _beat_on_time(self) -> None:
        pause = self._jitter() * self.interval_seconds
        while not self._clock.wait(self._stopped, pause):
            pause = self.interval_seconds if self.beat() else self.interval_seconds * RETRY_FRACTION

    def _watch(self) -> None:
        while not self._stopped.is_set():
            silence = self._clock.now() - self._last_success
            remaining = LOST_AFTER_FRACTION * self._timeout_seconds - silence
            if remaining <= 0:
                self._lose(LockLostError(self._text(f"could not reach the metastore for {silence:.0f} s")))
                return
            self._clock.wait(self._stopped, remaining)

    def _text(self, what: str) -> str:
        failure = f"; the last attempt failed with: {self._last_failure}" if self._last_failure else ""
        return (
            f"transaction {self.txn_id} {what} (the server's timeout: {self._timeout_seconds:g} s{failure})"
        )

    def _lose(self, error: ClientError) -> None:
        with self._mutex:
            if self._stopped.is_set():
                return
            error.__cause__ = self._last_failure
            self._lost = error
            self._stopped.set()
        self._on_lost(error)
