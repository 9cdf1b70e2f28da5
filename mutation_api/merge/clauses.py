"""Clauses of a merge: the rows that they apply to, their condition and their action. Pure values.

Conditions and assignments are expressions of an engine: Spark's SQL strings and Columns, or Arrow
expressions.

:class:`MergeOptions` are the options of a merge besides its clauses. Several source rows of one key are
either an error before anything is written, or one of the rows is used. Keys to insert that the table would
store as different keys (rounded, cut, or padded) are errors.

:class:`MergeRules` are a merge described as people type it, by conditions in which columns need no side. Each
engine parses the strings in its own way (:class:`RuleConditions`). This module makes the clauses.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from mutation_api.errors import ConfigurationError, DuplicateKeyError, RecordValueError
from mutation_api.table.row_type import checked_names

__all__ = [
    "CHANGE_COLUMN",
    "COLLECTED_KEYS_DEFAULT",
    "DUPLICATES_SHOWN_DEFAULT",
    "SOURCE",
    "TARGET",
    "Action",
    "Clause",
    "DuplicatedKey",
    "E",
    "FirstBy",
    "Match",
    "MergeOptions",
    "MergeRules",
    "RowOrder",
    "RuleConditions",
    "altered_keys_error",
    "checked_options",
    "copied_keys_error",
    "duplicate_key_error",
    "first_by",
    "padded_key_error",
    "parsed_order",
    "rule_clauses",
    "text_of",
]


SOURCE = "source"
TARGET = "target"
"""The two sides' names in conditions and assignments."""

E = TypeVar("E")
"""An expression of the engine."""


class Match(enum.Enum):
    """The kind of rows that a clause applies to. The value is the name of the builder's method."""

    MATCHED = "whenMatched"
    NOT_MATCHED = "whenNotMatched"
    NOT_MATCHED_BY_SOURCE = "whenNotMatchedBySource"

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that have such a row."""
        return {
            Match.MATCHED: (SOURCE, TARGET),
            Match.NOT_MATCHED: (SOURCE,),
            Match.NOT_MATCHED_BY_SOURCE: (TARGET,),
        }[self]


class Action(enum.Enum):
    """The operation that a clause performs on its rows."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


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
        return self.action is not Action.DELETE and self.assignments is None

    def __str__(self) -> str:
        """Return the clause as the user wrote it, without its assignments."""
        condition = "" if self.condition is None else text_of(self.condition)
        return f"{self.match.value}({condition}).{self.action.value}"


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
        f"table {table_name}: key column {column!r} is a char, and chars are read without trailing blanks: "
        f"the source key {key!r} can equal none of them. Nothing was written. Trim the blanks in the source "
        "(Spark: rtrim; Arrow: utf8_rtrim) so that the keys match"
    )


def _key_line(text: str) -> str:
    found = json.loads(text, parse_float=Decimal)
    return f"{found['column']}={_value_line(found.get('key'))} as {_value_line(found.get('stored'))}"


def _value_line(value: Any) -> str:
    """Return a number as the JSON string spells it, and any other value as its repr."""
    return str(value) if isinstance(value, Decimal) else repr(value)


DUPLICATES_SHOWN_DEFAULT = 5
ROWS_SHOWN = 3
"""The number of source rows that a message shows per key."""


@dataclass(frozen=True)
class FirstBy:
    """An order of source rows: if several would act on one row, only the first of them does."""

    columns: tuple[Any, ...]


def first_by(*columns: Any) -> FirstBy:
    """Return an order for source rows that act on the same row: ``first_by(col("source.updated").desc())``.

    Rows that are equal in all columns of the order are ordered by a hash of their content, so every run
    chooses the same row.
    """
    if not columns:
        raise ValueError("first_by requires at least one column to order by")
    return FirstBy(columns)


@dataclass(frozen=True)
class DuplicatedKey:
    """A key with several source rows: its JSON string, the row count, and JSON strings of some rows."""

    key: str
    row_count: int
    rows: Sequence[str]


def duplicate_key_error(
    table_name: str, key_count: int, samples: Sequence[DuplicatedKey]
) -> DuplicateKeyError:
    """Return the error that shows some of the keys.

    Args:
        table_name: ``database.table``.
        key_count: total number of such keys.
        samples: some of the keys.
    """
    return DuplicateKeyError(
        f"table {table_name}: {_counted(key_count)} more than one source row that would act, so the result "
        f"would be ambiguous: {_listed([_rows_line(each) for each in samples], key_count)}. Nothing was "
        "written. Keep one source row per key, or choose which one is used with on_duplicate=first_by(…)"
    )


