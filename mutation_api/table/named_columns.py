"""Columns that a reader names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mutation_api.errors import RecordLayoutError
from mutation_api.table.acid_table import AcidColumn, AcidTable

__all__ = ["checked_assignments", "checked_names", "named_columns", "named_data_columns"]


def checked_names(given: object, what: str) -> list[str]:
    """Names that a caller gave, in lower case; a text is one name.

    Raises:
        RecordLayoutError: it gave something else; ``what`` says what it is for.
    """
    several = [given] if isinstance(given, str) else given
    names: list[Any] = [*several] if isinstance(several, Iterable) else [several]
    if not all(isinstance(name, str) for name in names):
        raise RecordLayoutError(f'{what}={given!r}: give names of columns, such as ["id", "name"]')
    return [name.lower() for name in names]


def checked_assignments(given: object, what: str) -> dict[str, Any]:
    """Values by column that a caller gave, with the names in lower case.

    Raises:
        RecordLayoutError: it gave something else, or a column twice in different case, of which one value
            would be lost; ``what`` says whose values they are.
    """
    if not isinstance(given, Mapping):
        raise RecordLayoutError(f'{what}: {given!r} are no values by column, as {{"n": pc.field("n")}}')
    names = checked_names(list(given), f"{what}: values by column")
    if len(set(names)) < len(names):
        raise RecordLayoutError(f"{what}: a column has two values (case does not count): {', '.join(given)}")
    return dict(zip(names, given.values(), strict=True))


def named_columns(table: AcidTable, names: Sequence[str] | None) -> tuple[AcidColumn, ...]:
    """The data and partition columns of these names (any case), in the given order; all of them for None.

    A text is one name.

    Raises:
        RecordLayoutError: the table does not have a column, or its name occurs twice.
    """
    return _named(table, table.all_columns, names, "there are")


def named_data_columns(table: AcidTable, names: Sequence[str] | None) -> tuple[AcidColumn, ...]:
    """The same of the data columns alone."""
    return _named(table, table.columns, names, "data columns:")


def _named(
    table: AcidTable, known: Sequence[AcidColumn], given: Sequence[str] | None, known_as: str
) -> tuple[AcidColumn, ...]:
    by_name = {column.name: column for column in known}
    names = list(by_name) if given is None else checked_names(given, f"table {table.full_name}: columns")
    unknown = [name for name in names if name not in by_name]
    if unknown or len(set(names)) < len(names):
        raise RecordLayoutError(
            f"table {table.full_name}: columns {unknown or names} cannot be read: each must exist and be "
            f"named once; {known_as} {', '.join(by_name)}"
        )
    return tuple(by_name[name] for name in names)
