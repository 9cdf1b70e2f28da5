"""Merges described by rules of the command line, in this process.

Only what Spark certainly does in the same way is done here: conditions whose meaning is beyond doubt, orders
by a column, and keys whose types are compared as in Spark. Everything else raises LocalEngineError before the
table is read.

A condition is one comparison, or several joined by ``AND``. Keywords and names may be in any case::

    [source.|target.]column  =|<>|!=|<|<=|>|>=  literal
    [source.|target.]column  IS [NOT] NULL

=======================  ========================================  ===================================
column                   literals                                  compared
=======================  ========================================  ===================================
string                   ``'text'``                                by its bytes
tinyint … bigint         integers of at most 18 digits             as numbers
decimal(p,s)             numbers that fit the column's type        as numbers
boolean                  ``TRUE``, ``FALSE``, only for equality    as truth values
date                     ``'2024-02-29'``                          as days
every type               ``IS [NOT] NULL``
=======================  ========================================  ===================================

A string literal contains no quotes and no backslashes. Names consist of ASCII letters, digits and ``_``.
Everything else, such as OR, functions, arithmetic, doubles (NaN, rounding), timestamps, and strings compared
with numbers, is left to Spark, whose rules depend on its settings.

A column that no side has is an error with either engine. Only names that may not be columns are left to
Spark: see ``_OF_SQL``, and fields of a struct column called ``source`` or ``target``. They cannot be SQL
variables: only commands hand work over to Spark, in a session of their own, in which no variables were
declared.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import LocalEngineError, RecordLayoutError
from mutation_api.merge.clauses import (
    SOURCE,
    TARGET,
    FirstBy,
    MergeRules,
    first_by,
    parsed_order,
    rule_clauses,
)
from mutation_api.merge.evaluator import target_types
from mutation_api.merge.key_columns import are_comparable
from mutation_api.merge.local_merge import LocalMerge, local_merge
from mutation_api.merge.source_rows import check_wall_clocks
from mutation_api.write.local_plan import LocalOptions
from mutation_api.write.staged_writer import LookingTransaction

__all__ = [
    "Comparison",
    "check_rules",
    "local_merge_by_rules",
    "parsed_column",
    "parsed_condition",
    "resolved_condition",
]


_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_COLUMN = rf"(?:(?P<side>source|target)\.)?(?P<name>{_NAME})"
_COMPARISON = re.compile(
    rf"\s*{_COLUMN}\s*(?:(?P<operator><=|>=|<>|!=|=|<|>)\s*(?P<literal>'[^'\\]*'|-?\d+(?:\.\d+)?(?![\w.])|"
    rf"(?:TRUE|FALSE)\b)|\bIS\s+(?P<null>(?:NOT\s+)?NULL)\b)\s*",
    re.I | re.A,
)
_AND = re.compile(r"AND\b", re.I | re.A)
_NO_COLUMNS = frozenset(("and", "case", "exists", "false", "interval", "not", "null", "true"))
"""The words that begin an SQL expression, even if a column has that name."""
_OF_SQL = re.compile(r"(?:current|local|session|system)_?[a-z0-9_]*|user|grouping__id", re.A)
"""Matches names that may be functions without parentheses if no column has them; each new Spark has more."""
_SUBSTITUTED = "${"
"""The start of a variable that Spark replaces with its value, even within strings."""

_OPERATORS: Mapping[str, Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    "=": lambda column, literal: column == literal,
    "<>": lambda column, literal: column != literal,
    "!=": lambda column, literal: column != literal,
    "<": lambda column, literal: column < literal,
    "<=": lambda column, literal: column <= literal,
    ">": lambda column, literal: column > literal,
    ">=": lambda column, literal: column >= literal,
}
_EQUALITIES = ("=", "<>", "!=")
_DIGITS_MAX = 18
"""The maximum number of digits of an integer that certainly fits 64 bits."""
_DATE = re.compile(r"(?!0000)\d{4}-\d{2}-\d{2}", re.A)

Types = Mapping[str, pa.DataType]
Literal = str | int | Decimal | bool


@dataclass(frozen=True)
class Comparison:
    """A column, in lower case, that is compared with a literal, or ``IS [NOT] NULL`` without a literal.

    ``side`` is None if the condition does not state it.
    """

    side: str | None
    column: str
    operator: str
    literal: Literal | None = None


def parsed_condition(text: str) -> tuple[Comparison, ...]:
    """Return the comparisons, all of which must hold.

    Raises:
        LocalEngineError: If it is not such a condition.
    """
    found, at = [], 0
    while (match := _COMPARISON.match(text, at)) is not None and match["name"].lower() not in _NO_COLUMNS:
        found.append(_comparison(match))
        at = match.end()
        joined = _AND.match(text, at)
        if joined is None:
            break
        at = joined.end()
    else:
        raise _unread(text)
    if at < len(text) or _SUBSTITUTED in text:
        raise _unread(text)
    return tuple(found)


def parsed_column(text: str) -> tuple[str | None, str] | None:
    """Return the side, if stated, and the name of a column, or None if the string is something else."""
    found = re.fullmatch(_COLUMN, text.strip(), re.I | re.A)
    if found is None or found["name"].lower() in _NO_COLUMNS:
        return None
    return found["side"] and found["side"].lower(), found["name"].lower()


def resolved_condition(
    text: str,
    source: Types,
    target: Types,
    preferred: Sequence[str] = (SOURCE, TARGET),
    what: str = "the condition",
) -> tuple[pc.Expression, frozenset[str]]:
    """Return the condition over the structs ``source`` and ``target``, and the sides that it reads.

    Args:
        text: the condition.
        source: types of the source columns by name, in lower case.
        target: types of the table's columns.
        preferred: the sides on which to look for a column without a side, in this order.
        what: name of the condition in messages.

    Raises:
        LocalEngineError: If it is not such a condition, if a type is not compared here, or if a name may not
            be a column.
        RecordLayoutError: If a column does not exist, with Spark either.
    """
    types = {SOURCE: source, TARGET: target}
    comparisons = parsed_condition(text)
    sides = [_side(f"{what} {text!r}", each, types, preferred) for each in comparisons]
    parts = [
        _expression(text, each, pc.field(side, each.column), types[side][each.column])
        for each, side in zip(comparisons, sides, strict=True)
    ]
    return reduce(lambda one, other: one & other, parts), frozenset(sides)


def _side(what: str, found: Comparison, types: Mapping[str, Types], preferred: Sequence[str]) -> str:
    """Return the side whose column is compared."""
    wanted = preferred if found.side is None else (found.side,)
    side = next((side for side in wanted if found.column in types[side]), None)
    if side is not None:
        return side
    if found.side is None:
        name, is_for_spark = found.column, _OF_SQL.fullmatch(found.column) is not None
    else:
        name = f"{found.side}.{found.column}"
        is_for_spark = any(found.side in names for names in types.values())
    known = " and ".join(f"{each} ({', '.join(types[each])})" for each in preferred)
    if is_for_spark:
        raise LocalEngineError(f"{what}: only Spark can resolve {name!r}, which is not a column of {known}")
    raise RecordLayoutError(f"{what} cannot be resolved over {known}: column {name} does not exist")


def _comparison(match: re.Match[str]) -> Comparison:
    side, name = match["side"] and match["side"].lower(), match["name"].lower()
    if match["null"]:
        return Comparison(side, name, " ".join(("IS", *match["null"].upper().split())))
    return Comparison(side, name, match["operator"], _literal(match["literal"]))


def _literal(text: str) -> Literal:
    if text.startswith("'"):
        return text[1:-1]
    if text.upper() in ("TRUE", "FALSE"):
        return text.upper() == "TRUE"
    return Decimal(text) if "." in text else int(text)


def _expression(text: str, found: Comparison, column: pc.Expression, kind: pa.DataType) -> pc.Expression:
    if found.literal is None:
        return column.is_null() if found.operator == "IS NULL" else column.is_valid()
    literal = found.literal
    compare = _OPERATORS[found.operator]
    if pa.types.is_string(kind) and isinstance(literal, str):
        return compare(column, pc.scalar(literal))
    if pa.types.is_boolean(kind) and isinstance(literal, bool) and found.operator in _EQUALITIES:
        return compare(column, pc.scalar(literal))
    if pa.types.is_date32(kind) and (day := _day(literal)) is not None:
        return compare(column, pc.scalar(pa.scalar(day, kind)))
    if pa.types.is_signed_integer(kind) and type(literal) is int and abs(literal) < 10**_DIGITS_MAX:
        return compare(column.cast(pa.int64()), pc.scalar(pa.scalar(literal, pa.int64())))
    if pa.types.is_decimal(kind) and (number := _decimal(literal, kind)) is not None:
        return compare(column, pc.scalar(pa.scalar(number, kind)))
    raise LocalEngineError(
        f"the condition {text!r}: only Spark can compare {found.column!r}, of type {kind}, with {literal!r} "
        f"by {found.operator}"
    )


def _day(literal: Any) -> datetime.date | None:
    if not isinstance(literal, str) or not _DATE.fullmatch(literal):
        return None
    try:
        return datetime.date.fromisoformat(literal)
    except ValueError:
        return None


def _decimal(literal: Any, kind: pa.DataType) -> Decimal | None:
    """Return the number if the column's type holds it exactly, so neither side is widened or rounded."""
    if isinstance(literal, bool | str):
        return None
    number = Decimal(literal)
    whole, _, fraction = format(abs(number), "f").partition(".")
    return number if len(whole) <= kind.precision - kind.scale and len(fraction) <= kind.scale else None


