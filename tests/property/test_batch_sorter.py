"""Sorting in parts gives what sorting at once gives, whatever the keys, the memory and the batches."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mutation_api.errors import DeltaWriteError
from mutation_api.write import batch_sorter
from mutation_api.write.batch_sorter import BatchSorter

INT64 = 2**63

key_values = st.one_of(
    st.integers(0, 3), st.integers(-INT64, INT64 - 1), st.sampled_from([-INT64, INT64 - 1, 2**40])
)
rows = st.lists(st.tuples(key_values, key_values, key_values, st.text(max_size=20)), max_size=120)


def batches_of(values, cuts) -> list[pa.RecordBatch]:
    """Batches of three key columns, a text and a list, cut anywhere; the first is a slice of a larger one."""
    bounds = sorted({0, *(min(cut, len(values)) for cut in cuts), len(values)})
    columns = list(zip(*values, strict=True)) if values else [[]] * 4
    arrays = [pa.array(column, pa.int64()) for column in columns[:3]] + [pa.array(columns[3], pa.string())]
    nested = pa.array(
        [[{"t": text}] if text else None for text in columns[3]], pa.list_(pa.struct({"t": pa.string()}))
    )
    whole = pa.record_batch([*arrays, nested], names=["a", "b", "c", "text", "nested"])
    return [whole.slice(start, end - start) for start, end in itertools.pairwise(bounds)] or [whole]


def key(batch: pa.RecordBatch) -> list[np.ndarray]:
    return [batch.column(name).to_numpy() for name in ("a", "b", "c")]


def sorted_by(batches, memory_bytes, folder=None) -> list[dict]:
    with BatchSorter("t", key, memory_bytes, folder) as sorter:
        for batch in batches:
            sorter.add(batch)
        return [row for batch in sorter.in_order() for row in batch.to_pylist()]


def of_key(row) -> tuple[int, int, int]:
    return row["a"], row["b"], row["c"]


@settings(deadline=None)
@given(
    values=rows,
    cuts=st.lists(st.integers(0, 120), max_size=12),
    memory_bytes=st.integers(1, 20_000),
    runs_max=st.integers(2, 5),
)
def test_rows_come_in_order_and_none_is_lost(values, cuts, memory_bytes, runs_max):
    """Ascending by the key; the same rows, each as often. With little memory runs are merged in steps."""
    batches = batches_of(values, cuts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch_sorter, "RUNS_MAX", runs_max)
        found = sorted_by(batches, memory_bytes)
    keys = [of_key(row) for row in found]
    assert keys == sorted(keys)
    given_rows = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(map(repr, found)) == sorted(map(repr, given_rows))


@settings(deadline=None)
@given(
    keys=st.lists(st.integers(-2, 2), max_size=120),
    cuts=st.lists(st.integers(0, 120), max_size=12),
    memory_bytes=st.integers(1, 20_000),
    runs_max=st.integers(2, 5),
)
def test_rows_with_equal_keys_keep_their_order(keys, cuts, memory_bytes, runs_max):
    """As long as there are few keys, such as the groups of inserts; also over runs that are merged."""
    batches = batches_of([(key, 7, key, f"{place:03}") for place, key in enumerate(keys)], cuts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch_sorter, "RUNS_MAX", runs_max)
        found = sorted_by(batches, memory_bytes)
    assert [(row["a"], row["text"]) for row in found] == sorted(
        (row["a"], row["text"]) for batch in batches for row in batch.to_pylist()
    )


def test_batches_from_several_threads_have_numbers():
    """The rows of a run are in the order of the numbers."""
    batches = batches_of([(1, 1, 1, f"{place:03}") for place in range(60)], range(0, 60, 7))
    with BatchSorter("t", key, 1 << 20) as sorter:
        for number in (3, 0, 2, 1, *range(4, len(batches))):
            sorter.add(batches[number], number)
        found = [row["text"] for batch in sorter.in_order() for row in batch.to_pylist()]
    assert found == sorted(found)


@pytest.mark.thorough
@pytest.mark.parametrize("order", ["random", "sorted", "reversed", "equal"])
def test_large_inputs_are_merged_from_many_runs(order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """More runs than are merged at once, whatever order they come in; no file stays."""
    monkeypatch.setattr(batch_sorter, "RUNS_MAX", 4)
    numbers = np.random.default_rng(1).integers(0, 1000, 40_000)
    numbers = {"sorted": np.sort(numbers), "reversed": np.sort(numbers)[::-1], "equal": numbers * 0}.get(
        order, numbers
    )
    values = [(int(number), -int(number), place, "x" * (number % 7)) for place, number in enumerate(numbers)]
    batches = batches_of(values, range(0, len(values), 1000))
    found = sorted_by(batches, 2 * max(batch.nbytes for batch in batches), str(tmp_path))
    assert [of_key(row) for row in found] == sorted((a, b, c) for a, b, c, _ in values)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path: Path):
    """The error says which table, where, and what can be done."""
    batches = batches_of([(1, 2, 3, "a"), (4, 5, 6, "b")], [1])
    with pytest.raises(DeltaWriteError, match=r"table t: .*nowhere.*sort_memory_bytes"):
        sorted_by(batches, 1, str(tmp_path / "nowhere"))
