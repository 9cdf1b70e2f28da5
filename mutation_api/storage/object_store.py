"""What object stores have in common: locations that are keys, and files that appear in one request.

There are no directories. A location counts as one if anything lies below it, or if another program left a
mark for it. Such a mark is listed as a directory only.

A request may have taken effect although its answer was lost. Its repetition then hears that the object
exists. The object is recognised as ours by a name in its metadata, which is new for each file.
"""

from __future__ import annotations

import abc
import contextlib
import errno
import uuid
from collections.abc import Iterator
from typing import IO, ClassVar, Generic, TypeVar

from mutation_api.storage.location import Location
from mutation_api.storage.object_files import ObjectOutput
from mutation_api.storage.protocol import Staged, os_error

__all__ = ["ObjectStore", "check_uploaded_to"]

_Head = TypeVar("_Head")


class ObjectStore(abc.ABC, Generic[_Head]):
    """One bucket or container; see :class:`~mutation_api.storage.protocol.Storage`.

    Subclasses make the requests. ``_Head`` is their client's type for an object without its bytes.
    """

    publishes_by_rename: ClassVar[bool]
    has_directories = False
    threads = 16
    closing_waits = False
    may_have_put: ClassVar[type[OSError]] = OSError
    """The error of a put request after which the object may exist all the same."""

    def __init__(self, scheme: str, container: str) -> None:
        self._scheme = scheme
        self._container = container

    # ---- what each store does in its own way

    @abc.abstractmethod
    def delete_file(self, location: Location) -> None:
        """Delete a file; a missing one is fine."""

    @abc.abstractmethod
    def _head(self, location: Location) -> _Head | None:
        """The head of the object there, or None. Raises OSError."""

    @abc.abstractmethod
    def _own_name(self, head: _Head) -> str | None:
        """The name that we gave an object when we wrote it; None if another program wrote it."""

    @abc.abstractmethod
    def _put_new(self, location: Location, own_name: str, body: IO[bytes], size: int) -> None:
        """Create an object of that name. Raises FileExistsError."""

    def _is_folder(self, head: _Head) -> bool:
        """Whether an object stands for a directory."""
        return False

    # ---- what all stores share

    def create(self, location: Location) -> ObjectOutput:
        """Create a file, which appears when it is closed."""
        self._key(location)
        return ObjectOutput(location, self._put, lambda written: self.delete_file(written.location))

    def create_directory(self, directory: Location) -> None:
        """Does nothing: there are no directories, or a file creates its own."""
        self._key(directory)

    def sync_directory(self, directory: Location) -> None:
        """Does nothing: a store's answer means that the data is safe."""
        self._key(directory)

    def _put(self, written: Staged, body: IO[bytes], size: int) -> Staged:
        """Create an object; its only tag is the name that marks it as ours. Raises FileExistsError."""
        own_name = uuid.uuid4().hex
        with self._unless_own(written.location, own_name, self.may_have_put):
            self._put_new(written.location, own_name, body, size)
        return Staged(written.location, part_tags=(own_name,))

    @contextlib.contextmanager
    def _unless_own(
        self, location: Location, own_name: str | None, after: type[OSError] = OSError
    ) -> Iterator[None]:
        """Ignore a failure if the request took effect: the object there has this name."""
        try:
            yield
        except after:
            if not self._is_own(location, own_name):
                raise

    def _is_own(self, location: Location, own_name: str | None) -> bool:
        """Whether the object there was written under this name; None: it was written without one."""
        head = None if own_name is None else self._head(location)
        return head is not None and self._own_name(head) == own_name

    def _check_directory(self, directory: Location) -> None:
        """Raise unless this location, which has nothing below it, is a directory."""
        head = self._head(directory)
        if head is None:
            raise os_error(errno.ENOENT, directory)
        if not self._is_folder(head):
            raise os_error(errno.ENOTDIR, directory)

    def _prefix(self, directory: Location) -> str:
        """The common beginning of all keys below a location."""
        key = self._key(directory)
        return f"{key}/" if key else ""

    def _key(self, location: Location) -> str:
        if (location.scheme, location.authority) != (self._scheme, self._container):
            raise OSError(
                errno.EXDEV, f"the location does not lie in {self._scheme}://{self._container}", str(location)
            )
        return location.path.lstrip("/")

    def _location(self, key: str) -> Location:
        return Location(self._scheme, self._container, f"/{key}")


def check_uploaded_to(staged: Staged, target: Location) -> None:
    """Raise OSError (EXDEV) for an upload to another location: it cannot be renamed."""
    if staged.location != target:
        raise OSError(errno.EXDEV, f"it was uploaded to {staged.location} and cannot be renamed", str(target))
