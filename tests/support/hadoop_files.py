"""Hadoop's configuration files, for programs that tests start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape


def write_core_site(folder: Path, properties: Mapping[str, str]) -> Path:
    """A ``HADOOP_CONF_DIR`` that tells these properties."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(text)}</value></property>\n"
        for name, text in properties.items()
    )
    (folder / "core-site.xml").write_text(f"<configuration>\n{entries}</configuration>\n")
    return folder
