"""Matching a change set's columns with the table's, before any Spark job runs."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import re
from collections.abc import Iterable, Iterator

import pyspark.sql.functions as sf
import pyspark.sql.types
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
)

from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList
from mutation_api.errors import ConfigurationError, RecordLayoutError, RecordValueError
from mutation_api.format.event import bucket_property
from mutation_api.format.layout import AcidVersion
from mutation_api.spark.plan import (
    ChangePlan,
    default_num_partitions,
    given_columns,
    plan_changes,
    wall_clock_type,
)
from mutation_api.spark.tasks import ChangeWriter, batches_in
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable, WriterOptions
from mutation_api.write.address import ADDRESS_COLUMNS
from mutation_api.write.layout import ChangeLayout, match_columns

TABLE = AcidTable(
    database="default",
    name="t",
    location=Location.parse("file:/warehouse/t"),
    columns=(AcidColumn("id", "bigint"), AcidColumn("msg", "varchar(5)")),
    partition_keys=(AcidColumn("ds", "string"), AcidColumn("hr", "int")),
    num_buckets=4,
    bucket_columns=("id",),
    version=AcidVersion.V1_LEGACY,
    txn_id=7,
)
ROW_ID = StructType(
    [
        StructField("transactionid", LongType()),
        StructField("bucketid", IntegerType()),
        StructField("rowid", LongType()),
    ]
)
ROW_ID_WITH_PARTITION = StructType([*ROW_ID.fields, StructField("partition", StringType())])

pytestmark = pytest.mark.tasks


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def matched(table: AcidTable, columns: StructType, *operation_column: str) -> ChangeLayout:
    return match_columns(table, given_columns(columns), *operation_column)


FULL: dict[str, DataType] = {
    "operation": StringType(),
    "ROW__ID": ROW_ID,
    "id": LongType(),
    "msg": StringType(),
    "ds": StringType(),
    "hr": IntegerType(),
}


def test_any_order_and_case() -> None:
    """Neither case nor order of the names matters."""
    layout = matched(
        TABLE,
        schema(
            HR=IntegerType(),
            Msg=StringType(),
            row__id=ROW_ID,
            Operation=StringType(),
            ID=LongType(),
            ds=StringType(),
        ),
    )
    assert layout.operation == "Operation"
    assert layout.row_id == "row__id"
    assert layout.columns == {"id": "ID", "msg": "Msg", "ds": "ds", "hr": "HR"}
    assert layout.row_id_fields == {"txn": "transactionid", "bucket": "bucketid", "row_id": "rowid"}


def test_row_id_of_later_hive_lines() -> None:
    """A ROW__ID whose first field is called writeid is one too."""
    row_id = schema(WriteId=LongType(), bucketid=IntegerType(), rowid=LongType())
    layout = matched(TABLE, schema(**{**FULL, "ROW__ID": row_id}))
    assert layout.row_id_fields["txn"] == "WriteId"


def test_inserts_need_no_row_id() -> None:
    """Without ROW__ID the layout is right; the classifier lets only inserts pass."""
    assert matched(TABLE, schema(**{k: v for k, v in FULL.items() if k != "ROW__ID"})).row_id is None


def test_partition_columns_may_be_left_out_if_the_row_id_knows_the_partition() -> None:
    """All of them together, and then only."""
    without = {k: v for k, v in FULL.items() if k not in ("ds", "hr")}
    layout = matched(TABLE, schema(**{**without, "ROW__ID": ROW_ID_WITH_PARTITION}))
    assert layout.row_id_fields["partition"] == "partition"
    with pytest.raises(RecordLayoutError, match="lacks the partition columns ds, hr"):
        matched(TABLE, schema(**without))
    with pytest.raises(RecordLayoutError, match="lacks the partition columns hr"):
        matched(TABLE, schema(**{**without, "ds": StringType(), "ROW__ID": ROW_ID_WITH_PARTITION}))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"operation": None}, "has no column 'operation'"),
        ({"extra": LongType(), "More": LongType()}, "columns that the table does not have: extra, More"),
        ({"ID": LongType()}, "duplicate columns (names are case-insensitive): ID"),
        ({"id": None, "ROW__ID": None}, "lacks the columns id"),
        ({"operation": IntegerType()}, "column 'operation' must be a string, found int"),
        ({"id": BooleanType(), "msg": ArrayType(StringType())}, "id bigint from boolean"),
        ({"ROW__ID": LongType()}, "ROW__ID is not a struct"),
        ({"ROW__ID": schema(transactionid=LongType(), bucketid=IntegerType())}, "ROW__ID lacks fields"),
        ({"ROW__ID": StructType([*ROW_ID.fields, StructField("x", LongType())])}, "unexpected field 'x'"),
        (
            {"ROW__ID": schema(transactionid=StringType(), bucketid=IntegerType(), rowid=LongType())},
            "unexpected field 'transactionid' of type string",
        ),
    ],
)
def test_wrong_columns_are_refused(changed: dict[str, DataType | None], message: str) -> None:
    """A wrong layout is refused before anything runs; the message names table and columns."""
    columns = {**FULL, **changed}
    with pytest.raises(RecordLayoutError, match=re.escape(message)) as caught:
        matched(TABLE, schema(**{k: v for k, v in columns.items() if v is not None}))
    assert "default.t" in str(caught.value)


def test_all_unfit_types_are_listed() -> None:
    """The user sees every column that cannot fit at once."""
    with pytest.raises(RecordLayoutError) as caught:
        matched(TABLE, schema(**{**FULL, "id": BooleanType(), "hr": MapType(StringType(), StringType())}))
    assert "id bigint from boolean" in str(caught.value)
    assert "hr int from map<string,string>" in str(caught.value)


def test_a_table_with_a_column_called_operation() -> None:
    """The operation's column needs another name then, and can have one."""
    table = AcidTable(
        database="default",
        name="log",
        location=Location.parse("file:/warehouse/log"),
        columns=(AcidColumn("operation", "string"),),
        partition_keys=(),
        num_buckets=2,
        bucket_columns=("operation",),
        version=AcidVersion.V1_SPLIT,
        txn_id=7,
    )
    with pytest.raises(RecordLayoutError, match="pass it as operation_column"):
        matched(table, schema(operation=StringType()))
    layout = matched(table, schema(operation=StringType(), op=StringType()), "OP")
    assert layout.operation == "op"
    assert layout.columns == {"operation": "operation"}


