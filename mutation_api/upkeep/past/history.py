"""table_history: what happened to a table, id by id, as far as the metastore and the files tell.

Hive keeps no log. What is known of an id comes from three places: the metastore says whether it is
committed, aborted or open, which transaction it was, and who runs transactions that are open, or aborted and
not cleaned; the footers of its deltas say how many events it wrote; the times of its files say when. A minor
compaction keeps the events and hides the time; a major one leaves only the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metastore_client.client import MetastoreClient
from metastore_client.model import CompactionInfo, OpenTxns, TxnInfo
from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.acid.layout import LONG_MIN, BaseDirectory
from mutation_api.client.failure import metastore_errors_as_ours
from mutation_api.client.tables.catalog import Catalog, TableSpec, split_full_name
from mutation_api.storage.connect import storage_at
from mutation_api.storage.side_by_side import side_by_side
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.upkeep.current_ids import current_ids
from mutation_api.upkeep.past.event_counts import (
    DirectoryFacts,
    EventCounts,
    PartitionEvents,
    partition_events,
)
from mutation_api.upkeep.past.transactions_of_ids import transactions_of_write_ids
from mutation_api.upkeep.verify.known_ids import IdState, state_of

__all__ = ["HistoryEntry", "RewrittenDirectory", "TableHistory", "table_history"]


@dataclass(frozen=True)
class HistoryEntry:
    """One id of a table.

    Attributes:
        id: the write id; on Hive 2 the transaction id.
        txn_id: its transaction; None if the metastore does not tell any more.
        state: what readers make of it.
        written: when the youngest of its own files was written, shortly before the commit, in seconds since
            1970; None if it has none, or a compaction took them.
        user, hostname: of the transaction, if it is open, or aborted and not yet cleaned; else ''.
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
        """Events in all partitions. Where updates are split, one is a delete and an insert."""
        return sum(self.partitions.values(), EventCounts())


@dataclass(frozen=True)
class RewrittenDirectory:
    """What a compaction or an overwrite made: ids ``first`` to ``last`` in one directory of a partition."""

    partition: str
    name: str
    first: int
    last: int
    written: float | None


@dataclass(frozen=True)
class TableHistory:
    """``entries`` by id; ``rewritten`` by partition and time; ``compactions`` as the server lists them.

    ``forgotten_through``: ids up to it are in the bases of all partitions; what wrote them is not known.
    """

    table: str
    entries: tuple[HistoryEntry, ...]
    rewritten: tuple[RewrittenDirectory, ...]
    compactions: tuple[CompactionInfo, ...]
    forgotten_through: int
    problems: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The history as one JSON object; times in seconds since 1970."""
        return {
            "table": self.table,
            "forgotten_through": self.forgotten_through,
            "ids": [_entry_json(entry) for entry in self.entries],
            "rewritten": [vars(each) for each in self.rewritten],
            "compactions": [_compaction_json(each) for each in self.compactions],
            "problems": list(self.problems),
        }


def table_history(metastore: MetastoreClient, table_name: str) -> TableHistory:
    """What happened to a table.

    Takes no lock and reads footers, of deltas that a minor compaction made two columns. What Hive's cleaner
    removes meanwhile is left out.

    Raises:
        TableNotMutableError: there is no such table, or it is none of ours to read.
        ConnectionFailedError, TransactionError: the server could not be asked.
        OSError: a directory cannot be listed.
    """
    database, name = split_full_name(table_name)
    with metastore_errors_as_ours(f"could not read the history of table {database}.{name}"):
        catalog = Catalog(metastore)
        spec = TableSpec(database, name, TableRole.SOURCE)
        opened = catalog.with_partitions(catalog.read_with_partition_names(spec))
        table = opened.table
        names = [p.name for p in opened.partitions or ()] if table.partition_keys else [""]
        parts = side_by_side(
            lambda each: partition_events(each, table.partition_location(each), table.version),
            names,
            storage_at(table.location).threads,
        )
        # After the files, so that no file belongs to an id that is not known.
        open_txns = metastore.get_open_txns()
        valid, txn_ids = _ids(metastore, table, open_txns)
        compactions = [c for c in metastore.show_compactions() if (c.database, c.table) == (database, name)]
    return TableHistory(
        table=table.full_name,
        entries=tuple(_entries(parts, valid, txn_ids, open_txns)),
        rewritten=tuple(_rewritten(parts)),
        compactions=tuple(compactions),
        forgotten_through=min((_base_last(part, valid) for part in parts), default=0),
        problems=tuple(problem for part in parts for problem in part.problems),
    )


def _ids(
    metastore: MetastoreClient, table: AcidTable, open_txns: OpenTxns
) -> tuple[ValidIdList, dict[int, int]]:
    """State of the table's ids, and their transactions."""
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
