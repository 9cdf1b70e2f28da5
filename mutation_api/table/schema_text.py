"""Columns and types written as text, ``id bigint, msg string``, as in a CREATE TABLE statement."""

from __future__ import annotations

import re

from mutation_api.errors import ConfigurationError, TableNotMutableError
from mutation_api.table.acid_table import AcidColumn
from mutation_api.types.hive_type import HiveType, parse_hive_type
from mutation_api.types.repeated import repeated

__all__ = ["parse_columns", "parse_types"]

_COLUMN = re.compile(
    r"\s*(?:`(?P<quoted>[^`]+)`|(?P<plain>[^\s:`]+))(?:\s*:\s*|\s+|(?<=`))(?P<type>\S.*)", re.DOTALL
)


def parse_columns(text: str) -> tuple[AcidColumn, ...]:
    """Columns of a list ``name type, name type``. Names become lower case; types are Hive's, nested or not.

    Raises:
        ConfigurationError: a column lacks a name or a Hive type, or a name occurs twice.
    """
    columns = tuple(_column(piece, text) for piece in _pieces(text))
    names = [c.name for c in columns]
    twice = repeated(names)
    if twice or not columns:
        problem = f"column {twice[0]!r} comes twice" if twice else "it has no columns"
        raise ConfigurationError(f"schema {text!r}: {problem} (case does not count)")
    return columns


def parse_types(text: str) -> tuple[HiveType, ...]:
    """Types of a list ``int,decimal(10,2)``.

    Raises:
        TableNotMutableError: one is no type Hive has, or there is none.
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
        raise ConfigurationError(f"schema {text!r}: {piece.strip()!r} is not a column name and its type")
    try:
        hive_type = parse_hive_type(match["type"])
    except TableNotMutableError as error:
        raise ConfigurationError(f"schema {text!r}: {error}") from error
    return AcidColumn((match["quoted"] or match["plain"]).lower(), hive_type.text)
