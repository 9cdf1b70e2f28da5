"""Whether a database exists. Asked only where a table was not found, to say which of the two is missing."""

from __future__ import annotations

from metastore_client.client import MetastoreClient
from metastore_client.errors import NoSuchObjectError

__all__ = ["HOW_TO_FIND_DATABASES", "has_database"]

HOW_TO_FIND_DATABASES = "SHOW DATABASES in Hive lists them, CREATE DATABASE makes one"


def has_database(metastore: MetastoreClient, database: str) -> bool:
    """Whether the server has a database of this name. Raises MetastoreError: it could not be asked."""
    try:
        metastore.get_database_parameters(database)
    except NoSuchObjectError:
        return False
    return True
