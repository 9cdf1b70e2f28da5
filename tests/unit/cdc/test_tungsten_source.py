"""Tungsten's staging files, statement by statement, and the damage that they can have."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mutation_api.cdc.delimited_text import DelimitedText
from mutation_api.cdc.reduce import latest_operations
from mutation_api.cdc.source import OPERATION, POSITION, Batch, Position, SourceTable
from mutation_api.cdc.spark_engine import read_source
from mutation_api.cdc.tungsten import TungstenSource
from mutation_api.cdc.tungsten_files import (
    HEADER_WITHOUT_KEY,
    SPLIT_BYTES,
    TEXT_DEFAULT,
    HeaderField,
    StagingFile,
    splits,
)
from mutation_api.errors import (
    ConfigurationError,
    InputFormatError,
    RecordLayoutError,
    RecordValueError,
    SourcePositionError,
)
from mutation_api.format.layout import AcidVersion
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from tests.cdc_writers.tungsten import staging_record

DOCUMENTED = (
    "I\x011318\x011\x012017-06-07 09:22:28.000\x013\x013\x01#1 Single\x012006\x01Cats and Dogs (#1.4)\n"
)
TABLE = AcidTable(
    database="sales",
    name="chicago",
    location="file:/warehouse/chicago",
    columns=(
        AcidColumn("id", "int"),
        AcidColumn("type", "string"),
        AcidColumn("year", "int"),
        AcidColumn("title", "string"),
    ),
    partition_keys=(),
    num_buckets=1,
    bucket_columns=("id",),
    version=AcidVersion.V1_LEGACY,
)
NAME = "hadoop.chicago"
CHICAGO = SourceTable(NAME, TABLE, ("id",))
COMMITTED = "2017-06-07 09:22:28.000"

Row = tuple[Any, ...]
Fields = list[str | None]


def fields(operation: str, seqno: int, row_id: int, key: str, *values: str | None) -> Fields:
    """A record of the documented layout; a delete of the key alone."""
    rest = list(values) or [None, None, None]
    return [operation, str(seqno), str(row_id), COMMITTED, key, key, *rest]


def written(record: Fields, text: DelimitedText) -> str:
    """A record in this form."""
    assert text.escape is not None
    return staging_record(
        record,
        separator=text.field_separator,
        end=text.record_end,
        null=text.null,
        escape=text.escape,
        quote=text.quote or "",
    )


class Staging:
    """The folder of a service's staging files, and what is read from it."""

    def __init__(self, folder: Path, text: DelimitedText = TEXT_DEFAULT) -> None:
        self.folder = folder
        self.text = text

    def write(self, number: int, *records: Fields, name: str = NAME, service: str = "alpha") -> Path:
        """A file of these records."""
        database, table = name.split(".")
        folder = self.folder / service / database / table
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{table}-{number}.csv"
        path.write_bytes("".join(written(r, self.text) for r in records).encode())
        return path

    def source(self, **options: Any) -> TungstenSource:
        return TungstenSource(self.folder, **{"service": "alpha", "text": self.text, **options})

    def rows(self, table: SourceTable = CHICAGO, after: Position | None = None, **options: Any) -> list[Row]:
        """Position, operation and values, read in this process."""
        read = self.source(**options).read_local([table], {} if after is None else {table.name: after})
        found: list[Row] = []
        for batch in (batch for each in read.tables for batch in each.operations):
            for row in batch.to_pylist():
                found.append((tuple(row.pop(POSITION).values()), row.pop(OPERATION), *row.values()))
        return sorted(found, key=lambda row: row[0])


def own(position: Position, table: SourceTable) -> tuple[int, int]:
    found = json.loads(position.text)["tables"][table.name]
    return found["seqno"], found["row_id"]


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(tmp_path)


