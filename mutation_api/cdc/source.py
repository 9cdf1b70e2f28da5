"""The protocols of change sources, their parts, and their temporary directories.

What a change source gives: operations on tables, and the position reached when they are applied.

A source is read inside the transaction that applies it. By then the transaction holds the write lock on the
watermarks, so no other transaction moves them. The operations and the new watermark become visible together
or not at all.

A :class:`ChangeSource` gives the operations as DataFrames of Spark, a :class:`LocalChangeSource` as Arrow
batches for this process. A source may be both.

A folder of a source's own, for what it keeps until it is applied.

OperationParts: operations on one table in parts, which this process or tasks of Spark can read.
"""

from __future__ import annotations

import json
import logging
import tempfile
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pyarrow as pa

from mutation_api.errors import InputError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "FILE",
    "IDENTITY",
    "OFFSET",
    "OPERATION",
    "PART",
    "PARTITION",
    "POSITION",
    "TIME",
    "TIME_UNKNOWN",
    "Batch",
    "ChangeSource",
    "LocalBatch",
    "LocalChangeSource",
    "LocalOperations",
    "OperationParts",
    "OwnFolder",
    "Position",
    "ReadWhole",
    "SourceTable",
    "Stop",
    "TableOperations",
]


OPERATION = "__operation"
"""Column of operations: ``insert``, ``update`` or ``delete``."""

POSITION = "__position"
"""Column of operations: the operation's position in the log, a struct of bigints, which are compared one by
one. No two operations on one key have the same."""

PARTITION = "__partition"
"""A number of a position that orders nothing: all operations on one key must have the same."""

IDENTITY = "identity"
"""Field of a position's text that holds what a log is recognized by; it is long, and not for people."""


FILE, PART, OFFSET, TIME = "file", "partition", "offset", "time"
"""Numbers of a position, behind others that order it: where an operation stands, and when it was written.

In one partition (PART) the operations on one key stand in their order. In files they do so as well, and files
stand in the order of their numbers, unless TIME says that lines and numbers mean nothing.
"""

TIME_UNKNOWN = -1


@dataclass(frozen=True, order=True)
class Position:
    """A position in a source's log; a later one is greater.

    ``order``: numbers that are compared one by one; every position of a source has equally many. ``text``:
    JSON that the source defines. The source continues from it, and people read it.
    """

    order: tuple[int, ...]
    text: str

    @property
    def shown(self) -> str:
        """The text for people, without the identity of the log."""
        try:
            found = json.loads(self.text)
        except ValueError:
            return self.text
        if not isinstance(found, dict) or IDENTITY not in found:
            return self.text
        return json.dumps({name: value for name, value in found.items() if name != IDENTITY})


@dataclass(frozen=True)
class SourceTable:
    """A table of the source, by the source's name for it, and the table that follows it.

    ``key``: columns of the target that identify a row; empty if the source names them.
    """

    name: str
    target: AcidTable
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stop:
    """A place in a source's log that a run does not pass by itself.

    ``message``: why, and how to go on. ``positions``: by table, those that the batch reaches; other tables
    keep theirs.
    """

    message: str
    positions: Mapping[str, Position]


@dataclass(frozen=True)
class TableOperations:
    """Operations on one table, in any order of rows.

    ``operations`` has the columns ``OPERATION``, ``POSITION`` and all columns of the target, partition
    columns included, under the target's names and of its Spark types. A ``delete`` needs values only
    in the key columns. An update of key columns is a ``delete`` of the old key and an ``insert`` of the new
    one.

    ``is_emptied``: all rows of the table were removed at once before the first of these operations, which
    may be none. ``is_copy``: they are all rows of the table in one state of the source, an operation a key;
    a key with several is refused.
    """

    table: SourceTable
    operations: DataFrame
    is_emptied: bool = False
    is_copy: bool = False


@dataclass(frozen=True)
class Batch:
    """All that a source has after the given positions, up to ``position``.

    If the source has nothing new, ``position`` is None and ``tables`` is empty. ``stop``: why the batch ends
    before the log does. ``set_back``: tables whose rows are all given, and whose watermarks may move
    backwards. ``warnings``: for the report.
    """

    tables: tuple[TableOperations, ...]
    position: Position | None
    stop: Stop | None = None
    set_back: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class LocalOperations:
    """Operations on one table, in any order of rows; as :class:`TableOperations`, without Spark.

    ``operations`` are batches of one schema, of the columns that are named there. Values have Arrow types
    that fit the target's columns. They are read once. What is wrong with a value may be found only then.

    ``is_copy``: they are all rows of the table in one state of the source, an operation a key. Then they can
    be read again and again, and are not reduced: an engine may stream them.
    """

    table: SourceTable
    operations: Iterable[pa.RecordBatch]
    is_emptied: bool = False
    is_copy: bool = False


