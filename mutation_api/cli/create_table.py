"""``hive-mutate create-table``: create an ACID table that follows the rules of the server's Hive release.

Write columns as in a CREATE TABLE statement, with Hive's types: --schema "id bigint, item string". A Hive 2
server needs --clustered-by and --buckets. Hive 3 and later do not need them, and also support insert-only
tables. The table can also be used from Hive's SQL.
"""

from __future__ import annotations

import argparse

from metastore_client.model import ColumnInfo, TableInfo
from mutation_api.cli.parsers import add_flag, add_repeatable, describe
from mutation_api.cli.table_arguments import add_metastore_arguments, key_values, listed_names, metastore_from
from mutation_api.cli.terminal import say
from mutation_api.table.row_type import parse_columns
from mutation_api.upkeep.create_acid_table import create_acid_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    describe(parser, __doc__, fills_lines=True)
    parser.add_argument("table", metavar="DB.TABLE", help="table to create; its database must exist")
    parser.add_argument(
        "--schema",
        required=True,
        metavar="TEXT",
        help="data columns of the table, such as 'id bigint, msg string'",
    )
    parser.add_argument(
        "--partition-schema",
        default="",
        metavar="TEXT",
        help="partition columns of the table, such as 'ds string' (default: none)",
    )
    parser.add_argument("--clustered-by", default="", metavar="A,B", help="bucket columns (default: none)")
    parser.add_argument("--buckets", type=int, metavar="N", help="bucket count; required with --clustered-by")
    add_flag(parser, "--insert-only", "create a table that allows neither updates nor deletes")
    parser.add_argument(
        "--location", metavar="DIR", help="directory of the table (default: chosen by the server)"
    )
    add_repeatable(
        parser, "--property", "KEY=VALUE", "table property, such as orc.compress=SNAPPY (repeatable)"
    )
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Create the table and print its description."""
    with metastore_from(arguments) as metastore:
        created = create_acid_table(
            metastore,
            arguments.table,
            _columns(arguments.schema),
            _columns(arguments.partition_schema) if arguments.partition_schema.strip() else (),
            clustered_by=listed_names(arguments.clustered_by),
            num_buckets=arguments.buckets,
            insert_only=arguments.insert_only,
            location=arguments.location,
            properties=dict(key_values("--property", arguments.property)),
        )
    say(_described(created))
    return 0


def _columns(text: str) -> tuple[ColumnInfo, ...]:
    return tuple(ColumnInfo(column.name, column.type) for column in parse_columns(text))


def _described(table: TableInfo) -> str:
    parts = [f"created {table.full_name}, {len(table.columns)} columns"]
    if table.partition_keys:
        parts.append(f"partitioned by {', '.join(key.name for key in table.partition_keys)}")
    if table.bucket_columns:
        parts.append(f"clustered by {', '.join(table.bucket_columns)} into {table.num_buckets} buckets")
    return f"{', '.join(parts)}, at {table.location}"