def test_separators_and_quotes_are_configurable(tmp_path: Path) -> None:
    """0x01 and newline by default, without quotes; other formats give the same values."""
    values = ["a,b", "7", 'said "so" \\ \x01 | ;']
    texts = [
        TEXT_DEFAULT,
        DelimitedText(",", quote='"'),
        DelimitedText("|", record_end="\r\n"),
        DelimitedText("\t", record_end="\x02"),
        DelimitedText(",", null="NULL", escape='"', quote='"'),
    ]
    for number, text in enumerate(texts):
        staging = Staging(tmp_path / str(number), text)
        staging.write(5, fields("I", 5, 1, "1", *values), fields("D", 5, 2, "2"))
        assert staging.rows() == [
            ((5, 1, 1), "insert", 1, "a,b", 7, values[2]),
            ((5, 2, 0), "delete", 2, None, None, None),
        ]


def test_the_documented_record_is_read_and_written_byte_for_byte(staging: Staging) -> None:
    """Nine fields, the key before the columns."""
    split = ["I", "1318", "1", COMMITTED, "3", "3", "#1 Single", "2006", "Cats and Dogs (#1.4)"]
    assert [f for _, f in TEXT_DEFAULT.records(DOCUMENTED.encode())] == [split]
    assert staging_record(split) == DOCUMENTED
    staging.write(1318, split)
    assert staging.rows() == [((1318, 1, 1), "insert", 3, "#1 Single", 2006, "Cats and Dogs (#1.4)")]


def test_records_with_a_header_of_four_fields_have_no_key_field(staging: Staging) -> None:
    """Records without a key field, as the header says; if it has the field, they are refused."""
    record = fields("I", 1318, 1, "3", "#1 Single", "2006", "Cats")
    staging.write(1318, record[:4] + record[5:])
    assert staging.rows(header=HEADER_WITHOUT_KEY) == [((1318, 1, 1), "insert", 3, "#1 Single", 2006, "Cats")]
    with pytest.raises(InputFormatError, match=r"has 8 fields separated by .*, expected 9"):
        staging.rows()


@pytest.mark.parametrize("row_ids", [(1, 1), (1, 2)])
@pytest.mark.parametrize("codes", ["DI", ("UD", "UI")])
def test_an_update_is_a_delete_and_an_insert(
    row_ids: tuple[int, int], codes: tuple[str, str], staging: Staging
) -> None:
    """With the same row id or the next one, and whether the replicator marks updates or not."""
    staging.write(
        7,
        fields(codes[0], 7, row_ids[0], "5030"),
        fields(codes[1], 7, row_ids[1], "5030", "new", "2", "t"),
    )
    assert staging.rows() == [
        ((7, row_ids[0], 0), "delete", 5030, None, None, None),
        ((7, row_ids[1], 1), "insert", 5030, "new", 2, "t"),
    ]


def test_operations_apply_in_order_of_seqno_and_row_id(staging: Staging) -> None:
    """As numbers, across files; a file in which they go back is refused."""
    staging.write(9, fields("I", 9, 3, "1", "a", "9", "t"), fields("I", 10, 4, "1", "b", "9", "t"))
    staging.write(100, fields("D", 100, 1, "1"), fields("I", 100, 2, "1", "c", "9", "t"))
    assert [row[0] for row in staging.rows()] == [(9, 3, 1), (10, 4, 1), (100, 1, 0), (100, 2, 1)]
    staging.write(101, fields("I", 102, 1, "1", "a", "9", "t"), fields("D", 101, 2, "1"))
    with pytest.raises(InputFormatError, match=r"chicago-101.csv, line 2: field seqno is 101 with row id 2"):
        staging.rows()
    staging.write(101, fields("I", 100, 1, "1", "a", "9", "t"))
    with pytest.raises(InputFormatError, match="from the number in its name on"):
        staging.rows()


def test_the_commit_timestamp_gives_partition_values(staging: Staging) -> None:
    """A partition column, a date and a timestamp of the target, which the files do not have."""
    target = AcidTable(
        **{
            **vars(TABLE),
            "columns": (*TABLE.columns, AcidColumn("at", "timestamp"), AcidColumn("d", "date")),
            "partition_keys": (AcidColumn("month", "string"), AcidColumn("yr", "int")),
        }
    )
    staging.write(1318, fields("I", 1318, 1, "3", "a", "2006", "t"))
    rows = staging.rows(
        SourceTable(NAME, target, ("id",)),
        commit_columns={"at": None, "d": None, "Month": "%Y-%m", "yr": "%Y"},
    )
    at = datetime.datetime(2017, 6, 7, 9, 22, 28)
    assert rows == [((1318, 1, 1), "insert", 3, "a", 2006, "t", at, at.date(), "2017-06", 2017)]


