"""From a DataFrame of changes to a DataFrame in writing order: check, address, shuffle, sort.

:func:`address_changes` is the first half alone, for those who only want to know what would be written where.

The shuffle and the sort are the last two steps, directly before the writer: anything put between them and the
writer (a join, distinct, union) may lose the order, and an order by range or a rebalance may spread one group
over tasks. The number of tasks is given, because adaptive execution would coalesce them down to one when the
groups are skewed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from metastore_client.valid_ids import ValidIdList
from mutation_api.acid.bucket_codec import MAX_BUCKETS
from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.spark.classify import ChangeClassifier
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.hive_types import convert_to_column, parse_hive_type

__all__ = [
    "ADDRESS_COLUMNS",
    "BUCKET",
    "BUCKET_PROPERTY",
    "INSERT_FILES_PER_PARTITION",
    "OPERATION",
    "OPERATION_COLUMN_DEFAULT",
    "PARTITION",
    "ROW_NUMBER",
    "TASKS_PER_CORE",
    "TXN",
    "ChangeLayout",
    "address_changes",
    "default_num_partitions",
    "match_columns",
    "plan_changes",
    "wall_clock_type",
]

OPERATION_COLUMN_DEFAULT = "operation"

PARTITION = "__partition"
BUCKET = "__bucket"
OPERATION = "__operation"
TXN = "__txn"
BUCKET_PROPERTY = "__bucket_property"
ROW_NUMBER = "__row_id"
ADDRESS_COLUMNS = (PARTITION, BUCKET, OPERATION, TXN, BUCKET_PROPERTY, ROW_NUMBER)
"""First columns of a planned change set; the data columns that it has follow in table order."""

WRITING_ORDER = (PARTITION, BUCKET, TXN, BUCKET_PROPERTY, ROW_NUMBER)
"""Rows of one transaction and bucket may differ in the property still: it holds the statement's number."""

TASKS_PER_CORE = 4

INSERT_FILES_PER_PARTITION = 4
"""Files that the inserts of one partition of an unbucketed table are spread over, unless told otherwise."""

ADDRESS_DDL = (
    "partition string, bucket int, operation tinyint, txn bigint, bucket_property int, row_id bigint"
)
"""Spark's spelling of :data:`mutation_api.spark.classify.ADDRESS_TYPE`."""

ROW_ID_FIELDS = {"transactionid": "txn", "writeid": "txn", "bucketid": "bucket", "rowid": "row_id"}
PARTITION_FIELD = "partition"


@dataclass(frozen=True)
class ChangeLayout:
    """Which column of a change set is what, under the names it has there.

    ``columns`` maps the table's column names (data and partition columns) to the change set's;
    ``row_id_fields`` maps txn, bucket, row_id and, if present, partition to the fields of its ROW__ID.
    """

    operation: str
    row_id: str | None
    row_id_fields: dict[str, str]
    columns: dict[str, str]


def plan_changes(
    table: AcidTable,
    changes: DataFrame,
    valid_ids: ValidIdList,
    *,
    num_partitions: int | None = None,
    insert_files: int | None = None,
    operation_column: str = OPERATION_COLUMN_DEFAULT,
) -> DataFrame:
    """Address every change, bring the changes of a (partition, bucket) into one task, and sort them.

    Arguments, columns of the result and errors are those of :func:`address_changes`.
    """
    addressed = address_changes(
        table,
        changes,
        valid_ids,
        num_partitions=num_partitions,
        insert_files=insert_files,
        operation_column=operation_column,
    )
    tasks = num_partitions or default_num_partitions(changes.sparkSession)
    # Inserts carry the transaction's own id, which is greater than any other, and so come last.
    return addressed.repartition(tasks, PARTITION, BUCKET).sortWithinPartitions(*WRITING_ORDER)


