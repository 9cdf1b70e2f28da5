"""Numbers of rows by the footers of files; nothing else of them is read."""

from __future__ import annotations

from collections.abc import Iterable

from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.orc.format.tail import read_tail
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.reader.partition_files import list_partition_files
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.tree import Directories
from mutation_api.table.acid_table import AcidTable

__all__ = ["count_events", "count_rows"]


def count_rows(
    directories: Directories,
    table: AcidTable,
    location: Location,
    valid: ValidIdList,
    valid_txns: ValidTxnList | None,
) -> int:
    """Rows of a partition that a snapshot sees: those in bases and deltas, less the deletes.

    Every delete is of one row that is still in a file: writers lock what they delete, and a compaction that
    drops a row drops its delete. Not for tables of Hive 2, whose deltas mix inserts and deletes.

    Raises: see :func:`~mutation_api.reader.partition_files.list_partition_files`;
        CorruptFileError: a file is not an ORC file; OSError: it cannot be read.
    """
    files = list_partition_files(directories, table, location, valid, valid_txns)
    deletes = [file for file in files if file.kind is EventFileKind.DELETE_DELTA]
    return count_events(files) - 2 * count_events(deletes)


def count_events(files: Iterable[EventFile]) -> int:
    """Events of some files, or rows of plain ones: one request a file."""
    return sum(
        read_tail(storage_at(file.location), file.location).row_count if file.byte_count else 0
        for file in files
    )
