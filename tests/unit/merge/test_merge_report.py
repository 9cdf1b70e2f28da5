"""Counts of a merge: sums, dictionary, table."""

from __future__ import annotations

import dataclasses
import json
from datetime import date
from decimal import Decimal

import pyarrow as pa

from mutation_api.merge.merge_report import MergeCounts, MergeReport, Share
from mutation_api.merge.preview import ForeignLock, Preview, SampleRow, row_values
from mutation_api.write.forecast import ApplySummary, Forecast, GroupCount

REPORT = MergeReport.of(
    "d.t",
    [("ds=a", "inserted", 3), ("ds=b", "updated", 1200), ("ds=a", "moved", 1), ("ds=b", "unchanged", 7)],
    is_dry_run=True,
    new_partitions=["ds=a"],
)
GROUPS = (GroupCount("ds=a", 0, 3), GroupCount("ds=b", 1, 1, 200, 0), GroupCount("ds=b", 3, 0, 1000, 1))
LOCK = ForeignLock(17, "etl", "host", "SHARED_WRITE", "ACQUIRED", "ds=a")
MOVED = SampleRow("moved", "ds=a", '{"id":1}', {"id": 1, "ds": "a", "n": None}, {"id": 1, "ds": "b", "n": 2})
DRY_RUN = dataclasses.replace(REPORT, preview=Preview(Forecast(GROUPS, 5, 1_234_567), (LOCK,), (MOVED,)))


def test_counts_add_up() -> None:
    """By partition and in all; unchanged rows are not written."""
    assert REPORT.partitions["ds=a"] == MergeCounts(inserted=3, moved=1)
    assert REPORT.total == MergeCounts(inserted=3, updated=1200, moved=1, unchanged=7)
    assert REPORT.total.changed == 1204


def test_programs_get_plain_values() -> None:
    """The dictionary survives JSON, whatever the sample rows hold."""
    (values,) = row_values(
        pa.array(
            [
                {
                    "bytes": b"\xff\x00",
                    "date": date(2024, 1, 2),
                    "price": Decimal("100.00"),
                    "nan": float("nan"),
                    "nested": [(3, [Decimal("0.10"), None])],
                }
            ],
            pa.struct(
                [
                    ("bytes", pa.binary()),
                    ("date", pa.date32()),
                    ("price", pa.decimal128(10, 2)),
                    ("nan", pa.float64()),
                    ("nested", pa.map_(pa.int32(), pa.list_(pa.decimal128(3, 2)))),
                ]
            ),
        )
    )
    inserted = SampleRow("inserted", "", None, None, values)
    found = dataclasses.replace(
        REPORT, preview=Preview(Forecast(GROUPS, 5, 9), (LOCK,), (MOVED, inserted))
    ).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["dry_run"], found["updated"], found["new_partitions"]) == (True, 1200, ["ds=a"])
    assert (found["file_count"], found["byte_count"]) == (5, 9)
    assert found["samples"][1]["after"] == {  # type: ignore[index]
        "bytes": "/wA=",
        "date": "2024-01-02",
        "price": "100",
        "nan": "NaN",
        "nested": [[3, ["0.1", None]]],
    }
    assert found["locks"] == [
        {
            "txn_id": 17,
            "user": "etl",
            "hostname": "host",
            "type": "SHARED_WRITE",
            "state": "ACQUIRED",
            "partition": "ds=a",
        }
    ]


def test_it_prints_as_a_table() -> None:
    """The partition with the most changes first, a bar each, new ones marked."""
    assert str(REPORT).splitlines() == [
        "d.t: would merge 3 inserted, 1,200 updated, 0 deleted, 1 moved, 7 unchanged",
        f"  ds=b {'█' * 20} 0 inserted, 1,200 updated, 0 deleted, 0 moved, 7 unchanged",
        f"  ds=a {' ' * 20} 3 inserted, 0 updated, 0 deleted, 1 moved, 0 unchanged (new)",
        "  new partition: ds=a",
    ]


def test_a_dry_run_tells_what_it_would_write() -> None:
    """Files, skew, locks of others and samples follow the table."""
    assert str(DRY_RUN).splitlines()[4:] == [
        "  would write 5 files, about 1.2 MB (estimated)",
        "  biggest: ds=b, bucket 3: 83 % of the rows",
        "  lock: transaction 17 (etl@host) holds SHARED_WRITE on ds=a: if both change rows of the same "
        "partition, the commit of the second is refused",
        '  moved in ds=a {"id":1}: ds "a" → "b", n NULL → 2',
    ]


def test_the_biggest_parts() -> None:
    """By rows, then by name; shares are of all changes."""
    assert DRY_RUN.biggest_partitions == (
        Share("ds=b", None, 1202, 1202 / 1205),
        Share("ds=a", None, 3, 3 / 1205),
    )
    assert [(s.partition, s.bucket) for s in DRY_RUN.biggest_buckets] == [
        ("ds=b", 3),
        ("ds=b", 1),
        ("ds=a", 0),
    ]
    assert REPORT.biggest_buckets == ()
    assert str(Share(None, None, 1, 1.0)) == "the table: 100 %"


def test_what_was_written_counts_after_a_merge() -> None:
    """Files and bytes of the writer."""
    written = ApplySummary("d.t", 1, 3, 0, 0, ("",), 1, 1, 640, 0.0, 1.0)
    report = MergeReport.of("d.t", [("", "inserted", 3)], is_dry_run=False, written=written)
    assert (report.file_count, report.byte_count) == (1, 640)
    assert str(report).splitlines()[1:] == ["  wrote 1 file, 640 bytes"]


def test_nothing_to_do() -> None:
    """A dry run without changes has no skew, and no division by zero."""
    report = MergeReport.of("d.t", [], is_dry_run=True, preview=Preview(Forecast((), 0, 0)))
    assert str(report).splitlines()[1:] == ["  would write 0 files, about 0 bytes (estimated)"]
    assert report.to_dict()["biggest_buckets"] == []


def test_many_partitions_are_cut() -> None:
    """Twenty are shown, and five of the new ones."""
    names = [f"ds={n:02}" for n in range(23)]
    many = MergeReport.of(
        "d.t", [(name, "deleted", 1) for name in names], is_dry_run=False, new_partitions=names
    )
    assert str(many).splitlines()[-2:] == [
        "  … and 3 more partitions",
        "  new partitions: ds=00, ds=01, ds=02, ds=03, ds=04, … (23)",
    ]
