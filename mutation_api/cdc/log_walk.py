"""One pass over operations sorted by key and position, which finds the last operation of each key.

Pure Arrow and numpy; runs in Spark's Python workers. One row holds everything that is known about a key so
far: its last operation and the findings about it. That row and the row of the next operation are joined to
one. The operations of a key may therefore span any number of batches, and memory holds one batch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.cdc.source import FILE, OFFSET, PART, PARTITION, TIME, TIME_UNKNOWN
from mutation_api.format.differences import differs
from mutation_api.format.event import DELETE, INSERT, UPDATE

CONTRADICTIONS = {
    "__inserts_of_present": (INSERT, (INSERT, UPDATE)),
    "__updates_of_absent": (UPDATE, (DELETE,)),
    "__deletes_of_absent": (DELETE, (DELETE,)),
}
"""For each column with counts: an operation, and the operations that it cannot follow on the same key."""

FIRST_OPERATION, FIRST_POSITION = "__first_operation", "__first_position"
"""The columns of a key's first operation and of its position."""
OPERATION_COUNT = "__operation_count"
CONTRADICTION, CONTRADICTION_POSITION = "__contradiction", "__contradiction_position"
"""The kind and position of the first operation that contradicts the one before it; null if none does."""
DOUBLED_POSITION = "__doubled_position"
"""The first position of a key's operation that has no known order after the one before it; null if there is
none. Both have the same position, are in two partitions, or stand in the log in the opposite order."""
FINDINGS = (
    FIRST_OPERATION,
    FIRST_POSITION,
    OPERATION_COUNT,
    *CONTRADICTIONS,
    CONTRADICTION,
    CONTRADICTION_POSITION,
    DOUBLED_POSITION,
)
"""The columns that the walk appends."""

NO_KEY = "a key column is null, so the row of the operation is not known"
NOT_ORDERED = "an operation needs a position"
NO_OPERATION = f"the operation must be one of {INSERT}, {UPDATE}, {DELETE}"
DOUBLED = ("have the same position ", ", so it is not known which of them is later")
PARTED = (
    "are in two partitions, the second at ",
    ": their order is not known. Have the source write all messages about a key to one partition. If this "
    "run reads messages from before and after partitions were added, order it by the positions in the "
    "messages (--positions message)",
)
DISORDERED = (
    "are not in the order of their positions in the log; the one with the greater position comes first, at ",
    ". Did another server take over, was a server restored, or did a connector start again? Files: if "
    "their lines are in the order of the changes, start over in that order, under another source name "
    "(--positions line --name NAME). Kafka: leave out --positions message",
)
"""Messages about operations that the walk cannot process. The code that sorts them raises the error. DOUBLED,
PARTED and DISORDERED are the parts of a message before and after the position."""

Mask = NDArray[np.bool_]


def partitions_of(positions: pa.StructArray) -> pa.Array | None:
    """Return the partitions of positions, or None if the positions order the operations of all partitions."""
    if positions.type.get_field_index(PARTITION) >= 0:
        return positions.field(PARTITION)
    inner = positions.type.field(0).type
    return partitions_of(positions.field(0)) if pa.types.is_struct(inner) else None


def names_of(positions: pa.StructType) -> list[str]:
    """Return the names of a position's numbers."""
    inner = positions.field(0).type
    return names_of(inner) if pa.types.is_struct(inner) else [field.name for field in positions]


def doubled_texts(names: Sequence[str]) -> tuple[str, str]:
    """Return the message about a DOUBLED_POSITION, before and after it.

    ``names`` are those of the position's numbers.
    """
    if PARTITION in names:
        return PARTED
    return DISORDERED if _has_places(names) else DOUBLED


def _has_places(names: Sequence[str]) -> bool:
    return OFFSET in names and names[0] not in (FILE, OFFSET)


