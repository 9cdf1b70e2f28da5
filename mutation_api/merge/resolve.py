"""The analysis of a merge before anything runs, for every engine: clauses against the columns of both sides.

Values are converted to the type that a column stores. Every message names the table, and errors of values
name the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar, assert_never

import pyarrow as pa

from mutation_api.errors import RecordLayoutError, RecordValueError, TableNotMutableError
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.hive_type import MisfitError, UnfitTypeError, parse_hive_type
from mutation_api.format.scalar_conversion import CAST_FIRST
from mutation_api.format.timestamps import exact_unit
from mutation_api.merge.clauses import SOURCE, TARGET, Clause, E, Match, MergeOptions
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.partition import as_partition_stores
from mutation_api.write.layout import default_columns, index_advice


def converted(
    table_name: str,
    column: AcidColumn,
    values: pa.Array,
    key_of: Callable[[int], str],
    *,
    null_text: str | None,
) -> pa.Array:
    """Convert n values to the column's type. Timestamps have microseconds unless they need finer digits.

    Args:
        table_name: ``database.table``, for messages.
        column: the column that the values are for.
        values: an array of any Arrow type that may fit.
        key_of: a function that describes a row by its index, for messages.
        null_text: the string that stands for NULL in a partition column. If None, it is a data column. See
            :func:`~mutation_api.table.partition.null_text_of`.

    Raises:
        RecordValueError: If a value does not fit.
    """
    hive_type = parse_hive_type(column.type)
    try:
        found = convert_to_column(values, hive_type, column=column.name, timestamp_unit=exact_unit(values))
        return found if null_text is None else as_partition_stores(found, hive_type, null_text)
    except (MisfitError, RecordValueError) as error:
        misfit = error if isinstance(error, MisfitError) else error.__cause__
        if not isinstance(misfit, MisfitError):
            raise
        raise RecordValueError(
            f"table {table_name}: row {key_of(misfit.row)}: column {column.name!r} "
            f"({column.type}){misfit.path}: value {misfit.value} {misfit.reason}"
        ) from error


def check_type(table_name: str, column: AcidColumn, found: pa.DataType, shown: str) -> None:
    """Raise RecordLayoutError if the column cannot store any value of the type ``found``.

    ``shown`` names the type in the message.
    """
    try:
        convert_to_column(pa.nulls(0, found), parse_hive_type(column.type), column=column.name)
    except (RecordLayoutError, TypeError, ValueError) as error:
        unfit = error.__cause__
        reason = f"{unfit.path}: {unfit.reason}" if isinstance(unfit, UnfitTypeError) else f": {error}"
        told = reason.removeprefix(", ").removeprefix(": ")
        raise RecordLayoutError(
            f"table {table_name}: column {column.name!r} ({column.type}) cannot hold {shown} values; "
            f"cast it in the source{'' if told.endswith(CAST_FIRST) else f' ({told})'}"
        ) from error


T = TypeVar("T")
"""A data type of the engine."""


@dataclass(frozen=True)
class Analysis(Generic[T]):
    """The type of an expression and the columns of each side that it reads, in lower case."""

    data_type: T
    source_columns: frozenset[str]
    target_columns: frozenset[str]


@dataclass(frozen=True)
class Equality:
    """A source column that must equal a table column. If ``null_safe``, NULL equals NULL."""

    source: str
    target: str
    null_safe: bool


@dataclass(frozen=True)
class Conjunct(Generic[E]):
    """One of the conditions that AND joins.

    ``equality`` is set if the condition is just a comparison of a source column with a table column.
    """

    expression: E
    source_columns: frozenset[str]
    target_columns: frozenset[str]
    equality: Equality | None = None


class Analyser(Protocol[E, T]):
    """An engine's resolver of expressions over the columns of both sides.

    Names are in lower case. ``what`` names the expression in messages.
    """

    @property
    def source(self) -> Mapping[str, T]:
        """The types of the source columns by name."""
        ...

    @property
    def target(self) -> Mapping[str, T]:
        """The types of the table's columns by name: data columns, then partition columns."""
        ...

    def source_column(self, name: str) -> E:
        """Return the expression for a source column."""
        ...

    def literal(self, value: pa.Scalar) -> E:
        """Return the expression for a constant."""
        ...

    def key_condition(self, keys: Sequence[str], *, null_safe: bool) -> E:
        """Return the condition that the key columns of both sides are equal."""
        ...

    def analyse(self, expression: E, sides: Sequence[str], what: str) -> Analysis[T]:
        """Resolve an expression over the columns of ``sides``.

        Raises:
            RecordLayoutError: If it cannot be resolved or is not deterministic.
        """
        ...

    def condition(self, expression: E, sides: Sequence[str], what: str) -> Analysis[T]:
        """Resolve a boolean expression. See :meth:`analyse`."""
        ...

    def conjuncts(self, condition: E, sides: Sequence[str], what: str) -> Sequence[Conjunct[E]]:
        """Split a condition into the parts that AND joins."""
        ...


Alternatives = Sequence[Sequence[E]]
"""The conditions over ``target``. At least one alternative must hold, that is, all of its parts."""


