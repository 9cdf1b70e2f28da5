"""``hive-mutate create-table`` and ``doctor`` on a real metastore."""

from __future__ import annotations

import json

import pytest

from metastore_client.embedded.server import EmbeddedMetastore
from metastore_client.model import ColumnInfo, TableInfo
from metastore_client.remote.thrift_client import open_client
from mutation_api.cli.main import EXIT_FAILED, EXIT_OK, main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def uri(embedded_metastore: EmbeddedMetastore) -> str:
    """A metastore of Hive 2.3 with an empty database ``made``."""
    with open_client(embedded_metastore.uri) as client:
        client.create_database("made")
    return embedded_metastore.uri


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


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
        assert (code, printed.splitlines()[-1]) == (
            EXIT_OK,
            "made.orders: can be changed (layout of Hive 2: v1-split)",
        )
        client.create_table(TableInfo("made", "plain", (ColumnInfo("id", "int"),)))

    code, printed, errors = run(capsys, "doctor", "made", *where)
    assert (code, errors) == (EXIT_FAILED, "")
    assert "write ids" in printed
    assert printed.splitlines()[-2] == "made.orders: can be changed (layout of Hive 2: v1-split)"
    assert printed.splitlines()[-1].startswith("made.plain: NO: table made.plain cannot be used: ")
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
    uri: str, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, the reason on standard error, nothing created."""
    code, printed, errors = run(capsys, *words, "--metastore", uri)
    assert (code, printed) == (EXIT_FAILED, "")
    assert message in errors
    assert len(errors.splitlines()) == 1
    with open_client(uri) as client:
        assert "bad" not in client.get_all_tables("made")


def test_a_database_without_tables(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The server is still described, and the exit code is 0."""
    with open_client(uri) as client:
        client.create_database("bare")
    code, printed, _ = run(capsys, "doctor", "bare", "--metastore", uri)
    assert code == EXIT_OK
    assert printed.splitlines()[-1] == "the database has no tables"
