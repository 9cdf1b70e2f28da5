"""``hive-mutate ingest tungsten`` and ``collector``: arguments, and runs whose results ``diff`` checks."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.cdc.collector import CollectorSource
from mutation_api.cdc.delimited_text import DelimitedText
from mutation_api.cdc.tungsten import TungstenSource
from mutation_api.cdc.tungsten_files import HEADER_WITHOUT_KEY
from mutation_api.cli import diff, engine_arguments, spark_engine
from mutation_api.cli.ingest import collector as ingest_collector
from mutation_api.cli.ingest import command as ingest
from mutation_api.cli.ingest import tungsten as ingest_tungsten
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK
from mutation_api.errors import ConfigurationError
from mutation_api.format.text_values import BinaryEncoding
from mutation_api.storage.location import Location
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.cdc_writers.collector_files import raw_record
from tests.cdc_writers.tungsten import staging_record


def parsed(module: ModuleType, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    parser.set_defaults(history=[], changes=[])
    return parser.parse_args(words)


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    """Staging files of a service ``alpha``, with a table ``hadoop.chicago``."""
    (tmp_path / "staging" / "alpha" / "hadoop" / "chicago").mkdir(parents=True)
    return tmp_path / "staging"


def write(staging: Path, number: int, *records: str) -> None:
    """A file; a record is its operation, row id, id and text, such as ``I 1 7 seven``."""
    lines = []
    for record in records:
        operation, row_id, key, *text = record.split()
        value = text[0] if text else None
        lines.append(staging_record([operation, str(number), row_id, "2017-06-07 09:22:28", key, key, value]))
    (staging / "alpha/hadoop/chicago" / f"chicago-{number}.csv").write_text("".join(lines))


def test_defaults_of_tungsten(staging: Path) -> None:
    """The documented format; a table's name is completed, so that its watermark has one name."""
    needed = ("--staging", str(staging), "--service", "alpha", "--table", "chicago=sales.chicago")
    arguments = parsed(ingest_tungsten, *needed)
    assert ingest_tungsten.source_from(arguments) == TungstenSource(Location.given(staging), "alpha")
    assert ingest_tungsten.tables_from(arguments) == [("hadoop.chicago", "sales.chicago", ())]


def test_all_arguments_of_tungsten(staging: Path) -> None:
    """Separators in the spelling of Tungsten's manual, columns and keys of tables."""
    words = ["--staging", str(staging), "--service", "alpha", "--table", "hadoop.chicago=a.b:id,part"]
    words += ["--columns", "chicago=id, part", "--metadata", "meta.json", "--binary", "hex"]
    words += ["--header", "operation,seqno,row_id,commit_timestamp", "--field-separator", "\\u0002"]
    words += ["--record-end", "\\n", "--null", "NULL", "--escape", '"', "--quote", '"']
    words += ["--commit-column", "ds=%Y-%m-%d", "--commit-column", "at"]
    arguments = parsed(ingest_tungsten, *words)
    assert ingest_tungsten.source_from(arguments) == TungstenSource(
        Location.given(staging),
        "alpha",
        text=DelimitedText("\x02", null="NULL", escape='"', quote='"'),
        header=HEADER_WITHOUT_KEY,
        columns={"chicago": ("id", "part")},
        metadata=Location.given("meta.json"),
        commit_columns={"ds": "%Y-%m-%d", "at": None},
        binary=BinaryEncoding.HEX,
    )
    assert ingest_tungsten.tables_from(arguments) == [("hadoop.chicago", "a.b", ("id", "part"))]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--header", "operation,when"),
            "'when' is not a valid HeaderField; expected fields among operation, seqno",
        ),
        (("--field-separator", "||"), "one ASCII character each"),
        (("--table", "denver=a.b"), "does not have a table denver; it has hadoop.chicago"),
    ],
)
def test_wrong_arguments_of_tungsten(words: tuple[str, ...], message: str, staging: Path) -> None:
    """The message names what is wrong and what is expected."""
    needed = ("--staging", str(staging), "--service", "alpha", "--table", "chicago=sales.chicago")
    arguments = parsed(ingest_tungsten, *needed, *words)
    with pytest.raises(ConfigurationError, match=message):
        ingest_tungsten.tables_from(arguments)


def test_columns_of_a_table_that_is_not_followed(staging: Path) -> None:
    """A typing error must not be ignored."""
    (staging / "alpha/hadoop/boston").mkdir()
    words = (
        "--staging",
        str(staging),
        "--service",
        "alpha",
        "--table",
        "chicago=a.b",
        "--columns",
        "boston=id",
    )
    with pytest.raises(
        ConfigurationError, match=r"--columns names boston, but --table names hadoop\.chicago"
    ):
        ingest_tungsten.tables_from(parsed(ingest_tungsten, *words))


