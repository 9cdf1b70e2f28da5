"""``hive-mutate merge`` and ``diff`` as a user runs them; Hive 2.3 reads what they made of the table.

Both engines do the same.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive23
from metastore_client.client import MetastoreClient
from mutation_api.cli.terminal import EXIT_OK
from tests.integration.conftest import MakeTable, Run
from tests.integration.front.test_cli import locks, run, short
from tests.integration.transactions.live_table import FilledTable, LiveTable, delete, insert, update

pytestmark = pytest.mark.slow


@pytest.fixture(params=["spark", "local"])
def engine(request: pytest.FixtureRequest) -> str:
    """Both engines."""
    return str(request.param)


def merge_into(table: LiveTable, *words: object) -> tuple[object, ...]:
    """The words of a merge into the table, by id and ds."""
    return ("merge", "--table", table.full_name, "--key", "id,ds", "--metastore", table.hive.uri, *words)


@pytest.mark.long
def test_files_are_merged(
    hive: Hive23,
    live_metastore: MetastoreClient,
    live_database: str,
    tmp_path: Path,
    run_here: Run,
    engine: str,
) -> None:
    """Two files, deletions marked: a dry run leaves no trace, the merge does what it said, Hive reads it."""
    table = FilledTable.fill(hive, live_metastore, live_database, "default")
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text('op,id,msg,ds\nU,3,"said ""so"", twice",a\nD,4,,a\nD,200,,a\n')
    other.write_text('ds,MSG,id,op\na,old,5,U\na,"",6,\nc,new,100,I\n')
    words = merge_into(
        table,
        *("--source", one, "--source", other, "--delete-when", "op = 'D'", "--create-partitions"),
        *("--engine", engine),
    )
    before = table.state()
    tried = run(*words, "--dry-run", "--json")
    assert tried.returncode == EXIT_OK, tried.stderr
    report = json.loads(tried.stdout)
    counts = {"inserted": 1, "updated": 2, "deleted": 1, "moved": 0, "unchanged": 1}
    assert {name: report[name] for name in counts} == counts
    found = (report["dry_run"], report["new_partitions"], report["engine"])
    assert found == (True, ["ds=c"], engine)
    assert table.state() == before
    assert not locks(table)

    done = run_here(*words)
    assert done.returncode == EXIT_OK, done.stderr
    assert done.stdout.splitlines()[0].startswith(
        f"{table.full_name}: merged 1 inserted, 2 updated, 1 deleted"
    )
    expected = [*table.expected({3: 'said "so", twice', 6: ""}, gone=[4]), ("ds=c", 100, "new")]
    assert table.values() == sorted(expected, key=repr)


def test_what_a_merge_refuses(filled: FilledTable, tmp_path: Path, run_here: Run, engine: str) -> None:
    """One line with the reason, status 1, and nothing written: doubled keys, and a text that is no number."""
    file = tmp_path / "x.json"
    file.write_text('{"id": 3, "msg": "a", "ds": "a"}\n{"id": 3, "msg": "b", "ds": "a"}\n')
    before = filled.state()
    chosen = ("--engine", engine)
    message = short(run_here(*merge_into(filled, "--source", file, *chosen)))
    assert message.startswith("hive-mutate merge: DuplicateKeyError: ")
    assert "1 key has more than one source row that would act" in message
    bad = tmp_path / "x.csv"
    bad.write_text("id,msg,ds\n3,a,a\nthree,b,a\n")
    assert "column id (bigint) has 'three' in row ('three', 'b', 'a')" in short(
        run_here(*merge_into(filled, "--source", bad, *chosen))
    )
    assert filled.state() == before


@pytest.mark.parametrize(
    ("chosen", "order", "engine"),
    [
        ("auto", "cast(seen AS int) desc", "spark"),
        ("spark", "seen desc", "spark"),
        ("auto", "seen desc", "local"),
    ],
)
def test_the_first_of_several_rows_counts(
    hive: Hive23,
    live_metastore: MetastoreClient,
    live_database: str,
    tmp_path: Path,
    run_here: Run,
    chosen: str,
    order: str,
    engine: str,
) -> None:
    """--first-by with a direction; other rows by conditions over both sides; missing rows deleted. What only
    Spark reads goes to it.
    """
    table = FilledTable.fill(hive, live_metastore, live_database, "legacy")
    file = tmp_path / "x.csv"
    file.write_text("id,msg,ds,seen\n3,a,a,1\n3,z,a,9\n5,kept,a,2\n300,x,a,1\n")
    done = run_here(
        *merge_into(table, "--source", file, "--first-by", order, "--no-insert", "--engine", chosen),
        *("--update-when", "msg <> 'kept' AND target.msg = 'old'"),
        *("--delete-missing-when", "ds = 'a' AND id > 8"),
    )
    assert done.returncode == EXIT_OK, done.stderr
    assert done.stdout.splitlines()[0].endswith(f" ({engine})")
    assert table.values() == table.expected({3: "z"}, gone=[9, 10, 11])


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("suffix", ["csv", "json", "orc", "parquet"])
def test_differences_are_applied(
    hive: Hive23,
    live_metastore: MetastoreClient,
    live_database: str,
    tmp_path: Path,
    run_here: Run,
    engine: str,
    suffix: str,
) -> None:
    """A saved snapshot is edited; the differences, applied, make the table equal to it as Hive reads it."""
    table = FilledTable.fill(hive, live_metastore, live_database, "default")
    file, changes, where = tmp_path / "x.csv", tmp_path / f"changes.{suffix}", ("--metastore", table.hive.uri)
    saved = run_here("read", table.full_name, "--row-ids", "--output", file, *where)
    assert saved.returncode == EXIT_OK, saved.stderr
    with file.open(newline="", encoding="utf-8") as opened:
        rows = {(row["ds"], row["id"]): row for row in csv.DictReader(opened)}
    rows["a", "3"]["msg"] = "changed"
    rows["b", "5"]["ds"] = "c"
    del rows["a", "4"]
    rows["a", "77"] = {"id": "77", "msg": "added", "ds": "a"}
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, list(rows["a", "3"]))
        writer.writeheader()
        writer.writerows(rows.values())
    words = ("diff", "--table", table.full_name, "--against", file, "--engine", engine, *where)
    found = run_here(*words, "--key", "ID,ds", "--output", changes, "--json")
    assert found.returncode == EXIT_OK, found.stderr
    counts = {"inserted": 2, "updated": 1, "deleted": 2}
    assert json.loads(found.stdout) == {"table": table.full_name, **counts, "engine": engine}
    other = "local" if engine == "spark" else "spark"  # each reads what the other wrote
    applied = run_here(
        *("apply", table.full_name, changes, "--create-partitions", "--verify-row-ids", "--engine", other),
        *where,
    )
    assert applied.returncode == EXIT_OK, applied.stderr
    expected = [row for row in table.expected({3: "changed"}, gone=[4]) if row != ("ds=b", 5, "old")]
    assert table.values() == sorted([*expected, ("ds=a", 77, "added"), ("ds=c", 5, "old")], key=repr)
    again = run_here(*words, "--key", "id,ds", "--summary")
    nothing = f"{table.full_name}: no differences ({engine})\n"
    assert (again.returncode, again.stdout) == (EXIT_OK, nothing), again.stderr
    doubled = short(run_here(*words, "--key", "id", "--summary"))
    assert doubled.startswith("hive-mutate diff: DuplicateKeyError: ")
    assert '{"id":0} in 2 rows' in doubled


@pytest.mark.long
def test_a_change_is_undone(make_table: MakeTable, tmp_path: Path, run_here: Run, engine: str) -> None:
    """The differences to an older id, backwards, applied: Hive reads what it read then."""
    table = make_table(layout="default")
    first = table.commit(*(insert(ds, n, "old") for ds in "ab" for n in (0, 2, 1, 3)))
    before = table.values()
    ids = {(r.partition, r.values[0]): r.row_id for r in table.rows()}
    table.commit(update("a", ids["ds=a", 2], 2), insert("a", 6), delete("a", ids["ds=a", 3]))
    table.commit(delete("b", ids["ds=b", 0]))
    file, where = tmp_path / "undo.parquet", ("--metastore", table.hive.uri)
    words = ("diff", "--table", table.full_name, "--key", "id,ds", "--since-write-id", first)
    words += ("--engine", engine, *where)
    since = run_here(*words, "--summary")
    assert (since.returncode, since.stdout) == (
        EXIT_OK,
        f"{table.full_name}: 1 inserts, 1 updates, 2 deletes ({engine})\n",
    ), since.stderr
    undo = run_here(*words, "--undo", "--output", file)
    assert undo.returncode == EXIT_OK, undo.stderr
    applied = run_here("apply", table.full_name, file, "--verify-row-ids", *where)
    assert applied.returncode == EXIT_OK, applied.stderr
    assert table.values() == before
