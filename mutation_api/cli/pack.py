"""``hive-mutate pack``: this Python, with hive-mutation-api, as an archive for machines that have neither.

The archive has the interpreter, its standard library, this library and the packages that it needs, in the
versions that are installed here; PySpark is left out, since Spark brings its own to its executors. The
machines must have this one's operating system and processor. Jobs take it by --python-archive, or by
spark-submit's --archives FILE#python with PYSPARK_PYTHON=./python/bin/python.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mutation_api.cli.terminal import say
from mutation_api.spark.python_archive import EXTRAS_DEFAULT, pack_python

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``hive-mutate pack``."""
    parser.description = __doc__
    parser.add_argument("archive", type=Path, metavar="FILE", help="the archive to write: NAME.tar.gz")
    parser.add_argument(
        "--extras",
        default=",".join(EXTRAS_DEFAULT),
        metavar="NAMES",
        help="extras of hive-mutation-api that are packed, such as hdfs,s3,kerberos (default: %(default)s)",
    )
    parser.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="NAME",
        help="a further installed package that the job imports; may be repeated",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the archive and say what is in it."""
    extras = [each.strip() for each in arguments.extras.split(",") if each.strip()]
    packed = pack_python(arguments.archive, extras=extras, packages=arguments.package)
    say(f"{packed.archive}: {packed.byte_count / 2**20:.0f} MiB, {', '.join(packed.distributions)}")
    return 0
