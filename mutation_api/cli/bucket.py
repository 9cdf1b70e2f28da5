"""``hive-mutate bucket``: compute Hive's bucket hash of values.

Each line of the input is a JSON array with the values of the bucket columns, in the form of files of changes:
binary is base64, decimals, dates and timestamps are strings, a struct is an object, a union is [tag, value],
and a map is an object, or a list of pairs if its keys are not strings.
"""

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the subcommand."""
    parser.add_argument(
        "--types",
        required=True,
        metavar="TEXT",
        help="Hive types of the bucket columns in CLUSTERED BY order, such as int,decimal(10,2)",
    )
    parser.add_argument("--buckets", required=True, type=int, metavar="N", help="bucket count of the table")
    parser.add_argument(
        "--bucketing-version",
        type=int,
        choices=(1, 2),
        default=1,
        help="version of the hash: 2 for tables with bucketing_version=2, 1 for Hive 2 and for tables "
        "without this property (default: 1)",
    )
    parser.add_argument(
        "--time-zone",
        default="UTC",
        metavar="ZONE",
        help="time zone of Hive's processes, for timestamps in version 1 (default: %(default)s)",
    )
    parser.add_argument(
        "file",
        nargs="?",
        default="-",
        metavar="FILE",
        help="file with JSON arrays of values, one per line (default: -, standard input)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print ``{"hash": …, "bucket": …}`` for each line. Return 0 when all lines are hashed."""
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
