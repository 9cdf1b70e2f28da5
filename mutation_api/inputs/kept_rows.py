"""KeptRows: operations in a Parquet file that a run wrote for itself, until they are applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from mutation_api.errors import InputError
from mutation_api.inputs.parts import OperationParts
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location

__all__ = ["KeptRows"]


@dataclass(frozen=True)
class KeptRows(OperationParts):
    """The operations of one file; each row group is a part.

    ``part_bytes``: the size of each part in memory. ``is_private``: the file lies in this machine's folder
    for temporary files.
    """

    location: Location
    part_bytes: tuple[int, ...]
    position_fields: tuple[str, ...]
    is_private: bool = True

    @property
    def is_of_this_machine(self) -> bool:
        """See :class:`~mutation_api.inputs.parts.OperationParts`."""
        return self.is_private

    @property
    def part_count(self) -> int:
        """See :class:`~mutation_api.inputs.parts.OperationParts`."""
        return len(self.part_bytes)

    @property
    def byte_count(self) -> int:
        """See :class:`~mutation_api.inputs.parts.OperationParts`."""
        return sum(self.part_bytes)

    @property
    def locations(self) -> Sequence[Location]:
        """See :class:`~mutation_api.inputs.parts.OperationParts`."""
        return [self.location]

    @property
    def position(self) -> Sequence[str]:
        """See :class:`~mutation_api.inputs.parts.OperationParts`."""
        return self.position_fields

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """All operations; the file is opened once."""
        if self.part_bytes:
            yield from self._read(range(self.part_count))

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """See :class:`~mutation_api.inputs.parts.OperationParts`."""
        yield from self._read([number])

    def _read(self, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        try:
            with storage_at(self.location).open_input(self.location) as stream:
                file = pq.ParquetFile(stream, pre_buffer=True)
                for number in numbers:
                    yield from file.read_row_group(number, use_threads=False).to_batches()
        except OSError as error:
            advice = "" if self.is_private else "; name a location that all of Spark's machines see"
            raise InputError(
                f"{self.location.shown}: the rows that were kept there until they are applied cannot be "
                f"read: {error}{advice}"
            ) from error
