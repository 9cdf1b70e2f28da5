"""Google Cloud Storage: a bucket, by ``google-cloud-storage``.

Publishing is a rename. The store moves an object within its bucket in one atomic step, without its bytes, and
refuses to replace another one on request (``ifGenerationMatch=0``). So a file is staged as an object
under its hidden name: one request by the writer, one by the committer. Multipart uploads, which S3's module
uses, take no conditions there.

Markers that Hadoop's connector leaves (``name/``) are listed as directories only.

Failed requests are repeated with back-off for a bounded time. So a request may have taken effect although its
answer was lost. A repetition finds that out: an object names its writer in its metadata, which a move keeps.
"""

from __future__ import annotations

import contextlib
import errno
import functools
from collections.abc import Iterable, Sequence
from typing import IO

import pyarrow as pa
from google.cloud import storage

from mutation_api.storage.client_of_process import ClientOfProcess
from mutation_api.storage.gcs.gcs_client import connected, patience
from mutation_api.storage.gcs.gcs_errors import os_errors
from mutation_api.storage.gcs.gcs_settings import GcsSettings
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.storage.object_files import ObjectOutput, opened
from mutation_api.storage.object_store import ObjectStore
from mutation_api.storage.protocol import FileEntry, Staged, os_error
from mutation_api.storage.side_by_side import side_by_side

__all__ = ["GcsStorage", "connect"]

_OWN_NAME = "mutation-upload"
"""Metadata that names the writer of an object."""
_ONLY_NEW = 0
"""The generation of an object that does not exist."""


def connect(scheme: str, authority: str, settings: HadoopSettings) -> GcsStorage:
    """The storage of a bucket; no request is made yet.

    Raises:
        OSError: EINVAL, the location names no bucket, or a setting is invalid.
    """
    if not authority:
        raise OSError(errno.EINVAL, "the location names no bucket; expected gs://bucket/path", f"{scheme}:/")
    return GcsStorage(scheme, authority, GcsSettings.of_bucket(authority, settings))


class GcsStorage(ObjectStore[storage.Blob]):
    """One bucket; see :class:`~mutation_api.storage.protocol.Storage`."""

    publishes_by_rename = True

    def __init__(self, scheme: str, bucket: str, settings: GcsSettings) -> None:
        super().__init__(scheme, bucket)
        self._settings = settings
        self._client = ClientOfProcess(lambda: connected(settings, self.threads))

    # ---- reading

    def list(self, directory: Location) -> list[FileEntry]:
        """Children of a directory, sorted by name, without markers."""
        prefix = self._prefix(directory)
        found: dict[str, FileEntry] = {}
        is_there = not prefix
        with os_errors(directory):
            listing = self._bucket().list_blobs(prefix=prefix, delimiter="/", **patience())
            for each in listing:
                is_there = True
                if name := each.name.removeprefix(prefix):
                    found[name] = FileEntry(directory / name, False, int(each.size), _modified(each))
            for each in listing.prefixes:
                child = directory / each.removeprefix(prefix).rstrip("/")
                found[child.name] = FileEntry(child, True, 0)
        if not found and not is_there:
            self._check_directory(directory)
        return sorted(found.values(), key=lambda entry: entry.name)

    def stat(self, location: Location) -> FileEntry | None:
        """The file or directory there, or None."""
        key = self._key(location)
        head = self._head(location) if key else None
        if head is not None:
            return FileEntry(location, False, int(head.size), _modified(head))
        with os_errors(location):
            below = any(self._bucket().list_blobs(prefix=self._prefix(location), max_results=1, **patience()))
        return FileEntry(location, True, 0) if below or not key else None

    def open_input(self, location: Location) -> pa.NativeFile:
        """A seekable stream over one version of a file: it never mixes bytes of two versions."""
        head = self._head(location) if self._key(location) else None
        if head is None:
            if self.stat(location) is not None:
                raise os_error(errno.EISDIR, location)
            raise os_error(errno.ENOENT, location)
        return opened(functools.partial(self._read, location, head.generation), int(head.size))

    def _read(self, location: Location, generation: int, start: int, stop: int) -> bytes:
        with os_errors(location):
            blob = self._bucket().blob(self._key(location), generation=generation)
            data: bytes = blob.download_as_bytes(
                start=start, end=stop - 1, raw_download=True, checksum=None, **patience()
            )
        return data

    # ---- writing

    def stage(self, hidden: Location, target: Location) -> ObjectOutput:
        """Create the hidden file."""
        self._key(target)
        return self.create(hidden)

    def publish(self, staged: Staged, target: Location) -> None:
        """Move the staged object, unless another object has the target's key."""
        source, key = self._key(staged.location), self._key(target)
        own_name = next(iter(staged.part_tags), None)
        with self._unless_own(target, own_name), os_errors(target):
            bucket = self._bucket()
            bucket.move_blob(bucket.blob(source), key, if_generation_match=_ONLY_NEW, **patience())

    def unfinished(self, directory: Location) -> Sequence[Staged]:
        """None: staged files are complete objects."""
        self._key(directory)
        return ()

    def abandon(self, staged: Iterable[Staged]) -> None:
        """Delete staged objects."""
        side_by_side(lambda each: self.delete_file(each.location), staged, self.threads)

    def delete_file(self, location: Location) -> None:
        """Delete a file; a missing one is fine."""
        with contextlib.suppress(FileNotFoundError), os_errors(location):
            self._bucket().delete_blob(self._key(location), **patience())

    def delete_directory(self, directory: Location) -> None:
        """Delete everything below a directory, and its markers."""
        prefix = self._prefix(directory)
        with os_errors(directory):
            names = [each.name for each in self._bucket().list_blobs(prefix=prefix, **patience())]
        side_by_side(lambda name: self._delete(directory, name), names, self.threads)

    # ---- requests

    def _put_new(self, location: Location, own_name: str, body: IO[bytes], size: int) -> None:
        with os_errors(location):
            blob = self._bucket().blob(self._key(location))
            blob.metadata = {_OWN_NAME: own_name}
            blob.upload_from_file(body, size=size, if_generation_match=_ONLY_NEW, **patience())

    def _own_name(self, head: storage.Blob) -> str | None:
        own: str | None = (head.metadata or {}).get(_OWN_NAME)
        return own

    def _delete(self, directory: Location, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), os_errors(directory):
            self._bucket().delete_blob(name, **patience())

    def _head(self, location: Location) -> storage.Blob | None:
        with os_errors(location):
            return self._bucket().get_blob(self._key(location), **patience())

    def _bucket(self) -> storage.Bucket:
        return self._client.get().bucket(self._container, user_project=self._settings.payer)


def _modified(blob: storage.Blob) -> float | None:
    """When an object was written, in seconds since 1970."""
    return None if blob.updated is None else float(blob.updated.timestamp())
