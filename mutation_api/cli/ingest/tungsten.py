r"""``hive-mutate ingest tungsten``: the staging files that Tungsten Replicator writes for Hadoop.

Files are STAGING/SERVICE/database/table/table-<number>.csv. Tables are named database.table, or just table if
only one database has it:

  hive-mutate ingest tungsten --staging /user/tungsten/staging --service alpha \
      --table hadoop.chicago=sales.chicago:id

A record consists of operation (I or D), sequence number, row id, commit timestamp, primary key, and the
table's columns. They are separated by 0x01, NULL is written as \N, and 0x01 and backslashes are escaped with
a backslash. Options describe other settings of the replicator. The columns are those of --columns, otherwise
those of --metadata, otherwise those of the Hive table in its order.

A file with an incomplete last record, or with a name that is not that of a staging file, stops the run before
anything is applied. Names that begin with "." or "_", or end with "._COPYING_", are ignored.

STAGING is on a disk that all Spark machines have mounted, on HDFS (hdfs://namenode/user/tungsten/staging) or
in an object store (s3a://bucket/staging).

To compare a table with a dump of the source afterwards:

  hive-mutate diff --table sales.chicago --key id --against dump.csv --summary
"""

from __future__ import annotations

import argparse
import re

from mutation_api.cdc.delimited_text import DelimitedText
from mutation_api.cdc.tungsten import TungstenSource
from mutation_api.cdc.tungsten_files import HEADER_DEFAULT, TEXT_DEFAULT, HeaderField
from mutation_api.cli.ingest.log_arguments import TABLE_MAP_FORM, add_binary_argument, table_map
from mutation_api.cli.parsers import add_repeatable
from mutation_api.cli.table_arguments import listed_names, location_from
from mutation_api.errors import ConfigurationError
from mutation_api.format.text_values import BinaryEncoding

_ESCAPED = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[nrt])")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this kind of source."""
    parser.add_argument(
        "--staging",
        required=True,
        type=location_from,
        metavar="DIR",
        help="directory of all replication services",
    )
    parser.add_argument(
        "--service", required=True, help="replication service, which is a directory in STAGING"
    )
    add_repeatable(
        parser,
        "--table",
        TABLE_MAP_FORM,
        "source table, Hive table to apply its changes to, and primary key (default: that of "
        "--metadata; repeatable)",
        type=table_map,
    )
    parser.add_argument(
        "--metadata",
        type=location_from,
        metavar="FILE",
        help="JSON file of Tungsten's Hadoop tools with columns and keys",
    )
    add_repeatable(
        parser,
        "--columns",
        "NAME=A,B,…",
        "columns of a table in the order of its files (repeatable)",
        type=_pair,
    )
    add_repeatable(
        parser,
        "--commit-column",
        "COLUMN[=FORMAT]",
        "column of the Hive tables that is filled from the commit timestamp, with its strftime format, "
        "such as ds=%%Y-%%m-%%d (repeatable)",
    )
    add_binary_argument(parser)
    _add_text_arguments(parser)


def _add_text_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how records are written (\\x01, \\n and similar escapes are accepted)")
    header = ",".join(each.value for each in HEADER_DEFAULT)
    known = ", ".join(each.value for each in HeaderField)
    group.add_argument(
        "--header",
        default=header,
        metavar="FIELD,…",
        help=f"fields before the columns: {known} (default: {header})",
    )
    defaults = {
        "field-separator": (TEXT_DEFAULT.field_separator, "character between fields"),
        "record-end": (TEXT_DEFAULT.record_end, "character after each record"),
        "null": (TEXT_DEFAULT.null, "string that represents NULL"),
        "escape": (TEXT_DEFAULT.escape or "", "character before an escaped character"),
    }
    for name, (default, what) in defaults.items():
        shown = ascii(default)[1:-1].replace("\\\\", "\\")
        group.add_argument(f"--{name}", default=default, type=_characters, help=f"{what} (default: {shown})")
    group.add_argument(
        "--quote", type=_characters, default="", help="character that encloses values (default: none)"
    )


def source_from(arguments: argparse.Namespace) -> TungstenSource:
    """Return the source. Raises ConfigurationError if arguments are invalid."""
    text = DelimitedText(
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
        binary=BinaryEncoding(arguments.binary) if arguments.binary else None,
    )


def full_name(arguments: argparse.Namespace, name: str) -> str:
    """Return the name of a table in the source. Raises ConfigurationError if the source lacks it."""
    return source_from(arguments).full_name(name)


def tables_from(arguments: argparse.Namespace) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the full name in the source, DB.TABLE and key of each table, however --table names it.

    Raises:
        ConfigurationError: If the source lacks a table, or --columns names a table that --table does not.
    """
    source = source_from(arguments)
    tables = [(source.full_name(name), target, key) for name, target, key in arguments.table]
    kept = [name for name, _, _ in (*arguments.history, *arguments.changes) if name is not None]
    followed = [*(name for name, _, _ in tables), *map(source.full_name, kept)]
    unknown = [name for name in source.columns if source.full_name(name) not in followed]
    if unknown:
        raise ConfigurationError(
            f"--columns names {', '.join(unknown)}, but --table names {', '.join(followed)}"
        )
    return tables


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (name and separator and value):
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=VALUE")
    return name, value


def _header(text: str) -> tuple[HeaderField, ...]:
    try:
        return tuple(HeaderField(name) for name in listed_names(text))
    except ValueError as error:
        known = ", ".join(each.value for each in HeaderField)
        raise ConfigurationError(f"--header {text}: {error}; expected fields among {known}") from error


def _characters(text: str) -> str:
    r"""Return literal characters, with the escapes of Tungsten's manual: ``\x01``, ``\u0001``, ``\n``."""
    return _ESCAPED.sub(lambda found: found[0].encode().decode("unicode_escape"), text)
