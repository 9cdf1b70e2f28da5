"""The binlog collector's files, statement by statement, and the damage that they can have."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mutation_api.cdc.collector import CollectorSource, uid_of
from mutation_api.cdc.reduce import latest_operations
from mutation_api.cdc.source import OPERATION, POSITION, Batch, Position, SourceTable
from mutation_api.cdc.spark_engine import read_source
from mutation_api.errors import (
    ConfigurationError,
    InputFormatError,
    RecordLayoutError,
    RecordValueError,
    SourcePositionError,
)
from mutation_api.format.layout import AcidVersion
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.table.acid_table import AcidColumn, AcidTable
from tests.cdc_writers.collector import append_raw
from tests.cdc_writers.collector_files import raw_record, write_reverse, write_upsert_and_delete
from tests.cdc_writers.history import RowsEvent, Table

TABLE = AcidTable(
    database="sales",
    name="people",
    location="file:/warehouse/people",
    columns=(AcidColumn("id", "int"), AcidColumn("name", "string"), AcidColumn("age", "int")),
    partition_keys=(),
    num_buckets=1,
    bucket_columns=("id",),
    version=AcidVersion.V1_LEGACY,
)
PEOPLE = SourceTable("people", TABLE, ("id",))
RAW = """\
INSERT,2383c7d07bce3c82e6da7741782de416,"20001","name1",11
INSERT,66df243d406353d0e9db6c5dd027d2d6,"20002","name2",12
UPDATE,9cdf26568d166bc6793ef8da5afa0846,"10007","name777",777
UPDATE,9103c8c82514f39d8360c7430c4ee557,"10002","name222",222
DELETE,6eb887126d24e8f1cd8ad5033482c781,"10005","name5",15
DELETE,d89f3a35931c386956c1a402a8e09941,"10001","name1",10
DELETE,670eca4ad5de0e0cfcc60ab3dd008095,"10008","name8",22
"""
REVERSE = """\
DELETE,670eca4ad5de0e0cfcc60ab3dd008095,"10008","name8",22
DELETE,d89f3a35931c386956c1a402a8e09941,"10001","name1",10
DELETE,6eb887126d24e8f1cd8ad5033482c781,"10005","name5",15
UPDATE,9103c8c82514f39d8360c7430c4ee557,"10002","name222",222
UPDATE,9cdf26568d166bc6793ef8da5afa0846,"10007","name777",777
INSERT,66df243d406353d0e9db6c5dd027d2d6,"20002","name2",12
INSERT,2383c7d07bce3c82e6da7741782de416,"20001","name1",11
"""

Files = tuple[str, str, str]


@pytest.fixture
def walked(tmp_path: Path) -> Callable[[str], Files]:
    """Reverse, upsert and delete file of a raw file."""

    def walk(raw: str) -> Files:
        paths = [tmp_path / name for name in ("raw", "reverse", "upsert", "delete")]
        paths[0].write_text(raw)
        write_reverse(paths[0], paths[1])
        write_upsert_and_delete(*paths[1:])
        reverse, upsert, delete = (path.read_text() for path in paths[1:])
        return reverse, upsert, delete

    return walk


def lines(operations: str, key: str = "7") -> str:
    """Records of one key, such as "IUD", that tell their place by their value."""
    names = {name[0]: name for name in ("INSERT", "UPDATE", "DELETE")}
    return "".join(raw_record(names[o], [key], [key, "n", i]) for i, o in enumerate(operations))


def test_raw_records_are_written_as_the_documentation_shows_them() -> None:
    """Operation, md5 of the key without quotes, texts in quotes, numbers without: all seven lines."""
    rows = [
        ("INSERT", "20001", "name1", 11),
        ("INSERT", "20002", "name2", 12),
        ("UPDATE", "10007", "name777", 777),
        ("UPDATE", "10002", "name222", 222),
        ("DELETE", "10005", "name5", 15),
        ("DELETE", "10001", "name1", 10),
        ("DELETE", "10008", "name8", 22),
    ]
    assert "".join(raw_record(operation, [key], [key, *rest]) for operation, key, *rest in rows) == RAW


def test_the_reverse_file_is_the_raw_file_from_its_end(walked: Callable[[str], Files]) -> None:
    """The document's example, byte for byte; a record with a newline in it stays whole."""
    assert walked(RAW)[0] == REVERSE
    spanning = 'INSERT,u1,"1","two\nlines, ""so""",1\n'
    assert walked(spanning + RAW)[0] == REVERSE + spanning


