"""``hive-mutate diff``: its usage."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutation_api.cli.main import EXIT_FAILED, EXIT_USAGE, main

NEEDED = ("diff", "--table", "d.t", "--key", "id")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (NEEDED, "one of the arguments --against --since-write-id is required"),
        ((*NEEDED, "--against", "x.csv"), "give either --output FILE or --summary"),
        ((*NEEDED, "--against", "x.csv", "--summary", "--output", "y.csv"), "give either --output FILE or"),
        ((*NEEDED, "--against", "x.csv", "--summary", "--undo"), "--undo goes with --since-write-id"),
        (
            (*NEEDED, "--since-write-id", "3", "--summary", "--format", "csv"),
            "--format goes with --against FILE",
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
        ("no/x.csv", "its folder does not exist"),
    ],
)
def test_the_output_is_looked_at_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, message: str
) -> None:
    """Before anything is compared."""
    assert main([*NEEDED, "--against", "x.csv", "--output", str(tmp_path / name)]) == EXIT_FAILED
    assert message in capsys.readouterr().err
