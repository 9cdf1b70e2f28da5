"""``hive-mutate diff``: its usage; what the local engine does, and which engine gets which comparison."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_2_3, HIVE_4_1, InMemoryMetastore
from mutation_api import MutatorClientBuilder, TableScan, open_table
from mutation_api.cli import apply, diff, engine_arguments
from mutation_api.cli.engine_arguments import LOCAL, SPARK
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from mutation_api.upkeep.create_acid_table import create_acid_table

NEEDED = ("diff", "--table", "d.t", "--key", "id")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (NEEDED, "one of the arguments --against --since/--since-write-id is required"),
        ((*NEEDED, "--against", "x.csv"), "use either --output FILE or --summary"),
        ((*NEEDED, "--against", "x.csv", "--summary", "--output", "y.csv"), "use either --output FILE or"),
        ((*NEEDED, "--against", "x.csv", "--summary", "--undo"), "--undo can only be used with --since"),
        (
            (*NEEDED, "--since-write-id", "3", "--summary", "--format", "csv"),
            "--format can only be used with --against FILE",
        ),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    """Status 2, and what is wrong with it."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == EXIT_USAGE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("changes.txt", "the name must end in .csv, .json, .orc, .parquet"),
        ("no/x.csv", "parent directory does not exist"),
    ],
)
def test_the_output_is_looked_at_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, message: str
) -> None:
    """Before anything is compared."""
    assert main([*NEEDED, "--against", "x.csv", "--output", str(tmp_path / name)]) == EXIT_FAILED
    assert message in capsys.readouterr().err


SENT_TO_SPARK = "Spark has it"
NAME = "default.t"
COLUMNS = (
    *(ColumnInfo("id", "int"), ColumnInfo("msg", "string"), ColumnInfo("price", "decimal(6,2)")),
    ColumnInfo("at", "timestamp"),
)

Run = Callable[..., str]


