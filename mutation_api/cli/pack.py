"""``hive-mutate pack``: pack this Python, with hive-mutation-api, for machines that have neither.

The archive contains the interpreter, its standard library, this library and the packages that it needs, in
the versions that are installed here. PySpark is left out, since Spark ships its own to its executors. The
machines must have the same operating system and processor type as this one. Jobs use the archive with
--python-archive, or with spark-submit's --archives FILE#python and PYSPARK_PYTHON=./python/bin/python.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mutation_api.cli.parsers import add_repeatable
from mutation_api.cli.terminal import say
from mutation_api.spark.python_archive import EXTRAS_DEFAULT, pack_python


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``hive-mutate pack``."""
    parser.description = __doc__
    parser.add_argument(
        "archive", type=Path, metavar="FILE", help="archive to write: NAME.tar.gz or NAME.tgz"
    )
    parser.add_argument(
        "--extras",
        default=",".join(EXTRAS_DEFAULT),
        metavar="NAMES",
        help="extras of hive-mutation-api to pack, such as hdfs,s3,kerberos (default: %(default)s)",
    )
    add_repeatable(parser, "--package", "NAME", "another installed package that the job imports (repeatable)")


def run(arguments: argparse.Namespace) -> int:
    """Write the archive and print its content."""
    extras = [each.strip() for each in arguments.extras.split(",") if each.strip()]
    packed = pack_python(arguments.archive, extras=extras, packages=arguments.package)
    say(f"{packed.archive}: {packed.byte_count / 2**20:.0f} MiB, {', '.join(packed.distributions)}")
    return 0
