"""Checks of records: constraints of the table, rules of changes, buckets, and partition names.

Constraints are checked as Hive's INSERT, UPDATE and MERGE do. NOT NULL requires a value. A CHECK must not be
false, so NULL passes. A row is checked even if only other columns are updated.

:mod:`.change_rules` defines the rules about operation, ROW__ID, bucket and partition. :mod:`.group_writer`
checks the order of records, :mod:`.record_inspector` their values.

A partition's name is computed from the values that callers pass.

Source: Hive 3.1.3 and 4.1.0, tried with each statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import (
    ConfigurationError,
    ConstraintViolationError,
    RecordLayoutError,
    RecordValueError,
)
from mutation_api.format.event import MAX_BUCKETS, Operation, RowIdArrays, RowIds
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.scalar_conversion import shown_value
from mutation_api.table.acid_table import AcidTable, CheckConstraint
from mutation_api.table.bucket_resolver import BucketIdResolver
from mutation_api.table.evaluation import columns_read, evaluate
from mutation_api.table.hive_sql import HiveCondition, hive_condition
from mutation_api.table.partition import existing_name, partition_name, partition_texts
from mutation_api.table.partition_value import partition_value
from mutation_api.write.change_rules import (
    Changes,
    check_attached_buckets,
    check_bucket_of_group,
    check_buckets_kept,
    check_operations,
    check_partitions_kept,
    check_row_ids,
)
from mutation_api.write.record_inspector import Records

_SHOWN_COLUMNS = 10
"""The number of columns of a row that a message shows."""
_SHOWN_LENGTH = 200
"""The number of characters of a value that a message shows."""


class ConstraintChecks:
    """Checks rows that have the types of ``table``."""

    def __init__(self, table: AcidTable) -> None:
        self._table = table
        self._not_null = tuple(column.name for column in table.columns if column.not_null)
        self._found: dict[frozenset[str], list[tuple[CheckConstraint, HiveCondition, tuple[str, ...]]]] = {}

    def __bool__(self) -> bool:
        """Return True if the table has constraints."""
        return bool(self._not_null or self._table.checks)

    def check(self, is_new: NDArray[np.bool_], rows: pa.StructArray, where: str) -> None:
        """Check the new rows among n rows.

        Args:
            is_new: shape (n,), False for deletes, whose values are ignored.
            rows: n structs with the data columns.
            where: the name of the group in messages.

        Raises:
            ConstraintViolationError: If a row violates a constraint.
            RecordValueError: If a condition has no value for a row, for example after an overflow.
        """
        new, positions = pa.array(is_new), np.flatnonzero(is_new)
        fine = frozenset(field.name for field in rows.type if "timestamp[ns]" in str(field.type))
        for name in self._not_null:
            # Filter only the mask, because Arrow cannot filter unions.
            breaks = pc.is_null(rows.field(name)).filter(new)
            self._refuse(breaks, f"NOT NULL of column {name}", (name,), rows, positions, where)
        for check, condition, columns in self._conditions(fine):
            what = f"CHECK {check.name} ({check.condition})"
            values = pa.table({name: rows.field(name).filter(new) for name in columns})
            try:
                holds = evaluate(condition.holds, values)
                unclear = None if condition.unclear is None else evaluate(condition.unclear, values)
            except pa.ArrowInvalid as error:
                raise RecordValueError(f"{where}: {what} cannot be evaluated: {error}") from error
            if unclear is not None and (count := pc.sum(unclear).as_py()):
                shown = self._shown(unclear, columns, rows, positions)
                raise RecordValueError(
                    f"{where}: {what} has no certain value for {count} rows; the first is {shown}. Hive's "
                    "answers for NaN, line breaks in LIKE and parts of dates before 1582-10-15 depend on "
                    "its release and settings. Write another value, or drop the constraint in Hive"
                )
            self._refuse(pc.invert(holds), what, columns, rows, positions, where)

    def _conditions(
        self, fine: frozenset[str]
    ) -> list[tuple[CheckConstraint, HiveCondition, tuple[str, ...]]]:
        """Return each CHECK with its condition and the columns that it names, of which there is at least one.

        ``fine``: the columns whose timestamps are in nanoseconds.
        """
        if fine not in self._found:
            self._found[fine] = [self._condition(check, fine) for check in self._table.checks]
        return self._found[fine]

    def _condition(
        self, check: CheckConstraint, fine: frozenset[str]
    ) -> tuple[CheckConstraint, HiveCondition, tuple[str, ...]]:
        types = {column.name: parse_hive_type(column.type) for column in self._table.columns}
        condition = hive_condition(check.condition, types, f"CHECK {check.name}", fine)
        schema = pa.schema([(name, pa.null()) for name in types])
        named = columns_read(condition.holds, schema, f"CHECK {check.name}") or {next(iter(types))}
        return check, condition, tuple(name for name in types if name in named)

    def _refuse(
        self,
        breaks: pa.BooleanArray,
        what: str,
        columns: tuple[str, ...],
        rows: pa.StructArray,
        positions: NDArray[np.intp],
        where: str,
    ) -> None:
        """Raise an error if ``breaks`` is true for one of the new rows, whose positions are given."""
        count = pc.sum(breaks).as_py()
        if not count:
            return
        shown = self._shown(breaks, columns, rows, positions)
        raise ConstraintViolationError(
            f"{where}: {count} rows violate {what}; the first is {shown}. Correct them, or drop the "
            "constraint in Hive"
        )

    def _shown(
        self,
        chosen: pa.BooleanArray,
        columns: tuple[str, ...],
        rows: pa.StructArray,
        positions: NDArray[np.intp],
    ) -> str:
        """Return the first chosen row among the new ones, with its ``columns`` first."""
        at = int(positions[pc.index(chosen, True).as_py()])
        others = [name for name in self._table.column_names if name not in columns]
        shown = (*columns, *others)[: max(len(columns), _SHOWN_COLUMNS)]
        return ", ".join(f"{name}={_cut(shown_value(rows.field(name), at))}" for name in shown)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"


class RecordChecks:
    """Checks n records of one partition, whose escaped name is ``partition_name``.

    A coordinator does not have a snapshot, so ROW__IDs of open and aborted transactions are accepted.

    Args:
        table: the table of the records.
        insert_bucket_id: the bucket of inserts if the table is not bucketed.

    Raises:
        ConfigurationError: If ``insert_bucket_id`` is not in 0 to 4095.
        TableNotMutableError: See :class:`BucketIdResolver`.
    """

    def __init__(self, table: AcidTable, insert_bucket_id: int = 0) -> None:
        if not 0 <= insert_bucket_id < MAX_BUCKETS:
            raise ConfigurationError(f"insert_bucket_id {insert_bucket_id} is not in 0 to {MAX_BUCKETS - 1}")
        self._table = table
        self._insert_bucket_id = insert_bucket_id
        self._resolver = BucketIdResolver(table) if table.is_bucketed else None

    def of_records(self, partition_name: str, operations: NDArray[np.integer], records: Records) -> Changes:
        """Return the records as changes. ROW__IDs of updates and deletes are checked.

        Raises:
            RecordValueError, BucketIdError, RowIdNotFoundError, TableNotMutableError: See
                :mod:`.change_rules`.
        """
        changes = Changes(
            self._table,
            operations,
            records.row_ids,
            partition_name,
            columns={} if records.columns is None else self._bucket_columns(records.columns),
        )
        check_operations(changes)
        check_row_ids(changes)
        if records.row_ids.partitions is not None:
            check_partitions_kept(changes, pa.repeat(partition_name, len(changes)), changes.existing)
        return changes

    def check_events(
        self,
        partition_name: str,
        bucket_id: int,
        operations: NDArray[np.integer],
        row_ids: RowIdArrays,
        rows: pa.StructArray | None,
    ) -> None:
        """Check records that all belong to one bucket.

        Raises:
            RecordLayoutError: If the arrays differ in length, or new rows lack their columns.

        Errors of :meth:`of_records` are also raised.
        """
        changes = Changes(self._table, operations, RowIds.complete(row_ids), partition_name)
        _check_lengths(changes, row_ids, rows)
        check_operations(changes)
        if rows is None and (operations != Operation.DELETE).any():
            raise RecordLayoutError(
                f"{changes.where}: inserts and updates need the data columns {self._table.column_names}"
            )
        check_row_ids(changes)
        check_bucket_of_group(changes, bucket_id)

    def buckets(self, changes: Changes, rows: pa.StructArray | None) -> NDArray[np.integer]:
        """Return the plain bucket id of each record, shape (n,).

        A delete has the bucket of its ROW__ID. An insert has the computed bucket, or the bucket of this
        writer if the table is not bucketed. An update has the bucket of its ROW__ID, which must be the
        computed one unless Hive itself misplaces rows.

        Args:
            changes: the result of :meth:`of_records`.
            rows: n rows with the table's types. None if all records are deletes.

        Raises:
            BucketIdError: If a ROW__ID has another bucket than the computed one.
        """
        if self._resolver is None:
            check_attached_buckets(changes, None)
            return np.where(changes.inserts, self._insert_bucket_id, changes.bucket_ids)
        if rows is None:
            return changes.bucket_ids
        computed = self._resolver.resolve(pa.RecordBatch.from_struct_array(rows)).to_numpy()
        check_attached_buckets(changes, computed)
        check_buckets_kept(changes, computed)
        return np.where(changes.inserts, computed, changes.bucket_ids)

    def _bucket_columns(self, columns: tuple[pa.Array, ...]) -> dict[str, pa.Array]:
        by_name = dict(zip(self._table.column_names, columns, strict=True))
        return {name: by_name[name] for name in map(str.lower, self._table.bucket_columns)}


def _check_lengths(changes: Changes, row_ids: RowIdArrays, rows: pa.StructArray | None) -> None:
    count = len(changes)
    lengths = [
        len(row_ids.original_txns),
        len(row_ids.buckets),
        len(row_ids.row_ids),
        count if rows is None else len(rows),
    ]
    if lengths != [count] * len(lengths):
        raise RecordLayoutError(
            f"{changes.where}: got {count} operations with {lengths[0]} original_txns, {lengths[1]} "
            f"buckets, {lengths[2]} row_ids and {lengths[3]} rows; expected the same number of each"
        )


PartitionValues: TypeAlias = Sequence[Any]
"""One value per partition column, typed or as Hive's string. None means NULL."""


