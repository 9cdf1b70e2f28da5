"""``hive-mutate ingest collector``: raw files of a binlog collector.

A raw file has one line for each operation on one table: INSERT, UPDATE or DELETE, the md5 of the key, and the
columns. Strings are in quotes, NULL is not:

  hive-mutate ingest collector --files raw/ --table sales.orders --key id

--files names a file or a directory of files, on a disk that all Spark machines have mounted, on HDFS
(hdfs://namenode/raw) or in an object store (s3a://bucket/raw). The last digits of a file's name are its
number, and files are applied in the order of these numbers. New operations are appended to the last file, or
are in files with higher numbers. A file that was replaced by another one with the same name is refused.

The watermark belongs to the Hive table. Pass --name if several collections are applied to that table.
"""

from __future__ import annotations

import argparse

from mutation_api.cdc.collector import CollectorSource
from mutation_api.cli.ingest.log_arguments import add_binary_argument
from mutation_api.cli.table_arguments import listed_names, location_from, optional_names
from mutation_api.format.text_values import BinaryEncoding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this kind of source."""
    parser.add_argument(
        "--files",
        required=True,
        action="append",
        type=location_from,
        metavar="PATH",
        help="raw file, or directory of raw files (repeatable)",
    )
    parser.add_argument("--table", required=True, metavar="DB.TABLE", help="Hive table to apply the files to")
    parser.add_argument(
        "--key",
        required=True,
        metavar="A,B",
        help="columns whose MD5 hash, in this order, is the uid of a row",
    )
    parser.add_argument(
        "--columns", metavar="A,B,…", help="columns in the order of the files (default: the table's columns)"
    )
    parser.add_argument("--name", help="name of the collection in the watermarks (default: the table)")
    add_binary_argument(parser)


def source_from(arguments: argparse.Namespace) -> CollectorSource:
    """Return the source that the arguments describe."""
    return CollectorSource(
        tuple(arguments.files),
        _name(arguments),
        columns=optional_names(arguments.columns),
        binary=BinaryEncoding(arguments.binary) if arguments.binary else None,
    )


def tables_from(arguments: argparse.Namespace) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the source's only table: name in the source, DB.TABLE and key."""
    return [(_name(arguments), arguments.table, listed_names(arguments.key))]


def _name(arguments: argparse.Namespace) -> str:
    name: str = arguments.name or arguments.table
    return name
