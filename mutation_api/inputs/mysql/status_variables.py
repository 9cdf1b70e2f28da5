"""Makes the replication library pass over status variables of a statement that it does not know.

MariaDB 11 writes some before statements that define columns, and the library then fails at the whole log.
Variables that this package needs, such as the SQL mode, come first.

Source: MariaDB's log_event.h, Q_GTID_FLAGS3 and Q_CHARACTER_SET_COLLATIONS.
"""

from __future__ import annotations

from typing import Any

from pymysqlreplication.event import QueryEvent
from pymysqlreplication.exceptions import StatusVariableMismatch

__all__ = ["pass_unknown_status_variables"]

_METHOD = "_read_status_vars_value_for_key"


def pass_unknown_status_variables() -> None:
    """Replace the library's method by one that skips what it does not know; a second call changes nothing."""
    known = getattr(QueryEvent, _METHOD)
    if known.__module__ == __name__:
        return

    def read_or_skip(self: Any, key: int) -> None:
        if not hasattr(self, "status_vars_end"):
            # One byte, the first key, has been read.
            self.status_vars_end = self.packet.read_bytes - 1 + self.status_vars_length
        try:
            known(self, key)
        except StatusVariableMismatch:
            self.packet.read(self.status_vars_end - self.packet.read_bytes)

    setattr(QueryEvent, _METHOD, read_or_skip)
