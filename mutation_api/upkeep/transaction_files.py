"""Files of one transaction in a table, the current state of all its ids, and the transactions of write ids.

The metastore keeps the pairs of transaction and write id, but no call returns them. It does report which
write ids a snapshot does not see, and a client may send any list of transactions as a snapshot. A snapshot in
which exactly the transactions with bit b are missing hides exactly their write ids. So two requests for each
bit of the transaction ids yield all pairs of a table. They change nothing. The metastore forgets pairs of old
transactions, which therefore remain unknown.

Source: TxnHandler.getValidWriteIds (3.1.3, 4.1.0), as observed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from metastore_client.client import MetastoreClient
from metastore_client.errors import InvalidAnswerError
from metastore_client.model import OpenTxns
from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList, listed_ids
from mutation_api.errors import DirectoryStateError
from mutation_api.format.layout import DeltaDirectory, is_hidden, parse_directory_name
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import AcidTable
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.manifest import STAGING_PREFIX
from mutation_api.upkeep.verify.finding import KnownIds


@dataclass(frozen=True)
class TransactionDirectory:
    """A directory of a transaction's files. ``is_staged`` is True if it is hidden and not yet published."""

    partition: str
    location: Location
    is_staged: bool
    file_count: int
    byte_count: int


def transaction_directories(
    table: AcidTable, partitions: list[str], txn_id: int, own_id: int | None
) -> list[TransactionDirectory]:
    """Return the directories of one transaction.

    Args:
        table: the table, with the locations of its partitions.
        partitions: their escaped names, [''] for an unpartitioned table.
        txn_id: the transaction, whose id names the staging directories.
        own_id: its id in file names: the write id, or in v1 the transaction id. If None, it is not known.

    Raises:
        OSError: If a directory cannot be listed.
    """
    roots = dict.fromkeys([table.location, *table.partition_locations.values()])
    found = [each for root in roots for each in _staged(root, txn_id)]
    if own_id is not None:
        threads = storage_at(table.location).threads
        for published in side_by_side(lambda name: _published(table, name, own_id), partitions, threads):
            found += published
    return found


def files_below(directory: Location) -> list[FileEntry]:
    """Return all files below a directory, including hidden ones; none if it is missing. Raises OSError."""
    try:
        entries = storage_at(directory).list(directory)
    except FileNotFoundError:
        return []
    files = [entry for entry in entries if not entry.is_directory]
    for entry in entries:
        if entry.is_directory:
            files += files_below(entry.location)
    return files


def _staged(root: Location, txn_id: int) -> Iterator[TransactionDirectory]:
    directory = root / f"{STAGING_PREFIX}{txn_id}"
    if storage_at(root).stat(directory) is not None:
        yield _directory("", directory, is_staged=True)


def _published(table: AcidTable, name: str, own_id: int) -> list[TransactionDirectory]:
    location = table.partition_location(name)
    try:
        entries = storage_at(location).list(location)
    except FileNotFoundError:
        return []
    found = []
    for entry in entries:
        if not entry.is_directory or is_hidden(entry.name):
            continue
        try:
            parsed = parse_directory_name(entry.name, table.version)
        except DirectoryStateError:
            continue
        is_delta = isinstance(parsed, DeltaDirectory) and parsed.first == parsed.last
        if (
            parsed is not None
            and parsed.last == own_id
            and (is_delta or not isinstance(parsed, DeltaDirectory))
        ):
            found.append(_directory(name, entry.location, is_staged=False))
    return found


def _directory(partition: str, location: Location, *, is_staged: bool) -> TransactionDirectory:
    files = files_below(location)
    return TransactionDirectory(partition, location, is_staged, len(files), sum(file.size for file in files))


def current_ids(metastore: MetastoreClient, table: AcidTable, open_txns: OpenTxns | None = None) -> KnownIds:
    """Return the metastore's information about a table's ids and about transactions.

    Args:
        metastore: the table's metastore.
        table: its version determines the kind of its ids.
        open_txns: an earlier answer. If None, the metastore is queried.

    Raises:
        MetastoreError: If the server could not be queried.
    """
    open_txns = open_txns or metastore.get_open_txns()
    has_write_ids = table.version.uses_write_ids
    txns = ValidTxnList.from_open_txns(open_txns, None, has_write_ids=has_write_ids)
    if not has_write_ids:
        return KnownIds(txns, txns)
    valid = metastore.get_valid_write_ids([table.full_name], txns)[table.full_name]
    if valid.exceptions and valid.high_watermark == valid.exceptions[0]:
        valid = _completed(metastore, valid, txns)
    return KnownIds(valid, txns)


