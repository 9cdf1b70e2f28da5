"""What a merge has to do, in plain Python: the model that judges random merges beside Hive.

Expressions carry their SQL text, which Spark and Hive both read, the expression of Arrow, and a function
of the same value.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow.compute as pc

from mutation_api import MergeCounts

Row = dict[str, Any]
MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE = "whenMatched", "whenNotMatched", "whenNotMatchedBySource"
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"


# -- expressions -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expression:
    """SQL text over ``source`` and ``target``, and its value for a row of each; None is NULL."""

    text: str
    arrow: pc.Expression = field(repr=False, compare=False)
    of: Callable[[Row | None, Row | None], Any] = field(repr=False, compare=False)


def source(name: str) -> Expression:
    """A column of the source."""
    return Expression(f"source.{name}", pc.field("source", name), lambda s, t: s and s.get(name))


def target(name: str) -> Expression:
    """A column of the table."""
    return Expression(f"target.{name}", pc.field("target", name), lambda s, t: t and t[name])


def literal(value: int | str) -> Expression:
    """A constant."""
    return Expression(repr(value), pc.scalar(value), lambda s, t: value)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
    "+": operator.add,
}


def binary(left: Expression, sign: str, right: Expression) -> Expression:
    """An operator that gives NULL for NULL."""

    def of(s: Row | None, t: Row | None) -> Any:
        a, b = left.of(s, t), right.of(s, t)
        return None if a is None or b is None else _OPERATORS[sign](a, b)

    return Expression(f"({left.text} {sign} {right.text})", _OPERATORS[sign](left.arrow, right.arrow), of)


def is_even(number: Expression) -> Expression:
    """Whether a number is even."""

    def of(s: Row | None, t: Row | None) -> Any:
        found = number.of(s, t)
        return None if found is None else found % 2 == 0

    return Expression(f"({number.text} % 2 = 0)", pc.bit_wise_and(number.arrow, 1) == 0, of)


def is_null(value: Expression) -> Expression:
    """IS NULL."""
    return Expression(f"({value.text} IS NULL)", value.arrow.is_null(), lambda s, t: value.of(s, t) is None)


def either(left: Expression, right: Expression) -> Expression:
    """OR in three-valued logic."""

    def of(s: Row | None, t: Row | None) -> Any:
        found = (left.of(s, t), right.of(s, t))
        return True if True in found else None if None in found else False

    return Expression(f"({left.text} OR {right.text})", left.arrow | right.arrow, of)


def both(left: Expression, right: Expression) -> Expression:
    """AND in three-valued logic."""

    def of(s: Row | None, t: Row | None) -> Any:
        found = (left.of(s, t), right.of(s, t))
        return False if False in found else None if None in found else True

    return Expression(f"({left.text} AND {right.text})", left.arrow & right.arrow, of)


def joined(left: Expression, text: str) -> Expression:
    """Concat of a text and a constant."""

    def of(s: Row | None, t: Row | None) -> Any:
        found = left.of(s, t)
        return None if found is None else found + text

    arrow = pc.binary_join_element_wise(left.arrow, pc.scalar(text), pc.scalar(""))
    return Expression(f"concat({left.text}, {text!r})", arrow, of)


# -- a merge -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A clause; ``assignments`` None stands for all columns that the source has."""

    when: str
    then: str
    condition: Expression | None = None
    assignments: dict[str, Expression] | None = None

    def holds(self, s: Row | None, t: Row | None) -> bool:
        """Whether its condition is true, NULL being not true."""
        return self.condition is None or self.condition.of(s, t) is True


@dataclass(frozen=True)
class Merge:
    """A merge as it is told to the product, to Hive and to the model.

    ``on_too``: a further condition, which makes ``on`` a text. ``first_by``: ``1`` the row with the smallest
    ``seq`` counts, ``-1`` that with the greatest. ``missing``: columns that the source lacks.
    ``collects_keys``: the driver collects the source's keys; which way it goes changes no row.
    """

    on: tuple[str, ...]
    rules: tuple[Rule, ...]
    null_safe: bool = False
    on_too: Expression | None = None
    first_by: int = 0
    missing: tuple[str, ...] = ()
    write_unchanged: bool = False
    collects_keys: bool = True

    def equal(self, s: Row, t: Row) -> bool:
        """Whether the rows match."""
        pairs = [(s[name], t[name]) for name in self.on]
        if any(a is None or b is None for a, b in pairs) and not self.null_safe:
            return False
        return all(a == b for a, b in pairs) and (self.on_too is None or self.on_too.of(s, t) is True)

    def of(self, when: str) -> list[Rule]:
        """The rules for one kind of row, in order."""
        return [rule for rule in self.rules if rule.when == when]


