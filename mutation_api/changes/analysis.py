"""What an engine finds out about conditions and assignments of a merge before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from mutation_api.changes.clauses import E

__all__ = ["Analyser", "Analysis", "Conjunct", "Equality", "T"]

T = TypeVar("T")
"""A type of values of the engine."""


@dataclass(frozen=True)
class Analysis(Generic[T]):
    """An expression's type, and the columns of either side that it reads, in lower case."""

    data_type: T
    source_columns: frozenset[str]
    target_columns: frozenset[str]


@dataclass(frozen=True)
class Equality:
    """A column of the source that must equal one of the table; ``null_safe``: NULL equals NULL."""

    source: str
    target: str
    null_safe: bool


@dataclass(frozen=True)
class Conjunct(Generic[E]):
    """One of several conditions joined by AND.

    ``equality`` is set if it only compares a column of one side with one of the other.
    """

    expression: E
    source_columns: frozenset[str]
    target_columns: frozenset[str]
    equality: Equality | None = None


class Analyser(Protocol[E, T]):
    """Resolves expressions over the columns of both sides.

    Names are in lower case. ``what`` names an expression in messages.
    """

    @property
    def source(self) -> Mapping[str, T]:
        """Types of the source's columns by name."""
        ...

    @property
    def target(self) -> Mapping[str, T]:
        """Types of the table's columns by name: data columns, then partition columns."""
        ...

    def source_column(self, name: str) -> E:
        """The expression of a column of the source."""
        ...

    def literal(self, value: pa.Scalar) -> E:
        """The expression of a value."""
        ...

    def key_condition(self, keys: Sequence[str], *, null_safe: bool) -> E:
        """The condition that the key columns of both sides are equal."""
        ...

    def analyse(self, expression: E, sides: Sequence[str], what: str) -> Analysis[T]:
        """Resolve an expression over the columns of ``sides``.

        Raises:
            RecordLayoutError: it cannot be resolved, or would give another value when it is repeated.
        """
        ...

    def condition(self, expression: E, sides: Sequence[str], what: str) -> Analysis[T]:
        """Like :meth:`analyse`; the expression must be boolean."""
        ...

    def conjuncts(self, condition: E, sides: Sequence[str], what: str) -> Sequence[Conjunct[E]]:
        """The parts of a condition that are joined by AND."""
        ...
