"""The first look at a log: facts of each table, and changes of whole tables.

A log is read twice. This look finds the tables, the order of operations and the end of the log. The second
reading, when the operations are evaluated, gives the operations. Parts of a log can be looked at side by
side, and their facts merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mutation_api.inputs.messages.events import LoggedEvent
from mutation_api.inputs.messages.followed_tables import FollowedTables
from mutation_api.inputs.messages.late_messages import Applied, Digest, LateFacts
from mutation_api.inputs.messages.order import OrderFacts
from mutation_api.inputs.messages.shape import ShapeFacts
from mutation_api.inputs.messages.snapshots import SnapshotFacts
from mutation_api.inputs.messages.table_changes import TableChanges
from mutation_api.inputs.messages.table_names import TableId
from mutation_api.inputs.messages.unwrap import MessageLog

__all__ = ["FirstLook", "LogFacts", "TableFacts"]

OTHERS_KEPT = 1000
"""Tables that are not followed, of which a range keeps the names."""


@dataclass
class TableFacts:
    """Facts of a log about one table. ``ids``: the tables of the source that its name fits."""

    order: OrderFacts = field(default_factory=OrderFacts)
    shape: ShapeFacts = field(default_factory=ShapeFacts)
    snapshots: SnapshotFacts = field(default_factory=SnapshotFacts)
    late: LateFacts = field(default_factory=LateFacts)
    ids: set[TableId] = field(default_factory=set)

    def merge(self, other: TableFacts) -> None:
        """Add the facts of another part of the log."""
        self.order.merge(other.order)
        self.shape.merge(other.shape)
        self.snapshots.merge(other.snapshots)
        self.late.merge(other.late)
        self.ids |= other.ids


@dataclass
class LogFacts:
    """Facts of a log about the followed tables.

    ``tables``: those with rows or truncates, by name. ``changes``: changes of whole tables. ``wrong``: the
    first message that has a problem. ``others``: some of the tables that are not followed.
    """

    tables: dict[str, TableFacts] = field(default_factory=dict)
    changes: list[LoggedEvent] = field(default_factory=list)
    wrong: LoggedEvent | None = None
    others: set[TableId] = field(default_factory=set)

    def merge(self, other: LogFacts) -> None:
        """Add the facts of another part of the log."""
        for name, facts in other.tables.items():
            self.tables.setdefault(name, TableFacts()).merge(facts)
        self.others |= other.others
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

    ``followed``: the tables. ``applied``: by table, up to where it was applied. ``wanted``: by table, late
    messages that are looked for among those that earlier runs have read; then nothing else is looked for.
    """

    log: MessageLog
    followed: FollowedTables
    applied: Mapping[str, Applied] = field(default_factory=dict)
    wanted: Mapping[str, frozenset[Digest]] = field(default_factory=dict)

    def at(self, number: int) -> LogFacts:
        """The facts of a range. Raises InputFormatError: a file cannot be read."""
        facts = LogFacts()
        add = self._add_wanted if self.wanted else self._add
        for found in (each for some in self.log.events(number) for each in some):
            add(facts, found)
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
        return TableChanges(tuple(facts.changes), self.followed, self.log.files, self.applied)

    def _add(self, facts: LogFacts, found: LoggedEvent) -> None:
        event = found.event
        is_row = event.kind == "row"
        is_ours = (is_row or event.kind == "truncate") and event.table in self.followed.names
        if event.problem is not None and ((is_row and is_ours) or event.kind == "damaged"):
            facts.add_wrong(found)
            return
        if event.kind in ("schema change", "truncate") and self.followed.touched_by(event):
            facts.changes.append(found)
        if not is_ours or event.table is None:
            if is_row and event.id is not None and len(facts.others) < OTHERS_KEPT:
                facts.others.add(event.id)
            return
        number = self.log.files[found.place.file].number
        table = facts.tables.get(event.table)
        if table is None:
            table = facts.tables[event.table] = TableFacts()
        table.order.add(found, number)
        if event.id is not None:
            table.ids.add(event.id)
        if is_row:
            table.shape.add(event)
            table.snapshots.add(found.place, event)
        applied = self.applied.get(event.table)
        if applied is not None and applied.is_late(found, number):
            table.late.add(found)

    def _add_wanted(self, facts: LogFacts, found: LoggedEvent) -> None:
        name = found.event.table or ""
        is_wanted = name in self.wanted and found.event.kind in ("row", "truncate")
        if is_wanted and self.applied[name].is_old(found):
            facts.tables.setdefault(name, TableFacts()).late.add_old(found, self.wanted[name])
