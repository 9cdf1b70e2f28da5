"""What README and the page of five minutes show are programs: they run, and print what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.doc_blocks import DOCS, README, blocks, run_blocks

pytestmark = pytest.mark.slow

TOUR = DOCS / "start" / "local.md"


@pytest.mark.long
def test_the_example_of_the_readme(tmp_path: Path) -> None:
    """Without Spark; it starts a metastore of its own."""
    assert run_blocks(README, tmp_path)


def test_the_tour_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    """All python blocks, one after the other, are one program; the output blocks are what it shows."""
    program = tmp_path / "tour.py"
    program.write_text(
        "\n".join(each.text for each in blocks(TOUR) if each.kind == "python"), encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    promised = [each.text for each in blocks(TOUR) if each.kind == "output"]
    assert promised, "the page shows no output"
    for text in promised:
        assert text.strip() in done.stdout, done.stdout