class PartitionNames:
    """Computes and caches the names of one table's partitions. Most single records share a partition."""

    def __init__(self, table: AcidTable) -> None:
        self._table = table
        self._by_texts: dict[tuple[str, ...], str] = {}
        self._by_values: dict[tuple[Any, ...], str] = {}

    def of(self, values: PartitionValues | None) -> str:
        """Return the escaped name of a partition, in the spelling of an existing one.

        It is '' if the table is not partitioned.

        Raises:
            RecordLayoutError: If the number of values is wrong, or a type does not fit.
            RecordValueError: If a value does not fit its column.
        """
        values = tuple(values or ())
        try:
            return self._by_texts[values]
        except (KeyError, TypeError):  # TypeError: an unhashable value, which cannot be a string
            pass
        if all(type(value) is str for value in values):
            return self._by_texts.setdefault(values, self._new(values))
        # Use the repr of values, because 0.0 and -0.0 are equal, but are two partitions.
        key = tuple([(type(value), repr(value)) for value in values])
        if key not in self._by_values:
            self._by_values[key] = self._new(values)
        return self._by_values[key]

    def _new(self, values: tuple[Any, ...]) -> str:
        keys = self._table.partition_keys
        if len(values) != len(keys):
            raise RecordLayoutError(
                f"table {self._table.full_name}: got {len(values)} partition value(s) {list(values)}, but "
                f"the table has {len(keys)} partition column(s) {list(self._table.partition_key_names)}"
            )
        if not keys:
            return ""
        texts = [
            _text(value, f"{self._table.full_name}.{key.name}", key.type, self._table.null_partition_text)
            for value, key in zip(values, keys, strict=True)
        ]
        try:
            name = partition_name(self._table.partition_key_names, texts)
        except RecordValueError as error:
            raise RecordValueError(f"table {self._table.full_name}: {error}") from error
        return existing_name(self._table, name)


def _text(value: Any, column: str, type_text: str, null_text: str) -> str:
    """Return Hive's string of one partition value.

    A string is first parsed as the column's type, so '01' of an int becomes '1'.
    """
    hive_type = parse_hive_type(type_text)
    try:
        if isinstance(value, str):
            value = partition_value(value, hive_type, null_text)
        typed = pa.array([value])
    except (RecordValueError, pa.ArrowException, TypeError, OverflowError) as error:
        raise RecordValueError(f"partition column {column!r}, value {value!r}: {error}") from error
    return str(partition_texts(typed, hive_type, column=column, null_text=null_text)[0])
