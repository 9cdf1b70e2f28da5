"""The plan of a job: a DataFrame of changes as pieces that tasks can write, and the forecast of their files.

The columns are matched with the table's, and each change gets an address. The shuffle is the last step,
directly before the writer. Anything between them (a join, distinct, union) may spread one group over several
tasks, and so may an order by range or a rebalance. The number of tasks is fixed, because adaptive execution
would coalesce them to one if the groups are skewed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark import RDD
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from metastore_client.valid_ids import ValidIdList
from mutation_api.format.event import ADDED_OPERATION, Operation
from mutation_api.format.hive_type import parse_hive_type, spark_type
from mutation_api.spark.frame_table import arrow_type_of
from mutation_api.spark.jvm import raw_bytes, spark_context
from mutation_api.spark.tasks import CHANGES, SPLIT_DDL, TASK, ChangeSplitter, PieceAddresser, to_tasks
from mutation_api.spark.versions import data_type, spark_literal
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable, AcidTableSerializer
from mutation_api.table.row_type import quoted
from mutation_api.write.address import ADDRESS_COLUMNS, BUCKET, PARTITION, ChangeAddresser, ChangeFields
from mutation_api.write.classify import ADDRESS_TYPE, ChangeClassifier
from mutation_api.write.forecast import SAMPLE_ROWS, Forecast, GroupCount, Trial, forecast, write_trial
from mutation_api.write.layout import (
    OPERATION_COLUMN_DEFAULT,
    ChangeLayout,
    DefaultColumns,
    GivenColumn,
    match_columns,
    writer_count,
)

TASKS_PER_CORE = 4
TASKS_PER_CORE_IF_CLOSING_WAITS = 2
"""The number of tasks per core for a storage on which each task waits for its last files to close.

