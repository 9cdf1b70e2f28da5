"""Conversion of a batch's values to a column's type."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mutation_api.errors import RecordValueError
from mutation_api.merge.spark_columns import ColumnConverter
from mutation_api.table.acid_table import AcidColumn


def test_values_are_stored_as_hive_does() -> None:
    """Integers of another width are converted, texts cut to their length; null stays null."""
    keys = pa.array(["a", "b", "c"])
    numbers = ColumnConverter("d.t", AcidColumn("n", "int"))(pa.array([1, None, 3], pa.int64()), keys)
    assert (numbers.type, numbers.to_pylist()) == (pa.int32(), [1, None, 3])
    texts = ColumnConverter("d.t", AcidColumn("s", "varchar(2)"))(pa.array(["abc", None, "a"]), keys)
    assert texts.to_pylist() == ["ab", None, "a"]


def test_a_value_that_does_not_fit_is_named_by_its_key() -> None:
    """Key, column, type, value and reason."""
    convert = ColumnConverter("d.t", AcidColumn("n", "int"))
    with pytest.raises(RecordValueError) as caught:
        convert(pa.array([1, 3_000_000_000], pa.int64()), pa.array(['{"id":7}', '{"id":8}']))
    assert str(caught.value).startswith("table d.t: row {\"id\":8}: column 'n' (int): value 3000000000 "), (
        str(caught.value)
    )
