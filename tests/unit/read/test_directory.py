from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from metastore_client.valid_ids import NO_OPEN_ID, ValidTxnList, ValidWriteIdList
from mutation_api.errors import ConfigurationError, DirectoryStateError
from mutation_api.format.layout import AcidVersion
from mutation_api.read.directory_scan import open_directory
from mutation_api.read.table_scan import TableScan
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn
from tests.unit.read.scan_cases import DAYS, SCHEMA, partitioned_directory, plain_view

GOLDEN_V4 = Path(__file__).parents[2] / "golden" / "acid_v4" / "bucketed_minor" / "data"


def test_the_files_tell_partitions_and_version(tmp_path: Path) -> None:
    """Keys of the directories are strings; files without a mark of a later Hive were written by Hive 2."""
    path = partitioned_directory(tmp_path)
    view = open_directory(path, SCHEMA)
    assert view.table.partition_keys == (AcidColumn("ds", "string"), AcidColumn("hr", "string"))
    assert sorted(view.locations) == sorted(f"ds={day}/hr=01" for day in DAYS)
    assert view.locations[f"ds={DAYS[0]}/hr=01"] == Location.given(path) / f"ds={DAYS[0]}/hr=01"
    assert view.table.version is AcidVersion.V1_LEGACY
    assert view.valid_ids == view.valid_txns == ValidTxnList.everything()
    later = open_directory(GOLDEN_V4, SCHEMA)
    assert (later.table.version, later.valid_ids) == (AcidVersion.V2_HIVE4, ValidWriteIdList(NO_OPEN_ID))


def test_lists_of_valid_ids_are_texts_or_values() -> None:
    """Both limit the visible rows."""
    text = "d.t:2:9223372036854775807::"
    views = [
        open_directory(GOLDEN_V4, SCHEMA, valid_write_ids=given, valid_txns=txns)
        for given, txns in (
            (text, "6:9223372036854775807::"),
            (ValidWriteIdList.parse(text), ValidTxnList(6, (), NO_OPEN_ID)),
        )
    ]
    assert views[0] == views[1]
    assert TableScan(views[0]).to_arrow().num_rows == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"schema": "id"}, "schema 'id'"),
        ({"partition_schema": "ds strin"}, "schema 'ds strin'"),
        ({"valid_txns": "x"}, "valid_txns: not a list of valid transactions: 'x'"),
        (
            {"valid_write_ids": "x", "acid_version": "2"},
            "valid_write_ids: not a list of valid write ids: 'x'",
        ),
        (
            {"valid_write_ids": "d.t:1:1::"},
            "valid_write_ids: .* is of version 1.* pass valid_txns, or acid_v",
        ),
        ({"acid_version": "3"}, "acid_version '3': it must be one of 1, 2, auto"),
        ({"transactional_properties": "full"}, "transactional_properties 'full': it must be one of legacy"),
        (
            {"acid_version": "2", "transactional_properties": "legacy"},
            "acid_version 2 does not support transactional_properties legacy",
        ),
        ({"num_buckets": 0}, "num_buckets 0"),
        ({"location": "file://elsewhere/x"}, "location file://elsewhere/x: a local location must not name"),
    ],
)
def test_refusals_name_the_argument(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    """Arguments that cannot be parsed, or do not fit the files."""
    given = {"location": partitioned_directory(tmp_path), "schema": SCHEMA} | arguments
    with pytest.raises(ConfigurationError, match=message):
        open_directory(**given)


def test_other_partition_keys_are_refused(tmp_path: Path) -> None:
    """The names of the directories decide; an unpartitioned table has no keys."""
    with pytest.raises(DirectoryStateError, match=r"partition keys ds, hr, but partition_schema has hr, ds"):
        open_directory(partitioned_directory(tmp_path), SCHEMA, partition_schema="hr int, ds date")
    with pytest.raises(DirectoryStateError, match=r"partition keys \(none\), but partition_schema has ds"):
        open_directory(plain_view(tmp_path).table.location, SCHEMA, partition_schema="ds date")