See :attr:`Storage.closing_waits`."""

SPLIT_PARTS = 4
"""Changes that are split at the same time use 1/SPLIT_PARTS of the sorting memory, because up to three copies
of them exist."""

_ADDRESS_FIELDS = [
    StructField(name, from_arrow_type(field.type))
    for name, field in zip(ADDRESS_COLUMNS, ADDRESS_TYPE, strict=True)
]
"""The Spark fields of :data:`mutation_api.write.classify.ADDRESS_TYPE`."""


@dataclass(frozen=True)
class ChangePlan:
    """A change set whose columns were matched with those of its table. No job was run.

    The data columns of deletes are null, because they are not read. A TIMESTAMP is converted to local time in
    the session's time zone, which Hive stores.
    """

    changes: DataFrame
    """The columns for ``addresser``, under names that Spark can handle."""
    addresser: ChangeAddresser
    data: tuple[StructField, ...]
    """The data columns, in table order."""
    tasks: int
    """The number of writing tasks."""

    def addressed(self) -> DataFrame:
        """Return ADDRESS_COLUMNS and the data columns of each change, without a shuffle.

        ADDRESS_COLUMNS are the escaped partition name, bucket id, operation code, and the ROW__ID: original
        txn, bucket field, row id. Invalid addresses are found when this is evaluated, see ChangeClassifier.
        """
        schema = StructType([*_ADDRESS_FIELDS, *self.data])
        names = [field.name for field in self.data]
        return self.changes.mapInArrow(self._address, schema).toDF(*ADDRESS_COLUMNS, *names)

    def addresses(self) -> DataFrame:
        """Return ADDRESS_COLUMNS of each change. Only the columns that determine them are evaluated."""
        fields = self.addresser.fields
        bucket_columns = self.addresser.classifier.table.bucket_columns
        kept = tuple(number for number, each in enumerate(self.data) if each.name in bucket_columns)
        data = tuple(self.data[number] for number in kept)
        only = replace(self.addresser, fields=replace(fields, columns=tuple(each.name for each in data)))
        changes = self._with_data(kept)
        return replace(self, changes=changes, addresser=only, data=data).addressed().select(*ADDRESS_COLUMNS)

    def _with_data(self, kept: Sequence[int]) -> DataFrame:
        """Return the changes with the data columns of these numbers."""
        names, first = self.changes.columns, self.addresser.fields.addressing
        return self.changes.select(*names[:first], *(names[first + number] for number in kept))

    @property
    def _address(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """The function that addresses batches of ``changes``."""
        return self.addresser.__call__

    def split(self, sort_memory_bytes: int) -> RDD[bytes]:
        """Return the changes in pieces, all of a (partition, bucket) for one task. See ChangeSplitter."""
        pieces = self.changes.mapInArrow(self._splitter(sort_memory_bytes).__call__, SPLIT_DDL)
        return raw_bytes(to_tasks(pieces, self.tasks, sf.col(TASK)).select(CHANGES))

    def pieces_of(self, rows: pa.Table, sort_memory_bytes: int) -> Iterator[bytes]:
        """Yield the collected changes in pieces, as :meth:`split` passes them to the only task."""
        for piece in self._splitter(sort_memory_bytes)(iter(rows.to_batches())):
            yield from piece[CHANGES].to_pylist()

    def _splitter(self, sort_memory_bytes: int) -> ChangeSplitter:
        return ChangeSplitter(self._address, self.tasks, sort_memory_bytes // SPLIT_PARTS)


@dataclass(frozen=True)
class PieceChangePlan(ChangePlan):
    """A plan whose ``changes`` are pieces: Arrow streams in one column, see :func:`plan_pieces`."""

    writers: int = 0
    """The number of bucket ids for inserts into an unbucketed table, 0 for a bucketed table."""

    def _with_data(self, kept: Sequence[int]) -> DataFrame:
        return self.changes

    @property
    def _address(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        return PieceAddresser(self.addresser, self.writers).__call__


def plan_pieces(
    table: AcidTable,
    pieces: DataFrame,
    schema: pa.Schema,
    valid_ids: ValidIdList,
    *,
    operation_column: str,
    num_partitions: int | None = None,
    insert_files: int | None = None,
) -> ChangePlan:
    """Plan how changes that are already in pieces are addressed.

    Args:
        table: a bound descriptor.
        pieces: one binary column, CHANGES: an Arrow stream in each row.
        schema: the columns of the pieces, under the table's names: the operation, ROW__ID unless the table is
            insert-only, and all columns. Pieces for an unbucketed table also have the column WRITER.
        valid_ids: see :func:`plan_changes`.
        operation_column: see :func:`plan_changes`.
        num_partitions: see :func:`plan_changes`.
        insert_files: see :func:`plan_changes`.

    Raises:
        Errors: See :func:`plan_changes`.
    """
    tasks = num_partitions or default_num_partitions(pieces.sparkSession, table.location)
    addresser = piece_addresser(
        table, schema, valid_ids, operation_column=operation_column, tasks=tasks, insert_files=insert_files
    )
    data = tuple(
        StructField(each.name, data_type(spark_type(parse_hive_type(each.type)))) for each in table.columns
    )
    return PieceChangePlan(pieces, addresser.addresser, data, tasks, addresser.writers)


def piece_addresser(
    table: AcidTable,
    schema: pa.Schema,
    valid_ids: ValidIdList,
    *,
    operation_column: str,
    tasks: int,
    insert_files: int | None = None,
) -> PieceAddresser:
    """Return the function that addresses changes in pieces. See :func:`plan_pieces`."""
    layout = match_columns(table, [GivenColumn.of_field(field) for field in schema], operation_column)
    writers = writer_count(table, tasks, insert_files)
    fields = ChangeFields(
        tuple(layout.row_id_fields), table.partition_key_names, bool(writers), table.column_names
    )
    classifier = ChangeClassifier.of(table, valid_ids, layout, DefaultColumns.of(table, layout.columns))
    return PieceAddresser(ChangeAddresser(classifier, fields), writers)


def plan_changes(
    table: AcidTable,
    changes: DataFrame,
    valid_ids: ValidIdList,
    *,
    num_partitions: int | None = None,
    insert_files: int | None = None,
    operation_column: str = OPERATION_COLUMN_DEFAULT,
) -> ChangePlan:
    """Match the columns of a change set with the table's, and plan how it is addressed.

    Args:
        table: a bound descriptor.
        changes: columns as described in :func:`mutation_api.spark.job.apply_changes`.
        valid_ids: the snapshot from which ROW__IDs may come, see ChangeClassifier.
        num_partitions: number of writing tasks, see :func:`default_num_partitions`.
        insert_files: see :func:`mutation_api.spark.job.apply_changes`.
        operation_column: name of the operation column.

    Raises:
        ConfigurationError: If ``insert_files`` is given for a bucketed table, or is not in 1 to 4096.
        RecordLayoutError: If columns are missing, extra or duplicate, or if types do not fit. No job was run.
    """
    schema = changes.schema
    layout = match_columns(table, given_columns(schema), operation_column)
    tasks = num_partitions or default_num_partitions(changes.sparkSession, table.location)
    writers = writer_count(table, tasks, insert_files)
    defaults = DefaultColumns.of(table, layout.columns)
    assert layout.operation is not None  # Spark's change sets hold it in a column
    partition_columns = tuple(k for k in table.partition_key_names if k in layout.columns)
    data_columns = tuple(c for c in table.column_names if c in layout.columns or c in defaults.values)
    values = {
        name: in_wall_clock(sf.col(quoted(given)), schema[given].dataType)
        for name, given in layout.columns.items()
    }
    values |= {name: spark_literal(value) for name, value in defaults.values.items()}
    is_written = ~sf.lower(sf.col(quoted(layout.operation))).eqNullSafe("delete")
    parts = [
        sf.col(quoted(layout.operation)),
        *_row_id_parts(layout),
        *(values[name] for name in partition_columns),
        *([_writer(schema, layout, writers)] if writers else []),
        *(sf.when(is_written, values[name]) for name in data_columns),
    ]
    # pyspark treats a dot in a column's name as access to a struct's field, so columns get plain names.
    plain = changes.select(*(part.alias(f"c{number}") for number, part in enumerate(parts)))
    fields = ChangeFields(tuple(layout.row_id_fields), partition_columns, bool(writers), data_columns)
    data = tuple(
        StructField(name, field.dataType)
        for name, field in zip(data_columns, plain.schema.fields[fields.addressing :], strict=True)
    )
    addresser = ChangeAddresser(ChangeClassifier.of(table, valid_ids, layout, defaults), fields)
    return ChangePlan(plain, addresser, data, tasks)


def default_num_partitions(spark: SparkSession, written: Location | None = None) -> int:
    """Return the session's ``spark.sql.shuffle.partitions``, limited to TASKS_PER_CORE per core.

    If files are ``written`` to a storage on which closing waits, the limit is
    TASKS_PER_CORE_IF_CLOSING_WAITS. The cores are counted now, before the job runs. On a cluster whose number
    of executors changes, pass the number of tasks yourself.
    """
    configured = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    waits = written is not None and storage_at(written).closing_waits
    most = TASKS_PER_CORE_IF_CLOSING_WAITS if waits else TASKS_PER_CORE
    return max(1, min(configured, most * spark_context(spark).defaultParallelism))


def given_columns(schema: StructType) -> tuple[GivenColumn, ...]:
    """Return the columns of a DataFrame of changes."""
    return tuple(_given(field) for field in schema.fields)


def _given(field: StructField) -> GivenColumn:
    spark_type = wall_clock_type(field.dataType)
    try:
        arrow, reason = arrow_type_of(spark_type), ""
    except TypeError as error:
        arrow, reason = None, str(error)
    return GivenColumn(field.name, arrow, spark_type.simpleString(), reason)


def wall_clock_type(spark_type: DataType) -> DataType:
    """Return the type with TIMESTAMP_NTZ for every TIMESTAMP. A cast to it takes the session's local time."""
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


