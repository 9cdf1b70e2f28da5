"""``hive-mutate ingest collector``: raw files of a binlog collector.

A raw file has a line for each operation on one table: INSERT, UPDATE or DELETE, the md5 of the key, and the
columns. Texts are in quotes, NULL is not:

  hive-mutate ingest collector --files raw/ --table sales.orders --key id

--files names a file, or a folder of files, on a disk that all of Spark's machines have mounted, on HDFS
(hdfs://namenode/raw) or in an object store (s3a://bucket/raw). The last digits of a file's name are its
number; files are applied in the order of their numbers. New operations are appended to the last file, or are
in files with greater numbers. A file that was replaced by another one of the same name is refused.

The watermark belongs to the table that follows; give --name if several collections are applied to it.
"""

from __future__ import annotations

import argparse

from mutation_api.cdc.collector import CollectorSource
from mutation_api.cli.table_arguments import listed_names, location_from
from mutation_api.format.text_values import BinaryText

__all__ = ["add_arguments", "source_from", "tables_from"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this kind of source."""
    parser.add_argument(
        "--files",
        required=True,
        action="append",
        type=location_from,
        metavar="PATH",
        help="raw file, or a folder of them; may be repeated",
    )
    parser.add_argument("--table", required=True, metavar="DB.TABLE", help="the table that follows")
    parser.add_argument(
        "--key", required=True, metavar="A,B", help="columns of which the uid is the md5, in this order"
    )
    parser.add_argument(
        "--columns", metavar="A,B,…", help="columns in the files' order (default: the table's)"
    )
    parser.add_argument("--name", help="name of the collection in the watermarks (default: the table)")
    parser.add_argument(
        "--binary",
        choices=[form.value for form in BinaryText],
        help="how the files write binary columns; needed if there are any",
    )


def source_from(arguments: argparse.Namespace) -> CollectorSource:
    """The source."""
    return CollectorSource(
        tuple(arguments.files),
        _name(arguments),
        columns=None if arguments.columns is None else listed_names(arguments.columns),
        binary=BinaryText(arguments.binary) if arguments.binary else None,
    )


def tables_from(arguments: argparse.Namespace) -> list[tuple[str, str, tuple[str, ...]]]:
    """The one table of the source: name in the source, DB.TABLE and key."""
    return [(_name(arguments), arguments.table, listed_names(arguments.key))]


def _name(arguments: argparse.Namespace) -> str:
    name: str = arguments.name or arguments.table
    return name
