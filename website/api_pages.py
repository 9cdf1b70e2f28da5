"""The pages of the Python API: all public names, by the package that they come from."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

__all__ = ["api_pages"]

ROOT = Path(__file__).parents[1]
PACKAGES = ("mutation_api", "mutation_api.cdc", "mutation_api.upkeep", "metastore_client")
_IMPORT = re.compile(r"^from (\.[\w.]*) import (\w+) as \2$", re.MULTILINE)
_ELSEWHERE = {"errors", "_version"}


def api_pages() -> Iterator[tuple[str, str]]:
    """Path and Markdown of each page."""
    pages = dict[str, str]()
    for package in PACKAGES:
        groups = defaultdict[str, list[str]](list)
        stub = ROOT.joinpath(*package.split("."), "__init__.pyi")
        for module, name in _IMPORT.findall(stub.read_text(encoding="utf-8")):
            first = module.split(".")[1]
            if package != "mutation_api" or first not in _ELSEWHERE:
                groups[first].append(f"{package}{module}.{name}")
        for first, names in groups.items():
            title = f"{package}: {first}"
            sections = "\n\n".join(f"::: {name}" for name in sorted(names, key=lambda n: n.split(".")[-1]))
            pages[f"reference/api/{package}/{first}.md"] = f"# {title}\n\n{sections}\n"
    yield "reference/api/index.md", _index(pages)
    yield from pages.items()


def _index(pages: dict[str, str]) -> str:
    lines = [
        "# Python\n",
        "Import names from the package in the title of their page.\n",
        "| where | names |",
        "|---|---|",
    ]
    for path, text in pages.items():
        page = path.removeprefix("reference/api/")
        names = re.findall(r"^::: ([\w.]+)\.(\w+)$", text, re.MULTILINE)
        shown = ", ".join(f"[`{name}`][{module}.{name}]" for module, name in names)
        lines.append(f"| [{page.removesuffix('.md')}]({page}) | {shown} |")
    return "\n".join(lines) + "\n"
