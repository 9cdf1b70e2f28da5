"""The snapshot reader on version 2: what Hive 3 and 4 lay out differently, and what is refused there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_client.valid_ids import ValidIdList, ValidTxnList, ValidWriteIdList
from mutation_api.errors import CorruptFileError, DirectoryStateError, RecordLayoutError
from mutation_api.format.event import bucket_property
from mutation_api.format.layout import BASE_MARKER, AcidVersion
from mutation_api.read.partition_plan import plan_splits
from mutation_api.read.snapshot_reader import read_split, row_id_type, snapshot_schema
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from tests.support.acid_files import ROW_TYPE, Event, inserts, write_events, write_orc

HIVE3, HIVE4 = AcidVersion.V2_HIVE3, AcidVersion.V2_HIVE4
VERSIONS = (HIVE3, HIVE4)
BOTH = pytest.mark.parametrize("version", VERSIONS)
ALL = ValidWriteIdList(2**63 - 1)
ALL_TXNS = ValidTxnList.everything()
DELETE = 2
B0, B1 = bucket_property(0), bucket_property(1)


def table_at(
    path: Path,
    version: AcidVersion = HIVE4,
    columns: str = "id bigint,msg string",
    bucket_columns: tuple[str, ...] = ("id",),
) -> AcidTable:
    return AcidTable(
        database="d",
        name="t",
        location=Location.given(path),
        columns=tuple(AcidColumn(*c.split(" ", 1)) for c in columns.split(",")),
        partition_keys=(),
        num_buckets=2 if bucket_columns else -1,
        bucket_columns=bucket_columns,
        version=version,
        bucketing_version=2,
    )


def read(
    table: AcidTable, valid: ValidIdList = ALL, valid_txns: ValidTxnList | None = ALL_TXNS
) -> list[tuple[Any, ...]]:
    """Rows as ((write id, bucket property, row id), values…), sorted."""
    rows = []
    row_ids = table.version.has_row_ids
    for split in plan_splits(table, "", table.location, valid, valid_txns):
        for batch in read_split(table, split, valid, row_ids=row_ids):
            rows += [tuple(row.values()) for row in batch.to_pylist()]
    return sorted((tuple(row[0].values()), *row[1:]) for row in rows) if row_ids else sorted(rows)


def ids(rows: list[tuple[Any, ...]]) -> list[int]:
    return [row[1] for row in rows]


def delete(write_id: int, row: tuple[int, int, int]) -> Event:
    return (DELETE, *row, write_id, None)


def plain(path: Path, *values: int) -> None:
    write_orc(path, pa.table({"id": pa.array(values, pa.int64()), "msg": [f"m{v}" for v in values]}))


@BOTH
def test_rows_of_all_statements_minus_deletes(tmp_path: Path, version: AcidVersion) -> None:
    """The property holds the statement; ROW__ID's fields have Hive's names; exceptions are not seen."""
    write_events(
        tmp_path / "delta_0000001_0000001_0000/bucket_00000", inserts(1, B0, 0, [(1, "a"), (2, "b")])
    )
    write_events(tmp_path / "delta_0000001_0000001_0000/_orc_acid_version", [])
    second = bucket_property(0, 1)
    write_events(tmp_path / "delta_0000002_0000002_0001/bucket_00000", inserts(2, second, 0, [(2, "B")]))
    write_events(tmp_path / "delete_delta_0000002_0000002_0000/bucket_00000", [delete(2, (1, B0, 1))])
    write_events(tmp_path / "delete_delta_0000003_0000003_0000/bucket_00000", [delete(3, (2, second, 0))])
    table = table_at(tmp_path, version)
    assert read(table) == [((1, B0, 0), 1, "a")]
    assert read(table, ValidWriteIdList(3, (3,))) == [((1, B0, 0), 1, "a"), ((2, second, 0), 2, "B")]
    assert ids(read(table, ValidWriteIdList(1))) == [1, 2]
    assert row_id_type(version).names == ["writeid", "bucketid", "rowid"]
    assert snapshot_schema(version, table.columns) is snapshot_schema(version, table.columns)


def test_what_hive_2_wrote_keeps_its_plain_bucket(tmp_path: Path) -> None:
    """Bases of an upgraded table; their rows are deleted by the plain id."""
    rows = [*inserts(1, 1, 0, [(1, "a"), (2, "b")]), *inserts(7, B1, 0, [(3, "c")])]
    write_events(tmp_path / "base_0000007/bucket_00001", rows)
    (tmp_path / "base_0000007" / BASE_MARKER).write_text('{"thisFileVersion":"0","dataFormat":"compacted"}')
    write_events(tmp_path / "delete_delta_0000008_0000008_0000/bucket_00001", [delete(8, (1, 1, 1))])
    assert read(table_at(tmp_path, HIVE3)) == [((1, 1, 0), 1, "a"), ((7, B1, 0), 3, "c")]


@BOTH
@pytest.mark.parametrize("operation", [1, 2])
def test_changes_of_an_upgraded_legacy_table_are_refused(
    tmp_path: Path, version: AcidVersion, operation: int
) -> None:
    """Hive would show both versions of a row, or a row of nulls; the advice is to compact before."""
    row = {"id": 1, "msg": "A"} if operation == 1 else None
    write_events(tmp_path / "delta_0000002_0000002/bucket_00000", [(operation, 1, 0, 0, 2, row)])
    with pytest.raises(DirectoryStateError, match=r"delta_0000002_0000002/.*before the upgrade"):
        read(table_at(tmp_path, version))


@BOTH
def test_plain_files_are_numbered_through(tmp_path: Path, version: AcidVersion) -> None:
    """Original files of one bucket by path, with copies and directories; loaded ones in their directory."""
    plain(tmp_path / "000000_0", 1, 2)
    plain(tmp_path / "000000_0_copy_1", 3)
    plain(tmp_path / "sub" / "000000_1", 4)
    plain(tmp_path / "000001_0", 5)
    plain(tmp_path / "delta_10000001_10000001_0003" / "000000_0", 6)
    plain(tmp_path / "delta_10000001_10000001_0003" / "000000_0_copy_1", 7)
    deletes = [delete(10000002, (0, B0, 1)), delete(10000002, (0, B0, 3))]
    deletes.append(delete(10000002, (10000001, bucket_property(0, 3), 0)))
    write_events(tmp_path / "delete_delta_10000002_10000002_0000/bucket_00000", deletes)
    assert read(table_at(tmp_path, version)) == [
        ((0, B0, 0), 1, "m1"),
        ((0, B0, 2), 3, "m3"),
        ((0, B1, 0), 5, "m5"),
        ((10000001, bucket_property(0, 3), 1), 7, "m7"),
    ]
    plain(tmp_path / "base_10000003" / "000001_0", 8)
    assert read(table_at(tmp_path, version)) == [((10000003, B1, 0), 8, "m8")]


def test_plain_files_in_many_stripes_are_numbered_through(tmp_path: Path) -> None:
    """Deletes meet rows of the second file, whatever stripes there are."""
    for name in ("000000_0", "000000_0_copy_1"):
        rows = {"id": pa.array(range(300), pa.int64()), "msg": ["x" * 900] * 300}
        write_orc(tmp_path / name, pa.table(rows))
    deletes = [delete(1, (0, B0, n)) for n in range(0, 600, 7)]
    write_events(tmp_path / "delete_delta_0000001_0000001_0000/bucket_00000", deletes)
    assert [row[0][2] for row in read(table_at(tmp_path))] == [n for n in range(600) if n % 7]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("part-0", "does not have a bucket in its name"),
        ("delta_0000001_0000002/000000_0", "is a plain file"),
        ("delete_delta_0000001_0000001/000000_0", "is a plain file"),
        ("delta_0000005_0000005/000000_0", "is a plain file"),
        ("999999_0", "its rows cannot have ROW__IDs"),
    ],
)
def test_plain_files_without_identity_are_refused(tmp_path: Path, path: str, message: str) -> None:
    """No bucket in the name, several write ids, deletes, beside events, a bucket beyond the limit."""
    plain(tmp_path / path, 1)
    write_events(tmp_path / "delta_0000005_0000005/bucket_00000", inserts(5, B0, 0, [(1, "a")]))
    with pytest.raises(DirectoryStateError, match=message):
        read(table_at(tmp_path))


def test_deletes_of_any_bucket_count_on_3_1_if_unbucketed(tmp_path: Path) -> None:
    """Only there; elsewhere Hive silently ignores them, so the file is refused."""
    for bucket, prop in ((0, B0), (1, B1)):
        rows = inserts(1, prop, 0, [(bucket * 10 + n, "a") for n in range(3)])
        write_events(tmp_path / f"delta_0000001_0000001_0000/bucket_0000{bucket}", rows)
    deletes = [delete(2, (1, B0, 1)), delete(2, (1, B1, 2))]
    write_events(tmp_path / "delete_delta_0000002_0000002_0000/bucket_00000", deletes)
    assert ids(read(table_at(tmp_path, HIVE3, bucket_columns=()))) == [0, 2, 10, 11]
    for version, bucket_columns in ((HIVE3, ("id",)), (HIVE4, ("id",)), (HIVE4, ())):
        with pytest.raises(DirectoryStateError, match=r"\(1, 536936448, 2\) of bucket 1, but .* bucket 0"):
            read(table_at(tmp_path, version, bucket_columns=bucket_columns))


@BOTH
def test_rows_and_properties_of_another_bucket_are_refused(tmp_path: Path, version: AcidVersion) -> None:
    """No delete would reach such rows; a property that nothing can decode is a damaged file."""
    path = tmp_path / "delta_0000001_0000001_0000/bucket_00000"
    write_events(path, inserts(1, B1, 0, [(1, "a")]))
    with pytest.raises(DirectoryStateError, match="of bucket 1, but the file belongs to bucket 0"):
        read(table_at(tmp_path, version))
    write_events(path, inserts(1, 2 << 29, 0, [(1, "a")]))
    with pytest.raises(CorruptFileError, match=r"\(1, 1073741824, 0\) has a bucket property"):
        read(table_at(tmp_path, version))


def test_attempts_are_known_to_hive_4_only(tmp_path: Path) -> None:
    """One file per bucket and directory; of two files it is unknown which was committed."""
    delta = tmp_path / "delta_0000001_0000001_0000"
    write_events(delta / "bucket_00000_1", inserts(1, B0, 0, [(1, "a")]))
    assert ids(read(table_at(tmp_path))) == [1]
    with pytest.raises(DirectoryStateError, match="bucket_00000_1 does not have a name of the form"):
        read(table_at(tmp_path, HIVE3))
    write_events(delta / "bucket_00000", inserts(1, B0, 0, [(1, "a")]))
    with pytest.raises(DirectoryStateError, match=r"bucket_00000 and .*_00000_1 both belong to bucket 0"):
        read(table_at(tmp_path))


def test_deletes_that_do_not_come_after_their_row_are_refused(tmp_path: Path) -> None:
    """Hive's readers disagree on them; an aborted one does not matter."""
    rows = inserts(3, bucket_property(0, 1), 0, [(1, "a"), (2, "b")])
    write_events(tmp_path / "delta_0000003_0000003_0001/bucket_00000", rows)
    row = (3, bucket_property(0, 1), 0)
    early = tmp_path / "delete_delta_0000002_0000002_0000/bucket_00000"
    write_events(early, [delete(2, row)])
    for version in (HIVE3, HIVE4):
        with pytest.raises(
            DirectoryStateError, match=r"bucket_00000 deletes row \(3, 536870913, 0\) under .* 2"
        ):
            read(table_at(tmp_path, version))
        assert ids(read(table_at(tmp_path, version), ValidWriteIdList(9, (2,)))) == [1, 2]
    early.unlink()
    for statement, is_refused in (("_0001", True), ("_0002", False)):
        path = tmp_path / f"delete_delta_0000003_0000003{statement}/bucket_00000"
        write_events(path, [delete(3, row)])
        assert ids(read(table_at(tmp_path, HIVE3))) == [2]
        if is_refused:
            with pytest.raises(DirectoryStateError, match="does not come after"):
                read(table_at(tmp_path))
        else:
            assert ids(read(table_at(tmp_path))) == [2]
        path.unlink()


