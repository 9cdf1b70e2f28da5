"""DeltaManifest: what travels from a task to the driver."""

from __future__ import annotations

import dataclasses

import pytest

from mutation_api.commit.manifest import DeltaManifest, FileKind, staging_directory
from mutation_api.errors import ManifestError

MANIFEST = DeltaManifest(
    "db", "t", 7, 7, "ds=ä%2Fb", ("ä/b",), 3, FileKind.DELETE_DELTA, "w", "0",
    "file:/s", "file:/f", 1, 2, 3, 5, 99, 1, 4_000_000_000
)  # fmt: skip


def test_json_and_back():
    """Every field survives, text of any script too; one line, as it travels in a row."""
    text = MANIFEST.to_json()
    assert "\n" not in text
    assert DeltaManifest.from_json(text) == MANIFEST


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"kind": "delta"}', MANIFEST.to_json()[:-9]])
def test_other_text_is_refused(text):
    """Half an answer of a task must not pass for a whole one."""
    with pytest.raises(ManifestError, match="not a manifest"):
        DeltaManifest.from_json(text)


def test_a_group_is_table_partition_bucket_and_kind():
    """Attempts of one group compare equal, the two kinds of one bucket do not."""
    assert dataclasses.replace(MANIFEST, attempt_id="1", staged_path="x").group == MANIFEST.group
    assert dataclasses.replace(MANIFEST, kind=FileKind.DELTA).group != MANIFEST.group


@pytest.mark.parametrize("location", ["file:/w/t", "file:/w/t/"])
def test_staging_is_hidden_from_hive(location):
    """A visible directory would be read as table data."""
    assert staging_directory(location, 12) == "file:/w/t/_mutation_12"
