"""The common behaviour of all storages: :class:`mutation_api.storage.protocol.Storage`."""

from __future__ import annotations

import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry, OutputFile, Staged
from mutation_api.storage.tree import side_by_side

SPECIAL = ["%3A%20", "a#b", "a?b", "a b", "a+b", "äß€", "a*[b]{c}", "a&b=c", "a'b", "(a)!~"]


def put(location: Location, data: bytes = b"x") -> None:
    """Create a file, and its directory."""
    storage_at(location).create_directory(location.parent)
    file = storage_at(location).create(location)
    file.write(data)
    file.close()


def read(location: Location) -> bytes:
    with storage_at(location).open_input(location) as stream:
        content: bytes = stream.read()
    return content


def staged(hidden: Location, target: Location, data: bytes = b"staged") -> OutputFile:
    """A closed staged file; the directories are there."""
    storage = storage_at(hidden)
    for location in (hidden, target):
        storage.create_directory(location.parent)
    file = storage.stage(hidden, target)
    file.write(data)
    file.close()
    return file


def everything(root: Location) -> list[str]:
    """Files and unfinished uploads below a location, as names."""
    storage = storage_at(root)
    try:
        entries = storage.list(root)
    except FileNotFoundError:
        entries = []
    below = [everything(e.location) if e.is_directory else [str(e.location)] for e in entries]
    return [name for names in below for name in names] + [u.upload_id for u in storage.unfinished(root)]


def test_listings_say_when_a_file_was_written(storage_root: Location) -> None:
    """By the storage's clock, which here is this machine's; to the second on some storages."""
    before = time.time()
    put(storage_root / "d" / "f")
    (listed,) = storage_at(storage_root).list(storage_root / "d")
    found = storage_at(storage_root).stat(storage_root / "d" / "f")
    assert found is not None
    assert listed.modified == pytest.approx(before, abs=60)
    assert found.modified == pytest.approx(before, abs=60)


@pytest.mark.parametrize("name", SPECIAL)
def test_any_character_of_a_name_survives(storage_root: Location, name: str) -> None:
    """A file is found again under the name it was written with, in every method."""
    storage, location = storage_at(storage_root), storage_root / name / name
    put(location, b"12")
    assert storage.list(location.parent) == [FileEntry(location, is_directory=False, size=2)]
    assert storage.list(storage_root) == [FileEntry(storage_root / name, is_directory=True, size=0)]
    assert storage.stat(location) == FileEntry(location, is_directory=False, size=2)
    assert read(location) == b"12"
    target = location.parent / f"{name}2"
    file = staged(storage_root / f"_{name}" / name, target)
    assert storage.unfinished(location.parent) in ((), [Staged(target, file.staged.upload_id)])
    storage.publish(file.staged, target)
    assert read(target) == b"staged"
    storage.delete_file(location)
    storage.delete_directory(location.parent)
    assert everything(storage_root) == []


def test_a_listing_is_sorted_and_a_missing_directory_is_an_error(storage_root: Location) -> None:
    """An empty answer would read as an empty partition."""
    storage = storage_at(storage_root)
    put(storage_root / "b", b"123")
    put(storage_root / "_a", b"")
    put(storage_root / "a/deep/file")
    assert [(e.name, e.is_directory, e.size) for e in storage.list(storage_root)] == [
        ("_a", False, 0),
        ("a", True, 0),
        ("b", False, 3),
    ]
    for wrong, kind in (("none", FileNotFoundError), ("b", NotADirectoryError)):
        with pytest.raises(kind) as caught:
            storage.list(storage_root / wrong)
        assert wrong in str(caught.value.filename)


def test_a_name_is_no_prefix(storage_root: Location) -> None:
    """``t`` is not ``t2``: neither in listings nor where things are deleted."""
    storage = storage_at(storage_root)
    put(storage_root / "t/x")
    put(storage_root / "t2/x")
    staged(storage_root / "_m/h", storage_root / "t2/y")
    assert [e.name for e in storage.list(storage_root / "t")] == ["x"]
    assert all(u.location.parent.name == "t2" for u in storage.unfinished(storage_root))
    assert storage.unfinished(storage_root / "t") in ((), [])
    storage.delete_directory(storage_root / "t")
    assert storage.stat(storage_root / "t") is None
    assert read(storage_root / "t2/x") == b"x"


