from __future__ import annotations

import dataclasses
import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_client.partition_name import DEFAULT_PARTITION_NAME
from mutation_api.errors import ConfigurationError, RecordValueError
from mutation_api.read.table_view import PartitionCondition, matching_partitions
from mutation_api.table.acid_table import AcidColumn
from mutation_api.table.partition import partition_names, partition_scalars
from tests.unit.read.scan_cases import DAYS, partitioned_view, plain_view

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


def test_a_text_that_is_no_value_is_null(tmp_path: Path) -> None:
    """As Hive shows it; a timestamp with nanoseconds has a value, which we cannot hold."""
    table = partitioned_view(tmp_path).table
    scalars = partition_scalars(table, "ds=2015-11-19/hr=x", table.partition_keys)
    assert scalars["hr"] == pa.scalar(None, pa.int32())
    assert matching_partitions(table, ["ds=2015-11-19/hr=x", FIRST], [("hr", None)]) == ["ds=2015-11-19/hr=x"]
    fine = dataclasses.replace(table, partition_keys=(AcidColumn("at", "timestamp"),))
    with pytest.raises(RecordValueError, match="microseconds"):
        partition_scalars(fine, "at=2015-11-19 00%3A00%3A00.000000001", fine.partition_keys)


def test_the_server_names_the_partition_of_null(tmp_path: Path) -> None:
    """Its usual name is a text then."""
    table = dataclasses.replace(partitioned_view(tmp_path).table, null_partition_text="NONE")
    keys = (AcidColumn("ds", "string"), AcidColumn("hr", "int"))
    table = dataclasses.replace(table, partition_keys=keys)
    name = f"ds={DEFAULT_PARTITION_NAME}/hr=NONE"
    found = {column: value.as_py() for column, value in partition_scalars(table, name).items()}
    assert found == {"ds": DEFAULT_PARTITION_NAME, "hr": None}
    assert matching_partitions(table, [name], [("hr", "NONE"), ("ds", DEFAULT_PARTITION_NAME)]) == [name]
    rows = {"ds": pa.array(["a", None]), "hr": pa.array([None, 1], pa.int32())}
    assert partition_names(table, rows).to_pylist() == ["ds=a/hr=NONE", "ds=NONE/hr=1"]


def test_the_values_of_a_partition_are_typed(tmp_path: Path) -> None:
    """The default partition has null; a table without partition keys has no values."""
    table = partitioned_view(tmp_path).table
    keys, day = table.partition_keys, datetime.date(2015, 11, 19)
    assert partition_scalars(table, FIRST, keys) == {"ds": pa.scalar(day), "hr": pa.scalar(1, pa.int32())}
    assert partition_scalars(table, NONE, keys[:1]) == {"ds": pa.scalar(None, pa.date32())}
    assert partition_scalars(plain_view(tmp_path).table, "", ()) == {}