def test_a_compacted_delta_may_delete_rows_that_it_inserted(tmp_path: Path) -> None:
    """Hive prunes deletes by directory; of a range of write ids it applies all."""
    write_events(tmp_path / "delta_0000001_0000004_v0000009/bucket_00000", inserts(3, B0, 0, [(1, "a")]))
    write_events(tmp_path / "delete_delta_0000001_0000004_v0000009/bucket_00000", [delete(4, (3, B0, 0))])
    assert read(table_at(tmp_path)) == []


def test_columns_go_by_position_on_hive_4_and_by_name_before(tmp_path: Path) -> None:
    """Also in plain files; columns added since are null, columns that are gone are passed over."""
    row_type = pa.struct([("ID", pa.int64()), ("x", pa.string()), ("old", pa.int32())])
    rows: list[Event] = [(0, 1, B0, 0, 1, {"ID": 7, "x": "a", "old": 1})]
    write_events(tmp_path / "delta_0000001_0000001_0000/bucket_00000", rows, row_type)
    write_orc(tmp_path / "000000_0", pa.table({"x": pa.array([8], pa.int64())}))
    columns = "id bigint,msg string"
    assert read(table_at(tmp_path, HIVE4, columns)) == [((0, B0, 0), 8, None), ((1, B0, 0), 7, "a")]
    assert read(table_at(tmp_path, HIVE3, "old int,ID bigint")) == [
        ((0, B0, 0), None, None),
        ((1, B0, 0), 1, 7),
    ]
    more = read(table_at(tmp_path, HIVE4, columns + ",old int,extra double"))
    assert more == [((0, B0, 0), 8, None, None, None), ((1, B0, 0), 7, "a", 1, None)]


