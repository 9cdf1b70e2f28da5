"""table_history: the changes of a table, id by id, as far as the metastore and the files show them.

Hive keeps no log. The facts about an id come from three places. The metastore reports whether it is
committed, aborted or open, its transaction, and the user of transactions that are open, or aborted and not
yet cleaned. The footers of its deltas contain how many events it wrote. The times of its files show when they
were written. A minor compaction preserves the events but not the times; a major one leaves only the rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metastore_client.client import MetastoreClient, compactions_of
from metastore_client.model import CompactionInfo, OpenTxns, TxnInfo
from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.errors import CorruptFileError, DirectoryStateError
from mutation_api.format.event import CURRENT_TRANSACTION, OPERATION, Operation
from mutation_api.format.layout import (
    LONG_MIN,
    AcidVersion,
    BaseDirectory,
    DeltaDirectory,
    is_hidden,
    parse_bucket_file_name,
    parse_directory_name,
)
from mutation_api.orc.format.tail import read_tail
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.event_reader import event_fields
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.transaction.catalog import Catalog, TableSpec, split_full_name
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.upkeep.transaction_files import current_ids, transactions_of_write_ids
from mutation_api.upkeep.verify.finding import IdState, state_of


@dataclass(frozen=True)
class EventCounts:
    """Events of one id in one partition. ``updates`` is 0 if updates are stored as delete and insert."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0

    def __add__(self, other: EventCounts) -> EventCounts:
        """Return the sums."""
        return EventCounts(
            self.inserts + other.inserts, self.updates + other.updates, self.deletes + other.deletes
        )


@dataclass(frozen=True)
class DirectoryFacts:
    """A base or delta: its files, and the time of the newest one in seconds since 1970."""

    name: str
    directory: BaseDirectory | DeltaDirectory
    file_count: int
    byte_count: int
    written: float | None


@dataclass
class PartitionEvents:
    """One partition: its events by id, its directories, and the problems of files that could not be read.

    An id's events come from its own directories if these still exist, otherwise from deltas that a
    compaction wrote; events that were compacted into a base are not counted.
    """

    partition: str
    counts: dict[int, EventCounts] = field(default_factory=dict)
    directories: list[DirectoryFacts] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def partition_events(partition: str, location: Location, version: AcidVersion) -> PartitionEvents:
    """Count events from the footers of deltas of one id, and from two columns of deltas of several ids.

    Raises OSError if a directory cannot be listed.
    """
    result = PartitionEvents(partition)
    storage = storage_at(location)
    try:
        entries = storage.list(location)
    except FileNotFoundError:
        return result
    own: Counter[int] = Counter()
    compacted: dict[int, EventCounts] = defaultdict(EventCounts)
    for entry in entries:
        if not entry.is_directory or is_hidden(entry.name):
            continue
        try:
            directory = parse_directory_name(entry.name, version)
        except DirectoryStateError as error:
            result.problems.append(str(error))
            continue
        if directory is None:
            continue
        files = _files(entry)
        times = [file.modified for file in files if file.modified is not None]
        result.directories.append(
            DirectoryFacts(
                entry.name, directory, len(files), sum(f.size for f in files), max(times, default=None)
            )
        )
        if not isinstance(directory, DeltaDirectory):
            continue
        for file in files:
            try:
                for id, counts in _events(file, directory, version):
                    if directory.first == directory.last:
                        own[id] += 1
                        result.counts[id] = result.counts.get(id, EventCounts()) + counts
                    else:
                        compacted[id] += counts
            except (CorruptFileError, DirectoryStateError) as error:
                result.problems.append(str(error))
    result.counts |= {id: counts for id, counts in compacted.items() if not own[id]}
    return result


def _files(directory: FileEntry) -> list[FileEntry]:
    try:
        entries = storage_at(directory.location).list(directory.location)
    except FileNotFoundError:
        return []
    return [e for e in entries if not e.is_directory and not is_hidden(e.name)]


