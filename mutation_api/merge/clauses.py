"""Clauses of a merge: the rows that they apply to, their condition and their action. Pure values.

Conditions and assignments are expressions of an engine: Spark's SQL strings and Columns, or Arrow
expressions.

:class:`MergeOptionsDict` describes the options of a merge besides its clauses. Public functions take them as
keyword arguments and pass them on together; :class:`MergeOptions` checks them. Keys to insert that the table
would store as different keys (rounded, cut, or padded) are errors.

:class:`MergeRules` describe a merge by conditions in which columns need no side, as users type them. Each
engine parses the strings in its own way (:class:`RuleConditions`). This module makes the clauses.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, Literal, Protocol, TypedDict, TypeVar

import pyarrow as pa

from mutation_api.errors import ConfigurationError, RecordValueError
from mutation_api.table.row_type import checked_names

SOURCE = "source"
TARGET = "target"
"""The two sides' names in conditions and assignments."""

E = TypeVar("E")
"""An expression of the engine."""


class Match(enum.Enum):
    """The kind of rows that a clause applies to: its name in a builder, and the sides that have such rows."""

    MATCHED = ("whenMatched", (SOURCE, TARGET))
    NOT_MATCHED = ("whenNotMatched", (SOURCE,))
    NOT_MATCHED_BY_SOURCE = ("whenNotMatchedBySource", (TARGET,))

    def __init__(self, method: str, sides: tuple[str, ...]) -> None:
        self.method = method
        self.sides = sides

    @property
    def has_source(self) -> bool:
        """True if the source has such rows."""
        return SOURCE in self.sides

    @property
    def has_target(self) -> bool:
        """True if the table has such rows."""
        return TARGET in self.sides

    @property
    def is_pair(self) -> bool:
        """True if such a row is a source row with a row of the table."""
        return len(self.sides) > 1


class Action(enum.Enum):
    """The operation that a clause performs on its rows.

    Its name in a builder, its outcome in reports (a field of MergeCounts), True if it writes a row, and True
    if it removes the table's row.
    """

    INSERT = ("insert", "inserted", True, False)
    UPDATE = ("update", "updated", True, True)
    DELETE = ("delete", "deleted", False, True)

    def __init__(self, method: str, outcome: str, writes_row: bool, removes_row: bool) -> None:
        self.method = method
        self.outcome = outcome
        self.writes_row = writes_row
        self.removes_row = removes_row

    @property
    def adds_row(self) -> bool:
        """True if it writes a row that the table does not have. Values that it does not assign are NULL."""
        return self.writes_row and not self.removes_row

    @property
    def replaces_row(self) -> bool:
        """True if the table's row remains, with its new values if it has any."""
        return self.writes_row and self.removes_row


@dataclass(frozen=True)
class Clause(Generic[E]):
    """A rule that applies ``action`` to the ``match`` rows for which ``condition`` is true.

    If ``condition`` is None, the clause applies to all ``match`` rows. ``assignments`` holds the new values
    by column name. If None, all columns of the source are assigned (``updateAll``, ``insertAll``); a delete
    ignores it. ``defaults`` holds the values of columns that have a DEFAULT constraint and that an insert
    leaves out.
    """

    match: Match
    condition: E | None
    action: Action
    assignments: Mapping[str, E] | None = None
    defaults: Mapping[str, pa.Scalar] = field(default_factory=dict)

    @property
    def takes_all(self) -> bool:
        """True if the clause assigns every column of the source."""
        return self.action.writes_row and self.assignments is None

    def __str__(self) -> str:
        """Return the clause as the user wrote it, without its assignments."""
        condition = "" if self.condition is None else text_of(self.condition)
        return f"{self.match.method}({condition}).{self.action.method}"


def text_of(expression: object) -> str:
    """Return the expression as a string for messages."""
    try:
        return expression if isinstance(expression, str) else str(expression)
    except UnicodeDecodeError as error:  # an Arrow expression holds bytes that are not UTF-8
        return bytes(error.object).decode(errors="replace")


def altered_keys_error(table_name: str, texts: Sequence[str]) -> RecordValueError:
    """Return the error that shows some of the keys.

    Args:
        table_name: ``database.table``.
        texts: JSON strings ``{"column": …, "key": …, "stored": …}``, in the order in which they are shown.
    """
    return RecordValueError(
        f"table {table_name}: keys to insert would be stored as different keys, which may equal keys of "
        f"existing rows: {'; '.join(map(_key_line, texts))}. Nothing was written. Cast or trim the keys in "
        "the source so that they match"
    )