def _completed(metastore: MetastoreClient, valid: ValidWriteIdList, txns: ValidTxnList) -> ValidWriteIdList:
    """Add ids that Hive 4.1 leaves out: if none is valid, it lists only the lowest one.

    The others are invalid too.
    """
    all_valid = ValidTxnList(txns.high_watermark)
    newest = metastore.get_valid_write_ids([valid.table], all_valid)[valid.table].high_watermark
    rest = hidden_ids(valid.high_watermark + 1, newest, valid.table)
    return dataclasses.replace(
        valid, high_watermark=max(newest, valid.high_watermark), exceptions=(*valid.exceptions, *rest)
    )


def hidden_ids(first: int, last: int, full_name: str) -> range:
    """Return write ids of a table that are hidden but not listed in an answer.

    Raises InvalidAnswerError if there are so many that the numbers cannot be right.
    """
    try:
        return listed_ids(first, last)
    except ValueError as error:
        raise InvalidAnswerError(f"the metastore's valid write ids of table {full_name}: {error}") from error


RECENT_TXNS_DEFAULT = 4096
"""Number of newest transactions whose write ids are searched: a request lists half of them."""


def known_transactions(metastore: MetastoreClient, table: AcidTable) -> Mapping[int, int]:
    """Return the transactions of the ids in a table's files, as far as the metastore knows them.

    Raises:
        ConnectionFailedError, TransactionError: If the server could not be queried.
    """
    if not table.version.uses_write_ids:
        return _Same()
    with metastore_errors_as_ours(f"could not look up the transactions of table {table.full_name}"):
        highest = metastore.get_open_txns().high_watermark
        return transactions_of_write_ids(metastore, table.full_name, highest)


class _Same(dict[int, int]):
    """Ids that are transactions themselves."""

    def get(self, key: int, default: object = None) -> int:
        """Return the id."""
        return key


def transactions_of_write_ids(
    metastore: MetastoreClient, full_name: str, newest_txn: int, recent_txns: int = RECENT_TXNS_DEFAULT
) -> dict[int, int]:
    """Return the transactions by write id for one table, as far as the metastore reports them.

    Args:
        metastore: a server with write ids.
        full_name: ``database.table``.
        newest_txn: the highest transaction that was opened.
        recent_txns: the number of transactions up to the newest one that may be among the answers.

    Raises:
        MetastoreError: If the server could not be queried.
    """
    oldest = max(1, newest_txn - recent_txns + 1)
    txns = range(oldest, newest_txn + 1)

    def hidden_without(missing: Iterable[int]) -> Collection[int]:
        seen = ValidTxnList(newest_txn, tuple(missing))
        return _hidden(metastore.get_valid_write_ids([full_name], seen)[full_name], newest_id)

    newest_id = metastore.get_valid_write_ids([full_name], ValidTxnList(newest_txn))[full_name].high_watermark
    known = hidden_without(txns)
    numbers = dict.fromkeys(known, 0)
    for bit in range((newest_txn - oldest + 1).bit_length()):
        is_set = hidden_without(txn for txn in txns if txn - oldest >> bit & 1)
        is_clear = hidden_without(txn for txn in txns if not txn - oldest >> bit & 1)
        for id in list(numbers):
            if (id in is_set) is (id in is_clear):
                del numbers[id]
            elif id in is_set:
                numbers[id] |= 1 << bit
    return {id: oldest + number for id, number in numbers.items()}


def _hidden(valid: ValidWriteIdList, newest_id: int) -> Collection[int]:
    """Return write ids that a snapshot does not see.

    If it sees none, Hive 4 ends the list at the lowest one.
    """
    first = min(valid.exceptions, default=newest_id)
    if valid.high_watermark <= first < newest_id:
        return hidden_ids(first, newest_id, valid.table)
    return frozenset(valid.exceptions)
