"""The common behaviour of object stores, on one that is a dictionary."""

from __future__ import annotations

import errno
from typing import IO, Any

import pytest

from mutation_api.storage.location import Location
from mutation_api.storage.object_store import ObjectStore, check_uploaded_to, nothing, opened
from mutation_api.storage.protocol import Staged

ROOT = Location.parse("s3a://bucket/a")


class Dictionary(ObjectStore[dict[str, Any]]):
    """Objects by location; ``lost_answers`` to requests that were carried out are still to come."""

    publishes_by_rename = False

    def __init__(self) -> None:
        super().__init__("s3a", "bucket")
        self.objects: dict[Location, dict[str, Any]] = {}
        self.lost_answers = 0
        self.heads = 0

    def delete_file(self, location: Location) -> None:
        self.objects.pop(location, None)

    def _head(self, location: Location) -> dict[str, Any] | None:
        self.heads += 1
        return self.objects.get(location)

    def _own_name(self, head: dict[str, Any]) -> str | None:
        name: str | None = head["name"]
        return name

    def _is_folder(self, head: dict[str, Any]) -> bool:
        return bool(head.get("folder"))

    def _put_new(self, location: Location, own_name: str, body: IO[bytes], size: int) -> None:
        if location in self.objects:
            raise FileExistsError(errno.EEXIST, "taken", str(location))
        self.objects[location] = {"name": own_name, "content": body.read(size)}
        if self.lost_answers:
            self.lost_answers -= 1
            raise TimeoutError(errno.ETIMEDOUT, "no answer", str(location))


def put(store: Dictionary, location: Location, content: bytes) -> None:
    """Create a file."""
    file = store.create(location)
    file.write(content)
    file.close()


def test_a_file_is_sent_when_it_is_closed() -> None:
    """Complete, and without another request."""
    store = Dictionary()
    file = store.create(ROOT / "f")
    file.write(b"12")
    assert store.objects == {}
    file.close()
    assert store.objects[ROOT / "f"]["content"] == b"12"
    assert store.heads == 0
    file.discard()
    assert store.objects == {}


def test_a_file_whose_answer_was_lost_is_known_by_its_name() -> None:
    """The object exists, and it is ours."""
    store = Dictionary()
    store.lost_answers = 1
    put(store, ROOT / "f", b"12")
    assert store.objects[ROOT / "f"]["content"] == b"12"


def test_a_file_of_somebody_else_is_not_taken_for_ours() -> None:
    """Nothing is written over it."""
    store = Dictionary()
    put(store, ROOT / "f", b"theirs")
    with pytest.raises(FileExistsError):
        put(store, ROOT / "f", b"ours")
    assert store.objects[ROOT / "f"]["content"] == b"theirs"


def test_a_store_may_be_sure_after_some_errors() -> None:
    """Then it is not asked."""

    class Sure(Dictionary):
        may_have_put = FileExistsError

    store = Sure()
    store.lost_answers = 1
    with pytest.raises(TimeoutError):
        put(store, ROOT / "f", b"12")
    assert store.heads == 0


def test_a_place_of_another_container_is_refused() -> None:
    """Before anything happens."""
    for text in ("s3a://other/a", "gs://bucket/a"):
        with pytest.raises(OSError, match="is not in s3a://bucket") as caught:
            Dictionary().create(Location.parse(text))
        assert caught.value.errno == errno.EXDEV


def test_an_upload_is_published_where_it_was_sent() -> None:
    """It cannot be renamed."""
    check_uploaded_to(Staged(ROOT), ROOT)
    with pytest.raises(OSError, match="cannot be renamed"):
        check_uploaded_to(Staged(ROOT), ROOT / "b")


def test_a_place_with_nothing_below_it() -> None:
    """It is missing, or a file, or stands for an empty directory."""
    store = Dictionary()
    with pytest.raises(FileNotFoundError):
        store._check_directory(ROOT)
    store.objects[ROOT] = {"name": None}
    with pytest.raises(NotADirectoryError):
        store._check_directory(ROOT)
    store.objects[ROOT] = {"name": None, "folder": True}
    store._check_directory(ROOT)


def test_the_end_of_an_object_is_read_when_it_is_opened() -> None:
    """And nothing of an empty one."""
    content, asked = bytes(range(256)) * 1024, []

    def read(start: int, stop: int) -> bytes:
        asked.append((start, stop))
        return content[start:stop]

    with opened(read, len(content)) as stream:
        stream.seek(len(content) - 10)
        assert stream.read() == content[-10:]
        assert asked == [(len(content) - 64 * 1024, len(content))]
        stream.seek(0)
        assert stream.read(3) == content[:3]
    with opened(read, 0) as stream:
        assert stream.read() == b""
    with nothing() as stream:
        assert stream.read() == b""
    assert len(asked) == 2
