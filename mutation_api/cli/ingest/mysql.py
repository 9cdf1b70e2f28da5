"""``hive-mutate ingest mysql``: tables of a MySQL or MariaDB server.

A new table is first read completely with SELECT. From then on its changes are read from the server's binary
log:

  hive-mutate ingest mysql --source mysql://reader@db.example/shop --tables orders,customers --database sales

This reads shop.orders and shop.customers into sales.orders and sales.customers. The password is read from the
environment variable HIVE_MUTATE_MYSQL_PASSWORD, or from an option file of MySQL's programs.

The server must log rows: log_bin, binlog_format=ROW, binlog_row_image=FULL and binlog_row_metadata=FULL. The
account needs SELECT on the tables, REPLICATION SLAVE, and REPLICATION CLIENT (MariaDB: BINLOG MONITOR). Each
table needs a primary key, or a unique key without NULL. The documentation of
mutation_api.cdc.mysql.column_types describes the conversion of each type.

If a column was added at the source (ALTER TABLE … ADD COLUMN) and is NULL in the existing rows, add it to the
Hive table, or name it with --ignore-column. Until then each run is refused; the next run continues without
--seen-to. With --schema add, the run itself adds it to the Hive table.

Any other statement that changes rows or columns without row events stops the run at the statement. These are
TRUNCATE, DROP TABLE, RENAME, an ALTER TABLE that changes or drops a column or adds one with a value in the
existing rows (NOT NULL, DEFAULT, …), and a statement that a session logged instead of rows. Everything before
it is applied and committed, but nothing after it. The command fails with the statement and its position. Make
the same change to the Hive table, then pass the position to --seen-to; or read the whole table again with
--recopy. Statements about indexes, comments, views and similar objects do not stop a run.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from mutation_api.cdc.mysql.column_types import TIME_ZONE_DEFAULT, ZERO_DATES, ZERO_DATES_DEFAULT
from mutation_api.cdc.mysql.mysql_source import MySqlSource
from mutation_api.cdc.mysql.server import PASSWORD_VARIABLE, PORT_DEFAULT, MySqlAddress, driver_options
from mutation_api.cdc.source_url import SourceUrl
from mutation_api.cli.ingest.log_arguments import (
    TABLE_MAP_FORM,
    add_source_schema_argument,
    add_spill_argument,
    table_map,
)
from mutation_api.cli.parsers import add_repeatable
from mutation_api.cli.table_arguments import listed_names
from mutation_api.errors import ConfigurationError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this kind of source."""
    parser.add_argument(
        "--source",
        required=True,
        metavar="mysql://USER@HOST[:PORT]/DATABASE",
        help="server and database to read from",
    )
    tables = parser.add_argument_group("tables (at least one is required)")
    tables.add_argument(
        "--tables",
        default="",
        metavar="A,B",
        help="source tables to apply to the Hive tables with the same names in --database",
    )
    tables.add_argument(
        "--database",
        metavar="DB",
        help="Hive database for --tables (default: the name of the source's database)",
    )
    add_repeatable(
        tables,
        "--table",
        TABLE_MAP_FORM,
        "source table, Hive table to apply its changes to, and key columns (default: the primary key, "
        "or a unique one; repeatable)",
        type=table_map,
    )
    add_repeatable(
        tables,
        "--ignore-column",
        "NAME.COLUMN",
        "column that only one side has: a column of the source is left out, and one of Hive becomes "
        "NULL in rows that change (repeatable)",
    )
    add_source_schema_argument(tables, "the source has")
    parser.add_argument(
        "--option-file", type=Path, metavar="FILE", help="option file with the password, under [client]"
    )
    parser.add_argument(
        "--ssl-ca",
        type=Path,
        metavar="FILE",
        help="certificate authority that must have signed the server's certificate",
    )
    parser.add_argument(
        "--time-zone",
        default=TIME_ZONE_DEFAULT,
        metavar="ZONE",
        help="time zone used to convert TIMESTAMP columns to Hive timestamps (default: %(default)s)",
    )
    parser.add_argument(
        "--zero-dates",
        choices=ZERO_DATES,
        default=ZERO_DATES_DEFAULT,
        help="handling of dates such as 0000-00-00: refuse them, or store NULL (default: %(default)s)",
    )
    add_repeatable(
        parser,
        "--seen-to",
        "FILE:OFFSET",
        "position, as in the error message, of a statement that you have carried out in Hive by hand "
        "(repeatable)",
    )
    parser.add_argument(
        "--recopy",
        default="",
        metavar="A,B",
        help="source tables to copy again as a whole, regardless of the log and the watermarks; their rows "
        "replace those in Hive",
    )
    add_spill_argument(parser, "rows")


def source_from(arguments: argparse.Namespace) -> MySqlSource:
    """Return the server that the arguments name. Raises ConfigurationError if they are invalid."""
    if arguments.recopy and arguments.follow is not None:
        arguments.refuse_usage(
            "--recopy reads whole tables in each run, so it cannot be combined with --follow"
        )
    address, database = _address(arguments)
    return MySqlSource(
        address,
        database,
        time_zone=arguments.time_zone,
        zero_dates=arguments.zero_dates,
        ignored_columns=arguments.ignore_column,
        seen_to=arguments.seen_to,
        recopy=listed_names(arguments.recopy),
        spill_directory=arguments.spill,
    )


def tables_from(arguments: argparse.Namespace) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return (source table, DB.TABLE, key columns) per table."""
    database = arguments.database or _address(arguments)[1]
    names = listed_names(arguments.tables)
    return [*[(name, f"{database}.{name.lower()}", ()) for name in names], *arguments.table]


def _address(arguments: argparse.Namespace) -> tuple[MySqlAddress, str]:
    form = "mysql://USER@HOST[:PORT]/DATABASE"
    url = SourceUrl.of(
        arguments.source,
        what=f"--source, expected {form},",
        because="since other users can see a program's arguments. Pass it in the environment variable "
        f"{PASSWORD_VARIABLE}, or with --option-file",
        kinds=("mysql", "mariadb"),
    )
    if not (url.host and url.user):
        raise ConfigurationError(f"--source {url}: expected {form}")
    options = driver_options(url)
    if arguments.option_file is not None:
        options["read_default_file"] = str(_existing(arguments.option_file, "--option-file"))
    if arguments.ssl_ca is not None:
        options["ssl_ca"] = str(_existing(arguments.ssl_ca, "--ssl-ca"))
        options["ssl_verify_cert"] = options["ssl_verify_identity"] = True
    password = os.environ.get(PASSWORD_VARIABLE, "")
    return MySqlAddress(url.host, url.user, password, url.port or PORT_DEFAULT, options), url.database


def _existing(path: Path, option: str) -> Path:
    if not path.is_file():
        raise ConfigurationError(f"{option}: the file {path.absolute()} does not exist")
    return path