def padded_key_error(table_name: str, column: str, key: str) -> RecordValueError:
    """Return the error for a key of a char column that ends with a blank.

    Hive returns char values without trailing blanks, so such a key matches no row. Every merge refuses it:
    otherwise matching rows would not be updated or deleted, and ``whenNotMatchedBySource`` clauses would act
    on them.
    """
    return RecordValueError(
        f"table {table_name}: key column {column!r} is of type char, whose values are read without trailing "
        f"blanks: the source key {key!r} cannot match any of them. Nothing was written. Trim the blanks in "
        "the source (Spark: rtrim; Arrow: utf8_rtrim) so that the keys match"
    )


def _key_line(text: str) -> str:
    found = json.loads(text, parse_float=Decimal)
    return f"{found['column']}={_value_line(found.get('key'))} as {_value_line(found.get('stored'))}"


def _value_line(value: Any) -> str:
    """Return a number as the JSON string spells it, and any other value as its repr."""
    return str(value) if isinstance(value, Decimal) else repr(value)


DUPLICATES_SHOWN_DEFAULT = 5
"""The number of keys that an error about duplicates shows."""


@dataclass(frozen=True)
class FirstBy:
    """An order of source rows: if several would change the same row, only the first of them is used."""

    columns: tuple[Any, ...]


def first_by(*columns: Any) -> FirstBy:
    """Return an order for source rows that act on the same row: ``first_by(col("source.updated").desc())``.

    Rows that are equal in all columns of the order are ordered by a hash of their content, so every run
    chooses the same row.
    """
    if not columns:
        raise ValueError("first_by requires at least one column to order by")
    return FirstBy(columns)


CHANGE_COLUMN = "__change"
"""The name of the operation column in a merge's change set. It must not clash with a table's column."""

COLLECTED_KEYS_DEFAULT = 2_000_000
"""The maximum number of source rows whose keys the driver collects, to read only matching table rows."""


class MergeOptionsDict(TypedDict, total=False):
    """The options of a merge besides its clauses, as keyword arguments.

    The defaults are those of :class:`MergeOptions`.
    """

    null_safe: bool
    """True if NULL keys equal NULL keys, which in SQL they do not. Only for key columns."""
    on_duplicate: Literal["error"] | FirstBy
    """The rule for several source rows that would act on one row or insert one key: ``"error"``, or an order
    such as ``first_by("updated")``; without Spark also ``first_by(("updated", "descending"))``. Rows to which
    no clause applies do not count. Repeated matches do not count if the only clause for matched rows is an
    unconditional delete."""
    missing_columns: Literal["null", "error"]
    """The rule for columns that the source lacks in ``updateAll``, ``insertAll`` and ``…_all``: ``"null"``
    inserts NULL and leaves the columns unchanged on update; ``"error"`` refuses the merge."""
    write_unchanged: bool
    """True to write updates without comparing them with the rows that they replace. Updates without a
    difference are then written too, and counted as updated."""
    duplicates_shown: int
    """The number of keys that the error about duplicates shows."""
    collected_keys: int
    """The maximum number of source rows for which Spark's driver collects the keys, to read only matching
    rows of the table. More keys are shuffled to their buckets. If they do not determine buckets, Spark joins
    source and table. The option limits the driver's memory and does not change the result. It has no effect
    without Spark, and if tasks merge the buckets that they own."""
    prune_buckets: bool
    """True to read only the buckets of the source's keys, if the keys determine a row's bucket. If a row lies
    in a different bucket than its hash, the merge is refused; buckets that are not read are not checked. If
    False, all buckets are read, as are those of a table that Hive's ALTER TABLE changed."""
    count_by: str | None
    """A source column, which the table need not have. If given, the report also counts rows by its values."""


@dataclass(frozen=True)
class MergeOptions:
    """The checked options of a merge, and their defaults. :class:`MergeOptionsDict` describes each of them.

    Raises:
        ConfigurationError: If an option is invalid.
    """

    null_safe: bool = False
    on_duplicate: Literal["error"] | FirstBy = "error"
    missing_columns: Literal["null", "error"] = "null"
    write_unchanged: bool = False
    duplicates_shown: int = DUPLICATES_SHOWN_DEFAULT
    collected_keys: int = COLLECTED_KEYS_DEFAULT
    prune_buckets: bool = True
    count_by: str | None = None

    def __post_init__(self) -> None:
        """Check the values, which users pass, and put ``count_by`` into lower case."""
        if not (isinstance(self.on_duplicate, FirstBy) or self.on_duplicate == "error"):
            raise ConfigurationError(
                f"on_duplicate must be 'error' or first_by(…), got {self.on_duplicate!r}"
            )
        if self.missing_columns not in ("null", "error"):
            raise ConfigurationError(
                f"missing_columns must be 'null' or 'error', got {self.missing_columns!r}"
            )
        for name in ("null_safe", "write_unchanged", "prune_buckets"):
            flag = getattr(self, name)
            if not isinstance(flag, bool):  # otherwise 'no' would be taken as true
                raise ConfigurationError(f"{name} must be True or False, got {flag!r}")
        if not isinstance(self.count_by, str | None):
            raise ConfigurationError(f"count_by must be the name of a source column, got {self.count_by!r}")
        if self.count_by is not None:
            object.__setattr__(self, "count_by", self.count_by.lower())

    @property
    def first_by(self) -> FirstBy | None:
        """The order that chooses one of several source rows. None if they are an error."""
        return self.on_duplicate if isinstance(self.on_duplicate, FirstBy) else None


