"""BinlogSource: the binary log of MySQL or MariaDB as a method of incremental update, by the source of
``ingest mysql``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mutation_api.inputs.mysql.advice import UPDATE
from mutation_api.inputs.mysql.driver_options import driver_options
from mutation_api.inputs.mysql.mysql_source import MySqlSource
from mutation_api.inputs.mysql.server import PORT_DEFAULT, MySqlAddress
from mutation_api.inputs.source import Batch, LocalBatch, Position, SourceTable
from mutation_api.update.binlog_options import NO_OPTIONS, BinlogOptions
from mutation_api.update.differences import Difference
from mutation_api.update.progress_mark import ProgressMark
from mutation_api.update.rdbms.connect import PASSWORD_VARIABLE
from mutation_api.update.settings import UpdateSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BinlogSource"]


class BinlogSource:
    """The changes that the log has since the last extraction; nothing is removed from it.

    Args:
        settings: those of the table.
        password: of the account; '' without one.
        options: of this extraction.
    """

    def __init__(self, settings: UpdateSettings, password: str, options: BinlogOptions = NO_OPTIONS) -> None:
        url = settings.source
        address = MySqlAddress(
            url.host or "localhost",
            url.user,
            password,
            url.port or PORT_DEFAULT,
            driver_options(url),
            password_variable=PASSWORD_VARIABLE,
        )
        name = settings.source_table.rpartition(".")[2]
        self._source = MySqlSource(
            address,
            url.database,
            time_zone=settings.time_zone,
            zero_dates=options.zero_dates,
            ignored_columns=[
                f"{name}.{column}" for column in (*settings.ignored_columns, *options.ignored_columns)
            ],
            seen_to=options.seen_to,
            recopy=[name] if options.recopy else (),
        )
        self._source.advice = UPDATE

    differences: tuple[Difference, ...] = ()

    @property
    def source_id(self) -> str:
        """See ``MySqlSource``."""
        return self._source.source_id

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """See ``MySqlSource``."""
        return self._source.read(spark, tables, after)

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """See ``MySqlSource``."""
        return self._source.read_local(tables, after)

    def has_news(self, mark: ProgressMark) -> bool:
        """Only an extraction tells."""
        return True

    def acknowledge(self) -> int:
        """The log is the server's."""
        return 0

    def close(self) -> None:
        """Remove what was kept, and disconnect."""
        self._source.close()
