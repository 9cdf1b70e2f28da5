"""Packages of npm: what is not as it was pinned is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from judges.errors import JudgeError
from judges.storages import npm


@pytest.mark.slow
def test_what_the_lock_file_does_not_know_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left in the cache that the next run would take."""
    monkeypatch.setenv("HIVE_MUTATION_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "package.json").write_text(json.dumps({"name": "p", "dependencies": {"left-pad": "1.3.0"}}))
    (folder / "package-lock.json").write_text(json.dumps({"name": "p", "lockfileVersion": 3, "packages": {}}))
    with pytest.raises(JudgeError, match="npm could not fetch"):
        npm.fetch_locked(folder)
    assert [*(tmp_path / "cache/npm").iterdir()] == []
