r"""``hive-mutate ingest tungsten``: the staging files that Tungsten Replicator writes for Hadoop.

Files are STAGING/SERVICE/database/table/table-<number>.csv. Tables are named database.table, or table if only
one database has it:

  hive-mutate ingest tungsten --staging /user/tungsten/staging --service alpha \
      --table hadoop.chicago=sales.chicago:id

A record is: operation (I or D), sequence number, row id, commit timestamp, primary key, then the table's
columns, separated by 0x01, with \N for NULL and backslashes before 0x01 and backslashes. Options describe
other settings of the replicator. Columns are those of --columns, else of --metadata, else of the Hive table,
in that order.

A file with an incomplete last record, or with a name that is not a staging file's, stops the run before
anything is applied. Names that begin with "." or "_", or end with "._COPYING_", are ignored.

STAGING is on a disk that all of Spark's machines have mounted, on HDFS
(hdfs://namenode/user/tungsten/staging) or in an object store (s3a://bucket/staging).

To check a table against a dump of the source afterwards:

  hive-mutate diff --table sales.chicago --key id --against dump.csv --summary
"""

from __future__ import annotations

import argparse
import re

from mutation_api.cdc.separated_text import SeparatedText
from mutation_api.cdc.tungsten import TungstenSource
from mutation_api.cdc.tungsten_files import HEADER_DEFAULT, TEXT_DEFAULT, HeaderField
from mutation_api.cli.ingest.log_arguments import TABLE_MAP_FORM, table_map
from mutation_api.cli.table_arguments import listed_names, location_from
from mutation_api.errors import ConfigurationError
from mutation_api.format.text_values import BinaryText

__all__ = ["add_arguments", "source_from", "tables_from"]

_ESCAPED = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[nrt])")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this kind of source."""
    parser.add_argument(
        "--staging", required=True, type=location_from, metavar="DIR", help="folder of all services"
    )
    parser.add_argument("--service", required=True, help="the replication service, a folder in it")
    parser.add_argument(
        "--table",
        required=True,
        action="append",
        type=table_map,
        metavar=TABLE_MAP_FORM,
        help="table of the source, the table that follows it, and the primary key (default: that of "
        "--metadata); may be repeated",
    )
    parser.add_argument(
        "--metadata",
        type=location_from,
        metavar="FILE",
        help="JSON of Tungsten's Hadoop tools: columns and keys",
    )
    parser.add_argument(
        "--columns",
        action="append",
        default=[],
        type=_pair,
        metavar="NAME=A,B,…",
        help="a table's columns in the order of its files; may be repeated",
    )
    parser.add_argument(
        "--commit-column",
        action="append",
        default=[],
        metavar="COLUMN[=FORMAT]",
        help="a column of the Hive tables that comes from the commit timestamp, and its strftime format, "
        "such as ds=%%Y-%%m-%%d; may be repeated",
    )
    parser.add_argument(
        "--binary",
        choices=[form.value for form in BinaryText],
        help="how the files write binary columns; needed if there are any",
    )
    _add_text_arguments(parser)


def _add_text_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how records are written (\\x01, \\n and the like are understood)")
    header = ",".join(each.value for each in HEADER_DEFAULT)
    known = ", ".join(each.value for each in HeaderField)
    group.add_argument(
        "--header",
        default=header,
        metavar="FIELD,…",
        help=f"fields before the columns, of {known} (default: {header})",
    )
    defaults = {
        "field-separator": TEXT_DEFAULT.field_separator,
        "record-end": TEXT_DEFAULT.record_end,
        "null": TEXT_DEFAULT.null,
        "escape": TEXT_DEFAULT.escape or "",
    }
    for name, default in defaults.items():
        shown = ascii(default)[1:-1].replace("\\\\", "\\")
        group.add_argument(f"--{name}", default=default, type=_characters, help=f"default: {shown}")
    group.add_argument("--quote", type=_characters, default="", help="encloses values (default: none)")


def source_from(arguments: argparse.Namespace) -> TungstenSource:
    """The source. Raises ConfigurationError if arguments are invalid."""
    text = SeparatedText(
        arguments.field_separator,
        arguments.record_end,
        arguments.null,
        arguments.escape or None,
        arguments.quote or None,
    )
    commit = [column.partition("=") for column in arguments.commit_column]
    return TungstenSource(
        arguments.staging,
        arguments.service,
        text=text,
        header=_header(arguments.header),
        columns={name: listed_names(columns) for name, columns in arguments.columns},
        metadata=arguments.metadata,
        commit_columns={column: chosen or None for column, _, chosen in commit},
        binary=BinaryText(arguments.binary) if arguments.binary else None,
    )


def tables_from(arguments: argparse.Namespace) -> list[tuple[str, str, tuple[str, ...]]]:
    """Full name in the source, DB.TABLE and key of each table; the full name is always the same.

    Raises:
        ConfigurationError: the source lacks a table, or --columns names a table that --table does not.
    """
    source = source_from(arguments)
    tables = [(source.full_name(name), target, key) for name, target, key in arguments.table]
    followed = [name for name, _, _ in tables]
    unknown = [name for name in source.columns if source.full_name(name) not in followed]
    if unknown:
        raise ConfigurationError(
            f"--columns names {', '.join(unknown)}, but --table names {', '.join(followed)}"
        )
    return tables


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (name and separator and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _header(text: str) -> tuple[HeaderField, ...]:
    try:
        return tuple(HeaderField(name) for name in listed_names(text))
    except ValueError as error:
        known = ", ".join(each.value for each in HeaderField)
        raise ConfigurationError(f"--header {text}: {error}; fields are {known}") from error


def _characters(text: str) -> str:
    r"""Literal characters, or escapes as in the manual of Tungsten: ``\x01``, ``\u0001``, ``\n``."""
    return _ESCAPED.sub(lambda found: found[0].encode().decode("unicode_escape"), text)