@dataclass(frozen=True)
class Target:
    """What matters of a table: columns in order, partition column last if there is one, decimals' scales."""

    names: tuple[str, ...]
    partition: str | None
    placed_by: frozenset[str]
    scales: dict[str, int]

    def stored(self, row: Row) -> Row:
        """The row as the table keeps it."""
        return {
            name: Decimal(value).quantize(Decimal(1).scaleb(-self.scales[name]), "ROUND_HALF_UP")
            if name in self.scales and value is not None
            else value
            for name, value in row.items()
        }

    def place(self, row: Row) -> str:
        """Name of the row's partition, unescaped."""
        if self.partition is None:
            return ""
        value = row[self.partition]
        return f"{self.partition}={DEFAULT_PARTITION if value is None else value}"


@dataclass
class Outcome:
    """What a merge leaves behind.

    ``acting`` are the source rows that do something; ``doubled`` says whether several source rows match one
    row of the table. ``placed`` are the partitions that get rows which were not there. ``refused_by`` is
    ``match`` or ``insert`` where duplicates are refused, ``key`` where an inserted key would be rounded.
    """

    rows: list[Row]
    partitions: dict[str, Counter[str]]
    acting: list[Row]
    placed: set[str]
    doubled: bool = False
    refused_by: str = ""

    @property
    def total(self) -> MergeCounts:
        """Counts of the whole table."""
        return MergeCounts(**sum(self.partitions.values(), Counter()))

    def counts(self) -> dict[str, MergeCounts]:
        """Counts by partition."""
        return {name: MergeCounts(**counts) for name, counts in self.partitions.items()}


def outcome(into: Target, rows: Iterable[Row], given: Sequence[Row], merge: Merge) -> Outcome:
    """What the table holds after the merge, and what is counted; ``rows`` afterwards are those as stored."""
    result = Outcome([], {}, [], set())
    is_plain_delete = [(r.then, r.condition) for r in merge.of(MATCHED)] == [("delete", None)]
    has_match: set[int] = set()
    acting: dict[int, Row] = {}
    nobody: list[Any] = [None]
    for t in rows:
        pairs = [s for s in given if merge.equal(s, t)]
        has_match |= set(map(id, pairs))
        result.doubled |= len(pairs) > 1
        kind = MATCHED if pairs else NOT_MATCHED_BY_SOURCE
        held = [(s, r) for s in pairs or nobody if (r := _first(merge, kind, s, t))]
        if len(held) > 1 and not (is_plain_delete or merge.first_by):
            result.refused_by = "match"
        if not held:
            result.rows.append(t)
            continue
        s, rule = _chosen(held, merge)
        acting |= {} if s is None else {id(s): s}
        _change(into, result, s, t, rule, merge)
    result.acting = list(acting.values())
    _insert(into, result, [s for s in given if id(s) not in has_match], merge)
    return result


def _first(merge: Merge, when: str, s: Row | None, t: Row | None) -> Rule | None:
    return next((rule for rule in merge.of(when) if rule.holds(s, t)), None)


def _chosen(held: list[Any], merge: Merge) -> Any:
    if not merge.first_by or len(held) == 1:
        return held[0]
    return min(held, key=lambda each: each[0]["seq"] * merge.first_by)


def _change(into: Target, result: Outcome, s: Row | None, t: Row, rule: Rule, merge: Merge) -> None:
    counts = result.partitions.setdefault(into.place(t), Counter())
    if rule.then == "delete":
        counts["deleted"] += 1
        return
    new = into.stored({**t, **assigned(into, rule, s, t)})
    moved = any(new[name] != t[name] for name in into.placed_by)
    is_unchanged = new == t and not merge.write_unchanged
    counts["unchanged" if is_unchanged else "moved" if moved else "updated"] += 1
    result.placed |= {into.place(new)} if moved else set()
    result.rows.append(new)


def _insert(into: Target, result: Outcome, unmatched: list[Row], merge: Merge) -> None:
    groups: dict[Any, list[Any]] = {}
    for number, s in enumerate(unmatched):
        rule = _first(merge, NOT_MATCHED, s, None)
        if rule is None:
            continue
        given = dict.fromkeys(into.names) | assigned(into, rule, s, None)
        new = into.stored(given)
        key = tuple(new[name] for name in merge.on)
        counts = merge.on_too is None and (merge.null_safe or None not in key)
        is_other = merge.on_too is None and key != tuple(given[name] for name in merge.on)
        groups.setdefault(key if counts else (number, "alone"), []).append((s, new, is_other))
    for group in groups.values():
        kept = [_chosen(group, merge)] if merge.first_by else group
        if any(is_other for _, _, is_other in kept):
            result.refused_by = "key"
        elif len(kept) > 1:
            result.refused_by = result.refused_by or "insert"
        s, new, _ = kept[0]
        result.acting.append(s)
        result.rows.append(new)
        result.placed.add(into.place(new))
        result.partitions.setdefault(into.place(new), Counter())["inserted"] += 1


def assigned(into: Target, rule: Rule, s: Row | None, t: Row | None) -> Row:
    """New values by column."""
    if rule.assignments is None:
        assert s is not None
        return {name: s[name] for name in into.names if name in s}
    return {name: expression.of(s, t) for name, expression in rule.assignments.items()}
