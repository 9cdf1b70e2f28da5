"""Changes the columns of ACID tables: adds, renames and widens them, as ALTER TABLE … CASCADE of Hive does.

Only the description of the table and its partitions changes. Files stay as they are, and readers convert
them. So a change is refused if a reader would lose or change values of existing rows:

* A type is widened only to one that holds all values of the old type. Hive itself allows more, such as bigint
  to double, which rounds. On Hive 2.3 it must be of the same kind, such as another decimal: otherwise neither
  minor nor major compactions of the table succeed (measured on 2.3.10).
* A column is renamed only on Hive 4, and only if readers match the columns of a file by position, as they do
  by default. By name, the column would be NULL in all existing rows. On Hive 3.1 a table's property makes
  readers match by position, but not the compactor, which loses the values (measured on 3.1.3).

A running transaction on the table detects the change: its commit compares the columns. Unlike Hive's ALTER
TABLE, this leaves no ``last_modified_time`` in the table: bucket columns never change, so rows still lie in
the buckets of their hashes, and merges need not read all buckets.

Source: Hive's TypeInfoUtils.implicitConvertible and DDLTask; each change was compared with Hive 2.3.10, 3.1.3
and 4.1.0 reading the same files, before and after their compaction.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import pyarrow as pa

from metastore_client.client import MetastoreClient
from metastore_client.errors import InvalidRequestError
from metastore_client.model import ColumnInfo, ConstraintInfo, TableInfo
from metastore_client.valid_ids import ValidTxnList
from mutation_api.errors import ConfigurationError, TableNotMutableError
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.format.hive_type import (
    DECIMALS_OF_INTEGERS,
    INTEGER_BITS,
    HiveType,
    arrow_type,
    parse_hive_type,
)
from mutation_api.format.plain_array import repeated
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT
from mutation_api.transaction.catalog import Catalog, OpenTable, TableSpec, split_full_name
from mutation_api.transaction.clock import Clock, SystemClock
from mutation_api.transaction.descriptors import POSITIONAL_EVOLUTION
from mutation_api.transaction.exclusive_lock import under_exclusive_lock
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.preconditions import check_mutable
from mutation_api.upkeep.create_acid_table import columns_of, columns_to_store

SchemaMode = Literal["exact", "add"]
"""The treatment of columns that the data has and the table lacks: refuse them, or add them to the table."""

_BITS_OF_FLOATS = {"float": 24, "double": 53}
"""The size of the integers that a floating-point type holds exactly, without the sign."""
_FAILS_TO_COMPACT = 2
"""The release whose compactor does not convert values: it fails if a file has another kind of type."""
_BLOOM_FILTERS = "orc.bloom.filter.columns"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AlteredTable:
    """The changes in the columns of a table.

    Attributes:
        table: ``database.table``.
        added: the types of new columns by name, in table order.
        renamed: the new names by old name.
        widened: the old and the new type by the name that the column had before.
        partition_count: the number of partitions whose description was changed with the table's.
        is_dry_run: True if nothing was changed.
    """

    table: str
    added: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    widened: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    partition_count: int = 0
    is_dry_run: bool = False

    @property
    def is_changed(self) -> bool:
        """True if a column was changed, or would be changed without the dry run."""
        return bool(self.added or self.renamed or self.widened)

    def to_dict(self) -> dict[str, object]:
        """Return the report as values that JSON can hold."""
        return {
            "table": self.table,
            "added": dict(self.added),
            "renamed": dict(self.renamed),
            "widened": {name: {"from": old, "to": new} for name, (old, new) in self.widened.items()},
            "partition_count": self.partition_count,
            "dry_run": self.is_dry_run,
        }

    def __str__(self) -> str:
        """Return one line per column."""
        if not self.is_changed:
            return f"{self.table}: no column was changed"
        first = f"{self.table}: {'would be altered' if self.is_dry_run else 'altered'}"
        if self.partition_count:
            first += f", with its {self.partition_count} partitions"
        lines = [f"renamed {old} to {new}" for old, new in self.renamed.items()]
        lines += [f"widened {name} from {old} to {new}" for name, (old, new) in self.widened.items()]
        lines += [f"added {name} {kind}" for name, kind in self.added.items()]
        return "\n".join((first, *lines))


def check_mode(schema: SchemaMode, what: str) -> None:
    """Raise ConfigurationError if ``schema`` is not a SchemaMode. ``what`` begins the message."""
    if schema not in get_args(SchemaMode):
        raise ConfigurationError(f"{what}: schema={schema!r}: expected 'exact' or 'add'")


def alter_acid_table(
    metastore: MetastoreClient,
    table_name: str,
    *,
    add: object = None,
    rename: Mapping[str, str] | None = None,
    widen: Mapping[str, str] | None = None,
    missing_only: bool = False,
    dry_run: bool = False,
    user: str | None = None,
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
    clock: Clock | None = None,
) -> AlteredTable:
    """Add, rename and widen columns of a table and of all its partitions, under an exclusive lock.

    All changes are checked first and then made in one step of the server. No file changes: in existing rows,
    new columns are NULL.

    Args:
        metastore: the metastore of the table.
        table_name: ``database.table``.
        add: new data columns, which become the last ones: Hive's types by name, an Arrow schema, columns as
            in CREATE TABLE (``note string, pieces int``), or ColumnInfo.
        rename: the new names of data columns by their names.
        widen: the new types of data columns by their names, as they are before ``rename``.
        missing_only: True to leave out columns of ``add`` that the table already has, with any type, and
            ROW__ID.
        dry_run: True to check everything and to change nothing. No lock is taken.
        user: owner of the lock. If None, this process's user.
        lock_timeout_seconds: the longest wait for the end of other readers and writers.
        clock: measures the wait. If None, the system's.

    Returns:
        The changes.

    Raises:
        ConfigurationError: If a change is not possible; the message names the column and the reason.
        RecordLayoutError: If Hive has no type for a column of ``add``.
        TableNotFoundError: If the table does not exist.
        TableNotMutableError: If this library cannot write the table before or after the change.
        LockNotAcquiredError: If others used the table for too long.
        ConnectionFailedError, TransactionError: If the server failed. If the connection broke, the change may
            have been made; the same call with ``missing_only=True`` repeats an addition.
    """
    database, name = split_full_name(table_name)
    where = f"table {database}.{name}"
    wanted = _Wanted(
        () if add is None else add,
        _pairs(rename, f"{where}: rename"),
        _pairs(widen, f"{where}: widen"),
        missing_only=missing_only,
    )
    with metastore_errors_as_ours(f"{where} could not be altered"):
        planned = _planned(metastore, database, name, wanted)
        if dry_run or not planned.report.is_changed:
            return replace(planned.report, is_dry_run=dry_run)
        lock = (user, lock_timeout_seconds, clock or SystemClock())
        with under_exclusive_lock(metastore, database, name, *lock) as txn_id:
            planned = _planned(metastore, database, name, wanted)
            if planned.report.is_changed:
                _set_columns(metastore, txn_id, database, name, planned.columns)
                _log.info("%s", planned.report)
    return planned.report


def _set_columns(
    metastore: MetastoreClient, txn_id: int, database: str, name: str, columns: Sequence[ColumnInfo]
) -> None:
    write_id = valid = None
    if metastore.capabilities().has_exclusive_write_lock:
        # As Hive 4's own ALTER TABLE. Nothing is written under this id.
        write_id = metastore.allocate_write_id(txn_id, database, name)
        seen = ValidTxnList.from_open_txns(metastore.get_open_txns(), txn_id)
        valid = metastore.get_valid_write_ids([f"{database}.{name}"], seen)[f"{database}.{name}"]
    try:
        metastore.set_columns(database, name, columns, write_id=write_id, valid_write_ids=valid)
    except InvalidRequestError as error:
        raise ConfigurationError(f"table {database}.{name} could not be altered: {error}") from error


def added_columns(table: AcidTable, schema: object) -> tuple[ColumnInfo, ...]:
    """Return the columns of a source that a table lacks, with Hive's types, in the order of the source.

    ROW__ID is left out. Names are compared in any case.

    Args:
        table: the table.
        schema: the source's columns: an Arrow schema, or another form that ``alter_acid_table`` accepts.

    Raises:
        ConfigurationError: If the schema is neither a schema nor a string of columns.
        RecordLayoutError: If Hive has no type for a column that the table lacks.
    """
    known = {column.name for column in table.all_columns} | {ROW_ID_COLUMN.lower()}
    if hasattr(schema, "__arrow_c_schema__") and not isinstance(schema, pa.DataType | pa.Field):
        # A column that the table has may have a type without an equal in Hive.
        schema = pa.schema([each for each in pa.schema(schema) if each.name.lower() not in known])
    return tuple(each for each in columns_of(schema, table.full_name) if each.name.lower() not in known)


@dataclass(frozen=True)
class _Wanted:
    """The changes that the caller asks for; names are in lower case."""

    add: object
    rename: Mapping[str, str]
    widen: Mapping[str, str]
    missing_only: bool


@dataclass(frozen=True)
class _Planned:
    """The table's data columns after the change."""

    columns: tuple[ColumnInfo, ...]
    report: AlteredTable


