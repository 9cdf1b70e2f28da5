"""Azure's blob storage and Data Lake Storage (ABFS): a container, by ``azure-storage-blob``.

There is no rename that works for every account. A file is staged as blocks of its **final** blob, of which
nothing is seen before a list of them is committed; that is one request without data, which refuses to replace
(``If-None-Match``). A blob has one list of uncommitted blocks for all who write it, so the ids of blocks tell
whose they are. A commit takes those of one attempt and drops all others.

Nothing removes blocks that nobody commits; the store does so after a week. Where all blocks of a blob are to
be abandoned, committing an empty list drops them, and the empty blob is deleted at once: for that moment
there is an empty file in a directory that no transaction has published.

On accounts with a hierarchical namespace there are directories, which have to be deleted, too; elsewhere
other programs leave empty blobs that mark them. Both tell by ``hdi_isfolder`` in their metadata what they
are. A place is also a directory if anything lies below it.

Each request is repeated with back-off, ``fs.azure.io.retry.max.retries`` times; so each may have been carried
out though its answer was lost, and a repetition finds that out: blobs tell in their metadata who wrote them.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import itertools
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import pyarrow as pa
import requests
from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.core.pipeline.transport import RequestsTransport
from azure.identity import (
    ClientSecretCredential,
    DefaultAzureCredential,
    ManagedIdentityCredential,
    WorkloadIdentityCredential,
)
from azure.storage.blob import (
    BlobBlock,
    BlobClient,
    BlobPrefix,
    BlobProperties,
    BlockState,
    ContainerClient,
    ExponentialRetry,
)
from requests.adapters import HTTPAdapter

from mutation_api.storage.azure.azure_settings import Auth, AzureSettings
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.storage.object_store import (
    TAIL_BYTES,
    ClientOfProcess,
    ObjectOutput,
    RangeReader,
    prefix_of,
)
from mutation_api.storage.protocol import FileEntry, Staged
from mutation_api.storage.side_by_side import side_by_side

__all__ = ["AzureStorage", "connect"]

THREADS = 16
_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_BACKOFF_START, _BACKOFF_BASE, _BACKOFF_JITTER = -1.5, 1.8, 0.2
"""The client waits start + base ** n seconds before the n-th repetition: 0.3, 1.7, 4.3, 9 …"""
_MOST_BLOCKS = 50_000
_OWN_NAME = "mutationupload"
"""Metadata that tells who wrote a blob."""
_UPLOAD_ID = "blocks"
"""A blob has one unfinished upload at most, whoever writes to it."""
_FOLDER = "hdi_isfolder"
_NO_BLOCKS = ("InvalidBlockList", "InvalidBlockId")
_BUSY = (429, 503)
_SIGNATURE = re.compile(r"\bsig=[^&\s'\")]+")


def connect(scheme: str, authority: str, settings: HadoopSettings) -> AzureStorage:
    """The storage of a container; nobody is asked yet.

    Raises:
        OSError: EINVAL, the location names no container and account, or a setting makes no sense.
    """
    return AzureStorage(scheme, authority, AzureSettings.of_authority(authority, settings))


class AzureStorage:
    """One container; see :class:`~mutation_api.storage.protocol.Storage`."""

    publishes_by_rename = False
    has_directories = False
    threads = THREADS
    closing_waits = False

    def __init__(self, scheme: str, authority: str, settings: AzureSettings) -> None:
        self._scheme = scheme
        self._authority = authority
        self._settings = settings
        self._client: ClientOfProcess[ContainerClient] = ClientOfProcess(lambda: _client(settings))

    # ---- what is there

    def list(self, directory: Location) -> list[FileEntry]:
        """Children of a directory, sorted by name."""
        prefix = prefix_of(self._key(directory))
        found: dict[str, FileEntry] = {}
        is_there = not prefix
        with _os_errors(directory):
            listing = self._client.get().walk_blobs(prefix, include=["metadata"], delimiter="/")
            for each in listing:
                is_there = True
                if name := each.name.removeprefix(prefix).rstrip("/"):
                    is_directory = isinstance(each, BlobPrefix) or _is_folder(each)
                    if is_directory or name not in found:
                        size = 0 if is_directory else int(each.size)
                        found[name] = FileEntry(directory / name, is_directory, size)
        if not found and not is_there:
            self._check_directory(directory)
        return sorted(found.values(), key=lambda entry: entry.name)

    def stat(self, location: Location) -> FileEntry | None:
        """The file or directory there, or None."""
        key = self._key(location)
        head = self._head(location) if key else None
        if head is not None:
            is_directory = _is_folder(head)
            return FileEntry(location, is_directory, 0 if is_directory else int(head.size))
        return FileEntry(location, True, 0) if not key or self._is_anything_below(location) else None

    def open_input(self, location: Location) -> pa.NativeFile:
        """A seekable stream over the bytes of a file; it goes on with the bytes that it began with."""
        head = self._head(location) if self._key(location) else None
        if head is None or _is_folder(head):
            if head is not None or self.stat(location) is not None:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(location))
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(location))
        size = int(head.size)
        if not size:
            return pa.PythonFile(io.BytesIO(b""), mode="r")
        read = functools.partial(self._read, location, head.etag)
        return pa.PythonFile(RangeReader(read, size, read(max(0, size - TAIL_BYTES), size)), mode="r")

    def _read(self, location: Location, tag: str, start: int, stop: int) -> bytes:
        with _os_errors(location):
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

    def create(self, location: Location) -> ObjectOutput:
        """Create a file, which appears when it is closed."""
        self._key(location)
        return ObjectOutput(location, self._put, lambda written: self.delete_file(written.location))

    def create_directory(self, directory: Location) -> None:
        """Nothing to do: where there are directories, files bring theirs."""
        self._key(directory)

    def stage(self, hidden: Location, target: Location) -> ObjectOutput:
        """Begin blocks of the target."""
        for location in (hidden, target):
            self._key(location)
        return ObjectOutput(target, self._upload, lambda written: self.abandon([written]))

    def publish(self, staged: Staged, target: Location) -> None:
        """Commit the blocks, unless there is something else at their place."""
        self._key(target)
        if staged.location != target:
            raise OSError(
                errno.EXDEV, f"it was uploaded to {staged.location} and cannot be renamed", str(target)
            )
        name, count = staged.part_tags
        try:
            self._commit(target, name, _ids(name, int(count)))
        except OSError:
            if not self._is(target, name):
                raise

    def unfinished(self, directory: Location) -> Sequence[Staged]:
        """Blobs below a directory of which there are blocks and nothing else."""
        found = {each.name for each in self._below(directory, "uncommittedblobs") if not each.size}
        if found:
            found -= {each.name for each in self._below(directory)}
        return [Staged(self._location(name), _UPLOAD_ID) for name in sorted(found)]

    def abandon(self, staged: Iterable[Staged]) -> None:
        """Drop blocks, where no other attempt has any; else the commit of that one will."""
        side_by_side(self._drop, staged, THREADS)

    def delete_file(self, location: Location) -> None:
        """Delete a file; a missing one is fine."""
        self._delete(location, self._key(location))

    def delete_directory(self, directory: Location) -> None:
        """Delete everything below a directory, and the directories, the innermost first."""
        key = self._key(directory)
        below = self._below(directory, "metadata")
        files = [each.name for each in below if not _is_folder(each)]
        folders = [each.name for each in below if _is_folder(each)]
        head = self._head(directory) if key else None
        if head is not None and _is_folder(head):
            folders.append(key)
        folders.sort(key=_depth, reverse=True)
        delete = functools.partial(self._delete, directory)
        side_by_side(delete, files, THREADS)
        for _, names in itertools.groupby(folders, _depth):
            side_by_side(delete, names, THREADS)

    def sync_directory(self, directory: Location) -> None:
        """Nothing to do: what a store has answered for, it keeps."""
        self._key(directory)

    # ---- for files being written

    def _put(self, written: Staged, body: IO[bytes], size: int) -> Staged:
        """Create a file. Raises FileExistsError."""
        location = written.location
        name = uuid.uuid4().hex
        try:
            with _os_errors(location):
                self._blob(location).upload_blob(
                    body, length=size, metadata={_OWN_NAME: name}, overwrite=False
                )
        except OSError:
            if not self._is(location, name):
                raise
        return Staged(location)

    def _upload(self, written: Staged, body: IO[bytes], size: int) -> Staged:
        """Send all blocks, which are not committed. An empty file has none."""
        location = written.location
        name = uuid.uuid4().hex
        step = max(self._settings.block_bytes, -(-size // _MOST_BLOCKS))
        ids = _ids(name, -(-size // step))
        staged = Staged(location, _UPLOAD_ID, (name, str(len(ids))))
        try:
            for block_id in ids:
                with _os_errors(location):
                    self._blob(location).stage_block(block_id, body.read(step))
        except BaseException:
            with contextlib.suppress(OSError):
                self._drop(staged)
            raise
        return staged

    def _commit(self, location: Location, name: str, ids: Sequence[str]) -> None:
        with _os_errors(location):
            self._blob(location).commit_block_list(
                [BlobBlock(block_id, BlockState.UNCOMMITTED) for block_id in ids],
                metadata={_OWN_NAME: name},
                match_condition=MatchConditions.IfMissing,
            )

    def _drop(self, staged: Staged) -> None:
        """Without part tags: all that is there."""
        location = staged.location
        ids = self._uncommitted_ids(location)
        own = staged.part_tags[:1]
        if not ids or (own and not all(each.startswith(own) for each in ids)):
            return
        name = uuid.uuid4().hex
        try:
            self._commit(location, name, ())
        except FileExistsError:
            if not self._is(location, name):
                return  # somebody committed others, which has dropped these
        head = self._head(location)
        if head is not None and _own_name(head) == name:
            with contextlib.suppress(FileExistsError):  # so a repetition hears that it is not there any more
                self._delete(location, self._key(location), head.etag)

    def _uncommitted_ids(self, location: Location) -> Sequence[str]:
        try:
            with _os_errors(location):
                _, uncommitted = self._blob(location).get_block_list("uncommitted")
        except FileNotFoundError:
            return []
        return [block.id for block in uncommitted]

    # ---- requests

    def _is(self, location: Location, name: str) -> bool:
        """Whether the blob there is the one that was written under this name."""
        head = self._head(location)
        return head is not None and _own_name(head) == name

    def _head(self, location: Location) -> BlobProperties | None:
        try:
            with _os_errors(location):
                return self._blob(location).get_blob_properties()
        except FileNotFoundError:
            return None

    def _delete(self, location: Location, key: str, tag: str | None = None) -> None:
        """Delete a blob, if it is the one that this tag is of."""
        condition: Mapping[str, Any] = {}
        if tag is not None:
            condition = {"etag": tag, "match_condition": MatchConditions.IfNotModified}
        with contextlib.suppress(FileNotFoundError), _os_errors(location):
            self._client.get().delete_blob(key, **condition)

    def _below(self, directory: Location, *include: str) -> Sequence[BlobProperties]:
        """All blobs below a place, which need not be there."""
        prefix = prefix_of(self._key(directory))
        with contextlib.suppress(FileNotFoundError), _os_errors(directory):
            return [*self._client.get().list_blobs(prefix, include=[*include])]
        return ()

    def _is_anything_below(self, location: Location) -> bool:
        prefix = prefix_of(self._key(location))
        with contextlib.suppress(FileNotFoundError), _os_errors(location):
            listing = self._client.get().list_blobs(prefix, results_per_page=1)
            return next(iter(listing), None) is not None
        return False

    def _check_directory(self, directory: Location) -> None:
        """Raise, unless it is one with nothing in it."""
        head = self._head(directory)
        if head is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))
        if not _is_folder(head):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))

    def _blob(self, location: Location) -> BlobClient:
        return self._client.get().get_blob_client(self._key(location))

    def _key(self, location: Location) -> str:
        if (location.scheme, location.authority) != (self._scheme, self._authority):
            raise OSError(
                errno.EXDEV, f"the location does not lie in {self._scheme}://{self._authority}", str(location)
            )
        return location.path.lstrip("/")

    def _location(self, key: str) -> Location:
        return Location(self._scheme, self._authority, f"/{key}")


def _ids(name: str, count: int) -> list[str]:
    """All ids of a blob's blocks must have one length."""
    return [f"{name}{number:05}" for number in range(count)]


