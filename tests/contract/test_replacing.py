"""Files that replace older files, on every storage."""

from __future__ import annotations

import pytest

from mutation_api.storage.connect import move_to, replacing, storage_at
from mutation_api.storage.location import Location
from tests.support.elsewhere import get, names, put


def test_a_file_is_replaced_when_the_new_one_is_whole(storage_root: Location) -> None:
    """Not before; a block that fails leaves the older one, and nothing else."""
    file = storage_root / "report.csv"
    put(file, b"old")
    with replacing(file) as stream:
        stream.write(b"new")
        assert get(file) == b"old"
    assert get(file) == b"new"
    with pytest.raises(ZeroDivisionError), replacing(file) as stream:
        stream.write(b"half")
        _ = 1 / 0
    assert get(file) == b"new"
    assert names(storage_root) == ["report.csv"]


def test_a_finished_file_gets_its_name(storage_root: Location) -> None:
    """With or without an older file of that name."""
    file = storage_root / "report.csv"
    for content in (b"first", b"second"):
        part = put(storage_root / ".parts" / "part-0", content)
        move_to(part, file)
        assert get(file) == content
    assert [name for name in names(storage_root) if name != ".parts"] == ["report.csv"]


def test_a_directory_is_not_replaced(storage_root: Location) -> None:
    """What is in it stays."""
    inside = put(storage_root / "report.csv" / "x", b"1")
    if not storage_at(inside).has_directories:
        return  # a key may be the beginning of another
    with pytest.raises(OSError, match="report"), replacing(storage_root / "report.csv") as stream:
        stream.write(b"2")
    assert get(inside) == b"1"
    assert names(storage_root) == ["report.csv"]
