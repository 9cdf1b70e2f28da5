"""The queue of this machine's writers of a table, which they pass before they queue at the metastore.

A lock that another transaction holds is requested again and again, and a transaction that waited for it needs
a second one (see :mod:`.lease`). Writers on one machine can see each other instead: the next one requests the
lock when it is free.

A queue is a file, and a writer's place in it is a locked byte. A writer that finds no locked byte before its
own is next. The kernel releases locks when a process dies, so no writer waits for a dead process. The locks
belong to an open file (``F_OFD_SETLK`` of Linux) and not to a process, so they also separate threads. On
systems without such locks, writers meet only at the metastore.

Requests for locks queue by metastore as well: only :data:`AT_ONCE` requests of a machine are under way at
once.

A writer stays in the queue while the queue moves. Otherwise it continues to the metastore, which reports the
holder of the lock. The same file is used by processes of one user that have the same directory for temporary
files and the same address of the metastore; others meet at the metastore.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import math
import os
import stat
import struct
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from metastore_client.client import MetastoreClient
from mutation_api.transaction.clock import TELL_AFTER_SECONDS, WAIT_LOG, Clock

AT_ONCE = 8
"""Number of a table's writers that work at the same time, if they do not exclude each other. If there are
more, they wait for each other in the metastore's database (Hive 4.1 on Derby: a hundred for 20 s at a time).

Also the number of lock requests that one machine sends to a metastore at once. By default a metastore has ten
connections to its database. With Derby each request keeps one while it waits for a mutex whose holder waits
for a connection. So ten requests wait for each other until they time out, and all other calls with them
(observed on 2.3.10).
"""
STILL_SECONDS = 3.0
"""A writer that sees no movement in the queue for this long continues to the metastore."""
LOOK_SECONDS = 0.003
"""Pause before a writer checks again, for each writer ahead of it. A check takes some microseconds."""
MUTEX_TRIES = 1000
"""Number of attempts to enter a queue, a millisecond apart. Entering takes microseconds."""

_MUTEX, _FIRST = 0, 1
"""The offset of the byte whose lock lets one writer at a time enter or leave, and of the first place."""
_FLOCK = "@hhqqi0q"
"""``struct flock`` of 64-bit Linux: type, whence, start, length, process."""

_log = logging.getLogger(__name__)
_wait_log = logging.getLogger(WAIT_LOG)


@dataclass(eq=False)
class _Ticket:
    """A writer's place in one queue: the byte ``number`` of the open file is locked."""

    path: Path
    file: int
    number: int
    thread: int

    def before(self) -> list[int]:
        """Return the places before this one whose writers are still there."""
        found: list[int] = []
        spans = [(_FIRST, self.number)]
        while spans:
            start, end = spans.pop()
            if start < end and (at := _locked_byte(self.file, start, end)) is not None:
                found.append(at)
                spans += [(start, at), (at + 1, end)]
        return found

    def give_back(self) -> None:
        """Leave the queue. The last writer to leave removes the file."""
        with contextlib.suppress(OSError):
            _set(self.file, fcntl.F_UNLCK, self.number)
            _enter(self.file)
            if _locked_byte(self.file, _FIRST, 0) is None:
                self.path.unlink(missing_ok=True)
        os.close(self.file)


@dataclass(eq=False)
class Place:
    """A writer's place in the queues of its tables, until it is given back."""

    tickets: list[_Ticket] = field(default_factory=list)

    def give_back(self) -> None:
        """Let the next writers continue. May be called twice and from any thread."""
        with _mutex:
            tickets, self.tickets = self.tickets, []
            for ticket in tickets:
                if _taken.pop((ticket.path, ticket.number), None) is ticket:
                    ticket.give_back()


_mutex = threading.Lock()
_taken: dict[tuple[Path, int], _Ticket] = {}
"""The places of this process."""


def _begin_anew() -> None:
    """Drop the places in a forked process.

    It has no writers, and its copies of the files must not hold places.
    """
    global _mutex
    _mutex = threading.Lock()
    for ticket in _taken.values():
        with contextlib.suppress(OSError):
            os.close(ticket.file)
    _taken.clear()


os.register_at_fork(after_in_child=_begin_anew)


def queue_up(
    metastore: MetastoreClient, tables: Iterable[str], clock: Clock, deadline: float, *, at_once: int = 1
) -> Place:
    """Wait until this writer may continue:

    none or only a few writers of this machine are ahead of it, or the queue no longer moves.

    Args:
        metastore: the metastore of the tables.
        tables: full names, in the order in which all writers take them.
        clock: times the wait.
        deadline: the clock's time at which the wait ends.
        at_once: the number of writers that need not wait. Writers with another number use another queue.

    Returns:
        The place, which must be given back when the transaction has ended.
    """
    place = Place()
    for name in tables:
        queue = f"{metastore.address}\n{name}\n{at_once}"
        if not _line_up(place, queue, f"table {name}", clock, deadline, at_once):
            place.give_back()
            break
    return place


