"""Options that describe a table's directory to a reader without a metastore."""

from __future__ import annotations

import argparse

from mutation_api.cli.arguments.files import location_from
from mutation_api.cli.arguments.option_names import option_names
from mutation_api.scan.directory import ACID_VERSION_AUTO, ACID_VERSIONS, TABLE_KINDS, open_directory
from mutation_api.scan.table_view import TableView

__all__ = ["DIRECTORY_OPTIONS", "add_directory_arguments", "directory_from", "given_directory_options"]

DIRECTORY_OPTIONS = {
    **option_names(
        *("acid_version", "partition_schema", "transactional_properties", "valid_txns", "valid_write_ids")
    ),
    "num_buckets": "--buckets",
}
"""Argument names of :func:`~mutation_api.scan.directory.open_directory`, and the options."""

_DESCRIBING = (
    *("schema", "partition_schema", "transactional_properties", "acid_version"),
    *("valid_txns", "valid_write_ids", "buckets"),
)


def add_directory_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--location`` and the options that go with it."""
    group = parser.add_argument_group("without a metastore")
    group.add_argument(
        "--location",
        type=location_from,
        metavar="DIR",
        help="the directory of a table, or a copy of it: a path, hdfs://…, s3a://…",
    )
    group.add_argument("--schema", metavar="TEXT", help="its data columns: 'id bigint, msg string'")
    group.add_argument(
        "--partition-schema",
        metavar="TEXT",
        help="its partition columns: 'ds string' (default: the key=value directories found, as strings)",
    )
    group.add_argument(
        "--transactional-properties",
        choices=TABLE_KINDS,
        help="that table property (default: legacy for Hive 2, default for later releases)",
    )
    group.add_argument(
        "--acid-version",
        choices=ACID_VERSIONS,
        help="1: Hive 2 wrote it, 2: a later release (default: auto, what the files show)",
    )
    group.add_argument(
        "--valid-txns",
        metavar="TEXT",
        help="visible transactions: 10:9223372036854775807:3:5; in version 2: of compactions (default: all)",
    )
    group.add_argument(
        "--valid-write-ids",
        metavar="TEXT",
        help="visible write ids: db.table:10:9223372036854775807::3,5; version 2 only (default: all)",
    )
    group.add_argument(
        "--buckets", type=int, metavar="N", help="the table's bucket count (default: what the files show)"
    )


def given_directory_options(arguments: argparse.Namespace) -> list[str]:
    """The given options that go with ``--location`` only."""
    return [f"--{name.replace('_', '-')}" for name in _DESCRIBING if getattr(arguments, name) is not None]


def directory_from(arguments: argparse.Namespace) -> TableView:
    """The view of the directory that the options describe.

    Raises: as :func:`mutation_api.scan.directory.open_directory`.
    """
    return open_directory(
        arguments.location,
        arguments.schema,
        partition_schema=arguments.partition_schema,
        transactional_properties=arguments.transactional_properties,
        acid_version=arguments.acid_version or ACID_VERSION_AUTO,
        valid_txns=arguments.valid_txns,
        valid_write_ids=arguments.valid_write_ids,
        num_buckets=arguments.buckets,
    )