def checked_keys(on: Sequence[str], what: str) -> tuple[str, ...]:
    """Return the key columns of a merge in lower case. A single string is one name.

    Raises:
        ConfigurationError: If there are none, or if one is named twice.
        RecordLayoutError: If something else was passed. ``what`` is its name in the message.
    """
    names = checked_names(on, what)
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(f"on must name at least one key column, and each once, got {names!r}")
    return tuple(names)


_ORDER = re.compile(
    r"(?P<value>.+?)(?:\s+(?P<order>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?", re.I | re.S
)


@dataclass(frozen=True)
class MergeRules:
    """The rules of a merge. Conditions are SQL; None is always true.

    By default, matched rows are updated and the other source rows are inserted. A column without
    ``source.`` or ``target.`` is taken from the source if the source has it. In ``delete_missing_when`` it is
    taken from the table.

    delete_when: matched rows to delete; if None, none. A source row for which it holds is never inserted.
    update_when, insert_when: the rows to update or insert.
    updates, inserts: False if no rows are updated or inserted.
    delete_missing_when: the rows without a source row to delete.
    deletes_missing: True to delete all rows without a source row.
    first_by: the order of source rows with the same key, such as ``updated DESC``. The first row is used. If
        empty, such rows are an error.
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
        """The conditions that were given."""
        given = (self.delete_when, self.update_when, self.insert_when, self.delete_missing_when)
        return tuple(each for each in given if each is not None)


@dataclass(frozen=True)
class RowOrder:
    """An order ``value [ASC|DESC] [NULLS FIRST|LAST]``. By default, NULL is the least value."""

    value: str
    is_descending: bool
    nulls_last: bool


class RuleConditions(Protocol[E]):
    """An engine's converter of conditions to expressions, which adds the side to each column."""

    def of_both(self, text: str) -> E:
        """Return the condition on rows that both sides have.

        Raises:
            ConfigurationError: If the string is not a condition.
        """
        ...

    def of_source(self, text: str) -> E:
        """Return the condition on rows of the source."""
        ...

    def of_target(self, text: str) -> E:
        """Return the condition on rows of the table."""
        ...

    def reads_target(self, text: str) -> bool:
        """Return True if the condition on rows of both sides reads a column of the table."""
        ...

    def unless(self, gone: E, wanted: E | None) -> E:
        """Return the condition that ``gone`` is false or NULL, and that ``wanted`` holds if it is given."""
        ...


def parsed_order(text: str) -> RowOrder:
    """Parse an order like one in SQL's ORDER BY.

    Raises:
        ConfigurationError: If the string is not an order.
    """
    found = _ORDER.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"first_by {text!r}: expected SQL [ASC|DESC] [NULLS FIRST|LAST]")
    is_descending = (found["order"] or "").lower() == "desc"
    nulls = (found["nulls"] or "").lower()
    return RowOrder(found["value"], is_descending, nulls == "last" if nulls else is_descending)


def rule_clauses(rules: MergeRules, conditions: RuleConditions[E]) -> list[Clause[E]]:
    """Return the clauses of a merge, in the order of their precedence.

    Raises:
        ConfigurationError: If a string is not a condition, or if rules contradict each other.
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
    """Return the condition for unmatched source rows that are inserted.

    Rows for which ``delete_when`` holds are not inserted.
    """
    wanted = _read(conditions.of_source, rules.insert_when)
    if rules.delete_when is None:
        return wanted
    if not conditions.reads_target(rules.delete_when):
        return conditions.unless(conditions.of_both(rules.delete_when), wanted)
    if wanted is None:
        raise ConfigurationError(
            f"delete_when {rules.delete_when!r} reads the table's row, which rows to insert do not have. "
            "Choose the rows to insert with insert_when, or pass inserts=False"
        )
    return wanted
