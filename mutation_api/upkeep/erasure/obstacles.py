"""Obstacles to an erasure: transactions, compactions, staged files and others that keep files in place.

The server's cleaner removes replaced files only when no transaction can read them any more. Hive 4.1 waits
for every open transaction, 4.2 for those that reported the table, 2.3 and 3.1 for locks on the partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from metastore_client.client import MetastoreClient, compactions_of
from metastore_client.model import CompactionInfo, OpenTxns, TxnInfo, TxnState
from mutation_api.transaction.catalog import split_full_name
from mutation_api.upkeep.erasure.table_search import FoundFile, TableSearch
from mutation_api.upkeep.transaction_files import current_ids

_FILES_SHOWN = 3
_WAIT_FOR_IT = "Run the same command again to wait for it; hive-mutate show compactions shows it"
_NO_WORKER = (
    "No worker has taken it: start compactor threads (hive.compactor.worker.threads > 0), or let this "
    "program compact (compact='local', --engine local), before Hive 4 after the queue is empty"
)


@dataclass(frozen=True)
class Obstacle:
    """One reason why an erasure is not finished. ``what_to_do`` is a sentence for an operator.

    ``txn_id``, ``user`` and ``host`` name the transaction that is in the way, if it is one. ``since`` is when
    it began, in milliseconds since 1970, if the server reports it.
    """

    kind: str
    table: str
    found: str
    what_to_do: str
    txn_id: int | None = None
    user: str = ""
    host: str = ""
    since: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-serialisable dict."""
        return dict(vars(self))

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.table}: {self.found}. {self.what_to_do}"


def compactions_by_age(metastore: MetastoreClient, table: str) -> list[CompactionInfo]:
    """Return the entries of a table in the server's queue, the oldest first. Raises MetastoreError."""
    found = compactions_of(metastore, *split_full_name(table))
    return sorted(found, key=lambda each: (each.id or 0, each.start_time or 0))


def is_below_open_writers(metastore: MetastoreClient, search: TableSearch, newest_id: int) -> bool:
    """Return True if a transaction that may still write the table has an id up to ``newest_id``.

    A compaction covers no id at or above the first open one. Raises MetastoreError.
    """
    return current_ids(metastore, search.sought.table).ids.min_open <= newest_id


def obstacles(
    metastore: MetastoreClient,
    searches: Sequence[TableSearch],
    failures: Mapping[tuple[str, str], str],
    *,
    is_past_queue: bool = False,
) -> list[Obstacle]:
    """Return what is in the way of removing the files in ``left`` of some tables.

    Args:
        metastore: the server.
        searches: the last search of each table.
        failures: why compactions failed, by table and partition.
        is_past_queue: True if partitions are compacted past the server's queue, which waits for all
            transactions.

    Raises:
        MetastoreError: If the server could not be asked.
    """
    opened = metastore.get_open_txns()
    found: list[Obstacle] = []
    for search in searches:
        if search.is_free:
            continue
        found += _of_compactions(metastore, search)
        found += _of_failures(search, failures)
        found += _of_readers(metastore, search, opened, is_past_queue=is_past_queue)
        found += _of_staging(search, opened)
        found += _of_leftovers(search)
        found += _of_table(search)
        if search.upload_count:
            found.append(
                Obstacle(
                    "uploads",
                    search.full_name,
                    f"{search.upload_count} unfinished uploads below its location, which cannot be read",
                    "hive-mutate sweep removes those of ended transactions",
                )
            )
    return found


def _of_compactions(metastore: MetastoreClient, search: TableSearch) -> Iterator[Obstacle]:
    partitions = {file.partition for file in search.left if file.is_compactable}
    newest = {each.partition or "": each for each in compactions_by_age(metastore, search.full_name)}
    for name, entry in newest.items():
        if name not in partitions or not entry.may_change_files:
            continue
        what = "the server's cleaner has not removed the replaced files"
        if entry.is_pending:
            what = f"the compaction is {entry.state}"
        said = f" ({entry.error.strip()})" if entry.error.strip() else ""
        yield Obstacle(
            "compaction",
            search.full_name,
            f"{what}{said}{f' of partition {search.masked(name)}' if name else ''}",
            _NO_WORKER if entry.state == "initiated" else _WAIT_FOR_IT,
        )


