"""Texts in statements of PostgreSQL, whatever settings the session has.

Source: PostgreSQL's documentation, "String Constants with C-Style Escapes", "Dollar-Quoted String Constants".
"""

from __future__ import annotations

import itertools

from mutation_api.update.rdbms.sql_database import without_nul

__all__ = ["dollar_quoted", "literal_of"]


def literal_of(text: str) -> str:
    """A text as a literal.

    A backslash is an escape in E'…' alone, or in all literals (``standard_conforming_strings``). So a text
    with one becomes E'…', with the backslash doubled.
    """
    quoted = "'" + without_nul(text).replace("'", "''") + "'"
    return " E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def dollar_quoted(text: str) -> str:
    """A text of several lines as it stands, between marks that it does not have."""
    mark = next(mark for number in itertools.count() if (mark := f"$hm{number or ''}$") not in text + "$")
    return f"{mark}{without_nul(text)}{mark}"
