"""Differences between servers as named properties; probed, or where no call tells, by the version."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Capabilities"]


@dataclass(frozen=True)
class Capabilities:
    """What one server can do.

    ``version`` is the server's own text (2.3 and 3.1 both report "3.0").
    """

    version: str
    has_write_ids: bool
    """Ids in files are per-table write ids (3.0 and later); otherwise transaction ids (2.x)."""
    has_exclusive_write_lock: bool = False
    """Writers with SHARED_WRITE do not wait for each other: the first to commit wins. EXCL_WRITE makes them
    wait (4.0 and later). Such a server also answers queries from statistics, wants write ids with changes of
    statistics, and asks the creator of an ACID table for its capabilities."""
    has_write_notifications: bool = False
    """Takes the names of written files for replication (``add_write_notification_log_in_batch``)."""

    has_min_history: bool = False
    """Takes the tables that a transaction reads (``add_write_ids_to_min_history``). By default the cleaner of
    4.2 waits for the transactions that have told it, and for no others; that of 4.1 waits for all."""

    @property
    def cleaner_waits_for_transactions(self) -> bool:
        """The cleaner spares all files that an open transaction may read, without any lock on partitions.

        4.0 and later, seen on 4.1.0 and 4.2.1; the transaction must tell its tables (``keep_files``).

        Other servers spare the files of a compacted partition only while locks on that very partition are
        held (seen on 2.3.10 and 3.1.3).
        """
        return self.has_exclusive_write_lock

    @property
    def answers_from_statistics(self) -> bool:
        """Its Hive answers queries on ACID tables from statistics, so these must be right (4.0 and later)."""
        return self.has_exclusive_write_lock

    @property
    def prints_shortest_numbers(self) -> bool:
        """Its Hive needs Java 21, whose texts of doubles are the shortest that name them (4.2 and later).

        Java before 19 prints some with more digits. No call tells of it, so the version does.
        """
        found = re.match(r"([0-9]+)\.([0-9]+)", self.version)
        return found is not None and (int(found[1]), int(found[2])) >= (4, 2)

    @property
    def line(self) -> str:
        """The Hive release whose rules the server follows, as a text for people."""
        if not self.has_write_ids:
            return "Hive 2.x"
        return "Hive 4.x" if self.has_exclusive_write_lock else "Hive 3.x"
