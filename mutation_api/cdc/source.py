"""The protocols of change sources: operations on tables, and the position reached when they are applied.

A source is read inside the transaction that applies it. By then the transaction holds the write lock on the
watermarks, so no other transaction moves them. The operations and the new watermark become visible together
or not at all.

A :class:`ChangeSource` returns the operations as Spark DataFrames, a :class:`LocalChangeSource` as Arrow
batches for this process. A source may be both.

:class:`OperationParts` are the operations on one table in parts, which this process or Spark's tasks can
read. A source may buffer data in a temporary directory until it is applied.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq

from mutation_api.errors import InputError
from mutation_api.format.event import ADDED_OPERATION
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPERATION = ADDED_OPERATION
"""The column of operations: ``insert``, ``update`` or ``delete``."""

POSITION = "__position"
"""The column of positions in the log: a struct of bigints, which are compared one by one. No two operations
on one key have the same position."""

CHANGED_AT = "__changed_at"
"""The column of the times at which the source changed rows, if a target requires them: timestamps in UTC,
without time zone. NULL if the source does not give the time of an operation."""

PARTITION = "__partition"
"""A number of a position that does not order operations: it must be equal for all operations on one key."""

IDENTITY = "identity"
"""The field of a position's text by which a log is recognized; it is long, and not meant for people."""


FILE, PART, OFFSET, TIME = "file", "partition", "offset", "time"
"""Numbers of a position, after those that order it: where an operation is, and when it was written.

The operations on one key are in order within one partition (PART). They are also in order within files, and
the numbers of the files are in order, unless TIME shows that lines and numbers have no meaning.
"""

TIME_UNKNOWN = -1


