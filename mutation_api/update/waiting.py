"""waiting_changes: what the source has captured and no extraction has applied yet."""

from __future__ import annotations

from dataclasses import dataclass

from metastore_client.client import MetastoreClient
from mutation_api.errors import ConfigurationError
from mutation_api.update.log_source import outstanding
from mutation_api.update.rdbms.database import SourceDatabase
from mutation_api.update.settings import UpdateSettings
from mutation_api.update.tables import find_mark

__all__ = ["Waiting", "waiting_changes"]


@dataclass(frozen=True)
class Waiting:
    """``count``: changes that wait. ``age_seconds``: age of the oldest; this is the lag of the target."""

    count: int
    age_seconds: float


def waiting_changes(
    metastore: MetastoreClient, database: SourceDatabase, table: str, settings: UpdateSettings
) -> Waiting:
    """Ask the source.

    Log rows that were applied by an extraction which was killed before it removed them do not count.

    Raises:
        ConfigurationError: the method has no log.
        ConnectionFailedError: the source cannot be reached.
        SourcePositionError: the source has no log any more.
    """
    if not settings.method.has_log:
        raise ConfigurationError(
            f"method {settings.method.value} has no log that could be counted; a dry run of an extraction "
            "tells"
        )
    found = find_mark(metastore, table)
    applied = () if found is None or found[1] is None else found[1].pending
    return Waiting(*outstanding(database, settings, table, applied))
