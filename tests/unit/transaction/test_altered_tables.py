"""Which tables may have rows in other buckets than their hash says."""

from __future__ import annotations

import pytest

from metastore_client.model import ColumnInfo, PartitionInfo, TableInfo
from mutation_api.format.event import MAX_BUCKETS
from mutation_api.format.layout import AcidVersion
from mutation_api.table.acid_table import AcidTable, AcidTableSerializer, TableRole
from mutation_api.table.bucket_resolver import tells_bucket
from mutation_api.transaction.descriptors import describe, with_partitions


def described(version: AcidVersion = AcidVersion.V2_HIVE4, **parameters: str) -> AcidTable:
    info = TableInfo(
        "d",
        "t",
        (ColumnInfo("id", "int"), ColumnInfo("w", "string")),
        (ColumnInfo("ds", "string"),),
        location="file:/w/t",
        num_buckets=4,
        bucket_columns=("ID",),
        parameters=parameters,
    )
    return describe(info, version, TableRole.SINK, create_partitions=False, time_zone=None)


def partition(count: int | None = 4, columns: tuple[str, ...] = ("id",), **parameters: str) -> PartitionInfo:
    return PartitionInfo("d", "t", ("a",), "ds=a", "file:/w/t/ds=a", parameters, count, columns)


def test_a_table_that_nobody_altered() -> None:
    """Its keys tell the bucket, also where the partition says the same in another way, or says nothing."""
    table = with_partitions(described(), [partition(), partition(4, ("ID",)), partition(None, ())])
    assert not table.was_altered and tells_bucket(table, {"id"}) and table.bucket_limit == 4


@pytest.mark.parametrize(
    "other",
    [partition(2), partition(4, ("w",)), partition(-1, ()), partition(last_modified_time="1795812571")],
)
def test_a_partition_tells_that_the_table_was_altered(other: PartitionInfo) -> None:
    """By another clause of its own, or because it was altered itself."""
    table = with_partitions(described(), [partition(), other])
    assert table.was_altered and not tells_bucket(table, {"id"})


def test_the_mark_of_alter_table() -> None:
    """Then all buckets count on Hive 3 and 4, whose readers open them; Hive 2 opens those of the table."""
    table = described(last_modified_time="1795812571")
    assert table.was_altered and not tells_bucket(table, {"id"}) and table.keeps_misplaced_rows
    assert table.bucket_limit == MAX_BUCKETS
    assert described(AcidVersion.V1_SPLIT, last_modified_time="1").bucket_limit == 4
    assert AcidTableSerializer.decode(AcidTableSerializer.encode(table)) == table


@pytest.mark.parametrize(
    ("version", "asked", "setting", "expected"),
    [
        (AcidVersion.V2_HIVE3, {}, "", False),
        (AcidVersion.V2_HIVE3, {}, "true", True),
        (AcidVersion.V2_HIVE3, {"orc.force.positional.evolution": "TRUE"}, "", True),
        (AcidVersion.V2_HIVE3, {"orc.force.positional.evolution": "false"}, "true", False),
        (AcidVersion.V1_LEGACY, {"orc.force.positional.evolution": "true"}, "", True),
        (AcidVersion.V2_HIVE4, {}, "", True),
        (AcidVersion.V2_HIVE4, {"orc.force.positional.evolution": "false"}, "", True),
        (AcidVersion.V2_HIVE4, {}, "false", False),
    ],
)
def test_columns_by_position_or_by_name(
    version: AcidVersion, asked: dict[str, str], setting: str, expected: bool
) -> None:
    """Hive 2.3 and 3.1 obey the table before the setting, Hive 4 the setting alone."""
    info = TableInfo("d", "t", (ColumnInfo("id", "int"),), location="file:/w/t", parameters=asked)
    table = describe(
        info,
        version,
        TableRole.SOURCE,
        create_partitions=False,
        time_zone=None,
        positional_evolution=setting,
    )
    assert table.matches_columns_by_position is expected