def test_null_and_escapes_are_decoded(staging: Staging) -> None:
    r"""``\N`` is NULL, ``\\N`` is text; separators and backslashes come back, newlines were left out."""
    texts = ["\\N", "a\x01b\\", "", "\\\\\x01\x01", "N", "é\r\nx"]
    staging.write(1, *[fields("I", 1, i + 1, str(i), t, None, "\\") for i, t in enumerate(texts)])
    expected = [*texts[:-1], "éx"]
    assert [row[3:] for row in staging.rows()] == [(text, None, "\\") for text in expected]


def test_a_delete_needs_only_the_key(staging: Staging) -> None:
    """NULL in all other columns, as in the sample of Tungsten's Hadoop tools."""
    staging.write(100017, fields("D", 100017, 1, "5030"))
    assert staging.rows() == [((100017, 1, 0), "delete", 5030, None, None, None)]


def test_files_are_found_by_their_names_and_sorted_as_numbers(staging: Staging) -> None:
    """10 before 12 before 103; what is hidden or being copied is left alone, any other name refused."""
    for number in (103, 12, 10):
        path = staging.write(number, fields("I", number, 1, str(number), "a", "1", "t"))
    assert [row[0][0] for row in staging.rows()] == [10, 12, 103]
    for name in (".chicago-11.csv.crc", "_SUCCESS", "chicago-11.csv._COPYING_"):
        (path.parent / name).write_text("anything")
    assert len(staging.rows()) == 3
    for name in ("other-11.csv", "chicago.csv", "chicago-11.csv.gz", "chicago-x.csv"):
        (path.parent / name).write_text("")
        with pytest.raises(InputFormatError, match=rf"{name}: the name of a staging file"):
            staging.rows()
        (path.parent / name).unlink()


def test_files_of_a_partitioning_replicator_are_found_one_directory_deeper(staging: Staging) -> None:
    """Numbers are those of a folder: files of the other one are no followers."""
    one = staging.write(10, fields("I", 10, 1, "1", "a", "1", "t"))
    for day in ("2017-06-07", "2017-06-08"):
        (one.parent / day).mkdir()
    one.rename(one.parent / "2017-06-07" / one.name)
    two = staging.write(20, fields("I", 20, 1, "2", "a", "1", "t"))
    two.rename(two.parent / "2017-06-08" / two.name)
    assert [row[0][0] for row in staging.rows()] == [10, 20]


def metadata(folder: Path, **table: object) -> Path:
    path = folder / "meta.json"
    path.write_text(json.dumps({"tables": [{"schema": "hadoop", "name": "chicago", **table}]}))
    return path


def test_columns_and_key_are_those_of_the_metadata(staging: Staging, tmp_path: Path) -> None:
    """In their order; the table's key is then that of the metadata."""
    order = ("title", "id", "year", "type")
    described = metadata(tmp_path, keys=["ID"], columns=[{"name": n, "type": "x"} for n in order])
    staging.write(1, ["I", "1", "1", COMMITTED, "3", "Cats", "3", "2006", "Single"])
    unkeyed = SourceTable(NAME, TABLE)
    assert staging.rows(unkeyed, metadata=described) == [((1, 1, 1), "insert", 3, "Single", 2006, "Cats")]
    assert staging.rows(columns={"chicago": order})[0][2:] == (3, "Single", 2006, "Cats")
    described.write_text('{"tables": [{"name": "chicago"}]}')
    with pytest.raises(InputFormatError, match=r"meta.json: .*KeyError: 'schema'.*expected JSON"):
        staging.rows(unkeyed, metadata=described)


