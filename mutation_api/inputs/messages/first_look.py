"""The first look at a log: facts of each table, and changes of whole tables.

A log is read twice. This look finds the tables, the order of operations and the end of the log. The second
reading, when the operations are evaluated, gives the operations. Parts of a log can be looked at side by
side, and their facts merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mutation_api.inputs.messages.events import LoggedEvent
from mutation_api.inputs.messages.order import OrderFacts
from mutation_api.inputs.messages.shape import ShapeFacts
from mutation_api.inputs.messages.table_changes import TableChanges, is_change
from mutation_api.inputs.messages.unwrap import MessageLog

__all__ = ["FirstLook", "LogFacts", "TableFacts"]


@dataclass
class TableFacts:
    """Facts of a log about one table."""

    order: OrderFacts = field(default_factory=OrderFacts)
    shape: ShapeFacts = field(default_factory=ShapeFacts)


@dataclass
class LogFacts:
    """Facts of a log about the followed tables.

    ``tables``: those with rows or truncates, by name. ``changes``: changes of whole tables. ``wrong``: the
    first message that has a problem.
    """

    tables: dict[str, TableFacts] = field(default_factory=dict)
    changes: list[LoggedEvent] = field(default_factory=list)
    wrong: LoggedEvent | None = None

    def merge(self, other: LogFacts) -> None:
        """Add the facts of another part of the log."""
        for name, facts in other.tables.items():
            known = self.tables.setdefault(name, TableFacts())
            known.order.merge(facts.order)
            known.shape.merge(facts.shape)
        self.changes += other.changes
        if other.wrong is not None:
            self.add_wrong(other.wrong)

    def add_wrong(self, found: LoggedEvent) -> None:
        """Keep the first message that has a problem."""
        if self.wrong is None or found.place < self.wrong.place:
            self.wrong = found


@dataclass(frozen=True)
class FirstLook:
    """Looks at the ranges of a log; pickled for tasks.

    ``tables``: the source's names of the followed tables.
    """

    log: MessageLog
    tables: tuple[str, ...]

    def at(self, number: int) -> LogFacts:
        """The facts of a range. Raises InputFormatError: a file cannot be read."""
        facts = LogFacts()
        for found in (each for some in self.log.events(number) for each in some):
            self._add(facts, found)
        return facts

    def whole(self, parts: Iterable[LogFacts]) -> LogFacts:
        """The facts of all ranges.

        Raises:
            InputFormatError, or another class of the first damaged message's problem; names file, line,
                field.
        """
        whole = LogFacts()
        for part in parts:
            whole.merge(part)
        if whole.wrong is not None:
            problem = whole.wrong.event.problem
            assert problem is not None
            location = whole.wrong.place.shown(self.log.files, problem.field)
            raise problem.error(f"{location}: {problem.text}")
        return whole

    def changes(self, facts: LogFacts) -> TableChanges:
        """The changes of whole tables."""
        return TableChanges(tuple(facts.changes), self.tables, self.log.files)

    def _add(self, facts: LogFacts, found: LoggedEvent) -> None:
        event = found.event
        is_ours = event.kind in ("row", "truncate") and event.table in self.tables
        is_row = is_ours and event.kind == "row"
        if event.problem is not None and (is_row or event.kind == "damaged"):
            facts.add_wrong(found)
            return
        if is_change(event, self.tables):
            facts.changes.append(found)
        if is_ours and event.table is not None:
            table = facts.tables.setdefault(event.table, TableFacts())
            table.order.add(found, self.log.files[found.place.file].number)
            if is_row:
                table.shape.add(event)
