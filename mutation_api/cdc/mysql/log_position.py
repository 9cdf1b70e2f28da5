"""A position in the binary log of one server, its string as a watermark in Hive, and advice for errors.

Advice names options of ``ingest mysql`` and ``update extract``, and Python arguments.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mutation_api.cdc.source import Position
from mutation_api.errors import SourcePositionError

_T = TypeVar("_T")


@dataclass(frozen=True)
class LogPosition:
    """A position in the binary log of one server, at the end of a transaction.

    ``gtid`` identifies the transactions before it: MariaDB's position, or MySQL's set; empty if the server
    has none. ``server`` is MySQL's ``server_uuid`` or MariaDB's ``server_id``. ``begun`` is the time at
    which the file was created, in seconds since 1970; 0 if unknown. It is needed because a log that was reset
    has the same names, positions and GTIDs again.
    """

    file: str
    offset: int
    gtid: str = ""
    server: str = ""
    begun: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """The number of the file, and the offset in it."""
        return file_number(self.file), self.offset

    def to_position(self) -> Position:
        """Return the position for a watermark."""
        values: dict[str, str | int] = {"file": self.file, "position": self.offset}
        values |= {"gtid": self.gtid, "server": self.server}
        if self.begun:
            values["begun"] = self.begun
        return Position(self.order, json.dumps(values))

    @classmethod
    def of(cls, position: Position) -> LogPosition:
        """Return the position in a watermark. Raises SourcePositionError if it is not one in a binary log."""
        try:
            values = json.loads(position.text)
            file, gtid, server = (_of_type(str, values[name]) for name in ("file", "gtid", "server"))
            offset, begun = (_of_type(int, each) for each in (values["position"], values.get("begun", 0)))
            return cls(file, offset, gtid, server, begun)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SourcePositionError(
                f"the watermark {position.text[:500]!r} is not a position in a binary log"
            ) from error

    def check_begun(self, begun: int) -> None:
        """Raise SourcePositionError if the server created the position's file at another time.

        A log that was reset has the same file names again.
        """
        if self.begun not in (0, begun):
            raise SourcePositionError(
                f"the server reset its log, or was restored: it created {self.file} at {begun} (seconds "
                f"since 1970), but the watermark {self} is in a file created at {self.begun}. {START_OVER}"
            )

    def __str__(self) -> str:
        """Return ``file:offset``."""
        return f"{self.file}:{self.offset}"


def _of_type(kind: type[_T], value: Any) -> _T:
    """Return the value. Raises TypeError if it has another type, or is negative."""
    if type(value) is not kind or (isinstance(value, int) and value < 0):
        raise TypeError(f"{value!r} is not a {kind.__name__}")
    return value


def file_number(name: str) -> int:
    """Return the number at the end of a log file's name. Raises SourcePositionError if there is none."""
    number = name.rpartition(".")[2]
    if not number.isdecimal():
        raise SourcePositionError(f"log file {name!r}: expected a name that ends in a number")
    return int(number)


START_OVER = (
    "To start over, run once with --recopy (in Python recopy=…): this reads the whole table again with "
    "SELECT and replaces its rows in Hive"
)


@dataclass(frozen=True)
class Advice:
    """The wording of advice for one command.

    Attributes:
        qualifies: True if column names are qualified with their table.
        names_tables: True if --recopy takes table names.
        command: name of the command, if other commands may show the message too.
    """

    qualifies: bool
    names_tables: bool
    command: str = ""

    def seen_to(self, positions: Sequence[str]) -> str:
        """Return the option that continues after these statements."""
        options = " ".join(f"--seen-to {position}" for position in positions)
        return f"{self.command}{options} (in Python seen_to={list(positions)})"

    def ignore_columns(self, table: str, columns: Sequence[str]) -> str:
        """Return the options that leave these columns out."""
        names = [f"{table}.{column}" if self.qualifies else column for column in columns]
        return f"{' '.join(f'--ignore-column {name}' for name in names)}, in Python ignored_columns={names}"

    def recopy(self, tables: Sequence[str]) -> str:
        """Return the option that reads these whole tables again."""
        if self.names_tables:
            return f"--recopy {','.join(tables)} (in Python recopy={list(tables)})"
        return f"{self.command}--recopy (in Python recopy=True)"


INGEST = Advice(qualifies=True, names_tables=True)
UPDATE = Advice(qualifies=False, names_tables=False, command="update extract ")
