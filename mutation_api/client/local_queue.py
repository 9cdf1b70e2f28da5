"""The queue of this process's own writers for a table, before they queue at the metastore.

A lock that another transaction holds is asked for again and again, and a transaction that waited for it needs
a second one (see :mod:`.lease`). Threads of one process can tell each other instead: the next one asks for
the lock when it is free.

A writer waits here for a bounded time only, then at the metastore, which tells who holds the lock.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from metastore_client.client import MetastoreClient
from mutation_api.client.clock import Clock

__all__ = ["MAX_WAIT_SECONDS", "Place", "queue_up"]

MAX_WAIT_SECONDS = 3.0


@dataclass(eq=False)
class Place:
    """A writer's place in the queues of its tables, until it is given back."""

    thread: int = field(default_factory=threading.get_ident)
    tables: list[tuple[int, str]] = field(default_factory=list)
    is_next: threading.Event = field(default_factory=threading.Event)

    def give_back(self) -> None:
        """Let the next writers go on. May be called twice, and from any thread."""
        with _mutex:
            tables, self.tables = self.tables, []
            for table in tables:
                queue = _queues.get(table)
                if queue is not None and self in queue:
                    queue.remove(self)
                    if queue:
                        queue[0].is_next.set()
                    else:
                        del _queues[table]


_mutex = threading.Lock()
_queues: dict[tuple[int, str], deque[Place]] = {}
"""Writers by table; the first of each holds the table, or asks the metastore for it."""


def _begin_anew() -> None:
    """A forked process has none of the writers, and its copy of the mutex may be taken for ever."""
    global _mutex
    _mutex = threading.Lock()
    _queues.clear()


os.register_at_fork(after_in_child=_begin_anew)


def queue_up(metastore: MetastoreClient, tables: Iterable[str], clock: Clock, deadline: float) -> Place:
    """Wait until no other writer of this process is before us, or for the bounded time.

    Args:
        metastore: the connection that the threads share.
        tables: full names, in the order in which all writers take them.
        clock: times the wait.
        deadline: the clock's time.

    Returns:
        The place; to be given back when the transaction is over.
    """
    place = Place()
    until = min(deadline, clock.now() + MAX_WAIT_SECONDS)
    for name in tables:
        table = (id(metastore), name)
        with _mutex:
            queue = _queues.setdefault(table, deque())
            queue.append(place)
            place.tables.append(table)
        while not _may_go_on(place, table):
            if not clock.wait(place.is_next, max(0.0, until - clock.now())):
                place.give_back()
                return place
    return place


def _may_go_on(place: Place, table: tuple[int, str]) -> bool:
    with _mutex:
        place.is_next.clear()
        first = _queues[table][0]
        # A thread that waits for its own transaction waits in vain; the metastore tells it so.
        return first is place or any(p.thread == place.thread for p in _queues[table] if p is not place)
