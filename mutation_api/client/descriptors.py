"""AcidTable descriptors out of what the metastore says. Pure but for the probe of the location."""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Iterable, Sequence

from metastore_client.model import ColumnInfo, PartitionInfo, TableInfo
from mutation_api.acid.version import AcidVersion
from mutation_api.client.preconditions import bucketing_version_of, compression_of
from mutation_api.commit.manifest import STAGING_PREFIX
from mutation_api.errors import TableNotMutableError
from mutation_api.orc.storage import Storage
from mutation_api.table.acid_table import AcidColumn, AcidTable, TableRole
from mutation_api.table.partition import canonical_partition_name

__all__ = ["check_location", "describe", "with_partition_locations", "with_partition_names"]

_LOCAL = re.compile(r"file:/+", re.IGNORECASE)


def describe(
    table: TableInfo,
    version: AcidVersion,
    role: TableRole,
    *,
    create_partitions: bool,
    time_zone: str | None,
) -> AcidTable:
    """The descriptor of a table that passed ``check_mutable``, as yet without its partitions."""
    return AcidTable(
        database=table.database.lower(),
        name=table.name.lower(),
        location=table.location,
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
    """The descriptor with the places of those partitions that do not lie where their name says."""
    return dataclasses.replace(
        table,
        partition_locations={
            p.name: p.location
            for p in partitions
            if _normal(p.location) != _normal(f"{table.location.rstrip('/')}/{p.name}")
        },
    )


def check_location(table: TableInfo) -> None:
    """Create and remove a hidden directory in the table's. Raises TableNotMutableError if that fails."""
    try:
        storage = Storage.for_location(table.location)
        root = storage.path(table.location)
        if not storage.exists(root):
            raise FileNotFoundError(f"{root} does not exist")
        probe = f"{root}/{STAGING_PREFIX}probe_{uuid.uuid4().hex}"
        storage.create_directory(probe)
        storage.delete_directory(probe)
    except OSError as error:
        raise TableNotMutableError(
            f"table {table.full_name} cannot be used: its location {table.location} is not writable: {error}"
        ) from error


def _columns(columns: Iterable[ColumnInfo]) -> tuple[AcidColumn, ...]:
    return tuple(AcidColumn(c.name.lower(), c.type) for c in columns)


def _normal(location: str) -> str:
    """One text for the spellings of a local location: ``file:/a``, ``file:///a`` and ``/a``."""
    return _LOCAL.sub("/", location, count=1).rstrip("/")
