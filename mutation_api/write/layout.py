"""ChangeLayout: the roles of a change set's columns, found by their names and types.

For columns that a change set lacks, Hive stores the defaults of DEFAULT constraints in new rows. A column
that is the index of a pandas DataFrame is refused with advice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.event import MAX_BUCKETS, OPERATION, PARTITION_FIELD, ROW_ID_COLUMN
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.plain_array import refusal
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.default_value import default_value


@dataclass(frozen=True)
class DefaultColumns:
    """The columns that are not given but have a default, in table order; created by :meth:`of`.

    ``values`` maps a column name to a scalar of the column's type; times are those of the call, in local
    time. ``unknown`` maps a column name to the reason why only Hive can evaluate its default. If there are
    any, no rows can be inserted.
    """

    values: Mapping[str, pa.Scalar]
    unknown: Mapping[str, str]

    @classmethod
    def of(cls, table: AcidTable, given: Iterable[str]) -> DefaultColumns:
        """Find the missing data columns with a default; ``given`` are column names in lower case."""
        there = set(given)
        now = datetime.now()
        values, unknown = {}, {}
        for column in table.columns:
            if column.default and column.name not in there:
                what = f"DEFAULT {column.default} of column {column.name}"
                try:
                    values[column.name] = default_value(
                        column.default, parse_hive_type(column.type), what, now, table.user
                    )
                except ConfigurationError as error:
                    unknown[column.name] = str(error)
        return cls(values, unknown)


def default_columns(table: AcidTable, given: Iterable[str]) -> Mapping[str, pa.Scalar]:
    """Return the default values for new rows; see :class:`DefaultColumns`.

    Raises:
        RecordLayoutError: If only Hive can evaluate a default.
    """
    found = DefaultColumns.of(table, given)
    for reason in found.unknown.values():
        raise RecordLayoutError(f"table {table.full_name}: {reason}")
    return found.values


_INDEX = re.compile(r"__index_level_\d+__", re.A | re.I)
"""Matches names that pandas and pyarrow assign to an unnamed index. An index that only numbers the rows does
not become a column."""


def index_advice(names: Iterable[str]) -> str:
    """Return the end of the message about unknown columns; empty if none of them is a pandas index."""
    found = [name for name in names if _INDEX.fullmatch(name)]
    if not found:
        return ""
    return (
        f". {', '.join(found)} is the index of a pandas DataFrame, for example left by a filter; "
        "reset_index(drop=True) removes it"
    )


OPERATION_COLUMN_DEFAULT = OPERATION

INSERT_FILES_PER_PARTITION = 4
"""Default number of files for the inserts into one partition of an unbucketed table."""

ROW_ID_FIELDS = {"transactionid": "txn", "writeid": "txn", "bucketid": "bucket", "rowid": "row_id"}


@dataclass(frozen=True)
class GivenColumn:
    """A column of a change set.

    Attributes:
        name: the name as the user wrote it.
        arrow: its Arrow type. If None, it has none.
        shown: its type as the engine names it, for messages.
        reason: the reason why it has no Arrow type, or why the type is refused.
    """

    name: str
    arrow: pa.DataType | None
    shown: str
    reason: str = ""

    @classmethod
    def of_field(cls, field: pa.Field) -> GivenColumn:
        """Return the column of a field of an Arrow schema."""
        refused = refusal(field.type)
        return cls(field.name, field.type, *(refused or (str(field.type),)))


@dataclass(frozen=True)
class ChangeLayout:
    """The roles of a change set's columns, by their names in the change set.

    ``columns`` maps the table's column names (data and partition columns) to those of the change set.
    ``row_id_fields`` maps txn, bucket, row_id and, if present, partition to the field names of its ROW__ID.
    ``operation`` is None if all rows have the same operation.
    """

    operation: str | None
    row_id: str | None
    row_id_fields: dict[str, str]
    columns: dict[str, str]

    def missing(self, table: AcidTable) -> tuple[str, ...]:
        """Return the table's data columns that the change set lacks and that have no default."""
        return tuple(c.name for c in table.columns if c.name not in self.columns and not c.default)

    def defaulted(self, table: AcidTable) -> tuple[str, ...]:
        """Return the table's data columns that the change set lacks and that have a default for new rows."""
        return tuple(c.name for c in table.columns if c.name not in self.columns and c.default)


def match_columns(
    table: AcidTable, given: Sequence[GivenColumn], operation_column: str | None = OPERATION_COLUMN_DEFAULT
) -> ChangeLayout:
    """Find the table's columns among the change set's, in any order and case, and check their types.

    If ``operation_column`` is None, no column holds the operation.

    Data columns may be missing. If a missing column has a default, updates are not allowed; if it has none,
    only deletes are. The classifier checks this. All partition columns may be missing together if ROW__ID has
    the field ``partition``.

    Raises:
        RecordLayoutError: If columns do not match; the message lists each of them.
    """
    actual = _by_lower_name(table, given)
    expected = (*table.column_names, *table.partition_key_names)
    special = {ROW_ID_COLUMN.lower()}
    if operation_column is not None:
        _check_operation(table, actual, operation_column)
        special.add(operation_column.lower())
    extra = [actual[c].name for c in actual if c not in special and c not in expected]
    if extra:
        raise RecordLayoutError(
            f"table {table.full_name}: the change set has columns that the table does not have: "
            f"{', '.join(extra)}; the table's columns are {', '.join(expected)}{index_advice(extra)}"
        )
    row_id = actual.get(ROW_ID_COLUMN.lower())
    layout = ChangeLayout(
        operation=None if operation_column is None else actual[operation_column.lower()].name,
        row_id=None if row_id is None else row_id.name,
        row_id_fields={} if row_id is None else _row_id_fields(table, row_id),
        columns={c: actual[c].name for c in expected if c in actual},
    )
    _check_missing(table, layout)
    _check_types(table, actual, layout)
    return layout


