"""Staged output: finds it in staging directories and among unfinished uploads, and removes it.

Every file that a task writes is hidden in ``_mutation_<txn>/<writer>/<attempt>/`` below the table (or below a
partition outside it) until the driver publishes it. If the storage cannot rename, the file is an unfinished
upload to its final location, and the attempt's directory contains only a mark (see ``attempt_mark``). A
driver that died leaves both behind. The next transaction on the table removes them once the dead driver's
transaction has ended, and so does ``hive-mutate sweep``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TypeVar

from metastore_client.model import OpenTxns, TxnState
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry, Staged, Storage
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import AcidTable
from mutation_api.transaction.manifest import (
    STAGING_PREFIX,
    delta_names_pattern,
    parse_attempt_mark,
    staging_directory,
)
from mutation_api.transaction.manifest_checks import StagedFile, StagedOutput

PROBE_PREFIX = f"{STAGING_PREFIX}probe_"
"""Prefix of short-lived empty files that probe whether a table's directory can be written."""

_STAGING_NAME = re.compile(re.escape(STAGING_PREFIX) + r"(\d+)")

_Found = TypeVar("_Found")

_log = logging.getLogger(__name__)


def list_staged(table: AcidTable, txn_id: int) -> StagedOutput:
    """Return the files and uploads staged for the table by a transaction. Raises OSError."""

    def below(root: Location) -> StagedOutput:
        storage = storage_at(root)
        files = _files_of(storage, staging_directory(root, txn_id))
        return StagedOutput(tuple(files), tuple(_uploads_of(storage, root, {table.required_write_id()})))

    found = _in_each_root(below, table)
    return StagedOutput(
        tuple(file for each in found for file in each.files),
        tuple(upload for each in found for upload in each.uploads),
    )


def remove_staging(table: AcidTable, txn_id: int) -> None:
    """Remove the staged output of the table's transaction.

    A failure is only logged: the remaining files are hidden, and are removed later.
    """
    ids = {table.required_write_id()}
    _in_each_root(lambda root: _remove(root, staging_directory(root, txn_id), ids), table)


@dataclass(frozen=True)
class Abandoned:
    """Staged output of a transaction that has ended.

    If ``txn_id`` is None, it is a file that probed write access.
    """

    txn_id: int | None
    location: Location


def find_abandoned(table: AcidTable, open_txns: OpenTxns) -> list[Abandoned]:
    """Find the staged output of transactions that have ended.

    Args:
        table: the table whose directories are searched.
        open_txns: transactions listed earlier; a transaction has ended if it is aborted, or if it is known
            but not listed.

    Returns:
        The staged output by location. A directory that cannot be listed is logged.
    """
    return [
        each
        for found in _in_each_root(_staged_below, table)
        for each in found
        if each.txn_id is None or _is_over(each.txn_id, open_txns)
    ]


def remove_abandoned(table: AcidTable, open_txns: OpenTxns) -> list[Abandoned]:
    """Remove the output that :func:`find_abandoned` finds, including unfinished uploads.

    Returns:
        The removed output. A failure is logged.
    """
    return [each for each in find_abandoned(table, open_txns) if _remove_one(each)]


def _remove_one(each: Abandoned) -> bool:
    write_ids = set() if each.txn_id is None else _marked_ids(each.location)
    return _remove(each.location.parent, each.location, write_ids)


def _is_over(txn_id: int, open_txns: OpenTxns) -> bool:
    alive = {t.id for t in open_txns.txns if t.state is TxnState.OPEN}
    return txn_id <= open_txns.high_watermark and txn_id not in alive


def _roots(table: AcidTable) -> list[Location]:
    return list(dict.fromkeys([table.location, *table.partition_locations.values()]))


def _in_each_root(look: Callable[[Location], _Found], table: AcidTable) -> list[_Found]:
    """Return the results of ``look`` for the table's directory and for partitions outside it."""
    return side_by_side(look, _roots(table), storage_at(table.location).threads)


def _files_of(storage: Storage, directory: Location) -> list[StagedFile]:
    def of_attempt(writer_and_attempt: tuple[FileEntry, FileEntry]) -> list[StagedFile]:
        writer, attempt = writer_and_attempt
        files = children_of(storage, attempt.location) if attempt.is_directory else [attempt]
        return [StagedFile(writer.name, attempt.name, file.location, file.size) for file in files]

    attempts = [
        (writer, attempt)
        for writer in children_of(storage, directory)
        for attempt in (children_of(storage, writer.location) if writer.is_directory else [writer])
    ]
    return [file for files in side_by_side(of_attempt, attempts, storage.threads) for file in files]


def _uploads_of(storage: Storage, root: Location, write_ids: Collection[int]) -> Iterator[Staged]:
    """Yield the unfinished uploads to the directories of these ids, of any statement."""
    if storage.publishes_by_rename or not write_ids:
        return
    names = re.compile("|".join(delta_names_pattern(write_id) for write_id in write_ids))
    yield from (u for u in storage.unfinished(root) if names.fullmatch(u.location.parent.name))


def _marked_ids(directory: Location) -> set[int]:
    """Return the ids in the marks of a staging directory."""
    try:
        files = _files_of(storage_at(directory), directory)
    except OSError as error:
        _log.warning("could not list the staging directory %s: %s", directory, error)
        return set()
    found = (parse_attempt_mark(file.location.name) for file in files)
    return {write_id for write_id in found if write_id is not None}


def _staged_below(root: Location) -> list[Abandoned]:
    try:
        entries = children_of(storage_at(root), root)
    except OSError as error:
        _log.warning("could not look for abandoned staging directories in %s: %s", root, error)
        return []
    found = []
    for entry in entries:
        if entry.name.startswith(PROBE_PREFIX):
            found.append(Abandoned(None, entry.location))
        elif entry.is_directory and (match := _STAGING_NAME.fullmatch(entry.name)):
            found.append(Abandoned(int(match[1]), entry.location))
    return found


def children_of(storage: Storage, directory: Location) -> list[FileEntry]:
    """Return the entries of a directory; none if it does not exist. Raises OSError."""
    try:
        return storage.list(directory)
    except FileNotFoundError:
        return []


def _remove(root: Location, directory: Location, write_ids: Collection[int]) -> bool:
    """Remove uploads before their marks, which are needed to find them.

    Then remove uploads again: an abandoned task continues to upload as long as it sees its mark.
    """
    try:
        storage = storage_at(root)
        storage.abandon(_uploads_of(storage, root, write_ids))
        if directory.name.startswith(PROBE_PREFIX):
            storage.delete_file(directory)
        else:
            storage.delete_directory(directory)
            storage.abandon(_uploads_of(storage, root, write_ids))
    except FileNotFoundError:
        return False  # another client that began removed it first
    except OSError as error:
        _log.warning("could not remove staged files in %s: %s", directory, error)
        return False
    return True
