"""docs/cookbook.md: its blocks run as one program, print what the page shows, and are short."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mutation_api.cli import diff
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_OK
from tests.support.doc_blocks import DOCS, Block, blocks, programs

PAGE = DOCS / "cookbook.md"
LINES_MAX = 15
"""Number of lines of a recipe that are not empty."""
DURING_THE_DAY = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
"""A time within the day whose changes a recipe exports."""


def task(**_options: object) -> Callable[[Any], Any]:
    """Decorate a function as Airflow's ``task`` does: the function itself is the attribute ``function``."""

    def decorated(function: Any) -> Any:
        function.function = function
        return function

    return decorated


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide the one name of Airflow that the page imports. Airflow itself is not a package of the tests."""
    sdk = ModuleType("airflow.sdk")
    monkeypatch.setattr(sdk, "task", task, raising=False)
    monkeypatch.setitem(sys.modules, "airflow", ModuleType("airflow"))
    monkeypatch.setitem(sys.modules, "airflow.sdk", sdk)


@pytest.mark.thorough
@pytest.mark.usefixtures("airflow")
def test_the_recipes_run_and_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each block sees the names of the blocks before it. The functions that others call are called here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names: dict[str, Any] = {}
    for block in blocks(PAGE):
        if block.kind == "python":
            exec(compile(block.text, str(PAGE), "exec"), names)
            printed = capsys.readouterr().out
        elif block.kind == "output":
            assert block.text == printed
    assert names["load_orders"].function("2026-05-03") == [("sales.orders", 1)]
    names["test_a_failed_commit_leaves_nothing"](tmp_path / "numbers")

    for file in tmp_path.rglob("bucket_*"):
        os.utime(file, (DURING_THE_DAY, DURING_THE_DAY))
    monkeypatch.setattr(diff, "metastore_from", lambda _: contextlib.nullcontext(names["metastore"]))
    (command,) = [each.text for each in blocks(PAGE) if each.kind == "sh"]
    program, *words = shlex.split(command.replace("\\\n", " "))
    assert (program, main(words)) == ("hive-mutate", EXIT_OK)
    header, *rows = (tmp_path / "changes.csv").read_text(encoding="utf-8").splitlines()
    assert header.startswith("operation,ROW__ID")
    assert f"{len(rows):,} inserts" in capsys.readouterr().out
    assert any(row.endswith(",water,1") for row in rows)


@pytest.mark.parametrize("block", programs(PAGE), ids=lambda block: block.text.partition("\n")[0])
def test_a_recipe_is_short(block: Block) -> None:
    """Longer programs are in examples/."""
    assert len([line for line in block.text.splitlines() if line.strip()]) < LINES_MAX