def test_what_is_there(storage_root: Location) -> None:
    """Sizes are checked before a commit, so a missing file has none."""
    storage = storage_at(storage_root)
    put(storage_root / "d/a.gz", b"x" * 1000)
    assert storage.stat(storage_root / "d/a.gz") == FileEntry(storage_root / "d/a.gz", False, 1000)
    assert storage.stat(storage_root / "d") == FileEntry(storage_root / "d", True, 0)
    assert storage.stat(storage_root / "none") is None
    assert storage.stat(storage_root / "d/none") is None


def test_an_existing_file_is_never_written_over(storage_root: Location) -> None:
    """Two attempts that share a name would otherwise lose the first one's rows."""
    location = storage_root / "a"
    put(location, b"old")
    with pytest.raises(FileExistsError) as caught:
        put(location, b"new")
    assert caught.value.errno == errno.EEXIST
    assert read(location) == b"old"


def test_a_staged_file_is_hidden_until_it_is_published(storage_root: Location) -> None:
    """After that it exists once, and nothing is left of the staging."""
    storage, target = storage_at(storage_root), storage_root / "delta/bucket"
    file = staged(storage_root / "_mutation_1/w/0/hidden", target)
    assert storage.stat(target) is None
    storage.publish(file.staged, target)
    assert read(target) == b"staged"
    assert everything(storage_root) == [str(target)]


def test_publishing_refuses_to_overwrite(storage_root: Location) -> None:
    """A file that replaced its target would lose rows; both stay as they were."""
    storage, target = storage_at(storage_root), storage_root / "d/taken"
    put(target, b"taken")
    file = staged(storage_root / "_m/h", target)
    with pytest.raises(FileExistsError):
        storage.publish(file.staged, target)
    assert read(target) == b"taken"
    storage.abandon([file.staged])
    assert everything(storage_root) == [str(target)]


def test_a_directory_is_published_as_a_whole(storage_root: Location) -> None:
    """Storages with directories do it in one step and never over a target; the others refuse."""
    storage = storage_at(storage_root)
    hidden, target = storage_root / "_hidden" / "d", storage_root / "d"
    for name in ("a", "b"):
        put(hidden / name, name.encode())
    if not storage.has_directories:
        with pytest.raises(OSError, match="support") as refused:
            storage.publish_directory(hidden, target)
        assert refused.value.errno == errno.ENOTSUP
        return
    storage.publish_directory(hidden, target)
    assert [read(each.location) for each in storage.list(target)] == [b"a", b"b"]
    assert storage.list(storage_root / "_hidden") == []
    put(hidden / "c")
    with pytest.raises(FileExistsError):
        storage.publish_directory(hidden, target)
    assert [each.name for each in storage.list(target)] == ["a", "b"]
    with pytest.raises(FileNotFoundError):
        storage.publish_directory(storage_root / "missing", storage_root / "other")


def test_what_is_not_staged_cannot_be_published(storage_root: Location) -> None:
    """Publishing must not go on without its file."""
    storage, target = storage_at(storage_root), storage_root / "d/t"
    file = staged(storage_root / "_m/h", target)
    storage.abandon([file.staged])
    with pytest.raises(FileNotFoundError):
        storage.publish(file.staged, target)
    assert storage.stat(target) is None


def test_of_two_attempts_one_is_published(storage_root: Location) -> None:
    """The other one goes away and takes nothing along; abandoning twice is fine."""
    storage, target = storage_at(storage_root), storage_root / "d/t"
    first = staged(storage_root / "_m/1", target, b"first")
    second = staged(storage_root / "_m/2", target, b"second")
    storage.publish(second.staged, target)
    for _ in range(2):
        storage.abandon([first.staged])
    assert read(target) == b"second"
    assert everything(storage_root) == [str(target)]


@pytest.mark.parametrize("closes", [False, True])
def test_what_is_discarded_leaves_nothing(storage_root: Location, closes: bool) -> None:
    """Half written or whole, staged or not; twice is fine."""
    storage = storage_at(storage_root)
    storage.create_directory(storage_root / "_m")
    files = [storage.create(storage_root / "_m/a"), storage.stage(storage_root / "_m/b", storage_root / "b")]
    for file in files:
        file.write(b"x" * 100_000)
        if closes:
            file.close()
        for _ in range(2):
            file.discard()
    assert everything(storage_root) == []