@dataclass(frozen=True)
class ResolvedMerge(Generic[E, T]):
    """A merge whose names, types and conditions have been checked.

    ``values`` holds the value and its type by clause and column. ``target_columns`` are the columns to read,
    in table order. The columns in ``compared_alone`` are read only to see if they differ from the values that
    updates of matched rows assign. ``equalities`` are the columns that are equal in matching rows. If
    ``is_equalities_alone``, they are the whole condition. ``matched_where`` selects the partitions in which
    matched rows matter. ``by_source_where`` selects those in which rows without a source row matter.
    """

    keys: tuple[str, ...] | None
    on: E
    clauses: tuple[Clause[E], ...]
    values: tuple[Mapping[str, tuple[E, T]], ...]
    target_columns: tuple[str, ...]
    compared_alone: frozenset[str]
    equalities: tuple[Equality, ...]
    is_equalities_alone: bool
    matched_where: Alternatives[E]
    by_source_where: Alternatives[E]

    @property
    def matches(self) -> set[Match]:
        """The kinds of rows to which a clause applies."""
        return {c.match for c in self.clauses}

    @property
    def acts_on_source(self) -> bool:
        """True if a clause applies to rows of the source."""
        return any(match.has_source for match in self.matches)

    @property
    def acts_on_rest(self) -> bool:
        """True if a clause applies to rows that only the table has."""
        return not all(match.has_source for match in self.matches)

    @property
    def deletes_all_pairs(self) -> bool:
        """True if the only clause for matched rows deletes all of them, so that duplicates are harmless."""
        found = [c for c in self.clauses if c.match.is_pair]
        return len(found) == 1 and not found[0].action.writes_row and found[0].condition is None


def resolve(
    table: AcidTable,
    analyser: Analyser[E, T],
    keys: tuple[str, ...] | None,
    on: E | None,
    clauses: tuple[Clause[E], ...],
    options: MergeOptions,
) -> ResolvedMerge[E, T]:
    """Check a merge against the schemas of both sides.

    Args:
        table: the table to change.
        analyser: the engine's analyser, which has the columns of both sides.
        keys: key columns. None if ``on`` is the condition.
        on: the condition. None if ``keys`` are given.
        clauses: the clauses in order of precedence.
        options: options of the merge.

    Raises:
        RecordLayoutError: If columns are missing, extra or unknown, if a condition cannot be resolved, or if
            there is no clause.
        TableNotMutableError: If the table is insert-only and a clause does more than insert.
    """
    return _Resolver(table, analyser, keys, on, clauses, options).resolve()