def _writer(schema: StructType, layout: ChangeLayout, writer_count: int) -> Column:
    """Return a bucket id for each row that depends only on its content."""
    contents = [(sf.col(quoted(name)), schema[name].dataType) for name in layout.columns.values()]
    if not contents:  # there are only deletes, which have only ROW__ID
        return sf.lit(0)
    return sf.pmod(content_hash(contents), sf.lit(writer_count)).cast("int")


def content_hash(contents: Iterable[tuple[Column, DataType]]) -> Column:
    """Return a hash of columns, for choosing the file of a new row.

    If a retried task sent a row elsewhere, the row would be written twice or not at all. Therefore random or
    sequential numbers are not used. The hash is Spark's own and is computed in the JVM. Spark refuses to hash
    maps, so columns that contain them are hashed as JSON strings.
    """
    return sf.xxhash64(
        *(
            sf.to_json(sf.struct(column)) if "map<" in kind.simpleString() else column
            for column, kind in contents
        )
    )


def _row_id_parts(layout: ChangeLayout) -> list[Column]:
    """Return the parts of ROW__ID, in the order of ``row_id_fields``. All are null if it is null."""
    if layout.row_id is None:
        return []
    source = quoted(layout.row_id)
    return [sf.col(f"{source}.{quoted(name)}") for name in layout.row_id_fields.values()]


