"""``hive-mutate merge``: bring a table up to the rows of files, matched by key, in one transaction.

Rows of the files whose key the table has update the row there; the others are inserted. The options restrict
that, or delete rows. Conditions are SQL; a column without "source." or "target." before it is one of the
files, in --delete-missing-when one of the table:

  hive-mutate merge --table travel.airports --key icao --source changes.csv --delete-when "op = 'D'"

A row for which --delete-when holds is never inserted. The files have the table's columns, partition columns
included, in any order and case; what a file lacks becomes NULL on insert and stays as it is on update. Other
columns are read as text in CSV and JSON, and are allowed only if a condition reads them.

CSV and JSON are read with the table's types. A text that is no value of its column's type is refused, naming
the column and the row; it never becomes NULL. An empty CSV field is NULL, a quoted empty one ("") the empty
text.

Files lie on a local disk or where Spark reads, such as hdfs://namenode/changes.csv or s3a://bucket/changes.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession

from mutation_api.changes.clauses import SOURCE, TARGET
from mutation_api.changes.duplicates import first_by
from mutation_api.changes.merge import MergeInto, merge_into
from mutation_api.changes.merge_report import MergeReport
from mutation_api.changes.short_names import names_side, with_sides
from mutation_api.cli.arguments.locations import place
from mutation_api.cli.arguments.metastore_arguments import (
    ReportLoss,
    add_metastore_arguments,
    add_write_lock_argument,
    metastore_from,
)
from mutation_api.cli.arguments.spark_session import spark_session
from mutation_api.cli.arguments.table_files import FORMATS, TableFiles, existing_file, file_format
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.client.catalog import split_full_name
from mutation_api.client.transaction import Transaction
from mutation_api.errors import ConfigurationError
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable

__all__ = ["add_arguments", "key_columns", "run"]

APP_NAME = "hive-mutate merge"

_ORDER = re.compile(
    r"(?P<value>.+?)(?:\s+(?P<order>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?", re.I | re.S
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``hive-mutate merge``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (__doc__ or "").partition("\n\n")[2]
    parser.set_defaults(refuse_usage=parser.error)
    parser.add_argument("--table", required=True, metavar="DB.TABLE", help="the table to change")
    parser.add_argument("--key", required=True, metavar="A,B", help="columns by which rows are matched")
    parser.add_argument(
        "--source",
        required=True,
        action="append",
        type=place,
        metavar="FILE",
        help="file or folder of rows; may be repeated, all with the same columns",
    )
    parser.add_argument(
        "--format", choices=FORMATS, help="format of the files (default: by each file's extension)"
    )
    clauses = parser.add_argument_group("what happens to rows")
    clauses.add_argument("--delete-when", metavar="SQL", help="delete matched rows for which this holds")
    clauses.add_argument("--update-when", metavar="SQL", help="update only matched rows for which this holds")
    clauses.add_argument("--no-update", action="store_true", help="leave matched rows as they are")
    clauses.add_argument("--insert-when", metavar="SQL", help="insert only rows for which this holds")
    clauses.add_argument("--no-insert", action="store_true", help="insert no rows")
    clauses.add_argument(
        "--delete-missing-when", metavar="SQL", help="delete rows of the table alone for which this holds"
    )
    clauses.add_argument(
        "--delete-missing", action="store_true", help="delete all rows of the table that no file has"
    )
    clauses.add_argument(
        "--first-by",
        action="append",
        default=[],
        metavar="SQL",
        help="of several rows of one key the first counts in this order, such as 'updated DESC' (default: "
        "they are an error); may be repeated",
    )
    clauses.add_argument(
        "--null-safe", action="store_true", help="let NULL keys be equal (in SQL they are not)"
    )
    clauses.add_argument(
        "--missing-columns",
        choices=("null", "error"),
        default="null",
        help="columns that the files lack: NULL on insert and kept on update (null, the default), or refused",
    )
    clauses.add_argument(
        "--write-unchanged",
        action="store_true",
        help="also write rows that an update leaves as they were, without comparing them",
    )
    parser.add_argument(
        "--all-buckets",
        action="store_true",
        help="also read buckets to which no key hashes, for tables with rows in other buckets than their "
        "values tell",
    )
    parser.add_argument(
        "--create-partitions",
        action="store_true",
        help="create partitions that do not exist (default: refuse)",
    )
    add_write_lock_argument(parser)
    parser.add_argument("--dry-run", action="store_true", help="report what would be done, write nothing")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Merge and print the report; 0 when the transaction is committed, or aborted after a dry run."""
    _check_usage(arguments)
    files = [existing_file(file) for file in arguments.source]
    for file in files:
        file_format(file, arguments.format)
    names = split_full_name(arguments.table)
    builder = MutatorClientBuilder().lock_failure_listener(ReportLoss()).write_lock(arguments.write_lock)
    builder.add_sink_table(*names, create_partitions=arguments.create_partitions)
    with (
        metastore_from(arguments) as metastore,
        builder.metastore(metastore).build() as client,
        spark_session(APP_NAME) as spark,
    ):
        with client.new_transaction() as transaction:
            report = _merged(spark, transaction, files, arguments)
        print(json.dumps(report.to_dict()) if arguments.json else report)
    return 0


