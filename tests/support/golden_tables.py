"""The tables in tests/golden that real Hives wrote, as views of their directories."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation_api.read.directory_scan import open_directory
from mutation_api.read.table_view import TableView

_GOLDEN = Path(__file__).parents[1] / "golden"
GOLDEN_TABLES = tuple(sorted(str(p.parent.relative_to(_GOLDEN)) for p in _GOLDEN.glob("acid*/*/about.json")))
"""Names of the tables, as ``acid/split_update``."""


@dataclass(frozen=True)
class GoldenTable:
    """One of them, and what Hive read at its end."""

    name: str

    @property
    def folder(self) -> Path:
        """Its folder in the tests."""
        return _GOLDEN / self.name

    @property
    def about(self) -> dict[str, Any]:
        """What the table is."""
        about: dict[str, Any] = json.loads((self.folder / "about.json").read_text())
        return about

    @property
    def row_count(self) -> int:
        """Rows that Hive read."""
        return len((self.folder / "expected.jsonl").read_text().splitlines())

    def view(self, directory: Path | None = None) -> TableView:
        """A view of its directory, or of a copy."""
        about = self.about
        read = about["reads"][0]
        properties = dict(p.split("=", 1) for p in about.get("table_parameters", ()))
        return open_directory(
            directory or self.folder / "data",
            ",".join(column.replace(":", " ", 1) for column in _columns(about["columns"])),
            transactional_properties=read.get(
                "transactional_properties", properties.get("transactional_properties")
            ),
            valid_txns=read["valid_txns"],
            valid_write_ids=read.get("valid_writeids"),
        )


def _columns(text: str) -> list[str]:
    """``id:bigint,d:decimal(10,2)`` at the commas between columns."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "(<") - (letter in ")>")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found
