"""The options of a connection, which its transactions, snapshots and feeds share."""

from __future__ import annotations

from dataclasses import dataclass

from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.listener import LockFailureListener, SaidByTheNextStep
from mutation_api.write.local_plan import LocalOptions

__all__ = ["ConnectionOptions"]


@dataclass(frozen=True)
class ConnectionOptions:
    """The options of ``connect``, except for the metastore."""

    user: str | None
    lock_timeout_seconds: float
    write_lock: str
    time_zone: str | None
    listener: LockFailureListener | None
    local: LocalOptions

    def builder(self) -> MutatorClientBuilder:
        """Return a builder of clients with these options."""
        builder = MutatorClientBuilder()
        builder.lock_timeout_seconds(self.lock_timeout_seconds).write_lock(self.write_lock)
        builder.lock_failure_listener(self.listener or SaidByTheNextStep())
        if self.user is not None:
            builder.user(self.user)
        if self.time_zone is not None:
            builder.time_zone(self.time_zone)
        return builder
