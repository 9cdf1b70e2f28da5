"""Counts, altered keys, sample rows and the change set of the rows on which clauses acted.

Rows come as :class:`~mutation_api.merge.acting.Acting`, from this process or in Spark's tasks.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.format.event import DELETE, INSERT, ROW_ID_COLUMN, UPDATE
from mutation_api.format.hive_type import arrow_type, parse_hive_type
from mutation_api.format.json_values import json_texts
from mutation_api.merge.acting import INSERTED, KINDS, MOVED, Acting, struct_of
from mutation_api.merge.clauses import CHANGE_COLUMN, altered_keys_error
from mutation_api.merge.key_columns import in_nanoseconds
from mutation_api.merge.merge_report import MergeReport, with_compactions_due
from mutation_api.merge.preview import SHOWN_KINDS, SampleRow, row_values
from mutation_api.merge.source_rows import ROWS_SHOWN
from mutation_api.read.snapshot_reader import full_row_id_type
from mutation_api.read.table_view import partition_names
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import check_may_create
from mutation_api.write.staged_writer import LookingTransaction

Indices = NDArray[np.int64]

_Sample = tuple[str, str, str, SampleRow]
"""The partition, the key and the content, which determine the choice of samples, and the row."""


class MergeOutcome:
    """Counts and samples of the rows on which clauses acted. Outcomes of parts can be added up.

    Args:
        keys: the key columns. None if the merge has another condition.
        count_by: the source column by whose values rows are counted. None if there is none.
        sample_count: number of rows of each kind to keep as samples.
    """

    def __init__(self, keys: Collection[str] | None, count_by: str | None, sample_count: int = 0) -> None:
        self._keys = tuple(keys or ())
        self._count_by = count_by
        self._sample_count = sample_count
        self._groups: Counter[tuple[str, str]] = Counter()
        self._values: Counter[tuple[Any, str]] = Counter()
        self._new_partitions: set[str | None] = set()
        self._samples: dict[str, list[_Sample]] = {kind: [] for kind in SHOWN_KINDS}
        self._altered: list[str] = []

    def add(self, each: Acting) -> None:
        """Count rows on which one clause acted."""
        kinds = pa.array(KINDS).take(pa.array(each.kinds))
        self._groups.update(_counted(each.partitions, kinds))
        self._new_partitions |= set(pc.unique(each.new_partitions).to_pylist())
        if self._count_by:
            is_of_source = each.rows.source_rows is not None
            by = each.rows.source_column(self._count_by) if is_of_source else pa.nulls(len(kinds))
            self._values.update(_counted(by, kinds))
        if self._sample_count:
            for kind in SHOWN_KINDS:
                self._keep(kind, self._sampled(kind, each))

    def add_altered(self, texts: Iterable[str]) -> None:
        """Add keys that would be stored as different keys. See :func:`~.acting.altered_keys`."""
        self._altered = heapq.nsmallest(ROWS_SHOWN, (*self._altered, *texts))

    def add_outcome(self, other: MergeOutcome) -> None:
        """Add the counts and samples of another part of the rows."""
        self.add_altered(other._altered)
        self._groups.update(other._groups)
        self._values.update(other._values)
        self._new_partitions |= other._new_partitions
        for kind, samples in other._samples.items():
            self._keep(kind, samples)

    def check_keys(self, table: AcidTable) -> None:
        """Raise RecordValueError if a key to insert would be stored as a different key."""
        if self._altered:
            raise altered_keys_error(table.full_name, self._altered)

    def report(self, transaction: LookingTransaction, table: AcidTable, *, is_dry_run: bool) -> MergeReport:
        """Return the report.

        Raises:
            PartitionCreationError: If rows belong to missing partitions that must not be created.
        """
        known = {*partition_names(transaction, table.full_name)}
        new = {name for name in self._new_partitions - known if name}
        check_may_create(table, new)
        report = MergeReport.of(
            table.full_name,
            [(*group, count) for group, count in self._groups.items()],
            is_dry_run=is_dry_run,
            new_partitions=new,
            counts_by=[(*group, count) for group, count in self._values.items()],
        )
        return with_compactions_due(report, table)

    @property
    def samples(self) -> tuple[SampleRow, ...]:
        """The rows of each kind with the lowest partition and key.

        The result does not depend on how the rows were divided into parts.
        """
        return tuple(row for kind in SHOWN_KINDS for *_, row in self._samples[kind])

    def _keep(self, kind: str, samples: list[_Sample]) -> None:
        both = (*self._samples[kind], *samples)
        self._samples[kind] = heapq.nsmallest(self._sample_count, both, key=lambda each: each[:3])

    def _sampled(self, kind: str, each: Acting) -> list[_Sample]:
        rows = np.flatnonzero(each.kinds == KINDS.index(kind))
        if not len(rows):
            return []
        chosen = each if len(rows) == len(each.kinds) else each.take(rows)
        named = list(zip(chosen.partitions.to_pylist(), _key_texts(self._keys, chosen), strict=True))
        last = heapq.nsmallest(self._sample_count, named)[-1]
        least = [row for row, name in enumerate(named) if name <= last]  # more than needed if names are equal
        shown = chosen.take(np.array(least))
        columns = dict(shown.rows.target or {})
        columns.pop(ROW_ID_COLUMN, None)
        before, after = (_row_values(each, len(least)) for each in (columns, shown.new))
        samples = []
        for row, old, new in zip(least, before, after, strict=True):
            partition, key = named[row]
            sample = SampleRow(kind, partition or None, key or None, old, new)
            samples.append((partition, key, json.dumps([old, new]), sample))
        return samples


def _key_texts(keys: Collection[str], rows: Acting) -> list[str]:
    if not keys:
        return [""] * len(rows.kinds)
    old = rows.rows.target or {}
    return json_texts(struct_of({key: old[key] if key in old else rows.new[key] for key in keys}))


def _row_values(columns: Mapping[str, pa.Array], count: int) -> list[dict[str, Any] | None]:
    return row_values(struct_of(columns)) if columns else [None] * count


def _counted(groups: pa.Array, kinds: pa.Array) -> dict[tuple[Any, str], int]:
    """Return the number of rows by group and kind."""
    counts = (
        pa.table([groups, kinds], ["group", "kind"])
        .group_by(["group", "kind"])
        .aggregate([([], "count_all")])
    )
    named = zip(_python_values(counts["group"]), counts["kind"].to_pylist(), strict=True)
    return dict(zip(named, counts["count_all"].to_pylist(), strict=True))


def _python_values(values: pa.ChunkedArray) -> list[Any]:
    """Return Python values, or strings if Python's type cannot hold one, such as a date in the year 10000."""
    try:
        found: list[Any] = values.to_pylist()
    except (ValueError, OverflowError):
        found = values.cast(pa.string()).to_pylist()
    return found


