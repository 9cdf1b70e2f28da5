"""Records of kept files, and which of them may be removed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from metastore_client.model import OpenTxns, TxnInfo, TxnState
from mutation_api import ConfigurationError, CorruptFileError
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from mutation_api.upkeep.compaction_view import has_no_auto_compaction
from mutation_api.upkeep.kept_files import (
    KeptFiles,
    check_can_keep,
    find_kept,
    find_removable,
    kept_directory_of,
    remove_expired,
)


def kept(root: Path, txn_id: int, seconds: float) -> KeptFiles:
    """Write a record of files that are kept for some seconds."""
    directory = root / f"_mutation_kept_{txn_id}"
    (directory / "files").mkdir(parents=True)
    found = KeptFiles(
        Location.given(directory),
        "major",
        txn_id,
        4,
        ("base_0000004_v0000009",),
        {"delta_0000001_0000001_0000/bucket_00000": 7, "000000_0": 3},
        (2,),
        time.time(),
        time.time() + seconds,
    )
    (directory / "kept.json").write_text(found.to_json())
    return found


def open_txns(*alive: int) -> OpenTxns:
    """Open transactions."""
    return OpenTxns(99, tuple(TxnInfo(each, TxnState.OPEN, "u", "h") for each in alive))


def test_a_record_is_read_again(tmp_path: Path) -> None:
    """All fields come back; a damaged record is named."""
    first, second = kept(tmp_path, 10, 60), kept(tmp_path, 9, 60)
    assert find_kept(Location.given(tmp_path)) == [second, first]
    assert first.names == ["delta_0000001_0000001_0000", "000000_0"]
    (tmp_path / "_mutation_kept_9" / "kept.json").write_text("{}")
    with pytest.raises(CorruptFileError, match=r"kept\.json is not the record of kept files"):
        find_kept(Location.given(tmp_path))


def test_what_may_be_removed(tmp_path: Path) -> None:
    """Expired ones, and those without a record whose transaction has ended; nothing else."""
    kept(tmp_path, 1, 60)
    kept(tmp_path, 2, -1)
    for txn_id in (3, 4, 100):
        (tmp_path / f"_mutation_kept_{txn_id}").mkdir()
    (tmp_path / "_mutation_7").mkdir()
    found = find_removable(Location.given(tmp_path), open_txns(4))
    assert [each.txn_id for each in found] == [2, 3]
    remove_expired(Location.given(tmp_path))
    assert [each.txn_id for each in find_removable(Location.given(tmp_path), open_txns(4))] == [3]
    assert [each.txn_id for each in find_kept(Location.given(tmp_path))] == [1]


def test_paths_of_kept_files() -> None:
    """A path up to the hidden directory; other paths have none."""
    assert kept_directory_of("day=a/_mutation_kept_12/files/base_1/bucket_00000") == "day=a/_mutation_kept_12"
    assert kept_directory_of("_mutation_12/a") is None
    assert kept_directory_of("day=_mutation_kept_x/a") is None


def test_stores_without_directories_keep_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore there could show half of the files."""
    check_can_keep(Location.given(tmp_path))
    monkeypatch.setattr(LocalStorage, "has_directories", False)
    with pytest.raises(ConfigurationError, match="no directory can be renamed in one step"):
        check_can_keep(Location.given(tmp_path))


def test_one_rule_for_tables_that_the_initiator_leaves_alone() -> None:
    """The property in lower case counts; the one in upper case only without it."""
    assert has_no_auto_compaction({"no_auto_compaction": "TRUE"})
    assert has_no_auto_compaction({"NO_AUTO_COMPACTION": "true"})
    assert not has_no_auto_compaction({"NO_AUTO_COMPACTION": "true", "no_auto_compaction": "false"})
    assert not has_no_auto_compaction({})