def key_columns(text: str) -> list[str]:
    """The names in ``a,b``. Raises ConfigurationError if there are none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigurationError("--key: name at least one column")
    return names


def _check_usage(arguments: argparse.Namespace) -> None:
    refuse: Callable[[str], None] = arguments.refuse_usage
    for action in ("update", "insert"):
        if getattr(arguments, f"no_{action}") and getattr(arguments, f"{action}_when") is not None:
            refuse(f"give either --no-{action} or --{action}-when")
    if arguments.delete_missing and arguments.delete_missing_when is not None:
        refuse("give either --delete-missing or --delete-missing-when")
    deletes = arguments.delete_missing or arguments.delete_missing_when or arguments.delete_when
    if arguments.no_update and arguments.no_insert and not deletes:
        refuse("--no-update and --no-insert leave nothing to do")


def _merged(
    spark: SparkSession, transaction: Transaction, files: list[Location], arguments: argparse.Namespace
) -> MergeReport:
    table = transaction.table(arguments.table)
    with translated_worker_errors(f"merging into {table.full_name}"):
        source = TableFiles(spark, table, keeps_unknown=True).read_all(files, arguments.format)
        merge = _described(transaction, table, source, arguments)
        if not arguments.dry_run:
            return merge.merge()
        report = merge.dry_run()
    transaction.abort()
    return report


def _described(
    transaction: Transaction, table: AcidTable, source: DataFrame, arguments: argparse.Namespace
) -> MergeInto:
    names = _Names(source.sparkSession, source.columns, (*table.column_names, *table.partition_key_names))
    delete_when = names.of_both(arguments.delete_when)
    merge = merge_into(
        transaction,
        table.full_name,
        source=source,
        on=key_columns(arguments.key),
        null_safe=arguments.null_safe,
        on_duplicate=first_by(*map(names.order, arguments.first_by)) if arguments.first_by else "error",
        missing_columns=arguments.missing_columns,
        write_unchanged=arguments.write_unchanged,
        prune_buckets=not arguments.all_buckets,
    )
    if delete_when is not None:
        merge.whenMatched(delete_when).delete()
    if not arguments.no_update:
        merge.whenMatched(names.of_both(arguments.update_when)).updateAll()
    if not arguments.no_insert:
        merge.whenNotMatched(names.inserted(delete_when, arguments.insert_when)).insertAll()
    if arguments.delete_missing or arguments.delete_missing_when is not None:
        merge.whenNotMatchedBySource(names.of_target(arguments.delete_missing_when)).delete()
    return merge


@dataclass(frozen=True)
class _Names:
    """Puts the side before the names of columns that lack it; what both sides have is the source's."""

    spark: SparkSession
    source: Sequence[str]
    target: Sequence[str]

    def of_both(self, condition: str | None) -> str | None:
        return self._with_sides(condition, {**self._all(TARGET), **self._all(SOURCE)})

    def of_target(self, condition: str | None) -> str | None:
        return self._with_sides(condition, self._all(TARGET))

    def inserted(self, delete_when: str | None, insert_when: str | None) -> str | None:
        """Which unmatched rows are inserted: none that say that their row is gone."""
        wanted = self._with_sides(insert_when, self._all(SOURCE))
        if delete_when is None:
            return wanted
        if names_side(self.spark, delete_when, TARGET):
            if wanted is None:
                raise ConfigurationError(
                    f"--delete-when {delete_when!r} reads the table's row, which a row to be inserted "
                    "does not have: say with --insert-when which rows are inserted, or give --no-insert"
                )
            return wanted
        stays = f"NOT coalesce(({delete_when}), false)"
        return stays if wanted is None else f"({wanted}) AND {stays}"

    def order(self, text: str) -> Column:
        """``updated DESC NULLS LAST`` as a Column; Spark's parser would take DESC for a name."""
        found = _ORDER.fullmatch(text.strip())
        if found is None:
            raise ConfigurationError(f"--first-by {text!r}: expected SQL [ASC|DESC] [NULLS FIRST|LAST]")
        column = sf.expr(with_sides(self.spark, found["value"], self._all(SOURCE)))
        order = (found["order"] or "asc").lower()
        nulls = (found["nulls"] or ("last" if order == "desc" else "first")).lower()
        sort: Callable[[], Column] = getattr(column, f"{order}_nulls_{nulls}")
        return sort()

    def _all(self, side: str) -> dict[str, str]:
        names = self.source if side == SOURCE else self.target
        return {name.lower(): side for name in names}

    def _with_sides(self, condition: str | None, sides: Mapping[str, str]) -> str | None:
        return None if condition is None else with_sides(self.spark, condition, sides)
