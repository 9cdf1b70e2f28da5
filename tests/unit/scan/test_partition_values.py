from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from mutation_api.errors import ConfigurationError, RecordValueError
from mutation_api.scan.partition_values import PartitionCondition, matching_partitions
from mutation_api.table.partition_columns import partition_scalars
from tests.unit.scan.scan_cases import DAYS, partitioned_view, plain_view

FIRST, SECOND, NONE = (f"ds={day}/hr=01" for day in DAYS)


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ([], [FIRST, SECOND, NONE]),
        ([("hr", "1")], [FIRST, SECOND, NONE]),
        ([("HR", 1), ("ds", "2015-11-20")], [SECOND]),
        ([("ds", datetime.date(2015, 11, 19))], [FIRST]),
        ([("ds", None)], [NONE]),
        ([("ds", DAYS[-1])], [NONE]),
        ([("ds", "2015-11-19"), ("ds", "2015-11-20")], []),
        ([("hr", Decimal(1))], [FIRST, SECOND, NONE]),
        ([("hr", 2)], []),
    ],
)
def test_conditions_compare_typed_values(
    tmp_path: Path, conditions: list[PartitionCondition], found: list[str]
) -> None:
    """Texts are parsed as the column's type; all conditions must hold."""
    table = partitioned_view(tmp_path).table
    assert matching_partitions(table, [FIRST, SECOND, NONE], conditions) == found


def test_conditions_that_make_no_sense(tmp_path: Path) -> None:
    """An unknown column, also if the table has no partitions; a text that cannot be parsed."""
    table = partitioned_view(tmp_path).table
    with pytest.raises(
        ConfigurationError, match=r"where_partition id=1: .* has the partition columns ds, hr"
    ):
        matching_partitions(table, [], [("id", 1)])
    with pytest.raises(RecordValueError, match="partition value 'x' is not a int"):
        matching_partitions(table, [FIRST], [("hr", "x")])
    with pytest.raises(ConfigurationError, match=r"has the partition columns \(none\)"):
        matching_partitions(plain_view(tmp_path).table, [""], [("ds", "x")])


def test_a_text_that_is_no_value_matters_only_if_wanted(tmp_path: Path) -> None:
    """Hive shows NULL for it; we refuse."""
    table = partitioned_view(tmp_path).table
    assert list(partition_scalars(table, "ds=2015-11-19/hr=x", table.partition_keys[:1])) == ["ds"]
    with pytest.raises(RecordValueError, match="'x' is not a int"):
        partition_scalars(table, "ds=2015-11-19/hr=x", table.partition_keys)


def test_the_values_of_a_partition_are_typed(tmp_path: Path) -> None:
    """The default partition has null; a table without partition keys has no values."""
    table = partitioned_view(tmp_path).table
    keys, day = table.partition_keys, datetime.date(2015, 11, 19)
    assert partition_scalars(table, FIRST, keys) == {"ds": pa.scalar(day), "hr": pa.scalar(1, pa.int32())}
    assert partition_scalars(table, NONE, keys[:1]) == {"ds": pa.scalar(None, pa.date32())}
    assert partition_scalars(plain_view(tmp_path).table, "", ()) == {}
