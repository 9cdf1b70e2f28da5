"""Which partitions, buckets and keys a keyed snapshot looks at."""

from __future__ import annotations

import dataclasses
import datetime
import pickle

import pyarrow as pa
import pytest

from mutation_api.acid.bucket_resolver import BucketIdResolver
from mutation_api.acid.version import AcidVersion
from mutation_api.errors import RecordLayoutError
from mutation_api.orc.event_reader import EventFile, EventFileKind
from mutation_api.orc.key_filter import KeyFilter
from mutation_api.orc.snapshot_reader import SnapshotSplit
from mutation_api.spark.key_groups import KeyGroups, group_keys
from mutation_api.table.acid_table import AcidColumn, AcidTable

BUCKETS = 8
TABLE = AcidTable(
    database="d",
    name="t",
    location="/t",
    columns=(AcidColumn("id", "int"), AcidColumn("x", "double"), AcidColumn("l", "array<int>")),
    partition_keys=(AcidColumn("ds", "string"), AcidColumn("hr", "int")),
    num_buckets=BUCKETS,
    bucket_columns=("id",),
    version=AcidVersion.V2_HIVE4,
    bucketing_version=2,
)
NAMES = ["ds=a/hr=1", "ds=a/hr=01", "ds=b/hr=1", "ds=__HIVE_DEFAULT_PARTITION__/hr=1"]


def ints(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int32())


def split_of(
    name: str, bucket_id: int, kind: EventFileKind = EventFileKind.BASE, table: AcidTable = TABLE
) -> SnapshotSplit:
    file = EventFile("f", kind, bucket_id, 0, 1)
    return SnapshotSplit(name, table.location, bucket_id, (file,))


def ids_for(groups: KeyGroups, split: SnapshotSplit) -> list[int | None]:
    key_filter = groups.filter_for(split)
    assert key_filter is not None
    return sorted(key_filter.keys.column("id").to_pylist(), key=repr)


def test_partitions_are_those_of_the_keys() -> None:
    """By value, whatever the spelling; NULL is the default partition, with NULL = NULL only."""
    keys = pa.table({"HR": ints(1, 1, 2), "Ds": ["a", None, "b"]})
    for null_safe, expected in ((False, NAMES[:2]), (True, [*NAMES[:2], NAMES[3]])):
        groups = group_keys(TABLE, keys, NAMES, null_safe=null_safe)
        assert [name for name in NAMES if groups.has_partition(name)] == expected
        assert groups.filter_for(split_of(NAMES[0], 0)) is None


def test_a_split_is_asked_for_the_keys_of_its_partition_and_bucket() -> None:
    """Also after a journey to a worker. Together the buckets have all keys, each in the hash's."""
    ids = list(range(100))
    keys = pa.table({"ds": ["a", "b"] * 50, "id": ints(*ids)})
    groups = pickle.loads(pickle.dumps(group_keys(TABLE, keys, NAMES, null_safe=False)))
    expected = BucketIdResolver(TABLE).resolve(keys).to_pylist()
    for bucket in range(BUCKETS):
        found = ids_for(groups, split_of(NAMES[0], bucket))
        assert found == [n for n in sorted(ids, key=repr) if n % 2 == 0 and expected[n] == bucket]
    assert not groups.has_split(split_of(NAMES[3], 0))


def test_buckets_without_a_key_are_left_out() -> None:
    """One key, one bucket; but plain files, and buckets that no hash gives, may hold any row."""
    groups = group_keys(TABLE, pa.table({"id": ints(7)}), NAMES, null_safe=False)
    splits = [split_of(NAMES[0], bucket) for bucket in range(BUCKETS)]
    assert sum(groups.has_split(split) for split in splits) == 1
    for bucket in range(BUCKETS):
        assert groups.has_split(split_of(NAMES[0], bucket, EventFileKind.ORIGINAL))
    assert groups.has_split(split_of(NAMES[0], BUCKETS))
    assert groups.has_split(split_of(NAMES[0], -1))


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({"version": AcidVersion.V2_HIVE3}, {"id": ints(7)}),
        ({"bucket_columns": ("x",)}, {"x": [0.0]}),
        ({"bucket_columns": ("id", "x")}, {"id": ints(7)}),
        ({"bucket_columns": ()}, {"id": ints(7)}),
    ],
)
def test_buckets_that_tell_nothing_are_all_read(change: dict[str, object], keys: dict[str, pa.Array]) -> None:
    """Hive 3.1 misplaces rows, -0.0 hashes unlike 0.0, half a bucket key, no buckets."""
    table = dataclasses.replace(TABLE, **change)  # type: ignore[arg-type]
    groups = group_keys(table, pa.table(keys), NAMES, null_safe=False)
    assert all(groups.has_split(split_of(NAMES[0], bucket)) for bucket in range(BUCKETS))


def test_a_key_that_the_column_cannot_hold_is_no_error() -> None:
    """It equals no row, and the others are still found."""
    table = dataclasses.replace(TABLE, columns=(AcidColumn("id", "date"),))
    far = pa.array([3_000_000], pa.int32()).cast(pa.date32())
    near = pa.array([datetime.date(2020, 1, 1)])
    keys = pa.table({"id": pa.chunked_array([far, near])})
    groups = group_keys(table, keys, NAMES, null_safe=False)
    key_filter = groups.filter_for(split_of(NAMES[0], 0))
    assert isinstance(key_filter, KeyFilter)
    assert key_filter.find([near]).tolist() == [0]


def test_no_keys_meet_nothing() -> None:
    """An empty source."""
    for keys in (pa.table({"id": ints()}), pa.table({"hr": ints()}), pa.table({"id": ints(), "hr": ints()})):
        groups = group_keys(TABLE, keys, NAMES, null_safe=True)
        assert not any(groups.has_partition(name) for name in NAMES)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (pa.table({"nope": [1]}), r"keys \['nope'\]: each must be a column of the table"),
        (pa.table([[1], [1]], names=["id", "ID"]), r"keys \['id', 'id'\].* come once"),
        (pa.table({}), r"keys \[\]"),
        (pa.table({"id": [1]}), "keys of id int are int64: give them as int32"),
        (pa.table({"hr": ["1"]}), "keys of hr int are string: give them as int32"),
        (pa.table({"l": pa.array([[1]], pa.list_(pa.int32()))}), "'l': a list.* cannot be a key"),
    ],
)
def test_what_is_no_key_is_refused(keys: pa.Table, message: str) -> None:
    """Before anything is listed."""
    with pytest.raises(RecordLayoutError, match=message):
        group_keys(TABLE, keys, NAMES, null_safe=False)
