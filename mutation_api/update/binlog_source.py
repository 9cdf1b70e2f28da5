"""BinlogSource: the binary log of MySQL or MariaDB as a method of incremental update, by the source of
``ingest mysql``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mutation_api.errors import ConfigurationError
from mutation_api.inputs.mysql.advice import UPDATE
from mutation_api.inputs.mysql.mysql_source import MySqlSource
from mutation_api.inputs.mysql.server import PORT_DEFAULT, MySqlAddress
from mutation_api.inputs.source import Batch, LocalBatch, Position, SourceTable
from mutation_api.inputs.source_url import SourceUrl
from mutation_api.update.binlog_options import NO_OPTIONS, BinlogOptions
from mutation_api.update.differences import Difference
from mutation_api.update.progress_mark import ProgressMark
from mutation_api.update.rdbms.connect import PASSWORD_VARIABLE
from mutation_api.update.settings import UpdateSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BinlogSource"]

_SWITCHES = ("ssl_check_hostname", "ssl_disabled", "ssl_verify_cert", "ssl_verify_identity")
_SWITCH_VALUES = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


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
            _driver_options(url),
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


def _driver_options(url: SourceUrl) -> dict[str, Any]:
    """The options of a URL as PyMySQL takes them, so that the encryption is what the URL asks for."""
    return {name: _option(name, text, url) for name, text in url.options.items() if name != "charset"}


def _option(name: str, text: str, url: SourceUrl) -> Any:
    """The value of an option. Raises ConfigurationError."""
    try:
        if name in _SWITCHES:
            return _SWITCH_VALUES[text.lower()]
        return int(text) if name.endswith("_timeout") else text
    except (KeyError, ValueError) as error:
        allowed = "true or false" if name in _SWITCHES else "a whole number of seconds"
        raise ConfigurationError(f"source {url}: option {name} is {text!r}; it must be {allowed}") from error