def test_upsert_and_delete_files_equal_those_of_the_documentation(walked: Callable[[str], Files]) -> None:
    """Their records as they stand in the reverse file, in its order."""
    reverse = REVERSE.splitlines(keepends=True)
    _, upsert, delete = walked(RAW)
    assert upsert == "".join(reverse[3:])
    assert delete == "".join(reverse[:3])


def by_the_rules(operations: str) -> tuple[list[int], list[int]]:
    """The rules as they are written: places of the operations that go to upsert, and to delete."""
    met: set[str] = set()
    upsert, delete = [], []
    for place in reversed(range(len(operations))):
        operation = operations[place]
        if operation in "IU" and not met & {"U", "D"}:
            upsert.append(place)
        if operation == "D" and "I" not in met:
            delete.append(place)
        met.add(operation)
    return upsert, delete


def possible_logs(length: int) -> Iterator[str]:
    """Operations that one key can have, whether it is there at first or not."""
    for operations in map("".join, itertools.product("IUD", repeat=length)):
        present = ["D" if o == "I" else "IU" for o in operations]
        if all(before in after for before, after in zip(operations, present[1:], strict=False)):
            yield operations


def test_every_short_log_of_a_key_is_reduced_as_the_written_rules_say(walked: Callable[[str], Files]) -> None:
    """Every log of one key that can be, up to six operations: the same records as by the written rules."""
    logs = [log for length in range(1, 7) for log in possible_logs(length)]
    assert len(logs) > 50
    raw = "".join(lines(log, key=str(number)) for number, log in enumerate(logs))
    _, upsert, delete = walked(raw)
    for number, log in enumerate(logs):
        record = lines(log, key=str(number)).splitlines(keepends=True)
        upserts, deletes = by_the_rules(log)
        assert [r for r in upsert.splitlines(keepends=True) if r in record] == [record[i] for i in upserts]
        assert [r for r in delete.splitlines(keepends=True) if r in record] == [record[i] for i in deletes]


@pytest.mark.parametrize(
    ("operations", "upsert", "delete"),
    [
        ("IU", [1], []),
        ("ID", [], [1]),
        ("UD", [], [1]),
        ("DI", [1], []),
        ("DIU", [2], []),
        ("IDI", [2], []),
        ("IDID", [], [3]),
        ("UU", [1], []),
    ],
)
def test_each_sequence_of_operations_reaches_at_most_one_file(
    operations: str, upsert: list[int], delete: list[int], walked: Callable[[str], Files]
) -> None:
    """What comes to which file; no key is in both."""
    records = lines(operations).splitlines(keepends=True)
    assert walked(lines(operations))[1:] == (
        "".join(records[i] for i in upsert),
        "".join(records[i] for i in delete),
    )


@pytest.mark.parametrize("operations", ["II", "DD", "IUIU", "UI", "DU", "IDIDID"])
def test_operations_read_twice_count_once(operations: str, walked: Callable[[str], Files]) -> None:
    """One record of a key, the last, also where the rules as written would give several."""
    records = lines(operations).splitlines(keepends=True)
    _, upsert, delete = walked(lines(operations))
    assert upsert + delete == records[-1]


def test_uids_of_different_composite_keys_differ() -> None:
    """md5 of the values in quotes, joined by commas: keys that differ have texts that differ."""
    assert uid_of(["a", "7"]) == hashlib.md5(b'"a","7"').hexdigest()
    assert uid_of(['a"', "7"]) == hashlib.md5(b'"a""","7"').hexdigest()
    assert uid_of(["a,b", "c"]) != uid_of(["a", "b,c"])
    assert uid_of(["10005"]) == "6eb887126d24e8f1cd8ad5033482c781"


@pytest.mark.parametrize("key", [("id",), ("id", "name")])
def test_writer_and_reader_agree_on_the_uid_of_keys_with_quotes(tmp_path: Path, key: tuple[str, ...]) -> None:
    """The tool's writer and the reader take it from the same text."""
    table = dataclasses.replace(
        TABLE, columns=(AcidColumn("id", "string"), *TABLE.columns[1:]), bucket_columns=()
    )
    columns = {"id": "VARCHAR(9)", "name": "VARCHAR(9)", "age": "INT"}
    row = {"id": '"a"', "name": 'b""', "age": 1}
    append_raw(
        tmp_path / "raw", [RowsEvent(Table("d", "people", columns, key), "insert", 1, 4, ((None, row),))]
    )
    uid = (tmp_path / "raw").read_text().split(",")[1]
    assert uid == uid_of([str(row[name]) for name in key])
    read_here(tmp_path / "raw", SourceTable("people", table, key))


