"""The commands that change rows (``hive-mutate delete``, ``upsert``, …) on a real metastore."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from metastore_client.embedded.server import EmbeddedMetastore
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from mutation_api.hive.connect import connect
from tests.support.ingested_table import engine_of_commands

pytestmark = pytest.mark.slow

NAME = "default.verbs"


@pytest.fixture(scope="module")
def uri(embedded_metastore: EmbeddedMetastore) -> str:
    """A metastore of Hive 2.3 with a partitioned table."""
    with connect(embedded_metastore.uri) as hive:
        hive.create_table(
            NAME,
            "id bigint, item string, price decimal(8,2), day date",
            partitioned_by=["day"],
            clustered_by=["id"],
            num_buckets=2,
        )
    return embedded_metastore.uri


def read(uri: str) -> list[tuple[int, str, str, int]]:
    """All rows: id, item, price, month."""
    with connect(uri) as hive, hive.snapshot(NAME) as view:
        rows = view.table(NAME).scan().to_arrow().to_pylist()
    return sorted((r["id"], r["item"], str(r["price"]), r["day"].month) for r in rows)


@pytest.mark.long
def test_every_verb(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is one transaction; a dry run changes nothing."""

    def run(*words: str) -> str:
        code = main([*words, "--metastore", uri])
        printed = capsys.readouterr()
        assert code == EXIT_OK, printed.err
        return printed.out

    rows = tmp_path / "rows.csv"
    rows.write_text(
        "id,item,price,day\n1,tea,1.00,2024-05-01\n2,milk,2.00,2024-05-01\n3,tea,3.00,2024-06-01\n"
    )
    assert "3 inserted" in run("upsert", NAME, str(rows), "--key", "id", "--create-partitions")
    run("update-rows", NAME, "--set", "price = price * 1.1", "--where", "item = 'tea'")
    assert read(uri) == [(1, "tea", "1.10", 5), (2, "milk", "2.00", 5), (3, "tea", "3.30", 6)]

    tried = run("delete", NAME, "--where", "price < 2", "--dry-run", "--json")
    assert json.loads(tried)["deleted"] == 1
    assert len(read(uri)) == 3
    assert "1 deleted" in run("delete", NAME, "--where", "price < 2")

    rows.write_text("id,item,price,day\n4,cola,4.00,2024-06-01\n")
    report = json.loads(run("overwrite", NAME, str(rows), "--partitions", "dynamic", "--json"))
    assert (report["deleted"], report["inserted"], report["partitions"]) == (1, 1, ["day=2024-06-01"])
    assert read(uri) == [(2, "milk", "2.00", 5), (4, "cola", "4.00", 6)]
    partitions = ["--partition", "day=2024-06-01", "--partition", "day=2024-05-01"]
    tried = json.loads(run("overwrite", NAME, str(rows), *partitions, "--dry-run", "--json"))
    assert (tried["deleted"], tried["inserted"], tried["dry_run"]) == (2, 1, True)
    assert len(read(uri)) == 2
    run("overwrite", NAME, str(rows), *partitions)
    assert read(uri) == [(4, "cola", "4.00", 6)]
    assert "1 deleted" in run("truncate", NAME)
    assert read(uri) == []


@pytest.mark.long
def test_every_verb_by_spark(
    uri: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
) -> None:
    """The same reports; with --engine auto, SQL that only Spark understands goes to it."""
    engine = engine_of_commands(monkeypatch, spark)

    def run(*words: str) -> dict[str, object]:
        code = main([*words, "--json", "--metastore", uri])
        printed = capsys.readouterr()
        assert code == EXIT_OK, printed.err
        found = json.loads(printed.out)
        assert found.pop("engine") == "spark"
        return found

    by_spark = ["--engine", engine]
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "id,item,price,day\n1,tea,1.00,2024-05-01\n2,milk,2.00,2024-05-01\n3,tea,3.00,2024-06-01\n"
    )
    upsert = ["upsert", NAME, str(rows), "--key", "id", "--create-partitions", *by_spark]
    assert run(*upsert)["inserted"] == 3
    values = ["--set", "item = upper(item)", "--where", "item = lower('TEA')"]
    assert run("update-rows", NAME, *values, "--dry-run")["updated"] == 2
    assert run("update-rows", NAME, *values)["updated"] == 2
    assert read(uri) == [(1, "TEA", "1.00", 5), (2, "milk", "2.00", 5), (3, "TEA", "3.00", 6)]
    assert run("delete", NAME, "--where", "upper(item) = 'MILK'", "--dry-run")["deleted"] == 1
    assert run("delete", NAME, "--where", "upper(item) = 'MILK'")["deleted"] == 1

    rows.write_text("id,item,price,day\n4,cola,4.00,2024-06-01\n")
    for options, left in ((["--dry-run"], [1, 3]), ([], [1, 4])):
        found = run("overwrite", NAME, str(rows), "--partitions", "dynamic", *options, *by_spark)
        assert (found["deleted"], found["inserted"]) == (1, 1)
        assert [row[0] for row in read(uri)] == left
    for options, count in ((["--dry-run"], 2), ([], 0)):
        assert run("truncate", NAME, *options, *by_spark)["deleted"] == 2
        assert len(read(uri)) == count