def test_timestamps_become_wall_clocks_at_any_depth() -> None:
    """TIMESTAMP becomes TIMESTAMP_NTZ in arrays, maps and structs too; nothing else changes."""
    nested = ArrayType(MapType(TimestampType(), schema(a=TimestampType(), b=LongType())))
    assert wall_clock_type(nested) == ArrayType(
        MapType(TimestampNTZType(), schema(a=TimestampNTZType(), b=LongType()))
    )


VALID = ValidTxnList(high_watermark=6)


def task_contents(plan: ChangePlan, options: WriterOptions | None = None) -> list[list[tuple[object, ...]]]:
    """The addresses that each task writes, in its order."""
    options = options or WriterOptions()
    writer = ChangeWriter("", "", options, HadoopSettings())

    def gather(pieces: Iterable[bytes]) -> Iterator[list[tuple[object, ...]]]:
        in_order = writer.in_order("default.t", (rows for piece in pieces for rows in batches_in(piece)))
        yield [tuple(row.values()) for batch in in_order for row in batch.select(ADDRESS_COLUMNS).to_pylist()]

    return plan.split(options.sort_memory_bytes).mapPartitions(gather).collect()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("options", [WriterOptions(), WriterOptions(sort_memory_bytes=100_000)])
def test_groups_stay_together_and_in_order(spark: SparkSession, options: WriterOptions) -> None:
    """A group lies in one task, in one run; inside it rows come by (txn, row id), inserts last.

    Whether a task sorts its changes in memory or puts some aside.
    """
    changes = spark.range(20_000).selectExpr(
        "CASE id % 3 WHEN 0 THEN 'insert' WHEN 1 THEN 'update' ELSE 'delete' END operation",
        "named_struct('transactionid', 1 + hash(id) % 2, 'bucketid', cast(id % 4 AS int), 'rowid', 20000 - "
        "id) ROW__ID",
        "id",
        "'x' msg",
        "concat('d', (id * 7) % 13) ds",
        "cast(id % 3 AS int) hr",
    )
    tasks = task_contents(plan_changes(TABLE, changes, VALID, num_partitions=5), options)
    runs = [
        (task, group, list(rows))
        for task, contents in enumerate(tasks)
        for group, rows in itertools.groupby(contents, key=lambda row: row[:2])
    ]
    groups = [group for _, group, _ in runs]
    assert len(tasks) == 5
    assert len(groups) == len(set(groups)) == 13 * 3 * 4
    assert sum(len(rows) for _, _, rows in runs) == 20_000
    for _, _, rows in runs:
        keys = [(operation == 0, txn, row_id) for _, _, operation, txn, _, row_id in rows]
        assert keys == sorted(keys)


