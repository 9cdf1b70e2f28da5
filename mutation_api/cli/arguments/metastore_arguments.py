"""Options that name a metastore, shared by the subcommands that connect to one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from metastore_client.errors import InvalidConfigurationError
from metastore_client.remote.thrift_client import ThriftMetastoreClient, connect
from mutation_api.cli.terminal import say_aside

__all__ = ["ReportLoss", "add_metastore_arguments", "metastore_from"]


def add_metastore_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--metastore``, ``--hive-conf`` and ``--user``."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--metastore",
        metavar="URI",
        help="address, thrift://host:port; several separated by commas (default: that of hive-site.xml)",
    )
    group.add_argument(
        "--hive-conf",
        metavar="PATH",
        help="a hive-site.xml or its folder (default: HIVE_CONF_DIR, then HADOOP_CONF_DIR)",
    )
    parser.add_argument(
        "--user", help="user name for the metastore (default: HADOOP_USER_NAME, then your login name)"
    )


def metastore_from(arguments: argparse.Namespace) -> ThriftMetastoreClient:
    """Connect as the options say; the caller closes the client.

    Raises:
        InvalidConfigurationError: the address is missing or invalid.
        MetastoreUnavailableError: no server answered.
    """
    path = None if arguments.hive_conf is None else Path(arguments.hive_conf)
    target = arguments.metastore if path is None else path
    try:
        return connect(target, user=arguments.user)
    except InvalidConfigurationError as error:
        if target is not None:
            raise
        raise InvalidConfigurationError(
            f"{error}; name it by --metastore, or a file by --hive-conf"
        ) from error


class ReportLoss:
    """Reports a lost transaction at once; the command fails as soon as its work has stopped."""

    def lock_failed(self, lock_id: int | None, txn_id: int, tables: Sequence[str], error: Exception) -> None:
        """Called from the heartbeat's thread."""
        what = f"transaction {txn_id} on {', '.join(tables)} is lost"
        say_aside(f"hive-mutate: {what}, stopping: {error}")
