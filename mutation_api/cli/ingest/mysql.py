"""``hive-mutate ingest mysql``: tables of a MySQL or MariaDB server.

A new table is first read completely, with SELECT; from then on its changes come from the server's binary log:

  hive-mutate ingest mysql --source mysql://reader@db.example/shop --tables orders,customers --database sales

reads shop.orders and shop.customers into sales.orders and sales.customers. The password comes from the
environment variable HIVE_MUTATE_MYSQL_PASSWORD, or from an option file of MySQL's programs.

The server must log rows: log_bin, binlog_format=ROW, binlog_row_image=FULL and binlog_row_metadata=FULL. The
account needs SELECT on the tables, REPLICATION SLAVE, and REPLICATION CLIENT (MariaDB: BINLOG MONITOR). Each
table needs a primary key, or a unique key without NULL. The documentation of
mutation_api.cdc.mysql.column_types says what each type becomes.

A column that was added at the source (ALTER TABLE … ADD COLUMN), and is NULL in the rows of before: add it
to the Hive table, or name it with --ignore-column. Until then each run is refused; the next one then goes on,
and needs no --seen-to.

Any other statement that changes rows or columns without row events stops the run at the statement: TRUNCATE,
DROP TABLE, RENAME, an ALTER TABLE that changes or drops a column, or adds one that has a value in the rows of
before (NOT NULL, DEFAULT, …), and a statement that a session logged in place of rows. Everything before it is
applied and committed, nothing behind it, and the command fails with the statement and its position. Do the
same to the Hive table, then pass the position to --seen-to; or read the table whole again with --recopy.
Indexes, comments, views and the like stop nothing.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from mutation_api.cdc.mysql.column_types import TIME_ZONE_DEFAULT, ZERO_DATES, ZERO_DATES_DEFAULT
from mutation_api.cdc.mysql.mysql_source import MySqlSource
from mutation_api.cdc.mysql.server import PASSWORD_VARIABLE, PORT_DEFAULT, MySqlAddress, driver_options
from mutation_api.cdc.source_url import SourceUrl
from mutation_api.cli.ingest.log_arguments import TABLE_MAP_FORM, table_map
from mutation_api.cli.table_arguments import listed_names, location_from
from mutation_api.errors import ConfigurationError

__all__ = ["PASSWORD_VARIABLE", "add_arguments", "source_from", "tables_from"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this kind of source."""
    parser.add_argument(
        "--source", required=True, metavar="mysql://USER@HOST[:PORT]/DATABASE", help="the server's database"
    )
    tables = parser.add_argument_group("tables, at least one")
    tables.add_argument(
        "--tables",
        default="",
        metavar="A,B",
        help="tables of the source; tables of the same names in --database follow them",
    )
    tables.add_argument(
        "--database",
        metavar="DB",
        help="the Hive database of --tables (default: the name of the source's database)",
    )
    tables.add_argument(
        "--table",
        action="append",
        default=[],
        type=table_map,
        metavar=TABLE_MAP_FORM,
        help="table of the source, the table that follows it, and its key columns (default: the primary key, "
        "or a unique one); may be repeated",
    )
    tables.add_argument(
        "--ignore-column",
        action="append",
        default=[],
        metavar="NAME.COLUMN",
        help="a column that only one side has: one of the source is left out, one of Hive becomes NULL in "
        "rows that change (repeatable)",
    )
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
        help="zone in which a TIMESTAMP of the source becomes a wall clock time (default: %(default)s)",
    )
    parser.add_argument(
        "--zero-dates",
        choices=ZERO_DATES,
        default=ZERO_DATES_DEFAULT,
        help="how 0000-00-00 and similar dates are read: refused, or as NULL (default: %(default)s)",
    )
    parser.add_argument(
        "--seen-to",
        action="append",
        default=[],
        metavar="FILE:OFFSET",
        help="position, from the message, of a statement that changed rows or columns and was carried out in "
        "Hive by hand (repeatable)",
    )
    parser.add_argument(
        "--recopy",
        default="",
        metavar="A,B",
        help="tables of the source that are read whole again; their rows replace those in Hive, whatever "
        "the log or the watermarks say",
    )
    parser.add_argument(
        "--spill",
        type=location_from,
        metavar="DIR",
        help="directory of rows until they are applied, such as hdfs:///tmp; all of Spark's machines must "
        "read it (default: the folder for temporary files, for Spark on one machine)",
    )


def source_from(arguments: argparse.Namespace) -> MySqlSource:
    """The server that the arguments name. Raises ConfigurationError."""
    if arguments.recopy and arguments.follow is not None:
        arguments.refuse_usage("--recopy reads a table whole in each run, so it does not go with --follow")
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
    """Each table: (table of the source, DB.TABLE that follows it, key columns). Raises ConfigurationError."""
    database = arguments.database or _address(arguments)[1]
    names = listed_names(arguments.tables)
    tables = [*[(name, f"{database}.{name.lower()}", ()) for name in names], *arguments.table]
    if not tables:
        raise ConfigurationError("name at least one table, with --tables or --table")
    return tables


def _address(arguments: argparse.Namespace) -> tuple[MySqlAddress, str]:
    form = "mysql://USER@HOST[:PORT]/DATABASE"
    url = SourceUrl.of(
        arguments.source,
        what=f"--source, expected {form},",
        because="since other users can see a program's arguments: give it in the environment variable "
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
        raise ConfigurationError(f"{option}: there is no file {path.absolute()}")
    return path
