"""``hive-mutate apply``: a file of changes, applied to one table in one transaction.

The file has the table's columns, partition columns included, in any order and case, and the operation. The
row of an update or delete is named by its ROW__ID: in JSON, ORC and Parquet a struct of that name, in CSV the
columns ``ROW__ID.writeid`` (Hive 2: ``ROW__ID.transactionid``), ``ROW__ID.bucketid``, ``ROW__ID.rowid`` and,
if known, ``ROW__ID.partition``.

CSV and JSON are read with the table's types. A text that is no value of its column's type is refused, naming
the column and the row; it never becomes NULL. An empty CSV field is NULL, a quoted empty one ("") the empty
text.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from pathlib import Path

import pyspark.sql.functions as sf
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType, _parse_datatype_string

from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.cli.connection import ReportLoss, add_metastore_arguments, metastore_from
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.errors import ConfigurationError, RecordLayoutError, RecordValueError
from mutation_api.spark.errors import translated_worker_errors
from mutation_api.spark.job import apply_changes
from mutation_api.spark.plan import OPERATION_COLUMN_DEFAULT
from mutation_api.spark.read import PARTITION_FIELD
from mutation_api.spark.session import local_session
from mutation_api.spark.summary import ApplySummary
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.hive_types import parse_hive_type, spark_type

__all__ = ["HELP", "add_arguments", "read_changes", "run"]

HELP = "apply a file of changes to a table in one transaction"

APP_NAME = "hive-mutate apply"
WRITE_LOCKS = ("exclusive", "optimistic")
FORMATS = ("csv", "json", "orc", "parquet")
COMPLEX_KINDS = ("array", "map", "struct", "uniontype", "binary")
"""Kinds of Hive types that a CSV field cannot hold."""
SAMPLE_ROWS = 3
QUOTED_EMPTY = "\x01"
"""Stands for "" while CSV is parsed, since Spark reads that as it reads an empty field."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``hive-mutate apply``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (__doc__ or "").partition("\n\n")[2]
    parser.add_argument("table", metavar="DB.TABLE", help="the table to change")
    parser.add_argument("changes", metavar="CHANGES", type=Path, help="file or folder of changes")
    parser.add_argument(
        "--format", choices=FORMATS, help="format of the changes (default: by the file's extension)"
    )
    parser.add_argument(
        "--operation-column",
        default=OPERATION_COLUMN_DEFAULT,
        metavar="NAME",
        help="column that says insert, update or delete (default: %(default)s)",
    )
    parser.add_argument(
        "--create-partitions",
        action="store_true",
        help="create partitions that do not exist (default: refuse)",
    )
    parser.add_argument(
        "--verify-row-ids",
        action="store_true",
        help="look up the rows of updates and deletes before anything is written",
    )
    parser.add_argument(
        "--write-lock",
        choices=WRITE_LOCKS,
        default=WRITE_LOCKS[0],
        help="Hive 4: keep other writers out (exclusive, the default), or let them in and the first to "
        "commit wins (optimistic); older Hives have one kind only",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Apply the changes and print what was done; 0 when the transaction is committed."""
    path, file_format = _source(arguments)
    database, table_name = _split(arguments.table)
    builder = MutatorClientBuilder().metastore(metastore_from(arguments)).lock_failure_listener(ReportLoss())
    builder.write_lock(arguments.write_lock)
    builder.add_sink_table(database, table_name, create_partitions=arguments.create_partitions)
    with builder.build() as client, _spark_session() as spark:
        with client.new_transaction() as transaction:
            table = transaction.table(arguments.table)
            changes = read_changes(spark, table, path, file_format, arguments.operation_column)
            summary = apply_changes(
                transaction,
                arguments.table,
                changes,
                operation_column=arguments.operation_column,
                verify_row_ids=arguments.verify_row_ids,
            )
        _print(summary, as_json=arguments.json)
    return 0


def read_changes(
    spark: SparkSession, table: AcidTable, path: Path, file_format: str, operation_column: str
) -> DataFrame:
    """Read a file of changes with the table's types.

    Args:
        spark: the session.
        table: whose changes they are.
        path: a file, or a folder of files of one format.
        file_format: one of FORMATS.
        operation_column: name of the operation's column.

    Returns:
        A DataFrame as ``apply_changes`` takes it.

    Raises:
        RecordLayoutError: columns are missing or unknown, or of a type the format cannot hold.
        RecordValueError: values that are no values of their column's type; the message names some.
        ConfigurationError: the file cannot be read as this format.
    """
    try:
        match file_format:
            case "csv":
                return _read_csv(spark, table, path, operation_column)
            case "json":
                return _read_json(spark, table, path, operation_column)
            case _:
                return spark.read.format(file_format).load(str(path))
    except AnalysisException as error:
        raise ConfigurationError(f"{path} cannot be read as {file_format}: {error}") from error


def _read_csv(spark: SparkSession, table: AcidTable, path: Path, operation_column: str) -> DataFrame:
    texts = (
        spark.read.option("header", True)
        .option("emptyValue", QUOTED_EMPTY)
        .option("multiLine", True)
        .option("escape", '"')
        .option("mode", "FAILFAST")
        .csv(str(path))
    )
    types = _flat_types(table, operation_column)
    _check_columns(table, path, texts.columns, types)
    _check_scalar(table, texts.columns)
    names = {name: types[name.lower()] for name in texts.columns}
    texts = texts.select(*[_unquoted(name) for name in texts.columns])
    _check_values(table, path, texts, names)
    typed = [_field(name).cast(kind).alias(name) for name, kind in names.items() if not _is_row_id(name)]
    row_id = [_field(name).cast(kind).alias(_part(name)) for name, kind in names.items() if _is_row_id(name)]
    if not row_id:
        return texts.select(*typed)
    row_id_texts = [_field(name) for name in names if _is_row_id(name)]
    struct = sf.when(sf.coalesce(*row_id_texts).isNotNull(), sf.struct(*row_id))
    return texts.select(struct.alias(ROW_ID_COLUMN), *typed)


def _read_json(spark: SparkSession, table: AcidTable, path: Path, operation_column: str) -> DataFrame:
    # An inferring pass tells the names: with a schema given, Spark drops unknown fields without a word.
    found = spark.read.option("primitivesAsString", True).option("mode", "FAILFAST").json(str(path)).columns
    types = _column_types(table, operation_column)
    types[ROW_ID_COLUMN.lower()] = _row_id_ddl(table)
    _check_columns(table, path, found, types)
    schema = StructType([StructField(name, _parse_datatype_string(types[name.lower()])) for name in found])
    return spark.read.schema(schema).option("mode", "FAILFAST").json(str(path))


def _column_types(table: AcidTable, operation_column: str) -> dict[str, str]:
    """Spark type of every column a change may have, by lower-case name, ROW__ID apart."""
    types = {c.name: spark_type(parse_hive_type(c.type)) for c in (*table.columns, *table.partition_keys)}
    return {**types, operation_column.lower(): "string"}


def _flat_types(table: AcidTable, operation_column: str) -> dict[str, str]:
    row_id = {f"{ROW_ID_COLUMN}.{part}".lower(): kind for part, kind in _row_id_types(table).items()}
    return {**_column_types(table, operation_column), **row_id}


def _row_id_types(table: AcidTable) -> dict[str, str]:
    ids = {table.version.transaction_field: "bigint", "bucketid": "int", "rowid": "bigint"}
    return {**ids, PARTITION_FIELD: "string"}


def _row_id_ddl(table: AcidTable) -> str:
    return f"struct<{','.join(f'{part}:{kind}' for part, kind in _row_id_types(table).items())}>"


def _check_columns(table: AcidTable, path: Path, found: list[str], known: dict[str, str]) -> None:
    unknown = [name for name in found if name.lower() not in known]
    if unknown:
        raise RecordLayoutError(
            f"{path}: table {table.full_name} has no columns {', '.join(unknown)}; known are "
            f"{', '.join(known)}"
        )


def _check_scalar(table: AcidTable, found: list[str]) -> None:
    names = {name.lower() for name in found}
    columns = [c for c in (*table.columns, *table.partition_keys) if c.name in names]
    complex_columns = [c for c in columns if parse_hive_type(c.type).kind in COMPLEX_KINDS]
    if complex_columns:
        raise RecordLayoutError(
            f"table {table.full_name}: CSV cannot hold the columns "
            f"{', '.join(f'{c.name} {c.type}' for c in complex_columns)}; use JSON, ORC or Parquet"
        )


def _check_values(table: AcidTable, path: Path, texts: DataFrame, types: dict[str, str]) -> None:
    """Refuse texts that are no values of their column's type, before anything is written."""
    wrong = {
        name: _field(name).isNotNull() & _field(name).try_cast(kind).isNull()
        for name, kind in types.items()
        if kind != "string"
    }
    if not wrong:
        return
    columns = sf.array_compact(
        sf.array(*[sf.when(is_wrong, sf.lit(name)) for name, is_wrong in wrong.items()])
    )
    with translated_worker_errors(f"{path}: reading the changes"):
        rows = texts.withColumn("\x01wrong", columns).where(sf.size("\x01wrong") > 0).take(SAMPLE_ROWS)
    if rows:
        samples = [
            f"column {name} ({types[name]}) has {row[name]!r} in row {tuple(row)[:-1]!r}"
            for row in rows
            for name in row["\x01wrong"]
        ]
        raise RecordValueError(
            f"{path}, table {table.full_name}: values that do not fit: {'; '.join(samples)}"
        )


def _unquoted(name: str) -> Column:
    return sf.when(_field(name) == QUOTED_EMPTY, "").otherwise(_field(name)).alias(name)


def _field(name: str) -> Column:
    quoted = name.replace("`", "``")
    return sf.col(f"`{quoted}`")


def _is_row_id(name: str) -> bool:
    return name.lower().startswith(f"{ROW_ID_COLUMN.lower()}.")


def _part(name: str) -> str:
    return name.lower().removeprefix(f"{ROW_ID_COLUMN.lower()}.")


def _source(arguments: argparse.Namespace) -> tuple[Path, str]:
    path: Path = arguments.changes.resolve()
    if not path.exists():
        raise ConfigurationError(f"there is no file {path}")
    file_format = arguments.format or path.suffix.lower().removeprefix(".")
    if file_format not in FORMATS:
        raise ConfigurationError(f"{path}: name the format with --format, one of {', '.join(FORMATS)}")
    return path, file_format


def _split(table: str) -> tuple[str, str]:
    database, dot, name = table.partition(".")
    if not dot:
        raise ConfigurationError(f"name the table as DB.TABLE, not {table!r}")
    return database, name


def _spark_session() -> SparkSession:
    """The session of the user's configured Spark (spark-submit, spark-defaults.conf), else a local one."""
    if "SPARK_CONF_DIR" in os.environ or "MASTER" in os.environ:
        return SparkSession.builder.appName(APP_NAME).getOrCreate()
    return local_session(APP_NAME)


def _print(summary: ApplySummary, *, as_json: bool) -> None:
    print(json.dumps(dataclasses.asdict(summary)) if as_json else summary)
