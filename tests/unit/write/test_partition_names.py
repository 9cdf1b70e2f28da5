"""Partition values, typed or as text: one name for each partition, the one that Hive's SQL would use."""

from __future__ import annotations

import datetime

import pytest

from mutation_api.errors import (
    RecordLayoutError,
    RecordValueError,
)
from tests.unit.write.tables import DS, acid_table, coordinator


@pytest.mark.parametrize("values", [[], None, ["a", "b"]])
def test_a_wrong_number_of_partition_values_is_refused(tmp_path, values):
    """Hive's API committed such rows to a directory that no reader opens."""
    with pytest.raises(RecordLayoutError, match=r"1 partition column\(s\) \['ds'\]"):
        coordinator(acid_table(tmp_path, keys=DS)).insert(values, {"id": 1, "msg": ""})
    with pytest.raises(RecordLayoutError, match=r"0 partition column\(s\)"):
        coordinator(acid_table(tmp_path)).insert(["a"], {"id": 1, "msg": ""})


@pytest.mark.parametrize(
    ("hive_type", "values", "name"),
    [
        ("string", [None, ""], "ds=__HIVE_DEFAULT_PARTITION__"),
        ("string", ["x:y/z%q r"], "ds=x%3Ay%2Fz%25q r"),
        ("int", [1, "1", "01", "+1"], "ds=1"),
        ("date", [datetime.date(2020, 1, 2), "2020-01-02", "2020-1-2"], "ds=2020-01-02"),
        ("boolean", [True, "TRUE"], "ds=true"),
    ],
)
def test_partition_values_typed_or_text_name_one_partition(tmp_path, hive_type, values, name):
    """Every spelling of a value is the partition that Hive's SQL would use; null is the default partition."""
    for value in values:
        table = acid_table(tmp_path, keys=(("ds", hive_type),))
        with coordinator(table, writer_id=f"w{values.index(value)}") as target:
            target.insert([value], {"id": 1, "msg": ""})
        assert target.close()[0].partition_name == name
        assert str(target.close()[0].target).startswith(f"file:{tmp_path}/{name}/delta_")


@pytest.mark.parametrize("value", ["x", object(), 2**70, [1]])
def test_a_partition_value_of_a_wrong_type_is_refused(tmp_path, value):
    """A text that is not an int would become a partition that reads as NULL."""
    with pytest.raises((RecordValueError, RecordLayoutError), match=r"'ds'|db\.t\.ds"):
        coordinator(acid_table(tmp_path, keys=(("ds", "int"),))).insert([value], {"id": 1, "msg": ""})


def test_zeros_of_both_signs_are_two_partitions(tmp_path):
    """They are equal in Python; Hive's texts differ."""
    table = acid_table(tmp_path, keys=(("f", "double"),), num_buckets=1)
    with coordinator(table) as target:
        target.insert([0.0], {"id": 1, "msg": "x"})
        target.insert([-0.0], {"id": 1, "msg": "x"})
    assert [manifest.partition_name for manifest in target.close()] == ["f=0.0", "f=-0.0"]
