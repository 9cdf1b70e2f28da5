"""GroupingValidator and SequenceValidator."""

from __future__ import annotations

import numpy as np
import pytest

from mutation_api.errors import GroupRevisitedError, RecordSequenceError
from mutation_api.format.event import RowIdArrays
from mutation_api.write.group_writer import GroupingValidator, SequenceValidator


def check(validator, operations, keys):
    validator.check(np.array(operations, np.int8), RowIdArrays(*np.array(keys, np.int64).T))


def test_a_group_left_is_closed():
    """A group may go on, but not occur again; other buckets of a partition are other groups."""
    validator = GroupingValidator("db.t")
    assert [validator.enter(*group) for group in [("a", 0), ("a", 0), ("a", 4095), ("b", 0)]] == [
        True,
        False,
        True,
        True,
    ]
    with pytest.raises(GroupRevisitedError, match=r"table db\.t, partition 'a', bucket 4095"):
        validator.enter("a", 4095)
    assert validator.enter("b", 1), "a refusal changes nothing"


def test_an_error_changes_nothing():
    """After an error the next correct record is accepted."""
    validator = SequenceValidator("group", inserts_last=True)
    check(validator, [1], [(1, 0, 5)])
    with pytest.raises(RecordSequenceError, match=r"\(1, 0, 3\) comes after \(1, 0, 5\)"):
        check(validator, [1, 1], [(1, 0, 3), (1, 0, 6)])
    with pytest.raises(RecordSequenceError, match=r"\(1, 0, 5\) occurs twice"):
        check(validator, [2], [(1, 0, 5)])
    check(validator, [2], [(1, 0, 6)])
    with pytest.raises(RecordSequenceError, match=r"\(1, 0, 7\) comes after \(1, 1, 0\)"):
        check(validator, [2, 2], [(1, 1, 0), (1, 0, 7)])
    check(validator, [2, 2, 2], [(1, 1, 0), (1, 2, 0), (2, 0, 0)])


def test_what_inserts_carry_does_not_count():
    """Their ids are assigned later."""
    validator = SequenceValidator("group", inserts_last=False)
    check(validator, [0, 1, 0, 2], [(9, 0, 9), (1, 0, 1), (0, 0, 0), (1, 0, 2)])


def test_inserts_last_over_several_calls():
    """The rule holds across batches."""
    validator = SequenceValidator("group", inserts_last=True)
    check(validator, [1, 0], [(1, 0, 1), (0, 0, 0)])
    check(validator, [0], [(0, 0, 0)])
    with pytest.raises(RecordSequenceError, match="inserts come last"):
        check(validator, [1], [(1, 0, 2)])
