"""A merge said in Hive's own SQL, on a copy of the table: MERGE, and UPDATE and DELETE for what it lacks.

The copy has neither partitions nor buckets by a column of the case, so that UPDATE may change every column;
``one`` is never NULL and tells MERGE which rows have no partner, also where NULL keys are equal.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from judges.errors import HiveError
from tests.integration.merges.merge_cases import Source
from tests.integration.merges.merge_model import (
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    Merge,
    Outcome,
    Row,
    Rule,
)
from tests.integration.merges.merge_tables import Table

ONE = "one"
MARK = "mark"
"""Of a row without a partner the number of the clause that is for it."""
OURS = (ONE, MARK)

NO_MAP_JOIN = {"hive.auto.convert.join": "false"}
"""Hive 2.3 and 3.1 would start a process for the smaller side."""


@dataclass(frozen=True)
class SqlMerge:
    """A copy of the table as it was, and the statements that change it."""

    copy: Table
    merge: Merge

    @classmethod
    def of(cls, table: Table, before: Sequence[Row], merge: Merge) -> SqlMerge:
        """Copy the table: the rows that Hive finds in it."""
        copy = table.place.flat({ONE: "int", MARK: "int", **table.types})
        copy.insert({ONE: 1, MARK: 0, **row} for row in before)
        return cls(copy, merge)

    def is_sayable(self, before: Sequence[Row], given: Source, expected: Outcome) -> bool:
        """Whether SQL has words for it: it knows no doubled inserts, and no choice among doubled matches."""
        if expected.refused_by:
            return expected.refused_by == "match"
        used = self._used(given, expected)
        return all(sum(self.merge.equal(s, t) for s in used) <= 1 for t in before)

    def run(self, given: Source, expected: Outcome) -> list[Row]:
        """The rows of the copy after the statements."""
        self._run_not_matched_by_source(self.merge.of(NOT_MATCHED_BY_SOURCE), given)
        statement = self.statement(given, self._used(given, expected))
        if statement:
            self.copy.sql(statement, **NO_MAP_JOIN)
        return [{k: v for k, v in row.items() if k not in OURS} for row in self.copy.rows()]

    def refuses(self, given: Source) -> None:
        """Hive, too, refuses several source rows for one row of the table, and changes nothing."""
        before = self.copy.rows()
        with pytest.raises(HiveError):
            self.copy.sql(self.statement(given, given.rows), **NO_MAP_JOIN)
        self.copy.place.judge.time_out_transactions(0)
        assert self.copy.rows() == before

    def _used(self, given: Source, expected: Outcome) -> list[Row]:
        """The source, without the rows that do nothing where Hive would call them doubled."""
        is_reduced = expected.doubled or self.merge.first_by
        return expected.acting if is_reduced else given.rows

    def statement(self, given: Source, used: Sequence[Row]) -> str:
        """MERGE; '' if there is nothing for it."""
        matched, inserts = self.merge.of(MATCHED), self.merge.of(NOT_MATCHED)
        if not (matched or inserts):
            return ""
        types = {**self.copy.types, **given.types}  # columns that the source lacks are NULL
        source = self.copy.place.flat(types)
        source.insert(dict.fromkeys(types) | row for row in used)
        equal = "<=>" if self.merge.null_safe else "="
        on = [f"target.{name} {equal} source.{name}" for name in self.merge.on] + [f"target.{ONE} = 1"]
        on += [self.merge.on_too.text] if self.merge.on_too else []
        return (
            f"MERGE INTO $T AS target USING {source.full_name} AS source ON {' AND '.join(on)} "
            f"{self._matched(matched, given)} {self._inserts(inserts, given)}"
        )

    def _matched(self, rules: Sequence[Rule], given: Source) -> str:
        """At most one DELETE and one UPDATE, which is all that Hive takes."""
        updates = [n for n, rule in enumerate(rules) if rule.then == "update"]
        deletes = [n for n, rule in enumerate(rules) if rule.then == "delete"]
        number = _first_holding(rules)
        clauses = []
        if deletes:
            alone = not updates and rules[0].condition is None
            condition = "" if alone else f" AND {number} IN ({_listed(deletes)})"
            clauses.append(f"WHEN MATCHED{condition} THEN DELETE")
        if updates:
            alone = not deletes and rules[0].condition is None
            condition = "" if alone else f" AND {number} IN ({_listed(updates)})"
            values = self._values({n: rules[n] for n in updates}, number, given)
            values = {name: value for name, value in values.items() if value != f"target.{name}"}
            assignments = ", ".join(f"{name} = {value}" for name, value in values.items())
            clauses.append(f"WHEN MATCHED{condition} THEN UPDATE SET {assignments}")
        return " ".join(clauses)

    def _inserts(self, rules: Sequence[Rule], given: Source) -> str:
        if not rules:
            return ""
        number = _first_holding(rules)
        condition = "" if rules[0].condition is None else f" AND {number} IS NOT NULL"
        values = self._values(dict(enumerate(rules)), number, given, has_target=False)
        return f"WHEN NOT MATCHED{condition} THEN INSERT VALUES ({', '.join(['1', '0', *values.values()])})"

    def _values(
        self, rules: Mapping[int, Rule], number: str, given: Source, *, has_target: bool = True
    ) -> dict[str, str]:
        """By column the value that the clause with the row's number gives it."""
        found = {}
        for name, kind in self.copy.types.items():
            if name in OURS:
                continue
            # a NULL alone would have no type
            rest = f"target.{name}" if has_target else f"IF(source.{ONE} IS NULL, NULL, source.{name})"
            texts = {n: _text(rule, name, given) or rest for n, rule in rules.items()}
            if "<" not in kind:
                texts = {n: t if t == f"target.{name}" else f"CAST({t} AS {kind})" for n, t in texts.items()}
            if len(set(texts.values())) == 1:
                found[name] = next(iter(texts.values()))
            else:
                cases = " ".join(f"WHEN {number} = {n} THEN {text}" for n, text in texts.items())
                found[name] = f"CASE {cases} END"
        return found

    def _run_not_matched_by_source(self, rules: Sequence[Rule], given: Source) -> None:
        """UPDATE or DELETE of the rows that no literal key names.

        Several clauses mark their rows first, since an update may make another clause's condition hold.
        """
        pairs = [f"({self._is(row)})" for row in given.rows if self._may_match(row)]
        unmatched = f"NOT coalesce({' OR '.join(pairs)}, false)" if pairs else "true"
        wheres = [f"{unmatched} AND {rule.condition.text if rule.condition else 'true'}" for rule in rules]
        if len(rules) > 1:
            self._run(f"UPDATE $T SET {MARK} = {_first_holding(rules)} + 1 WHERE {unmatched}")
            wheres = [f"{MARK} = {number}" for number, _ in enumerate(rules, start=1)]
        for rule, where in zip(rules, wheres, strict=True):
            if rule.then == "delete":
                self._run(f"DELETE FROM $T WHERE {where}")
            else:
                values = ", ".join(f"{name} = {each.text}" for name, each in (rule.assignments or {}).items())
                self._run(f"UPDATE $T SET {values} WHERE {where}")

    def _run(self, statement: str) -> None:
        self.copy.sql(statement.replace("target.", ""))

    def _may_match(self, row: Row) -> bool:
        too = self.merge.on_too
        return too is None or too.of(row, None) is True

    def _is(self, row: Row) -> str:
        equal = "<=>" if self.merge.null_safe else "="
        types = self.copy.types
        return " AND ".join(f"{name} {equal} {_literal(row[name], types[name])}" for name in self.merge.on)


def _text(rule: Rule, name: str, given: Source) -> str:
    """What the rule assigns to a column; '' if nothing."""
    if rule.assignments is None:
        return f"source.{name}" if name in given.types else ""
    return rule.assignments[name].text if name in rule.assignments else ""


def _first_holding(rules: Sequence[Rule]) -> str:
    cases = " ".join(
        f"WHEN {rule.condition.text if rule.condition else 'true'} THEN {n}" for n, rule in enumerate(rules)
    )
    return f"(CASE {cases} END)"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _literal(value: Any, kind: str) -> str:
    """The value in SQL; a NULL has the column's type, since Hive compares no others."""
    match value:
        case None:
            return f"CAST(NULL AS {kind})"
        case datetime.date():
            return f"DATE '{value}'"
        case str():
            return f"'{value}'"
        case int():
            return f"{value}L"
    return f"{value}BD"
