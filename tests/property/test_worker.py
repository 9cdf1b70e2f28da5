"""Properties of the worker: one rule for order, however the records are cut into batches."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mutation_api.errors import RecordSequenceError
from mutation_api.format.event import RowIdArrays
from mutation_api.write.group_writer import SequenceValidator

records = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 1), st.integers(0, 3)), max_size=12
)


def is_right(sequence, inserts_last) -> bool:
    """The rule in plain words."""
    keys = [record[1:] for record in sequence if record[0] != 0]
    if any(later <= earlier for earlier, later in itertools.pairwise(keys)):
        return False
    operations = [min(record[0], 1) for record in sequence]
    return not inserts_last or operations == sorted(operations, reverse=True)


@given(sequence=records, cuts=st.lists(st.integers(0, 12), max_size=4), inserts_last=st.booleans())
def test_sequences_are_judged_alike_however_they_are_cut(sequence, cuts, inserts_last):
    """One record at a time, all at once, or anything between: the same answer, and the right one."""
    for bounds in (sorted({0, *cuts, 12}), list(range(13))):
        validator = SequenceValidator("group", inserts_last=inserts_last)
        refused = False
        for start, stop in itertools.pairwise(bounds):
            part = np.array(sequence[start:stop], np.int64).reshape(-1, 4)
            try:
                validator.check(part[:, 0].astype(np.int8), RowIdArrays(*part[:, 1:].T))
            except RecordSequenceError:
                refused = True
                break
        assert refused != is_right(sequence, inserts_last)
