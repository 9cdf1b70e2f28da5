"""An attempt stages its files near their partition, and apart from every other attempt."""

from __future__ import annotations

import stat

import pytest

from mutation_api.errors import (
    ConfigurationError,
    DeltaWriteError,
)
from mutation_api.storage.location import Location
from tests.unit.write.tables import acid_table, coordinator, files_below


def test_partitions_that_lie_elsewhere(tmp_path):
    """Their files are staged near them, so that publishing is a rename; odd spellings stay."""
    elsewhere = f"file:{tmp_path}/elsewhere"
    table = acid_table(
        tmp_path / "t",
        keys=(("ds", "int"),),
        partition_spellings={"ds=1": "ds=01"},
        partition_locations={"ds=01": Location.parse(elsewhere)},
    )
    with coordinator(table) as target:
        target.insert([1], {"id": 1, "msg": ""})
    (manifest,) = target.close()
    assert (manifest.partition_name, manifest.partition_values) == ("ds=01", ("01",))
    assert str(manifest.target).startswith(f"{elsewhere}/delta_")
    assert str(manifest.staged.location).startswith(f"{elsewhere}/_mutation_7/w/0/")


def test_two_attempts_do_not_meet(tmp_path):
    """A task retry writes beside the first attempt; aborting one leaves the other."""
    table = acid_table(tmp_path)
    first, second = (coordinator(table, attempt_id=attempt) for attempt in ("0", "1"))
    for target in (first, second):
        target.insert([], {"id": 1, "msg": ""})
    (kept,) = second.close()
    first.abort()
    assert files_below(tmp_path) == [kept.staged.location.path]


def test_the_same_attempt_twice_is_refused(tmp_path):
    """Two writers with one name would overwrite each other's file."""
    table = acid_table(tmp_path)
    first = coordinator(table)
    first.insert([], {"id": 1, "msg": ""})
    second = coordinator(table)
    with pytest.raises(
        DeltaWriteError, match=r"table db\.t, bucket . *: file .* could not be created|bucket"
    ):
        second.insert([], {"id": 1, "msg": ""})
    assert len(first.close()) == 1


def test_an_unwritable_directory_is_named(tmp_path, monkeypatch):
    """The error names the path and the table; a file with the directory's name fails for root too."""
    (tmp_path / "_mutation_7").write_text("")
    with pytest.raises(DeltaWriteError, match=r"table db\.t: .*_mutation_7/w/0 could not be created"):
        coordinator(acid_table(tmp_path)).insert([], {"id": 1, "msg": ""})
    assert stat.S_ISREG((tmp_path / "_mutation_7").stat().st_mode)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_ids_must_name_a_directory(tmp_path, name):
    """An id with a slash would write into the directory of another attempt."""
    for setting in ("writer_id", "attempt_id"):
        with pytest.raises(ConfigurationError, match=setting):
            coordinator(acid_table(tmp_path), **{setting: name})
