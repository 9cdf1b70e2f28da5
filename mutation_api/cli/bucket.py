"""``hive-mutate bucket``: Hive's bucket hash of values; each line is a JSON array of bucket column values."""

from __future__ import annotations

import argparse
import contextlib
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TextIO

from mutation_api.cli.terminal import say
from mutation_api.errors import ConfigurationError
from mutation_api.table.bucket_rows import BucketHash, hash_json_lines
from mutation_api.table.row_type import parse_types

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the subcommand."""
    parser.add_argument(
        "--types",
        required=True,
        metavar="TEXT",
        help="Hive types, in CLUSTERED BY order: int,decimal(10,2)",
    )
    parser.add_argument("--buckets", required=True, type=int, metavar="N", help="bucket count of the table")
    parser.add_argument(
        "--bucketing-version",
        type=int,
        choices=(1, 2),
        default=1,
        help="1: Hive 2 and tables without the property (default); 2: tables with bucketing_version=2",
    )
    parser.add_argument(
        "--time-zone",
        default="UTC",
        metavar="ZONE",
        help="zone of Hive's processes (timestamps, version 1; default: %(default)s)",
    )
    parser.add_argument(
        "file",
        nargs="?",
        default="-",
        metavar="FILE",
        help="JSON arrays of values, one a line (default: -, standard input)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print ``{"hash": …, "bucket": …}`` for each line; 0 when all lines are hashed."""
    how = BucketHash(
        parse_types(arguments.types), arguments.buckets, arguments.bucketing_version, arguments.time_zone
    )
    with _opened(arguments.file) as source:
        for number, bucket in hash_json_lines(source, how):
            say(f'{{"hash": {number}, "bucket": {bucket}}}')
    return 0


def _opened(name: str) -> AbstractContextManager[TextIO]:
    if name == "-":
        return contextlib.nullcontext(sys.stdin)
    try:
        return Path(name).open(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot read {name}: {error}") from error
