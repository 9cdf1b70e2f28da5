"""The runner: one benchmark here, or all of them in processes of their own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks import __main__ as runner
from benchmarks.measuring import report
from benchmarks.writing.write_stage import Stage

CASE = {"case": "c", "text": "right.", "contestants": {"ours": {"failure": "E: no"}}, "ratios": {}}


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("benchmark_for_a_test")

    def run(arguments: Any) -> int:
        report.show_case({**CASE, "case": f"{arguments.rows} rows"})
        return 3

    vars(module).update(
        HELP="say nothing", add_arguments=lambda p: p.add_argument("--rows", type=int, default=1), run=run
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(
        runner, "BENCHMARKS", {"one": module.__name__, "other": "benchmarks.that_is_not_there"}
    )
    monkeypatch.setattr(report, "_shown", [])


@pytest.mark.usefixtures("one")
def test_one_by_name(tmp_path: Path) -> None:
    """It gets its own options; its exit code is the runner's, and its cases are added to a file as JSON."""
    shown = tmp_path / "shown.json"
    for rows in ("7", "8"):
        assert runner.main(["one", "--rows", rows, f"--shown={shown}"]) == 3
    found = json.loads(shown.read_text())
    assert [(name, case["case"]) for name, case in found] == [("one", "7 rows"), ("one", "8 rows")]


@pytest.mark.usefixtures("one")
def test_some_on_one_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """All get the same options; the stage is open as long as they run, and the worst exit code counts."""
    steps: list[str] = []

    @contextlib.contextmanager
    def shared() -> Iterator[None]:
        steps.append("opened")
        yield
        steps.append("closed")

    def show_case(case: dict[str, Any]) -> None:
        steps.append(case["case"])

    monkeypatch.setattr(Stage, "shared", shared)
    monkeypatch.setattr(report, "show_case", show_case)
    monkeypatch.setattr(runner, "TOGETHER", ("one", "one"))
    assert runner.main(["one+one", "--rows", "7"]) == 3
    assert steps == ["opened", "7 rows", "7 rows", "closed"]


@pytest.mark.usefixtures("one")
def test_all_in_turn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One that fails does not keep the others from running; one table at the end; the worst exit code."""
    commands: list[list[str]] = []

    def run(command: list[str], check: bool) -> Any:
        commands.append(command[3:-1])
        if command[3] == "one":
            Path(command[-1].partition("=")[2]).write_text(json.dumps([("one", CASE)]))
        return SimpleNamespace(returncode=0 if command[3] == "one" else -9)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(runner, "TOGETHER", ("one",))
    assert runner.main(["--quick", "--rows", "5"]) == 9
    assert commands == [["one", "--quick", "--rows=5"], ["other", "--quick", "--rows=5"]]
    out = capsys.readouterr().out
    assert "| one | c | ours | failed: E: no |" in out
    assert "one: right" in out
    assert "other: FAILED with exit code -9" in out


def test_names_are_modules() -> None:
    """Of this package, each called as its benchmark."""
    assert {name: f"benchmarks.{name}" for name in runner.BENCHMARKS} == runner.BENCHMARKS