@dataclass(frozen=True, order=True)
class Position:
    """A position in a source's log; a later one is greater.

    ``order``: numbers that are compared one by one; all positions of a source have equally many. ``text``:
    JSON in a form that the source defines, from which it continues. It is also meant for people.
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
    """A table of the source, by the source's name for it, and its target table.

    ``key``: columns of the target that identify a row; empty if the source defines the key. ``wants_times``:
    True if the operations need the column ``CHANGED_AT``, which a source leaves out if it does not know it.
    """

    name: str
    target: AcidTable
    key: tuple[str, ...] = ()
    wants_times: bool = False


@dataclass(frozen=True)
class Stop:
    """A place in a source's log that a run does not pass without the user's decision.

    ``message``: the reason, and how to continue. ``positions``: by table, the positions that the batch
    reaches; other tables keep theirs.
    """

    message: str
    positions: Mapping[str, Position]


@dataclass(frozen=True)
class TableOperations:
    """Operations on one table; the rows are in any order.

    ``operations`` has the columns ``OPERATION``, ``POSITION`` and all columns of the target including
    partition columns, with the target's names and Spark types. A ``delete`` needs values only in the key
    columns. An update of key columns is a ``delete`` of the old key and an ``insert`` of the new one.

    ``is_emptied``: all rows of the table were removed at once before the first of these operations.
    ``operations`` may then have no rows. ``is_copy``: they are all rows of the table in one state of the
    source, with one operation for each key; a key with several is refused.
    """

    table: SourceTable
    operations: DataFrame
    is_emptied: bool = False
    is_copy: bool = False


@dataclass(frozen=True)
class Batch:
    """Everything that a source has after the given positions, up to ``position``.

    If the source has nothing new, ``position`` is None and ``tables`` is empty. ``stop``: why the batch ends
    before the log does. ``set_back``: tables whose rows are all returned, and whose watermarks may move
    backwards. ``warnings``: warnings for the report.
    """

    tables: tuple[TableOperations, ...]
    position: Position | None
    stop: Stop | None = None
    set_back: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class LocalOperations:
    """Operations on one table, in any order of rows; like :class:`TableOperations`, without Spark.

    ``operations`` are batches of one schema, with the columns described there. The Arrow types of the values
    match the target's columns. The batches are read once; an invalid value may be found only then.

    ``is_copy``: they are all rows of the table in one state of the source, with one operation for each key.
    They can then be read repeatedly and are not reduced, so an engine may stream them.
    """

    table: SourceTable
    operations: Iterable[pa.RecordBatch]
    is_emptied: bool = False
    is_copy: bool = False


@dataclass(frozen=True)
class LocalBatch:
    """Everything that a source has after the given positions; like :class:`Batch`, without Spark."""

    tables: tuple[LocalOperations, ...]
    position: Position | None
    stop: Stop | None = None
    set_back: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()


@runtime_checkable
class ChangeSource(Protocol):
    """A log of operations on several tables, read by Spark."""

    @property
    def source_id(self) -> str:
        """The name of this source in the watermarks, such as ``tungsten:alpha``."""

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """Read all operations on these tables after the positions in ``after``, which has the source's names.

        Nothing has been applied yet to a table that is missing from ``after``.

        Raises:
            InputFormatError: If a file or message does not follow the format. Names file, line and field.
            SourcePositionError: If the source no longer has what follows the position.
            RecordLayoutError: If the source's columns and the target's differ.
            RecordValueError: If a value does not fit the target's column.
        """


@runtime_checkable
class LocalChangeSource(Protocol):
    """A log of operations on several tables, read by this process without Spark."""

    @property
    def source_id(self) -> str:
        """The name of this source in the watermarks. See :class:`ChangeSource`."""

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """Read all operations after the positions. See :meth:`ChangeSource.read`."""


@runtime_checkable
class DescribedSource(Protocol):
    """A source that knows the columns of its tables before it is read."""

    @property
    def source_id(self) -> str:
        """The name of this source in the watermarks. See :class:`ChangeSource`."""

    def new_columns(
        self, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Mapping[str, Mapping[str, str]]:
        """Return the columns that targets lack, by table and name, with Hive's types.

        ``after``: the positions up to which tables were applied, by the source's names.

        Columns that the user leaves out are not among them, nor are columns that may be renamed ones.

        Raises:
            ConfigurationError: If the source does not describe its columns.
            RecordLayoutError: If Hive has no type for a column.
        """

    def adding(self) -> Self:
        """Return this source for a run whose targets get new columns.

        They are NULL in rows from before they were added.
        """

    def leaving_out(self, columns: Collection[str]) -> Self:
        """Return this source without some columns, each as ``table.column``."""


class OperationParts(ABC):
    """The operations of a :class:`~LocalOperations`; pickled for tasks.

    A part is one or more whole files, or a range of a file. Iterating returns the batches of all parts.
    """

    @property
    @abstractmethod
    def part_count(self) -> int:
        """The number of parts."""

    @property
    @abstractmethod
    def byte_count(self) -> int:
        """The number of bytes to read."""

    @property
    @abstractmethod
    def locations(self) -> Sequence[Location]:
        """The locations that are read."""

    @property
    @abstractmethod
    def position(self) -> Sequence[str]:
        """The names of a position's numbers."""

    @property
    def is_of_this_machine(self) -> bool:
        """True if the files are in this machine's temporary directory, which other machines do not see."""
        return False

    @property
    def has_times(self) -> bool:
        """True if the operations have the column CHANGED_AT, after OPERATION and POSITION."""
        return False

    @abstractmethod
    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """Read the operations of a part: OPERATION, POSITION, and the target's columns in its order.

        Raises an error if the input is wrong; see :class:`~ChangeSource`.
        """

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Read the operations of all parts."""
        for number in range(self.part_count):
            yield from self.read(number)


@dataclass(frozen=True)
class KeptRows(OperationParts):
    """The operations in one file; each row group is a part.

    ``part_bytes``: the size of each part in memory. ``is_private``: True if the file is in this machine's
    directory for temporary files. ``with_times``: True if it has the times of the changes.
    """

    location: Location
    part_bytes: tuple[int, ...]
    position_fields: tuple[str, ...]
    is_private: bool = True
    with_times: bool = False

    @property
    def is_of_this_machine(self) -> bool:
        """True if the file is in this machine's directory for temporary files."""
        return self.is_private

    @property
    def part_count(self) -> int:
        """The number of row groups."""
        return len(self.part_bytes)

    @property
    def byte_count(self) -> int:
        """The size of all parts in memory, in bytes."""
        return sum(self.part_bytes)

    @property
    def locations(self) -> Sequence[Location]:
        """The location of the file."""
        return [self.location]

    @property
    def position(self) -> Sequence[str]:
        """The names of a position's numbers."""
        return self.position_fields

    @property
    def has_times(self) -> bool:
        """True if the file has the times of the changes."""
        return self.with_times

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Return all operations; the file is opened once."""
        if self.part_bytes:
            yield from self._read(range(self.part_count))

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """Read the operations of a part. See :class:`~mutation_api.cdc.source.OperationParts`."""
        yield from self._read([number])

    def _read(self, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        try:
            with storage_at(self.location).open_input(self.location) as stream:
                file = pq.ParquetFile(stream, pre_buffer=True)
                for number in numbers:
                    yield from file.read_row_group(number, use_threads=False).to_batches()
        except OSError as error:
            advice = "" if self.is_private else "; name a location that all of Spark's machines can read"
            raise InputError(
                f"{self.location.shown}: the rows that were buffered there until they are applied cannot be "
                f"read: {error}{advice}"
            ) from error


@runtime_checkable
class ReadWhole(Protocol):
    """A source that has to read its whole log to find what is new."""

    def byte_count(self) -> int:
        """Return the size of the log in bytes. Raises InputError if it cannot be listed."""

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """Read operations. See :class:`~ChangeSource`."""