def address_changes(
    table: AcidTable,
    changes: DataFrame,
    valid_ids: ValidIdList,
    *,
    num_partitions: int | None = None,
    insert_files: int | None = None,
    operation_column: str = OPERATION_COLUMN_DEFAULT,
) -> DataFrame:
    """Say of every change where it will be written; no shuffle.

    The address is computed in one Arrow pass that sees the operation, ROW__ID, partition and bucket columns
    only. The other columns stay in the JVM until they are written; those of deletes become null, which nobody
    reads. A TIMESTAMP becomes the wall clock that it shows in the session's time zone, as Hive stores it.

    Args:
        table: a bound descriptor.
        changes: columns as :func:`mutation_api.spark.job.apply_changes` describes them.
        valid_ids: the snapshot from which ROW__IDs may come; see ChangeClassifier.
        num_partitions: number of writing tasks; see :func:`default_num_partitions`.
        insert_files: see :func:`mutation_api.spark.job.apply_changes`.
        operation_column: name of the operation column.

    Returns:
        ADDRESS_COLUMNS (escaped partition name, bucket id, operation code, and the ROW__ID: original txn,
        bucket field, row id), then the data columns that the change set has, in table order, under the
        table's names.

    Raises:
        ConfigurationError: ``insert_files`` for a bucketed table, or not in 1 to 4096.
        RecordLayoutError: columns missing, extra or doubled, or of a type that cannot fit. Nothing was run.
    """
    layout = match_columns(table, changes.schema, operation_column)
    tasks = num_partitions or default_num_partitions(changes.sparkSession)
    writer_count = _writer_count(table, tasks, insert_files)
    addressed = changes.select(
        _address(table, layout, changes.schema, valid_ids, writer_count).alias("__address"),
        *_data_columns(table, layout, changes.schema),
    )
    data = [sf.col(_quoted(c)) for c in table.column_names if c in layout.columns]
    return addressed.select(
        sf.col("__address.partition").alias(PARTITION),
        sf.col("__address.bucket").alias(BUCKET),
        sf.col("__address.operation").alias(OPERATION),
        sf.col("__address.txn").alias(TXN),
        sf.col("__address.bucket_property").alias(BUCKET_PROPERTY),
        sf.col("__address.row_id").alias(ROW_NUMBER),
        *data,
    )


def _writer_count(table: AcidTable, tasks: int, insert_files: int | None) -> int:
    """Over how many bucket ids inserts are spread if no CLUSTERED BY decides; 0 if one does."""
    if insert_files is not None and (table.is_bucketed or not 1 <= insert_files <= MAX_BUCKETS):
        raise ConfigurationError(
            f"table {table.full_name}: insert_files={insert_files}, but "
            + (
                f"its {table.num_buckets} buckets decide how many files there are"
                if table.is_bucketed
                else f"it must be in 1 to {MAX_BUCKETS}"
            )
        )
    if table.is_bucketed:
        return 0
    if table.version.wants_one_writer_if_unbucketed:
        return insert_files or 1
    default = min(tasks, INSERT_FILES_PER_PARTITION) if table.partition_keys else tasks
    return insert_files or min(default, MAX_BUCKETS)


def default_num_partitions(spark: SparkSession) -> int:
    """The session's ``spark.sql.shuffle.partitions``, but at most TASKS_PER_CORE tasks for each core it has
    now.

    On a cluster whose executors come and go name the number yourself: the cores are counted before the job
    runs.
    """
    configured = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    return max(1, min(configured, TASKS_PER_CORE * spark.sparkContext.defaultParallelism))


def match_columns(
    table: AcidTable, schema: StructType, operation_column: str = OPERATION_COLUMN_DEFAULT
) -> ChangeLayout:
    """Find the table's columns among the change set's, in any order and case, and check their types.

    Data columns may be missing (then only deletes are allowed, which the classifier checks), and so may all
    partition columns together if ROW__ID has the field ``partition``.

    Raises: RecordLayoutError, listing every column in question.
    """
    actual = _by_lower_name(table, schema)
    operation = operation_column.lower()
    expected = (*table.column_names, *table.partition_key_names)
    if operation in expected:
        raise RecordLayoutError(
            f"table {table.full_name} has a column {operation_column!r} itself; "
            "give the operation another name and pass it as operation_column"
        )
    if operation not in actual:
        raise RecordLayoutError(
            f"table {table.full_name}: the change set has no column {operation_column!r} that says insert, "
            "update or "
            f"delete; its columns are {', '.join(schema.fieldNames())}"
        )
    special = {operation, ROW_ID_COLUMN.lower()}
    extra = [actual[c].name for c in actual if c not in special and c not in expected]
    if extra:
        raise RecordLayoutError(
            f"table {table.full_name}: the change set has columns that the table does not have: "
            f"{', '.join(extra)}; "
            f"the table's columns are {', '.join(expected)}"
        )
    row_id = actual.get(ROW_ID_COLUMN.lower())
    layout = ChangeLayout(
        operation=actual[operation].name,
        row_id=None if row_id is None else row_id.name,
        row_id_fields={} if row_id is None else _row_id_fields(table, row_id.dataType),
        columns={c: actual[c].name for c in expected if c in actual},
    )
    _check_missing(table, layout)
    _check_types(table, actual, layout)
    return layout


