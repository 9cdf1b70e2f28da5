"""Heartbeat: keeps a transaction alive, and says when it is lost.

The server's reaper aborts a transaction that has not been heard of for ``hive.txn.timeout``; after that
nothing the job writes can become visible, so it must stop. What counts as lost:

* the server says the transaction is aborted, or does not know it any more;
* no beat has succeeded for 0.8 of the timeout. A hung connection does not raise anything for minutes, so a
  second thread watches the time of the last success.

Beats go through threads of their own, hence through a connection of their own: the driver's may be busy for
minutes with a bulk call. The beat names no lock: asked about both, a 2.3 server says that the lock is
missing and hides that the transaction was aborted.

A beat that is under way while the transaction commits would be told that it is gone. :meth:`Heartbeat.stop`
therefore shares a mutex with the evaluation of every answer: what arrives after it is not looked at, and a
hung beat cannot hold the commit up.

Source: Hive's DbTxnManager.Heartbeater and TxnHandler, observed on 2.3.10.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError
from mutation_api.client.clock import Clock
from mutation_api.errors import ClientError, LockLostError, TransactionAbortedError

__all__ = ["BEATS_PER_TIMEOUT", "LOST_AFTER_FRACTION", "Heartbeat"]

BEATS_PER_TIMEOUT = 3
"""Hive beats twice per timeout, its Mutation API 1.33 times, so that one lost beat kills the job."""

LOST_AFTER_FRACTION = 0.8
"""Of the timeout without a success: the transaction counts as lost before the reaper can have taken it."""

RETRY_FRACTION = 0.1
"""Of the interval: pause after a beat that failed."""

_log = logging.getLogger(__name__)


class Heartbeat:
    """The beats of one transaction, from :meth:`start` to :meth:`stop`.

    Args:
        metastore: must allow calls from several threads.
        txn_id: the open transaction.
        timeout_seconds: the server's ``hive.txn.timeout``, > 0.
        clock: time by which beats are due.
        on_lost: called once, from one of the heartbeat's threads or from the caller of :meth:`beat`.
        jitter: a number 0 <= n < 1; spreads the first beats of many jobs that start together.
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
        self._metastore = metastore
        self._txn_id = txn_id
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._on_lost = on_lost
        self._jitter = jitter
        self._mutex = threading.Lock()
        self._stopped = threading.Event()
        self._last_success = clock.now()
        self._last_failure: MetastoreError | None = None
        self._lost: ClientError | None = None

    @property
    def lost(self) -> ClientError | None:
        """Why the transaction is lost; None while it is not."""
        return self._lost

    def start(self) -> None:
        """Start beating."""
        for work in (self._beat_on_time, self._watch):
            name = f"mutation-heartbeat-{self._txn_id}"
            threading.Thread(target=work, name=name, daemon=True).start()

    def stop(self) -> None:
        """Stop beating; answers that arrive later are not looked at. May be called twice; never waits for a
        call.
        """
        with self._mutex:
            self._stopped.set()

    def beat(self) -> bool:
        """Beat once, now; whether the server confirmed the transaction. Does not raise for the server's
        answer.
        """
        asked_at = self._clock.now()
        try:
            answer = self._metastore.heartbeat_txn_range(self._txn_id, self._txn_id)
        except MetastoreError as error:
            _log.warning("heartbeat of transaction %d failed: %s", self._txn_id, error)
            self._last_failure = error
            return False
        if self._txn_id in answer.aborted:
            self._lose(
                TransactionAbortedError(self._text("was aborted: it timed out, or somebody aborted it"))
            )
        elif self._txn_id in answer.nosuch:
            self._lose(LockLostError(self._text("is not known to the metastore any more: somebody ended it")))
        else:
            self._last_success = max(self._last_success, asked_at)
        return self._lost is None

    def _beat_on_time(self) -> None:
        pause = self._jitter() * self.interval_seconds
        while not self._clock.wait(self._stopped, pause):
            pause = self.interval_seconds if self.beat() else self.interval_seconds * RETRY_FRACTION

    def _watch(self) -> None:
        while not self._stopped.is_set():
            silence = self._clock.now() - self._last_success
            remaining = LOST_AFTER_FRACTION * self._timeout_seconds - silence
            if remaining <= 0:
                self._lose(LockLostError(self._text(f"was not heard by the metastore for {silence:.0f} s")))
                return
            self._clock.wait(self._stopped, remaining)

    def _text(self, what: str) -> str:
        failure = f"; the last attempt failed with: {self._last_failure}" if self._last_failure else ""
        return (
            f"transaction {self._txn_id} {what} (timeout of the server: {self._timeout_seconds:g} s{failure})"
        )

    def _lose(self, error: ClientError) -> None:
        with self._mutex:
            if self._stopped.is_set():
                return
            error.__cause__ = self._last_failure
            self._lost = error
            self._stopped.set()
        self._on_lost(error)
