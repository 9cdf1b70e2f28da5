"""Creates ACID tables with the properties that the server's Hive release needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from metastore_client.client import MetastoreClient
from metastore_client.errors import AlreadyExistsError, InvalidRequestError, MetastoreError, NoSuchObjectError
from metastore_client.model import ColumnInfo, TableInfo
from mutation_api.errors import ConfigurationError, TableNotMutableError
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.table.acid_table import TableRole
from mutation_api.transaction.catalog import split_full_name
from mutation_api.transaction.listener import client_error
from mutation_api.transaction.preconditions import check_mutable

__all__ = ["create_acid_table"]

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

NOT_BUCKETED = -1
"""Number of buckets of an unbucketed table. With 0, Hive 3.1 could not update the table (observed)."""


def create_acid_table(
    metastore: MetastoreClient,
    table_name: str,
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
        table_name: ``database.table``.
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
            broken rule.
        ConnectionFailedError, TransactionError: If the server could not be asked.
    """
    database, name = split_full_name(table_name)
    clustered_by = (clustered_by,) if isinstance(clustered_by, str) else clustered_by
    if bool(clustered_by) != (num_buckets is not None):
        raise ConfigurationError(
            f"table {database}.{name}: clustered_by and num_buckets go together, but they are "
            f"{list(clustered_by)} and {num_buckets}"
        )
    try:
        wanted = TableInfo(
            database,
            name,
            _as_hive_stores(columns, "columns"),
            _as_hive_stores(partitioned_by, "partitioned_by"),
            location=location or "",
            num_buckets=NOT_BUCKETED if num_buckets is None else num_buckets,
            bucket_columns=tuple(b.lower() for b in clustered_by),
            parameters=_parameters(metastore, insert_only, properties or {}),
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


def _as_hive_stores(columns: object, what: str) -> tuple[ColumnInfo, ...]:
    """Return the columns with the names that Hive stores for their types: not ``double precision``.

    A type that Hive does not have stays as it is; the check of the table names it.
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
