"""The partitions that a keyed snapshot reads, and the keys that it looks for there."""

from __future__ import annotations

import dataclasses
import datetime
import pickle

import pyarrow as pa
import pytest

from mutation_api.errors import RecordLayoutError
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.read.key_groups import group_keys
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.bucket_resolver import BucketIdResolver

TABLE = AcidTable(
    database="d",
    name="t",
    location=Location.parse("file:/t"),
    columns=(AcidColumn("id", "int"), AcidColumn("x", "double"), AcidColumn("l", "array<int>")),
    partition_keys=(AcidColumn("ds", "string"), AcidColumn("hr", "int")),
    num_buckets=8,
    bucket_columns=("id",),
    version=AcidVersion.V2_HIVE4,
    bucketing_version=2,
)
NAMES = ["ds=a/hr=1", "ds=a/hr=01", "ds=b/hr=1", "ds=__HIVE_DEFAULT_PARTITION__/hr=1"]


def ints(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int32())


def test_partitions_are_those_of_the_keys() -> None:
    """By value, whatever the spelling; NULL is the default partition, with NULL = NULL only."""
    keys = pa.table({"HR": ints(1, 1, 2), "Ds": ["a", None, "b"]})
    for null_safe, expected in ((False, NAMES[:2]), (True, [*NAMES[:2], NAMES[3]])):
        groups = group_keys(TABLE, keys, NAMES, null_safe=null_safe)
        assert [name for name in NAMES if groups.has_partition(name)] == expected
        assert groups.filter_for(NAMES[0]) is None


def test_a_partition_is_asked_for_its_own_keys() -> None:
    """Also after pickling; keys without partition columns are looked for in every partition."""
    keys = pa.table({"ds": ["a", "b", None] * 30, "id": ints(*range(90))})
    groups = pickle.loads(pickle.dumps(group_keys(TABLE, keys, NAMES, null_safe=False)))
    for name, expected in ((NAMES[0], range(0, 90, 3)), (NAMES[2], range(1, 90, 3))):
        key_filter = groups.filter_for(name)
        assert key_filter is not None
        assert key_filter.keys.to_pydict() == {"id": list(expected)}
    assert not groups.has_partition(NAMES[3])
    everywhere = group_keys(TABLE, keys.select(["id"]), NAMES, null_safe=False)
    assert everywhere.filter_for(NAMES[0]) is everywhere.filter_for(NAMES[3])
    assert all(everywhere.has_partition(name) for name in NAMES)


def test_rows_without_a_key() -> None:
    """Lie in every partition, but in one of which every row has a key."""
    keys = pa.table({"ds": ["a"], "hr": ints(1)})
    others = group_keys(TABLE, keys, NAMES, null_safe=False, excludes=True)
    assert [name for name in NAMES if others.has_partition(name)] == NAMES[2:]
    assert others.filter_for(NAMES[2]) is None
    some = group_keys(TABLE, keys.append_column("id", ints(7)), NAMES, null_safe=False, excludes=True)
    some = pickle.loads(pickle.dumps(some))
    assert all(some.has_partition(name) for name in NAMES)
    assert some.filter_for(NAMES[3]) is None
    key_filter = some.filter_for(NAMES[1])
    assert key_filter is not None and key_filter.excludes and key_filter.keys.to_pydict() == {"id": [7]}


def split_of(name: str, bucket_id: int, kind: EventFileKind = EventFileKind.BASE) -> SnapshotSplit:
    return SnapshotSplit(name, TABLE.location, bucket_id, (EventFile("f", kind, bucket_id, 0, 1),))


def test_buckets_to_which_no_key_hashes_are_left_out() -> None:
    """The others are checked then. Plain files, and those outside the table's buckets, may hold any row."""
    keys = pa.table({"ds": ["a", "a", *["b"] * 100], "hr": ints(*[1] * 102), "id": ints(7, 8, *range(100))})
    groups = pickle.loads(pickle.dumps(group_keys(TABLE, keys, NAMES, null_safe=False)))
    expected = set(BucketIdResolver(TABLE).resolve(pa.table({"id": ints(7, 8)})).to_pylist())
    assert len(expected) == 2
    for bucket in range(8):
        split = split_of(NAMES[0], bucket)
        assert groups.has_split(split) == (bucket in expected)
        assert groups.checks_placement(split)
        plain = split_of(NAMES[0], bucket, EventFileKind.ORIGINAL)
        assert groups.has_split(plain) and not groups.checks_placement(plain)
        everywhere = split_of(NAMES[2], bucket)
        assert groups.has_split(everywhere) and not groups.checks_placement(everywhere)
    for stray in (split_of(NAMES[0], -1), split_of(NAMES[0], 8)):
        assert groups.has_split(stray) and not groups.checks_placement(stray)


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({"version": AcidVersion.V2_HIVE3}, {"id": ints(7)}),
        ({"bucket_columns": ("x",)}, {"x": pa.array([0.0])}),
        ({"bucket_columns": ("id", "x")}, {"id": ints(7)}),
        ({"bucket_columns": (), "num_buckets": 0}, {"id": ints(7)}),
        (
            {"columns": (AcidColumn("id", "date"),)},
            {"id": pa.array([datetime.date(9999, 12, 31).toordinal() - 719163 + 1], pa.date32())},
        ),
    ],
)
def test_buckets_that_tell_nothing_are_all_read(change: dict[str, object], keys: dict[str, pa.Array]) -> None:
    """Hive 3.1 misplaces rows, -0.0 hashes unlike 0.0, half a bucket key, no buckets, the year 10000."""
    table = dataclasses.replace(TABLE, **change)  # type: ignore[arg-type]
    for each, prunes in ((table, True), (TABLE, False)):
        given = keys if each is table else {"id": ints(7)}
        groups = group_keys(each, pa.table(given), NAMES, null_safe=False, prunes_buckets=prunes)
        for bucket in range(8):
            split = split_of(NAMES[0], bucket)
            assert groups.has_split(split) and not groups.checks_placement(split)


def test_no_keys_meet_nothing() -> None:
    """An empty source."""
    for keys in (pa.table({"id": ints()}), pa.table({"hr": ints()}), pa.table({"id": ints(), "hr": ints()})):
        groups = group_keys(TABLE, keys, NAMES, null_safe=True)
        assert not any(groups.has_partition(name) for name in NAMES)
        others = group_keys(TABLE, keys, NAMES, null_safe=True, excludes=True)
        assert all(others.has_partition(name) and others.filter_for(name) is None for name in NAMES)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (pa.table({"nope": [1]}), r"keys \['nope'\]: each must be a column of the table"),
        (pa.table([[1], [1]], names=["id", "ID"]), r"keys \['id', 'id'\].* occur once"),
        (pa.table({}), r"keys \[\]"),
        (pa.table({"id": [1]}), "keys of id int have the Arrow type int64: convert them to int32"),
        (pa.table({"hr": ["1"]}), "keys of hr int have the Arrow type string: convert them to int32"),
        (pa.table({"l": pa.array([[1]], pa.list_(pa.int32()))}), "'l': a list.* cannot be a key"),
    ],
)
def test_what_is_no_key_is_refused(keys: pa.Table, message: str) -> None:
    """Before anything is listed."""
    with pytest.raises(RecordLayoutError, match=message):
        group_keys(TABLE, keys, NAMES, null_safe=False)
