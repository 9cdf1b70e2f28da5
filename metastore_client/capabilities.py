"""Differences between servers as named properties.

Most are probed with calls. If no call reveals a difference, the server's version decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of one server.

    ``version`` is the version that the server reports (both 2.3 and 3.1 report "3.0").
    """

    version: str
    has_write_ids: bool
    """True if ids in files are write ids per table (3.0 and later), false if transaction ids (2.x)."""
    has_exclusive_write_lock: bool = False
    """True if the server has the lock EXCL_WRITE (4.0 and later).

    On such a server, writers with SHARED_WRITE do not wait for each other: the first to commit wins.
    EXCL_WRITE makes them wait. Such a server also answers queries from statistics, requires write ids with
    changes of statistics, and asks the creator of an ACID table for its capabilities.
    """
    has_write_notifications: bool = False
    """True if the server accepts names of written files for replication
    (``add_write_notification_log_in_batch``).
    """

    has_min_history: bool = False
    """True if the server accepts the tables that a transaction reads (``add_write_ids_to_min_history``).

    By default, the cleaner of 4.2 waits only for transactions that have reported their tables. The cleaner of
    4.1 waits for all transactions.
    """

    @property
    def cleaner_waits_for_transactions(self) -> bool:
        """True if the cleaner keeps all files that an open transaction may read, without locking partitions.

        This is the case in 4.0 and later (seen on 4.1.0 and 4.2.1). The transaction must report its tables
        (``keep_files``).

        Other servers keep the files of a compacted partition only while locks on that very partition are held
        (seen on 2.3.10 and 3.1.3).
        """
        return self.has_exclusive_write_lock

    @property
    def answers_from_statistics(self) -> bool:
        """True if Hive answers queries on ACID tables from statistics (4.0 and later).

        The statistics must then be right.
        """
        return self.has_exclusive_write_lock

    @property
    def deletes_column_statistics(self) -> bool:
        """True if statistics of columns of an ACID table can be deleted (before 4.0).

        Later servers refuse it; there only ANALYZE replaces them (seen on 4.1.0 and 4.2.1).
        """
        return not self.has_exclusive_write_lock

    @property
    def has_compaction_workers(self) -> bool:
        """True if other programs can take compactions from the queue and run them (4.0 and later)."""
        return self.has_exclusive_write_lock

    @property
    def prints_shortest_numbers(self) -> bool:
        """True if Hive prints doubles with the fewest digits that identify them (4.2 and later).

        Such a release needs Java 21. Java before 19 prints some doubles with more digits. No call reveals
        this, so the version decides.
        """
        found = re.match(r"([0-9]+)\.([0-9]+)", self.version)
        return found is not None and (int(found[1]), int(found[2])) >= (4, 2)

    @property
    def line(self) -> str:
        """The Hive release whose rules the server follows, as a readable name."""
        if not self.has_write_ids:
            return "Hive 2.x"
        return "Hive 4.x" if self.has_exclusive_write_lock else "Hive 3.x"
