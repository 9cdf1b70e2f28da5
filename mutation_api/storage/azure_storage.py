"""Azure's Blob Storage and Data Lake Storage (ABFS): a container, accessed with ``azure-storage-blob``.

Not every account has a rename. A file is staged as blocks of its **final** blob, which stays invisible until
a list of blocks is committed. The commit is one request without data and refuses to replace a blob
(``If-None-Match``). A blob has one list of uncommitted blocks for all its writers, so the ids of blocks
contain the name of their writer. A commit takes the blocks of one attempt and drops all others.

No request can remove uncommitted blocks; the store removes them after a week. To abandon all blocks of a
blob, an empty list is committed, which drops them, and the empty blob is deleted immediately. For that
moment, an empty file exists in a directory that no transaction has published.

Accounts with a hierarchical namespace have directories, which must also be deleted. On other accounts, other
programs leave empty blobs that mark directories. Both are recognised by ``hdi_isfolder`` in their metadata. A
location is also a directory if anything is below it.

Each request is repeated with back-off, ``fs.azure.io.retry.max.retries`` times. So a request may have taken
effect although its answer was lost. A repeated request detects this, since blobs contain the name of their
writer in their metadata.

Errors of Azure's client become OSError with errno, a one-line reason and the location. Signatures are removed
from the reason.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import pyarrow as pa
from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.storage.blob import BlobBlock, BlobClient, BlobPrefix, BlobProperties, BlockState

from mutation_api.storage.azure_settings import AzureSettings, connected
from mutation_api.storage.hadoop_settings import ClientOfProcess, HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.storage.object_store import ObjectOutput, ObjectStore, check_uploaded_to, opened
from mutation_api.storage.protocol import FileEntry, Staged, os_error
from mutation_api.storage.tree import side_by_side

_NO_BLOCKS = ("InvalidBlockList", "InvalidBlockId")
_BUSY = (429, 503)
_SIGNATURE = re.compile(r"\bsig=[^&\s'\")]+")


@contextlib.contextmanager
def os_errors(location: Location) -> Iterator[None]:
    """Turn the client's errors into OSError with errno, a one-line reason (no signature) and the location."""
    try:
        yield
    except ClientAuthenticationError as error:
        raise PermissionError(errno.EACCES, _line(error), str(location)) from None
    except HttpResponseError as error:
        raise _of_answer(error, location) from None
    except AzureError as error:
        raise _of_client(error, location) from None


def _of_answer(error: HttpResponseError, location: Location) -> OSError:
    reported = getattr(error, "error_code", None) or error.reason or ""
    code = str(getattr(reported, "value", reported))
    text = f"{_line(error)} ({code}, request {_request_id(error)})"
    status = error.status_code
    if code in _NO_BLOCKS or status == 404:
        return FileNotFoundError(errno.ENOENT, text, str(location))
    if code == "DirectoryIsNotEmpty":
        return OSError(errno.ENOTEMPTY, text, str(location))
    if code == "BlobAlreadyExists" or status == 412:
        return FileExistsError(errno.EEXIST, text, str(location))
    if status in (401, 403):
        return PermissionError(errno.EACCES, text, str(location))
    if status in _BUSY:
        return BlockingIOError(errno.EAGAIN, text, str(location))
    return OSError(errno.EIO, text, str(location))


def _of_client(error: AzureError, location: Location) -> OSError:
    text = _line(error)
    if "timed out" in text.lower() or "timeout" in text.lower():
        return TimeoutError(errno.ETIMEDOUT, text, str(location))
    if isinstance(error, (ServiceRequestError, ServiceResponseError)):
        return ConnectionError(errno.ECONNREFUSED, text, str(location))
    return OSError(errno.EIO, text, str(location))


def _line(error: AzureError) -> str:
    first = next(iter(str(error.message or error).strip().splitlines()), type(error).__name__)
    return _SIGNATURE.sub("sig=…", first)


def _request_id(error: HttpResponseError) -> str:
    headers = getattr(error.response, "headers", None) or {}
    return str(headers.get("x-ms-request-id", ""))


_MOST_BLOCKS = 50_000
_OWN_NAME = "mutationupload"
"""Metadata key for the name of a blob's writer."""
_UPLOAD_ID = "blocks"
"""The id of all uploads: a blob has at most one unfinished upload, with any number of writers."""
_FOLDER = "hdi_isfolder"


