"""Staging directories: what lies in them, and how they go away.

Every file a task writes lies hidden in ``_mutation_<txn>/<writer>/<attempt>/`` under the table (or under a
partition that lies elsewhere) until the driver publishes it. A driver that died leaves its directory
behind; the next transaction on the table removes it, once the dead one's transaction is over.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

from metastore_client.model import OpenTxns, TxnState
from mutation_api.commit.manifest import STAGING_PREFIX, staging_directory
from mutation_api.commit.manifest_checks import StagedFile
from mutation_api.orc.storage import FileEntry, Storage
from mutation_api.table.acid_table import AcidTable

__all__ = ["list_staged_files", "remove_abandoned", "remove_staging", "staging_directories"]

_STAGING_NAME = re.compile(re.escape(STAGING_PREFIX) + r"(\d+)")

_log = logging.getLogger(__name__)


def staging_directories(table: AcidTable, txn_id: int) -> list[str]:
    """Where ``txn_id`` may have staged files of the table: locations, which need not exist."""
    return [staging_directory(location, txn_id) for location in _roots(table)]


def list_staged_files(table: AcidTable, txn_id: int) -> list[StagedFile]:
    """Every file staged for the table. Raises OSError."""
    return [
        file
        for location in staging_directories(table, txn_id)
        for file in _files_of(Storage.for_location(location), location)
    ]


def remove_staging(table: AcidTable, txn_id: int) -> None:
    """Remove the staging directories; a failure is logged, since they are hidden and removed later."""
    for location in staging_directories(table, txn_id):
        _remove(location)


def remove_abandoned(table: AcidTable, open_txns: OpenTxns) -> list[int]:
    """Remove staging directories of transactions that are over.

    Args:
        table: the table whose directories are looked at.
        open_txns: as seen now; a transaction is over if it is aborted, or known and not listed.

    Returns:
        Ids of the transactions whose directories were removed.
    """
    alive = {t.id for t in open_txns.txns if t.state is TxnState.OPEN}
    removed = []
    for location in _roots(table):
        for entry, txn_id in _staging_entries(location):
            if txn_id <= open_txns.high_watermark and txn_id not in alive:
                _remove(entry.path)
                removed.append(txn_id)
    return removed


def _roots(table: AcidTable) -> list[str]:
    return list(dict.fromkeys([table.location, *table.partition_locations.values()]))


def _files_of(storage: Storage, location: str) -> Iterator[StagedFile]:
    for writer in _children(storage, storage.path(location)):
        for attempt in _children(storage, writer.path) if writer.is_directory else [writer]:
            for file in _children(storage, attempt.path) if attempt.is_directory else [attempt]:
                yield StagedFile(writer.name, attempt.name, file.path, file.size)


def _staging_entries(location: str) -> Iterator[tuple[FileEntry, int]]:
    try:
        storage = Storage.for_location(location)
        entries = _children(storage, storage.path(location))
    except OSError as error:
        _log.warning("could not look for abandoned staging directories in %s: %s", location, error)
        return
    for entry in entries:
        if entry.is_directory and (match := _STAGING_NAME.fullmatch(entry.name)):
            yield entry, int(match[1])


def _children(storage: Storage, path: str) -> list[FileEntry]:
    try:
        return storage.list(path)
    except FileNotFoundError:
        return []


def _remove(location: str) -> None:
    try:
        storage = Storage.for_location(location)
        storage.delete_directory(storage.path(location))
    except OSError as error:
        _log.warning("could not remove the staging directory %s: %s", location, error)
