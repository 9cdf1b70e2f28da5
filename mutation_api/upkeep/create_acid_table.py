"""Creates ACID tables with the properties that the server's Hive release needs, and drops them.

It also returns the columns of a new table for an Arrow schema or for columns written as in SQL.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from metastore_client.client import MetastoreClient
from metastore_client.errors import AlreadyExistsError, InvalidRequestError, MetastoreError, NoSuchObjectError
from metastore_client.model import (
    ColumnInfo,
    TableInfo,
)
from metastore_client.valid_ids import with_accurate_columns, with_row_count
from mutation_api.errors import ConfigurationError, RecordLayoutError, TableNotMutableError
from mutation_api.format.conversion import hive_type_of
from mutation_api.format.hive_type import UnfitTypeError, parse_hive_type
from mutation_api.table.acid_table import TableRole
from mutation_api.table.row_type import checked_names, parse_columns
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT
from mutation_api.transaction.catalog import split_full_name, table_not_found
from mutation_api.transaction.clock import Clock, SystemClock
from mutation_api.transaction.exclusive_lock import under_exclusive_lock
from mutation_api.transaction.listener import client_error, metastore_errors_as_ours
from mutation_api.transaction.preconditions import check_mutable

UPDATE_PROPERTIES = "hive.mutation.update."
"""The beginning of the table properties that incremental update sets."""

VIRTUAL_COLUMNS = frozenset(
    {
        "row__id",
        "row__is__deleted",
        "input__file__name",
        "block__offset__inside__file",
        "row__offset__inside__block",
    }
)
"""Names of Hive's own virtual columns; a table column with such a name is ambiguous to Hive."""
_UNREADABLE = re.compile(r"[.:,`\x00-\x1f\x7f]")
"""Hive splits names at ``.``, ``:`` and ``,``, and loses columns at a line break; 2.3 does not find a name
with a backtick. Source: observed on 2.3.10, 3.1.3 and 4.1.0."""

_log = logging.getLogger(__name__)

NOT_BUCKETED = -1
"""Number of buckets of an unbucketed table. With 0, Hive 3.1 could not update the table (observed)."""


