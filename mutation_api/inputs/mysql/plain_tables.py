"""Whether a change of a table changes nothing else: it has rows of its own, and no triggers."""

from __future__ import annotations

from mutation_api.inputs.mysql.server import MySqlServer

__all__ = ["why_not_plain"]

_SYSTEM = "mysql"
"""The server's own database, whose tables have no triggers; some services write a heartbeat there."""
_ENGINES = ("innodb", "myisam", "aria", "rocksdb", "memory", "archive", "ndbcluster", "tokudb")
_MAY_SEE_TRIGGERS = (
    "GRANTEE = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''') AND PRIVILEGE_TYPE = 'TRIGGER'"
)
"""The server shows triggers only to an account with this privilege, so without it none are seen."""


def why_not_plain(server: MySqlServer, database: str, table: str) -> str:
    """Return why a change of this table may change others; empty if it cannot.

    A foreign key cannot pass it on to a followed table: those with such rules are refused.

    Raises ConnectionFailedError: the server does not answer.
    """
    if database.lower() == _SYSTEM:
        return ""
    rows = server.values(
        "SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES "
        "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        database,
        table,
    )
    if not rows:
        return f"{database}.{table} does not exist now, or the account lacks SELECT and TRIGGER on it"
    kind, engine = rows[0]
    if kind != "BASE TABLE" or str(engine).lower() not in _ENGINES:
        return f"{database}.{table} is a {kind}" + (f" of engine {engine}" if engine else "")
    if not _sees_triggers(server, database, table):
        return f"{database}.{table} may have triggers; to see them, the account needs TRIGGER on it"
    found = server.values(
        "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = %s "
        "AND EVENT_OBJECT_TABLE = %s",
        database,
        table,
    )
    return f"{database}.{table} has the trigger {found[0][0]}" if found else ""


def _sees_triggers(server: MySqlServer, database: str, table: str) -> bool:
    views = {
        "USER": "",
        "SCHEMA": " AND TABLE_SCHEMA = %s",
        "TABLE": " AND TABLE_SCHEMA = %s AND TABLE_NAME = %s",
    }
    queries = [
        f"SELECT 1 FROM information_schema.{name}_PRIVILEGES WHERE {_MAY_SEE_TRIGGERS}{place}"
        for name, place in views.items()
    ]
    return bool(server.values(" UNION ".join(queries), database, database, table))
