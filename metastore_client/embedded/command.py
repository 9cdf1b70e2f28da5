"""The embedded metastore as a command: ``python -m metastore_client.embedded --data-dir DIR --port 9083``.

Runs until Ctrl-C. The class is in :mod:`metastore_client.embedded.server`, so that running this module does
not import it twice.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence

from metastore_client.embedded.server import EmbeddedMetastore

__all__ = ["add_arguments", "main", "run"]

POLL_SECONDS = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the embedded metastore until Ctrl-C or SIGTERM; prints its address."""
    parser = argparse.ArgumentParser(prog="python -m metastore_client.embedded", description=main.__doc__)
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--data-dir", metavar="DIR", help="keep the data here (default: thrown away)")
    parser.add_argument("--warehouse", metavar="DIR", help="root of the tables (default: in the data dir)")
    parser.add_argument("--port", type=int, default=0, help="port (default: a free one)")
    parser.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="a Hive setting; may be repeated"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command with parsed arguments; returns its exit code."""
    configuration = dict(each.partition("=")[::2] for each in arguments.conf)
    stop = _StopSignal()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        with EmbeddedMetastore(
            arguments.data_dir, arguments.warehouse, arguments.port, configuration
        ) as metastore:
            print(metastore.uri, flush=True)
            print(f"warehouse {metastore.warehouse}; log {metastore.log_file}", file=sys.stderr)
            while metastore.is_running:
                time.sleep(POLL_SECONDS)
                if stop.was_sent:
                    return 0
            print(f"the metastore ended by itself; see {metastore.log_file}", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0


class _StopSignal:
    """Notes the first Ctrl-C or SIGTERM; a second one interrupts.

    An interrupt at any place may come between taking a lock of ``subprocess`` and the block that gives it
    back; whoever waits for the server then waits for ever.
    """

    def __init__(self) -> None:
        self.was_sent = False

    def __call__(self, number: int, frame: object) -> None:
        if self.was_sent:
            raise KeyboardInterrupt
        self.was_sent = True