def create_acid_table(
    metastore: MetastoreClient,
    table: str,
    columns: Sequence[ColumnInfo],
    partitioned_by: Sequence[ColumnInfo] = (),
    *,
    clustered_by: Sequence[str] = (),
    num_buckets: int | None = None,
    insert_only: bool = False,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> TableInfo:
    """Create a managed ORC table with ACID operations, for the server's own SQL and for this library.

    On a server with write ids the table gets ``bucketing_version=2``. The server does not add the property
    itself (observed on 3.1.3 and 4.1.0), and without it would use the old hash function.

    Args:
        metastore: the metastore in which the table is created.
        table: ``database.table``.
        columns: the data columns in table order.
        partitioned_by: the partition columns.
        clustered_by: names of the bucket columns; a Hive 2 server needs at least one.
        num_buckets: the number in INTO … BUCKETS; required with ``clustered_by`` and not allowed without it.
        insert_only: True if rows can be inserted but never updated or deleted; Hive 3 and later.
        location: the table's location. If None, the server's default.
        properties: further table properties, such as ``orc.compress``.

    Returns:
        The table as the server describes it.

    Raises:
        ConfigurationError: If the table exists, its database does not, only one of clustered_by and
            num_buckets is given, Hive cannot read a column of such a name, or the server refuses the table.
        TableNotMutableError: If this server's Hive does not support such an ACID table; the message names the
            violated rule.
        ConnectionFailedError, TransactionError: If the server could not be queried.
    """
    database, name = split_full_name(table)
    clustered_by = checked_names(clustered_by, f"table {database}.{name}: clustered_by")
    _check_kinds(f"table {database}.{name}", num_buckets, location, properties)
    if bool(clustered_by) != (num_buckets is not None):
        raise ConfigurationError(
            f"table {database}.{name}: clustered_by and num_buckets go together, but they are "
            f"{clustered_by} and {num_buckets}"
        )
    try:
        wanted = TableInfo(
            database,
            name,
            columns_to_store(columns, "columns"),
            columns_to_store(partitioned_by, "partitioned_by"),
            location=location or "",
            num_buckets=NOT_BUCKETED if num_buckets is None else num_buckets,
            bucket_columns=tuple(clustered_by),
            parameters={
                **_parameters(metastore, insert_only, properties or {}),
                **({} if partitioned_by else _statistics_of_no_rows(metastore, columns)),
            },
        )
        of_database = metastore.get_database_parameters(database)
        check_mutable(wanted, metastore.capabilities(), TableRole.SINK, of_database)
        metastore.create_table(wanted)
        created = metastore.get_table(database, name)
        check_mutable(created, metastore.capabilities(), TableRole.SINK)
    except (AlreadyExistsError, InvalidRequestError, NoSuchObjectError) as error:
        raise ConfigurationError(f"table {database}.{name} could not be created: {error}") from error
    except MetastoreError as error:
        raise client_error(error, f"table {database}.{name} could not be created") from error
    return created


def _check_kinds(table: str, num_buckets: object, location: object, properties: object) -> None:
    """Raise ConfigurationError if an argument has a type that the server would not understand."""
    is_count = isinstance(num_buckets, int) and not isinstance(num_buckets, bool) and num_buckets > 0
    if num_buckets is not None and not is_count:
        raise ConfigurationError(
            f"{table}: num_buckets must be an integer of at least 1, got {num_buckets!r}"
        )
    if location is not None and not isinstance(location, str):
        raise ConfigurationError(f"{table}: location must be a string, got {location!r}")
    pairs = properties.items() if isinstance(properties, Mapping) else [] if properties is None else [(0, 0)]
    if not all(isinstance(each, str) for pair in pairs for each in pair):
        raise ConfigurationError(
            f'{table}: properties must be strings by name, such as {{"orc.compress": "SNAPPY"}}, got '
            f"{properties!r}"
        )


def columns_to_store(columns: object, what: str) -> tuple[ColumnInfo, ...]:
    """Return the columns with the names that Hive stores for their types.

    For example, the name is ``double`` for ``double precision``.

    A type that Hive does not have stays unchanged; the check of the table reports it.

    Raises:
        ConfigurationError: If an element is not a column, or if Hive cannot read a column of this name.
            ``what`` begins the message.
    """
    stored = []
    for column in columns if isinstance(columns, Iterable) else [columns]:
        if not isinstance(column, ColumnInfo):
            raise ConfigurationError(f'{what}: {column!r} is not a column: pass ColumnInfo("id", "int")')
        if not column.name or _UNREADABLE.search(column.name) or column.name.lower() in VIRTUAL_COLUMNS:
            raise ConfigurationError(
                f"{what}: Hive cannot read a table with a column called {column.name!r}: names must have at "
                "least one character, none of . : , ` and no control character, and must not be one of "
                f"Hive's own columns ({', '.join(sorted(VIRTUAL_COLUMNS))})"
            )
        stored.append(replace(column, type=_stored_type(column.type)))
    return tuple(stored)


def _stored_type(text: str) -> str:
    try:
        return parse_hive_type(text).text
    except TableNotMutableError:
        return text


def _parameters(
    metastore: MetastoreClient, insert_only: bool, properties: Mapping[str, str]
) -> dict[str, str]:
    """Return the table's properties. The library's properties override the caller's, to get an ACID table."""
    ours = {
        "transactional": "true",
        "transactional_properties": "insert_only" if insert_only else "default",
    }
    if metastore.capabilities().has_write_ids:
        ours["bucketing_version"] = "2"
    names = {name.lower() for name in ours}
    return {**{k: v for k, v in properties.items() if k.lower() not in names}, **ours}


def _statistics_of_no_rows(metastore: MetastoreClient, columns: Iterable[ColumnInfo]) -> dict[str, str]:
    """Return the parameters by which statistics of a new table are accurate, as of one that SQL created."""
    if not metastore.capabilities().answers_from_statistics:
        return {}
    counts = dict.fromkeys(("numRows", "numFiles", "rawDataSize", "totalSize"), "0")
    names = [each.name.lower() for each in columns]
    return with_row_count(with_accurate_columns(counts, names), 0, names)


def columns_of(schema: object, table_name: str) -> tuple[ColumnInfo, ...]:
    """Return the columns of a new table, with Hive's types.

    Args:
        schema: an Arrow schema, Hive's types by name, columns as in CREATE TABLE (``id bigint, item string``)
            or the columns themselves. An Arrow field's metadata ``comment`` becomes the column's comment.
        table_name: the table, for messages.

    Raises:
        ConfigurationError: If it is neither, or a column of the string lacks a name or a Hive type.
        RecordLayoutError: If Hive has no type for a field. The message names the field.
    """
    if isinstance(schema, str):
        return tuple(ColumnInfo(column.name, column.type) for column in parse_columns(schema))
    if isinstance(schema, list | tuple) and all(isinstance(each, ColumnInfo) for each in schema):
        return tuple(schema)
    if isinstance(schema, Mapping) and all(isinstance(each, str) for pair in schema.items() for each in pair):
        return tuple(ColumnInfo(name.lower(), kind) for name, kind in schema.items())
    if not hasattr(schema, "__arrow_c_schema__") or isinstance(schema, pa.DataType | pa.Field):
        raise ConfigurationError(
            f"table {table_name}: the schema must be an Arrow schema (rows.schema), a schema of Spark "
            "(df.schema), Hive's types by name, or a string such as 'id bigint, item string', got "
            f"{type(schema).__name__}"
        )
    columns = []
    for field in pa.schema(schema):
        metadata = field.metadata or {}
        try:
            hive_type = hive_type_of(field.type, metadata)
        except UnfitTypeError as unfit:
            raise RecordLayoutError(
                f"table {table_name}: column {field.name!r}{unfit.path}: {unfit.reason}"
            ) from unfit
        comment = metadata.get(b"comment", b"").decode(errors="replace")
        columns.append(ColumnInfo(field.name.lower(), hive_type.text, comment))
    return tuple(columns)


def split_partition_columns(
    columns: Sequence[ColumnInfo], partitioned_by: Sequence[str], table_name: str
) -> tuple[tuple[ColumnInfo, ...], tuple[ColumnInfo, ...]]:
    """Return the data columns, and the columns of these names in any case, in the order of the names.

    Raises:
        RecordLayoutError: If no column has such a name, a name occurs twice, or no data column is left.
    """
    names = checked_names(partitioned_by, f"table {table_name}: partitioned_by")
    by_name = {column.name: column for column in columns}
    unknown = [name for name in names if name not in by_name]
    if columns and not unknown and len(set(names)) == len(columns):
        raise RecordLayoutError(
            f"table {table_name}: partitioned_by={names} contains all columns, but a table must have at "
            "least one data column"
        )
    if unknown or len(set(names)) < len(names):
        raise RecordLayoutError(
            f"table {table_name}: partitioned_by={names}: each must be a column of the schema and be given "
            f"once; the columns are {', '.join(by_name)}"
        )
    data = tuple(column for column in columns if column.name not in names)
    return data, tuple(by_name[name] for name in names)


def drop_acid_table(
    metastore: MetastoreClient,
    table_name: str,
    *,
    missing_ok: bool = False,
    user: str | None = None,
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
    clock: Clock | None = None,
) -> None:
    """Drop a table with its files, under the exclusive lock that Hive's DROP TABLE takes.

    Args:
        metastore: the metastore of the table.
        table_name: ``database.table``.
        missing_ok: True to do nothing if the table does not exist.
        user: owner of the lock. If None, this process's user.
        lock_timeout_seconds: the longest wait for the end of other readers and writers.
        clock: measures the wait. If None, the system's.

    Raises:
        TableNotFoundError: If the table does not exist.
        TableNotMutableError: If this library could not change the table: it is not an ACID table, or only a
            replication may change it.
        ConfigurationError: If the table follows a database by incremental update.
        LockNotAcquiredError: If others used the table for too long.
        ConnectionFailedError, TransactionError: If the server failed.
    """
    database, name = split_full_name(table_name)
    with metastore_errors_as_ours(f"table {database}.{name} could not be dropped"):
        try:
            _check_droppable(metastore, database, name)
            lock = (user, lock_timeout_seconds, clock or SystemClock())
            with under_exclusive_lock(metastore, database, name, *lock):
                metastore.drop_table(database, name, delete_data=True)
        except NoSuchObjectError as error:
            if not missing_ok:
                raise table_not_found(metastore, database, name) from error


def _check_droppable(metastore: MetastoreClient, database: str, name: str) -> None:
    info = metastore.get_table(database, name)
    properties = metastore.get_database_parameters(database)
    check_mutable(info, metastore.capabilities(), TableRole.SINK, properties)
    if any(key.startswith(UPDATE_PROPERTIES) for key in info.parameters):
        raise ConfigurationError(
            f"table {info.full_name} follows a database, whose changes would be captured forever: run "
            f"hive-mutate update disable --table {info.full_name} first"
        )
