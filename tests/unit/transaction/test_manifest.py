"""DeltaManifest: the report of a task to the driver."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from mutation_api.errors import ManifestError
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Staged
from mutation_api.transaction.manifest import (
    DeltaManifest,
    FileKind,
    attempt_mark,
    delta_names,
    delta_names_pattern,
    parse_attempt_mark,
    staging_directory,
)

MANIFEST = DeltaManifest(
    "db", "t", 7, 7, "ds=ä%2Fb", ("ä/b",), 3, FileKind.DELETE_DELTA, "w", "0",
    Staged(Location.parse("/s"), "upload", ('"tag"',)), Location.parse("s3a://b/f"),
    1, 2, 3, 5, 99, 1, 4_000_000_000
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


@pytest.mark.parametrize("name", json.loads(MANIFEST.to_json()))
def test_a_field_of_another_type_is_refused(name):
    """A worker's text is not believed; nothing of it fails later on, half way through a commit."""
    value = json.loads(MANIFEST.to_json())
    others = [None, "7", 7, 7.0, True, [], [1], {}]
    for other in others:
        if name == "partition_values" and other == []:
            continue  # fits the field
        if type(other) is type(value[name]) and name != "staged" and other != [1]:
            continue
        with pytest.raises(ManifestError, match="not a manifest"):
            DeltaManifest.from_json(json.dumps(value | {name: other}))


def test_a_group_is_table_partition_bucket_and_kind():
    """Attempts of one group compare equal, the two kinds of one bucket do not."""
    assert (
        dataclasses.replace(MANIFEST, attempt_id="1", staged=Staged(Location.parse("/x"))).group
        == MANIFEST.group
    )
    assert dataclasses.replace(MANIFEST, kind=FileKind.DELTA).group != MANIFEST.group


@pytest.mark.parametrize("location", ["file:/w/t", "file:/w/t/"])
def test_staging_is_hidden_from_hive(location):
    """A visible directory would be read as table data."""
    assert str(staging_directory(Location.parse(location), 12)) == "file:/w/t/_mutation_12"


def test_a_mark_tells_its_id_and_nothing_else_does():
    """Uploads are found by the directories of this id, so no other file may pass for a mark."""
    assert parse_attempt_mark(attempt_mark(10_000_001)) == 10_000_001
    for name in ("uploads_", "uploads_x", "7", "0_delta_bucket_00000", "uploads_-1"):
        assert parse_attempt_mark(name) is None


def test_directories_of_an_id():
    """Exactly those in which the committer names files; transaction 7 is not 70."""
    names = {"delta_0000007_0000007_0000", "delete_delta_0000007_0000007_0000"}
    assert delta_names(7, 0) == names
    assert not delta_names(70, 0) & names
    for write_id, statement_id in ((7, 0), (7, 12), (12_345_678, 3)):
        for name in delta_names(write_id, statement_id):
            assert re.fullmatch(delta_names_pattern(write_id), name)
            assert not re.fullmatch(delta_names_pattern(70), name)