def test_track(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files with an operation and columns that no version has."""
    with connect(uri) as hive:
        columns = "item string, price decimal(8,2), since date, until date, is_last boolean"
        hive.create_table("default.versions", columns, clustered_by=["item"], num_buckets=1)
    file = tmp_path / "changes.csv"
    words = [
        "track",
        "default.versions",
        str(file),
        "--key",
        "item",
        "--sequence",
        "seen",
        "--valid-from",
        "since",
    ]
    words += [
        "--valid-to",
        "until",
        "--current",
        "is_last",
        "--columns",
        "price",
        "--json",
        "--metastore",
        uri,
    ]
    for lines, expected in (
        ("tea,1.00,2024-05-01,x,insert\nmilk,2.00,2024-05-01,x,insert\n", (2, 0)),
        ("tea,3.00,2024-05-03,x,update\nmilk,,2024-05-04,x,delete\ntea,2.00,2024-05-02,x,update\n", (2, 2)),
    ):
        file.write_text(f"item,price,seen,more,operation\n{lines}")
        assert main([*words, "--dry-run"]) == main(words) == EXIT_OK
        tried, done = map(json.loads, capsys.readouterr().out.splitlines())
        assert {**tried, "dry_run": False} == done
        assert (done["inserted"], done["updated"]) == expected
    with connect(uri) as hive, hive.snapshot("default.versions") as view:
        rows = view.table("default.versions").scan().to_arrow().to_pylist()
    found = [
        (row["item"], str(row["price"]), row["since"].day, row["until"] and row["until"].day, row["is_last"])
        for row in rows
    ]
    assert sorted(found) == [
        ("milk", "2.00", 1, 4, False),
        ("tea", "1.00", 1, 2, False),
        ("tea", "2.00", 2, 3, False),
        ("tea", "3.00", 3, None, True),
    ]
    file.write_text("item,price,seen\ntea,1.00,2024-05-01\n")
    words = [
        "track",
        "default.versions",
        str(file),
        "--key",
        "item",
        "--sequence",
        "seen",
        "--metastore",
        uri,
    ]
    assert main(words) == EXIT_FAILED
    assert "no column 'valid_from'" in capsys.readouterr().err


def test_an_upsert_without_key(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table must declare a primary key."""
    (tmp_path / "rows.csv").write_text("id,item,price,day\n1,tea,1.00,2024-05-01\n")
    assert main(["upsert", NAME, str(tmp_path / "rows.csv"), "--metastore", uri]) == EXIT_FAILED
    assert "declares no primary key: name the key columns with --key" in capsys.readouterr().err


def test_columns_of_files_are_added(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --schema add, by upsert and by merge; the message names them."""
    with connect(uri) as hive:
        hive.create_table("default.wider", "id int, item string", clustered_by=["id"], num_buckets=1)
    (tmp_path / "one.csv").write_text("id,item,note\n1,tea,a\n")
    (tmp_path / "two.csv").write_text("id,item,note,size\n2,milk,b,7\n")
    upsert = ["upsert", "default.wider", str(tmp_path / "one.csv"), "--key", "id", "--metastore", uri]
    assert main(upsert) == EXIT_FAILED
    assert "note" in capsys.readouterr().err
    assert main([*upsert, "--schema", "add"]) == EXIT_OK
    assert "note string" in capsys.readouterr().err
    merge = ["merge", "--table", "default.wider", "--source", str(tmp_path / "two.csv"), "--key", "id"]
    assert main([*merge, "--schema", "add", "--engine", "local", "--metastore", uri]) == EXIT_OK
    with connect(uri) as hive, hive.snapshot("default.wider") as view:
        found = view.table("default.wider").scan().to_arrow().sort_by("id").to_pydict()
    assert (found["note"], found["size"]) == (["a", "b"], [None, "7"])


def test_a_lost_race_is_attempted_again(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The last error says how many attempts were made."""
    waiting = ["--lock-timeout", "0.1", "--metastore", uri]
    with connect(uri) as hive, hive.transaction(NAME):
        assert main(["truncate", NAME, "--attempts", "2", *waiting]) == EXIT_FAILED
        refused, note = capsys.readouterr().err.splitlines()[-2:]
    assert refused.startswith("hive-mutate truncate: LockNotAcquiredError: ")
    assert note == "hive-mutate truncate: 2 of 2 attempts were made"
    assert main(["truncate", NAME, "--attempts", "2", *waiting]) == EXIT_OK


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["delete", NAME], EXIT_USAGE, "required: --where"),
        (["delete", NAME, "--where", "nothing = 1"], EXIT_FAILED, "column nothing does not exist"),
        (["delete", NAME, "--where", "upper(item) = 'X'", "--engine", "local"], EXIT_FAILED, "upper"),
        (["update-rows", NAME, "--set", "price"], EXIT_USAGE, "expected COLUMN=SQL"),
        (["update-rows", NAME, "--set", "id=1", "--set", "ID = 2"], EXIT_USAGE, "column ID is set twice"),
        (["truncate", "default.none"], EXIT_FAILED, "default.none"),
        (["overwrite", NAME, "/nowhere.csv"], EXIT_FAILED, "/nowhere.csv"),
    ],
    ids=range(7),
)
def test_mistakes_are_named(
    uri: str, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str
) -> None:
    """In one line, and nothing is changed."""
    before = read(uri)
    try:
        found = main([*words, "--metastore", uri])
    except SystemExit as error:
        found = int(str(error))
    assert (found, message in capsys.readouterr().err) == (code, True)
    assert read(uri) == before
