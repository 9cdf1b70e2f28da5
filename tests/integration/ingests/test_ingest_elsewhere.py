"""Change logs and spilled rows that do not lie on the local disk: read as there, and judged by Hive."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from judges.hive.judge import HiveJudge
from judges.mysql import MySqlJudge
from judges.storages.hdfs_cluster import MiniHdfs
from judges.storages.s3_server import S3Server
from metastore_client.model import ColumnInfo
from metastore_client.remote.thrift_client import open_client
from mutation_api.cdc import (
    OPERATION,
    POSITION,
    Batch,
    ChangeSource,
    CollectorSource,
    MaxwellSource,
    MySqlAddress,
    MySqlSource,
    Position,
    SourceTable,
    TungstenSource,
)
from mutation_api.cdc.spark_engine import read_source
from mutation_api.cdc.tungsten_files import TEXT_DEFAULT, splits, staging_files
from mutation_api.cli import spark_engine
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK
from mutation_api.errors import InputError, InputFormatError, MutationError
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.storage.connect import configure_storage, storage_at
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location, LocationLike
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.cdc_writers.collector_files import raw_record
from tests.cdc_writers.tungsten import staging_record
from tests.support.elsewhere import copy_tree, names, put
from tests.support.json_messages import Change, maxwell, small_table

pytestmark = pytest.mark.slow

NAME = "shop.orders"
COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("note", "string"))
TABLE = SourceTable(NAME, small_table(*((column.name, column.type) for column in COLUMNS)), ("id",))

History = list[tuple[str, int, str | None]]
"""Operation, id and note."""

BEFORE: History = [("insert", 1, "one"), ("insert", 2, "zwölf"), ("update", 1, "ONE"), ("insert", 4, None)]
AFTER: History = [("delete", 2, None), ("insert", 3, "three"), ("update", 4, "four")]
DAMAGED = {"tungsten": "X\x012\n", "collector": "INSERT,nothing\n", "maxwell": '{"database": \n'}


def rows(history: History) -> list[list[Any]]:
    """What a table has in the end."""
    found = {}
    for operation, number, note in history:
        found.pop(number, None)
        if operation != "delete":
            found[number] = [number, note]
    return [found[number] for number in sorted(found)]


def write_log(folder: Path, kind: str, history: History, number: int) -> Path:
    """One more file of a log, and its path."""
    writer: Callable[[History, int], str] = {
        "tungsten": _staging,
        "collector": _raw,
        "maxwell": _messages,
    }[kind]
    names_of = {
        "tungsten": f"alpha/shop/orders/orders-{number}.csv",
        "collector": f"raw-{number}",
        "maxwell": f"log/{number}.json",
    }
    path = folder / names_of[kind]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(writer(history, number), encoding="utf-8")
    return path


def _staging(history: History, number: int) -> str:
    """An update is a delete and an insert."""
    halves: list[tuple[str, int, str | None]] = []
    for kind, key, note in history:
        halves += [("D", key, note)] if kind != "insert" else []
        halves += [("I", key, note)] if kind != "delete" else []
    committed = "2024-02-29 12:00:00.000"
    return "".join(
        staging_record([code, str(number), str(place), committed, str(key), str(key), note])
        for place, (code, key, note) in enumerate(halves)
    )


def _raw(history: History, number: int) -> str:
    return "".join(raw_record(kind.upper(), [str(key)], [key, note]) for kind, key, note in history)


def _messages(history: History, number: int) -> str:
    lines = []
    for place, (kind, key, note) in enumerate(history):
        row = {"id": key, "note": note}
        before, after = (None if kind == "insert" else row), (None if kind == "delete" else row)
        lines.append(maxwell(Change(kind, before, after, number, place + 4)))
    return "".join(f"{line}\n" for line in lines)


def source_at(kind: str, place: LocationLike) -> ChangeSource:
    """The log that lies there."""
    if kind == "tungsten":
        return TungstenSource(place, "alpha")
    return CollectorSource(place, "c") if kind == "collector" else MaxwellSource(place, "m")


def that_settings_tell(place: Location) -> Location:
    """The same place, of HDFS without the NameNode: who has not the driver's settings does not find it."""
    return Location(place.scheme, "" if place.scheme == "hdfs" else place.authority, place.path)


def operations(batch: Batch) -> list[Any]:
    """Positions and operations of one table."""
    with translated_worker_errors("reading"):
        found = batch.tables[0].operations.collect()
    return sorted((tuple(row[POSITION]), row[OPERATION], row.id, row.note) for row in found)


@pytest.fixture(params=["hdfs", "s3"])
def elsewhere(request: pytest.FixtureRequest) -> Location:
    """An empty place that is not on the local disk."""
    root: Location = request.getfixturevalue(f"{request.param}_root")
    return root