@pytest.fixture(params=[HIVE_2_3, HIVE_4_1], ids=["2.3", "4.1"])
def metastore(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> InMemoryMetastore:
    """What the commands connect to; it has the tables ``default.t`` and ``default.other``. Who gives work to
    Spark gets an error that says so.
    """
    result = InMemoryMetastore(tmp_path / "warehouse", capabilities=request.param)
    for name in (NAME, "default.other"):
        create_acid_table(
            result, name, COLUMNS, [ColumnInfo("ds", "string")], clustered_by=["id"], num_buckets=2
        )
    for module in (apply, diff):
        monkeypatch.setattr(module, "metastore_from", lambda _: contextlib.nullcontext(result))
    real = engine_arguments.engine_module

    def engine_module(engine: str) -> ModuleType:
        assert engine != SPARK, SENT_TO_SPARK
        return real(engine)

    monkeypatch.setattr(engine_arguments, "engine_module", engine_module)
    return result


@pytest.fixture
def run(metastore: InMemoryMetastore, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that ends well; returns what it printed."""

    def done(*words: object) -> str:
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert status == EXIT_OK, err
        return out

    return done


HEAD = "id,msg,price,at,ds\n"
FIRST = [
    "1,one,1.50,2024-02-29 12:00:00.123456,a",
    '2,"",,,a',
    "3,three,-0.10,1500-01-01 00:00:00,b",
    "4,four,1.00,2024-01-01 00:00:00,b",
]
SECOND = [
    "1,ONE,1.50,2024-02-29 12:00:00.123456,a",
    '3,three,-0.10,1500-01-01 00:00:00,"c , d"',
    "4,four,1.00,2024-01-01 00:00:00,b",
    '5,"x ""y""\nz",0.00,,b',
]


def file_of(path: Path, rows: list[str]) -> Path:
    """A CSV of rows."""
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return path


def fill(run: Run, tmp_path: Path, rows: list[str], name: str = NAME) -> None:
    """Insert rows."""
    file = tmp_path / "inserts.csv"
    file.write_text(f"operation,{HEAD}" + "".join(f"insert,{row}\n" for row in rows))
    run("apply", name, file, "--create-partitions")


def rows_of(metastore: InMemoryMetastore, name: str = NAME) -> list[object]:
    """The rows of a table."""
    with MutatorClientBuilder().metastore(metastore).build() as client:
        found = TableScan(open_table(client.open_snapshot(name), name)).to_arrow().to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", ["csv", "json", "orc", "parquet"])
def test_a_file_is_compared_and_applied(
    metastore: InMemoryMetastore, run: Run, tmp_path: Path, suffix: str
) -> None:
    """Changes in each format, applied, make the table equal to the file; a moved row is two changes."""
    fill(run, tmp_path, FIRST)
    file, changes = file_of(tmp_path / "x.csv", SECOND), tmp_path / f"changes.{suffix}"
    words = ("diff", "--table", NAME, "--key", "ID", "--against", file)
    found = json.loads(run(*words, "--output", changes, "--json"))
    assert found == {"table": NAME, "inserted": 2, "updated": 1, "deleted": 2, "engine": LOCAL}
    assert run(*words, "--summary") == f"{NAME}: 2 inserts, 1 updates, 2 deletes (local)\n"
    run("apply", NAME, changes, "--create-partitions", "--verify-row-ids")
    assert run(*words, "--summary") == f"{NAME}: no differences (local)\n"
    fill(run, tmp_path, SECOND, "default.other")
    assert rows_of(metastore) == rows_of(metastore, "default.other")


@pytest.mark.thorough(1)
@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_nested_and_binary_columns_are_saved(
    metastore: InMemoryMetastore, run: Run, tmp_path: Path, suffix: str
) -> None:
    """Applied, they are the values of the other table."""
    columns = [
        ColumnInfo("id", "int"),
        ColumnInfo("content", "binary"),
        ColumnInfo("tags", "map<int,array<string>>"),
    ]
    for name in ("default.one", "default.two"):
        create_acid_table(metastore, name, columns, clustered_by=["id"], num_buckets=2)
    rows = tmp_path / "rows.json"
    rows.write_text(
        '{"operation": "insert", "id": 1, "content": "AP8=", "tags": [[7, ["a, b", null]]]}\n'
        '{"operation": "insert", "id": 2, "content": null, "tags": null}\n'
    )
    run("apply", "default.one", rows)
    changes = tmp_path / f"changes.{suffix}"
    run("diff", "--table", "default.two", "--key", "id", "--against", "default.one", "--output", changes)
    run("apply", "default.two", changes)
    expected = [
        {"id": 1, "content": b"\x00\xff", "tags": [(7, ["a, b", None])]},
        {"id": 2, "content": None, "tags": None},
    ]
    assert rows_of(metastore, "default.one") == rows_of(metastore, "default.two") == expected


def test_saved_changes_are_in_order(run: Run, tmp_path: Path) -> None:
    """By key and operation; an operation column of another name."""
    fill(run, tmp_path, FIRST)
    file, changes = file_of(tmp_path / "x.csv", SECOND), tmp_path / "changes.csv"
    words = ("--against", file, "--output", changes, "--operation-column", "what")
    run("diff", "--table", NAME, "--key", "id", *words)
    head, *lines = changes.read_text().split("\n")[:-2]  # the last row has two lines
    assert head.startswith("what,ROW__ID.")
    assert head.endswith(".partition,id,msg,price,at,ds")
    assert [line.split(",")[0] for line in lines] == ["update", "delete", "delete", "insert", "insert"]
    assert [line.split(",")[5] for line in lines] == ["1", "2", "3", "3", "5"]


@pytest.mark.thorough
def test_another_table_is_compared(run: Run, tmp_path: Path) -> None:
    """Its ROW__IDs do not count."""
    fill(run, tmp_path, FIRST)
    fill(run, tmp_path, SECOND, "default.other")
    words = ("diff", "--key", "id", "--summary")
    assert "2 inserts, 1 updates, 2 deletes" in run(*words, "--table", NAME, "--against", "default.other")
    assert "2 inserts, 1 updates, 2 deletes" in run(*words, "--table", "default.other", "--against", NAME)
    assert "no differences" in run(*words, "--table", NAME, "--against", NAME)


@pytest.mark.thorough
def test_the_past_comes_back(metastore: InMemoryMetastore, run: Run, tmp_path: Path) -> None:
    """The changes since an id, and backwards."""
    fill(run, tmp_path, FIRST)
    before = rows_of(metastore)
    with MutatorClientBuilder().metastore(metastore).build() as client:
        last = client.open_snapshot(NAME).valid_ids(NAME).high_watermark
    file, changes = file_of(tmp_path / "x.csv", SECOND), tmp_path / "c.parquet"
    run("diff", "--table", NAME, "--key", "id", "--against", file, "--output", changes)
    run("apply", NAME, changes, "--create-partitions")
    words = ("diff", "--table", NAME, "--key", "id", "--since-write-id", last)
    assert "2 inserts, 1 updates, 2 deletes (local)" in run(*words, "--summary")
    assert "2 inserts, 1 updates, 2 deletes (local)" in run(*words, "--undo", "--output", changes)
    run("apply", NAME, changes, "--verify-row-ids")
    assert rows_of(metastore) == before


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("key", "rows", "message"),
    [
        (
            "ds",
            FIRST,
            'DuplicateKeyError: table default.t: the key ds is not unique in the table: {"ds":"a"} in 2 '
            'rows; {"ds":"b"} in 2 rows. Choose',
        ),
        ("id", [SECOND[0]] * 2, 'is not unique in the new state: {"id":1} in 2 rows'),
        ("nix", FIRST, "invalid key ['nix']: name at least one column"),
        ("id", ["one,a,,,a"], "column id (int) has 'one' in row"),
    ],
)
def test_what_is_refused(
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    key: str,
    rows: list[str],
    message: str,
) -> None:
    """One line; no file is written."""
    fill(run, tmp_path, FIRST)
    file, changes = file_of(tmp_path / "x.csv", rows), tmp_path / "changes.csv"
    words = ("diff", "--table", NAME, "--key", key, "--against", str(file), "--output", str(changes))
    assert main(words) == EXIT_FAILED
    assert message in capsys.readouterr().err
    assert not changes.exists()


def test_sizes_decide_about_the_engine(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the table and of the file together."""
    fill(run, tmp_path, FIRST)
    file = file_of(tmp_path / "x.csv", SECOND)
    words = ("diff", "--table", NAME, "--key", "id", "--against", str(file), "--summary")
    monkeypatch.setattr(engine_arguments, "LOCAL_FILE_BYTES_MAX", file.stat().st_size + 10)
    with pytest.raises(AssertionError, match=SENT_TO_SPARK):
        main(words)
    assert "(local)" in run(*words, "--engine", LOCAL)


@pytest.mark.thorough
def test_what_needs_more_memory(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Is refused with advice by --engine local, and left to Spark otherwise."""
    fill(run, tmp_path, FIRST)
    file = file_of(tmp_path / "x.csv", [f"{n},{'x' * 100},,,a" for n in range(10_000)])
    words = ("diff", "--table", NAME, "--key", "id", "--against", str(file), "--summary")
    words += ("--local-memory", "1")
    with pytest.raises(AssertionError, match=SENT_TO_SPARK):
        main(words)
    assert main((*words, "--engine", LOCAL)) == EXIT_FAILED
    err = capsys.readouterr().err
    assert "both states and their changes would need more than the 1,048,576 bytes" in err
    assert "raise the limit with --local-memory, or use Spark" in err