@BOTH
def test_markers_decide_when_a_base_counts(tmp_path: Path, version: AcidVersion) -> None:
    """An overwritten base of a valid id counts though an older one is open; a compacted one does not."""
    write_events(tmp_path / "delta_0000001_0000001_0000/bucket_00000", inserts(1, B0, 0, [(1, "a")]))
    write_events(tmp_path / "base_0000003/bucket_00000", inserts(3, B0, 0, [(3, "c")]))
    open_2 = ValidWriteIdList(3, (2,), 2)
    assert ids(read(table_at(tmp_path, version), open_2)) == [3]
    marker = tmp_path / "base_0000003" / BASE_MARKER
    marker.write_text('{"thisFileVersion":"0","dataFormat":"compacted"}')
    with pytest.raises(DirectoryStateError, match="not enough history"):
        read(table_at(tmp_path, version), open_2)
    assert ids(read(table_at(tmp_path, version))) == [3]
    marker.write_text('{"thisFileVersion":"0","dataFormat":"truncated"}')
    if version is HIVE4:
        assert ids(read(table_at(tmp_path, version), open_2)) == [3]
    else:
        with pytest.raises(DirectoryStateError, match="dataFormat 'truncated'"):
            read(table_at(tmp_path, version))
    marker.write_text("{")
    with pytest.raises(CorruptFileError, match=BASE_MARKER):
        read(table_at(tmp_path, version))


