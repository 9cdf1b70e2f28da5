"""What holds for the difference of two states, whichever engine finds it."""

from __future__ import annotations

from collections.abc import Sequence

from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.changes.duplicates import DUPLICATES_SHOWN_DEFAULT
from mutation_api.errors import ConfigurationError, DuplicateKeyError, RecordLayoutError
from mutation_api.table.acid_table import AcidTable

__all__ = ["NEW_STATE", "OLD_STATE", "OPERATIONS", "check_states", "checked_key", "not_unique"]

OPERATIONS = ("insert", "update", "delete")
"""What a change set does to rows."""

OLD_STATE, NEW_STATE = "the table", "what it is compared with"
"""The two states in messages."""


def checked_key(table: AcidTable, key: Sequence[str], operation_column: str) -> tuple[str, ...]:
    """The names of the key columns in lower case.

    Raises:
        ConfigurationError: no keys, one twice, one that the table does not have or that is a map; or the
            table has a column named like the operation's.
    """
    wanted = tuple(name.lower() for name in key)
    known = [c.name for c in table.all_columns]
    unknown = [name for name in wanted if name not in known]
    if not wanted or unknown or len(set(wanted)) < len(wanted):
        raise ConfigurationError(
            f"table {table.full_name}: {list(key)} cannot be its key: name at least one of its columns, "
            f"each once; they are {', '.join(known)}"
        )
    maps = [c.name for c in table.all_columns if c.name in wanted and "map<" in c.type.lower()]
    if maps:
        raise ConfigurationError(f"table {table.full_name}: maps cannot be keys: {', '.join(maps)}")
    if operation_column.lower() in known:
        raise ConfigurationError(
            f"table {table.full_name} has a column {operation_column!r} itself; give the operation another "
            "name with operation_column"
        )
    return wanted


def check_states(table: AcidTable, old: Sequence[str], new: Sequence[str]) -> None:
    """Look at the names of the columns of both states.

    Raises:
        RecordLayoutError: ``old`` has no ROW__ID, or ``new`` lacks columns of the table or has others besides
            ROW__ID.
    """
    if ROW_ID_COLUMN not in old:
        raise RecordLayoutError(f"table {table.full_name} is insert-only: its rows have no {ROW_ID_COLUMN}")
    names = [name for name in new if name.lower() != ROW_ID_COLUMN.lower()]
    known = [c.name for c in table.all_columns]
    if sorted(name.lower() for name in names) != sorted(known):
        raise RecordLayoutError(
            f"table {table.full_name} has the columns {', '.join(known)}; what it is compared with must have "
            f"the same, found {', '.join(names)}"
        )


def not_unique(
    table: AcidTable, key: Sequence[str], state: str, doubled: Sequence[tuple[str, int]]
) -> DuplicateKeyError:
    """The error that names keys that occur more than once.

    Args:
        table: the table.
        key: names of the key columns.
        state: OLD_STATE or NEW_STATE.
        doubled: JSON texts of such keys and the number of their rows; one more than are shown, if there are.
    """
    shown = [f"{text} in {count:,} rows" for text, count in sorted(doubled)[:DUPLICATES_SHOWN_DEFAULT]]
    more = "; …" if len(doubled) > DUPLICATES_SHOWN_DEFAULT else ""
    return DuplicateKeyError(
        f"table {table.full_name}: the key {', '.join(key)} is not unique in {state}: {'; '.join(shown)}"
        f"{more}. Choose a unique key, or keep one row for each"
    )