def test_a_table_without_a_key_is_refused(staging: Staging, tmp_path: Path) -> None:
    """Neither user nor metadata name one, or it is not a column."""
    staging.write(1, fields("I", 1, 1, "3", "a", "1", "t"))
    for options in ({}, {"metadata": metadata(tmp_path, keys=[], columns=[])}):
        with pytest.raises(ConfigurationError, match=r"hadoop.chicago of tungsten:alpha has no primary key"):
            staging.rows(SourceTable(NAME, TABLE), **options)
    with pytest.raises(RecordLayoutError, match="key columns town are not in the files"):
        staging.rows(SourceTable(NAME, TABLE, ("town",)))


def test_a_composite_key_has_a_field_for_each_column(staging: Staging) -> None:
    """In the key's order."""
    staging.write(1, ["I", "1", "1", COMMITTED, "2006", "3", "3", "a", "2006", "t"])
    table = SourceTable(NAME, TABLE, ("year", "id"))
    assert staging.rows(table) == [((1, 1, 1), "insert", 3, "a", 2006, "t")]


def read(
    spark: SparkSession, staging: Staging, after: Position | None = None, *names: str, **options: Any
) -> Batch:
    tables = [SourceTable(name, TABLE, ("id",)) for name in names or [NAME]]
    reached = {} if after is None else {table.name: after for table in tables}
    return read_source(spark, staging.source(**options), tables, reached)


@pytest.mark.long
@pytest.mark.slow
def test_the_last_operation_of_a_key_wins(spark: SparkSession, staging: Staging) -> None:
    """Reduced, random files leave what replaying their records leaves; the position is the last record's."""
    rng = random.Random(10)
    state: dict[int, int] = {}
    seqno = 9
    while seqno < 120:
        records, number = [], seqno
        for row_id in range(1, rng.randrange(2, 15)):
            seqno += rng.randrange(2)
            key = rng.randrange(10)
            if rng.random() < 0.5:
                records.append(fields("D", seqno, row_id, str(key)))
                state.pop(key, None)
            else:
                records.append(fields("I", seqno, row_id, str(key), "t", str(seqno * 1000 + row_id), "t"))
                state[key] = seqno * 1000 + row_id
        staging.write(number, *records)
        seqno += 1
    batch = read(spark, staging)
    (found,) = batch.tables
    reduced = latest_operations(found.operations, ["id"], POSITION, operation_column=OPERATION).collect()
    assert {row.id: row.year for row in reduced if row[OPERATION] == "insert"} == state
    assert batch.position is not None
    assert batch.position.order == own(batch.position, CHICAGO)


@pytest.mark.slow
def test_files_read_before_are_not_read_again(spark: SparkSession, staging: Staging) -> None:
    """The same files again: nothing. One more: that alone; older files are not even opened."""
    first = staging.write(10, fields("I", 10, 1, "1", "a", "1", "t"))
    staging.write(11, fields("I", 11, 1, "1", "a", "1", "t"))
    staging.write(12, fields("I", 12, 1, "2", "a", "1", "t"), fields("D", 12, 2, "1"))
    reached = read(spark, staging).position
    assert reached is not None
    assert reached.order == (12, 2)
    assert read(spark, staging, reached) == Batch((), None)
    first.write_text("it is not even looked at")
    staging.write(103, fields("I", 103, 1, "3", "a", "1", "t"))
    batch = read(spark, staging, reached)
    assert [(r[OPERATION], r.id) for r in batch.tables[0].operations.collect()] == [("insert", 3)]
    assert batch.tables[0].operations.columns == [OPERATION, POSITION, "id", "type", "year", "title"]


