"""PostgreSQL's privileges, quoting and monotonically increasing columns.

To log the changes of a table, an account needs only TRIGGER on it to create a trigger. Only the owner of the
table and members of its role may drop the trigger, or make it fire for rows that logical replication applies
(ENABLE ALWAYS).

Strings are quoted in statements so that the session's settings do not change their meaning.

Source: PostgreSQL's documentation, "String Constants with C-Style Escapes", "Dollar-Quoted String Constants".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from mutation_api.cdc.update.database import CapturedTable
from mutation_api.cdc.update.sql_database import without_nul
from mutation_api.cdc.update.values import BUCKETS, NUMBER, GrowingColumn, matching, minus, seconds_of
from mutation_api.errors import ConfigurationError

PRIVILEGES = """
SELECT quote_ident(current_user), quote_ident(pg_get_userbyid(c.relowner)), pg_has_role(c.relowner, 'USAGE'),
       has_schema_privilege(c.relnamespace, 'CREATE') FROM pg_class c WHERE c.oid = %s"""


def check_log_privileges(
    table: CapturedTable, account: str, owner: str, *, is_owner: bool, may_create: bool
) -> None:
    """Raise an error if an account cannot create the log of a table and its triggers.

    Args:
        table: the table.
        account: the account, quoted.
        owner: the owner of the table, quoted.
        is_owner: True if the account has the privileges of the owner.
        may_create: True if the account may create objects in the schema of the table.

    Raises:
        ConfigurationError: If it cannot. The message contains the missing grants.
    """
    schema = '"' + table.schema.replace('"', '""') + '"'
    grants = [] if is_owner else [f"GRANT {owner} TO {account}"]
    grants += [] if may_create else [f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {account}"]
    if not grants:
        return
    raise ConfigurationError(
        f"source table {table.full_name}: account {account} cannot log its changes: it needs the privileges "
        f"of the table's owner {owner}, and CREATE on the schema. Nothing was changed. Run these statements: "
        f"{'; '.join(grants)}. Or use the method row-version with the version column xmin, for which SELECT "
        "is enough"
    )


def literal_of(text: str) -> str:
    """Return a string as a literal.

    A backslash is an escape only in E'…', or in all literals, depending on ``standard_conforming_strings``. A
    string with a backslash therefore becomes E'…' with two backslashes.
    """
    quoted = "'" + without_nul(text).replace("'", "''") + "'"
    return " E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def dollar_quoted(text: str) -> str:
    """Return a multi-line string unchanged between markers that do not occur in it."""
    mark = next(mark for number in itertools.count() if (mark := f"$hm{number or ''}$") not in text + "$")
    return f"{mark}{without_nul(text)}{mark}"


_TIME_TEXT = r"[0-9]{4,7}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?( BC)?"


@dataclass(frozen=True)
class _Kind:
    """A type.

    ``regular``: the condition for its finite values. ``text``: a value as a string, independent of the
    session. ``form``: the pattern of such a string.
    """

    regular: Callable[[str], str] = lambda value: ""
    lowest: Callable[[str], str] = lambda value: ""
    text: Callable[[str], str] = lambda value: f"({value})::text"
    form: str = NUMBER
    is_time: bool = False


_FLOAT = _Kind(lambda value: f"{value} < 'Infinity'", lambda value: f"{value} = '-Infinity'")
# Before PostgreSQL 14, numeric has NaN but no infinities, and rejects the word.
_NUMERIC = _Kind(
    lambda value: f"{value}::text NOT IN ('NaN', 'Infinity', '-Infinity')",
    lambda value: f"{value}::text = '-Infinity'",
)
_TIME = _Kind(
    lambda value: f"isfinite({value})",
    lambda value: f"{value} = '-infinity'",
    form=_TIME_TEXT,
    is_time=True,
)

GROWING: dict[str, _Kind] = {
    **dict.fromkeys(("int2", "int4", "int8"), _Kind()),
    "numeric": _NUMERIC,
    **dict.fromkeys(("float4", "float8"), _FLOAT),
    **dict.fromkeys(("date", "timestamp"), _TIME),
    "timestamptz": _Kind(
        _TIME.regular,
        _TIME.lowest,
        lambda value: f"({value} AT TIME ZONE 'UTC')::text",
        form=_TIME_TEXT,
        is_time=True,
    ),
}
"""Types of version columns; a string type is not one, because no overlap can be subtracted from it."""


def growing_column(name: str, kind: str) -> GrowingColumn | None:
    """Return the SQL of a column, or None if its type is not in GROWING."""
    found = GROWING.get(kind)
    if found is None:
        return None
    type_of = "timestamp AT TIME ZONE 'UTC'" if kind == "timestamptz" else kind
    return GrowingColumn(
        name,
        lambda keys, column: f"hashtext(concat_ws('/', {keys}, {found.text(column)})) & {BUCKETS - 1}",
        shown=found.text,
        literal=lambda text: f"('{matching(found.form, text)}'::{type_of})",
        regular=found.regular,
        lowest=found.lowest,
        lowered=_earlier if found.is_time else minus,
    )


def _earlier(literal: str, overlap: Decimal) -> str:
    return f"({literal} - interval '{seconds_of(overlap)} seconds')"
