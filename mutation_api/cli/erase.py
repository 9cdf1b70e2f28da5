"""``hive-mutate erase``: erase the rows of people by key, and prove that no file holds the keys any more.

A deleted row stays in old files, in those of aborted transactions and in staged ones. This command finds the
rows of many keys in many tables and deletes them in one transaction. Then it compacts the partitions whose
files hold a key, waits until the server's cleaner has removed the old files, searches every file that is left
below the tables' locations, and writes a report that can be archived:

  hive-mutate erase --keys people.csv --map sales.orders:customer_id --map crm.contacts:id --report done.json

The key column of a table may be a partition column. Its keys come from the column with the same name in the
file, from the only column, or from the one after "=" (crm.contacts:email=mail). A key that a column cannot
hold is refused by name, and so is NULL.

The exit code is 0 only if every byte was searched and no key was found. After --wait it is 1, and the report
says what is in the way. Then run the same command again: it goes on where it stopped, even if it was
killed. With --dry-run the files are searched and the rows counted, and nothing is changed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json

import pyarrow as pa

from metastore_client.client import MetastoreClient
from mutation_api.cli.parsers import add_flag, describe, in_option_names
from mutation_api.cli.table_arguments import (
    add_format_argument,
    add_metastore_arguments,
    check_new_file,
    input_format,
    location_from,
    metastore_from,
)
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, progress, say_report
from mutation_api.errors import ConfigurationError
from mutation_api.hive.erasure import AT_ONCE_DEFAULT, ERASE_WAIT_SECONDS_DEFAULT, erase
from mutation_api.merge.arrow_change_files import ArrowFiles
from mutation_api.merge.file_rules import RowColumns, existing_file
from mutation_api.storage.connect import replacing, storage_at
from mutation_api.storage.local import without_links
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import TableRole
from mutation_api.transaction.catalog import Catalog, TableSpec, split_full_name

_OPTIONS = {
    "signature_key": "--signature-key",
    "compact": "--engine",
    "watermark_table": "--watermark-table",
    "keys": "--keys",
    "at_once": "--at-once",
    "columns": "--map",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    describe(parser, __doc__)
    parser.add_argument(
        "--keys", required=True, type=location_from, metavar="FILE", help="file of the keys, one row each"
    )
    add_format_argument(parser, "format of the file of keys (default: by its extension)")
    parser.add_argument(
        "--map",
        required=True,
        action="append",
        metavar="DB.TABLE:COLUMN[=FILECOLUMN]",
        help="table from which rows are erased, its key column, and the file's column with its keys "
        "(repeatable)",
    )
    parser.add_argument(
        "--report", type=location_from, metavar="FILE", help="write the report as JSON to this file"
    )
    parser.add_argument(
        "--signature-key",
        type=location_from,
        metavar="FILE",
        help="sign the report with this key: a private key of Ed25519 in PEM, or any file of at least 16 "
        "bytes as the secret of HMAC-SHA256 (default: the report is not signed)",
    )
    add_flag(parser, "--dry-run", "search and count, but change nothing")
    parser.add_argument(
        "--wait",
        type=float,
        default=ERASE_WAIT_SECONDS_DEFAULT,
        metavar="SECONDS",
        help="maximum time to wait for compactions and the server's cleaner, in seconds (default: "
        "%(default)g)",
    )
    parser.add_argument(
        "--engine",
        choices=("auto", "hive", "local"),
        default="auto",
        help="who compacts. hive: a worker of Hive; local: this machine, before Hive 4 past the server's "
        "queue, which requires that Hive's initiator is off; auto: this machine with Hive 4, otherwise Hive "
        "(default: auto)",
    )
    parser.add_argument(
        "--at-once",
        type=int,
        default=AT_ONCE_DEFAULT,
        metavar="N",
        help="number of partitions that this machine compacts at once (default: %(default)s)",
    )
    parser.add_argument(
        "--watermark-table",
        metavar="DB.TABLE",
        help="table of the journal; created if it does not exist (default: mutation_watermarks in the "
        "database of the first table by name)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="number of files to search at once (default: as many as the storage serves well)",
    )
    add_flag(parser, "--json", "print the report as one JSON object")
    add_flag(parser, "--quiet", "do not report each step on standard error")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Erase, and print the report. Return 0 if the keys are erased, or after a dry run, otherwise 1."""
    columns = _columns(arguments.map)
    file = existing_file(arguments.keys)
    if arguments.report is not None:
        check_new_file("--report", arguments.report)
    with in_option_names(_OPTIONS):
        signature_key = None if arguments.signature_key is None else _content(arguments.signature_key)
        with metastore_from(arguments) as metastore:
            keys = _keys(metastore, next(iter(columns)), file, arguments.format)
            report = erase(
                metastore,
                keys,
                columns,
                dry_run=arguments.dry_run,
                wait_seconds=arguments.wait,
                watermark_table=arguments.watermark_table,
                signature_key=signature_key,
                threads=arguments.threads,
                compact=arguments.engine,
                at_once=arguments.at_once,
                progress=progress(arguments),
            )
    text = json.dumps(report.to_dict(), indent=1, ensure_ascii=False)
    if arguments.report is not None:
        _save(arguments.report, text)
    say_report(report, as_json=arguments.json)
    return EXIT_OK if report.is_erased or arguments.dry_run else EXIT_FAILED


def _columns(maps: list[str]) -> dict[str, str | tuple[str, str]]:
    found: dict[str, str | tuple[str, str]] = {}
    for text in maps:
        table, colon, column = text.partition(":")
        column, equals, given = column.partition("=")
        if not (table and colon and column) or (equals and not given):
            raise ConfigurationError(
                f"--map {text!r}: expected DB.TABLE:COLUMN or DB.TABLE:COLUMN=FILECOLUMN"
            )
        if table in found:
            raise ConfigurationError(f"--map {text!r}: table {table} is given twice; it has one key column")
        found[table] = (column, given) if equals else column
    return found


def _keys(metastore: MetastoreClient, table: str, file: Location, format_name: str | None) -> pa.Table:
    """Return the rows of a file. CSV and JSON have strings, which each table parses as its own type."""
    described = Catalog(metastore).read(TableSpec(*split_full_name(table), TableRole.SOURCE)).table
    no_columns = dataclasses.replace(described, columns=(), partition_keys=())
    columns = RowColumns(no_columns, keeps_unknown=True)
    return ArrowFiles(columns).read(file, input_format(file, format_name)).read_all()


def _content(file: Location) -> bytes:
    try:
        with storage_at(file).open_input(file) as stream:
            content: bytes = stream.read()
    except OSError as error:
        raise ConfigurationError(f"--signature-key {file.shown}: it cannot be read: {error}") from error
    return content


def _save(file: Location, text: str) -> None:
    try:
        with replacing(without_links(file)) as stream:
            stream.write(pa.py_buffer(f"{text}\n".encode()))
    except OSError as error:
        raise ConfigurationError(f"--report {file.shown}: it cannot be written: {error}") from error
