"""open_directory: the view of a table that no metastore describes, such as a copy of its directory.

Directories named ``key=value`` are partitions and give the names of their keys. Names and footers of files
show which Hive wrote them. The caller must pass the columns, because a file has the columns that the table
had when it was written.
"""

from __future__ import annotations

from collections.abc import Iterable

from metastore_client.valid_ids import NO_OPEN_ID, ValidIdList, ValidTxnList, ValidWriteIdList
from mutation_api.errors import ConfigurationError, DirectoryStateError, ReadError
from mutation_api.format.layout import AcidVersion
from mutation_api.read.partition_files import find_partitions, is_written_by_hive_4, uses_write_ids
from mutation_api.read.table_view import TableView
from mutation_api.storage.location import Location, LocationLike
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.row_type import parse_columns

ACID_VERSION_AUTO = "auto"
ACID_VERSIONS = ("1", "2", ACID_VERSION_AUTO)
"""1: written by Hive 2. 2: written by a later release. auto: determined from the files."""

_LEGACY, _DEFAULT, _INSERT_ONLY = "legacy", "default", "insert_only"
TABLE_KINDS = (_LEGACY, _DEFAULT, _INSERT_ONLY)
"""The values of the table property ``transactional_properties``."""

_ANY_BUCKET = 2**31 - 1
"""The bucket count of a directory whose table is unknown: all buckets that are found are accepted."""


def open_directory(
    location: LocationLike,
    schema: str,
    *,
    partition_schema: str | None = None,
    transactional_properties: str | None = None,
    acid_version: str = ACID_VERSION_AUTO,
    valid_txns: str | ValidTxnList | None = None,
    valid_write_ids: str | ValidWriteIdList | None = None,
    num_buckets: int | None = None,
) -> TableView:
    """Return the view of a table's directory, from its files alone.

    No lock protects the files while they are read. Use a copy, or a table that is not changed in the
    meantime.

    Args:
        location: the table's directory, or a copy of it: a path, ``hdfs://…``, ``s3a://…``.
        schema: its data columns: ``"id bigint, msg string"``.
        partition_schema: its partition columns: ``"ds string"``. If None, the keys of the directories found,
            as strings.
        transactional_properties: one of TABLE_KINDS. If None, ``legacy`` if Hive 2 wrote the files, otherwise
            ``default``. ``insert_only`` must be given for an insert-only table, because its files do not show
            it.
        acid_version: one of ACID_VERSIONS.
        valid_txns: the visible transactions, in the format of ``hive.txn.valid.txns``
            (``10:9223372036854775807:3:5``). In version 2 they determine which compactions have committed. If
            None, all.
        valid_write_ids: the visible write ids, in the format of ``hive.txn.valid.writeids``
            (``db.table:10:9223372036854775807::3,5``). Only for version 2. If None, all.
        num_buckets: the table's bucket count. Files of buckets beyond it are an error. If None, all buckets
            are accepted.

    Raises:
        ConfigurationError: If an argument is invalid, or does not fit the files' version.
        DirectoryStateError: If the directory does not exist, its partitions have different keys, their keys
            differ from ``partition_schema``, or there is data next to partitions.
        ReadError: If the directory cannot be read.
    """
    columns = parse_columns(schema)
    root = _location(location)
    if num_buckets is not None and num_buckets < 1:
        raise ConfigurationError(f"num_buckets {num_buckets}: a table has at least one bucket")
    try:
        locations = find_partitions(root)
        version = _version(locations.values(), acid_version, transactional_properties)
    except OSError as error:
        raise ReadError(f"{root}: the directory cannot be read: {error}") from error
    table = AcidTable(
        database="directory",
        name=root.name,
        location=root,
        columns=columns,
        partition_keys=_partition_keys(partition_schema, next(iter(locations)), root),
        num_buckets=_ANY_BUCKET if num_buckets is None else num_buckets,
        bucket_columns=(),
        version=version,
    )
    txns = _valid_txns(valid_txns)
    return TableView(table, locations, _valid_ids(table, txns, valid_write_ids), txns)


def _location(given: LocationLike) -> Location:
    try:
        return Location.given(given)
    except OSError as error:
        raise ConfigurationError(f"location {given}: {error.strerror}") from error


def _version(locations: Iterable[Location], asked: str, properties: str | None) -> AcidVersion:
    if asked not in ACID_VERSIONS:
        raise ConfigurationError(f"acid_version {asked!r}: it must be one of {', '.join(ACID_VERSIONS)}")
    if properties is not None and properties not in TABLE_KINDS:
        raise ConfigurationError(
            f"transactional_properties {properties!r}: it must be one of {', '.join(TABLE_KINDS)}"
        )
    partitions = list(locations)
    if asked == ACID_VERSION_AUTO and properties != _LEGACY:
        asked = "2" if properties == _INSERT_ONLY or uses_write_ids(partitions) else "1"
    has_write_ids = asked == "2"
    version = AcidVersion.of_table(
        properties or "",
        has_write_ids=has_write_ids,
        is_hive_4=has_write_ids and is_written_by_hive_4(partitions),
    )
    if version is None:
        raise ConfigurationError(
            f"acid_version {asked} does not support transactional_properties {properties}"
        )
    return version


def _partition_keys(text: str | None, name: str, location: Location) -> tuple[AcidColumn, ...]:
    found = [part.partition("=")[0].lower() for part in name.split("/")] if name else []
    if text is None:
        return tuple(AcidColumn(key, "string") for key in found)
    keys = parse_columns(text)
    if [key.name for key in keys] != found:
        raise DirectoryStateError(
            f"{location}: its directories have the partition keys {', '.join(found) or '(none)'}, but "
            f"partition_schema has {', '.join(key.name for key in keys)}"
        )
    return keys


def _valid_ids(table: AcidTable, txns: ValidTxnList, write_ids: str | ValidWriteIdList | None) -> ValidIdList:
    if table.version.uses_write_ids:
        return _valid_write_ids(write_ids)
    if write_ids is not None:
        raise ConfigurationError(
            f"valid_write_ids: {table.location} is of version 1, whose files contain transaction ids; pass "
            "valid_txns, or acid_version 2"
        )
    return txns


def _valid_txns(given: str | ValidTxnList | None) -> ValidTxnList:
    if given is None:
        return ValidTxnList.everything()
    if isinstance(given, ValidTxnList):
        return given
    try:
        return ValidTxnList.parse(given)
    except ValueError as error:
        raise ConfigurationError(f"valid_txns: {error}") from error


def _valid_write_ids(given: str | ValidWriteIdList | None) -> ValidWriteIdList:
    if given is None:
        return ValidWriteIdList(NO_OPEN_ID)
    if isinstance(given, ValidWriteIdList):
        return given
    try:
        return ValidWriteIdList.parse(given)
    except ValueError as error:
        raise ConfigurationError(f"valid_write_ids: {error}") from error
