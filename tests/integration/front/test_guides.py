"""The pages of docs/guides: their blocks run as they stand there, on real Hive, and print what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive23
from tests.support.hive_site import write_hive_site

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[3] / "docs" / "guides"
PAGES = {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
GUIDES = {path: text for path, text in PAGES.items() if "```" in text}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMEOUT_SECONDS = 300
KINDS = {"sh": ["sh", "-ec"], "python": [sys.executable, "-c"]}


@pytest.mark.parametrize(
    "guide",
    [
        pytest.param(guide, marks=[pytest.mark.long] if "local_session" in text else [], id=guide.stem)
        for guide, text in GUIDES.items()
    ],
)
def test_its_blocks_run(guide: Path, hive: Hive23, tmp_path: Path) -> None:
    """A block of output is what the block before it prints, among others."""
    write_hive_site(tmp_path, hive.uri)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HIVE_CONF_DIR": str(tmp_path)}
    said = ""
    found = BLOCK.findall(GUIDES[guide])
    assert {kind for kind, _ in found} >= {"sh", "python"}
    hive.sql("CREATE DATABASE sales")
    try:
        for kind, text in found:
            if kind == "output":
                assert text.strip() in said, f"{text}\nis not in\n{said}"
                continue
            done = subprocess.run(
                [*KINDS[kind], text],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                env=environment,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr[-3000:]}"
            said = done.stdout
    finally:
        hive.sql("DROP DATABASE sales CASCADE")