def _unread(text: str) -> LocalEngineError:
    return LocalEngineError(
        f"only Spark can interpret the condition {text!r}. Without Spark, a condition is column = literal "
        "(or <>, <, <=, >, >=, IS NULL, IS NOT NULL), or several of these joined by AND"
    )


def check_rules(rules: MergeRules) -> None:
    """Check the strings of the rules alone.

    Raises:
        LocalEngineError: If only Spark can interpret one of them.
    """
    for text in rules.conditions:
        parsed_condition(text)
    for text in rules.first_by:
        _order_column(text)


def local_merge_by_rules(
    transaction: LookingTransaction,
    table_name: str,
    *,
    source: pa.RecordBatchReader,
    on: Sequence[str],
    rules: MergeRules,
    null_safe: bool = False,
    missing_columns: str = "null",
    write_unchanged: bool = False,
    prune_buckets: bool = True,
    read_bytes_max: int | None = None,
    local: LocalOptions | None = None,
) -> LocalMerge:
    """Describe a merge by rules. Call ``execute()`` or ``dry_run()`` on the result.

    Args:
        transaction: an open transaction; the table is one of its sinks.
        table_name: ``database.table``.
        source: the rows to merge, which this call reads.
        on: key columns that both sides have.
        rules: the rules for what happens to rows.
        null_safe: see :func:`~mutation_api.merge.local_merge.local_merge`.
        missing_columns: see the same function.
        write_unchanged: see the same function.
        prune_buckets: see the same function.
        read_bytes_max: maximum size of the table's files to read here. If None, there is no limit.
        local: memory limit and number of threads.

    Raises:
        LocalEngineError: If only Spark can interpret the rules or compare these types, or if the source needs
            more memory than allowed.
        ConfigurationError: If rules contradict each other, or if an option is invalid.
        RecordLayoutError: If the source has duplicate columns, or if a condition names an unknown column.
    """
    table = transaction.table(table_name)
    check_rules(rules)
    types = {field.name.lower(): field.type for field in source.schema}
    target = target_types(table)
    _check_types(table.full_name, types, target, on)
    merge = local_merge(
        transaction,
        table.full_name,
        source=source,
        on=on,
        null_safe=null_safe,
        on_duplicate=_first_by(types, rules.first_by) or "error",
        missing_columns=missing_columns,
        write_unchanged=write_unchanged,
        prune_buckets=prune_buckets,
        local=local,
    )
    merge.read_bytes_max = read_bytes_max
    merge.clauses += rule_clauses(rules, _SimpleConditions(table.full_name, types, target))
    return merge