def _pairs(given: object, what: str) -> dict[str, str]:
    pairs = {} if given is None else given
    if not isinstance(pairs, Mapping) or not all(
        isinstance(each, str) for pair in pairs.items() for each in pair
    ):
        example = '{"old": "new"}' if what.endswith("rename") else '{"pieces": "bigint"}'
        raise ConfigurationError(f"{what} must be a mapping such as {example}, got {given!r}")
    names = [name.strip().lower() for name in pairs]
    if repeated(names):
        raise ConfigurationError(f"{what}: column {repeated(names)[0]!r} occurs twice (case is ignored)")
    return dict(zip(names, (text.strip() for text in pairs.values()), strict=True))


def _planned(metastore: MetastoreClient, database: str, name: str, wanted: _Wanted) -> _Planned:
    """Check the changes against the table as it is now, and return its columns afterwards."""
    opened = Catalog(metastore).read(TableSpec(database, name, TableRole.SOURCE))
    info, where = opened.description, f"table {database}.{name}"
    properties, constraints = metastore.together(
        lambda: metastore.get_database_parameters(database), lambda: metastore.get_constraints(database, name)
    )
    check_mutable(info, metastore.capabilities(), TableRole.SINK, properties)
    if constraints and not metastore.capabilities().has_exclusive_write_lock:
        raise ConfigurationError(
            f"{where} has constraints, and Hive 3 cannot alter the columns of such a table, not even by its "
            f"own SQL. Drop them first: ALTER TABLE {info.full_name} DROP CONSTRAINT {constraints[0].name}"
        )
    for each in dict.fromkeys((*wanted.rename, *wanted.widen)):
        _check_changeable(info, constraints, each, where)
    rename = {old: _new_name(new, where) for old, new in wanted.rename.items()}
    for old, new in rename.items():
        _check_rename(opened, old, new)
    widened = {
        each.name: (each.type, _wider_type(each, wanted.widen[each.name], opened.table))
        for each in info.columns
        if each.name in wanted.widen
    }
    existing = {each.name for each in (*info.columns, *info.partition_keys)}
    add = (
        added_columns(opened.table, wanted.add)
        if wanted.missing_only
        else columns_of(wanted.add, info.full_name)
    )
    add = columns_to_store(add, f"{where}: add")
    _check_new_names([*rename.values(), *(each.name for each in add)], existing, where)
    if not (add or rename or widened or wanted.missing_only):
        raise ConfigurationError(f"{where}: nothing to alter: pass add, rename or widen")
    kept = [
        replace(each, name=rename.get(each.name, each.name), type=widened.get(each.name, ("", each.type))[1])
        for each in info.columns
    ]
    added = [replace(each, name=each.name.lower()) for each in add]
    columns = (*kept, *added)
    check_mutable(replace(info, columns=columns), metastore.capabilities(), TableRole.SINK, properties)
    partitions = metastore.get_partition_names(database, name) if info.partition_keys else ()
    report = AlteredTable(
        info.full_name, {each.name: each.type for each in added}, rename, widened, len(partitions)
    )
    return _Planned(columns, report)


