"""The privileges that an account of PostgreSQL needs to log the changes of a table.

TRIGGER on the table suffices to make a trigger. Only the owner of the table, and members of its role, may
drop the trigger, and make it fire for rows that logical replication applies (ENABLE ALWAYS).
"""

from __future__ import annotations

from mutation_api.errors import ConfigurationError
from mutation_api.update.rdbms.database import CapturedTable

__all__ = ["PRIVILEGES", "check_log_privileges"]

PRIVILEGES = """
SELECT quote_ident(current_user), quote_ident(pg_get_userbyid(c.relowner)), pg_has_role(c.relowner, 'USAGE'),
       has_schema_privilege(c.relnamespace, 'CREATE') FROM pg_class c WHERE c.oid = %s"""


def check_log_privileges(
    table: CapturedTable, account: str, owner: str, *, is_owner: bool, may_create: bool
) -> None:
    """Refuse an account that cannot make the log of a table and its triggers.

    Args:
        table: the table.
        account: the account, quoted.
        owner: the owner of the table, quoted.
        is_owner: whether the account has the rights of the owner.
        may_create: whether it may make objects in the schema of the table.

    Raises:
        ConfigurationError: it cannot; names the missing grants.
    """
    schema = '"' + table.schema.replace('"', '""') + '"'
    grants = [] if is_owner else [f"GRANT {owner} TO {account}"]
    grants += [] if may_create else [f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {account}"]
    if not grants:
        return
    raise ConfigurationError(
        f"source table {table.full_name}: account {account} cannot log its changes: it needs the rights "
        f"of the table's owner {owner}, and CREATE on the schema. Nothing was changed. Have these "
        f"statements run: {'; '.join(grants)}. Or use the method row-version with the version "
        "column xmin, for which SELECT suffices"
    )
