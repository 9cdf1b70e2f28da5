"""Compares the statistics of columns that the metastore calls accurate with the values that a reader sees.

Only the columns concerned are read, once for all partitions that claim the same ones.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from metastore_client.model import ColumnStatistics
from mutation_api.errors import MutationError
from mutation_api.scan.table_scan import TableScan
from mutation_api.scan.table_view import TableView
from mutation_api.storage.machine_faults import is_fault_of_machine
from mutation_api.upkeep.verify.column_values import ColumnValues
from mutation_api.upkeep.verify.finding import Finding
from mutation_api.upkeep.verify.registered import Registered

__all__ = ["column_statistics"]

_Values = Mapping[str, Mapping[str, ColumnValues]]
"""By partition and column."""


def column_statistics(
    view: TableView, registered: Registered, partitions: Sequence[str], threads: int | None
) -> Iterator[Finding]:
    """Statistics of columns that are called accurate, and are not those of the values.

    Args:
        view: the snapshot; its table must have no younger rows.
        registered: what the metastore says.
        partitions: those whose files are sound; '' for an unpartitioned table.
        threads: as of :class:`~mutation_api.scan.table_scan.TableScan`.

    Raises MetastoreError: the server could not be asked.
    """
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name in sorted(partitions):
        alike[registered.claimed_columns(name)].append(name)
    for columns, names in alike.items():
        recorded = registered.column_statistics(names, columns, view.valid_ids) if columns else {}
        if recorded:
            yield from _differences(view, registered, recorded, threads)


def _differences(
    view: TableView,
    registered: Registered,
    recorded: Mapping[str, Sequence[ColumnStatistics]],
    threads: int | None,
) -> Iterator[Finding]:
    columns = sorted({each.column for found in recorded.values() for each in found})
    try:
        values = _values(view, [*recorded], columns, threads)
    except (MutationError, OSError) as error:
        if is_fault_of_machine(error):
            raise
        for name in recorded:
            yield Finding(
                "statistics-unchecked", name, view.locations[name], str(error), "columns that can be read"
            )
        return
    for name, found in recorded.items():
        for each in found:
            seen = values[name][each.column]
            differs = seen.difference(each)
            if differs is not None:
                is_damage = registered.answers_from(each) and seen.misleads(each)
                rule_name = "column-statistics" if is_damage else "column-statistics-plan"
                there, claimed = (f"{each.column}: {text}" for text in differs)
                yield Finding(rule_name, name, view.locations[name], there, f"{claimed}, as recorded")


def _values(
    view: TableView, partitions: Sequence[str], columns: Sequence[str], threads: int | None
) -> _Values:
    values = {name: {column: ColumnValues() for column in columns} for name in partitions}
    part = dataclasses.replace(view, locations={name: view.locations[name] for name in partitions})
    scan = TableScan(part, columns=columns, threads=threads, truncate_nanoseconds=True)
    for name, rows in scan.by_partition():
        for column in columns:
            values[name or ""][column].add(rows.column(column))
    return values