@dataclass(frozen=True)
class _Resolver(Generic[E, T]):
    table: AcidTable
    analyser: Analyser[E, T]
    keys: tuple[str, ...] | None
    on: E | None
    clauses: tuple[Clause[E], ...]
    options: MergeOptions

    def resolve(self) -> ResolvedMerge[E, T]:
        self._check_clauses()
        self._check_keys()
        clauses = tuple(map(self._with_defaults, self.clauses))
        analyser = self.analyser
        on = self.on
        if on is None:
            on = analyser.key_condition(self.keys or (), null_safe=self.options.null_safe)
        read = [analyser.condition(on, (SOURCE, TARGET), "the condition of on")]
        for clause in self.clauses:
            if clause.condition is not None:
                read.append(
                    analyser.condition(clause.condition, clause.match.sides, f"the condition of {clause}")
                )
        values = []
        for clause in clauses:
            found = {}
            for name, value in self._assignments(clause).items():
                if clause.takes_all:
                    found[name] = (value, analyser.source[name])
                else:
                    analysis = analyser.analyse(value, clause.match.sides, f"the value of {name} in {clause}")
                    found[name] = (value, analysis.data_type)
                    read.append(analysis)
            for name, default in clause.defaults.items():
                literal = analyser.literal(default)
                analysis = analyser.analyse(literal, clause.match.sides, f"the default of {name}")
                found[name] = (literal, analysis.data_type)
            values.append(found)
        if self.options.first_by:
            read += [analyser.analyse(c, (SOURCE,), "first_by") for c in self.options.first_by.columns]
        self._check_extra({name for each in read for name in each.source_columns} | self._counted())
        evaluated = {name for each in read for name in each.target_columns}
        needed = evaluated | self._carried(values)
        ordered = tuple(name for name in analyser.target if name in needed)
        conjuncts = analyser.conjuncts(on, (SOURCE, TARGET), "the condition of on")
        equalities = tuple(c.equality for c in conjuncts if c.equality)
        return ResolvedMerge(
            self.keys,
            on,
            clauses,
            tuple(values),
            ordered,
            frozenset(needed - evaluated - self._kept(values) - self.table.placing_columns),
            equalities,
            len(equalities) == len(conjuncts),
            *self._partitions_where(conjuncts),
        )

    def _partitions_where(self, on: Sequence[Conjunct[E]]) -> tuple[Alternatives[E], Alternatives[E]]:
        """Return the parts of conditions that read only partition columns.

        A source row is new only if no row matches it. So if a clause inserts, the conditions of clauses for
        matched rows do not exclude partitions.
        """
        if not self.table.partition_keys:
            return [()], [()]
        both = self._on_partitions(on)
        is_match_enough, matched, by_source = False, [], []
        for clause in self.clauses:
            match clause.match:
                case Match.MATCHED:
                    matched.append((*both, *self._on_partitions(self._parts_of(clause))))
                case Match.NOT_MATCHED:
                    is_match_enough = True
                case Match.NOT_MATCHED_BY_SOURCE:
                    by_source.append(self._on_partitions(self._parts_of(clause)))
                case _:
                    assert_never(clause.match)
        return [both] if is_match_enough else matched, by_source

    def _parts_of(self, clause: Clause[E]) -> Sequence[Conjunct[E]]:
        if clause.condition is None:
            return ()
        return self.analyser.conjuncts(clause.condition, clause.match.sides, f"the condition of {clause}")

    def _on_partitions(self, conjuncts: Sequence[Conjunct[E]]) -> tuple[E, ...]:
        keys = {*self.table.partition_key_names}
        decided = [c for c in conjuncts if c.target_columns and not c.source_columns]
        return tuple(c.expression for c in decided if c.target_columns <= keys)

    def _check_clauses(self) -> None:
        if not self.clauses:
            raise RecordLayoutError(
                f"table {self.table.full_name}: the merge has no clauses. Add one, such as whenMatched() or "
                "when_matched_update_all()"
            )
        wrong = [c for c in self.clauses if c.action.removes_row]
        if wrong and not self.table.version.has_row_ids:
            raise TableNotMutableError(
                f"table {self.table.full_name} is insert-only: {', '.join(map(str, wrong))} is not allowed. "
                "Only whenNotMatched().insert() and insertAll() are"
            )

    def _check_keys(self) -> None:
        for side, names in ((TARGET, self.analyser.target), (SOURCE, self.analyser.source)):
            unknown = [key for key in self.keys or () if key not in names]
            if unknown:
                what = "the table" if side == TARGET else "the source"
                raise RecordLayoutError(
                    f"table {self.table.full_name}: {what} has no key column {', '.join(unknown)}. Its "
                    f"columns are {', '.join(names)}"
                )

    def _assignments(self, clause: Clause[E]) -> Mapping[str, E]:
        names = self.analyser.target
        if not clause.action.writes_row:
            return {}
        if clause.assignments is None:
            present = self.analyser.source
            defaulted = {each.name for each in self.table.columns if each.default}
            missing = [name for name in names if name not in present and name not in defaulted]
            if missing and self.options.missing_columns == "error":
                raise RecordLayoutError(
                    f"table {self.table.full_name}: the source lacks the columns {', '.join(missing)}, which "
                    f"{clause}All requires"
                )
            return {name: self.analyser.source_column(name) for name in names if name in present}
        unknown = [name for name in clause.assignments if name not in names]
        if unknown:
            raise RecordLayoutError(
                f"table {self.table.full_name}: {clause} assigns columns that the table does not have: "
                f"{', '.join(unknown)}. The table's columns are {', '.join(names)}"
            )
        return clause.assignments

    def _with_defaults(self, clause: Clause[E]) -> Clause[E]:
        """Return the clause; an insert gets the defaults of the columns that it would leave NULL."""
        if not clause.action.adds_row or not any(each.default for each in self.table.columns):
            return clause
        return replace(clause, defaults=default_columns(self.table, self._assignments(clause)))

    def _check_extra(self, used: set[str]) -> None:
        """Raise RecordLayoutError if the source has extra columns that no condition or assignment reads."""
        if not any(c.takes_all for c in self.clauses):
            return
        known = {*self.analyser.target, *used}
        extra = [name for name in self.analyser.source if name not in known]
        if extra:
            raise RecordLayoutError(
                f"table {self.table.full_name}: the source has columns that are not in the table and that no "
                f"condition reads: {', '.join(extra)}. The table's columns are "
                f"{', '.join(self.analyser.target)}{index_advice(extra)}"
            )

    def _counted(self) -> set[str]:
        name = self.options.count_by
        if name is not None and name not in self.analyser.source:
            raise RecordLayoutError(
                f"table {self.table.full_name}: count_by={name!r}: the source has no such column. It "
                f"has {', '.join(self.analyser.source)}"
            )
        return set() if name is None else {name}

    def _carried(self, values: Sequence[Mapping[str, object]]) -> set[str]:
        """Return the columns of old rows that updates keep, compare, or need to move the row."""
        carried: set[str] = set()
        for clause, assigned in zip(self.clauses, values, strict=True):
            if clause.action.replaces_row:
                names = set(self.analyser.target)
                carried |= names - set(assigned) if self.options.write_unchanged else names
                carried |= self.table.placing_columns
        return carried

    def _kept(self, values: Sequence[Mapping[str, object]]) -> set[str]:
        """Return the columns that some update of matched rows leaves unchanged."""
        updates = [
            set(assigned)
            for clause, assigned in zip(self.clauses, values, strict=True)
            if clause.match.is_pair and clause.action.replaces_row
        ]
        names = set(self.analyser.target)
        return {name for name in names if not all(name in assigned for assigned in updates)}
