"""Options of the subcommands that write one table in one transaction, and the client that they use."""

from __future__ import annotations

import argparse

from metastore_client.client import MetastoreClient
from mutation_api.change_set.layout import OPERATION_COLUMN_DEFAULT
from mutation_api.cli.arguments.lock_arguments import add_lock_timeout_argument
from mutation_api.cli.arguments.metastore_arguments import ReportLoss
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.client.mutator_client import MutatorClient

__all__ = ["add_operation_column_argument", "add_write_arguments", "writing_client"]

WRITE_LOCKS = ("exclusive", "optimistic")


def add_write_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--create-partitions``, ``--write-lock`` and ``--lock-timeout``."""
    parser.add_argument(
        "--create-partitions",
        action="store_true",
        help="create partitions that do not exist (default: refuse)",
    )
    parser.add_argument(
        "--write-lock",
        choices=WRITE_LOCKS,
        default=WRITE_LOCKS[0],
        help="Hive 4: exclude other writers (exclusive, the default), or admit them and let the first commit "
        "win (optimistic); earlier releases have one kind only",
    )
    add_lock_timeout_argument(parser, "another writer of the table")


def add_operation_column_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--operation-column``."""
    parser.add_argument(
        "--operation-column",
        default=OPERATION_COLUMN_DEFAULT,
        metavar="NAME",
        help="column that says insert, update or delete (default: %(default)s)",
    )


def writing_client(metastore: MetastoreClient, arguments: argparse.Namespace) -> MutatorClient:
    """A client, not connected yet, that may write the one table; a lost transaction is reported at once.

    Raises:
        ConfigurationError: the argument is not a table name, or the time-out not above 0.
    """
    builder = MutatorClientBuilder().lock_failure_listener(ReportLoss()).write_lock(arguments.write_lock)
    builder.lock_timeout_seconds(arguments.lock_timeout)
    builder.add_sink_table(arguments.table, create_partitions=arguments.create_partitions)
    return builder.metastore(metastore).build()
