"""OperationParts: operations on one table in parts, which this process or tasks of Spark can read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pyarrow as pa

from mutation_api.inputs.source import Batch, Position, SourceTable
from mutation_api.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["OperationParts", "ReadWhole"]


class OperationParts(ABC):
    """The operations of a :class:`~mutation_api.inputs.source.LocalOperations`; pickled for tasks.

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

        Raises: what is wrong with the input; see :class:`~mutation_api.inputs.source.ChangeSource`.
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
        """See :class:`~mutation_api.inputs.source.ChangeSource`."""
