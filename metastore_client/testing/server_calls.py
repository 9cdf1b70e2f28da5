"""The behaviour common to all calls of the in-memory metastore, and the Hive releases that it can simulate.

Calls are serialised and recorded, and can fail on demand.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from metastore_client.capabilities import Capabilities
from metastore_client.partition_name import DEFAULT_PARTITION_NAME, DEFAULT_PARTITION_SETTING

HIVE_2_3 = Capabilities(version="3.0", has_write_ids=False)
"""The capabilities of a Hive 2.3 server."""
HIVE_3_1 = Capabilities(version="3.0", has_write_ids=True)
"""The capabilities of a Hive 3.1 server, which reports the same version as 2.3."""
HIVE_4_1 = Capabilities(
    version="4.1.0",
    has_write_ids=True,
    has_exclusive_write_lock=True,
    has_write_notifications=True,
    has_min_history=True,
)
"""The capabilities of a Hive 4.1 server."""


TXN_TIMEOUT_SECONDS_DEFAULT = 300.0
"""``hive.txn.timeout``: the time without a heartbeat after which a transaction or lock is reaped."""

_numbers = itertools.count(1)

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="ServerCalls")


@dataclass
class _Fault:
    call: str
    error: BaseException
    after: bool


def server_call(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method behave like a call to a server."""

    def called(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._mutex:
            self.calls.append(method.__name__)
            fault = self._take_fault(method.__name__)
            if fault is not None and not fault.after:
                raise fault.error
            result = method(self, *args, **kwargs)
            if fault is not None:
                raise fault.error
            return result

    functools.update_wrapper(called, method)
    return called


class ServerCalls:
    """The server without its data: its settings, its clock, and the faults that a test requests.

    Only one call runs at a time, because each call holds the mutex.
    """

    def __init__(
        self,
        *,
        txn_timeout_seconds: float = TXN_TIMEOUT_SECONDS_DEFAULT,
        clock: Callable[[], float] = time.time,
        configuration: Mapping[str, str] | None = None,
        capabilities: Capabilities = HIVE_2_3,
    ) -> None:
        self.calls: list[str] = []
        self.address = f"memory:{os.getpid()}.{next(_numbers)}"
        self._mutex = threading.RLock()
        self.txn_timeout_seconds = txn_timeout_seconds
        self._capabilities = capabilities
        self._clock = clock
        self._configuration = {
            "hive.txn.timeout": f"{round(txn_timeout_seconds * 1000)}ms",
            "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
            "hive.compactor.initiator.on": "true",
            DEFAULT_PARTITION_SETTING: DEFAULT_PARTITION_NAME,
            **(configuration or {}),
        }
        self._faults: list[_Fault] = []

    def fail_next(self, call: str, error: BaseException, *, after: bool = False, times: int = 1) -> None:
        """Let the next calls of a method fail.

        Args:
            call: a method of :class:`~metastore_client.client.MetastoreClient`, such as ``"commit_txn"``.
            error: the error to raise.
            after: if True, the call takes effect first, as if only the answer were lost.
            times: number of calls that fail.
        """
        if not hasattr(self, call):
            raise ValueError(f"no such call: {call}")
        with self._mutex:
            self._faults.extend(_Fault(call, error, after) for _ in range(times))

    def _take_fault(self, call: str) -> _Fault | None:
        fault = next((f for f in self._faults if f.call == call), None)
        if fault is not None:
            self._faults.remove(fault)
        return fault

    @server_call
    def capabilities(self) -> Capabilities:
        """Return the capabilities given to the constructor."""
        return self._capabilities

    @server_call
    def get_config_value(self, name: str, default: str) -> str:
        """Return a value of the configuration given to the constructor."""
        return self._configuration.get(name, default)

    def together(self, *calls: Callable[[], Any]) -> list[Any]:
        """Make the calls one after the other, since there is no network to wait for.

        See :meth:`MetastoreClient.together`.
        """
        results, errors = [], []
        for call in calls:
            try:
                results.append(call())
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return results

    def close(self) -> None:
        """Do nothing: the server and its transactions stay alive."""
