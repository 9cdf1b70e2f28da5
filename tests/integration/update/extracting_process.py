"""What a process does that is going to be killed."""

from __future__ import annotations

from metastore_client.remote.thrift_client import connect
from mutation_api import LocalOptions
from mutation_api.update.extract import extract_update


def extract_repeatedly(uri: str, table: str, password: str | None, user: str) -> None:
    """Extract without a pause, for ever."""
    with connect(uri, user=user) as metastore:
        while True:
            extract_update(metastore, table, password=password, user=user, local=LocalOptions())
