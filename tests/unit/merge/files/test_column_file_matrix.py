"""The matrix of values from Parquet and ORC files: Arrow's types, as pyarrow writes them, in columns of Hive.

What is stored is what is promised for the values themselves, or the file is refused with an error of ours.
"""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from mutation_api.errors import MutationError, RecordLayoutError, UnsupportedLocallyError
from tests.support.text_matrix import holds
from tests.support.value_matrix import ROWS, Cell, random_cell
from tests.unit.merge.files.test_text_matrix import stored

CASES = 50
MANY_CASES = 1_000


def written(form: str, rows: pa.Table, file: Path) -> bool:
    """Whether pyarrow writes these types into such a file."""
    try:
        if form == "parquet":
            pyarrow.parquet.write_table(rows, file)
        else:
            pyarrow.orc.write_table(rows, file)
    except (pa.ArrowException, TypeError, OSError):
        return False
    return True


def check(directory: Path, seed: int, form: str) -> None:
    """One file for one column."""
    rng = random.Random(f"{form} {seed}")
    cell, way = random_cell(rng), rng.choice(("apply", "merge"))
    home = directory / f"{form}{seed}"
    home.mkdir()
    file = home / f"changes.{form}"
    rows = pa.table({"operation": ["insert"] * ROWS, "id": range(ROWS), "v": cell.values})
    if not written(form, rows, file):
        return
    promised, what = cell.promised(), f"seed {seed}: {way} of {cell}"
    try:
        found = stored(home, cell.hive_type, file, way)
    except UnsupportedLocallyError:
        return  # only Spark can tell what the file means
    except MutationError as error:
        assert promised is None or is_unclear(form, cell), f"{what} is refused: {error}"
        return
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error
    assert promised is not None or is_unclear(form, cell), f"{what} is stored as {found}"
    if promised is not None:
        assert holds(found, promised), f"{what}: {found}, promised is {promised}"


def is_unclear(form: str, cell: Cell) -> bool:
    """Whether the file has another type than the values had."""
    if form != "orc":
        return False
    # A date64 becomes a timestamp, and timestamps have nanoseconds.
    far = any(year in str(cell.values.to_pylist()) for year in ("(1, 1, 1", "(9999, 12"))
    return pa.types.is_date64(cell.leaf) or (pa.types.is_timestamp(cell.leaf) and far)


def test_durations_that_pyarrow_reads_as_numbers(tmp_path: Path) -> None:
    """Those in dictionaries; a field of that name is none."""
    file = tmp_path / "c.parquet"
    named = pa.array([{"duration[s]": 1}])
    lost = pa.array([5], pa.duration("s")).dictionary_encode()
    pyarrow.parquet.write_table(pa.table({"operation": ["insert"], "id": [1], "v": lost}), file)
    with pytest.raises(RecordLayoutError, match=r"c\.parquet: the columns v hold durations"):
        stored(tmp_path, "bigint", file, "apply")
    pyarrow.parquet.write_table(pa.table({"operation": ["insert"], "id": [1], "v": named}), file)
    with pytest.raises(RecordLayoutError, match="v bigint from struct"):
        stored(tmp_path / "other", "bigint", file, "apply")


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_random_files(tmp_path: Path, form: str) -> None:
    """Some."""
    for seed in range(CASES):
        check(tmp_path, seed, form)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_many_random_files(tmp_path: Path, form: str, part: int) -> None:
    """The same of others."""
    for seed in range(part * MANY_CASES // 4, (part + 1) * MANY_CASES // 4):
        check(tmp_path, 1_000 + seed, form)