def test_arguments_of_the_collector() -> None:
    """The table names the collection, unless a name is given."""
    needed = ("--files", "/data/raw", "--table", "sales.orders", "--key", "id,part")
    arguments = parsed(ingest_collector, *needed)
    assert ingest_collector.source_from(arguments) == CollectorSource(
        (Location.given("/data/raw"),), "sales.orders"
    )
    assert ingest_collector.tables_from(arguments) == [("sales.orders", "sales.orders", ("id", "part"))]
    arguments = parsed(
        ingest_collector, *needed, "--name", "n", "--columns", "part, id", "--binary", "base64"
    )
    assert ingest_collector.source_from(arguments) == CollectorSource(
        (Location.given("/data/raw"),), "n", columns=("part", "id"), binary=BinaryEncoding.BASE64
    )


@pytest.fixture
def sales(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table (id, msg) of what the commands connect to."""
    made = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    columns = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))
    create_acid_table(made, "default.sales", columns, clustered_by=["id"], num_buckets=1)
    for module in (ingest, diff):
        monkeypatch.setattr(module, "metastore_from", lambda arguments: contextlib.nullcontext(made))
    monkeypatch.setattr(spark_engine, "spark_session", lambda name: contextlib.nullcontext(spark))
    return "default.sales"


def difference(table: str, dump: Path, rows: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What "hive-mutate diff" says of the table beside a dump of these rows, such as ``1,a 2,b``."""
    dump.write_text("\n".join(["id,msg", *rows.split()]) + "\n")
    capsys.readouterr()
    words = ("diff", "--table", table, "--key", "id", "--against", str(dump), "--summary")
    assert main(words) == EXIT_OK
    return capsys.readouterr().out.strip().removesuffix(" (local)")


@pytest.mark.slow
def test_check_compares_the_table_with_a_dump_of_the_source(
    sales: str,
    staging: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After two runs it is the source; a run that fails leaves it as it is. What is large Spark applies."""
    words = ("ingest", "tungsten", "--staging", staging, "--service", "alpha", "--quiet")
    command = [
        str(word) for word in (*words, "--table", f"chicago={sales}:id", "--metastore", "thrift://n:1")
    ]
    dump = tmp_path / "dump.csv"
    write(staging, 10, "I 1 1 one", "I 2 2 two", "D 3 1", "I 4 3 three")
    assert main(command) == EXIT_OK
    assert capsys.readouterr().out.splitlines()[0].endswith(" (local)")
    write(staging, 103, "D 1 3", "I 1 3 THREE", "D 2 2")
    write(staging, 12, "I 1 4 four")
    with monkeypatch.context() as patched:
        patched.setattr(engine_arguments, "LOCAL_FILE_BYTES_MAX", 50)
        assert main(command) == EXIT_OK
    assert capsys.readouterr().out.splitlines()[0].endswith(" (spark)")
    assert difference(sales, dump, "3,three 5,five", capsys) == f"{sales}: 1 inserts, 1 updates, 1 deletes"
    write(staging, 104, "I 1 9 nine", "X 2 1")
    assert main(command) == EXIT_FAILED
    errors = capsys.readouterr().err
    assert "InputFormatError" in errors
    assert "chicago-104.csv, line 2: field operation is 'X'" in errors
    assert difference(sales, dump, "3,THREE 4,four", capsys) == f"{sales}: no differences"


@pytest.mark.slow
def test_the_table_is_what_the_collector_would_make_of_its_files(
    sales: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without keys of the delete file, with rows of the upsert file; the same file again changes nothing."""
    raw = tmp_path / "raw-1"
    words = ("ingest", "collector", "--files", str(raw), "--table", sales, "--key", "id", "--quiet")
    command = (*words, "--metastore", "thrift://n:1")
    log = [("INSERT", "1", "one"), ("INSERT", "2", "two"), ("UPDATE", "1", "ONE"), ("DELETE", "2", "two")]
    log += [("DELETE", "3", "none"), ("INSERT", "4", "four"), ("INSERT", "4", "four")]
    raw.write_text("".join(raw_record(operation, [key], [int(key), msg]) for operation, key, msg in log))
    assert main(command) == EXIT_OK
    assert difference(sales, tmp_path / "dump.csv", "1,ONE 4,four", capsys) == f"{sales}: no differences"
    assert main(command) == EXIT_OK
    assert "nothing new after" in capsys.readouterr().out
