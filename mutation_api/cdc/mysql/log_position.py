"""Positions in a binary log, and advice for its errors.

LogPosition: a place in the binary log of one server, and its text as a watermark in Hive.

Ways on that messages name: options of ``ingest mysql`` and ``update extract``, arguments in Python.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mutation_api.cdc.source import Position
from mutation_api.errors import SourcePositionError

__all__ = ["INGEST", "START_OVER", "UPDATE", "Advice", "LogPosition", "file_number"]


_T = TypeVar("_T")


@dataclass(frozen=True)
class LogPosition:
    """A position in the binary log of one server, at the end of a transaction.

    ``gtid`` names the transactions before it: MariaDB's position, MySQL's set; empty if the server has none.
    ``server`` is MySQL's ``server_uuid``, MariaDB's ``server_id``. ``begun``: when the file was begun, in
    seconds since 1970; 0 if that is not known. A log that begins again has the same names, positions and
    GTIDs.
    """

    file: str
    offset: int
    gtid: str = ""
    server: str = ""
    begun: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """Number of the file, and offset in it."""
        return file_number(self.file), self.offset

    def to_position(self) -> Position:
        """The position for a watermark."""
        values: dict[str, str | int] = {"file": self.file, "position": self.offset}
        values |= {"gtid": self.gtid, "server": self.server}
        if self.begun:
            values["begun"] = self.begun
        return Position(self.order, json.dumps(values))

    @classmethod
    def of(cls, position: Position) -> LogPosition:
        """The position of a watermark. Raises SourcePositionError if that is of another kind of source."""
        try:
            values = json.loads(position.text)
            file, gtid, server = (_of_type(str, values[name]) for name in ("file", "gtid", "server"))
            offset, begun = (_of_type(int, each) for each in (values["position"], values.get("begun", 0)))
            return cls(file, offset, gtid, server, begun)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SourcePositionError(
                f"the watermark {position.text[:500]!r} is not one of a binary log"
            ) from error

    def __str__(self) -> str:
        """``file:offset``."""
        return f"{self.file}:{self.offset}"


def _of_type(kind: type[_T], value: Any) -> _T:
    """The value. Raises TypeError: it is of another type, or a number below 0."""
    if type(value) is not kind or (isinstance(value, int) and value < 0):
        raise TypeError(f"{value!r} is not a {kind.__name__}")
    return value


def file_number(name: str) -> int:
    """The number at the end of the name of a log file. Raises SourcePositionError."""
    number = name.rpartition(".")[2]
    if not number.isdecimal():
        raise SourcePositionError(f"log file {name!r}: expected a name that ends in a number")
    return int(number)


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