@pytest.mark.slow
def test_fewer_tasks_write_where_each_waits_for_its_last_files(spark: SparkSession) -> None:
    """The session's number of partitions stays the limit."""
    before = str(spark.conf.get("spark.sql.shuffle.partitions"))
    cores = spark.sparkContext.defaultParallelism
    local, remote = Location.parse("file:/warehouse/t"), Location.parse("hdfs://localhost:1/warehouse/t")
    try:
        spark.conf.set("spark.sql.shuffle.partitions", "1000")
        found = [default_num_partitions(spark, location) for location in (None, local, remote)]
        assert found == [4 * cores, 4 * cores, 2 * cores]
        spark.conf.set("spark.sql.shuffle.partitions", "1")
        assert default_num_partitions(spark, remote) == 1
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.thorough
def test_timestamps_are_wall_clocks_of_the_session(spark: SparkSession) -> None:
    """A TIMESTAMP is stored as the session shows it; TIMESTAMP_NTZ as it is. Odd column names do no harm."""
    table = dataclasses.replace(
        TABLE,
        columns=(AcidColumn("id", "bigint"), AcidColumn("a.b `c", "timestamp"), AcidColumn("n", "timestamp")),
        partition_keys=(),
    )
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        changes = spark.sql(
            "SELECT 'insert' operation, 1L id, TIMESTAMP '2024-07-01 12:00:00' `A.B ``c`, "
            "TIMESTAMP_NTZ '2024-07-01 12:00:00' n"
        )
        row = plan_changes(table, changes, VALID).addressed().collect()[0]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    noon = datetime.datetime(2024, 7, 1, 12)
    assert (row["a.b `c"], row["n"]) == (noon, noon)


@pytest.mark.slow
def test_data_of_deletes_is_dropped(spark: SparkSession) -> None:
    """A delete's values do not go through the shuffle, since they are not read."""
    changes = spark.sql(
        "SELECT 'DELETE' operation, named_struct('transactionid', 1L, 'bucketid', 0, 'rowid', 0L) ROW__ID, "
        "8L id, 'long text' msg, 'x' ds, 1 hr"
    )
    row = plan_changes(TABLE, changes, VALID).addressed().collect()[0]
    assert (row["id"], row["msg"]) == (None, None)


@pytest.mark.slow
def test_a_bad_change_is_told_by_our_own_error(spark: SparkSession) -> None:
    """What the classifier refuses in a worker arrives on the driver as it was raised."""
    changes = spark.sql("SELECT 'merge' operation, 8L id, 'x' msg, 'x' ds, 1 hr")
    planned = plan_changes(TABLE, changes, VALID)
    with (
        pytest.raises(RecordValueError, match=r"^table default\.t: the operation must be one of") as caught,
        translated_worker_errors("writing"),
    ):
        planned.addressed().collect()
    assert "\n" not in str(caught.value)


UNBUCKETED = AcidTable(
    database="default",
    name="u",
    location=Location.parse("file:/warehouse/u"),
    columns=(AcidColumn("id", "bigint"), AcidColumn("tags", "map<string,array<int>>")),
    partition_keys=(),
    num_buckets=-1,
    bucket_columns=(),
    version=AcidVersion.V2_HIVE4,
    txn_id=90,
    write_id=7,
)
WRITE_IDS = ValidWriteIdList(6, table="default.u")


def test_a_row_id_complaint_names_the_field_of_the_line() -> None:
    """On later releases the message asks for writeid."""
    with pytest.raises(RecordLayoutError, match="expected struct<writeid:bigint,bucketid:int,rowid:bigint>"):
        matched(
            UNBUCKETED,
            schema(operation=StringType(), ROW__ID=schema(bucketid=IntegerType(), rowid=LongType())),
        )


