"""What a user typed wrongly is not shown if it may have a password."""

from __future__ import annotations

import pytest

from mutation_api.cli.main import main


@pytest.mark.parametrize(
    "words",
    [
        "update enable --sourc=postgresql://me:s3cret@h/db --table a.b",
        "update enable --source x --table a.b postgresql://me:s3cret@h/db",
        "update enable --source x --table a.b postgres:/me:s3cret@h/db",
        "update enable --source x --table a.b me:s3cret@h",
        "update enable --source x --table a.b --password=s3cret",
        "update enable --source x --table a.b mysql://h/db?pw=s3cret",
        "update enable --source x --table a.b --method postgresql://me:s3cret@h/db",
        "update extract --table a.b --follow mysql://me:s3cret@h/db",
        "ingest mysql --source x mysql://me:s3cret@h/db",
        "ingest debezium --kafka b --topic t --kafka-conf sasl.password:s3cret",
        "ingest debezium --kafka b --topic t --kafka-conf Sasl.Password=s3cret",
        "ingest debezium --kafka b --topic t --kafka-conf ssl.private.key.passphrase=s3cret",
        "postgresql://me:s3cret@h/db",
        "upd postgresql://me:s3cret@h/db",
    ],
)
def test_a_complaint_shows_no_password(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words.split())
    assert caught.value.code == 2
    said = capsys.readouterr()
    assert "s3cret" not in said.err + said.out
    assert "error: " in said.err


def test_other_complaints_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["update", "enable", "--source", "x", "--table", "a.b", "--method", "guess", "more", "s3://b/c"])
    assert "invalid choice: 'guess'" in capsys.readouterr().err
