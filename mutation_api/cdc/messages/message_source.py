"""Logs of JSON messages, in files or in Kafka topics: the shared code of Debezium, Maxwell and Canal.

A format converts messages to events (:mod:`~mutation_api.cdc.messages.events`). Messages with errors are
refused; the library does not guess. The modules:

==================  ==========================================================================================
``json_lines``      files and their lines, each with the byte at which it begins
``compressed``      compressed files
``unwrap``          messages of lines, and lines that are not messages; ``printed_lines``: forms of a line
``first_look``      facts of the log about each table
``reading``         the steps of a run over the log
``table_names``     names of tables; ``followed_tables``: which of them a message is about
``order``           positions of operations, and which operations were applied before
``log_identity``    what distinguishes a log from another one with the same positions
``late_messages``   new messages that would count as applied
``snapshots``       a second snapshot of a table
``table_changes``   schema changes and truncates
``shape``           columns of messages and of the target, and the key
``row_fields``      fields of rows, which match columns in upper or lower case
``json_rows``       the values; ``json_values``: their readers; ``unlogged``: placeholders of missing values
``message_parts``   the operations of a table, range by range of the files
``avro_messages``   Avro messages of topics, converted to the equivalent JSON; ``avro_schema``: the rules
==================  ==========================================================================================

The last line of a file needs no line end, but must be a whole message. Messages of Kafka topics are written
to files first, see :mod:`~mutation_api.cdc.kafka`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Self

from mutation_api.cdc.kafka.topics import KafkaTopics
from mutation_api.cdc.messages.events import LogOptions, MessageFormat
from mutation_api.cdc.messages.first_look import FirstLook, KeptEvents, LogFacts
from mutation_api.cdc.messages.followed_tables import FollowedTables
from mutation_api.cdc.messages.json_lines import log_files, log_ranges
from mutation_api.cdc.messages.reading import LookAt, Reading
from mutation_api.cdc.messages.unwrap import MessageLog, OpenedLog
from mutation_api.cdc.source import Batch, LocalBatch, Position, SourceTable
from mutation_api.cdc.source_url import LocationsLike, readable
from mutation_api.errors import ConfigurationError
from mutation_api.format.plain_array import repeated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class MessageSource(ABC):
    """A log of JSON messages: the common part of all message sources.

    Args:
        files: one or several files, or directories of files, on any storage, or Kafka topics. Files are
            compressed if their names end in ``.gz`` or ``.zst``. The driver and the workers must see local
            files under the same name.
        name: name of this log in the watermarks; must be unique among the logs of its format.
        options: the user's choices about the log.
    """

    files: LocationsLike | KafkaTopics
    name: str
    _: KW_ONLY
    options: LogOptions = field(default_factory=LogOptions)

    @property
    @abstractmethod
    def format(self) -> MessageFormat:
        """The format of the messages."""

    def format_for(self, _tables: Sequence[str]) -> MessageFormat:
        """Return the format of the messages if these tables are followed."""
        return self.format

    @property
    def describes_columns(self) -> bool:
        """True if messages may have a schema that describes the types of their columns."""
        return False

    @property
    def source_id(self) -> str:
        """The name of this source in the watermarks, ``FORMAT:NAME``."""
        return f"{self.format.name}:{self.name}"

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """Read the operations after the watermarks. See :class:`~mutation_api.cdc.source.ChangeSource`.

        Spark's tasks read the log twice: for an overview, and when the operations are evaluated.

        A table's key is the given one, or else the one in the messages. Errors in the columns of a row and in
        their values are raised when the operations are evaluated.

        Raises:
            ConfigurationError: If the key is neither given nor in the messages, or a table is listed twice.
            InputFormatError: If a message does not follow the format, or the log has a schema change, a
                truncate that the user did not choose to apply, or some messages without a position.
            InputError: If the files cannot be read.
            Others: See :class:`~mutation_api.cdc.source.ChangeSource`.
        """
        from mutation_api.cdc.spark_engine import check_machines, each_in_tasks, in_tasks  # needs pyspark

        def looked(look: FirstLook) -> Iterable[LogFacts]:
            locations = [file.location for file in look.log.read_files]
            if look.log.is_of_this_machine:
                check_machines(spark, self.source_id)
            what = f"{self.source_id}: reading the log"
            return each_in_tasks(spark, look.at, len(look.log.ranges), locations, what)

        return in_tasks(spark, self._batch(tables, after, looked))

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """Read the operations after the watermarks in this process, in one pass. Raises: See :meth:`read`."""
        kept = KeptEvents()

        def looked(look: FirstLook) -> Iterable[LogFacts]:
            return (look.at(number, kept) for number in range(len(look.log.ranges)))

        return self._batch(tables, after, looked, kept)

    def new_columns(
        self, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Mapping[str, Mapping[str, str]]:
        """Return the columns that targets lack; see :class:`~mutation_api.cdc.source.DescribedSource`.

        This process reads the log for it, before the run reads it again.
        """
        if not self.describes_columns:
            raise ConfigurationError(
                f"source {self.source_id}: schema='add' needs messages that describe the types of their "
                f"columns, but those of {self.format.name} do not. Add columns with hive-mutate alter-table"
            )
        names = tuple(table.name for table in tables)
        followed = FollowedTables(names, self.options.shard_column)
        followed.check()
        with readable(self.source_id):
            opened = self._opened(followed, after)
            return Reading.of(self.adding(), opened, followed, _looked_here).new_columns(tables)

    def adding(self) -> Self:
        """Return this source for a run that adds columns; see ``DescribedSource``."""
        return replace(self, options=replace(self.options, adds_columns=True))

    def leaving_out(self, columns: Collection[str]) -> Self:
        """Return this source without some columns; see ``DescribedSource``."""
        ignored = frozenset({*self.options.ignored_columns, *columns})
        return replace(self, options=replace(self.options, ignored_columns=ignored))

    def byte_count(self) -> int:
        """Return the size of the log in bytes, all of which each run reads; 0 for Kafka, where it is unknown.

        Raises: See :meth:`read`, for errors of files.
        """
        if isinstance(self.files, KafkaTopics):
            return 0
        with readable(self.source_id):
            return sum(file.byte_count for file in log_files(self.files))

    def _batch(
        self,
        tables: Sequence[SourceTable],
        after: Mapping[str, Position],
        looked: LookAt,
        kept: KeptEvents | None = None,
    ) -> LocalBatch:
        _check_tables(tables)
        followed = FollowedTables(tuple(table.name for table in tables), self.options.shard_column)
        followed.check()
        with readable(self.source_id):
            opened = self._opened(followed, after)
            return Reading.of(self, opened, followed, looked, kept).batch(tables)

    def _opened(self, followed: FollowedTables, after: Mapping[str, Position]) -> OpenedLog:
        """Open the log in its present state."""
        positions, message_format = self.options.positions, self.format_for(followed.single_names)
        if isinstance(self.files, KafkaTopics):
            opened = self.files.opened(self.source_id, followed.names, after, message_format, positions)
            return replace(opened, log=replace(opened.log, followed=followed))
        files = log_files(self.files)
        log = MessageLog(files, log_ranges(files), message_format, positions, followed=followed)
        return OpenedLog(log, after, marks=after)


def _looked_here(look: FirstLook) -> Iterable[LogFacts]:
    return map(look.at, range(len(look.log.ranges)))


def _check_tables(tables: Sequence[SourceTable]) -> None:
    names = [table.name for table in tables]
    doubled = repeated(names)
    if doubled or not names:
        raise ConfigurationError(
            f"source tables are listed twice: {', '.join(doubled)}" if doubled else "name at least one table"
        )