@dataclass(frozen=True)
class _SimpleConditions:
    """Conditions as Arrow expressions; a :class:`~mutation_api.merge.clauses.RuleConditions`."""

    table_name: str
    source: Mapping[str, pa.DataType]
    target: Mapping[str, pa.DataType]

    def of_both(self, text: str) -> pc.Expression:
        return self._resolved(text, SOURCE, TARGET)[0]

    def of_source(self, text: str) -> pc.Expression:
        return self._resolved(text, SOURCE)[0]

    def of_target(self, text: str) -> pc.Expression:
        return self._resolved(text, TARGET)[0]

    def reads_target(self, text: str) -> bool:
        return TARGET in self._resolved(text, SOURCE, TARGET)[1]

    def unless(self, gone: pc.Expression, wanted: pc.Expression | None) -> pc.Expression:
        stays = ~pc.coalesce(gone, pc.scalar(False))
        return stays if wanted is None else wanted & stays

    def _resolved(self, text: str, *sides: str) -> tuple[pc.Expression, frozenset[str]]:
        what = f"table {self.table_name}: the condition"
        return resolved_condition(text, self.source, self.target, sides, what)


def _first_by(types: Mapping[str, pa.DataType], texts: Sequence[str]) -> FirstBy | None:
    orders = []
    for text in texts:
        name, is_descending = _order_column(text)
        if name not in types or not _has_sure_order(types[name]):
            raise LocalEngineError(
                f"first_by {text!r}: only Spark can order by this. Without Spark, it must be a source column "
                f"(one of {', '.join(types)}) that is not floating-point or nested"
            )
        orders.append((name, "descending" if is_descending else "ascending"))
    return first_by(*orders) if orders else None


def _order_column(text: str) -> tuple[str, bool]:
    """Return the column, and True if it descends."""
    order = parsed_order(text)
    column = parsed_column(order.value)
    if column is None or column[0] == TARGET or order.nulls_last != order.is_descending:
        raise LocalEngineError(
            f"first_by {text!r}: only Spark can order by this. Without Spark, an order is a source column "
            "with ASC or DESC, in which NULL is the least value"
        )
    return column[1], order.is_descending


def _has_sure_order(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_signed_integer, pa.types.is_decimal, pa.types.is_date32)
    return any(is_kind(kind) for is_kind in kinds) or kind == pa.timestamp("us")


def _check_types(
    table_name: str, source: Mapping[str, pa.DataType], target: Mapping[str, pa.DataType], on: Sequence[str]
) -> None:
    """Raise LocalEngineError if only Spark can compare a key or convert a timestamp to local time."""
    check_wall_clocks(table_name, "the source", source)
    for name in (name.lower() for name in on):
        if name in source and name in target and not are_comparable(source[name], target[name]):
            raise LocalEngineError(
                f"table {table_name}: only Spark can compare the key column {name!r}, {source[name]} in the "
                f"source and {target[name]} in the table. Cast the source's column"
            )
