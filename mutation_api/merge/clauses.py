"""Clauses of a merge: options, rules of the command line, duplicates, altered keys.

Clauses of a merge: the rows they apply to, their condition and their action. Pure values.

Conditions and assignments are expressions of an engine: SQL text and Columns of Spark, expressions of Arrow.

The refusal of keys to insert that would be stored as other keys: rounded, cut, or padded.

Keys that several source rows have: an error before anything is written, or one of the rows counts.

MergeOptions: the options of a merge besides its clauses.

MergeRules: a merge described as people type it, by conditions whose columns need no side before them.

Each engine reads the texts in its own way (:class:`RuleConditions`); which clauses they make is said here.
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
"""The names of the two sides in conditions and assignments."""

E = TypeVar("E")
"""An expression of the engine."""


class Match(enum.Enum):
    """The rows that a clause applies to; the value is the name of the builder's method."""

    MATCHED = "whenMatched"
    NOT_MATCHED = "whenNotMatched"
    NOT_MATCHED_BY_SOURCE = "whenNotMatchedBySource"

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides on which such a row exists."""
        return {
            Match.MATCHED: (SOURCE, TARGET),
            Match.NOT_MATCHED: (SOURCE,),
            Match.NOT_MATCHED_BY_SOURCE: (TARGET,),
        }[self]


class Action(enum.Enum):
    """What a clause does with its rows."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True)
class Clause(Generic[E]):
    """Applies ``action`` to the ``match`` rows for which ``condition`` is true (None: to all of them).

    ``assignments`` holds the new values by column name. None means all columns that the source has
    (``updateAll``, ``insertAll``); for a delete it means nothing. ``defaults`` holds the values of columns
    that an insert leaves out and that have a DEFAULT constraint.
    """

    match: Match
    condition: E | None
    action: Action
    assignments: Mapping[str, E] | None = None
    defaults: Mapping[str, pa.Scalar] = field(default_factory=dict)

    @property
    def takes_all(self) -> bool:
        """Whether it assigns every column that the source has."""
        return self.action is not Action.DELETE and self.assignments is None

    def __str__(self) -> str:
        """As the user wrote it, without its assignments."""
        condition = "" if self.condition is None else text_of(self.condition)
        return f"{self.match.value}({condition}).{self.action.value}"


def text_of(expression: object) -> str:
    """The expression for a message."""
    try:
        return expression if isinstance(expression, str) else str(expression)
    except UnicodeDecodeError as error:  # bytes that are no UTF-8 in an Arrow expression
        return bytes(error.object).decode(errors="replace")


def altered_keys_error(table_name: str, texts: Sequence[str]) -> RecordValueError:
    """The error that names some of the keys.

    Args:
        table_name: ``database.table``.
        texts: JSON texts ``{"column": …, "key": …, "stored": …}``, in the order in which they are shown.
    """
    return RecordValueError(
        f"table {table_name}: keys to insert would be stored as other keys, which existing rows may have: "
        f"{'; '.join(map(_key_line, texts))}. Nothing was written. Cast or trim them in the source, so that "
        "they match"
    )


def padded_key_error(table_name: str, column: str, key: str) -> RecordValueError:
    """The error for a key of a char column that ends with a blank, which equals no char as it is read.

    It is refused whatever the merge does: matched rows would not be updated or deleted, and a clause for rows
    that only the table has would act on them.
    """
    return RecordValueError(
        f"table {table_name}: key column {column!r} is a char, which is read without the blanks at its end: "
        f"the source has {key!r}, which equals none. Nothing was written. Trim the blanks in the source "
        "(Spark: rtrim; Arrow: utf8_rtrim), so that keys match"
    )


def _key_line(text: str) -> str:
    found = json.loads(text, parse_float=Decimal)
    return f"{found['column']}={_value_line(found.get('key'))} as {_value_line(found.get('stored'))}"


def _value_line(value: Any) -> str:
    """A number as it was written."""
    return str(value) if isinstance(value, Decimal) else repr(value)


DUPLICATES_SHOWN_DEFAULT = 5
ROWS_SHOWN = 3
"""Number of source rows that a message shows for one key."""


@dataclass(frozen=True)
class FirstBy:
    """If several source rows would act on one row, only the first in this order does."""

    columns: tuple[Any, ...]


def first_by(*columns: Any) -> FirstBy:
    """Order source rows that act on the same row: ``first_by(col("source.updated").desc())``.

    Rows equal in all columns are ordered by a hash of their content, which is the same in each run.
    """
    if not columns:
        raise ValueError("first_by needs at least one column to order by")
    return FirstBy(columns)


@dataclass(frozen=True)
class DuplicatedKey:
    """A key of several source rows: JSON text of the key, their number, and JSON texts of some of them."""

    key: str
    row_count: int
    rows: Sequence[str]


def duplicate_key_error(
    table_name: str, key_count: int, samples: Sequence[DuplicatedKey]
) -> DuplicateKeyError:
    """The error that names some of the keys.

    Args:
        table_name: ``database.table``.
        key_count: number of such keys in all.
        samples: some of them.
    """
    return DuplicateKeyError(
        f"table {table_name}: {_counted(key_count)} several source rows that would act, so the outcome would "
        f"be random: {_listed([_rows_line(each) for each in samples], key_count)}. Nothing was written. Keep "
        "one source row for each key, or define which one counts with on_duplicate=first_by(…)"
    )


def copied_keys_error(
    what: str, table_name: str, key_count: int, samples: Sequence[str]
) -> DuplicateKeyError:
    """The error of a copy of a whole table in which keys have several rows.

    Args:
        what: names the copy.
        table_name: ``database.table`` that it would fill.
        key_count: number of such keys in all.
        samples: JSON texts of some of them.
    """
    return DuplicateKeyError(
        f"{what}: {_counted(key_count)} several rows, as {table_name} stores it: "
        f"{_listed(samples, key_count)}. Nothing was written. If the source has such a key once, give the "
        "key columns types in Hive that keep its values apart"
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
"""Name of the operation column of the change set that a merge writes; a table may have an ``operation``."""

COLLECTED_KEYS_DEFAULT = 2_000_000
"""Maximum number of source rows whose keys the driver collects, to read the table by them."""


@dataclass(frozen=True)
class MergeOptions:
    """See :func:`mutation_api.merge.spark_merge.merge_into`.

    ``on_duplicate`` None: duplicates are an error. ``count_by`` is in lower case.
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
    """The options as the user gave them; ``keys`` are the key columns, None for a condition.

    Raises:
        ConfigurationError: one of them is invalid.
    """
    if not (isinstance(on_duplicate, FirstBy) or on_duplicate == "error"):
        raise ConfigurationError(f"on_duplicate={on_duplicate!r}: it must be 'error' or first_by(…)")
    if missing_columns not in ("null", "error"):
        raise ConfigurationError(f"missing_columns={missing_columns!r}: it must be 'null' or 'error'")
    flags = {"null_safe": null_safe, "write_unchanged": write_unchanged, "prune_buckets": prune_buckets}
    for name, flag in flags.items():
        if not isinstance(flag, bool):  # 'no' would count as true
            raise ConfigurationError(f"{name}={flag!r}: it must be True or False")
    if not isinstance(count_by, str | None):
        raise ConfigurationError(f"count_by={count_by!r}: give the name of a column of the source")
    names = None if keys is None else checked_names(keys, "on")
    if names is not None and (not names or len(set(names)) < len(names)):
        raise ConfigurationError(f"on={names!r}: name at least one key column, and each once")
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