def _check_operation(table: AcidTable, actual: Mapping[str, GivenColumn], operation_column: str) -> None:
    if operation_column.lower() in (*table.column_names, *table.partition_key_names):
        raise RecordLayoutError(
            f"table {table.full_name} itself has a column {operation_column!r}; "
            "rename the operation column of the change set, and pass it as operation_column"
        )
    operation = actual.get(operation_column.lower())
    if operation is None:
        raise RecordLayoutError(
            f"table {table.full_name}: the change set has no column {operation_column!r} with the operations "
            f"insert, update and delete; its columns are {', '.join(each.name for each in actual.values())}"
        )
    if operation.arrow is None or not is_text(operation.arrow):
        raise RecordLayoutError(
            f"table {table.full_name}: column {operation.name!r} must be a string, found {operation.shown}"
        )


def _by_lower_name(table: AcidTable, given: Sequence[GivenColumn]) -> dict[str, GivenColumn]:
    actual: dict[str, GivenColumn] = {}
    doubled = []
    for each in given:
        if each.name.lower() in actual:
            doubled.append(each.name)
        actual[each.name.lower()] = each
    if doubled:
        raise RecordLayoutError(
            f"table {table.full_name}: the change set has duplicate columns (names are case-insensitive): "
            f"{', '.join(doubled)}"
        )
    return actual


def _row_id_fields(table: AcidTable, row_id: GivenColumn) -> dict[str, str]:
    """Map the parts of a ROW__ID to field names. Raises RecordLayoutError for unexpected fields."""
    found: dict[str, str] = {}
    is_struct = row_id.arrow is not None and pa.types.is_struct(row_id.arrow)
    fields: list[pa.Field] = list(row_id.arrow) if row_id.arrow is not None and is_struct else []
    complaint = "" if is_struct else "is not a struct"
    for field in fields:
        name = field.name.lower()
        part = PARTITION_FIELD if name == PARTITION_FIELD else ROW_ID_FIELDS.get(name)
        is_wanted = is_text if name == PARTITION_FIELD else pa.types.is_integer
        if part is None or part in found or not is_wanted(field.type):
            complaint = f"has an unexpected field {field.name!r} of type {field.type}"
        else:
            found[part] = field.name
    if complaint or not {"txn", "bucket", "row_id"} <= found.keys():
        raise RecordLayoutError(
            f"table {table.full_name}: {ROW_ID_COLUMN} {complaint or 'lacks fields'}: found "
            f"{row_id.shown}, expected struct<{table.version.transaction_field}:bigint,bucketid:int,"
            "rowid:bigint>, optionally with partition:string"
        )
    return found


def _check_missing(table: AcidTable, layout: ChangeLayout) -> None:
    missing_keys = [k for k in table.partition_key_names if k not in layout.columns]
    is_partition_known = PARTITION_FIELD in layout.row_id_fields
    if missing_keys and not (is_partition_known and len(missing_keys) == len(table.partition_keys)):
        raise RecordLayoutError(
            f"table {table.full_name}: the change set lacks the partition columns "
            f"{', '.join(missing_keys)}; either all of them or none may be missing, and only if "
            f"{ROW_ID_COLUMN} has the field {PARTITION_FIELD!r}"
        )
    missing = layout.missing(table)
    if missing and layout.row_id is None:
        raise RecordLayoutError(
            f"table {table.full_name}: the change set lacks the columns {', '.join(missing)}"
        )


def _check_types(table: AcidTable, actual: dict[str, GivenColumn], layout: ChangeLayout) -> None:
    """Check types by converting columns without rows: a type that fails here can never be converted."""
    complaints = []
    for column in table.all_columns:
        if column.name not in layout.columns:
            continue
        given = actual[column.name]
        reason = given.reason or _misfit(given.arrow, column)
        if reason:
            complaints.append(f"{column.name} {column.type} from {given.shown} ({reason})")
    if complaints:
        raise RecordLayoutError(
            f"table {table.full_name}: the change set has incompatible types: {'; '.join(complaints)}"
        )


def _misfit(found: pa.DataType | None, column: AcidColumn) -> str:
    """Return the reason why no value of the type fits the column; '' if some may fit."""
    try:
        convert_to_column(pa.nulls(0, found), parse_hive_type(column.type), column=column.name)
    except (RecordLayoutError, TypeError, ValueError) as error:
        return str(error)
    return ""


def is_text(found: pa.DataType) -> bool:
    """Return True if an Arrow type is a string type."""
    if pa.types.is_dictionary(found):
        return is_text(found.value_type)
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(found) for is_kind in kinds)


def writer_count(table: AcidTable, tasks: int, insert_files: int | None) -> int:
    """Return the number of bucket ids for inserts into an unbucketed table; 0 for a bucketed table."""
    if insert_files is not None and (table.is_bucketed or not 1 <= insert_files <= MAX_BUCKETS):
        raise ConfigurationError(
            f"table {table.full_name}: insert_files={insert_files}, but "
            + (
                f"the number of files is determined by its {table.num_buckets} buckets"
                if table.is_bucketed
                else f"it must be between 1 and {MAX_BUCKETS}"
            )
        )
    if table.is_bucketed:
        return 0
    if table.version.wants_one_writer_if_unbucketed:
        return insert_files or 1
    default = min(tasks, INSERT_FILES_PER_PARTITION) if table.partition_keys else tasks
    return insert_files or min(default, MAX_BUCKETS)