@dataclass(frozen=True)
class LocalBatch:
    """All that a source has after the given positions; as :class:`Batch`, without Spark."""

    tables: tuple[LocalOperations, ...]
    position: Position | None
    stop: Stop | None = None
    set_back: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()


@runtime_checkable
class ChangeSource(Protocol):
    """A log of operations on several tables, as Spark reads it."""

    @property
    def source_id(self) -> str:
        """Name of this source in the watermarks, such as ``tungsten:alpha``."""

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """All operations on these tables after the positions in ``after``, by the source's name of the table.

        Nothing has been applied yet to a table that ``after`` does not name.

        Raises:
            InputFormatError: a file or message does not follow the format; names file, line and field.
            SourcePositionError: the source no longer has what follows the position.
            RecordLayoutError: the source's columns and the target's do not agree.
            RecordValueError: a value does not fit the target's column.
        """


@runtime_checkable
class LocalChangeSource(Protocol):
    """A log of operations on several tables, as this process reads it without Spark."""

    @property
    def source_id(self) -> str:
        """See :class:`ChangeSource`."""

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """See :meth:`ChangeSource.read`."""


_OWN_NAME = "hive-mutate-"

_log = logging.getLogger(__name__)


class OwnFolder:
    """Each read of a source gets a new folder, in place of that of the read before.

    The last one goes with this object, also if nobody calls :meth:`remove`, as at the end of a command.
    """

    def __init__(self, directory: Location | None) -> None:
        """``directory``: where the folders are made; by default where temporary files are."""
        self._directory = directory
        self.remove: Callable[[], object] = _nothing

    def renewed(self, what: str) -> Location:
        """A new folder. Raises InputError; ``what`` begins its message."""
        self.remove()
        try:
            folder = _made(self._directory)
        except OSError as error:
            raise InputError(f"{what} cannot be kept until they are applied: {error}") from error
        self.remove = weakref.finalize(self, _remove, folder)
        return folder


def _nothing() -> None:
    pass


def _made(directory: Location | None) -> Location:
    """A new folder in this one, by default in that for temporary files.

    On a local disk only this user may read it. Raises OSError.
    """
    directory = directory or Location.given(tempfile.gettempdir())
    local = directory.local_path
    if local is not None:
        Path(local).mkdir(parents=True, exist_ok=True)
        return Location.given(tempfile.mkdtemp(prefix=_OWN_NAME, dir=local))
    folder = directory / f"{_OWN_NAME}{uuid.uuid4().hex}"
    storage_at(folder).create_directory(folder)
    return folder


def _remove(folder: Location) -> None:
    """Remove it with all that is in it; that it stays is no error."""
    try:
        storage_at(folder).delete_directory(folder)
    except OSError:
        _log.warning(
            "%s: the folder holds rows of the source and could not be deleted; it can be deleted by hand",
            folder,
            exc_info=True,
        )


class OperationParts(ABC):
    """The operations of a :class:`~LocalOperations`; pickled for tasks.

    A part is whole files, or a range of a file. Iterated, it gives the batches of all parts.
    """

    @property
    @abstractmethod
    def part_count(self) -> int:
        """Number of parts."""

    @property
    @abstractmethod
    def byte_count(self) -> int:
        """Bytes to read."""

    @property
    @abstractmethod
    def locations(self) -> Sequence[Location]:
        """What is read."""

    @property
    @abstractmethod
    def position(self) -> Sequence[str]:
        """Names of the numbers of a position."""

    @property
    def is_of_this_machine(self) -> bool:
        """Whether the files are in this machine's folder for temporary files, unseen by other machines."""
        return False

    @abstractmethod
    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The operations of a part: OPERATION, POSITION, and the target's columns in its order.

        Raises: what is wrong with the input; see :class:`~ChangeSource`.
        """

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The operations of all parts."""
        for number in range(self.part_count):
            yield from self.read(number)


@runtime_checkable
class ReadWhole(Protocol):
    """A source that reads its whole log before it knows what is new."""

    def byte_count(self) -> int:
        """Bytes of the log. Raises InputError: it cannot be listed."""

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """See :class:`~ChangeSource`."""
