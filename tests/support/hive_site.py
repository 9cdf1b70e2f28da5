"""A hive-site.xml that names a metastore, as users have it."""

from __future__ import annotations

from pathlib import Path


def write_hive_site(folder: Path, uri: str) -> None:
    """Write the file into a folder, which ``HIVE_CONF_DIR`` may name then."""
    (folder / "hive-site.xml").write_text(
        "<configuration><property><name>hive.metastore.uris</name>"
        f"<value>{uri}</value></property></configuration>",
        encoding="utf-8",
    )