@pytest.mark.slow
def test_files_and_watermarks_of_two_services_do_not_mix(spark: SparkSession, staging: Staging) -> None:
    """Each has its folder and its watermark; a service in the record has to be the folder's."""
    staging.write(1, fields("I", 1, 1, "1", "a", "1", "t"))
    staging.write(1, fields("I", 1, 1, "2", "b", "1", "t"), service="beta")
    for service, key in (("alpha", 1), ("beta", 2)):
        batch = read(spark, staging, service=service)
        assert [row.id for row in batch.tables[0].operations.collect()] == [key]
        assert staging.source(service=service).source_id == f"tungsten:{service}"
    header = (HeaderField.SERVICE, *HEADER_WITHOUT_KEY)
    record = fields("I", 1, 1, "3", "a", "1", "t")
    staging.write(1, ["alpha", *record[:4], *record[5:]])
    assert len(staging.rows(header=header)) == 1
    staging.write(1, ["beta", *record[:4], *record[5:]])
    with pytest.raises(InputFormatError, match=r"line 1: field service is 'beta', expected 'alpha'"):
        staging.rows(header=header)


def test_an_empty_staging_directory_has_no_operations_and_no_position(staging: Staging) -> None:
    """No database yet, no file, files without a record: no operations and no position."""
    nothing: Any = None
    (staging.folder / "alpha").mkdir()
    assert read(nothing, staging) == Batch((), None)
    staging.write(1).unlink()
    assert read(nothing, staging) == Batch((), None)
    staging.write(2)
    staging.write(3)
    assert read(nothing, staging) == Batch((), None)


@pytest.mark.slow
def test_tables_have_positions_of_their_own(spark: SparkSession, staging: Staging) -> None:
    """Files of one batch arrive one by one: what comes late for a table is not taken for applied."""
    other = "hadoop.boston"
    staging.write(10, fields("I", 20, 5, "1", "a", "1", "t"))
    staging.write(10, name=other)
    reached = read(spark, staging, None, NAME, other).position
    assert reached is not None
    staging.write(11, fields("I", 12, 1, "2", "b", "1", "t"), name=other)
    batch = read(spark, staging, reached, NAME, other)
    assert [table.table.name for table in batch.tables] == [other]
    assert [row.id for row in batch.tables[0].operations.collect()] == [2]
    assert batch.position is not None
    assert batch.position.order == (20, 5)
    assert read(spark, staging, batch.position, NAME, other).position is None


@pytest.mark.slow
def test_only_what_was_there_at_the_beginning_is_read(spark: SparkSession, staging: Staging) -> None:
    """The next run reads records and files that were added during a run."""
    path = staging.write(1, fields("I", 1, 1, "1", "a", "1", "t"))
    batch = read(spark, staging)
    more = staging_record(fields("I", 2, 2, "2", "a", "1", "t"))
    path.write_text(path.read_text() + more + "half a rec")
    staging.write(3, fields("I", 3, 1, "3", "a", "1", "t"))
    assert [row.id for row in batch.tables[0].operations.collect()] == [1]
    path.write_text(path.read_text().removesuffix("half a rec"))
    later = read(spark, staging, batch.position)
    assert sorted(row.id for row in later.tables[0].operations.collect()) == [2, 3]


@pytest.mark.slow
def test_damage_is_told_when_spark_evaluates_the_operations(spark: SparkSession, staging: Staging) -> None:
    """The task's error reaches the driver as it is: nothing can be applied, and no watermark moves."""
    staging.write(1, fields("I", 1, 1, "1", "a", "1", "t"), fields("I", 1, 2, "2", "a", "MMVI", "t"))
    staging.write(2, fields("I", 2, 1, "1", "a", "1", "t"))
    batch = read(spark, staging)
    message = (
        r"chicago-1.csv, line 2: column 'year' \(int of table sales.chicago\): value 'MMVI' is not a whole"
    )
    with pytest.raises(RecordValueError, match=message), translated_worker_errors("reading"):
        batch.tables[0].operations.collect()


def test_files_that_end_before_the_watermark_are_refused(staging: Staging) -> None:
    """A service whose numbers began anew would otherwise never be applied again."""
    nothing: Any = None
    staging.write(10, fields("I", 10, 1, "1", "a", "1", "t"))
    reached = Position((11, 1), '{"tables": {"hadoop.chicago": {"seqno": 11, "row_id": 1}}}')
    with pytest.raises(SourcePositionError, match="the last record has sequence number 10 and row id 1, but"):
        read(nothing, staging, reached)
    with pytest.raises(SourcePositionError, match="does not belong to this source"):
        read(nothing, staging, Position((1, 1), "binlog.000001:4"))


