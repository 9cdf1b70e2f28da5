"""Counts of a merge: sums, dictionary, table."""

from __future__ import annotations

import json

from mutation_api.changes.report import MergeCounts, MergeReport

REPORT = MergeReport.of(
    "d.t",
    [("ds=a", "inserted", 3), ("ds=b", "updated", 1200), ("ds=a", "moved", 1), ("ds=b", "unchanged", 7)],
    is_dry_run=True,
    new_partitions=["ds=a"],
)


def test_counts_add_up() -> None:
    """By partition and in all; unchanged rows are not written."""
    assert REPORT.partitions["ds=a"] == MergeCounts(inserted=3, moved=1)
    assert REPORT.total == MergeCounts(inserted=3, updated=1200, moved=1, unchanged=7)
    assert REPORT.total.changed == 1204


def test_programs_get_plain_values() -> None:
    """The dictionary survives JSON."""
    found = REPORT.to_dict()
    assert json.loads(json.dumps(found)) == found
    assert (found["dry_run"], found["updated"], found["new_partitions"]) == (True, 1200, ["ds=a"])


def test_it_prints_as_a_table() -> None:
    """The partition with the most changes first, a bar each, new ones marked."""
    assert str(REPORT).splitlines() == [
        "d.t: would merge 3 inserted, 1,200 updated, 0 deleted, 1 moved, 7 unchanged",
        f"  ds=b {'█' * 20} 0 inserted, 1,200 updated, 0 deleted, 0 moved, 7 unchanged",
        f"  ds=a {' ' * 20} 3 inserted, 0 updated, 0 deleted, 1 moved, 0 unchanged (new)",
    ]


def test_many_partitions_are_cut() -> None:
    """Twenty are shown."""
    many = MergeReport.of("d.t", [(f"ds={n:02}", "deleted", 1) for n in range(23)], is_dry_run=False)
    assert len(str(many).splitlines()) == 22
    assert str(many).splitlines()[-1] == "  … and 3 more partitions"
