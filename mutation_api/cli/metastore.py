"""``hive-mutate metastore``: run the embedded metastore until Ctrl-C."""

from __future__ import annotations

import argparse

from metastore_client.embedded import server

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        "The metastore prints its address to standard output when it is ready. Press Ctrl-C to end it."
    )
    server.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the metastore. Its address is printed to standard output."""
    return server.run(arguments)