GOOD = staging_record(fields("I", 1, 1, "1", "a", "2006", "t"))
SECOND = staging_record(fields("I", 1, 2, "2", "a", "2006", "t"))


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        (SECOND[:-1], InputFormatError, "the record has no end; the file ends with"),
        (SECOND[:9], InputFormatError, "the record has no end"),
        (SECOND.replace("\x01", ","), InputFormatError, "is None, expected a number"),
        (SECOND.replace("I", "U"), InputFormatError, "field operation is 'U', expected one of I, D, UI, UD"),
        (SECOND.replace("I", "i"), InputFormatError, "field operation is 'i'"),
        (SECOND.replace("I", "\ufeffI"), InputFormatError, "field operation is"),
        (SECOND.replace("I", "\\N"), InputFormatError, "field operation is None"),
        (SECOND.replace("\x01t\n", "\n"), InputFormatError, "has 8 fields separated by .*, expected 9"),
        (SECOND.replace("\x01t\n", "\x01t\x01\n"), InputFormatError, "has 10 fields"),
        ("\n", InputFormatError, "is None, expected a number"),
        (SECOND.replace("\x01a\x01", "\x01\\a\x01"), InputFormatError, r"field 7 \(type\) continues with"),
        (SECOND.replace("\x012\x012\x01", "\x01\\N\x01\\N\x01"), InputFormatError, "column 'id' is NULL"),
        (
            SECOND.replace("\x012\x012\x01", "\x012\x013\x01"),
            InputFormatError,
            "field key id is '2', which differs",
        ),
        (
            SECOND.replace("2006", "20x6"),
            RecordValueError,
            "column 'year' .*value '20x6' is not a whole number",
        ),
        (SECOND.replace("2017-06", "2017-13"), InputFormatError, "field commit_timestamp has '2017-13"),
        (
            SECOND.replace("\x011\x012\x01", "\x01one\x012\x01"),
            InputFormatError,
            "is 'one', expected a num",
        ),
        (
            SECOND.replace("\x011\x012\x01", "\x011\x01\\N\x01"),
            InputFormatError,
            "is None, expected a num",
        ),
        (SECOND.replace("a", "\udcff", 1), InputFormatError, r"field 7 \(type\) is not UTF-8: b'.xff'"),
    ],
)
def test_damage_is_told_with_file_line_and_field(
    wrong: str, error: type[Exception], told: str, staging: Staging
) -> None:
    """Whatever is wrong in the second line; the task, or the driver before it, fails as a whole."""
    path = staging.write(1)
    path.write_bytes((GOOD + wrong).encode(errors="surrogateescape"))
    with pytest.raises(error, match=rf"(?s)chicago-1.csv, line 2: .*{told}"):
        staging.rows()


def test_half_written_files_are_refused_wherever_they_end(staging: Staging) -> None:
    """Each length that is not a whole number of records."""
    path = staging.write(1)
    content = (GOOD + SECOND).encode()
    for length in range(1, len(content)):
        path.write_bytes(content[:length])
        if length == len(GOOD):
            assert len(staging.rows()) == 1
            continue
        with pytest.raises(InputFormatError, match=r"chicago-1.csv, line [12]: "):
            staging.rows()


def mangled(rng: random.Random, content: bytes) -> bytes:
    """A byte changed, inserted or left out, somewhere."""
    at = rng.randrange(len(content))
    new = bytes([rng.choice([0, 1, 10, 13, 34, 44, 48, 73, 92, 78, 255, rng.randrange(256)])])
    return content[:at] + rng.choice([new, new + content[at : at + 1], b""]) + content[at + 1 :]


