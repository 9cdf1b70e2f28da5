"""MessageParts: the operations of one table in a log of messages; each range of the files is a part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mutation_api.inputs.messages.events import LoggedEvent
from mutation_api.inputs.messages.json_rows import RowConverter, Rows
from mutation_api.inputs.messages.order import Order
from mutation_api.inputs.messages.shape import Shape
from mutation_api.inputs.messages.unwrap import MessageLog
from mutation_api.inputs.parts import OperationParts
from mutation_api.storage.location import Location

__all__ = ["MessageParts"]


@dataclass(frozen=True)
class MessageParts(OperationParts):
    """The operations on a table after a position, after () all, up to another; None for the end."""

    log: MessageLog
    shape: Shape
    order: Order
    after: tuple[int, ...]
    until: tuple[int, ...] | None = None

    @property
    def part_count(self) -> int:
        """See :class:`~mutation_api.inputs.parts.OperationParts`."""
        return len(self.log.ranges)

    @property
    def byte_count(self) -> int:
        """See :class:`~mutation_api.inputs.parts.OperationParts`."""
        return sum(file.byte_count for file in self.log.read_files)

    @property
    def locations(self) -> Sequence[Location]:
        """See :class:`~mutation_api.inputs.parts.OperationParts`."""
        return [file.location for file in self.log.read_files]

    @property
    def is_of_this_machine(self) -> bool:
        """See :class:`~mutation_api.inputs.parts.OperationParts`."""
        return self.log.is_of_this_machine

    @property
    def position(self) -> Sequence[str]:
        """See :class:`~mutation_api.inputs.parts.OperationParts`."""
        return self.order.names

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """See :class:`~mutation_api.inputs.parts.OperationParts`."""
        converter = RowConverter(
            self.shape.table.target.full_name,
            self.log.files,
            self.order.names,
            self.shape.column_readers,
            self.log.format.unlogged,
        )
        schemas = {schema: index for index, schema in enumerate(self.shape.schemas)}
        for events in self.log.events(number):
            rows = Rows()
            for found in events:
                if found.event.kind == "row" and found.event.table == self.shape.table.name:
                    self._add(rows, found, schemas.get(found.event.schema, 0))
            if len(rows):
                yield converter.batch(rows)

    def _add(self, rows: Rows, found: LoggedEvent, schema: int) -> None:
        before_steps = self.order.before_steps(found, self.log.files)
        times = self.order.times(found.event)
        for number in range(len(found.event.rows)):
            for each in self.shape.operations(found.event, number):
                position = (*before_steps, each.step)
                if position > self.after and (self.until is None or position <= self.until):
                    numbers = (*position, *times)
                    content = self.shape.content(each)
                    rows.add(each.operation, numbers, found.place, schema, content, each.doubt)
