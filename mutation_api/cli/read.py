"""``hive-mutate read``: print or save the rows of a table, with or without a metastore.

The command reads in this process, without Spark. With a metastore, it holds a read lock while it reads. With
``--location`` it reads a directory without a metastore.

``--json`` prints one object per line: ``{"partition": {"ds": "x"}, "ROW__ID": {"writeid": 7, "bucketid": 0,
"rowid": 1}, "row": {"id": 1, "msg": "a"}}`` (``transactionid`` in tables of Hive 2). ``partition`` is
present only for partitioned tables, and ``ROW__ID`` only with ``--row-ids``. Values have the format described
in :mod:`mutation_api.format.json_values`. A file that ``--output`` writes also contains the partition
columns, and ROW__ID in the form that ``hive-mutate apply`` reads. DIR and FILE are local paths, or locations
such as hdfs://namenode/directory and s3a://bucket/directory/file.parquet. FILE appears when it is complete,
and replaces an existing file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mutation_api.cli.parsers import add_flag, add_repeatable, in_option_names, option_names
from mutation_api.cli.table_arguments import (
    DIRECTORY_OPTIONS,
    add_directory_arguments,
    add_lock_timeout_argument,
    add_metastore_arguments,
    add_output_argument,
    check_directory_usage,
    directory_from,
    key_values,
    listed_names,
    metastore_from,
    output_format,
    point_in_time,
    reading_client,
)
from mutation_api.cli.terminal import say, text_table
from mutation_api.format.event import PARTITION_FIELD, ROW_ID_COLUMN
from mutation_api.format.json_values import cell_text
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.read.export import export_rows, row_objects
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import TableView, open_table
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.row_type import named_data_columns

_WIDTH_SAMPLE_ROWS = 1000
"""The number of rows that determine the column widths of the printed table."""

_OPTIONS = {
    **DIRECTORY_OPTIONS,
    **option_names("where_partition", "as_of"),
    "truncate_nanoseconds=True": "--truncate-nanoseconds",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("table", nargs="?", metavar="DB.TABLE", help="table of the metastore to read")
    add_metastore_arguments(parser)
    add_lock_timeout_argument(parser, "another client's exclusive lock on the table, such as that of DDL")
    add_directory_arguments(parser)
    _add_row_arguments(parser.add_argument_group("what to show"))


def _add_row_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--columns", metavar="A,B", help="data columns to read (default: all)")
    add_repeatable(
        group,
        "--where-partition",
        "KEY=VALUE",
        "read only partitions with this value; all conditions must be true (repeatable)",
    )
    add_flag(group, "--row-ids", "also show ROW__ID")
    group.add_argument(
        "--as-of",
        type=point_in_time,
        metavar="ID|TIME",
        help="show the table as it was at a write id (Hive 2: transaction id), or at a time such as "
        "2026-03-01T12:00:00Z; a major compaction removes earlier states (default: as it is now)",
    )
    group.add_argument("--limit", type=int, metavar="N", help="stop after N rows (default: all rows)")
    add_flag(group, "--json", "print one JSON object per line")
    add_output_argument(
        group, "save the rows to a .csv, .json, .parquet or .orc file instead of printing them"
    )
    add_flag(
        group,
        "--truncate-nanoseconds",
        "cut timestamps to microseconds in Parquet and ORC output (default: refuse finer timestamps)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print or save the rows. Return 0 when all are read."""
    _check_usage(arguments)
    file_format = None if arguments.output is None else output_format(arguments.output)
    with in_option_names(_OPTIONS), _view(arguments) as view:
        scan = _scan(view, arguments)
        if file_format is not None:
            export_rows(scan, arguments.output, file_format)
            return 0
        for line in _json_lines(scan) if arguments.json else _table_lines(scan):
            say(line)
    return 0


def _check_usage(arguments: argparse.Namespace) -> None:
    refuse: Callable[[str], None] = arguments.refuse_usage
    check_directory_usage(arguments)
    if arguments.location is not None and arguments.as_of is not None:
        refuse("--as-of can only be used with DB.TABLE; with --location, use --valid-write-ids instead")
    if arguments.json and arguments.output:
        refuse("--json prints rows and --output saves them: use only one of the two")
    for name in ("limit", "buckets"):
        value = getattr(arguments, name)
        if value is not None and value < (name == "buckets"):
            refuse(f"--{name} {value} is too small: at least {int(name == 'buckets')} is required")


@contextlib.contextmanager
def _view(arguments: argparse.Namespace) -> Iterator[TableView]:
    if arguments.location is not None:
        yield directory_from(arguments)
        return
    with (
        metastore_from(arguments) as metastore,
        reading_client(metastore, arguments) as client,
    ):
        if arguments.as_of is None:
            yield open_table(client.open_snapshot(arguments.table), arguments.table)
        else:
            past = client.open_snapshot(arguments.table, as_of=arguments.as_of)
            yield open_table(past, arguments.table)


def _scan(view: TableView, arguments: argparse.Namespace) -> TableScan:
    return TableScan(
        view,
        columns=_columns(view.table, arguments.columns),
        where_partition=key_values("--where-partition", arguments.where_partition),
        row_ids=arguments.row_ids,
        limit=arguments.limit,
        timestamps=TimestampForm.TEXT,
        truncate_nanoseconds=arguments.truncate_nanoseconds,
    )


def _columns(table: AcidTable, text: str | None) -> list[str] | None:
    """Return the data columns of ``--columns``, and the partition columns, which are always shown."""
    if text is None:
        return None
    names = [column.name for column in named_data_columns(table, listed_names(text))]
    return [*names, *table.partition_key_names]


def _json_lines(scan: TableScan) -> Iterator[str]:
    keys = scan.view.table.partition_key_names
    for _, rows in scan.by_partition():
        for row in row_objects(scan, rows):
            head: dict[str, Any] = {}
            if keys:
                head["partition"] = {key: row.pop(key) for key in keys}
            if scan.row_ids:
                row_id = row.pop(ROW_ID_COLUMN)
                head[ROW_ID_COLUMN] = {n: value for n, value in row_id.items() if n != PARTITION_FIELD}
            yield json.dumps({**head, "row": row}, ensure_ascii=False, allow_nan=False)


def _table_lines(scan: TableScan) -> Iterator[str]:
    rows = (_cells(row) for _, batch in scan.by_partition() for row in row_objects(scan, batch))
    count = -1
    for line in text_table(scan.schema.names, rows, sample=_WIDTH_SAMPLE_ROWS):
        yield line
        count += 1
    yield f"({count} {'row' if count == 1 else 'rows'})"


def _cells(row: Mapping[str, Any]) -> list[str]:
    values = dict(row)
    row_id = values.pop(ROW_ID_COLUMN, None)
    ids = [] if row_id is None else [",".join(str(n) for n in list(row_id.values())[:3])]
    return ids + ["NULL" if value is None else str(cell_text(value)) for value in values.values()]
