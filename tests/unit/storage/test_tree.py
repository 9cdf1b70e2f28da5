"""Directories that are known from one flat listing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry
from mutation_api.storage.tree import ListedTree, directories_below


def _files_below(directory: Location) -> Iterator[FileEntry]:
    for entry in LocalStorage().list(directory):
        if entry.is_directory:
            yield from _files_below(entry.location)
        else:
            yield entry


def _all_below(directory: Location) -> Iterator[Location]:
    yield directory
    for entry in LocalStorage().list(directory):
        if entry.is_directory:
            yield from _all_below(entry.location)


@pytest.fixture
def root(tmp_path: Path) -> Location:
    for name in ("t/ds=a/delta_1/b0", "t/ds=a/delta_1/b1", "t/ds=b/x", "t/y", "t2/z"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return Location.given(tmp_path)


def test_it_lists_what_the_storage_lists(root: Location) -> None:
    """Each directory below a root, in any order of the entries."""
    storage, table = LocalStorage(), root / "t"
    entries = [*_files_below(table)][::-1]
    tree = ListedTree(storage, [table], entries)
    (Path(root.path) / "t/new").write_bytes(b"")
    assert [entry.name for entry in tree.list(table)] == ["ds=a", "ds=b", "y"]
    (Path(root.path) / "t/new").unlink()
    for directory in _all_below(table):
        assert tree.list(directory) == storage.list(directory)
    with pytest.raises(FileNotFoundError):
        tree.list(table / "none")
    assert [entry.name for entry in tree.list(root)] == ["t", "t2"], "asked of the storage"
    assert tree.open_input(table / "y").read() == b"t/y"


def test_a_marked_directory_is_there_though_empty(root: Location) -> None:
    """An object store may hold a mark of it, and nothing below."""
    table = root / "t"
    tree = ListedTree(LocalStorage(), [table], [FileEntry(table / "ds=c/delta_2", True, 0)])
    assert tree.list(table) == [FileEntry(table / "ds=c", True, 0)]
    assert tree.list(table / "ds=c/delta_2") == []


def test_a_local_disk_is_not_listed_beforehand(root: Location) -> None:
    """That would list more than is asked for."""
    directories = directories_below([root / "t", root / "t2"])
    (Path(root.path) / "t/new").write_bytes(b"")
    assert [entry.name for entry in directories.list(root / "t")] == ["ds=a", "ds=b", "new", "y"]
