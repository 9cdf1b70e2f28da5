"""Hooks of mkdocs: add the pages that are made from the code."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from website.api_pages import api_pages
from website.command_pages import command_pages
from website.errors_page import errors_page
from website.speed_page import speed_page, speed_plots

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


@functools.cache
def _made_pages() -> dict[str, str]:
    """Path and Markdown of each."""
    return {
        "reference/errors.md": errors_page(),
        "speed.md": speed_page(),
        **dict(command_pages()),
        **dict(api_pages()),
    }


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name the made pages in the navigation."""
    (reference,) = [entry["Reference"] for entry in config.nav or [] if "Reference" in entry]
    for title, folder in (("Commands", "reference/commands/"), ("Python", "reference/api/")):
        reference.append({title: [path for path in _made_pages() if path.startswith(folder)]})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the made pages."""
    from mkdocs.structure.files import File

    for path, text in _made_pages().items():
        files.append(File.generated(config, path, content=text))
    for plot in speed_plots():
        files.append(File.generated(config, plot.name, abs_src_path=str(plot)))
    return files
