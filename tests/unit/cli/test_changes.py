"""``hive-mutate changes`` on a real metastore."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_client.embedded.server import EmbeddedMetastore
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from mutation_api.hive.connect import connect

pytestmark = pytest.mark.slow

NAME = "default.changed"


@pytest.fixture(scope="module")
def uri(embedded_metastore: EmbeddedMetastore) -> str:
    """A metastore of Hive 2.3 with a table whose updates are a delete and an insert."""
    with connect(embedded_metastore.uri) as hive:
        split = {"transactional_properties": "default"}
        hive.create_table(
            NAME, "id bigint, item string", clustered_by=["id"], num_buckets=1, properties=split
        )
        hive.create_table("default.legacy", "id bigint", clustered_by=["id"], num_buckets=1)
    return embedded_metastore.uri


def printed(text: str) -> list[dict[str, Any]]:
    """The objects of the lines."""
    return [json.loads(line) for line in text.splitlines()]


def test_changes_since_the_last_run(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file keeps the position; each run prints what is new."""
    file = tmp_path / "position"
    words = [
        "changes",
        NAME,
        "--since",
        "beginning",
        "--position-file",
        str(file),
        "--on",
        "id",
        "--metastore",
        uri,
    ]
    with connect(uri) as hive:
        hive.table(NAME).append(pa.table({"id": [1, 2], "item": ["tea", 'a "b" é']}))
        assert main(words) == EXIT_OK
        *changes, last = printed(capsys.readouterr().out)
        assert [(each["change"], each["row"]) for each in changes[:2]] == [
            ("insert", {"id": 1, "item": "tea"}),
            ("insert", {"id": 2, "item": 'a "b" é'}),
        ]
        assert last["position"] == file.read_text()
        hive.table(NAME).update(set={"item": "'milk'"}, where="id = 1")
    assert main(words) == EXIT_OK
    before, after, position = printed(capsys.readouterr().out)
    assert (before["change"], before["row"]["item"]) == ("update_before", "tea")
    assert (after["change"], after["row"]["item"], after["table"]) == ("update_after", "milk", NAME)
    assert after["transaction"] == after["write_id"] == after["ROW__ID"]["transactionid"]
    assert position["position"] == file.read_text()
    assert main(words) == EXIT_OK
    assert capsys.readouterr().out == ""
    assert (
        main(["changes", NAME, "--since", last["position"], "--net", "--columns", "id", "--metastore", uri])
        == EXIT_OK
    )
    assert [each.get("row") for each in printed(capsys.readouterr().out)] == [{"id": 1}, {"id": 1}, None]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([NAME], EXIT_USAGE, "--since is required"),
        ([NAME, "--since", "yesterday"], EXIT_USAGE, "expected a position, beginning, now"),
        ([NAME, "--since", "now", "--follow", "0"], EXIT_USAGE, "--follow requires"),
        ([NAME, "--since", "now", "--hold", "9"], EXIT_USAGE, "--hold requires --follow"),
        ([NAME, "--since", "now", "--on", "id", "--on", f"{NAME}=id"], EXIT_FAILED, "once for each table"),
        ([NAME, "--since", "{}"], EXIT_FAILED, "not a position of a change feed"),
        ([NAME, "--since", "now", "--on", "nothing"], EXIT_FAILED, "nothing"),
    ],
    ids=range(7),
)
def test_mistakes_are_named(
    uri: str, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str
) -> None:
    """In one line."""
    try:
        found = main(["changes", *words, "--metastore", uri])
    except SystemExit as error:
        found = int(str(error))
    assert (found, message in capsys.readouterr().err) == (code, True)