@pytest.mark.parametrize("version", [AcidVersion.INSERT_ONLY_HIVE3, AcidVersion.INSERT_ONLY_HIVE4])
def test_insert_only_tables_are_read_by_directory(tmp_path: Path, version: AcidVersion) -> None:
    """Whole directories of visible write ids, files of any name, also below; there are no ROW__IDs."""
    plain(tmp_path / "delta_0000001_0000001_0000" / "000000_0", 1)
    plain(tmp_path / "delta_0000002_0000002_0000" / "HIVE_UNION_SUBDIR_1" / "part-0.orc", 2)
    plain(tmp_path / "delta_0000003_0000003_0000" / "000000_0", 3)
    plain(tmp_path / "delta_0000003_0000003_0000" / "_tmp.000000_0", 9)
    table = table_at(tmp_path, version)
    assert [row[0] for row in read(table)] == [1, 2, 3]
    assert [row[0] for row in read(table, ValidWriteIdList(3, (2,)))] == [1, 3]
    plain(tmp_path / "base_0000002" / "000000_0", 7)
    assert [row[0] for row in read(table)] == [3, 7]
    split = plan_splits(table, "", Location.given(tmp_path), ALL, ALL_TXNS)[0]
    with pytest.raises(RecordLayoutError, match="is insert-only: its rows have no ROW__ID"):
        next(read_split(table, split, ALL))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("000000_0", "outside every base"),
        ("delete_delta_0000001_0000001/bucket_00000", "must not have deletes"),
    ],
)
def test_what_an_insert_only_table_cannot_hold_is_refused(tmp_path: Path, path: str, message: str) -> None:
    """Hive ignores plain files beside the directories; deletes belong to another kind of table."""
    plain(tmp_path / path, 1)
    with pytest.raises(DirectoryStateError, match=message):
        read(table_at(tmp_path, AcidVersion.INSERT_ONLY_HIVE4))