@pytest.mark.long
@pytest.mark.slow
def test_inserts_without_buckets_are_spread_by_their_content(spark: SparkSession) -> None:
    """Over as many bucket ids as there are tasks, and the same ones whatever order or task a row comes in;
    changes of existing rows stay in the bucket of their ROW__ID, ordered by all of it.
    """
    inserts = spark.range(300).selectExpr(
        "'insert' operation", "NULL ROW__ID", "id", "map('a', array(cast(id AS int))) tags"
    )
    existing = spark.range(40).selectExpr(
        "IF(id % 2 = 0, 'update', 'delete') operation",
        f"named_struct('writeid', 1 + id % 3, 'bucketid', {bucket_property(9)} + cast(id % 4 AS int), "
        "'rowid', 100 - id) ROW__ID",
        "id",
        "map('b', array(1)) tags",
    )
    buckets = []
    for changes in (inserts, inserts.repartition(3).orderBy(sf.desc("id"))):
        planned = plan_changes(UNBUCKETED, changes.unionByName(existing), WRITE_IDS, num_partitions=6)
        tasks = task_contents(planned)
        rows = planned.addressed().where("__operation = 0").select("id", "__bucket", "__txn").collect()
        buckets.append({row["id"]: row["__bucket"] for row in rows})
        assert {row["__txn"] for row in rows} == {7}
        assert sorted(set(buckets[-1].values())) == list(range(6))
        (kept,) = [
            [row for row in contents if row[1] == 9] for contents in tasks if any(r[1] == 9 for r in contents)
        ]
        keys = [row[3:] for row in kept]
        assert len(keys) == 40
        assert keys == sorted(keys)
        assert {key[1] - bucket_property(9) for key in keys} == {0, 1, 2, 3}
    assert buckets[0] == buckets[1]
    assert len(buckets[0]) == 300
    deletes = existing.where("operation = 'delete'").select("operation", "ROW__ID")
    planned = plan_changes(UNBUCKETED, deletes, WRITE_IDS).addresses().select("__bucket").collect()
    assert [row[0] for row in planned] == [9] * 20


@pytest.mark.slow
def test_how_many_files_inserts_without_buckets_make(spark: SparkSession) -> None:
    """Few for each partition, since there are many of these; as many as asked for; none for a bucketed table,
    which decides itself.
    """
    partitioned = dataclasses.replace(UNBUCKETED, partition_keys=(AcidColumn("ds", "int"),))
    changes = spark.range(200).selectExpr(
        "'insert' operation", "id", "CAST(NULL AS map<string,array<int>>) tags", "cast(id % 2 AS int) ds"
    )

    def files(table: AcidTable, frame: DataFrame, **options: int) -> int:
        planned = plan_changes(table, frame, WRITE_IDS, num_partitions=7, **options)
        return planned.addresses().select("__partition", "__bucket").distinct().count()

    assert files(partitioned, changes) == 2 * 4
    assert files(partitioned, changes, insert_files=6) == 2 * 6
    assert files(UNBUCKETED, changes.drop("ds"), insert_files=1) == 1
    hive_3 = dataclasses.replace(partitioned, version=AcidVersion.V2_HIVE3)
    assert [files(hive_3, changes, **each) for each in ({}, {"insert_files": 2})] == [2 * 1, 2 * 2]
    for table, insert_files in ((UNBUCKETED, 0), (UNBUCKETED, 4097), (TABLE, 2)):
        with pytest.raises(ConfigurationError, match=f"{table.full_name}: insert_files={insert_files}, but"):
            plan_changes(
                table,
                spark.sql("SELECT 'insert' operation, 1L id, NULL tags, 'm' msg, 'd' ds, 1 hr").drop(
                    *({"tags"} if table is TABLE else {"msg", "ds", "hr"})
                ),
                WRITE_IDS,
                insert_files=insert_files,
            )


class Reading(UserDefinedType):
    """A type of a user, which Spark keeps as a struct."""

    @classmethod
    def sqlType(cls) -> DataType:
        """What it is stored as."""
        return schema(low=LongType(), high=LongType())


FOREIGN = [Reading(), DayTimeIntervalType()]
if hasattr(pyspark.sql.types, "VariantType"):  # from Spark 4.0 on
    FOREIGN.append(pyspark.sql.types.VariantType())


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("found", FOREIGN, ids=repr)
def test_what_a_type_is_stored_as_is_not_its_value(found: DataType, nested: bool) -> None:
    """Types of users, VARIANT and intervals are refused, at any depth."""
    given = schema(**{**FULL, "msg": ArrayType(found) if nested else found})
    with pytest.raises(RecordLayoutError, match=r"msg varchar.5. from .*has no Hive equivalent: cast it"):
        matched(TABLE, given)
