"""``hive-mutate metastore``: run the embedded metastore until Ctrl-C."""

from __future__ import annotations

import argparse

from metastore_client.embedded import server

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = "prints its address on standard output when it is ready; Ctrl-C ends it"
    server.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the metastore; its address goes to standard output."""
    return server.run(arguments)
