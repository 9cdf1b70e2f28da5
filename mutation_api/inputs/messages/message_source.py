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
``json_rows``       the values, in the tasks; ``json_values`` has the readers
==================  ==========================================================================================

The last line of a file needs no end, but must be a whole message.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession

from mutation_api.errors import ConfigurationError
from mutation_api.inputs.messages.events import MessageFormat
from mutation_api.inputs.messages.first_look import LogFacts, TableFacts, look
from mutation_api.inputs.messages.json_lines import LogFile, log_files
from mutation_api.inputs.messages.log_options import LogOptions
from mutation_api.inputs.messages.order import STEPS, Order, chosen_order, file_number
from mutation_api.inputs.messages.shape import Shape
from mutation_api.inputs.messages.unwrap import log_events
from mutation_api.inputs.source import OPERATION, POSITION, Batch, Position, SourceTable, TableOperations
from mutation_api.inputs.source_files import LocationsLike, readable
from mutation_api.spark.credentials import worker_settings
from mutation_api.spark.jvm import spark_context
from mutation_api.spark.worker_errors import translated_worker_errors

__all__ = ["MessageSource"]

logger = logging.getLogger(__name__)

_OF_LINES = ("file", "offset", "is_rough", "schema")
"""Columns of events with the location of an operation, and with the index of its schema."""


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
        _check_tables(tables)
        with readable(self.source_id):
            files = log_files(self.files)
        if not any(file.size for file in files):
            return Batch((), None)
        with readable(self.source_id), translated_worker_errors(f"{self.source_id}: reading the log"):
            events = log_events(spark, files, self.format, self.options.positions)
            facts = look(events, files, [table.name for table in tables])
            if facts.has_nothing:
                return Batch((), None)
            order = self._order(files, facts, after)
            return _Reading(self, files, events, facts, order).batch(tables, after)

    def _order(self, files: Sequence[LogFile], facts: LogFacts, after: Mapping[str, Position]) -> Order:
        """Order of the operations; refuses a log that cannot be applied after the watermarks."""
        asked = self.options.positions
        order = chosen_order(self.source_id, files, [each.order for each in facts.tables.values()], asked)
        order.check_watermarks(self.source_id, after)
        facts.changes.refuse(self.options, order, after)
        return order


@dataclass(frozen=True)
class _Reading:
    """A log after the first look, which may be applied."""

    source: MessageSource
    files: tuple[LogFile, ...]
    events: DataFrame
    facts: LogFacts
    order: Order

    def batch(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> Batch:
        """The operations after the watermarks."""
        truncates = self.facts.changes.truncates(self.order)
        found, reached = [], [position.order for position in after.values()]
        for table in tables:
            facts = self.facts.tables.get(table.name)
            if facts is None:
                logger.warning("%s: no message concerns table %s", self.source.source_id, table.name)
                continue
            before = after[table.name].order if table.name in after else ()
            truncate = truncates.get(table.name, ())
            last = max(self.order.last(facts.order) or (), truncate)
            if last > before:
                operations = self._operations(table, facts, max(before, truncate))
                found.append(replace(operations, is_emptied=truncate > before))
                reached.append(last)
        if not found:
            return Batch((), None)
        end = max(reached)
        return Batch(tuple(found), Position(end, self.order.described(end)))

    def _operations(self, table: SourceTable, facts: TableFacts, after: tuple[int, ...]) -> TableOperations:
        """The operations on a table after a position; after () all."""
        shape = Shape.of(table, facts.shape, self.source.format, self.source.options)
        values = self._rows(table, facts, shape, after).select(
            *_OF_LINES,
            OPERATION,
            POSITION,
            shape.problem().alias("problem"),
            shape.values().alias("values"),
        )
        locations = [file.location for file in self.files]
        storage = worker_settings(spark_context(values.sparkSession), locations)
        converter = shape.converter(locations, self.source.format.placeholder, storage)
        typed = values.mapInArrow(converter, shape.ddl(values))
        return TableOperations(replace(table, key=shape.key), typed)

    def _rows(self, table: SourceTable, facts: TableFacts, shape: Shape, after: tuple[int, ...]) -> DataFrame:
        """A row for each operation: _OF_LINES, OPERATION, POSITION, and ``row``, the fields of the row."""
        events = self.events.where((sf.col("kind") == "row") & (sf.col("table") == table.name))
        images = events.select(
            "file",
            "offset",
            file_number(self.files).alias("number"),
            "is_rough",
            "op",
            "log_position",
            "key",
            facts.shape.schema_index().alias("schema"),
            sf.posexplode("rows").alias("index", "images"),
        )
        operations = images.select("*", sf.explode(shape.operations()).alias("o")).select(
            *_OF_LINES,
            "number",
            "log_position",
            sf.col("o.operation").alias(OPERATION),
            (sf.col("index").cast("bigint") * STEPS + sf.col("o.step")).alias("step"),
            sf.col("o.row").alias("row"),
        )
        return _behind(operations.withColumn(POSITION, self.order.position()), after)


def _behind(operations: DataFrame, after: tuple[int, ...]) -> DataFrame:
    """The operations after a position; after () all."""
    if not after:
        return operations
    fields = operations.schema[POSITION].dataType.names  # type: ignore[attr-defined]
    low = sf.struct(*[sf.lit(n).cast("bigint").alias(f) for n, f in zip(after, fields, strict=True)])
    return operations.where(sf.col(POSITION) > low)


def _check_tables(tables: Sequence[SourceTable]) -> None:
    names = [table.name for table in tables]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled or not names:
        raise ConfigurationError(
            f"tables of the source that are given twice: {', '.join(doubled)}" if doubled else "name a table"
        )
