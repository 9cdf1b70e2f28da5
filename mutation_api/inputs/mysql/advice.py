"""Ways on that messages name: options of ``ingest mysql`` and ``update extract``, arguments in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["INGEST", "START_OVER", "UPDATE", "Advice"]

START_OVER = (
    "To start over, run once with --recopy (in Python recopy=…): then the table is read whole again with "
    "SELECT, and "
    "its rows in Hive are replaced"
)


@dataclass(frozen=True)
class Advice:
    """The words of one command.

    Attributes:
        qualifies: whether columns are named with their table.
        names_tables: whether --recopy takes tables.
        command: the command, if another one may show the message.
    """

    qualifies: bool
    names_tables: bool
    command: str = ""

    def seen_to(self, positions: Sequence[str]) -> str:
        """How to go on behind statements."""
        options = " ".join(f"--seen-to {position}" for position in positions)
        return f"{self.command}{options} (in Python seen_to={list(positions)})"

    def ignore_columns(self, table: str, columns: Sequence[str]) -> str:
        """How to leave columns out."""
        names = [f"{table}.{column}" if self.qualifies else column for column in columns]
        return f"{' '.join(f'--ignore-column {name}' for name in names)}, in Python ignored_columns={names}"

    def recopy(self, tables: Sequence[str]) -> str:
        """How to read tables whole again."""
        if self.names_tables:
            return f"--recopy {','.join(tables)} (in Python recopy={list(tables)})"
        return f"{self.command}--recopy (in Python recopy=True)"


INGEST = Advice(qualifies=True, names_tables=True)
UPDATE = Advice(qualifies=False, names_tables=False, command="update extract ")
