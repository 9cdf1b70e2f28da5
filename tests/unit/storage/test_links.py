from __future__ import annotations

from pathlib import Path

from mutation_api.storage.local import without_links
from mutation_api.storage.location import Location


def test_links_are_followed_on_local_disks(tmp_path: Path) -> None:
    """Of folders, too, and where nothing exists yet; elsewhere there are none."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    root = Location.given(tmp_path.resolve())
    assert without_links(root / "link/x.csv") == root / "folder/x.csv"
    elsewhere = Location.parse("hdfs://namenode/link")
    assert without_links(elsewhere) == elsewhere