def read(spark: SparkSession, raw: Path, after: Position | None = None, **options: Any) -> Batch:
    source = CollectorSource(raw, "people", **options)
    return read_source(spark, source, [PEOPLE], {} if after is None else {"people": after})


def read_here(raw: Path, table: SourceTable = PEOPLE) -> None:
    """In this process: Spark tries a task that fails several times."""
    for each in CollectorSource(raw, "people").read_local([table], {}).tables:
        list(each.operations)


def rows(batch: Batch) -> list[tuple[Any, ...]]:
    """operation, id, name, age, in the order of the positions."""
    if not batch.tables:
        return []
    with translated_worker_errors("reading"):
        found = batch.tables[0].operations.collect()
    return [(r[OPERATION], r.id, r.name, r.age) for r in sorted(found, key=lambda r: r[POSITION])]


@pytest.mark.slow
def test_a_raw_file_is_read_in_order_and_typed_to_its_end(spark: SparkSession, tmp_path: Path) -> None:
    """Operations in the file's order, of the table's types; the position is where the file ends."""
    raw = tmp_path / "raw"
    raw.write_text(RAW + 'INSERT,c4ca4238a0b923820dcc509a6f75849b,1,"NULL, ""so"",\n",NULL\n')
    batch = read(spark, raw)
    assert rows(batch) == [
        ("insert", 20001, "name1", 11),
        ("insert", 20002, "name2", 12),
        ("update", 10007, "name777", 777),
        ("update", 10002, "name222", 222),
        ("delete", 10005, "name5", 15),
        ("delete", 10001, "name1", 10),
        ("delete", 10008, "name8", 22),
        ("insert", 1, 'NULL, "so",\n', None),
    ]
    assert batch.position is not None
    assert batch.position.order == (0, raw.stat().st_size)
    assert read(spark, raw, batch.position).position is None


@pytest.mark.slow
def test_a_merge_of_the_operations_equals_the_upsert_and_delete_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What a merge of the operations applies is what the two files hold, for random logs."""
    rng = random.Random(5)
    log = [(rng.choice(["INSERT", "UPDATE", "DELETE"]), str(rng.randrange(40)), i) for i in range(300)]
    raw, reverse, upsert, delete = (tmp_path / name for name in ("raw", "reverse", "upsert", "delete"))
    raw.write_text("".join(raw_record(o, [key], [key, "n", i]) for o, key, i in log))
    write_reverse(raw, reverse)
    write_upsert_and_delete(reverse, upsert, delete)
    batch = read(spark, raw)
    operations = batch.tables[0].operations
    reduced = latest_operations(operations, ["id"], POSITION, operation_column=OPERATION).collect()
    for path, kinds in ((upsert, ("insert", "update")), (delete, ("delete",))):
        from_file = {int(line.rpartition(",")[2]) for line in path.read_text().splitlines()}
        assert from_file == {row.age for row in reduced if row[OPERATION] in kinds}


@pytest.mark.slow
def test_reading_goes_on_where_it_ended(spark: SparkSession, tmp_path: Path) -> None:
    """After the file's end, then in files with greater numbers, as numbers; nothing is read twice."""
    first = tmp_path / "raw-9"
    first.write_text(lines("I", "1"))
    reached = read(spark, tmp_path).position
    first.write_text(lines("I", "1") + lines("U", "2"))
    (tmp_path / "raw-10").write_text(lines("D", "3"))
    batch = read(spark, tmp_path, reached)
    assert [row[:2] for row in rows(batch)] == [("update", 2), ("delete", 3)]
    assert batch.position is not None
    assert batch.position.order == (10, (tmp_path / "raw-10").stat().st_size)
    first.unlink()
    assert read(spark, tmp_path, batch.position).position is None


