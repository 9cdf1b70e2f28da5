"""Checks a merge against the schemas of both sides; runs no job. Every message names the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyspark.sql.functions as sf
from pyspark.sql import Column
from pyspark.sql.types import DataType

from mutation_api.changes.clauses import SOURCE, TARGET, Action, Clause, Expression, Match
from mutation_api.changes.expressions import Conjunct, Equality, ExpressionAnalyser, column_of
from mutation_api.changes.merge_options import MergeOptions
from mutation_api.changes.prune import Alternatives
from mutation_api.changes.sides import Sides, columns_of
from mutation_api.errors import RecordLayoutError, TableNotMutableError
from mutation_api.spark.quoted_name import quoted
from mutation_api.table.acid_table import AcidTable

__all__ = ["ResolvedMerge", "resolve"]


@dataclass(frozen=True)
class ResolvedMerge:
    """Clauses whose names, types and conditions are right.

    ``values`` holds the value and its type by clause and column. ``target_columns`` are the columns to read,
    in table order. ``equalities`` are columns that are equal in matching rows. ``is_equalities_alone``: they
    are the whole condition, so rows in which they are equal match. ``matched_where`` selects the partitions
    in which matched rows count, ``by_source_where`` those in which rows without a source row count.
    """

    keys: tuple[str, ...] | None
    on: Column
    clauses: tuple[Clause, ...]
    values: tuple[Mapping[str, tuple[Expression, DataType]], ...]
    target_columns: tuple[str, ...]
    equalities: tuple[Equality, ...]
    is_equalities_alone: bool
    matched_where: Alternatives
    by_source_where: Alternatives

    @property
    def matches(self) -> set[Match]:
        """Kinds of rows to which a clause applies."""
        return {c.match for c in self.clauses}


def resolve(
    table: AcidTable,
    sides: Sides,
    keys: tuple[str, ...] | None,
    on: Expression | None,
    clauses: tuple[Clause, ...],
    options: MergeOptions,
) -> ResolvedMerge:
    """Check a merge against the schemas of its sides.

    Raises:
        RecordLayoutError: columns are missing, extra or unknown, a condition cannot be resolved, or there is
            no clause.
        TableNotMutableError: the table is insert-only, and a clause does more than insert.
    """
    return _Resolver(table, sides, keys, on, clauses, options).resolve()


@dataclass(frozen=True)
class _Resolver:
    table: AcidTable
    sides: Sides
    keys: tuple[str, ...] | None
    on: Expression | None
    clauses: tuple[Clause, ...]
    options: MergeOptions

    def resolve(self) -> ResolvedMerge:
        self._check_clauses()
        self._check_keys()
        on = self._key_condition() if self.on is None else self.on
        analyser = ExpressionAnalyser(
            self.sides.source.sparkSession,
            self.table.full_name,
            self.sides.source_schema,
            self.sides.target_schema,
        )
        read = [analyser.condition(on, (SOURCE, TARGET), "the condition of on")]
        for clause in self.clauses:
            if clause.condition is not None:
                read.append(
                    analyser.condition(clause.condition, clause.match.sides, f"the condition of {clause}")
                )
        values = []
        for clause in self.clauses:
            found = {}
            for name, value in self._assignments(clause).items():
                if clause.takes_all:
                    found[name] = (value, self.sides.source_schema[name].dataType)
                else:
                    analysis = analyser.analyse(value, clause.match.sides, f"the value of {name} in {clause}")
                    found[name] = (value, analysis.data_type)
                    read.append(analysis)
            values.append(found)
        if self.options.on_duplicate:
            sides = (SOURCE,)
            read += [analyser.analyse(c, sides, "first_by") for c in self.options.on_duplicate.columns]
        self._check_extra({name for each in read for name in each.source_columns} | self._counted())
        needed = {name for each in read for name in each.target_columns} | self._carried(values)
        ordered = tuple(c.name for c in columns_of(self.table) if c.name in needed)
        conjuncts = analyser.conjuncts(on, (SOURCE, TARGET), "the condition of on")
        equalities = tuple(c.equality for c in conjuncts if c.equality)
        return ResolvedMerge(
            self.keys,
            column_of(on),
            self.clauses,
            tuple(values),
            ordered,
            equalities,
            len(equalities) == len(conjuncts),
            *self._partitions_where(analyser, conjuncts),
        )

    def _partitions_where(
        self, analyser: ExpressionAnalyser, on: Sequence[Conjunct]
    ) -> tuple[Alternatives, Alternatives]:
        """Parts of conditions that only read partition columns.

        A source row is new only if no row matches it. So if a clause inserts, conditions of clauses for
        matched rows do not exclude partitions.
        """
        if not self.table.partition_keys:
            return [()], [()]
        of_clauses = {
            match: [self._on_partitions(_parts_of(c, analyser)) for c in self.clauses if c.match is match]
            for match in Match
        }
        both = self._on_partitions(on)
        is_match_enough = bool(of_clauses[Match.NOT_MATCHED])
        matched = [()] if is_match_enough else of_clauses[Match.MATCHED]
        return [(*both, *parts) for parts in matched], of_clauses[Match.NOT_MATCHED_BY_SOURCE]

    def _on_partitions(self, conjuncts: Sequence[Conjunct]) -> tuple[str, ...]:
        keys = {*self.table.partition_key_names}
        decided = [c for c in conjuncts if c.target_columns and not c.source_columns]
        return tuple(c.text for c in decided if c.target_columns <= keys)

    def _check_clauses(self) -> None:
        if not self.clauses:
            raise RecordLayoutError(
                f"table {self.table.full_name}: the merge has no clause; add whenMatched() …"
            )
        wrong = [c for c in self.clauses if c.action is not Action.INSERT]
        if wrong and not self.table.version.has_row_ids:
            raise TableNotMutableError(
                f"table {self.table.full_name} is insert-only: {', '.join(map(str, wrong))} is not possible; "
                "only whenNotMatched().insert() and insertAll() are"
            )

    def _check_keys(self) -> None:
        for side, names in ((TARGET, self.sides.target_schema), (SOURCE, self.sides.source_schema)):
            unknown = [key for key in self.keys or () if key not in names.fieldNames()]
            if unknown:
                what = "the table" if side == TARGET else "the source"
                raise RecordLayoutError(
                    f"table {self.table.full_name}: {what} has no key column {', '.join(unknown)}; its "
                    f"columns are {', '.join(names.fieldNames())}"
                )

    def _key_condition(self) -> Column:
        pairs = [(sf.col(quoted(SOURCE, k)), sf.col(quoted(TARGET, k))) for k in self.keys or ()]
        equal = [s.eqNullSafe(t) if self.options.null_safe else s == t for s, t in pairs]
        return reduce(lambda a, b: a & b, equal)

    def _assignments(self, clause: Clause) -> Mapping[str, Expression]:
        names = self.sides.target_schema.fieldNames()
        if clause.action is Action.DELETE:
            return {}
        if clause.assignments is None:
            present = self.sides.source_schema.fieldNames()
            missing = [name for name in names if name not in present]
            if missing and self.options.missing_is_error:
                raise RecordLayoutError(
                    f"table {self.table.full_name}: the source lacks the columns {', '.join(missing)}, which "
                    f"{clause}All needs"
                )
            return {name: sf.col(quoted(SOURCE, name)) for name in names if name in present}
        unknown = [name for name in clause.assignments if name not in names]
        if unknown:
            raise RecordLayoutError(
                f"table {self.table.full_name}: {clause} assigns columns that the table does not have: "
                f"{', '.join(unknown)}; its columns are {', '.join(names)}"
            )
        return clause.assignments

    def _check_extra(self, used: set[str]) -> None:
        """Refuse extra columns of the source, except those that conditions or assignments read."""
        if not any(c.takes_all for c in self.clauses):
            return
        known = {*self.sides.target_schema.fieldNames(), *used}
        extra = [name for name in self.sides.source_schema.fieldNames() if name not in known]
        if extra:
            raise RecordLayoutError(
                f"table {self.table.full_name}: the source has columns that the table does not have and no "
                f"condition reads: {', '.join(extra)}; the table's columns are "
                f"{', '.join(self.sides.target_schema.fieldNames())}"
            )

    def _counted(self) -> set[str]:
        name = self.options.count_by
        if name is not None and name not in self.sides.source_schema.fieldNames():
            raise RecordLayoutError(
                f"table {self.table.full_name}: count_by={name!r}: the source has no such column; it "
                f"has {', '.join(self.sides.source_schema.fieldNames())}"
            )
        return set() if name is None else {name}

    def _carried(self, values: Sequence[Mapping[str, object]]) -> set[str]:
        """Columns of old rows that updates keep, that they are compared with, or that may move the row."""
        carried: set[str] = set()
        for clause, assigned in zip(self.clauses, values, strict=True):
            if clause.action is Action.UPDATE:
                names = set(self.sides.target_schema.fieldNames())
                carried |= names - set(assigned) if self.options.write_unchanged else names
                carried |= self.table.placing_columns
        return carried


def _parts_of(clause: Clause, analyser: ExpressionAnalyser) -> Sequence[Conjunct]:
    if clause.condition is None:
        return ()
    return analyser.conjuncts(clause.condition, clause.match.sides, f"the condition of {clause}")
