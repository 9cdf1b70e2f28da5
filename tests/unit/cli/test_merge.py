"""``hive-mutate merge``: its usage."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutation_api.cli.main import EXIT_FAILED, EXIT_USAGE, main

NEEDED = ("merge", "--table", "d.t", "--key", "id", "--source", "x.csv")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("merge", "--table", "d.t"), "the following arguments are required: --key, --source"),
        ((*NEEDED, "--no-update", "--update-when", "true"), "give either --no-update or --update-when"),
        ((*NEEDED, "--no-insert", "--insert-when", "true"), "give either --no-insert or --insert-when"),
        ((*NEEDED, "--delete-missing", "--delete-missing-when", "true"), "give either --delete-missing or"),
        ((*NEEDED, "--no-update", "--no-insert"), "--no-update and --no-insert leave nothing to do"),
        ((*NEEDED, "--missing-columns", "skip"), "invalid choice: 'skip'"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    """Status 2, and what is wrong with it."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == EXIT_USAGE
    assert message in capsys.readouterr().err


def test_help_tells_what_happens_to_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """The defaults, and what a deletion means for inserts."""
    with pytest.raises(SystemExit) as caught:
        main(["merge", "--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert "the others are inserted" in printed
    assert "A row for which --delete-when holds is never inserted." in printed


def test_files_are_looked_for_before_anything_is_begun(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A missing file and one of an unknown format: status 1, though no metastore answers."""
    nowhere = ("--metastore", "thrift://127.0.0.1:1")
    assert main([*NEEDED[:-1], str(tmp_path / "no.csv"), *nowhere]) == EXIT_FAILED
    assert f"there is no file {tmp_path / 'no.csv'}" in capsys.readouterr().err
    (tmp_path / "x.txt").touch()
    assert main([*NEEDED[:-1], str(tmp_path / "x.txt"), *nowhere]) == EXIT_FAILED
    assert "name the format with --format, one of csv, json, orc, parquet" in capsys.readouterr().err
