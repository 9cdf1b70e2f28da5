"""The site is built without a warning: no link that leads nowhere, no docstring that is misread."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.long
def test_the_site_is_built(tmp_path: Path) -> None:
    """All public names are on it, and each page has what its neighbours link to."""
    done = subprocess.run(
        ["./dev", "docs", "--site-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    stubs = [path.read_text(encoding="utf-8") for path in (ROOT / "mutation_api").rglob("__init__.pyi")]
    public = set(re.findall(r" as (\w+)$", "\n".join(stubs), re.MULTILINE)) - {"__version__"}
    shown = "".join(path.read_text(encoding="utf-8") for path in tmp_path.rglob("index.html"))
    assert "```" not in shown, "a block that was not understood"
    assert "<!-- results" not in shown, "figures that are missing"
    assert [
        name for name in sorted(public) if f">{name}<" not in shown and f'id="{name.lower()}"' not in shown
    ] == []