def _own_name(blob: BlobProperties) -> str | None:
    own: str | None = (blob.metadata or {}).get(_OWN_NAME)
    return own


def _is_folder(blob: BlobProperties) -> bool:
    return any(
        name.lower() == _FOLDER and text.lower() == "true" for name, text in (blob.metadata or {}).items()
    )


def _depth(key: str) -> int:
    return key.count("/")


def _client(settings: AzureSettings) -> ContainerClient:
    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=THREADS))
    return ContainerClient(
        settings.endpoint,
        settings.container,
        credential=_credential(settings),
        transport=RequestsTransport(session=session),
        connection_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retry_policy=ExponentialRetry(
            initial_backoff=_BACKOFF_START,
            increment_base=_BACKOFF_BASE,
            random_jitter_range=_BACKOFF_JITTER,
            retry_total=settings.attempts - 1,
        ),
    )


def _credential(settings: AzureSettings) -> Any:
    match settings.auth:
        case Auth.KEY:
            return {"account_name": settings.account, "account_key": settings.secret}
        case Auth.SAS:
            return settings.secret
        case Auth.CLIENT:
            return ClientSecretCredential(
                settings.tenant, settings.client_id, settings.secret, authority=settings.authority
            )
        case Auth.MACHINE:
            return ManagedIdentityCredential(client_id=settings.client_id)
        case Auth.WORKLOAD:
            return WorkloadIdentityCredential(
                tenant_id=settings.tenant,
                client_id=settings.client_id,
                token_file_path=settings.token_file,
            )
        case Auth.DEFAULT:
            return DefaultAzureCredential()


@contextlib.contextmanager
def _os_errors(location: Location) -> Iterator[None]:
    """What the client raises as an OSError of ours: with errno, one line, no signature, and the location."""
    try:
        yield
    except ClientAuthenticationError as error:
        raise PermissionError(errno.EACCES, _line(error), str(location)) from None
    except HttpResponseError as error:
        raise _of_answer(error, location) from None
    except AzureError as error:
        raise _of_client(error, location) from None


def _of_answer(error: HttpResponseError, location: Location) -> OSError:
    told = getattr(error, "error_code", None) or error.reason or ""
    code = str(getattr(told, "value", told))
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
