"""The names of files decide which units change, and how."""

from __future__ import annotations

import pytest

from metastore_client.valid_ids import ValidWriteIdList
from mutation_api.cdc.export.units import FILES_PER_UNIT, Unit, UnitChange, plan_units
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.storage.location import Location

HERE = Location.parse("/warehouse/t")
V2, LEGACY, PLAIN = AcidVersion.V2_HIVE4, AcidVersion.V1_LEGACY, AcidVersion.INSERT_ONLY_HIVE4
UNIT = Unit.of("", 0)
BASE, DELTA, DELETES, ORIGINAL = (
    EventFileKind.BASE,
    EventFileKind.DELTA,
    EventFileKind.DELETE_DELTA,
    EventFileKind.ORIGINAL,
)


def ids(last: int, *, without: str = "") -> ValidWriteIdList:
    """Write ids up to one."""
    return ValidWriteIdList.parse(f"db.t:{last}:9223372036854775807:{without}:")


def split(*files: tuple[str, EventFileKind, int, int]) -> SnapshotSplit:
    """A bucket with files in directories."""
    found = [
        EventFile(HERE / name / "bucket_00000" if name else HERE / "000000_0", kind, 0, first, last)
        for name, kind, first, last in files
    ]
    return SnapshotSplit("", HERE, 0, tuple(found))


OLD = ("base_0000003", BASE, 0, 3)


@pytest.mark.parametrize(
    ("files", "change", "is_gap", "version"),
    [
        ([OLD], None, False, V2),
        ([OLD, ("delta_0000006_0000006", DELTA, 6, 6)], UnitChange.APPEND, False, V2),
        ([OLD, ("delta_0000004_0000006", DELTA, 4, 6)], UnitChange.APPEND, False, V2),
        ([OLD, ("delete_delta_0000006_0000006", DELETES, 6, 6)], UnitChange.REWRITE, False, V2),
        ([OLD, ("delete_delta_0000004_0000005", DELETES, 4, 5)], None, False, V2),
        ([("base_0000006_v0000009", BASE, 0, 6)], UnitChange.REPLACE, True, V2),
        ([("base_0000006", ORIGINAL, 0, 6)], UnitChange.REPLACE, True, V2),
        ([("", ORIGINAL, 0, 0)], None, False, V2),
        ([("delta_0000006_0000006", DELTA, 6, 6)], UnitChange.REPLACE, True, V2),
        ([OLD, ("delta_0000006_0000006", DELTA, 6, 6)], UnitChange.REPLACE, False, LEGACY),
        ([OLD, ("delta_0000004_0000006", ORIGINAL, 4, 6)], UnitChange.REPLACE, True, PLAIN),
        ([OLD, ("delta_0000006_0000006", ORIGINAL, 6, 6)], UnitChange.APPEND, False, PLAIN),
    ],
)
def test_changes_of_a_unit(
    files: list[tuple[str, EventFileKind, int, int]],
    change: UnitChange | None,
    is_gap: bool,
    version: AcidVersion,
) -> None:
    """The target has seen 5, and the snapshot sees 6."""
    plans = plan_units([split(*files)], ids(5), ids(6), version, {UNIT: 1})
    assert [(plan.change, plan.is_gap) for plan in plans] == ([] if change is None else [(change, is_gap)])


def test_a_unit_with_many_files_is_replaced() -> None:
    """So their number has a limit."""
    new = split(OLD, ("delta_0000006_0000006", DELTA, 6, 6))
    (plan,) = plan_units([new], ids(5), ids(6), V2, {UNIT: FILES_PER_UNIT})
    assert (plan.change, plan.is_gap) == (UnitChange.REPLACE, False)


def test_a_unit_on_one_side_only() -> None:
    """One that Hive lost is removed; one that the target lacks is read, even if nothing seems new."""
    assert [each.change for each in plan_units([], ids(5), ids(5), V2, {UNIT: 2})] == [UnitChange.REMOVE]
    assert [each.change for each in plan_units([split(OLD)], ids(5), ids(5), V2, {})] == [UnitChange.REPLACE]


def test_an_id_that_committed_late_is_new() -> None:
    """It is below the highest one that the target has seen."""
    files = split(OLD, ("delta_0000004_0000004", DELTA, 4, 4), ("delta_0000005_0000005", DELTA, 5, 5))
    (plan,) = plan_units([files], ids(5, without="4"), ids(5), V2, {UNIT: 1})
    assert plan.change is UnitChange.APPEND


def test_a_path_names_its_unit() -> None:
    """Whatever is before it; other files have none."""
    for unit in (UNIT, Unit.of("day=a/hr=1", 7), Unit.of("x=1", -1)):
        path = unit.path("0" * 32)
        assert Unit.of_path(f"s3://bucket/data/{path}") == Unit.of_path(path) == unit
    assert Unit.of_path("part-0000.parquet") is None
    assert Unit.of("x=1", 0) != Unit.of("x=01", 0)
