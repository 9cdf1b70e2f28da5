"""Clauses of a merge: the rows they apply to, their condition and their action. Pure values.

Conditions and assignments are expressions of an engine: SQL text and Columns of Spark, expressions of Arrow.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa

__all__ = ["SOURCE", "TARGET", "Action", "Clause", "E", "Match", "text_of"]

SOURCE = "source"
TARGET = "target"
"""The names of the two sides in conditions and assignments."""

E = TypeVar("E")
"""An expression of the engine."""


class Match(enum.Enum):
    """The rows that a clause applies to; the value is the name of the builder's method."""

    MATCHED = "whenMatched"
    NOT_MATCHED = "whenNotMatched"
    NOT_MATCHED_BY_SOURCE = "whenNotMatchedBySource"

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides on which such a row exists."""
        return {
            Match.MATCHED: (SOURCE, TARGET),
            Match.NOT_MATCHED: (SOURCE,),
            Match.NOT_MATCHED_BY_SOURCE: (TARGET,),
        }[self]


class Action(enum.Enum):
    """What a clause does with its rows."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True)
class Clause(Generic[E]):
    """Applies ``action`` to the ``match`` rows for which ``condition`` is true (None: to all of them).

    ``assignments`` holds the new values by column name. None means all columns that the source has
    (``updateAll``, ``insertAll``); for a delete it means nothing. ``defaults`` holds the values of columns
    that an insert leaves out and that have a DEFAULT constraint.
    """

    match: Match
    condition: E | None
    action: Action
    assignments: Mapping[str, E] | None = None
    defaults: Mapping[str, pa.Scalar] = field(default_factory=dict)

    @property
    def takes_all(self) -> bool:
        """Whether it assigns every column that the source has."""
        return self.action is not Action.DELETE and self.assignments is None

    def __str__(self) -> str:
        """As the user wrote it, without its assignments."""
        condition = "" if self.condition is None else text_of(self.condition)
        return f"{self.match.value}({condition}).{self.action.value}"


def text_of(expression: object) -> str:
    """The expression for a message."""
    try:
        return expression if isinstance(expression, str) else str(expression)
    except UnicodeDecodeError as error:  # bytes that are no UTF-8 in an Arrow expression
        return bytes(error.object).decode(errors="replace")
