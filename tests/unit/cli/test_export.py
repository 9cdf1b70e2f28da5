"""``hive-mutate export`` on a real metastore."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_client.embedded.server import EmbeddedMetastore
from mutation_api.cli import export as command
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from mutation_api.hive.connect import connect
from tests.support.lakes import Lake

pytestmark = pytest.mark.slow

NAME = "default.exported"


@pytest.fixture(scope="module")
def uri(embedded_metastore: EmbeddedMetastore) -> str:
    """A metastore of Hive 2.3 with a table."""
    with connect(embedded_metastore.uri) as hive:
        split = {"transactional_properties": "default"}
        table = hive.create_table(
            NAME, "id bigint, item string", clustered_by=["id"], num_buckets=2, properties=split
        )
        table.append(pa.table({"id": [1, 2], "item": ["tea", "coffee"]}))
    return embedded_metastore.uri


def test_from_the_first_copy_to_the_cutover(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each action prints its report; a difference and a refusal end with code 1."""
    lake = Lake(tmp_path / "lake", "iceberg")
    settings = tmp_path / "settings"
    settings.write_text("".join(f"{name}={value}\n" for name, value in lake.options.items()))
    rest = [
        NAME,
        "--to",
        "iceberg:lake.copies.{table}",
        "--target-conf-file",
        str(settings),
        "--metastore",
        uri,
    ]
    assert main(["export", *rest, "--json"]) == EXIT_OK
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert (table["first_copy"], table["row_count"]) == (True, 2)
    assert main(["export", *rest]) == EXIT_OK
    assert "is up to date" in capsys.readouterr().out
    assert main(["export", "verify", *rest]) == EXIT_OK
    assert "equal; 2 rows" in capsys.readouterr().out
    with connect(uri) as hive:
        hive.table(NAME).delete(where="id = 1")
    with monkeypatch.context() as patched:
        patched.setattr(command.Export, "follow", lambda self, seconds: iter([self.run(), self.run()]))
        assert main(["export", *rest, "--follow", "0.5"]) == EXIT_OK
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert [row["id"] for row in lake.arrow("exported").to_pylist()] == [2]
    assert main(["export", "cutover", *rest]) == EXIT_OK
    assert "hive.export.moved.to" in capsys.readouterr().out
    assert main(["export", *rest]) == EXIT_FAILED
    assert "was moved to" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["verify", "--to", "delta:x"], "name at least one table"),
        (["a.b", "--to", "delta:x", "--follow", "0"], "--follow requires seconds"),
        (["verify", "a.b", "--to", "delta:x", "--follow", "5"], "--follow requires seconds"),
        (
            ["a.b", "--to", "delta:x", "--target-conf", "AWS_SECRET_ACCESS_KEY=x"],
            "Pass it in --target-conf-file",
        ),
        (["a.b"], "--to"),
    ],
)
def test_wrong_usage_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is connected."""
    with pytest.raises(SystemExit) as caught:
        main(["export", *words, "--metastore", "thrift://localhost:1"])
    assert caught.value.code == EXIT_USAGE
    assert message in capsys.readouterr().err


def test_an_invalid_target_is_refused(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message shows the forms of addresses."""
    assert main(["export", NAME, "--to", "s3://bucket/t", "--metastore", uri]) == EXIT_FAILED
    assert "expected delta:URL" in capsys.readouterr().err