def test_events_in_an_insert_only_table_are_refused(tmp_path: Path) -> None:
    """They would be read as rows of six columns."""
    write_events(tmp_path / "delta_0000001_0000001_0000/000000_0", inserts(1, B0, 0, [(1, "a")]), ROW_TYPE)
    with pytest.raises(DirectoryStateError, match="is an ACID file among files of plain rows"):
        read(table_at(tmp_path, AcidVersion.INSERT_ONLY_HIVE3))


def test_compaction_by_query_writes_lower_case_names(tmp_path: Path) -> None:
    """Hive 4 reads them; for earlier releases such a file is not an ACID file."""
    path = tmp_path / "delta_0000001_0000002/bucket_00000"
    write_events(path, inserts(1, B0, 0, [(1, "a"), (2, "b")]))
    events = pa.orc.read_table(str(path))
    write_orc(path, events.rename_columns([name.lower() for name in events.schema.names]))
    write_events(tmp_path / "delete_delta_0000003_0000003_0000/bucket_00000", [delete(3, (1, B0, 0))])
    assert read(table_at(tmp_path)) == [((1, B0, 1), 2, "b")]
    with pytest.raises(CorruptFileError, match="is not an ACID file"):
        read(table_at(tmp_path, HIVE3))


def test_a_float_that_became_a_double(tmp_path: Path) -> None:
    """Hive 3.1 uses its decimal text, Hive 4 its value."""
    row_type = pa.struct([("f", pa.float32())])
    values = [0.1, -2.5, float("inf"), None]
    rows: list[Event] = [(0, 1, B0, n, 1, {"f": value}) for n, value in enumerate(values)]
    write_events(tmp_path / "delta_0000001_0000001_0000/bucket_00000", rows, row_type)
    found = {
        version: [row[1] for row in read(table_at(tmp_path, version, "f double"))] for version in VERSIONS
    }
    assert found == {HIVE3: values, HIVE4: [0.10000000149011612, *values[1:]]}
