"""The README's tour is a program: it runs as it stands there and prints what it says there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```(python|output)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[str]:
    """The README's fenced blocks of one kind, in order."""
    return [text for found, text in BLOCK.findall(README.read_text(encoding="utf-8")) if found == kind]


def test_the_tour_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    """All python blocks, one after the other, are one program; the output blocks are what it shows."""
    program = tmp_path / "tour.py"
    program.write_text("\n".join(blocks("python")), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    promised = blocks("output")
    assert promised, "the README shows no output"
    for text in promised:
        assert text.strip() in done.stdout, done.stdout