def _check_changeable(info: TableInfo, constraints: Sequence[ConstraintInfo], name: str, where: str) -> None:
    """Raise ConfigurationError if a column can be neither renamed nor widened."""
    if name in (key.name for key in info.partition_keys):
        raise ConfigurationError(
            f"{where}: column {name!r} is a partition column, whose values are in the names of directories. "
            "Only data columns can be renamed or widened"
        )
    names = [column.name for column in info.columns]
    if name not in names:
        raise ConfigurationError(f"{where} has no column {name!r}: expected one of {', '.join(names)}")
    if name in (each.lower() for each in info.bucket_columns):
        raise ConfigurationError(
            f"{where}: column {name!r} is a bucket column, and ALTER TABLE does not move rows to other "
            "buckets. Create another table and copy the rows"
        )
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
    for each in constraints:
        if each.column == name or word.search(each.expression):
            raise ConfigurationError(
                f"{where}: column {name!r} has the constraint {each.name} ({each.kind.value}), which the "
                f"change would not adapt. Drop it first: ALTER TABLE {info.full_name} DROP CONSTRAINT "
                f"{each.name}"
            )


def _new_name(name: str, where: str) -> str:
    (column,) = columns_to_store([ColumnInfo(name, "int")], f"{where}: rename")
    return column.name.lower()