@pytest.mark.parametrize(
    ("kind", "storage"),
    [
        ("collector", "s3"),
        pytest.param("maxwell", "s3", marks=pytest.mark.long),
        pytest.param("tungsten", "hdfs", marks=pytest.mark.long),
        pytest.param("tungsten", "s3", marks=pytest.mark.long),
        pytest.param("collector", "hdfs", marks=pytest.mark.long),
        pytest.param("maxwell", "hdfs", marks=pytest.mark.long),
    ],
)
def test_a_log_is_read_as_from_the_local_disk(
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    kind: str,
    storage: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same operations and positions, at first and when more has come; and damage has its place."""
    monkeypatch.setattr("mutation_api.cdc.messages.json_lines.RANGE_BYTES", 700)
    log = that_settings_tell(request.getfixturevalue(f"{storage}_root")) / "log one%3A"
    after: Mapping[str, Position] = {}
    for number, history in enumerate((BEFORE, AFTER), start=1):
        write_log(tmp_path, kind, history, number)
        copy_tree(tmp_path, log)
        here = read_source(spark, source_at(kind, tmp_path), [TABLE], after)
        there = read_source(spark, source_at(kind, str(log)), [TABLE], after)
        assert there.position == here.position
        assert operations(there) == operations(here)
        assert len(operations(there)) >= len(history)
        assert there.position is not None
        after = {NAME: there.position}
    assert read_source(spark, source_at(kind, str(log)), [TABLE], after).position is None
    path = write_log(tmp_path, kind, BEFORE, 3)
    damaged = put(log / str(path.relative_to(tmp_path)), path.read_bytes() + DAMAGED[kind].encode())
    line = path.read_text().count("\n") + 1
    with pytest.raises(InputFormatError, match=re.escape(f"{damaged}, line {line}")):
        operations(read_source(spark, source_at(kind, str(log)), [TABLE], after))


def test_large_files_are_split_as_on_the_local_disk(tmp_path: Path, elsewhere: Location) -> None:
    """The ranges depend on the bytes alone."""
    write_log(tmp_path, "tungsten", BEFORE * 20, 1)
    copy_tree(tmp_path, elsewhere)
    found = []
    for root in (Location.given(tmp_path), elsewhere):
        (file,) = staging_files(root / "alpha/shop/orders", "orders")
        found.append(splits(file, TEXT_DEFAULT, 500))
    assert found[0] == found[1]
    assert len(found[0]) > 3


@pytest.mark.parametrize("kind", ["tungsten", "collector", "maxwell"])
def test_a_file_that_is_still_written_is_another_runs(hdfs_root: Location, tmp_path: Path, kind: str) -> None:
    """HDFS tells its length when it is closed, or a block of it is full."""
    nothing: Any = None
    path = write_log(tmp_path, kind, BEFORE, 1)
    place = hdfs_root / str(path.relative_to(tmp_path))
    storage = storage_at(place)
    storage.create_directory(place.parent)
    file = storage.create(place)
    file.write(path.read_bytes() * (2**21 // path.stat().st_size))
    assert read_source(nothing, source_at(kind, hdfs_root), [TABLE], {}) == Batch((), None)
    file.discard()


@pytest.mark.parametrize("kind", ["tungsten", "collector", "maxwell"])
def test_what_cannot_be_reached_is_told(s3_root: Location, kind: str) -> None:
    """A storage that nobody knows, and a bucket that is not there: a sentence, before Spark is asked."""
    nothing: Any = None
    with pytest.raises(InputError, match=r"its files cannot be read: .*unsupported scheme.* 'oss://b/x"):
        read_source(nothing, source_at(kind, "oss://b/x"), [TABLE], {})
    with pytest.raises(MutationError, match=r"s3a://nowhere/x"):
        read_source(nothing, source_at(kind, "s3a://nowhere/x"), [TABLE], {})


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """The command, on the Spark that runs already."""
    monkeypatch.setattr(spark_engine, "spark_session", lambda name: contextlib.nullcontext(spark))
    yield lambda *words: main([str(word) for word in words])


@pytest.mark.parametrize("hive_on_hdfs", ["2.3"], indirect=True)
@pytest.mark.parametrize(
    ("kind", "storage"),
    [("tungsten", "hdfs"), pytest.param("maxwell", "s3", marks=pytest.mark.long)],
)
def test_a_table_on_hdfs_follows_a_log_elsewhere(
    hive_on_hdfs: HiveJudge,
    database_on_hdfs: str,
    run: Callable[..., int],
    hdfs: MiniHdfs,
    hdfs_root: Location,
    s3: S3Server,
    s3_root: Location,
    tmp_path: Path,
    kind: str,
    storage: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Twice, then there is nothing new; Hive reads what replaying the log gives."""
    configure_storage(HadoopSettings({**hdfs.settings, **s3.settings}))
    name = f"{database_on_hdfs}.orders"
    log = that_settings_tell(hdfs_root if storage == "hdfs" else s3_root) / "log"
    with open_client(hive_on_hdfs.uri) as metastore:
        create_acid_table(metastore, name, COLUMNS, clustered_by=["id"], num_buckets=2)
    options = {
        "tungsten": ("--staging", log, "--service", "alpha", "--table", f"{NAME}={name}:id"),
        "maxwell": ("--files", log, "--table", f"{NAME}={name}"),
    }[kind]
    command = ("ingest", kind, *options, "--metastore", hive_on_hdfs.uri, "--quiet")
    history: History = []
    for number, more in enumerate((BEFORE, AFTER), start=1):
        history += more
        write_log(tmp_path, kind, more, number)
        copy_tree(tmp_path, log)
        assert run(*command) == EXIT_OK, capsys.readouterr().err
        assert sorted(list(row.values) for row in hive_on_hdfs.table_rows(name)) == rows(history)
    capsys.readouterr()
    assert run(*command) == EXIT_OK
    assert "nothing new" in capsys.readouterr().out
    marks = hive_on_hdfs.sql(f"SELECT source_id FROM {database_on_hdfs}.mutation_watermarks")
    assert marks == [["tungsten:alpha" if kind == "tungsten" else f"maxwell:{log}"]]
    put(log / str(write_log(tmp_path, kind, AFTER, 3).relative_to(tmp_path)), DAMAGED[kind].encode())
    assert run(*command) == EXIT_FAILED
    assert f"{log}/" in capsys.readouterr().err


WIDE = (
    "id INT PRIMARY KEY, note TEXT, price DECIMAL(20,4), at DATETIME(6), day DATE, ratio DOUBLE, "
    "bytes VARBINARY(20), yes BOOLEAN"
)
WIDE_TYPES = {
    "id": "int",
    "note": "string",
    "price": "decimal(20,4)",
    "at": "timestamp",
    "day": "date",
    "ratio": "double",
    "bytes": "binary",
    "yes": "boolean",
}


@pytest.mark.long
def test_rows_of_a_server_are_kept_elsewhere(
    spark: SparkSession, mysql: MySqlJudge, mysql_database: str, elsewhere: Location, tmp_path: Path
) -> None:
    """Selected and logged ones, of all kinds of types, as with a local folder; nothing is left of them."""
    mysql.sql(f"CREATE TABLE {mysql_database}.t ({WIDE})")
    full = "1, 'é', 1.5, '2024-02-29 23:59:59.123456', '1900-01-01', 0.1, X'00ff', 1"
    mysql.sql(f"INSERT INTO {mysql_database}.t VALUES ({full}), (2, '', 0, NULL, NULL, NULL, '', 0)")
    table = SourceTable("t", small_table(*WIDE_TYPES.items()))
    address = MySqlAddress("127.0.0.1", mysql.user, mysql.password, mysql.port)
    found, reached = [], []
    for place in (tmp_path / "spill", elsewhere / "spill"):
        with MySqlSource(address, mysql_database, spill_directory=place) as source:
            batch = source.read(spark, [table], {})
            found.append(sorted(map(tuple, batch.tables[0].operations.drop(POSITION).collect()), key=repr))
            reached.append(batch.position)
            assert len(names(Location.given(place))) == 1
        assert names(Location.given(place)) == []
    assert found[0] == found[1]
    assert len(found[0]) == 2
    assert reached[0] is not None
    mysql.sql(f"UPDATE {mysql_database}.t SET price = 2 WHERE id = 1")
    with MySqlSource(address, mysql_database, spill_directory=elsewhere / "spill") as source:
        (logged,) = source.read(spark, [table], {"t": reached[0]}).tables
        assert [(row[OPERATION], row.id, str(row.price)) for row in logged.operations.collect()] == [
            ("update", 1, "2.0000")
        ]


def test_rows_that_cannot_be_kept(s3_root: Location, mysql: MySqlJudge, mysql_database: str) -> None:
    """Where they were to be, and why not."""
    mysql.sql(f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY)")
    mysql.sql(f"INSERT INTO {mysql_database}.t VALUES (1)")
    table = SourceTable("t", small_table(("id", "int")))
    address = MySqlAddress("127.0.0.1", mysql.user, mysql.password, mysql.port)
    with (
        MySqlSource(address, mysql_database, spill_directory="s3a://nowhere/x") as source,
        pytest.raises(InputError, match=r"\.t: cannot write buffered rows to s3a://nowhere/x/hive"),
    ):
        source.read_local([table], {})
