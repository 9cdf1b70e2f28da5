"""Files and tables of ``hive-mutate`` that do not lie on the local disk."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from judges.hive.hive_judges import Hive23
from judges.hive.judge import HiveJudge
from judges.jars import fetch_all, read_pins
from judges.storages.hdfs_cluster import MiniHdfs
from judges.storages.s3_server import S3Server
from metastore_client.client import MetastoreClient
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK
from mutation_api.storage.location import Location
from tests.cdc_writers.tungsten import staging_record
from tests.integration.conftest import Run
from tests.integration.transactions.live_table import FilledTable
from tests.support.elsewhere import copy_tree, get, names, put

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[2] / "golden"
TIMEOUT_SECONDS = 300
LONG_TIMEOUT_SECONDS = 1800
S3A_JARS = Path(__file__).parents[3] / "judges" / "hive" / "s3a"


@pytest.fixture(params=["hdfs", "s3"])
def elsewhere(request: pytest.FixtureRequest) -> Location:
    """An empty place that is not on the local disk."""
    root: Location = request.getfixturevalue(f"{request.param}_root")
    return root


def told(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What a snapshot prints."""
    assert main(["read", *map(str, words)]) == EXIT_OK, capsys.readouterr().err
    return capsys.readouterr().out


def content(file: Location) -> Any:
    """What a saved file holds: text, or rows."""
    data = get(file)
    reader = {"parquet": pa.parquet.read_table, "orc": pa.orc.read_table}.get(file.name.rpartition(".")[2])
    return data.decode() if reader is None else reader(pa.BufferReader(data)).to_pylist()


def golden(folder: str) -> tuple[Path, str]:
    """Data that Hive wrote, and its columns."""
    about = json.loads((GOLDEN / folder / "about.json").read_text())
    columns = ", ".join(
        column.replace(":", " ", 1) for column in about["columns"].split(",") if ":" in column
    )
    return GOLDEN / folder / "data", columns


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "folder", [pytest.param("acid/partitioned", marks=pytest.mark.long), "acid_v4/unbucketed"]
)
def test_what_hive_wrote_is_shown_and_saved(
    capsys: pytest.CaptureFixture[str], elsewhere: Location, tmp_path: Path, folder: str
) -> None:
    """As from the local disk, and into files there; an older file is replaced, half a one is not left."""
    data, columns = golden(folder)
    table = copy_tree(data, elsewhere / "table")
    options = ("--schema", columns, "--row-ids")
    shown = told(capsys, "--location", table, *options)
    assert shown == told(capsys, "--location", data, *options)
    assert shown.count("\n") > 3
    for suffix in ("csv", "json", "parquet", "orc"):
        file, local = elsewhere / f"out.{suffix}", Location.given(tmp_path / f"out.{suffix}")
        for target in (file, file, local):
            assert told(capsys, "--location", table, *options, "--output", target.shown) == ""
        assert content(file) == content(local)
    damaged = next(path for path in sorted(data.rglob("*")) if path.is_file() and path.stat().st_size > 100)
    put(table / str(damaged.relative_to(data)), damaged.read_bytes()[:-50])
    before = content(elsewhere / "out.csv")
    words = ("--location", str(table), *options, "--output", str(elsewhere / "out.csv"))
    assert main(["read", *words]) == EXIT_FAILED
    assert str(table) in capsys.readouterr().err
    assert content(elsewhere / "out.csv") == before
    assert [name for name in names(elsewhere) if name.startswith(".")] == []


def test_a_location_without_a_namenode(capsys: pytest.CaptureFixture[str], hdfs_root: Location) -> None:
    """``hdfs:/path`` is no local path; it goes by fs.defaultFS."""
    data, columns = golden("acid/partitioned")
    copy_tree(data, hdfs_root / "table")
    shown = told(capsys, "--location", f"hdfs:{hdfs_root.path}/table", "--schema", columns)
    assert shown == told(capsys, "--location", data, "--schema", columns)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("oss://bucket/x", "unsupported scheme"),
        ("hdfs:/no/such", "no such directory"),
        ("s3a:/x", "has no bucket"),
    ],
)
def test_places_that_cannot_be_read(
    capsys: pytest.CaptureFixture[str], hdfs_root: Location, location: str, message: str
) -> None:
    """Status 1, the place, and why; no stack."""
    assert main(["read", "--location", location, "--schema", "id int"]) == EXIT_FAILED
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_a_file_that_cannot_be_written(capsys: pytest.CaptureFixture[str], s3_root: Location) -> None:
    """The place, and why."""
    data, columns = golden("acid/partitioned")
    words = ("read", "--location", str(data), "--schema", columns, "--output", "s3a://nowhere/x.csv")
    assert main(words) == EXIT_FAILED
    assert "ClientError: s3a://nowhere/x.csv: cannot write the file" in capsys.readouterr().err


@pytest.fixture
def default_is_hdfs(spark: SparkSession, hdfs: MiniHdfs) -> Iterator[None]:
    """For the JVM of Spark, as on a cluster."""
    spark.conf.set("fs.defaultFS", hdfs.location)
    yield
    spark.conf.unset("fs.defaultFS")


