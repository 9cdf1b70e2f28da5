"""Programs that answer lines, when they do not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from judges.errors import HiveError, JudgeError
from judges.process import JudgeProcess

ANSWERING = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "end":
        sys.exit("it is over")
    if request["do"] == "warn":
        print("[warning] the cache is full", flush=True)
    error = {"error": "E", "message": "no", "trace": "here"}
    print(json.dumps(error if request["do"] == "fail" else {"got": request}), flush=True)
"""


def program(tmp_path: Path) -> JudgeProcess:
    """One that answers with what it got."""
    return JudgeProcess("echo", [sys.executable, "-c", ANSWERING], tmp_path / "echo.log")


def test_a_request_is_answered(tmp_path: Path) -> None:
    """Also after one that failed."""
    with program(tmp_path) as echo:
        with pytest.raises(HiveError, match="no"):
            echo.ask({"do": "fail"}, timeout_seconds=120)
        assert echo.ask({"do": "x"}, timeout_seconds=120) == {"got": {"do": "x"}}


def test_a_program_that_ends_is_told_and_can_be_closed(tmp_path: Path) -> None:
    """The error shows its log; a request that it never got is dropped."""
    with program(tmp_path) as echo:
        with pytest.raises(JudgeError, match="it is over"):
            echo.ask({"do": "end"}, timeout_seconds=120)
        with pytest.raises(JudgeError, match="has ended"):
            echo.ask({"do": "x"}, timeout_seconds=120)
        echo.close()


def test_a_program_that_says_something_else_is_stopped(tmp_path: Path) -> None:
    """Or every later answer would be that of the request before."""
    with program(tmp_path) as echo:
        with pytest.raises(JudgeError, match="the cache is full"):
            echo.ask({"do": "warn"}, timeout_seconds=120)
        with pytest.raises(JudgeError, match="has ended"):
            echo.ask({"do": "x"}, timeout_seconds=120)
