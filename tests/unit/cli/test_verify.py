"""``hive-mutate verify`` without a metastore."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE

GOLDEN = Path(__file__).parents[2] / "golden" / "acid_v4" / "bucketed"
SCHEMA = ("--schema", "id bigint, msg string")


def test_a_sound_directory(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and exit code 0."""
    assert main(["verify", "--location", str(GOLDEN / "data"), *SCHEMA, "--buckets", "2"]) == EXIT_OK
    out, err = capsys.readouterr()
    assert out.startswith("directory.data: sound; 1 partition, 9 files, ")
    assert out.endswith(" bytes, 8 rows\n")
    assert err == ""


def test_a_damaged_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file, the rule and what to do; exit code 1. With --json the same for programs."""
    copy = Path(shutil.copytree(GOLDEN / "data", tmp_path / "t"))
    file = sorted(copy.glob("delta_*/bucket_00000_0"))[0]
    file.write_bytes(file.read_bytes()[:-3])
    assert main(["verify", "--location", str(copy), *SCHEMA]) == EXIT_FAILED
    out = capsys.readouterr().out
    assert f"DAMAGE unreadable: file:{file}: found" in out
    assert "rule: every value of every stripe can be read; what to do: restore the file" in out
    assert "1 DAMAGED, 1 notices" in out
    assert main(["verify", "--location", str(copy), *SCHEMA, "--notices"]) == EXIT_FAILED
    assert "NOTICE not-merged: " in capsys.readouterr().out
    assert main(["verify", "--location", str(copy), *SCHEMA, "--json"]) == EXIT_FAILED
    report = json.loads(capsys.readouterr().out)
    assert (report["sound"], report["row_count"], report["file_count"]) == (False, None, 9)
    assert {f["rule"]: f["severity"] for f in report["findings"]} == {
        "unreadable": "damage",
        "not-merged": "notice",
    }


@pytest.mark.parametrize(
    "words",
    [[], ["d.t", "--location", "x"], ["--location", "x"], ["d.t", *SCHEMA], ["d.t", "--threads", "x"]],
)
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What contradicts itself is refused."""
    with pytest.raises(SystemExit) as exited:
        main(["verify", *words])
    assert exited.value.code == EXIT_USAGE
    assert "error" in capsys.readouterr().err
