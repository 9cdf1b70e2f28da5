"""Finding: one place at which a table breaks a rule."""

from __future__ import annotations

from dataclasses import dataclass

from mutation_api.storage.location import Location
from mutation_api.upkeep.verify.rules import RULES, Rule, Severity

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """A rule of :data:`~mutation_api.upkeep.verify.rules.RULES` that is broken.

    Attributes:
        rule_name: key of the rule.
        partition: escaped name of the partition, '' for none.
        location: the file or directory.
        found: what is there.
        expected: what should be there.
        row: position in the file of the first row concerned, from 0; None if it is not about rows.
        row_id: its ROW__ID: id, bucket field, row id.
        count: number of rows (or of places) concerned.
    """

    rule_name: str
    partition: str
    location: Location
    found: str
    expected: str
    row: int | None = None
    row_id: tuple[int, int, int] | None = None
    count: int = 1

    @property
    def rule(self) -> Rule:
        """The broken rule."""
        return RULES[self.rule_name]

    @property
    def is_damage(self) -> bool:
        """Whether a reader fails, or rows are lost, doubled or wrong."""
        return self.rule.severity is Severity.DAMAGE

    def to_json(self) -> dict[str, object]:
        """The finding as one JSON object."""
        return {
            "rule": self.rule_name,
            "severity": self.rule.severity.value,
            "partition": self.partition,
            "location": str(self.location),
            "row": self.row,
            "row_id": None if self.row_id is None else list(self.row_id),
            "count": self.count,
            "found": self.found,
            "expected": self.expected,
            "advice": self.rule.advice,
        }

    def __str__(self) -> str:
        """One line for people."""
        place = str(self.location)
        if self.row is not None:
            place += f", row {self.row:,}"
        if self.row_id is not None:
            place += f", ROW__ID {','.join(map(str, self.row_id))}"
        more = f" ({self.count:,} rows)" if self.count > 1 else ""
        return f"{self.rule_name}: {place}: found {self.found}; expected {self.expected}{more}"
