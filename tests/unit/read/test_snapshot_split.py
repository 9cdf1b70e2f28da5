"""SnapshotSplit: its text form."""

from __future__ import annotations

import pytest

from mutation_api.errors import DirectoryStateError
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.storage.location import Location


def test_a_split_survives_its_text_form() -> None:
    """It is sent to workers as a line of JSON."""
    location = Location.given("/t/ds=é%3A")
    delta, base = location / "delta_0000001_0000001_0003", location / "base_0000000"
    files = (
        EventFile(base / "bucket_00000", EventFileKind.BASE, 0, 0, 0, None, None, 4711),
        EventFile(delta / "bucket_00000", EventFileKind.DELTA, 0, 1, 1, 3, 99, 100),
    )
    split = SnapshotSplit("ds=é%3A", location, 0, files)
    again = SnapshotSplit.from_json(split.to_json())
    assert again == split
    assert again.byte_count == split.byte_count == 4811
    assert "\n" not in split.to_json()
    with pytest.raises(DirectoryStateError, match="not a snapshot split"):
        SnapshotSplit.from_json('{"files": [{}]}')