def _events(
    file: FileEntry, directory: DeltaDirectory, version: AcidVersion
) -> Iterator[tuple[int, EventCounts]]:
    if not file.size:
        return
    is_plain = parse_bucket_file_name(file.name, version) is None
    if directory.first == directory.last and (version.splits_updates or is_plain):
        count = read_tail(storage_at(file.location), file.location).row_count
        kind = EventCounts(deletes=count) if directory.is_delete else EventCounts(inserts=count)
        yield directory.last, kind
        return
    if is_plain:
        return  # rows of several ids, without their ids
    source = OrcInput(storage_at(file.location), file.location, None, ReadOptions())
    if not source.stripe_count:
        return
    fields = event_fields(source, version)
    names = [fields[OPERATION], fields[CURRENT_TRANSACTION]]
    for index in range(source.stripe_count):
        batch = source.read_stripe(index, names)
        operations = batch.column(names[0]).to_numpy(zero_copy_only=False)
        ids = batch.column(names[1]).to_numpy(zero_copy_only=False)
        for id in np.unique(ids):
            of_id = operations[ids == id]
            yield int(id), EventCounts(*(int((of_id == code).sum()) for code in Operation))


@dataclass(frozen=True)
class HistoryEntry:
    """One id of a table.

    Attributes:
        id: the write id; on Hive 2 the transaction id.
        txn_id: its transaction. If None, the metastore no longer reports it.
        state: its state for readers.
        written: the time at which the newest of its own files was written, shortly before the commit, in
            seconds since
            1970. None if it has no files, or if a compaction merged them.
        user, hostname: those of the transaction, if it is open, or aborted and not yet cleaned; otherwise ''.
        partitions: events by escaped name of the partition, '' for an unpartitioned table.
    """

    id: int
    txn_id: int | None
    state: IdState
    written: float | None
    user: str
    hostname: str
    partitions: Mapping[str, EventCounts]

    @property
    def total(self) -> EventCounts:
        """The events in all partitions. If updates are split, each counts as a delete and an insert."""
        return sum(self.partitions.values(), EventCounts())


@dataclass(frozen=True)
class RewrittenDirectory:
    """The result of a compaction or overwrite: ids ``first`` to ``last`` in one directory of a partition."""

    partition: str
    name: str
    first: int
    last: int
    written: float | None


@dataclass(frozen=True)
class TableHistory:
    """The changes of a table. ``entries`` are sorted by id, ``rewritten`` by partition and time.

    ``compactions`` are as the server lists them. Ids up to ``forgotten_through`` are in the bases of all
    partitions; it is not known which transactions wrote them.
    """

    table: str
    entries: tuple[HistoryEntry, ...]
    rewritten: tuple[RewrittenDirectory, ...]
    compactions: tuple[CompactionInfo, ...]
    forgotten_through: int
    problems: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the history as one JSON object; times are in seconds since 1970."""
        return {
            "table": self.table,
            "forgotten_through": self.forgotten_through,
            "ids": [_entry_json(entry) for entry in self.entries],
            "rewritten": [vars(each) for each in self.rewritten],
            "compactions": [_compaction_json(each) for each in self.compactions],
            "problems": list(self.problems),
        }


def table_history(metastore: MetastoreClient, table: str) -> TableHistory:
    """Return the history of a table.

    This takes no lock. It reads footers, and two columns of deltas that a minor compaction wrote. Files that
    Hive's cleaner removes in the meantime are left out.

    Raises:
        TableNotFoundError: If the table does not exist.
        TableNotMutableError: If the table is not one that this library can read.
        ConnectionFailedError, TransactionError: If the server could not be queried.
        OSError: If a directory cannot be listed.
    """
    database, name = split_full_name(table)
    with metastore_errors_as_ours(f"could not read the history of table {database}.{name}"):
        catalog = Catalog(metastore)
        spec = TableSpec(database, name, TableRole.SOURCE)
        opened = catalog.with_partitions(catalog.read_with_partition_names(spec))
        acid_table = opened.table
        names = [p.name for p in opened.partitions or ()] if acid_table.partition_keys else [""]
        parts = side_by_side(
            lambda each: partition_events(each, acid_table.partition_location(each), acid_table.version),
            names,
            storage_at(acid_table.location).threads,
        )
        # Ask after listing the files, so that no file belongs to an unknown id.
        open_txns = metastore.get_open_txns()
        valid, txn_ids = _ids(metastore, acid_table, open_txns)
        compactions = compactions_of(metastore, database, name)
    return TableHistory(
        table=acid_table.full_name,
        entries=tuple(_entries(parts, valid, txn_ids, open_txns)),
        rewritten=tuple(_rewritten(parts)),
        compactions=tuple(compactions),
        forgotten_through=min((_base_last(part, valid) for part in parts), default=0),
        problems=tuple(problem for part in parts for problem in part.problems),
    )


def _ids(
    metastore: MetastoreClient, table: AcidTable, open_txns: OpenTxns
) -> tuple[ValidIdList, dict[int, int]]:
    """Return the state of the table's ids, and their transactions."""
    valid = current_ids(metastore, table, open_txns).ids
    if not table.version.uses_write_ids:
        return valid, {}
    return valid, transactions_of_write_ids(metastore, table.full_name, open_txns.high_watermark)


