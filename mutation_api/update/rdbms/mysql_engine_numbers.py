"""The numbers that InnoDB gives a table and its partitions: TRUNCATE and a rebuild change them.

The engine's catalog has names of files. Each character that is no letter of ASCII, digit or _ stands there
as @ and four hex digits, or, for letters of some scripts, as @ and two characters. MariaDB has a function for
such names (CONVERT … USING filename), MySQL has none. But its list of tablespaces has names as SQL has them.
It has only tables with a file of their own, so it is asked for names that are not ASCII alone.

Sources: MySQL's manual, "Mapping of Identifiers to File Names"; tried on MySQL 9.7.4 and MariaDB 11.4.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mutation_api.errors import ConfigurationError, ConnectionFailedError, RecordLayoutError

__all__ = ["engine_numbers"]


def engine_numbers(
    rows: Callable[..., list[Sequence[Any]]], source: str, schema: str, table: str
) -> dict[str, str]:
    """Return the numbers by the names of the engine's files.

    Args:
        rows: asks the server; a statement, and the values of its marks.
        source: names the server in messages.
        schema: of the table.
        table: its name.

    Raises:
        ConfigurationError: the account may not see them.
        RecordLayoutError: the engine has no such table.
    """
    is_mariadb = "mariadb" in str(rows("SELECT VERSION()")[0][0]).lower()
    by_tablespace = not is_mariadb and not (schema + table).isascii()
    if by_tablespace:
        name = f"{schema}/{table}"
        where = "INNODB_TABLES t JOIN information_schema.INNODB_TABLESPACES s ON s.SPACE = t.SPACE"
    else:
        name = f"{_file_name(rows, schema)}/{_file_name(rows, table)}"
        where = f"{'INNODB_SYS_TABLES' if is_mariadb else 'INNODB_TABLES'} t"
    named, wanted = _bytes("s.NAME" if by_tablespace else "t.NAME"), _bytes("%s")
    statement = (
        f"SELECT t.NAME, t.TABLE_ID FROM information_schema.{where} WHERE {named} = {wanted} "
        f"OR LEFT({named}, LENGTH({wanted})) = {wanted} ORDER BY t.TABLE_ID"
    )
    partitions = f"{name}#p#"
    try:
        found = rows(statement, name, partitions, partitions)
    except ConnectionFailedError as error:
        raise ConfigurationError(
            f"{error}. The account needs the privilege PROCESS: no trigger fires for TRUNCATE, and without "
            "it none can be noticed"
        ) from error
    if not found:
        advice = (
            ". A table whose name is not ASCII is found by its own file alone: give it one (ALTER TABLE … "
            "TABLESPACE innodb_file_per_table), or rename it"
        )
        raise RecordLayoutError(
            f"source {source}: the engine does not know table {name}{advice if by_tablespace else ''}"
        )
    return {str(file): str(number) for file, number in found}


def _bytes(text: str) -> str:
    """A name in lower case, since the server may fold it, and as bytes, since its catalog takes ä for a."""
    return f"CAST(LOWER(CONVERT({text} USING utf8mb4)) AS BINARY)"


def _file_name(rows: Callable[..., list[Sequence[Any]]], name: str) -> str:
    """A name as the engine's catalog has it; one that is not ASCII is asked of MariaDB."""
    if not name.isascii():
        ((found,),) = rows("SELECT CAST(CONVERT(%s USING filename) AS BINARY)", name)
        return bytes(found).decode("ascii")
    return "".join(c if c.isalnum() or c == "_" else f"@{ord(c):04x}" for c in name)
