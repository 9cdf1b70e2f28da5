"""``hive-mutate create-table``, ``alter-table`` and ``doctor`` on a real metastore."""

from __future__ import annotations

import json

import pytest

from metastore_client.embedded.server import EmbeddedMetastore
from metastore_client.model import ColumnInfo, TableInfo
from metastore_client.remote.thrift_client import open_client
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def uri(embedded_metastore: EmbeddedMetastore) -> str:
    """A metastore of Hive 2.3 with an empty database ``made``."""
    with open_client(embedded_metastore.uri) as client:
        client.create_database("made")
    return embedded_metastore.uri


@pytest.fixture(scope="module")
def stock(uri: str) -> str:
    """A table of two columns that can be altered."""
    words = ("--schema", "id int, v varchar(5)", "--clustered-by", "id", "--buckets", "1", "--metastore", uri)
    assert main(("create-table", "made.stock", *words)) == EXIT_OK
    return "made.stock"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def said(printed: str) -> list[str]:
    """The lines without warnings: the server has no threads that compact."""
    return [line for line in printed.splitlines() if not line.startswith("warning: hive.compactor.")]


def test_tables_are_created_and_examined(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the options say is in the metastore; doctor passes it, and names what breaks a rule of another."""
    where = ("--metastore", uri)
    code, printed, _ = run(
        capsys,
        *("create-table", "made.Orders", "--schema", "ID bigint, price decimal(10, 2)"),
        *("--partition-schema", "day date, hr int", "--clustered-by", "id", "--buckets", "4"),
        *("--property", "orc.compress=SNAPPY", *where),
    )
    assert code == EXIT_OK
    assert printed.startswith(
        "created made.orders, 2 columns, partitioned by day, hr, clustered by id into 4 buckets, at "
    )
    with open_client(uri) as client:
        info = client.get_table("made", "orders")
        assert info.columns == (ColumnInfo("id", "bigint"), ColumnInfo("price", "decimal(10,2)"))
        assert info.partition_keys == (ColumnInfo("day", "date"), ColumnInfo("hr", "int"))
        assert (info.num_buckets, info.bucket_columns) == (4, ("id",))
        assert info.parameters["orc.compress"] == "SNAPPY"

        code, printed, _ = run(capsys, "doctor", "made", *where)
        assert (code, said(printed)[-1]) == (
            EXIT_OK,
            "made.orders: can be changed (layout of Hive 2: v1-split)",
        )
        client.create_table(TableInfo("made", "plain", (ColumnInfo("id", "int"),)))

    code, printed, errors = run(capsys, "doctor", "made", *where)
    assert (code, errors) == (EXIT_FAILED, "")
    assert "write ids" in printed
    assert said(printed)[-2] == "made.orders: can be changed (layout of Hive 2: v1-split)"
    assert said(printed)[-1].startswith("made.plain: NO: table made.plain cannot be used: ")
    assert run(capsys, "doctor", "made.ORDERS", *where)[0] == EXIT_OK

    code, printed, _ = run(capsys, "doctor", "made", "--json", *where)
    orders, plain = json.loads(printed)["tables"]
    assert (orders["layout"], orders["reason"], plain["layout"]) == ("v1-split", None, None)
    assert "transactional" in plain["reason"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("create-table", "made.bad", "--schema", "id bigint"), "made.bad"),
        (("create-table", "made.bad", "--schema", "id bigint", "--clustered-by", "id"), "go together"),
        (("create-table", "made.bad", "--schema", "id lint"), "lint"),
        (("create-table", "bad", "--schema", "id int"), "expected database.table"),
        (
            ("create-table", "none.bad", "--schema", "id int", "--clustered-by", "id", "--buckets", "2"),
            "none",
        ),
        (("create-table", "made.bad", "--schema", "id int", "--property", "x"), "expected KEY=VALUE"),
        (("alter-table", "made.nothing", "--add", "a int"), "table made.nothing does not exist at thrift://"),
        (("alter-table", "made.stock", "--add", "a lint"), "lint"),
        (("alter-table", "made.stock"), "pass --add, --rename or --widen"),
        (("alter-table", "made.stock", "--widen", "v"), "--widen 'v': expected KEY=VALUE"),
        (("alter-table", "made.stock", "--widen", "v=tinyint"), "got tinyint"),
        (("alter-table", "made.stock", "--rename", "v=w"), "by name, so the column would be NULL"),
        (("doctor", "made.nothing"), "table made.nothing does not exist at thrift://"),
        (("doctor", "nowhere"), "there is no database nowhere: check the name; SHOW DATABASES"),
        (("doctor", "nowhere.t"), "its database nowhere does not exist. Check the name"),
        (("history", "nowhere.t"), "its database nowhere does not exist. Check the name"),
        (
            ("read", "made.nothing"),
            "Check the name, or create the table with hive.create_table(…)",
        ),
        (("read", "nowhere.t"), "table nowhere.t does not exist at thrift://"),
    ],
)
def test_mistakes_are_told_in_one_line(
    uri: str, stock: str, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, the reason on standard error, nothing created."""
    code, printed, errors = run(capsys, *words, "--metastore", uri)
    assert (code, printed) == (EXIT_FAILED, "")
    assert message in errors
    assert len(errors.splitlines()) == 1
    with open_client(uri) as client:
        assert "bad" not in client.get_all_tables("made")


def test_a_table_is_altered(uri: str, stock: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the report or JSON; a dry run changes nothing."""
    where = ("--metastore", uri)
    changes = ("alter-table", stock, "--add", "a int, b string", "--add", "c date", "--widen", "v=varchar(9)")
    lines = ["widened v from varchar(5) to varchar(9)", "added a int", "added b string", "added c date"]
    code, printed, _ = run(capsys, *changes, "--dry-run", *where)
    assert (code, printed.splitlines()) == (EXIT_OK, [f"{stock}: would be altered", *lines])
    with open_client(uri) as client:
        assert len(client.get_table(*stock.split(".")).columns) == 2
        code, printed, _ = run(capsys, *changes, "--json", *where)
        assert (code, json.loads(printed)["widened"]) == (
            EXIT_OK,
            {"v": {"from": "varchar(5)", "to": "varchar(9)"}},
        )
        added = [ColumnInfo("a", "int"), ColumnInfo("b", "string"), ColumnInfo("c", "date")]
        expected = (ColumnInfo("id", "int"), ColumnInfo("v", "varchar(9)"), *added)
        assert client.get_table(*stock.split(".")).columns == expected
    code, printed, _ = run(capsys, "alter-table", stock, "--add", "A int", "--missing-only", *where)
    assert (code, printed) == (EXIT_OK, f"{stock}: no column was changed\n")


def test_a_database_without_tables(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The server is still described, and the exit code is 0."""
    with open_client(uri) as client:
        client.create_database("bare")
    code, printed, _ = run(capsys, "doctor", "bare", "--metastore", uri)
    assert code == EXIT_OK
    assert said(printed)[-1] == "the database has no tables"
