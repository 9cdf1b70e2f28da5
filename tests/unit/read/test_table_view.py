from __future__ import annotations

import dataclasses

import pytest

from metastore_client.model import PartitionInfo
from metastore_client.valid_ids import ValidIdList, ValidTxnList, ValidWriteIdList
from mutation_api.format.layout import AcidVersion
from mutation_api.read.table_view import open_table
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable

ELSEWHERE = Location.parse("hdfs://other/hr=2")
TABLE = AcidTable(
    database="d",
    name="t",
    location=Location.parse("/warehouse/t"),
    columns=(AcidColumn("id", "int"),),
    partition_keys=(),
    num_buckets=1,
    bucket_columns=(),
    version=AcidVersion.V2_HIVE4,
)


@dataclasses.dataclass
class Source:
    """The view that an open snapshot has of one table."""

    info: AcidTable
    names: tuple[str, ...] = ()

    @property
    def valid_txn_list(self) -> ValidTxnList:
        return ValidTxnList(9)

    def valid_ids(self, full_name: str) -> ValidIdList:
        return ValidWriteIdList(5, table=full_name)

    def check(self) -> None:
        raise AssertionError("checked when rows are read")

    def table(self, full_name: str) -> AcidTable:
        return self.info

    def partitions(self, full_name: str) -> list[PartitionInfo]:
        return [PartitionInfo("d", "t", (), name, str(self.info.location / name)) for name in self.names]


@pytest.mark.parametrize("given", ["d.t", "D.T"])
def test_a_view_has_what_the_source_says(given: str) -> None:
    """Descriptor, ids and transactions; without partition keys the table's own location."""
    view = open_table(Source(TABLE), given)
    assert (view.table, view.locations) == (TABLE, {"": TABLE.location})
    assert (view.valid_ids, view.valid_txns) == (ValidWriteIdList(5, table="d.t"), ValidTxnList(9))


def test_partitions_lie_where_the_descriptor_says() -> None:
    """Below the table's directory, or elsewhere; a table with partition keys may have no partitions."""
    table = dataclasses.replace(
        TABLE, partition_keys=(AcidColumn("hr", "int"),), partition_locations={"hr=2": ELSEWHERE}
    )
    view = open_table(Source(table, ("hr=1", "hr=2")), "d.t")
    assert view.locations == {"hr=1": table.location / "hr=1", "hr=2": ELSEWHERE}
    assert open_table(Source(table), "d.t").locations == {}