@pytest.mark.thorough
def test_mangled_files_give_our_errors_or_rows_of_the_right_shape(staging: Staging) -> None:
    """Any byte anywhere: never another exception, never a NULL that is not there, never another count."""
    rng = random.Random(3)
    records = [fields("I" if i % 2 else "D", 1 + i, i, str(i), "a\\\x01b", "2006", "t") for i in range(6)]
    content = "".join(map(staging_record, records)).encode()
    path = staging.write(1)
    refused = 0
    for _ in range(600):
        changed = mangled(rng, content)
        path.write_bytes(changed)
        try:
            rows = staging.rows()
        except (InputFormatError, RecordValueError) as error:
            assert "chicago-1.csv, line " in str(error)
            refused += 1
        else:
            assert len(rows) == changed.count(b"\n")
            assert all(value is not None or b"\\N" in changed for row in rows for value in row)
    assert refused > 300


def test_tables_are_named_in_full_or_by_what_is_unique(staging: Staging) -> None:
    """A name that no table, or several have, is refused with the names that there are."""
    source = staging.source()
    with pytest.raises(ConfigurationError, match=r"alpha does not exist"):
        source.full_name("chicago")
    staging.write(1)
    staging.write(1, name="hadoop.boston")
    assert source.full_name("chicago") == source.full_name("hadoop.chicago") == "hadoop.chicago"
    with pytest.raises(
        ConfigurationError, match=r"not have a table denver; it has hadoop.boston, hadoop.chicago"
    ):
        source.full_name("denver")
    staging.write(1, name="other.chicago")
    with pytest.raises(ConfigurationError, match=r"several tables .*: hadoop.chicago, other.chicago"):
        source.full_name("chicago")


def test_values_of_all_types(staging: Staging) -> None:
    """Numbers, decimals, dates with a time of zero, booleans as MySQL has them."""
    kinds = {
        "id": "bigint",
        "b": "boolean",
        "p": "decimal(10,2)",
        "d": "date",
        "t": "timestamp",
        "r": "double",
    }
    columns = tuple(AcidColumn(name, kind) for name, kind in kinds.items())
    target = AcidTable(**{**vars(TABLE), "columns": columns})
    values = ["1", "1.5", "2017-06-07 00:00:00.000", "2017-06-07 09:22:28.5", "-2.5e3"]
    staging.write(1, ["I", "1", "1", COMMITTED, "7", "7", *values])
    day = datetime.date(2017, 6, 7)
    at = datetime.datetime(2017, 6, 7, 9, 22, 28, 500000)
    assert staging.rows(SourceTable(NAME, target, ("id",))) == [
        ((1, 1, 1), "insert", 7, True, Decimal("1.50"), day, at, -2500.0)
    ]


def records_of(path: Path, ranges: list[tuple[int, int]]) -> Iterator[bytes]:
    content = path.read_bytes()
    for start, end in ranges:
        yield content[start:end]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_large_files_are_split_between_records(end: str, tmp_path: Path) -> None:
    """However small the parts are to be, each is whole records, and together they are the file."""
    text = DelimitedText("\x01", record_end=end)
    path = tmp_path / "t-1.csv"
    path.write_bytes(b"".join(b"x" * n + end.encode() for n in (3, 1, 200, 0, 5)))
    file = StagingFile(Location.given(path), 1, path.stat().st_size)
    for size in (1, 4, 50, 500):
        parts = list(records_of(path, splits(file, text, size)))
        assert b"".join(parts) == path.read_bytes()
        assert all(part.endswith(end.encode()) for part in parts)
        assert len(parts) == 1 or size < 500
    assert splits(file, DelimitedText(",", quote='"'), 1) == [(0, file.size)]
    assert SPLIT_BYTES > 1024


@pytest.mark.parametrize("header", [(), (HeaderField.OPERATION,), (*HEADER_WITHOUT_KEY, HeaderField.SEQNO)])
def test_headers_that_lack_what_is_needed_are_refused(
    header: tuple[HeaderField, ...], tmp_path: Path
) -> None:
    """Operation, sequence number and row id, each once."""
    with pytest.raises(ConfigurationError, match="must have the fields operation, seqno, row_id"):
        TungstenSource(tmp_path, "alpha", header=header)
