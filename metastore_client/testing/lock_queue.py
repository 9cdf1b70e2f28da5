"""LockQueue: the locks that are granted and the locks that wait, by the rules of each release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metastore_client.capabilities import Capabilities
from metastore_client.model import LockComponent, LockInfo, LockRequest, LockResponse, LockState, LockType
from metastore_client.testing.written_resources import Resource

_WAITS = {
    LockType.SHARED_READ: {LockType.EXCLUSIVE},
    LockType.SHARED_WRITE: {LockType.SHARED_WRITE, LockType.EXCLUSIVE},
    LockType.EXCLUSIVE: {LockType.SHARED_READ, LockType.SHARED_WRITE, LockType.EXCLUSIVE},
}
"""Requested type -> types of earlier locks of other transactions for which it waits, in 2.3 and 3.1."""

_WAITS_OF_EXCLUSIVE_WRITERS = {
    LockType.SHARED_READ: {LockType.EXCLUSIVE},
    LockType.SHARED_WRITE: {LockType.EXCL_WRITE, LockType.EXCLUSIVE},
    LockType.EXCL_WRITE: {LockType.SHARED_WRITE, LockType.EXCL_WRITE, LockType.EXCLUSIVE},
    LockType.EXCLUSIVE: set(LockType),
}
"""The corresponding map for 4.x, which distinguishes exclusive writers from optimistic ones."""

_WAITS_FOR_WAITING = {
    LockType.SHARED_READ: set[LockType](),
    LockType.SHARED_WRITE: {LockType.SHARED_WRITE},
    LockType.EXCLUSIVE: {LockType.SHARED_READ, LockType.SHARED_WRITE, LockType.EXCLUSIVE},
}
"""The corresponding map for earlier locks that are still waiting, for 2.3 only.

Later releases treat a waiting lock like a granted one.
"""


@dataclass
class Lock:
    """A lock request with all its components, which share their state."""

    id: int
    request: LockRequest
    resources: tuple[Resource, ...]
    last_heartbeat: float
    state: LockState = LockState.WAITING
    blocked_by: tuple[int | None, ...] = ()


class LockQueue:
    """The locks of a server, in the order of their requests."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._last_id = 0
        self._locks: dict[int, Lock] = {}

    def add(self, request: LockRequest, resources: tuple[Resource, ...], now: float) -> Lock:
        """Add and return a lock, which waits.

        Args:
            request: the request.
            resources: the resource of each component.
            now: time of the first heartbeat.
        """
        self._last_id += 1
        self._locks[self._last_id] = lock = Lock(self._last_id, request, resources, now)
        return lock

    def get(self, lock_id: int) -> Lock | None:
        """Return the lock with this id, or None if there is none."""
        return self._locks.get(lock_id)

    def remove(self, lock_id: int) -> None:
        """Drop one lock."""
        del self._locks[lock_id]

    def remove_of(self, txn_id: int) -> None:
        """Drop the locks of a transaction."""
        self._locks = {i: lock for i, lock in self._locks.items() if lock.request.txn_id != txn_id}

    def remove_separate(self, oldest: float) -> None:
        """Drop locks without a transaction whose last heartbeat is older than ``oldest``."""
        for lock in list(self._locks.values()):
            if lock.request.txn_id == 0 and lock.last_heartbeat < oldest:
                del self._locks[lock.id]

    def shown(self, database: str | None, table: str | None) -> list[LockInfo]:
        """Return the components of all locks.

        If a database or table is named, return only those of its locks.
        """
        return [
            LockInfo(
                lock_id=lock.id,
                database=resource.database,
                table=resource.table,
                partition=resource.partition,
                state=lock.state,
                type=component.type,
                txn_id=lock.request.txn_id or None,
                user=lock.request.user,
                hostname=lock.request.hostname,
                agent_info=lock.request.agent_info,
                blocked_by=blocked_by,
            )
            for lock in sorted(self._locks.values(), key=lambda each: each.id)
            for component, resource, blocked_by in zip(
                lock.request.components, lock.resources, lock.blocked_by, strict=True
            )
            if database is None or resource.database == database.lower()
            if table is None or resource.table == table.lower()
        ]

    def try_to_grant(self, lock: Lock) -> LockResponse:
        """Grant a waiting lock if no earlier lock blocks it."""
        if lock.state is LockState.WAITING:
            blockers = tuple(self._blocker(lock, at) for at in range(len(lock.resources)))
            granted = all(blocker is None for blocker in blockers)
            lock.state = LockState.ACQUIRED if granted else LockState.WAITING
            lock.blocked_by = blockers
        return LockResponse(lock.id, lock.state)

    def _blocker(self, lock: Lock, at: int) -> int | None:
        """Return the id of an earlier lock for which component ``at`` has to wait.

        Later locks never count.
        """
        wanted, resource = lock.request.components[at], lock.resources[at]
        for other in self._locks.values():
            if other.id >= lock.id or 0 < other.request.txn_id == lock.request.txn_id:
                continue
            waits = self._waits(other.state)
            for theirs, their_resource in zip(other.request.components, other.resources, strict=True):
                if (
                    theirs.type in waits[wanted.type]
                    and resource.overlaps(their_resource)
                    and not _is_database_use(wanted, theirs)
                    and not _is_database_use(theirs, wanted)
                ):
                    return other.id
        return None

    def _waits(self, other_state: LockState) -> Mapping[LockType, set[LockType]]:
        if self._capabilities.has_exclusive_write_lock:
            return _WAITS_OF_EXCLUSIVE_WRITERS
        if self._capabilities.has_write_ids or other_state is LockState.ACQUIRED:
            return _WAITS
        return _WAITS_FOR_WAITING


def _is_database_use(one: LockComponent, other: LockComponent) -> bool:
    """Return True for the use of a database and the drop of one of its tables, which do not conflict.

    The use is a shared lock without a table.
    """
    return (
        one.table is None
        and one.type is LockType.SHARED_READ
        and other.table is not None
        and other.type is LockType.EXCLUSIVE
    )