def _check_rename(opened: OpenTable, old: str, new: str) -> None:
    table, where = opened.table, f"table {opened.table.full_name}"
    filters = opened.description.parameters.get(_BLOOM_FILTERS, "")
    if old in (name.strip().lower() for name in filters.split(",")):
        raise ConfigurationError(
            f"{where}: column {old!r} cannot be renamed, since the property {_BLOOM_FILTERS}={filters!r} "
            "names it, and a writer looks it up there. Remove it from the property first"
        )
    refused = f"{where}: column {old!r} cannot be renamed to {new!r}"
    if not table.version.is_hive_4:
        raise ConfigurationError(
            f"{refused}: Hive {table.version.hive_release} finds the columns of files by name, so the column "
            f"would be NULL in all existing rows (with {POSITIONAL_EVOLUTION}=true after a compaction). Add "
            "a column and copy the values, or create another table"
        )
    if not table.matches_columns_by_position:
        raise ConfigurationError(
            f"{refused}: with {POSITIONAL_EVOLUTION}=false, readers find the columns of files by name, so "
            "the column would be NULL in all existing rows"
        )


def _check_new_names(names: Sequence[str], existing: set[str], where: str) -> None:
    names = [name.lower() for name in names]
    taken = [name for name in names if name in existing]
    if taken:
        raise ConfigurationError(
            f"{where} already has a column {taken[0]!r}: a new name must not be that of a column, even if "
            "that column is renamed at the same time"
        )
    if repeated(names):
        raise ConfigurationError(f"{where}: new column {repeated(names)[0]!r} occurs twice")


def _wider_type(column: ColumnInfo, text: str, table: AcidTable) -> str:
    """Return the new type of a column as Hive stores it."""
    where, release = f"table {table.full_name}", table.version.hive_release
    try:
        new = parse_hive_type(text)
    except TableNotMutableError as error:
        raise ConfigurationError(f"{where}: widen: column {column.name!r}: {error}") from error
    old = parse_hive_type(column.type)
    if not is_wider(old, new):
        raise ConfigurationError(
            f"{where}: column {column.name!r} cannot be widened: got {new.text}, which is not a wider type "
            f"than {old.text}, expected {_wider_types(old)}. ALTER TABLE … CHANGE of Hive also allows some "
            "types that change existing values"
        )
    if release == _FAILS_TO_COMPACT and old.kind != new.kind:
        raise ConfigurationError(
            f"{where}: column {column.name!r} cannot be widened from {old.text} to {new.text}: the compactor "
            f"of Hive {release} fails on files with a type of another kind than the table's. Create another "
            "table and copy the rows"
        )
    return new.text


def is_wider(old: HiveType, new: HiveType) -> bool:
    """Return True if a type differs from ``old``, holds all of its values, and all readers convert to it.

    Nested types are never wider: Hive releases differ in the conversions within them.
    """
    if old == new:
        return False
    if old.kind in INTEGER_BITS:
        bits = INTEGER_BITS[old.kind]
        exact_bits = INTEGER_BITS.get(new.kind) or _BITS_OF_FLOATS.get(new.kind, -1) + 1
        is_decimal = new.kind == "decimal" and new.precision - new.scale >= _digits(old)
        return bits <= exact_bits or is_decimal or new.kind == "string"
    if old.kind == "decimal" and new.kind == "decimal":
        return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
    if old.kind in ("char", "varchar"):
        is_longer = new.length >= old.length and new.kind in (old.kind, "varchar")
        return new.kind == "string" or is_longer
    return (old.kind, new.kind) in (("float", "double"), ("decimal", "string"))


def _digits(integer: HiveType) -> int:
    return int(DECIMALS_OF_INTEGERS[arrow_type(integer)].precision)


def _wider_types(old: HiveType) -> str:
    """Return a description of the types that are wider."""
    if old.kind in INTEGER_BITS:
        bits = INTEGER_BITS[old.kind]
        names = [name for name, other in INTEGER_BITS.items() if other > bits]
        names += [name for name, other in _BITS_OF_FLOATS.items() if bits <= other + 1]
        decimal = f"a decimal with at least {_digits(old)} digits before the point"
        return f"{', '.join([*names, decimal])} or string"
    return {
        "float": "double",
        "decimal": "a decimal with no fewer digits before and after the point, or string",
        "varchar": "a longer varchar or string",
        "char": "a longer char, a varchar of at least its length, or string",
    }.get(old.kind, "no other type: columns of this type cannot be widened")
