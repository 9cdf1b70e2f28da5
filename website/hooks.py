"""Hooks of mkdocs: add the pages that are made from the code, and the figures to that of speed."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from website.api_pages import api_pages
from website.command_pages import command_pages
from website.errors_page import errors_page
from website.speed_page import speed_plots, with_results

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_SITES = {"a": "at A", "b": "at B", "both": "at both"}
"""Names of blocks on the page of replication."""
STYLE = Path(__file__).with_name("site.css")
_NAMED_BLOCK = re.compile(r"^```(\w+) +(\w[\w ]*)$", re.MULTILINE)


@functools.cache
def _made_pages() -> dict[str, str]:
    """Path and Markdown of each."""
    return {
        "reference/errors.md": errors_page(),
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
    """Add the made pages, and what lies beside them."""
    from mkdocs.structure.files import File

    for path, text in _made_pages().items():
        files.append(File.generated(config, path, content=text))
    for beside in (STYLE, *speed_plots()):
        files.append(File.generated(config, beside.name, abs_src_path=str(beside)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the figures of the benchmarks where the page of speed names them; say which site a block is for.

    Other names of blocks are for tests.
    """
    if page.file.src_uri == "speed.md":
        markdown = with_results(markdown)
    return _NAMED_BLOCK.sub(_block_head, markdown)


def _block_head(found: re.Match[str]) -> str:
    site = _SITES.get(found[2])
    return f"```{found[1]}" if site is None else f'```{found[1]} title="{site}"'
