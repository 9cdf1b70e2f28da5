"""LocalMergePlan: evaluate a merge in this process. Nothing is written before everything is checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import RecordValueError
from mutation_api.format.event import Mask
from mutation_api.format.timestamps import exact_unit
from mutation_api.merge.acting import (
    INSERTED,
    Acting,
    AnyMerge,
    Candidates,
    RowRules,
    act,
    altered_keys,
    rules_of,
)
from mutation_api.merge.clauses import (
    Match,
    MergeOptions,
    padded_key_error,
)
from mutation_api.merge.differences import SourceKeys
from mutation_api.merge.evaluator import Evaluator, target_types
from mutation_api.merge.key_columns import key_in_type
from mutation_api.merge.outcome import MergeOutcome, change_batches, change_schema
from mutation_api.merge.source_rows import (
    DoubledKeys,
    duplicated,
    first_of_each,
)
from mutation_api.merge.table_side import TableSide, settled
from mutation_api.merge.target_rows import READING_DEFAULT, PlannedView, Reading
from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.table.acid_table import AcidTable
from mutation_api.write.local_plan import LocalOptions

Indices = NDArray[np.int64]
_Sides = tuple[tuple[Candidates, Indices], Candidates]


@dataclass(frozen=True)
class LocalMergePlan:
    """A merge whose names, types and clauses have been checked by the code that constructs it.

    Attributes:
        view: the reader's view of the table.
        table: the table's descriptor.
        source: the source's rows.
        keys: names of the key columns.
        resolved: the checked clauses.
        evaluator: the evaluator of their expressions.
        options: options of the merge.
        local: memory limit and number of threads.
        samples: number of rows of each kind for a preview. If there are any, the old values of all compared
            columns are read.
        source_columns: number of columns that messages show of source rows. If None, all.
        reading: the choices of the process.

    Raises:
        RecordLayoutError: If key columns cannot be compared, or if values of a type can never be stored.
        RecordValueError: If a timestamp in a key column has digits below microseconds.
    """

    view: PlannedView
    table: AcidTable
    source: pa.RecordBatch
    keys: tuple[str, ...]
    resolved: AnyMerge
    evaluator: Evaluator
    options: MergeOptions
    local: LocalOptions
    samples: int = 0
    source_columns: int | None = None
    reading: Reading = READING_DEFAULT

    def __post_init__(self) -> None:
        """Check the types."""
        for values in self.resolved.values:
            for column in self.table.all_columns:
                if column.name in values:
                    self.evaluator.check_type(column, values[column.name][1])
        self._keys  # noqa: B018  (refuses keys that cannot be compared)

    @cached_property
    def acting(self) -> tuple[Acting, ...]:
        """The rows on which a clause acts, with their new values. Reads the table.

        Raises:
            RecordValueError: If a value does not fit its column, or if a key to insert would be stored as a
                different key.
            DuplicateKeyError: If several source rows would act on one row or insert one key.
            UnsupportedLocallyError: If the rows need more memory than allowed.
            DirectoryStateError, CorruptFileError: See :func:`mutation_api.read.snapshot_reader.split_rows`.
        """
        self.check_source()
        return (*self.acting_on_source, *self.acting_on_rest())

    def check_source(self) -> None:
        """Check keys and duplicates. Raises the first two errors of :attr:`acting`."""
        outcome = MergeOutcome(self.keys, None)
        outcome.add_altered(self.altered)
        outcome.check_keys(self.table)
        self.doubled.check(self.table.full_name, self.options.duplicates_shown)

    @property
    def altered(self) -> Sequence[str]:
        """The keys to insert that would be stored as different keys. See :func:`~.acting.altered_keys`."""
        return self._of_source[1]

    @property
    def doubled(self) -> DoubledKeys:
        """The keys with several source rows that would act."""
        return self._of_source[2]

    @cached_property
    def acting_on_source(self) -> list[Acting]:
        """The rows with a source row on which a clause acts. Requires that :meth:`check_source` passes."""
        side = self._table_side
        return settled(self.table.full_name, self._of_source[0], side.late, self.keys, side.late_rows)

    def acting_on_rest(self) -> Iterator[Acting]:
        """Yield the table rows without a source row on which a clause acts."""
        if self.resolved.acts_on_rest:
            yield from self._table_side.others()

    @cached_property
    def _of_source(self) -> tuple[list[Acting], list[str], DoubledKeys]:
        """The acting rows with a source row before late columns are compared, and the keys to refuse."""
        reducer = _Reducer(self)
        sides = cache(self._both_sides)
        found, altered = list[Acting](), list[str]()
        for match in (match for match in Match if match in self.resolved.matches and match.has_source):
            if match.is_pair:
                found += reducer.once_a_row(*sides()[0])
            else:
                inserts = reducer.once_a_key(self._acting(sides()[1]))
                altered += [text for each in inserts for text in self._altered(each)]
                found += inserts
        return found, altered, reducer.doubled

    @cached_property
    def outcome(self) -> MergeOutcome:
        """The counts and samples."""
        outcome = MergeOutcome(self.keys, self.options.count_by, self.samples)
        for each in self.acting:
            outcome.add(each)
        return outcome

    def changes(self) -> pa.RecordBatchReader:
        """Return the change set for :func:`mutation_api.write.apply.apply_arrow`.

        CHANGE_COLUMN is its operation column.
        """
        # Timestamps have microseconds unless values need a finer unit.
        fine = {name for each in self.acting for name, new in each.new.items() if "[ns" in str(new.type)}
        schema = change_schema(self.table, fine)
        batches = (batch for each in self.acting for batch in change_batches(self.table, schema, each))
        return pa.RecordBatchReader.from_batches(schema, batches)

    @property
    def bytes_to_read(self) -> int:
        """The size of the table's files to read, which are only read in part."""
        return self._table_side.bytes_to_read

    @property
    def shown_source(self) -> pa.RecordBatch:
        """The source's rows as messages show them."""
        return self.source.select(self.source.schema.names[: self.source_columns])

    # ---- sides

    @cached_property
    def _table_side(self) -> TableSide:
        return TableSide(
            self.view,
            self.table,
            self.source.nbytes,
            self._keys,
            self.resolved,
            self.evaluator,
            self.options,
            self.local,
            self.samples > 0,
            self._acting_alone,
            self.reading,
        )

    @cached_property
    def _keys(self) -> SourceKeys:
        types = target_types(self.table)
        kinds = {column.name: column.type for column in self.table.all_columns}
        lost = np.zeros(self.source.num_rows, np.bool_)
        columns = {}
        for key in self.keys:
            given = self.source.column(key)
            if exact_unit(given) != "us":
                raise RecordValueError(
                    f"table {self.table.full_name}: key column {key!r}: a value has digits below "
                    "microseconds. Keys are compared in microseconds, so its row would not be found. Use "
                    "other keys"
                )
            values, is_lost = key_in_type(self.table.full_name, key, given, types[key])
            if kinds[key].startswith("char") and len(padded := _padded(values)):
                raise padded_key_error(self.table.full_name, key, padded[0].as_py())
            columns[key] = values
            lost |= is_lost
        return SourceKeys(pa.record_batch(columns), lost, self.options.null_safe)

    def _both_sides(self) -> _Sides:
        """Return the pairs with the number of each target row, and the source rows without a pair."""
        target = self._table_side.matching()
        pairs = None if target is None else self._keys.pairs([target.column(key) for key in self.keys])
        taken = np.zeros(self.source.num_rows, np.bool_)
        if pairs is not None:
            taken[pairs.source] = True
        unmatched = Candidates(Match.NOT_MATCHED, self.source, np.flatnonzero(~taken), None)
        empty = np.zeros(0, np.int64)
        if target is None or pairs is None:
            return (Candidates(Match.MATCHED, self.source, empty, None), empty), unmatched
        columns = _columns(target.take(pa.array(pairs.target)))
        return (Candidates(Match.MATCHED, self.source, pairs.source, columns), pairs.target), unmatched

    # ---- steps

    def _acting_alone(self, rows: pa.RecordBatch) -> list[Acting]:
        """Return the rows on which clauses act, among table rows without a source row."""
        return self._acting(Candidates(Match.NOT_MATCHED_BY_SOURCE, self.source, None, _columns(rows)))

    def _acting(self, rows: Candidates) -> list[Acting]:
        return [
            self._act(number, rows if len(held) == len(rows) else rows.take(held))
            for number, held in self.evaluator.clauses(rows)
        ]

    def _act(self, number: int, rows: Candidates) -> Acting:
        has_values = self.resolved.clauses[number].action.writes_row
        given = self.evaluator.assigned(number, rows) if has_values else {}
        write_unchanged = self.options.write_unchanged
        return act(self.table, self._rules, number, rows, given, write_unchanged=write_unchanged)

    @cached_property
    def _rules(self) -> RowRules:
        return rules_of(self.resolved)

    def _altered(self, each: Acting) -> Iterator[str]:
        return altered_keys(self.table.full_name, self.keys, each)