def connect(scheme: str, authority: str, settings: HadoopSettings) -> AzureStorage:
    """Return the storage of a container, without making a request.

    Raises:
        OSError: If the location has no container or account, or if a setting is invalid (EINVAL).
    """
    return AzureStorage(scheme, authority, AzureSettings.of_authority(authority, settings))


class AzureStorage(ObjectStore[BlobProperties]):
    """A container. See :class:`~mutation_api.storage.protocol.Storage`."""

    publishes_by_rename = False

    def __init__(self, scheme: str, authority: str, settings: AzureSettings) -> None:
        super().__init__(scheme, authority)
        self._settings = settings
        self._client = ClientOfProcess(lambda: connected(settings, self.threads))

    # ---- reading

    def list(self, directory: Location) -> list[FileEntry]:
        """Return the children of a directory, sorted by name."""
        prefix = self._prefix(directory)
        found: dict[str, FileEntry] = {}
        is_there = not prefix
        with os_errors(directory):
            listing = self._client.get().walk_blobs(prefix, include=["metadata"], delimiter="/")
            for each in listing:
                is_there = True
                if name := each.name.removeprefix(prefix).rstrip("/"):
                    is_directory = isinstance(each, BlobPrefix) or _is_folder(each)
                    if is_directory or name not in found:
                        size = 0 if is_directory else int(each.size)
                        found[name] = FileEntry(directory / name, is_directory, size, _modified(each))
        if not found and not is_there:
            self._check_directory(directory)
        return sorted(found.values(), key=lambda entry: entry.name)

    def stat(self, location: Location) -> FileEntry | None:
        """Return the file or directory at a location, or None."""
        key = self._key(location)
        head = self._head(location) if key else None
        if head is not None:
            is_directory = _is_folder(head)
            return FileEntry(location, is_directory, 0 if is_directory else int(head.size), _modified(head))
        return FileEntry(location, True, 0) if not key or self._is_anything_below(location) else None

    def open_input(self, location: Location) -> pa.NativeFile:
        """Return a seekable stream over one version of a file. It never mixes bytes of two versions."""
        head = self._head(location) if self._key(location) else None
        if head is None or _is_folder(head):
            if head is not None or self.stat(location) is not None:
                raise os_error(errno.EISDIR, location)
            raise os_error(errno.ENOENT, location)
        return opened(functools.partial(self._read, location, head.etag), int(head.size))

    def _read(self, location: Location, tag: str, start: int, stop: int) -> bytes:
        with os_errors(location):
            data: bytes = (
                self._blob(location)
                .download_blob(
                    offset=start,
                    length=stop - start,
                    etag=tag,
                    match_condition=MatchConditions.IfNotModified,
                )
                .readall()
            )
        return data

    # ---- writing

    def stage(self, hidden: Location, target: Location) -> ObjectOutput:
        """Begin to stage blocks of the target."""
        for location in (hidden, target):
            self._key(location)
        return ObjectOutput(target, self._upload, lambda written: self.abandon([written]))

    def publish(self, staged: Staged, target: Location) -> None:
        """Commit the blocks, unless another blob has the target's key."""
        self._key(target)
        check_uploaded_to(staged, target)
        name, count = staged.part_tags
        with self._unless_own(target, name):
            self._commit(target, name, _ids(name, int(count)))

    def unfinished(self, directory: Location) -> Sequence[Staged]:
        """Return the blobs below a directory that have only uncommitted blocks."""
        found = {each.name for each in self._below(directory, "uncommittedblobs") if not each.size}
        if found:
            found -= {each.name for each in self._below(directory)}
        return [Staged(self._location(name), _UPLOAD_ID) for name in sorted(found)]

    def abandon(self, staged: Iterable[Staged]) -> None:
        """Drop blocks if no other attempt has any on the blob. Otherwise that attempt's commit drops them."""
        side_by_side(self._drop, staged, self.threads)

    def delete_file(self, location: Location) -> None:
        """Delete a file. A missing one is not an error."""
        self._delete(location, self._key(location))

    def delete_directory(self, directory: Location) -> None:
        """Delete everything below a directory, and the directories themselves, innermost first."""
        key = self._key(directory)
        below = self._below(directory, "metadata")
        files = [each.name for each in below if not _is_folder(each)]
        folders = [each.name for each in below if _is_folder(each)]
        head = self._head(directory) if key else None
        if head is not None and _is_folder(head):
            folders.append(key)
        folders.sort(key=_depth, reverse=True)
        delete = functools.partial(self._delete, directory)
        side_by_side(delete, files, self.threads)
        for _, names in itertools.groupby(folders, _depth):
            side_by_side(delete, names, self.threads)

    # ---- for files being written

    def _upload(self, written: Staged, body: IO[bytes], size: int) -> Staged:
        """Send all blocks without committing them. An empty file has none."""
        location = written.location
        name = uuid.uuid4().hex
        step = max(self._settings.block_bytes, -(-size // _MOST_BLOCKS))
        ids = _ids(name, -(-size // step))
        staged = Staged(location, _UPLOAD_ID, (name, str(len(ids))))
        try:
            for block_id in ids:
                with os_errors(location):
                    self._blob(location).stage_block(block_id, body.read(step))
        except BaseException:
            with contextlib.suppress(OSError):
                self._drop(staged)
            raise
        return staged

    def _commit(self, location: Location, name: str, ids: Sequence[str]) -> None:
        with os_errors(location):
            self._blob(location).commit_block_list(
                [BlobBlock(block_id, BlockState.UNCOMMITTED) for block_id in ids],
                metadata={_OWN_NAME: name},
                match_condition=MatchConditions.IfMissing,
            )

    def _drop(self, staged: Staged) -> None:
        """Drop the blocks of an upload. Without part tags, drop all blocks of the blob."""
        location = staged.location
        ids = self._uncommitted_ids(location)
        own = staged.part_tags[:1]
        if not ids or (own and not all(each.startswith(own) for each in ids)):
            return
        name = uuid.uuid4().hex
        try:
            self._commit(location, name, ())
        except FileExistsError:
            if not self._is_own(location, name):
                return  # another attempt committed, which dropped these
        head = self._head(location)
        if head is not None and self._own_name(head) == name:
            with contextlib.suppress(FileExistsError):  # a repetition reports that it no longer exists
                self._delete(location, self._key(location), head.etag)

    def _uncommitted_ids(self, location: Location) -> Sequence[str]:
        try:
            with os_errors(location):
                _, uncommitted = self._blob(location).get_block_list("uncommitted")
        except FileNotFoundError:
            return []
        return [block.id for block in uncommitted]

    # ---- requests

    def _put_new(self, location: Location, own_name: str, body: IO[bytes], size: int) -> None:
        with os_errors(location):
            self._blob(location).upload_blob(
                body, length=size, metadata={_OWN_NAME: own_name}, overwrite=False
            )

    def _own_name(self, head: BlobProperties) -> str | None:
        own: str | None = (head.metadata or {}).get(_OWN_NAME)
        return own

    def _is_folder(self, head: BlobProperties) -> bool:
        return _is_folder(head)

    def _head(self, location: Location) -> BlobProperties | None:
        try:
            with os_errors(location):
                return self._blob(location).get_blob_properties()
        except FileNotFoundError:
            return None

    def _delete(self, location: Location, key: str, tag: str | None = None) -> None:
        """Delete a blob. With a tag, delete it only if it still has that tag."""
        condition: Mapping[str, Any] = {}
        if tag is not None:
            condition = {"etag": tag, "match_condition": MatchConditions.IfNotModified}
        with contextlib.suppress(FileNotFoundError), os_errors(location):
            self._client.get().delete_blob(key, **condition)

    def _below(self, directory: Location, *include: str) -> Sequence[BlobProperties]:
        """Return all blobs below a location; the location may not exist."""
        prefix = self._prefix(directory)
        with contextlib.suppress(FileNotFoundError), os_errors(directory):
            return [*self._client.get().list_blobs(prefix, include=[*include])]
        return ()

    def _is_anything_below(self, location: Location) -> bool:
        prefix = self._prefix(location)
        with contextlib.suppress(FileNotFoundError), os_errors(location):
            listing = self._client.get().list_blobs(prefix, results_per_page=1)
            return next(iter(listing), None) is not None
        return False

    def _blob(self, location: Location) -> BlobClient:
        return self._client.get().get_blob_client(self._key(location))


def _ids(name: str, count: int) -> list[str]:
    """Return ids for blocks. All ids of a blob's blocks must have the same length."""
    return [f"{name}{number:05}" for number in range(count)]


def _is_folder(blob: BlobProperties) -> bool:
    return any(
        name.lower() == _FOLDER and text.lower() == "true" for name, text in (blob.metadata or {}).items()
    )


def _modified(each: BlobProperties | BlobPrefix) -> float | None:
    """Return the time when a blob was written, in seconds since 1970."""
    written = getattr(each, "last_modified", None)
    return None if written is None else float(written.timestamp())


def _depth(key: str) -> int:
    return key.count("/")