@contextlib.contextmanager
def in_turn(metastore: MetastoreClient, tables: Iterable[str], clock: Clock) -> Iterator[None]:
    """Return a block for reading or changing table descriptions; one writer at a time enters it.

    Hive 4's numbers of rows are part of a table's description. If one writer reads it while another writes
    it, both may wait on the database of the metastore until it notices (20 s on Derby, observed on 4.1.0).
    Two writers that change it overwrite each other. Writers on different machines are not separated in this
    way. No writer waits forever: see STILL_SECONDS.

    Args:
        metastore: the metastore of the tables.
        tables: full names, in the order in which all writers take them.
        clock: times the waits.
    """
    place = Place()
    try:
        if metastore.capabilities().answers_from_statistics:
            for name in tables:
                _line_up(place, f"{metastore.address}\n{name}\ndescription", f"table {name}", clock)
        yield
    finally:
        place.give_back()


@contextlib.contextmanager
def few_at_once(metastore: MetastoreClient, clock: Clock) -> Iterator[None]:
    """Return a block for requesting a lock; it waits while AT_ONCE others of this machine are in it.

    It does not wait forever: see STILL_SECONDS.
    """
    place = Place()
    try:
        what = f"metastore {metastore.address}"
        _line_up(place, f"{metastore.address}\nlocks", what, clock, at_once=AT_ONCE)
        yield
    finally:
        place.give_back()


def _line_up(
    place: Place, queue: str, what: str, clock: Clock, deadline: float = math.inf, at_once: int = 1
) -> bool:
    """Take a place in another queue and wait; return True if it is its turn, or if there is no queue."""
    try:
        ticket = _take(queue)
    except OSError as error:
        _log.debug("no queue on this machine for %s: %s", what, error)
        return True
    place.tickets.append(ticket)
    return _wait(ticket, what, clock, deadline, at_once)


def _wait(ticket: _Ticket, what: str, clock: Clock, deadline: float, at_once: int) -> bool:
    """Wait, and return True if it is the ticket's turn: fewer than ``at_once`` writers are ahead of it."""
    started = moved = clock.now()
    ahead, is_told = 0, False
    while len(before := ticket.before()) >= at_once and not _waits_for_itself(ticket, before):
        now = clock.now()
        if len(before) != ahead:
            ahead, moved = len(before), now
        if now >= deadline or now - moved >= STILL_SECONDS:
            return False
        if not is_told and now - started >= TELL_AFTER_SECONDS:
            is_told = True
            _wait_log.info("%s: writers of this machine ahead of this one: %d", what, ahead)
        clock.sleep(min(ahead * LOOK_SECONDS, deadline - now))
    return True


def _waits_for_itself(ticket: _Ticket, before: Iterable[int]) -> bool:
    """Return True if the thread would wait for its own transaction; the metastore reports this."""
    with _mutex:
        taken = [_taken.get((ticket.path, number)) for number in before]
    return any(other is not None and other.thread == ticket.thread for other in taken)


def _take(queue: str) -> _Ticket:
    """Take the last place of a queue. Raises OSError if there is no queue."""
    if not hasattr(fcntl, "F_OFD_SETLK") or sys.maxsize < 2**32:
        raise OSError("open file description locks are needed, which only 64-bit Linux has")
    path = _directory() / hashlib.sha256(queue.encode()).hexdigest()[:32]
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _enter(file)
            if os.fstat(file).st_nlink:  # otherwise the last writer to leave has removed it
                number = max(_FIRST, os.fstat(file).st_size)
                os.ftruncate(file, number + 1)
                _set(file, fcntl.F_WRLCK, number)
                ticket = _Ticket(path, file, number, threading.get_ident())
                with _mutex:
                    _taken[path, number] = ticket
                _set(file, fcntl.F_UNLCK, _MUTEX)
                return ticket
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _directory() -> Path:
    """Return the directory of this user's queues. Raises OSError if others could write there."""
    path = Path(tempfile.gettempdir()) / f"hive-mutation-api-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{path} is not a directory that only this user can access")
    return path


def _enter(file: int) -> None:
    """Take the mutex of a queue. Raises BlockingIOError if another writer keeps it."""
    pause = threading.Event()
    for _ in range(MUTEX_TRIES - 1):
        with contextlib.suppress(BlockingIOError):
            return _set(file, fcntl.F_WRLCK, _MUTEX)
        pause.wait(0.001)
    return _set(file, fcntl.F_WRLCK, _MUTEX)


def _set(file: int, kind: int, byte: int) -> None:
    """Set or release a lock. Raises BlockingIOError if another writer has the lock."""
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0))


def _locked_byte(file: int, start: int, end: int) -> int | None:
    """Return a byte that others have locked from ``start`` to before ``end`` (0: to the end)."""
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, max(0, end - start), 0)
    kind, _, at, _, _ = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_OFD_GETLK, wanted))
    return None if kind == fcntl.F_UNLCK else at
