"""Logs of JSON messages in files, one a line, as operations on tables: what Debezium, Maxwell, Canal share.

A format defines the meaning of a message (:mod:`~mutation_api.inputs.messages.events`). Errors are refused;
nothing is guessed. The modules:

==================  ==========================================================================================
``json_lines``      files and their lines, each with the byte it begins at
``unwrap``          messages, without the wrappers of tools; lines that are not messages
``first_look``      facts of the log about each table
``order``           positions of operations, and which of them are applied already
``table_changes``   schema changes and truncates
``shape``           columns of messages and of the target, and the key
``json_rows``       the values; ``json_values`` has the readers
``message_parts``   the operations of a table, range by range of the files
==================  ==========================================================================================

The last line of a file needs no end, but must be a whole message.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING

from mutation_api.errors import ConfigurationError
from mutation_api.inputs.engines.choice import each_in_tasks, in_tasks
from mutation_api.inputs.messages.events import MessageFormat
from mutation_api.inputs.messages.first_look import FirstLook, LogFacts, TableFacts
from mutation_api.inputs.messages.json_lines import log_files, log_ranges
from mutation_api.inputs.messages.log_options import LogOptions
from mutation_api.inputs.messages.message_parts import MessageParts
from mutation_api.inputs.messages.order import Order, chosen_order
from mutation_api.inputs.messages.shape import Shape
from mutation_api.inputs.messages.unwrap import MessageLog
from mutation_api.inputs.source import Batch, LocalBatch, LocalOperations, Position, SourceTable
from mutation_api.inputs.source_files import LocationsLike, readable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MessageSource"]

logger = logging.getLogger(__name__)

_LookAt = Callable[[FirstLook], Iterable[LogFacts]]
"""Looks at all ranges of a log."""


@dataclass(frozen=True)
class MessageSource(ABC):
    """A log of JSON messages in files: the common part of all sources of messages.

    Args:
        files: a file, or a folder of files, or several of these, on any storage; the driver and the workers
            must see local files under the same name.
        name: name of this log among those of its format, in the watermarks.
        options: the user's choices about the log.
    """

    files: LocationsLike
    name: str
    _: KW_ONLY
    options: LogOptions = field(default_factory=LogOptions)

    @property
    @abstractmethod
    def format(self) -> MessageFormat:
        """Meaning of the messages."""

    @property
    def source_id(self) -> str:
        """``FORMAT:NAME``."""
        return f"{self.format.name}:{self.name}"

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """See :class:`~mutation_api.inputs.source.ChangeSource`. The log is read twice:
        for the first look, and when the operations are evaluated.

        A table's key is the one given, or the one that the messages name. Errors in the columns of a row and
        in their values are raised when the operations are evaluated.

        Raises:
            ConfigurationError: neither user nor messages name the key, or a table is named twice.
            InputFormatError: see there; or a schema change, a truncate that the user did not choose to
                apply, or messages without a position among others.
            InputError: the files cannot be read.
            Others: see there.
        """

        def looked(look: FirstLook) -> Iterable[LogFacts]:
            locations = [file.location for file in look.log.files]
            what = f"{self.source_id}: reading the log"
            return each_in_tasks(spark, look.at, len(look.log.ranges), locations, what)

        return in_tasks(spark, self._batch(tables, after, looked))

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """See :class:`~mutation_api.inputs.source.LocalChangeSource`; raises as :meth:`read`."""
        return self._batch(tables, after, lambda look: map(look.at, range(len(look.log.ranges))))

    def byte_count(self) -> int:
        """Bytes of the log, all of which each run reads.

        Raises: as :meth:`read`, as far as the files are concerned.
        """
        with readable(self.source_id):
            return sum(file.size for file in log_files(self.files))

    def _batch(
        self, tables: Sequence[SourceTable], after: Mapping[str, Position], looked: _LookAt
    ) -> LocalBatch:
        _check_tables(tables)
        with readable(self.source_id):
            files = log_files(self.files)
        log = MessageLog(files, log_ranges(files), self.format, self.options.positions)
        if not log.ranges:
            return LocalBatch((), None)
        look = FirstLook(log, tuple(table.name for table in tables))
        with readable(self.source_id):
            facts = look.whole(looked(look))
            if not (facts.tables or facts.changes):
                return LocalBatch((), None)
            return _Reading(self, log, facts, self._order(look, facts, after), look).batch(tables, after)

    def _order(self, look: FirstLook, facts: LogFacts, after: Mapping[str, Position]) -> Order:
        """Order of the operations; refuses a log that cannot be applied after the watermarks."""
        asked = self.options.positions
        found = [each.order for each in facts.tables.values()]
        order = chosen_order(self.source_id, look.log.files, found, asked)
        order.check_watermarks(self.source_id, after)
        look.changes(facts).refuse(self.options, order, after)
        return order


@dataclass(frozen=True)
class _Reading:
    """A log after the first look, which may be applied."""

    source: MessageSource
    log: MessageLog
    facts: LogFacts
    order: Order
    look: FirstLook

    def batch(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """The operations after the watermarks."""
        truncates = self.look.changes(self.facts).truncates(self.order)
        found, reached = [], [position.order for position in after.values()]
        for table in tables:
            facts = self.facts.tables.get(table.name)
            if facts is None:
                logger.warning("%s: no message concerns table %s", self.source.source_id, table.name)
                continue
            before = after[table.name].order if table.name in after else ()
            truncate = truncates.get(table.name, ())
            last = max(self.order.last(facts.order), truncate)
            if last > before:
                operations = self._operations(table, facts, max(before, truncate))
                found.append(replace(operations, is_emptied=truncate > before))
                reached.append(last)
        if not found:
            return LocalBatch((), None)
        end = max(reached)
        return LocalBatch(tuple(found), Position(end, self.order.described(end)))

    def _operations(self, table: SourceTable, facts: TableFacts, after: tuple[int, ...]) -> LocalOperations:
        """The operations on a table after a position; after () all."""
        shape = Shape.of(table, facts.shape, self.source.format, self.source.options)
        parts = MessageParts(self.log, shape, self.order, after)
        return LocalOperations(replace(table, key=shape.key), parts)


def _check_tables(tables: Sequence[SourceTable]) -> None:
    names = [table.name for table in tables]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled or not names:
        raise ConfigurationError(
            f"tables of the source that are given twice: {', '.join(doubled)}" if doubled else "name a table"
        )