def _padded(texts: pa.Array) -> pa.Array:
    """Return the strings that end with a blank."""
    return texts.filter(pc.ends_with(texts, " "))


def _columns(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(rows.schema.names, rows.columns, strict=True))


class _Reducer:
    """Ensures that only one source row acts on each row or key: collects the others, or chooses one."""

    def __init__(self, plan: LocalMergePlan) -> None:
        self._plan = plan
        self.doubled = DoubledKeys()

    def once_a_row(self, rows: Candidates, target_rows: Indices) -> list[Acting]:
        """Apply clauses to pairs. ``target_rows`` holds the number of each pair's table row."""
        plan = self._plan
        clauses = plan.evaluator.clauses(rows)
        if not clauses:
            return []
        held = np.concatenate([each for _, each in clauses])
        numbers = np.concatenate([np.full(len(each), number) for number, each in clauses])
        groups = target_rows[held]
        is_reduced = plan.resolved.deletes_all_pairs and plan.table.version.has_row_ids
        kept = self._once(groups, np.ones(len(held), np.bool_), rows.source_rows, held, is_reduced)
        held, numbers = held[kept], numbers[kept]
        return [
            plan._act(number, rows.take(held[numbers == number])) for number in np.unique(numbers).tolist()
        ]

    def once_a_key(self, found: list[Acting]) -> list[Acting]:
        """Check or reduce the rows to insert in ``found``."""
        plan = self._plan
        inserts = [each for each in found if (each.kinds == INSERTED).any()]
        if not inserts or self._are_unique(inserts):
            return found
        rest = [each for each in found if not (each.kinds == INSERTED).any()]
        keys = pa.record_batch(
            {key: pa.concat_arrays([each.new[key] for each in inserts]) for key in plan.keys}
        )
        groups = np.zeros(keys.num_rows, np.int64)
        judged = np.zeros(keys.num_rows, np.bool_)
        positions, codes = KeyFilter(pa.Table.from_batches([keys]), plan.options.null_safe).encode(
            keys.columns
        )
        groups[positions], judged[positions] = codes, True
        sources = np.concatenate([_source_rows(each) for each in inserts])
        kept = self._once(groups, judged, sources, np.arange(len(sources)), is_reduced=False)
        starts = np.cumsum([0, *(len(each.kinds) for each in inserts)])
        for each, start in zip(inserts, starts.tolist(), strict=False):
            own = kept[(kept >= start) & (kept < start + len(each.kinds))] - start
            rest.append(each if len(own) == len(each.kinds) else each.take(own))
        return rest

    def _are_unique(self, inserts: Sequence[Acting]) -> bool:
        """Return True if all keys of the source are different and inserted unchanged."""
        takes_all = all(self._plan.resolved.clauses[each.clause].takes_all for each in inserts)
        return takes_all and self._plan._keys.is_unique

    def _once(
        self, groups: Indices, judged: Mask, source_rows: Indices | None, held: Indices, is_reduced: bool
    ) -> Indices:
        """Return the indices of the rows that act."""
        assert source_rows is not None
        sources = source_rows[held]
        options = self._plan.options
        if options.first_by:
            return first_of_each(groups, self._order[sources], judged)
        if is_reduced:
            return first_of_each(groups, sources, judged)
        count, samples = duplicated(
            groups, judged, self._plan.shown_source, sources, self._plan.keys, options.duplicates_shown
        )
        self.doubled.add(count, samples)
        return np.arange(len(held))

    @cached_property
    def _order(self) -> Indices:
        return self._plan.evaluator.order()


def _source_rows(each: Acting) -> Indices:
    assert each.rows.source_rows is not None
    return each.rows.source_rows