@dataclass(frozen=True)
class LogWalk:
    """The function that runs in a task: it takes operations and returns the last operation of each key.

    Positions with a PARTITION order only the operations of one partition; a key must then not be in two of
    them. All operations of a key are in one task, in succession, sorted by position. Keys, positions and
    operations are never null.

    Attributes:
        key: indices of the key columns.
        operation: index of the column of operations (the strings INSERT, UPDATE, DELETE).
        position: index of the column of positions, which is not in the result.
    """

    key: tuple[int, ...]
    operation: int
    position: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return batches without the position and with FINDINGS appended; one row for each key."""
        known: pa.RecordBatch | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = self._with_findings(batch)
            joined = self._joined(rows if known is None else pa.concat_batches([known, rows]))
            # The next batch may have more operations of the last key.
            known = joined.slice(joined.num_rows - 1)
            if joined.num_rows > 1:
                yield self._handed_on(joined.slice(0, joined.num_rows - 1))
        if known is not None:
            yield self._handed_on(known)

    def _with_findings(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the findings of a key that has no other operation to each operation."""
        count, position = batch.num_rows, batch.column(self.position)
        nowhere = pa.nulls(count, position.type)
        findings = {
            FIRST_OPERATION: batch.column(self.operation),
            FIRST_POSITION: position,
            OPERATION_COUNT: pa.array(np.ones(count, np.int64)),
            **{kind: pa.array(np.zeros(count, np.int64)) for kind in CONTRADICTIONS},
            CONTRADICTION: pa.nulls(count, pa.string()),
            CONTRADICTION_POSITION: nowhere,
            DOUBLED_POSITION: nowhere,
        }
        names = [*batch.schema.names, *findings]
        return pa.RecordBatch.from_arrays([*batch.columns, *findings.values()], names=names)

    def _joined(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Join the rows of each key into one."""
        count = rows.num_rows
        is_same = np.zeros(count, np.bool_)  # True if a row has the key of the row before
        is_same[1:] = np.logical_and.reduce([_equals_previous(rows.column(number)) for number in self.key])
        if not is_same.any():
            return rows
        starts = np.flatnonzero(~is_same)
        lasts = np.append(starts[1:], count) - 1
        known = dict(zip(FINDINGS, rows.columns[-len(FINDINGS) :], strict=True))
        positions = rows.column(self.position)
        is_doubled = _doubled(positions, is_same)
        kinds = _contradictions(rows.column(self.operation), is_same)
        counts = {name: known[name].to_numpy() for name in (OPERATION_COUNT, *CONTRADICTIONS)}
        counts |= {kind: counts[kind] + (kinds == kind) for kind in CONTRADICTIONS}
        is_contradicted = kinds != ""
        firsts = pa.array(starts)
        first_of = functools.partial(_first_of, starts=starts)
        found = {
            FIRST_OPERATION: known[FIRST_OPERATION].take(firsts),
            FIRST_POSITION: known[FIRST_POSITION].take(firsts),
            **{name: pa.array(np.add.reduceat(values, starts)) for name, values in counts.items()},
            CONTRADICTION: first_of(known[CONTRADICTION], pa.array(kinds, pa.string()), is_contradicted),
            CONTRADICTION_POSITION: first_of(known[CONTRADICTION_POSITION], positions, is_contradicted),
            DOUBLED_POSITION: first_of(known[DOUBLED_POSITION], positions, is_doubled),
        }
        data = [column.take(pa.array(lasts)) for column in rows.columns[: -len(FINDINGS)]]
        return pa.RecordBatch.from_arrays(
            [*data, *(found[name] for name in FINDINGS)], names=rows.schema.names
        )

    def _handed_on(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.remove_column(self.position)


def _equals_previous(values: pa.Array) -> Mask:
    """Compare each of n values but the first with the one before it: True if equal. Shape (n - 1,)."""
    return ~differs(values.slice(1), values.slice(0, len(values) - 1))


def _doubled(positions: pa.StructArray, is_same: Mask) -> Mask:
    """Find operations without a known order after the one before them on their key. Shape (n,)."""
    is_doubled = is_same.copy()
    partitions = partitions_of(positions)
    if partitions is not None:
        is_doubled[1:] &= ~_equals_previous(partitions)
    elif _has_places(names_of(positions.type)):
        is_doubled &= _disordered(positions, is_same)
    else:
        is_doubled[1:] &= _equals_previous(positions)
    return is_doubled


def _disordered(positions: pa.StructArray, is_same: Mask) -> Mask:
    """Find operations that precede, in the log, the one with the next lower position of their key.

    An operation that the log repeats comes after its first occurrence, so only the first occurrence of each
    position counts.
    """
    if pa.types.is_struct(positions.type.field(0).type):
        return _disordered(positions.field(0), is_same)
    names = names_of(positions.type)
    numbers = {name: positions.field(name).to_numpy(zero_copy_only=False) for name in names}
    part = FILE if FILE in names else PART
    is_repeated = is_same.copy()
    for name in names[: names.index(part)]:
        is_repeated[1:] &= numbers[name][1:] == numbers[name][:-1]
    count = len(is_same)
    firsts = np.maximum.accumulate(np.where(is_repeated, 0, np.arange(count)))
    before = firsts[np.maximum(np.arange(count) - 1, 0)]
    place, offset = numbers[part], numbers[OFFSET]
    is_disordered: Mask = (place == place[before]) & (offset < offset[before])
    if part == FILE:
        time = numbers[TIME]
        is_later = (time[before] != TIME_UNKNOWN) & (time > time[before])
        is_disordered = (is_disordered | (place < place[before])) & ~is_later
    return is_disordered & ~is_repeated


def _contradictions(operations: pa.StringArray, is_same: Mask) -> NDArray[np.object_]:
    """Return a name in CONTRADICTIONS for each of n operations, '' if it can follow the one before it."""
    is_said = {each: np.asarray(pc.equal(operations, each)) for each in (INSERT, UPDATE, DELETE)}
    kinds = np.full(len(operations), "", np.object_)
    for kind, (operation, befores) in CONTRADICTIONS.items():
        is_before = np.logical_or.reduce([is_said[before] for before in befores])
        is_wrong = is_said[operation] & is_same
        is_wrong[1:] &= is_before[:-1]
        kinds[is_wrong] = kind
    return kinds


def _first_of(known: pa.Array, new: pa.Array, is_new: Mask, starts: NDArray[np.intp]) -> pa.Array:
    """Return the first known or new value of each group, null if there is none. No row has both."""
    count = len(new)
    indices = np.where(np.asarray(known.is_valid()), np.arange(count), count)
    indices = np.where(is_new, np.arange(count), indices)
    firsts = np.minimum.reduceat(indices, starts)
    is_none = firsts == count
    firsts = np.where(is_none, 0, firsts)
    # An index into `known` followed by `new`.
    chosen = np.where(is_new[firsts], firsts + count, firsts)
    return pa.concat_arrays([known, new]).take(pa.array(chosen, mask=is_none))
