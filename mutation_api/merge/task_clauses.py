"""The function that applies the clauses of a merge in Spark's tasks.

Each worker imports this module, so it imports nothing that only the driver needs.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.format.plain_array import plain_array
from mutation_api.merge.acting import Acting, Candidates, RowRules, act, altered_keys, struct_of
from mutation_api.merge.evaluator import target_types
from mutation_api.merge.outcome import MergeOutcome, change_batches, change_schema
from mutation_api.read.snapshot_reader import full_row_id_type
from mutation_api.spark.tasks import CHANGES, WRITER, leave_task, stream_of
from mutation_api.table.acid_table import AcidTable
from mutation_api.write.writing_order import ADDRESSED_ROWS_MAX, joined_batches

CLAUSE = "__clause"
"""An input with the number of the clause that acts on the row."""

ALTERED = "__altered"
"""An input with the JSON string of a key that would be stored as a different key by Spark's comparison."""

OUTCOME, ROW_ID, KEY = "outcome", "row_id", "key"
"""Columns that tasks return: a pickled MergeOutcome, and the identity of a row or of a key to insert."""

_BYTES_AT_ONCE = 16 << 20


@dataclass(frozen=True)
class TaskOptions:
    """The merge's options that tasks need. ``columns`` are those that they return."""

    write_unchanged: bool
    null_safe: bool
    count_by: str | None
    samples: int
    columns: tuple[str, ...]


@dataclass(frozen=True)
class TaskClauses:
    """The function that runs in tasks. It takes batches of inputs.

    Its results are described in :func:`mutation_api.merge.spark_acting.acted`. ``of_source`` and
    ``of_target`` map columns of a side to inputs, ``of_clauses`` the columns that each clause assigns.
    ``compared_keys`` are the keys whose stored values are compared with the given values here.
    """

    table: AcidTable
    rules: RowRules
    of_source: Mapping[str, str]
    of_target: Mapping[str, str]
    of_clauses: Sequence[Mapping[str, str]]
    compared_keys: tuple[str, ...]
    options: TaskOptions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        outcome = MergeOutcome(self.rules.keys, self.options.count_by, self.options.samples)
        schema = change_schema(self.table)
        try:
            for rows in joined_batches(batches, _BYTES_AT_ONCE, ADDRESSED_ROWS_MAX):
                if ALTERED in rows.schema.names:
                    outcome.add_altered(rows.column(ALTERED).drop_null().to_pylist())
                for held in self._by_clause(rows):
                    each = self._acted(held)
                    outcome.add(each)
                    if self.rules.clauses[each.clause].action.adds_row:
                        outcome.add_altered(altered_keys(self.table.full_name, self.compared_keys, each))
                    extra = {WRITER: held.column(WRITER)} if WRITER in held.schema.names else {}
                    for changes in change_batches(self.table, schema, each, extra):
                        yield self._row(CHANGES, pa.array([stream_of(changes)]))
                    yield from self._identities(each)
        finally:
            leave_task()
        yield self._row(OUTCOME, pa.array([pickle.dumps(outcome)]))

    def _by_clause(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        numbers = rows.column(CLAUSE).to_numpy()
        for number in np.unique(numbers).tolist():
            held = np.flatnonzero(numbers == number)
            yield rows if len(held) == len(rows) else rows.take(pa.array(held))

    def _acted(self, rows: pa.RecordBatch) -> Acting:
        """Apply a clause to rows that all have it."""
        number, count = rows.column(CLAUSE)[0].as_py(), rows.num_rows
        rule = self.rules.clauses[number]
        source = {name: plain_array(rows.column(given)) for name, given in self.of_source.items()}
        target = {name: self._target(name, rows.column(given)) for name, given in self.of_target.items()}
        candidates = Candidates(
            rule.match,
            pa.record_batch(source or {"": pa.nulls(count)}),
            np.arange(count) if rule.match.has_source else None,
            target if rule.match.has_target else None,
        )
        given = {name: plain_array(rows.column(each)) for name, each in self.of_clauses[number].items()}
        given |= {name: pa.repeat(value, count) for name, value in rule.defaults.items()}
        write_unchanged = self.options.write_unchanged
        return act(self.table, self.rules, number, candidates, given, write_unchanged=write_unchanged)

    def _target(self, name: str, values: pa.Array) -> pa.Array:
        """Return values of the table in the types in which this process reads them."""
        found, wanted = plain_array(values), self._target_types[name]
        return found if found.type == wanted else found.cast(wanted)

    @cached_property
    def _target_types(self) -> dict[str, pa.DataType]:
        return {**target_types(self.table), ROW_ID_COLUMN: full_row_id_type(self.table)}

    def _identities(self, each: Acting) -> Iterator[pa.RecordBatch]:
        """For rows with a source row, yield rows that identify the table's rows or the keys to insert."""
        match = self.rules.clauses[each.clause].match
        if match.is_pair and ROW_ID in self.options.columns:
            yield self._row(ROW_ID, each.row_ids)
        elif not match.has_target and KEY in self.options.columns:
            parts = [each.new[key] for key in self.rules.keys or ()]
            keys = struct_of({f"k{number}": part for number, part in enumerate(parts)})
            if not self.options.null_safe:  # NULL equals nothing
                keys = keys.filter(reduce(pc.and_, (part.is_valid() for part in parts)))
            yield self._row(KEY, keys)

    def _row(self, name: str, values: pa.Array) -> pa.RecordBatch:
        columns = [
            values if each == name else pa.nulls(len(values), self._output_types[each])
            for each in self.options.columns
        ]
        return pa.record_batch(columns, names=list(self.options.columns))

    @cached_property
    def _output_types(self) -> dict[str, pa.DataType]:
        types = self._target_types
        keys = [(f"k{number}", types[key]) for number, key in enumerate(self.rules.keys or ())]
        return {
            CHANGES: pa.binary(),
            OUTCOME: pa.binary(),
            KEY: pa.struct(keys),
            ROW_ID: types[ROW_ID_COLUMN],
        }
