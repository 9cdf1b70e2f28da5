"""The fenced blocks of a page, and running them as a reader would: in order, in one folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
TIMEOUT_SECONDS = 300
PROGRAMS: Mapping[str, Sequence[str]] = {"sh": ["sh", "-ec"], "python": [sys.executable, "-c"]}
OUTPUT = "output"

_BLOCK = re.compile(r"^```(\w*)([ \w]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its name (the words behind it, mostly none) and its text."""

    kind: str
    name: str
    text: str


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(kind, name.strip(), text) for kind, name, text in found]


def programs(page: Path) -> list[Block]:
    """Those that are programs of a shell or of Python."""
    return [each for each in blocks(page) if each.kind in PROGRAMS]


def run_blocks(
    page: Path,
    folder: Path,
    *,
    without: Collection[str] = (),
    only: Collection[str] | None = None,
    **environment: str,
) -> str:
    """Run the programs of a page; a block of output is what the program before it prints, among others.

    Args:
        page: the Markdown.
        folder: where they run.
        without: names of blocks that are left out, with their output.
        only: names of the blocks that run; None: all.
        environment: variables of theirs.

    Returns:
        All that they printed.
    """
    said, everything = "", ""
    for block in _chosen(blocks(page), without, only):
        if block.kind == OUTPUT:
            assert block.text.strip() in said, f"{block.text}\nis not in\n{said}"
            continue
        said = run_block(block, folder, **environment)
        everything += said
    return everything


def _chosen(
    found: Sequence[Block], without: Collection[str], only: Collection[str] | None
) -> Iterator[Block]:
    is_taken = False
    for block in found:
        if block.kind in PROGRAMS:
            is_taken = block.name not in without and (only is None or block.name in only)
        if is_taken and (block.kind in PROGRAMS or block.kind == OUTPUT):
            yield block


def run_block(block: Block, folder: Path, **environment: str) -> str:
    """Run a program; gives what it printed."""
    given = {**os.environ, **environment}
    path = f"{Path(sys.executable).parent}{os.pathsep}{given['PATH']}"
    done = subprocess.run(
        [*PROGRAMS[block.kind], block.text],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**given, "PATH": path, "PYTHONPATH": str(ROOT)},
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout
