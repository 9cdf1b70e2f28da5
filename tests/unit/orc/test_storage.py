"""Storage."""

from __future__ import annotations

import errno
import os

import pytest

from mutation_api.orc import storage as storage_module
from mutation_api.orc.storage import FileEntry, Storage


def write(storage: Storage, path: str, data: bytes) -> None:
    with storage.open_output(path) as stream:
        stream.write(data)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}", "FILE:{}", "{}/"])
def test_every_spelling_of_a_local_location_is_one_path(tmp_path, form):
    """Hive prints file:/a, Spark file:///a, users a plain path: all name the same directory."""
    location = form.format(tmp_path)
    storage = Storage.for_location(location)
    assert storage.path(location) == str(tmp_path)
    assert storage is Storage.for_location(str(tmp_path))


def test_a_location_is_never_url_decoded(tmp_path):
    """%3A is three characters of a directory's name: Hive escapes partition values so."""
    location = f"file:{tmp_path}/ds=a%3Ab%2520"
    storage = Storage.for_location(location)
    storage.create_directory(storage.path(location))
    assert os.listdir(tmp_path) == ["ds=a%3Ab%2520"]
    assert storage.list(str(tmp_path)) == [
        FileEntry("ds=a%3Ab%2520", f"{tmp_path}/ds=a%3Ab%2520", is_directory=True, size=0)
    ]


@pytest.mark.parametrize("character", ["%", "#", "?", " ", "+", "ä", "*", "[", "\\", "\n"])
def test_any_character_of_a_name_survives(tmp_path, character):
    """A file is found again under the name it was written with, in every method."""
    storage = Storage.for_location(str(tmp_path))
    path = f"{tmp_path}/x{character}y"
    write(storage, path, b"12")
    assert [(e.name, e.path, e.size) for e in storage.list(str(tmp_path))] == [(f"x{character}y", path, 2)]
    with storage.open_input(path) as stream:
        assert stream.read() == b"12"
    storage.rename(path, path + "2")
    storage.delete_file(path + "2")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("location", ["relative/path", "", "file:relative", "file://elsewhere/a"])
def test_a_location_that_names_no_place_is_refused(location):
    """A relative path would mean another place on every worker."""
    with pytest.raises(OSError) as caught:
        Storage.for_location(location)
    assert caught.value.errno == errno.EINVAL


def test_an_unknown_scheme_is_refused_by_name():
    """A file system that we cannot reach is refused before anything is written."""
    with pytest.raises(OSError, match="s3a:") as caught:
        Storage.for_location("s3a://bucket/warehouse/t")
    assert caught.value.errno == errno.EPROTONOSUPPORT


def test_a_location_of_another_storage_is_refused(tmp_path):
    """A path never silently loses its scheme."""
    with pytest.raises(OSError) as caught:
        Storage.for_location(str(tmp_path)).path("hdfs://nn:8020/t")
    assert caught.value.errno == errno.EXDEV


def test_list_is_sorted_and_a_missing_directory_is_an_error(tmp_path):
    """An empty answer would read as an empty partition."""
    storage = Storage.for_location(str(tmp_path))
    write(storage, f"{tmp_path}/b", b"1")
    write(storage, f"{tmp_path}/_a", b"")
    storage.create_directory(f"{tmp_path}/a/deep")
    assert [(e.name, e.is_directory, e.size) for e in storage.list(str(tmp_path))] == [
        ("_a", False, 0),
        ("a", True, 0),
        ("b", False, 1),
    ]
    with pytest.raises(FileNotFoundError):
        storage.list(f"{tmp_path}/none")


def test_an_existing_file_is_never_written_over(tmp_path):
    """Two attempts that share a name would otherwise lose the first one's rows."""
    storage = Storage.for_location(str(tmp_path))
    write(storage, f"{tmp_path}/a", b"old")
    with pytest.raises(FileExistsError):
        storage.open_output(f"{tmp_path}/a")
    assert (tmp_path / "a").read_bytes() == b"old"


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_rename_moves_and_refuses_to_overwrite(tmp_path, monkeypatch, kind, links):
    """A rename that replaced its target would lose rows; both files stay as they were."""
    if not links:

        def refuse(*_args, **_kwargs):
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(storage_module.os, "link", refuse)
    storage = Storage.for_location(str(tmp_path))
    for name in ("a", "taken"):
        if kind == "file":
            write(storage, f"{tmp_path}/{name}", name.encode())
        else:
            storage.create_directory(f"{tmp_path}/{name}")
    with pytest.raises(FileExistsError):
        storage.rename(f"{tmp_path}/a", f"{tmp_path}/taken")
    assert sorted(os.listdir(tmp_path)) == ["a", "taken"]
    storage.rename(f"{tmp_path}/a", f"{tmp_path}/b")
    assert sorted(os.listdir(tmp_path)) == ["b", "taken"]
    if kind == "file":
        assert (tmp_path / "b").read_bytes() == b"a"
        assert (tmp_path / "taken").read_bytes() == b"taken"


def test_rename_of_a_missing_file_or_into_a_missing_directory_is_an_error(tmp_path):
    """Publishing must not go on without its file."""
    storage = Storage.for_location(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        storage.rename(f"{tmp_path}/none", f"{tmp_path}/b")
    write(storage, f"{tmp_path}/a", b"1")
    with pytest.raises(FileNotFoundError):
        storage.rename(f"{tmp_path}/a", f"{tmp_path}/missing/a")
    assert os.listdir(tmp_path) == ["a"]


def test_delete(tmp_path):
    """A missing directory is fine (cleaning twice is normal); a missing file is not."""
    storage = Storage.for_location(str(tmp_path))
    storage.create_directory(f"{tmp_path}/d/e")
    write(storage, f"{tmp_path}/d/e/f", b"1")
    storage.delete_directory(f"{tmp_path}/d")
    storage.delete_directory(f"{tmp_path}/d")
    assert not storage.exists(f"{tmp_path}/d")
    with pytest.raises(FileNotFoundError):
        storage.delete_file(f"{tmp_path}/d")


def test_size_and_kind(tmp_path):
    """Sizes are checked before commit, so a missing file has none."""
    storage = Storage.for_location(str(tmp_path))
    write(storage, f"{tmp_path}/a.gz", b"x" * 1000)
    storage.sync(f"{tmp_path}/a.gz")
    assert storage.size(f"{tmp_path}/a.gz") == 1000, "the extension must not switch compression on"
    assert storage.is_directory(str(tmp_path))
    assert not storage.is_directory(f"{tmp_path}/a.gz")
    with pytest.raises(FileNotFoundError):
        storage.size(f"{tmp_path}/none")
    with pytest.raises(IsADirectoryError):
        storage.size(str(tmp_path))