def _of_failures(search: TableSearch, failures: Mapping[tuple[str, str], str]) -> Iterator[Obstacle]:
    for (table, partition), reason in failures.items():
        if table == search.full_name:
            where = f" of partition {search.masked(partition)}" if partition else ""
            yield Obstacle(
                "compaction",
                table,
                f"the compaction{where} failed: {reason}",
                "Remove the cause, and run the same command again",
            )


def _of_readers(
    metastore: MetastoreClient, search: TableSearch, opened: OpenTxns, *, is_past_queue: bool
) -> Iterator[Obstacle]:
    if not any(file.is_compactable for file in search.left):
        return
    locks = metastore.show_locks(*split_full_name(search.full_name))
    lockers = {lock.txn_id for lock in locks if lock.txn_id is not None}
    waits_for_all = metastore.capabilities().cleaner_waits_for_transactions
    for txn in opened.txns:
        if txn.state is not TxnState.OPEN:
            continue
        if txn.id in lockers:
            yield _reader(search, txn, "has a lock on the table, so it may read or write the files")
        elif is_past_queue:
            yield _reader(search, txn, "is open, and a compaction past the server's queue waits for it")
        elif waits_for_all:
            yield _reader(search, txn, "is open, and the cleaner of Hive 4 may wait for it")
    for lock in locks:
        if lock.txn_id is None:
            yield Obstacle(
                "lock",
                search.full_name,
                f"lock {lock.lock_id} of {lock.user}@{lock.hostname} is held outside of a transaction",
                "Let its query end",
                user=lock.user,
                host=lock.hostname,
            )


def _reader(search: TableSearch, txn: TxnInfo, why: str) -> Obstacle:
    return Obstacle(
        "transaction",
        search.full_name,
        f"transaction {txn.id} of {txn.user}@{txn.hostname} {why}",
        f"Let it end, or end it: hive-mutate abort {txn.id}",
        txn.id,
        txn.user,
        txn.hostname,
        txn.started_time,
    )


def _of_staging(search: TableSearch, opened: OpenTxns) -> Iterator[Obstacle]:
    by_id = {txn.id: txn for txn in opened.txns if txn.state is TxnState.OPEN}
    for txn_id in sorted({file.staged_by for file in search.left if file.staged_by is not None}):
        txn = by_id.get(txn_id)
        if txn is None:
            yield Obstacle(
                "staged",
                search.full_name,
                f"files that transaction {txn_id} staged are left, although it has ended",
                f"hive-mutate sweep {search.full_name} removes them, and says why if it cannot",
                txn_id,
            )
        else:
            yield _reader(search, txn, "has staged files with a key, or files that cannot be searched")


def _of_table(search: TableSearch) -> Iterator[Obstacle]:
    """Yield the files that a compaction and the cleaner should have removed."""
    files = [each for each in search.left if each.is_compactable]
    if files:
        yield Obstacle(
            "files",
            search.full_name,
            f"{len(files)} files are left in its partitions: {_listed(search, files)}",
            "Compactions and the cleaner remove them. Is hive.compactor.cleaner.on true at a metastore?",
        )


def _of_leftovers(search: TableSearch) -> Iterator[Obstacle]:
    files = [each for each in search.left if not each.is_removable]
    if not files:
        return
    yield Obstacle(
        "leftover",
        search.full_name,
        f"{len(files)} files that no server removes: {_listed(search, files)}",
        "If no query is writing there, remove them by hand, and run the same command again",
    )


def _listed(search: TableSearch, files: Sequence[FoundFile]) -> str:
    """Return the paths of the first files, and why the first one counts."""
    paths = [search.shown(each.location) for each in files[:_FILES_SHOWN]]
    more = f" and {len(files) - _FILES_SHOWN} more" if len(files) > _FILES_SHOWN else ""
    return f"{', '.join(paths)}{more} ({files[0].searched.reason or 'with keys'})"
