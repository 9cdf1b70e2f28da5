"""``hive-mutate compactor`` as a worker that runs for ever."""

from __future__ import annotations

import contextlib

import pytest

from mutation_api.cli import compactor
from mutation_api.cli.main import main
from mutation_api.errors import CompactionError


class Stopped(BaseException):
    """The test ends the command."""


def test_a_worker_goes_on_after_a_compaction_that_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --follow it is printed, and the queue is looked at again; otherwise the command fails."""
    asked: list[float] = []

    def fails(*_: object, **__: object) -> None:
        raise CompactionError("table d.t is sorted")

    class Clock:
        def sleep(self, seconds: float) -> None:
            asked.append(seconds)
            if len(asked) == 2:
                raise Stopped

    monkeypatch.setattr(compactor, "metastore_from", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(compactor, "compact_next", fails)
    monkeypatch.setattr(compactor, "SystemClock", Clock)
    with pytest.raises(Stopped):
        main(["compactor", "--follow", "5"])
    assert asked == [5.0, 5.0]
    assert capsys.readouterr().err.count("CompactionError: table d.t is sorted") == 2
    assert main(["compactor"]) != 0
    assert "table d.t is sorted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--follow", "0"), "--follow requires seconds above 0"),
        (("--threads", "0"), "--threads requires at least 1"),
    ],
)
def test_numbers_that_are_too_small_are_wrong_usage(
    words: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are refused before a metastore is connected."""
    with pytest.raises(SystemExit, match="2"):
        main(["compactor", *words])
    assert message in capsys.readouterr().err