def test_a_file_can_begin_anew(storage_root: Location) -> None:
    """The earlier bytes can be read until the file is closed, and are not part of it."""
    storage, target = storage_at(storage_root), storage_root / "d/t"
    for location in (storage_root / "_m", target.parent):
        storage.create_directory(location)
    file = storage.stage(storage_root / "_m/h", target)
    file.write(b"before")
    earlier = file.restart()
    assert earlier.read() == b"before"
    file.write(b"after")
    for _ in range(2):
        file.close()
    storage.publish(file.staged, target)
    assert read(target) == b"after"
    assert everything(storage_root) == [str(target)]


@pytest.mark.parametrize("size", [0, 1, 70_000, 18_000_000])
def test_a_file_is_read_from_anywhere(storage_root: Location, size: int) -> None:
    """Also past its end, which has no bytes; files of several parts are one."""
    location, storage = storage_root / "d/f", storage_at(storage_root)
    content = os.urandom(size)
    file = staged(storage_root / "_m/h", location, b"")
    file.discard()
    storage.create_directory(storage_root / "_m")
    file = storage.stage(storage_root / "_m/h2", location)
    for start in range(0, size, 1_000_003):
        file.write(memoryview(content)[start : start + 1_000_003])
    file.close()
    storage.publish(file.staged, location)
    with storage.open_input(location) as stream:
        assert stream.size() == size
        for start in {0, size // 3, max(0, size - 10), size}:
            stream.seek(start)
            assert stream.read(5000) == content[start : start + 5000]
            assert stream.read() == content[start + 5000 :]
            assert stream.read(10) == b""


def test_what_is_no_file_cannot_be_read(storage_root: Location) -> None:
    """A missing file and a directory give different errors."""
    storage = storage_at(storage_root)
    put(storage_root / "d/f")
    with pytest.raises(FileNotFoundError) as caught:
        storage.open_input(storage_root / "d/none")
    assert "d/none" in str(caught.value)
    with pytest.raises(IsADirectoryError):
        storage.open_input(storage_root / "d")


def test_deleting(storage_root: Location) -> None:
    """A missing directory is fine: cleaning twice is normal. Directories are made twice as well."""
    storage = storage_at(storage_root)
    for name in ("d/e/f", "d/g"):
        put(storage_root / name)
    storage.create_directory(storage_root / "d/e")
    for _ in range(2):
        storage.delete_directory(storage_root / "d")
    assert storage.stat(storage_root / "d") is None
    put(storage_root / "f")
    storage.delete_file(storage_root / "f")
    assert storage.stat(storage_root / "f") is None


def test_a_place_of_another_storage_is_refused(storage_root: Location) -> None:
    """The path alone names a location in each storage: only the intended one may be touched."""
    storage = storage_at(storage_root)
    put(storage_root / "f", b"kept")
    other = Location("viewfs", "elsewhere", (storage_root / "f").path)
    for method in (
        storage.list,
        storage.stat,
        storage.open_input,
        storage.create,
        storage.create_directory,
        storage.unfinished,
        storage.delete_file,
        storage.delete_directory,
        storage.sync_directory,
        lambda location: storage.stage(location, storage_root / "x"),
        lambda location: storage.stage(storage_root / "_x", location),
        lambda location: storage.publish(Staged(storage_root / "f"), location),
    ):
        with pytest.raises(OSError) as caught:
            method(other)
        assert caught.value.errno == errno.EXDEV, method
    assert read(storage_root / "f") == b"kept"


def test_many_threads_and_many_files(storage_root: Location) -> None:
    """Each gets its own."""
    storage = storage_at(storage_root)
    storage.create_directory(storage_root / "d")

    def work(number: int) -> bytes:
        location = storage_root / f"d/{number}"
        file = storage.create(location)
        file.write(str(number).encode())
        file.close()
        return read(location)

    found = side_by_side(work, range(100), storage.threads)
    assert found == [str(number).encode() for number in range(100)]
    assert len(storage.list(storage_root / "d")) == 100


def test_a_forked_process_goes_on(storage_root: Location) -> None:
    """Spark forks its workers; a client that was used before must not hang in the child."""
    put(storage_root / "before", b"1")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(read, storage_root / "before").result()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert read(storage_root / "before") == b"1"
            put(storage_root / "child", b"2")
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert read(storage_root / "child") == b"2"
    put(storage_root / "after", b"3")


def test_syncing_a_directory(storage_root: Location) -> None:
    """Where names need it."""
    put(storage_root / "d/f")
    storage_at(storage_root).sync_directory(storage_root / "d")