def copied_keys_error(
    what: str, table_name: str, key_count: int, samples: Sequence[str]
) -> DuplicateKeyError:
    """Return the error for a copy of a whole table in which keys have several rows.

    Args:
        what: name of the copy, for messages.
        table_name: ``database.table`` that the copy would fill.
        key_count: total number of such keys.
        samples: JSON strings of some of the keys.
    """
    return DuplicateKeyError(
        f"{what}: {_counted(key_count)} more than one row when stored in {table_name}: "
        f"{_listed(samples, key_count)}. Nothing was written. If each key occurs only once in the source, "
        "choose types for the key columns in Hive that keep the values distinct"
    )


def _counted(key_count: int) -> str:
    return f"{key_count:,} {'key has' if key_count == 1 else 'keys have'}"


def _listed(samples: Sequence[str], key_count: int) -> str:
    more = f"; and {key_count - len(samples):,} more" if key_count > len(samples) else ""
    return "; ".join(samples) + more


def _rows_line(found: DuplicatedKey) -> str:
    rows = sorted(found.rows)[:ROWS_SHOWN]
    more = ", …" if found.row_count > len(rows) else ""
    key = ", ".join(f"{name}={value!r}" for name, value in json.loads(found.key).items())
    return f"({key}) in {found.row_count:,} rows: {', '.join(rows)}{more}"


CHANGE_COLUMN = "__change"
"""The name of the operation column in a merge's change set. It must not clash with a table's column."""

COLLECTED_KEYS_DEFAULT = 2_000_000
"""The maximum number of source rows whose keys the driver collects, to read only matching table rows."""


@dataclass(frozen=True)
class MergeOptions:
    """The options of a merge. See :func:`mutation_api.merge.spark_merge.merge_into`.

    If ``on_duplicate`` is None, duplicate keys are an error. ``count_by`` is in lower case.
    """

    null_safe: bool = False
    on_duplicate: FirstBy | None = None
    missing_is_error: bool = False
    write_unchanged: bool = False
    duplicates_shown: int = DUPLICATES_SHOWN_DEFAULT
    collected_keys: int = COLLECTED_KEYS_DEFAULT
    prune_buckets: bool = True
    count_by: str | None = None


def checked_options(
    *,
    keys: Sequence[str] | None,
    on_duplicate: str | FirstBy,
    missing_columns: str,
    null_safe: bool = False,
    write_unchanged: bool = False,
    duplicates_shown: int = DUPLICATES_SHOWN_DEFAULT,
    collected_keys: int = COLLECTED_KEYS_DEFAULT,
    prune_buckets: bool = True,
    count_by: str | None = None,
) -> MergeOptions:
    """Check the options that the user passed. ``keys`` are the key columns; None if a condition was passed.

    Raises:
        ConfigurationError: If an option is invalid.
    """
    if not (isinstance(on_duplicate, FirstBy) or on_duplicate == "error"):
        raise ConfigurationError(f"on_duplicate must be 'error' or first_by(…), got {on_duplicate!r}")
    if missing_columns not in ("null", "error"):
        raise ConfigurationError(f"missing_columns must be 'null' or 'error', got {missing_columns!r}")
    flags = {"null_safe": null_safe, "write_unchanged": write_unchanged, "prune_buckets": prune_buckets}
    for name, flag in flags.items():
        if not isinstance(flag, bool):  # otherwise 'no' would be taken as true
            raise ConfigurationError(f"{name} must be True or False, got {flag!r}")
    if not isinstance(count_by, str | None):
        raise ConfigurationError(f"count_by must be the name of a source column, got {count_by!r}")
    names = None if keys is None else checked_names(keys, "on")
    if names is not None and (not names or len(set(names)) < len(names)):
        raise ConfigurationError(f"on must name at least one key column, and each once, got {names!r}")
    return MergeOptions(
        null_safe,
        on_duplicate if isinstance(on_duplicate, FirstBy) else None,
        missing_columns == "error",
        write_unchanged,
        duplicates_shown,
        collected_keys,
        prune_buckets=prune_buckets,
        count_by=None if count_by is None else count_by.lower(),
    )


_ORDER = re.compile(
    r"(?P<value>.+?)(?:\s+(?P<order>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?", re.I | re.S
)


@dataclass(frozen=True)
class MergeRules:
    """Rules for what happens to rows. Conditions are SQL; None always holds.

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
    """Return which unmatched source rows are inserted. Rows for which ``delete_when`` holds are not."""
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
