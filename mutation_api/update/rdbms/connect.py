"""From a URL to a database; drivers are imported here, by name, so that one of them is enough."""

from __future__ import annotations

import importlib
import os

from sqlalchemy.engine import URL

from mutation_api.errors import ConfigurationError
from mutation_api.inputs.source_url import SourceUrl
from mutation_api.update.rdbms.database import SourceDatabase

__all__ = ["PASSWORD_VARIABLE", "checked_url", "connect_database"]

PASSWORD_VARIABLE = "HIVE_MUTATE_SOURCE_PASSWORD"
"""Environment variable with the password of the source."""

_KINDS = {
    "postgresql": ("postgresql", "PostgreSql", "postgresql+psycopg", "postgresql"),
    "mysql": ("mysql", "MySql", "mysql+pymysql", "mysql"),
    "mariadb": ("mysql", "MySql", "mysql+pymysql", "mysql"),
    "sqlite": ("sqlite", "Sqlite", "sqlite", "rdbms"),
}
"""Kind -> module, class, SQLAlchemy's name of dialect and driver, extra that brings it."""


def checked_url(text: str) -> SourceUrl:
    """A URL that a user gave.

    Raises ConfigurationError: it is none, or has a password, which would be stored and shown.
    """
    return SourceUrl.of(
        text,
        because="since it is stored and shown: give it in the environment variable "
        f"{PASSWORD_VARIABLE}, or as the database's own programs take it",
    )


def connect_database(source: str | SourceUrl, password: str | None = None) -> SourceDatabase:
    """The database of a URL; it is connected when it is first asked.

    The caller answers for the URL. One of a table's properties is connected to by
    :class:`~mutation_api.update.source_access.SourceAccess`.

    Args:
        source: ``postgresql://user@host[:port]/database``, ``mysql://…``, ``mariadb://…``, or
            ``sqlite:////path/to/file``.
        password: None for the environment variable PASSWORD_VARIABLE.

    Raises ConfigurationError: the URL is not valid, or its driver is not installed.
    """
    found = checked_url(source) if isinstance(source, str) else source
    module, name, driver, extra = _KINDS[found.kind]
    secret = os.environ.get(PASSWORD_VARIABLE) if password is None else password
    url = URL.create(
        driver,
        username=found.user or None,
        password=secret or None if found.kind != "sqlite" else None,
        host=found.host or None,
        port=found.port,
        database=found.database,
        query=dict(found.options),
    )
    try:
        database: SourceDatabase = getattr(
            importlib.import_module(f"mutation_api.update.rdbms.{module}"), name
        )(url)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"source {found}: needs the Python module {error.name!r}: pip install "
            f"'hive-mutation-api[{extra}]'"
        ) from error
    return database