@pytest.mark.slow
def test_a_file_in_place_of_the_one_read_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A new collection under the old name, a shorter file, a lower number: nobody guesses what is new."""
    raw = tmp_path / "raw-3"
    raw.write_text(lines("IU"))
    reached = read(spark, tmp_path).position
    raw.write_text(lines("DIU"))
    with pytest.raises(SourcePositionError, match="a greater number"):
        read(spark, tmp_path, reached)
    raw.write_text(lines("I"))
    with pytest.raises(SourcePositionError, match="raw-3 is not the file"):
        read(spark, tmp_path, reached)
    raw.rename(tmp_path / "raw-2")
    with pytest.raises(SourcePositionError, match="up to number 2"):
        read(spark, tmp_path, reached)
    (tmp_path / "raw_02").write_text(lines("I"))
    with pytest.raises(InputFormatError, match="it is not known which file is later"):
        read(spark, tmp_path, reached)


@pytest.mark.parametrize(
    ("line", "error", "told"),
    [
        ('INSERT,00,"7","n",1\n', InputFormatError, "field uid is '00', which is not the md5 of the key"),
        (
            lines("I").replace("INSERT", "insert"),
            InputFormatError,
            "field operation is 'insert', expected one of",
        ),
        (lines("I").replace("INSERT", "REPLACE"), InputFormatError, "field operation is 'REPLACE'"),
        (lines("I").replace(",0\n", "\n"), InputFormatError, "has 4 fields separated by ',', expected 5"),
        (lines("I").replace(",0\n", ",0,0\n"), InputFormatError, "has 6 fields"),
        (lines("I").replace(",", ";"), InputFormatError, r"field 1 \(operation\) continues with"),
        (lines("I").replace(",", "|").replace('"', ""), InputFormatError, "has 1 fields separated by ','"),
        (lines("I").replace('"n"', '"n'), InputFormatError, "has no end"),
        (lines("I").replace('"n"', '"n"x'), InputFormatError, r"field 4 \(name\) continues with b'x,0"),
        (lines("I")[:-1], InputFormatError, "has no end"),
        (lines("I")[:-9], InputFormatError, "has no end"),
        ("\n", InputFormatError, "has 1 fields"),
        (lines("I").replace('"7"', "NULL"), InputFormatError, "column 'id' is NULL"),
        (
            lines("I").replace(",0\n", ",old\n"),
            RecordValueError,
            "column 'age' .*'old' is not a whole number",
        ),
        (lines("I").replace("n", "\udcff", 1), InputFormatError, "UTF-8"),
    ],
)
def test_damage_is_told_with_file_line_and_field(
    line: str, error: type[Exception], told: str, tmp_path: Path
) -> None:
    """Whatever is wrong in the eighth line; the task fails as a whole."""
    raw = tmp_path / "raw"
    text = line.replace('"n"', '"\udcff"') if "\udcff" in line else line
    raw.write_bytes((RAW + text).encode(errors="surrogateescape"))
    with pytest.raises(error, match=rf"raw, line 8: .*{told}"):
        read_here(raw)


@pytest.mark.slow
def test_damage_is_told_when_spark_evaluates_the_operations(spark: SparkSession, tmp_path: Path) -> None:
    """The task's error reaches the driver as it is: nothing can be applied."""
    raw = tmp_path / "raw"
    raw.write_text(RAW + "INSERT,")
    batch = read(spark, raw)
    with pytest.raises(InputFormatError, match="raw, line 8: the record has no end"):
        rows(batch)


def test_files_lie_where_they_may(tmp_path: Path) -> None:
    """Of files and folders that are given those count once, in the order of their numbers."""
    (tmp_path / "old").mkdir()
    for name in ("old/raw-2", "old/raw-1", "raw-10", "raw-9"):
        (tmp_path / name).write_text(RAW)
    given = [tmp_path / "raw-10", tmp_path / "old", tmp_path / "raw-9", str(tmp_path / "old" / "raw-1")]
    parts = CollectorSource(given, "people")._parts(PEOPLE, None).ranges
    assert [part.location.shown.removeprefix(f"{tmp_path}/") for part in parts] == [
        "old/raw-1",
        "old/raw-2",
        "raw-9",
        "raw-10",
    ]


def test_tables_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    """Before anything is read: no key, another table's columns, two tables, no file."""
    raw = tmp_path / "raw"
    raw.write_text(RAW)
    source = CollectorSource(raw, "people")
    with pytest.raises(ConfigurationError, match="cannot be the key"):
        source.read_local([SourceTable("people", TABLE)], {})
    with pytest.raises(ConfigurationError, match="raw files have the operations of one table"):
        source.read_local([PEOPLE, PEOPLE], {})
    with pytest.raises(RecordLayoutError, match="expected id, name, age"):
        CollectorSource(raw, "people", columns=("id", "name")).read_local([PEOPLE], {})
    with pytest.raises(ConfigurationError, match=r"raw file .* does not exist"):
        CollectorSource(tmp_path / "none", "people").read_local([PEOPLE], {})
    with pytest.raises(
        InputFormatError,
        match=r"more/raw: the number at the end of its name is 0, as for .*/raw, so it is not known",
    ):
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "raw").write_text(RAW)
        CollectorSource([raw, tmp_path / "more"], "people").read_local([PEOPLE], {})
    (tmp_path / "folder" / "raw-1").mkdir(parents=True)
    with pytest.raises(InputFormatError, match="folder/raw-1: found a directory, expected only raw files"):
        CollectorSource(tmp_path / "folder", "people").read_local([PEOPLE], {})