def _by_lower_name(table: AcidTable, schema: StructType) -> dict[str, StructField]:
    actual: dict[str, StructField] = {}
    doubled = []
    for field in schema.fields:
        if field.name.lower() in actual:
            doubled.append(field.name)
        actual[field.name.lower()] = field
    if doubled:
        raise RecordLayoutError(
            f"table {table.full_name}: the change set has columns twice (names have no case): "
            f"{', '.join(doubled)}"
        )
    return actual


def _row_id_fields(table: AcidTable, row_id: DataType) -> dict[str, str]:
    """Fields of the change set's ROW__ID under our names. Raises RecordLayoutError if others are found."""
    found: dict[str, str] = {}
    complaint = "is no struct" if not isinstance(row_id, StructType) else ""
    for field in row_id.fields if isinstance(row_id, StructType) else []:
        name = field.name.lower()
        part = PARTITION_FIELD if name == PARTITION_FIELD else ROW_ID_FIELDS.get(name)
        wanted = StringType if name == PARTITION_FIELD else IntegralType
        if part is None or part in found or not isinstance(field.dataType, wanted):
            complaint = f"has an unexpected field {field.name!r} of type {field.dataType.simpleString()}"
        else:
            found[part] = field.name
    if complaint or not {"txn", "bucket", "row_id"} <= found.keys():
        raise RecordLayoutError(
            f"table {table.full_name}: {ROW_ID_COLUMN} {complaint or 'lacks fields'}: found "
            f"{row_id.simpleString()}, expected struct<{table.version.transaction_field}:bigint,bucketid:int,"
            "rowid:bigint>, optionally with partition:string"
        )
    return found


def _check_missing(table: AcidTable, layout: ChangeLayout) -> None:
    missing_keys = [k for k in table.partition_key_names if k not in layout.columns]
    is_partition_known = PARTITION_FIELD in layout.row_id_fields
    if missing_keys and not (is_partition_known and len(missing_keys) == len(table.partition_keys)):
        raise RecordLayoutError(
            f"table {table.full_name}: the change set lacks the partition columns "
            f"{', '.join(missing_keys)}; they may "
            f"be left out, all together, only if {ROW_ID_COLUMN} has the field {PARTITION_FIELD!r}"
        )
    missing = _missing_columns(table, layout)
    if missing and layout.row_id is None:
        raise RecordLayoutError(
            f"table {table.full_name}: the change set lacks the columns {', '.join(missing)}"
        )


def _missing_columns(table: AcidTable, layout: ChangeLayout) -> tuple[str, ...]:
    return tuple(c for c in table.column_names if c not in layout.columns)


def _check_types(table: AcidTable, actual: dict[str, StructField], layout: ChangeLayout) -> None:
    """Convert no rows at all: what cannot be converted then, can never be."""
    if not isinstance(actual[layout.operation.lower()].dataType, StringType):
        found = actual[layout.operation.lower()].dataType.simpleString()
        raise RecordLayoutError(
            f"table {table.full_name}: column {layout.operation!r} must be a string, found {found}"
        )
    complaints = []
    for column in (*table.columns, *table.partition_keys):
        if column.name not in layout.columns:
            continue
        spark_type = wall_clock_type(actual[column.name].dataType)
        try:
            empty = pa.array([], type=to_arrow_type(spark_type))
            convert_to_column(empty, parse_hive_type(column.type), column=column.name)
        except (RecordLayoutError, PySparkException, TypeError, ValueError) as error:
            complaints.append(f"{column.name} {column.type} from {spark_type.simpleString()} ({error})")
    if complaints:
        raise RecordLayoutError(
            f"table {table.full_name}: types of the change set that cannot fit: {'; '.join(complaints)}"
        )


