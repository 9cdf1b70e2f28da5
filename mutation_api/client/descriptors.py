"""AcidTable descriptors out of what the metastore says. Pure but for the probe of the location."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence

from metastore_client.model import ColumnInfo, PartitionInfo, TableInfo
from mutation_api.acid.version import AcidVersion
from mutation_api.client.preconditions import bucketing_version_of, compression_of
from mutation_api.commit.staging import PROBE_PREFIX
from mutation_api.errors import TableNotMutableError, listed
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.permissions import refused
from mutation_api.table.acid_table import AcidColumn, AcidTable, TableRole
from mutation_api.table.partition import canonical_partition_name

__all__ = [
    "check_location",
    "check_partition_directories",
    "describe",
    "with_partition_locations",
    "with_partition_names",
]


def describe(
    table: TableInfo,
    version: AcidVersion,
    role: TableRole,
    *,
    create_partitions: bool,
    time_zone: str | None,
) -> AcidTable:
    """The descriptor of a table that passed ``check_mutable``, as yet without its partitions.

    Raises TableNotMutableError: its location names no place.
    """
    return AcidTable(
        database=table.database.lower(),
        name=table.name.lower(),
        location=_location(table.full_name, table.location),
        columns=_columns(table.columns),
        partition_keys=_columns(table.partition_keys),
        num_buckets=table.num_buckets,
        bucket_columns=tuple(b.lower() for b in table.bucket_columns),
        version=version,
        bucketing_version=bucketing_version_of(table, version),
        role=role,
        create_partitions=create_partitions,
        compression=compression_of(table),
        time_zone=time_zone,
    )


def with_partition_names(table: AcidTable, names: Sequence[str]) -> AcidTable:
    """The descriptor with what is unusual about its partitions' spelling.

    Raises:
        TableNotMutableError: two partitions hold the same values, spelled differently; a row belongs to both.
    """
    spellings: dict[str, str] = {}
    for name in names:
        canonical = canonical_partition_name(table.partition_keys, name)
        other = spellings.setdefault(canonical, name)
        if other != name:
            raise TableNotMutableError(
                f"table {table.full_name}: the partitions {other} and {name} spell the same values "
                "differently, so it is open where a row belongs: move the rows into one and drop the other"
            )
    return dataclasses.replace(table, partition_spellings={c: n for c, n in spellings.items() if c != n})


def with_partition_locations(table: AcidTable, partitions: Sequence[PartitionInfo]) -> AcidTable:
    """The descriptor with the places of those partitions that do not lie where their name says.

    Raises TableNotMutableError: a location names no place.
    """
    places = {p.name: _location(f"{table.full_name} partition {p.name}", p.location) for p in partitions}
    return dataclasses.replace(
        table,
        partition_locations={n: place for n, place in places.items() if place != table.location / n},
    )


def check_location(table: AcidTable) -> None:
    """Reach, list and write the table's directory: a hidden empty file is created there and removed.

    Raises TableNotMutableError, which says what cannot be done and why.
    """
    with _cannot(table, "reached"):
        storage = storage_at(table.location)
        if storage.has_directories and storage.stat(table.location) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(table.location))
    with _cannot(table, "read"), contextlib.suppress(FileNotFoundError):
        storage.list(table.location)
    probe = table.location / f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    with _cannot(table, "written"):
        storage.create(probe).close()
        with contextlib.suppress(FileNotFoundError):  # somebody swept it
            storage.delete_file(probe)


def check_partition_directories(table: AcidTable, names: Sequence[str]) -> str | None:
    """Look whether this user may write into the directories of partitions; those elsewhere are overlooked.

    Returns:
        A warning that names some of those where the user may not.

    Raises:
        TableNotMutableError: the user may in none, and no others may be created.
    """
    with _cannot(table, "reached"):
        refusals = refused(table.location / name for name in names)
    if not refusals:
        return None
    told = (
        f"table {table.full_name}: {len(refusals)} of {len(names)} partition directories cannot be written: "
        + listed([str(error) for error in refusals])
        + ". Let their owner, or an ACL, give you and Hive's user the right to write them"
    )
    if len(refusals) == len(names) and not table.create_partitions:
        raise TableNotMutableError(told)
    return told


@contextlib.contextmanager
def _cannot(table: AcidTable, be: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TableNotMutableError(
            f"table {table.full_name} cannot be used: its location {table.location} cannot be {be}: {error}"
        ) from error


def _location(what: str, text: str) -> Location:
    try:
        return Location.parse(text)
    except OSError as error:
        raise TableNotMutableError(f"table {what} cannot be used: {error}") from error


def _columns(columns: Iterable[ColumnInfo]) -> tuple[AcidColumn, ...]:
    return tuple(AcidColumn(c.name.lower(), c.type) for c in columns)
