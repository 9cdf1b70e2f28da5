"""Columns of a table by name: as Arrow types, as a schema string, and quoted for Spark SQL.

A schema string is ``id bigint, msg string``, as in a CREATE TABLE statement. Column names and assignments
that a caller passes are checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from mutation_api.errors import ConfigurationError, RecordLayoutError, TableNotMutableError
from mutation_api.format.hive_type import HiveType, arrow_type, parse_hive_type
from mutation_api.format.plain_array import repeated
from mutation_api.table.acid_table import AcidColumn, AcidTable


def row_type(columns: Sequence[AcidColumn]) -> pa.StructType:
    """Return the Arrow struct of the ``row`` field of an ACID file: the data columns in table order.

    Raises:
        TableNotMutableError: If a column's type is not supported. The message names the column.
    """
    return pa.struct([pa.field(column.name, arrow_type(_type_of(column))) for column in columns])


def _type_of(column: AcidColumn) -> HiveType:
    try:
        return parse_hive_type(column.type)
    except TableNotMutableError as error:
        raise TableNotMutableError(f"column {column.name!r}: {error}") from error


def checked_names(given: object, what: str) -> list[str]:
    """Return the names that a caller passed, in lower case. A single string is one name.

    Raises:
        RecordLayoutError: If something else was passed. ``what`` is its name in the message.
    """
    several = [given] if isinstance(given, str) else given
    names: list[Any] = [*several] if isinstance(several, Iterable) else [several]
    if not all(isinstance(name, str) for name in names):
        raise RecordLayoutError(f'{what}={given!r}: expected column names, such as ["id", "name"]')
    return [name.lower() for name in names]


def checked_assignments(given: object, what: str) -> dict[str, Any]:
    """Return the values by column that a caller passed, with the names in lower case.

    Raises:
        RecordLayoutError: If something else was passed, or if a column occurs twice in different case, so
            that one value would be lost. ``what`` names the values in the message.
    """
    if not isinstance(given, Mapping):
        raise RecordLayoutError(
            f'{what}: expected values by column, such as {{"n": pc.field("n")}}, got {given!r}'
        )
    names = checked_names(list(given), f"{what}: values by column")
    if len(set(names)) < len(names):
        raise RecordLayoutError(f"{what}: a column has two values (case is ignored): {', '.join(given)}")
    return dict(zip(names, given.values(), strict=True))


def named_columns(table: AcidTable, names: Sequence[str] | None) -> tuple[AcidColumn, ...]:
    """Return the data and partition columns with these names (in any case), in the given order.

    If ``names`` is None, all columns are returned. A single string is one name.

    Raises:
        RecordLayoutError: If the table does not have a column, or if its name occurs twice.
    """
    return _named(table, table.all_columns, names, "available columns:")


def named_data_columns(table: AcidTable, names: Sequence[str] | None) -> tuple[AcidColumn, ...]:
    """Return the data columns with these names. See :func:`named_columns`."""
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
            f"given once; {known_as} {', '.join(by_name)}"
        )
    return tuple(by_name[name] for name in names)


_COLUMN = re.compile(
    r"\s*(?:`(?P<quoted>[^`]+)`|(?P<plain>[^\s:`]+))(?:\s*:\s*|\s+|(?<=`))(?P<type>\S.*)", re.DOTALL
)


def parse_columns(text: str) -> tuple[AcidColumn, ...]:
    """Parse a list of columns ``name type, name type``.

    Names become lower case. Types are Hive's, nested or not.

    Raises:
        ConfigurationError: If a column lacks a name or a Hive type, or if a name occurs twice.
    """
    columns = tuple(_column(piece, text) for piece in _pieces(text))
    names = [c.name for c in columns]
    twice = repeated(names)
    if twice or not columns:
        problem = f"column {twice[0]!r} occurs twice" if twice else "it has no columns"
        raise ConfigurationError(f"schema {text!r}: {problem} (case is ignored)")
    return columns


def parse_types(text: str) -> tuple[HiveType, ...]:
    """Parse a list of types ``int,decimal(10,2)``.

    Raises:
        TableNotMutableError: If one is not a type of Hive, or if the list is empty.
    """
    return tuple(parse_hive_type(piece) for piece in _pieces(text) or [text])


def _pieces(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    pieces, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            pieces.append(text[start:position])
            start = position + 1
    pieces.append(text[start:])
    return pieces if text.strip() else []


def _column(piece: str, text: str) -> AcidColumn:
    match = _COLUMN.fullmatch(piece)
    if match is None:
        raise ConfigurationError(
            f"schema {text!r}: {piece.strip()!r} is not a column name followed by its type"
        )
    try:
        hive_type = parse_hive_type(match["type"])
    except TableNotMutableError as error:
        raise ConfigurationError(f"schema {text!r}: {error}") from error
    return AcidColumn((match["quoted"] or match["plain"]).lower(), hive_type.text)


def quoted(*parts: str) -> str:
    """Return the quoted name of a column from its parts.

    Dots and blanks in a part have no special meaning.
    """
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
