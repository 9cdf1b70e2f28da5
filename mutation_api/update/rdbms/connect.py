"""From a URL to a database; drivers are imported here, by name, so that one of them is enough."""

from __future__ import annotations

import importlib
import os

import sqlalchemy
from sqlalchemy.engine import URL, make_url

from mutation_api.errors import ConfigurationError
from mutation_api.inputs.url_secrets import check_no_secret
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


def checked_url(text: str) -> URL:
    """A URL of a known kind, without password.

    Raises ConfigurationError: it is none, or has a password, which would be stored and shown.
    """
    check_no_secret(
        text,
        what="the URL of the source",
        because="since it is stored and shown: give it in the environment variable "
        f"{PASSWORD_VARIABLE}, or as the database's own programs take it",
    )
    try:
        url = make_url(text)
    except sqlalchemy.exc.ArgumentError as error:
        raise ConfigurationError(
            f"source {text!r} is not a URL such as postgresql://reader@db.example/shop"
        ) from error
    if url.get_backend_name() not in _KINDS:
        raise ConfigurationError(
            f"source {text!r}: its kind is not known, only {', '.join(_KINDS)}; others are added by a "
            "class that fulfils "
            "SourceDatabase"
        )
    if not url.database:
        raise ConfigurationError(f"source {text!r} does not name a database")
    return url


def connect_database(text: str, password: str | None = None) -> SourceDatabase:
    """The database of a URL; it is connected when it is first asked.

    Args:
        text: ``postgresql://user@host[:port]/database``, ``mysql://…``, ``mariadb://…``, or ``sqlite:////path/to/file``.
        password: None for the environment variable PASSWORD_VARIABLE.

    Raises ConfigurationError: the URL is not valid, or its driver is not installed.
    """
    url = checked_url(text)
    module, name, driver, extra = _KINDS[url.get_backend_name()]
    secret = os.environ.get(PASSWORD_VARIABLE) if password is None else password
    if secret and module != "sqlite":
        url = url.set(password=secret)
    try:
        found = importlib.import_module(f"mutation_api.update.rdbms.{module}")
        database: SourceDatabase = getattr(found, name)(url.set(drivername=driver))
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"source {text}: needs the Python module {error.name!r}: pip install 'hive-mutation-api[{extra}]'"
        ) from error
    return database