@pytest.mark.parametrize("engine", [pytest.param("spark", marks=pytest.mark.long), "local"])
@pytest.mark.parametrize("hive_on_hdfs", ["2.3"], indirect=True)
def test_files_of_changes_on_hdfs(
    hive_on_hdfs: HiveJudge,
    database_on_hdfs: str,
    hdfs_root: Location,
    default_is_hdfs: None,
    run_here: Run,
    tmp_path: Path,
    engine: str,
) -> None:
    """Saved, edited, applied, merged and compared there; plain paths are local though Spark's default is
    HDFS.
    """
    name, where = f"{database_on_hdfs}.t", ("--metastore", hive_on_hdfs.uri)
    chosen = ("--engine", engine)
    hive_on_hdfs.sql(
        f"CREATE TABLE {name} (id int, msg string) CLUSTERED BY (id) INTO 2 BUCKETS STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true')"
    )
    hive_on_hdfs.sql(f"INSERT INTO {name} VALUES (1, 'one'), (2, 'two'), (3, 'three')")

    def run(*words: object) -> str:
        done = run_here(*words, *where)
        assert done.returncode == EXIT_OK, done.stderr
        return done.stdout

    def seen() -> list[tuple[Any, ...]]:
        return sorted(row.values for row in hive_on_hdfs.table_rows(name))

    saved, changes = hdfs_root / "saved.csv", hdfs_root / "my changes" / "a.csv"
    run("read", name, "--row-ids", "--output", saved)
    rows = list(csv.DictReader(io.StringIO(get(saved).decode())))
    first, second = (
        {**row, "operation": kind} for row, kind in zip(rows, ("update", "delete"), strict=False)
    )
    text = io.StringIO()
    writer = csv.DictWriter(text, list(first))
    writer.writeheader()
    writer.writerows([{**first, "msg": "new"}, second, {"operation": "insert", "id": 4, "msg": "four"}])
    put(changes, text.getvalue().encode())
    run("apply", name, changes, "--verify-row-ids", *chosen)
    expected = {int(row["id"]): row["msg"] for row in rows} | {int(first["id"]): "new", 4: "four"}
    del expected[int(second["id"])]
    assert seen() == sorted(expected.items())

    run(
        "merge",
        "--table",
        name,
        "--key",
        "id",
        "--source",
        put(hdfs_root / "m.json", b'{"id": 4, "msg": "IV"}\n'),
        *chosen,
    )
    expected[4] = "IV"
    assert seen() == sorted(expected.items())

    wanted = {**expected, 4: "vier", 5: "five"}
    dump = "id,msg\n" + "".join(f"{key},{msg}\n" for key, msg in wanted.items())
    local = tmp_path / "dump.csv"
    local.write_text(dump)
    put(hdfs_root / "dump.csv", dump.encode())
    output = put(hdfs_root / "diff.csv", b"old")
    for against, target in ((local, tmp_path / "diff.csv"), (hdfs_root / "dump.csv", output)):
        words = ("diff", "--table", name, "--key", "id", "--against", against, "--output", target, *chosen)
        assert "1 inserts, 1 updates, 0 deletes" in run(*words)
    assert (tmp_path / "diff.csv").read_bytes() == get(output)
    assert [each for each in names(hdfs_root) if each.startswith(".")] == []
    run("apply", name, output, *chosen)
    assert seen() == sorted(wanted.items())

    missing = run_here("apply", name, hdfs_root / "none.csv", *chosen, *where)
    assert missing.returncode == EXIT_FAILED
    none = f"{hdfs_root}/none.csv"
    reason = f"{none} cannot be read as csv" if engine == "spark" else f"file not found: {none}"
    assert f"ConfigurationError: {reason}" in missing.stderr
    assert "file not found: /none.csv" in run_here("apply", name, "/none.csv", *where).stderr


@pytest.mark.long
@pytest.mark.timeout(LONG_TIMEOUT_SECONDS)
def test_files_of_changes_on_s3(
    hive: Hive23,
    live_metastore: MetastoreClient,
    live_database: str,
    s3: S3Server,
    s3_root: Location,
    tmp_path: Path,
) -> None:
    """Spark reads and writes them with its own client of S3, the command's Spark being configured so."""
    table = FilledTable.fill(hive, live_metastore, live_database, "default")
    jars = fetch_all([*read_pins(S3A_JARS / "jars.txt"), *read_pins(S3A_JARS / "hadoop-3.5.txt")])
    others = [jar for jar in jars if not jar.name.startswith("netty-")]  # Spark has its own
    settings = {f"spark.hadoop.{key}": value for key, value in s3.settings.items()} | {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, others)),
    }
    (tmp_path / "spark-defaults.conf").write_text(
        "".join(f"{key} {value}\n" for key, value in settings.items())
    )

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mutation_api.cli.main", *map(str, words), "--metastore", hive.uri]
        environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
        assert done.returncode == EXIT_OK, done.stderr[-3000:]
        return done

    put(s3_root / "c.csv", b"operation,id,msg,ds\ninsert,100,hundred,a\n")
    chosen = ("--engine", "spark")
    run("apply", table.full_name, s3_root / "c.csv", *chosen)
    assert ("ds=a", 100, "hundred") in table.values()
    put(s3_root / "dump.csv", b"id,msg,ds\n100,HUNDRED,a\n")
    words = ("diff", "--table", table.full_name, "--key", "id,ds", "--against", s3_root / "dump.csv")
    run(*words, "--output", s3_root / "diff.json", *chosen)
    run("apply", table.full_name, s3_root / "diff.json", *chosen)
    assert table.values() == [("ds=a", 100, "HUNDRED")]
    assert names(s3_root) == ["c.csv", "diff.json", "dump.csv"]

    record = ["I", "7", "1", "2024-02-29 12:00:00", "100", "100", "followed", "a"]
    put(s3_root / "staging/alpha/shop/t/t-7.csv", staging_record(record).encode())
    where = ("--staging", s3_root / "staging", "--service", "alpha", "--table", f"t={table.full_name}:id")
    run("ingest", "tungsten", *where)
    assert table.values() == [("ds=a", 100, "followed")]
