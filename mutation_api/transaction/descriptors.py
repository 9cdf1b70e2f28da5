"""Builds AcidTable descriptors from the metastore's descriptions. Pure, except for probes of directories."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence

from metastore_client.model import ColumnInfo, ConstraintInfo, ConstraintKind, PartitionInfo, TableInfo
from metastore_client.partition_name import DEFAULT_PARTITION_NAME
from mutation_api.errors import ConfigurationError, TableNotMutableError, listed
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.tree import refused
from mutation_api.table.acid_table import AcidColumn, AcidTable, CheckConstraint, TableRole
from mutation_api.table.hive_sql import hive_condition
from mutation_api.table.partition import canonical_partition_name, parse_partition_name
from mutation_api.transaction.preconditions import bloom_filters_of, bucketing_version_of, compression_of
from mutation_api.transaction.staging import PROBE_PREFIX

POSITIONAL_EVOLUTION = "orc.force.positional.evolution"
"""Setting, and table property: the columns of files match the table's by position, not by name."""

_ALTERED = "last_modified_time"
"""Parameter that any ALTER TABLE of Hive adds to a table or partition permanently.

Source: updateModifiedParameters of Hive's DDL; seen on 2.3.10, 3.1.3 and 4.1.0.
"""


def describe(
    table: TableInfo,
    version: AcidVersion,
    role: TableRole,
    *,
    create_partitions: bool,
    time_zone: str | None,
    null_partition_text: str = DEFAULT_PARTITION_NAME,
    positional_evolution: str = "",
    prints_shortest_numbers: bool = False,
) -> AcidTable:
    """Return the descriptor of a table that passed ``check_mutable``, still without its partitions.

    Raises TableNotMutableError if its location cannot be parsed.
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
        bloom_filters=bloom_filters_of(table),
        time_zone=time_zone,
        null_partition_text=null_partition_text,
        was_altered=_ALTERED in table.parameters,
        goes_by_position=_goes_by_position(table, version, positional_evolution),
        prints_shortest_numbers=prints_shortest_numbers,
    )


def with_constraints(table: AcidTable, constraints: Sequence[ConstraintInfo], user: str = "") -> AcidTable:
    """Return the descriptor with the constraints that Hive enforces; disabled ones are left out.

    ``user`` is the user who makes the changes, for a DEFAULT.

    Raises TableNotMutableError if a CHECK cannot be evaluated here, or if a constraint is on a column that
    the table does not have, so that rows might violate it.
    """
    enforced = [each for each in constraints if each.is_enabled]
    names = {column.name for column in (*table.columns, *table.partition_keys)}
    for each in enforced:
        if each.column not in names and (each.column or each.kind is not ConstraintKind.CHECK):
            raise TableNotMutableError(
                f"table {table.full_name} cannot be written: its constraint {each.name} ({each.kind.value}) "
                f"refers to column {each.column!r}, but the table has {', '.join(sorted(names))}; drop the "
                f"constraint: ALTER TABLE {table.full_name} DROP CONSTRAINT {each.name}"
            )
    not_null = {each.column for each in enforced if each.kind is ConstraintKind.NOT_NULL}
    defaults = {each.column: each.expression for each in enforced if each.kind is ConstraintKind.DEFAULT}
    checks = [
        CheckConstraint(each.name, each.expression) for each in enforced if each.kind is ConstraintKind.CHECK
    ]
    types = {column.name: parse_hive_type(column.type) for column in table.columns} if checks else {}
    for check in checks:
        try:
            hive_condition(check.condition, types, f"CHECK {check.name} ({check.condition})")
        except ConfigurationError as error:
            raise TableNotMutableError(
                f"table {table.full_name} cannot be written: {error}. Write the condition with comparisons, "
                f"AND, OR, IN, BETWEEN, LIKE or CASE, or drop it: ALTER TABLE {table.full_name} DROP "
                f"CONSTRAINT {check.name}"
            ) from error
    columns = tuple(
        dataclasses.replace(each, not_null=each.name in not_null, default=defaults.get(each.name, ""))
        for each in table.columns
    )
    user = user if defaults else ""
    return dataclasses.replace(table, columns=columns, checks=tuple(checks), user=user)


def _goes_by_position(table: TableInfo, version: AcidVersion, setting: str) -> bool | None:
    """Return the setting for this table; None if nothing is set, so that the Hive release decides.

    On Hive 2.3 and 3.1, the table's property takes precedence over the setting; Hive 4 uses only the setting
    (measured).
    """
    own = "" if version.is_hive_4 else table.parameters.get(POSITIONAL_EVOLUTION, "")
    text = (own.strip() or setting.strip()).lower()
    return text == "true" if text else None


def with_partition_names(table: AcidTable, names: Sequence[str]) -> AcidTable:
    """Return the descriptor with the partitions whose names are not spelled canonically.

    Partitions that have the same values are ambiguous. All partitions that are read as NULL are also
    ambiguous if one of them has a name other than that of NULL: new rows would not belong there.
    """
    null_text, keys = table.null_partition_text, table.partition_keys
    spelled: dict[str, list[str]] = {}
    for name in names:
        spelled.setdefault(canonical_partition_name(keys, name, null_text), []).append(name)
    for canonical, found in spelled.items():
        if any(_nulls(canonical, null_text) != _nulls(name, null_text) for name in found):
            spelled[canonical] = sorted({*found, canonical})
    return dataclasses.replace(
        table,
        partition_spellings={c: n for c, (n, *others) in spelled.items() if c != n and not others},
        ambiguous_partitions={c: tuple(found) for c, found in spelled.items() if len(found) > 1},
    )


def _nulls(name: str, null_text: str) -> tuple[bool, ...]:
    return tuple(text == null_text for text in parse_partition_name(name))


def with_partitions(table: AcidTable, partitions: Sequence[PartitionInfo]) -> AcidTable:
    """Return the descriptor with its partitions' locations outside the usual place.

    It also records whether rows may be bucketed differently from the table. Each partition has its own bucket
    count, but no Hive release uses it to read or write: new rows are bucketed as the table specifies, and an
    INSERT into the partition replaces its count by the table's. So the count shows only that the table was
    altered.

    Raises TableNotMutableError if a location cannot be parsed.
    """
    found = {p.name: _location(f"{table.full_name} partition {p.name}", p.location) for p in partitions}
    return dataclasses.replace(
        table,
        partition_locations={name: path for name, path in found.items() if path != table.location / name},
        was_altered=table.was_altered or any(_was_altered(table, p) for p in partitions),
    )


def _was_altered(table: AcidTable, partition: PartitionInfo) -> bool:
    if _ALTERED in partition.parameters:
        return True
    if partition.num_buckets is None:
        return False
    own = (max(partition.num_buckets, 0), tuple(name.lower() for name in partition.bucket_columns))
    return own != (max(table.num_buckets, 0), table.bucket_columns)


def check_location(table: AcidTable) -> None:
    """Check that the table's directory can be reached, listed and written.

    It checks writing by creating a hidden empty file there and removing it.

    Raises TableNotMutableError, which names the step that failed and the reason.
    """
    with _cannot(table, "reached"):
        storage = storage_at(table.location)
        if storage.has_directories and storage.stat(table.location) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(table.location))
    with _cannot(table, "read"), contextlib.suppress(FileNotFoundError):
        storage.list(table.location)
    probe = table.location / f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    with _cannot(table, "written"):
        try:
            storage.create(probe).close()
            storage.delete_file(probe)
        except FileNotFoundError:
            # Another client that begins removes files that it takes for abandoned, including files being
            # created.
            if storage.has_directories and storage.stat(table.location) is None:
                raise


def check_partition_directories(table: AcidTable, names: Sequence[str]) -> str | None:
    """Check that this user may write to the partitions' directories inside the table's directory.

    Returns:
        A warning that names some of the directories that the user may not write to. If None, there are none.

    Raises:
        TableNotMutableError: If the user may write to none of them, and no partitions may be created.
    """
    with _cannot(table, "reached"):
        refusals = refused(table.location / name for name in names)
    if not refusals:
        return None
    warning = (
        f"table {table.full_name}: {len(refusals)} of {len(names)} partition directories cannot be written: "
        + listed([str(error) for error in refusals])
        + ". Let their owner, or an ACL, give you and Hive's user write permission"
    )
    if len(refusals) == len(names) and not table.create_partitions:
        raise TableNotMutableError(warning)
    return warning


@contextlib.contextmanager
def _cannot(table: AcidTable, be: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TableNotMutableError(
            f"table {table.full_name} cannot be used: its location {table.location} cannot be {be}: "
            f"{_without_place(error, str(table.location))}"
        ) from error


def _without_place(error: OSError, place: str) -> str:
    """Return the error's text, without the location that the message already names."""
    return error.strerror if error.strerror and error.filename == place else str(error)


def _location(what: str, text: str) -> Location:
    try:
        return Location.parse(text)
    except OSError as error:
        raise TableNotMutableError(f"table {what} cannot be used: {error}") from error


def _columns(columns: Iterable[ColumnInfo]) -> tuple[AcidColumn, ...]:
    return tuple(AcidColumn(c.name.lower(), c.type) for c in columns)