def wall_clock_type(spark_type: DataType) -> DataType:
    """The type with TIMESTAMP_NTZ for every TIMESTAMP; a cast to it takes the session's wall clock."""
    match spark_type:
        case TimestampType():
            return TimestampNTZType()
        case ArrayType():
            return ArrayType(wall_clock_type(spark_type.elementType), spark_type.containsNull)
        case MapType():
            key, value = wall_clock_type(spark_type.keyType), wall_clock_type(spark_type.valueType)
            return MapType(key, value, spark_type.valueContainsNull)
        case StructType():
            return StructType(
                [StructField(f.name, wall_clock_type(f.dataType), f.nullable) for f in spark_type.fields]
            )
        case _:
            return spark_type


def _address(
    table: AcidTable, layout: ChangeLayout, schema: StructType, valid_ids: ValidIdList, writer_count: int
) -> Column:
    classifier = ChangeClassifier(
        table,
        valid_ids,
        missing_columns=_missing_columns(table, layout),
        has_partition_columns=all(k in layout.columns for k in table.partition_key_names),
    )
    parts = [sf.col(_quoted(layout.operation)).alias("operation")]
    if layout.row_id is not None:
        parts.append(_renamed_row_id(layout).alias("row_id"))
    addressed_by = [
        c for c in dict.fromkeys((*table.partition_key_names, *table.bucket_columns)) if c in layout.columns
    ]
    if addressed_by:
        columns = [_wall_clock(schema, layout.columns[c]).alias(c) for c in addressed_by]
        parts.append(sf.struct(*columns).alias("columns"))
    if writer_count:
        parts.append(_writer(schema, layout, writer_count).alias("writers"))

    def address(changes: pa.Array) -> pa.Array:
        fields = dict(zip([f.name for f in changes.type], changes.flatten(), strict=True))
        return classifier.classify(
            fields["operation"], fields.get("row_id"), fields.get("columns"), fields.get("writers")
        )

    # Naming the kind of function instead of annotating it would make pyspark warn; its stubs want it named.
    column: Column = arrow_udf(address, ADDRESS_DDL)(sf.struct(*parts))  # type: ignore[call-overload]
    return column


def _writer(schema: StructType, layout: ChangeLayout, writer_count: int) -> Column:
    """A bucket id for each row, the same whenever and wherever its content is seen.

    A row that a retried task sent elsewhere would be written twice, or not at all; hence no random or running
    number. The hash is Spark's own and stays in the JVM.
    """
    contents = [_hashable(schema[name]) for name in layout.columns.values()]
    if not contents:  # deletes alone, of which only ROW__ID is there
        return sf.lit(0)
    return sf.pmod(sf.xxhash64(*contents), sf.lit(writer_count)).cast("int")


def _hashable(field: StructField) -> Column:
    """The column, or if a map is in it (Spark refuses to hash maps) its text."""
    column = sf.col(_quoted(field.name))
    return sf.to_json(sf.struct(column)) if "map<" in field.dataType.simpleString() else column


def _renamed_row_id(layout: ChangeLayout) -> Column:
    """ROW__ID with the fields txn, bucket, row_id and, if present, partition; null where it was null."""
    assert layout.row_id is not None
    source = _quoted(layout.row_id)
    fields = [sf.col(f"{source}.{_quoted(name)}").alias(part) for part, name in layout.row_id_fields.items()]
    return sf.when(sf.col(source).isNotNull(), sf.struct(*fields))


def _data_columns(table: AcidTable, layout: ChangeLayout, schema: StructType) -> list[Column]:
    is_written = sf.lower(sf.col(_quoted(layout.operation))) != "delete"
    return [
        sf.when(is_written, _wall_clock(schema, layout.columns[name])).alias(name)
        for name in table.column_names
        if name in layout.columns
    ]


def _wall_clock(schema: StructType, name: str) -> Column:
    found = schema[name].dataType
    wanted = wall_clock_type(found)
    column = sf.col(_quoted(name))
    return column if wanted == found else column.cast(wanted)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