_OPERATIONS = (
    (UPDATE, [KINDS.index("updated")]),
    (DELETE, [KINDS.index("deleted"), MOVED]),
    (INSERT, [INSERTED, MOVED]),
)
"""The kinds of rows that each operation writes. A moved row is deleted and inserted."""


def change_schema(table: AcidTable, fine: Collection[str] = ()) -> pa.Schema:
    """Return the schema of a merge's change set. Timestamps of the columns in ``fine`` have nanoseconds."""
    fields = [pa.field(CHANGE_COLUMN, pa.string())]
    if table.version.has_row_ids:
        fields.append(pa.field(ROW_ID_COLUMN, full_row_id_type(table)))
    for column in table.all_columns:
        unit = "ns" if column.name in fine else "us"
        fields.append(pa.field(column.name, arrow_type(parse_hive_type(column.type), timestamp_unit=unit)))
    return pa.schema(fields)


def change_batches(
    table: AcidTable, schema: pa.Schema, each: Acting, extra: Mapping[str, pa.Array] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of rows on which one clause acted.

    Args:
        table: the table.
        schema: see :func:`change_schema`.
        each: the rows.
        extra: further columns by name, with a value for each row, which follow those of the schema.
    """
    for operation, kinds in _OPERATIONS:
        rows = np.flatnonzero(np.isin(each.kinds, kinds))
        if not len(rows):
            continue
        indices = pa.array(rows)
        taken = each if len(rows) == len(each.kinds) else each.take(rows)
        batch = _changes(table, schema, operation, taken)
        for name, column in (extra or {}).items():
            batch = batch.append_column(name, column if taken is each else column.take(indices))
        yield batch


def _changes(table: AcidTable, schema: pa.Schema, operation: str, rows: Acting) -> pa.RecordBatch:
    count = len(rows.kinds)
    columns = []
    for name, data_type in zip(schema.names, schema.types, strict=True):
        if name == CHANGE_COLUMN:
            columns.append(pa.repeat(operation, count))
        elif name == ROW_ID_COLUMN:
            columns.append(pa.nulls(count, data_type) if rows.row_ids is None else rows.row_ids)
        elif operation == DELETE:
            columns.append(pa.nulls(count, data_type))
        else:
            new = rows.new[name]
            columns.append(new if new.type == data_type else in_nanoseconds(table, name, new))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