def in_wall_clock(value: Column, found: DataType) -> Column:
    """Return a value with local timestamps, as its session shows them."""
    wanted = wall_clock_type(found)
    return value if wanted == found else value.cast(wanted)


_TRIAL_FIELDS = tuple(each.name for each in fields(Trial))
_TRIAL_DDL = ", ".join(f"{name} long" for name in _TRIAL_FIELDS)


def forecast_changes(plan: ChangePlan) -> Forecast:
    """Count the changes that :func:`mutation_api.spark.job.apply_changes` would write.

    This evaluates the changes once without their values, and a sample of them with values. Only temporary
    files are written.

    Raises:
        Errors: For invalid changes, the errors that the writer raises, as far as the addresses and the sample
            reveal them.
    """
    table = plan.addresser.classifier.table
    groups = _groups(plan.addresses())
    has_new_rows = any(group.new_row_count for group in groups)
    return forecast(table, groups, _trials(table, plan.addressed()) if has_new_rows else ())


def _groups(addresses: DataFrame) -> tuple[GroupCount, ...]:
    counts = [sf.count_if(sf.col(ADDED_OPERATION) == int(operation)) for operation in Operation]
    rows = addresses.groupBy(PARTITION, BUCKET).agg(*counts).collect()
    return tuple(GroupCount(name or None, *counts) for name, *counts in sorted(map(tuple, rows)))


def _trials(table: AcidTable, addressed: DataFrame) -> tuple[Trial, ...]:
    sample = addressed.where(sf.col(ADDED_OPERATION) != int(Operation.DELETE)).limit(SAMPLE_ROWS)
    writer = _TrialWriter(AcidTableSerializer.encode(table))
    return tuple(Trial(*row) for row in sample.mapInArrow(writer.__call__, _TRIAL_DDL).collect())


@dataclass(frozen=True)
class _TrialWriter:
    """The function that runs in tasks, writes the first rows of a task and returns their size."""

    table_text: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = AcidTableSerializer.decode(self.table_text)
        is_measured = False
        for batch in batches:  # read to the end, because the sender waits for this
            if batch.num_rows and not is_measured:
                is_measured = True
                facts = [pa.array([fact], pa.int64()) for fact in astuple(write_trial(table, batch))]
                yield pa.record_batch(facts, names=list(_TRIAL_FIELDS))