def _entries(
    parts: list[PartitionEvents], valid: ValidIdList, txn_ids: dict[int, int], open_txns: OpenTxns
) -> list[HistoryEntry]:
    counts: dict[int, dict[str, EventCounts]] = defaultdict(dict)
    written: dict[int, float] = {}
    for part in parts:
        for id, found in part.counts.items():
            counts[id][part.partition] = found
        for facts in part.directories:
            if facts.written is not None and _is_of_one_id(facts):
                id = facts.directory.last
                written[id] = max(written.get(id, 0.0), facts.written)
                counts.setdefault(id, {})
    txns = {txn.id: txn for txn in open_txns.txns}
    return [
        _entry(id, counts.get(id, {}), written.get(id), valid, txn_ids.get(id), txns)
        for id in sorted({*counts, *txn_ids})
    ]


def _entry(
    id: int,
    partitions: dict[str, EventCounts],
    written: float | None,
    valid: ValidIdList,
    txn_id: int | None,
    txns: dict[int, TxnInfo],
) -> HistoryEntry:
    if isinstance(valid, ValidTxnList):
        txn_id = id
    txn = None if txn_id is None else txns.get(txn_id)
    return HistoryEntry(
        id=id,
        txn_id=txn_id,
        state=state_of(id, valid),
        written=written,
        user="" if txn is None else txn.user,
        hostname="" if txn is None else txn.hostname,
        partitions=partitions,
    )


def _is_of_one_id(facts: DirectoryFacts) -> bool:
    directory = facts.directory
    return not isinstance(directory, BaseDirectory) and directory.first == directory.last


def _rewritten(parts: list[PartitionEvents]) -> list[RewrittenDirectory]:
    found = []
    for part in parts:
        for facts in part.directories:
            directory = facts.directory
            if isinstance(directory, BaseDirectory):
                first = 0 if directory.last != LONG_MIN else LONG_MIN
            elif directory.first != directory.last or directory.compaction_txn:
                first = directory.first
            else:
                continue
            found.append(RewrittenDirectory(part.partition, facts.name, first, directory.last, facts.written))
    return sorted(found, key=lambda each: (each.partition, each.written or 0.0, each.name))


def _base_last(part: PartitionEvents, valid: ValidIdList) -> int:
    bases = [f.directory.last for f in part.directories if isinstance(f.directory, BaseDirectory)]
    return max((last for last in bases if 0 < last <= valid.high_watermark), default=0)


def _entry_json(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "txn": entry.txn_id,
        "state": entry.state.value,
        "written": entry.written,
        "user": entry.user or None,
        "hostname": entry.hostname or None,
        "partitions": {name: vars(counts) for name, counts in entry.partitions.items()},
    }


def _compaction_json(each: CompactionInfo) -> dict[str, Any]:
    return {**vars(each), "type": each.type.name.lower()}
