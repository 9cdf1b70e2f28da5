"""Hadoop's configuration files, for programs that tests start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape


def write_core_site(folder: Path, properties: Mapping[str, str]) -> Path:
    """A ``HADOOP_CONF_DIR`` that tells these properties."""
    return write_site(folder / "core-site.xml", properties).parent


def write_site(file: Path, properties: Mapping[str, str]) -> Path:
    """A file of these properties; its folder is made if need be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    entries = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(text)}</value></property>\n"
        for name, text in properties.items()
    )
    file.write_text(f"<configuration>\n{entries}</configuration>\n")
    return file
