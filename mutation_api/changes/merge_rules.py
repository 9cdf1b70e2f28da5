"""MergeRules: a merge described as people type it, by conditions whose columns need no side before them.

Each engine reads the texts in its own way (:class:`RuleConditions`); which clauses they make is said here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mutation_api.changes.clauses import Action, Clause, E, Match
from mutation_api.errors import ConfigurationError

__all__ = ["MergeRules", "RowOrder", "RuleConditions", "parsed_order", "rule_clauses"]

_ORDER = re.compile(
    r"(?P<value>.+?)(?:\s+(?P<order>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?", re.I | re.S
)


@dataclass(frozen=True)
class MergeRules:
    """What happens to rows; conditions are SQL, and None always holds.

    Unless told otherwise matched rows are updated and the source's others inserted. A column without
    ``source.`` or ``target.`` before it is the source's if that has it; in ``delete_missing_when`` it is the
    table's.

    ``delete_when``: matched rows that are deleted; None for none. A row of the source for which it holds is
    never inserted. ``update_when``, ``insert_when``: which rows are; ``updates``, ``inserts``: whether any
    are. ``delete_missing_when``: rows of the table alone that are deleted; ``deletes_missing``: all of them.
    ``first_by``: of several source rows of one key the first in this order counts, ``updated DESC``; none:
    several are an error.
    """

    delete_when: str | None = None
    update_when: str | None = None
    insert_when: str | None = None
    delete_missing_when: str | None = None
    updates: bool = True
    inserts: bool = True
    deletes_missing: bool = False
    first_by: tuple[str, ...] = ()

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions that are given."""
        given = (self.delete_when, self.update_when, self.insert_when, self.delete_missing_when)
        return tuple(each for each in given if each is not None)


@dataclass(frozen=True)
class RowOrder:
    """``value [ASC|DESC] [NULLS FIRST|LAST]``; without words for it NULL is the least value."""

    value: str
    is_descending: bool
    nulls_last: bool


class RuleConditions(Protocol[E]):
    """Makes expressions of an engine of the conditions in rules; columns get the side that is meant."""

    def of_both(self, text: str) -> E:
        """The condition on rows of both sides. Raises ConfigurationError: it is no condition."""
        ...

    def of_source(self, text: str) -> E:
        """The condition on rows of the source."""
        ...

    def of_target(self, text: str) -> E:
        """The condition on rows of the table."""
        ...

    def reads_target(self, text: str) -> bool:
        """Whether the condition on rows of both sides reads the table's."""
        ...

    def unless(self, gone: E, wanted: E | None) -> E:
        """Where ``gone`` does not hold, being false or NULL, and ``wanted`` does; None always does."""
        ...


def parsed_order(text: str) -> RowOrder:
    """The parts of an order, as in SQL's ORDER BY. Raises ConfigurationError: the text is none."""
    found = _ORDER.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"first_by {text!r}: expected SQL [ASC|DESC] [NULLS FIRST|LAST]")
    is_descending = (found["order"] or "").lower() == "desc"
    nulls = (found["nulls"] or "").lower()
    return RowOrder(found["value"], is_descending, nulls == "last" if nulls else is_descending)


def rule_clauses(rules: MergeRules, conditions: RuleConditions[E]) -> list[Clause[E]]:
    """The clauses of a merge, in the order that counts.

    Raises:
        ConfigurationError: a text is no condition, or rules contradict one another.
    """
    found = []
    if rules.delete_when is not None:
        found.append(Clause(Match.MATCHED, conditions.of_both(rules.delete_when), Action.DELETE))
    if rules.updates:
        found.append(Clause(Match.MATCHED, _read(conditions.of_both, rules.update_when), Action.UPDATE))
    if rules.inserts:
        found.append(Clause(Match.NOT_MATCHED, _inserted(rules, conditions), Action.INSERT))
    if rules.deletes_missing or rules.delete_missing_when is not None:
        missing = _read(conditions.of_target, rules.delete_missing_when)
        found.append(Clause(Match.NOT_MATCHED_BY_SOURCE, missing, Action.DELETE))
    return found


def _read(read: Callable[[str], E], text: str | None) -> E | None:
    return None if text is None else read(text)


def _inserted(rules: MergeRules, conditions: RuleConditions[E]) -> E | None:
    """Which unmatched rows are inserted: none that say that their row is gone."""
    wanted = _read(conditions.of_source, rules.insert_when)
    if rules.delete_when is None:
        return wanted
    if not conditions.reads_target(rules.delete_when):
        return conditions.unless(conditions.of_both(rules.delete_when), wanted)
    if wanted is None:
        raise ConfigurationError(
            f"delete_when {rules.delete_when!r} reads the table's row, which a row to be inserted does not "
            "have: say with insert_when which rows are inserted, or give inserts=False"
        )
    return wanted
