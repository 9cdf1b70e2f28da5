"""Google Cloud Storage: a bucket, by ``google-cloud-storage``.

Publishing is a rename. The store moves an object within its bucket in one atomic step, without its bytes, and
refuses to replace another one if it is told to (``ifGenerationMatch=0``). So a file is staged as an object
under its hidden name: one request by whoever writes, one by whoever commits. Unfinished multipart uploads,
which S3's module uses, take no conditions there.

There are no directories. A place is one if anything lies below it; markers that Hadoop's connector leaves
(``name/``) count as that and are listed as nothing else.

Requests that fail are repeated with back-off for a bounded time; so each may have been carried out though its
answer was lost, and a repetition finds that out: objects tell in their metadata who wrote them, and keep it
when they are moved.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import google.auth
import pyarrow as pa
import requests
from google.api_core.exceptions import (
    Forbidden,
    GoogleAPICallError,
    NotFound,
    PreconditionFailed,
    RetryError,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from google.auth import compute_engine
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError, TransportError
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.cloud.storage.retry import DEFAULT_RETRY
from requests.adapters import HTTPAdapter

from mutation_api.storage.gcs.gcs_settings import Auth, GcsSettings
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

__all__ = ["GcsStorage", "connect"]

THREADS = 16
_TIMEOUTS = (10, 60)
"""Seconds to connect, and to read."""
_RETRY_SECONDS = 120.0
_RETRY = DEFAULT_RETRY.with_delay(initial=0.2, maximum=20.0, multiplier=2.0).with_timeout(_RETRY_SECONDS)
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
_OWN_NAME = "mutation-upload"
"""Metadata that tells who wrote an object."""
_ONLY_NEW = 0
"""The generation of an object that is not there."""


def connect(scheme: str, authority: str, settings: HadoopSettings) -> GcsStorage:
    """The storage of a bucket; nobody is asked yet.

    Raises:
        OSError: EINVAL, the location names no bucket, or a setting makes no sense.
    """
    if not authority:
        raise OSError(errno.EINVAL, "a location names its bucket: gs://bucket/path", f"{scheme}:/")
    return GcsStorage(scheme, authority, GcsSettings.of_bucket(authority, settings))


class GcsStorage:
    """One bucket; see :class:`~mutation_api.storage.protocol.Storage`."""

    publishes_by_rename = True
    has_directories = False
    threads = THREADS
    closing_waits = False

    def __init__(self, scheme: str, bucket: str, settings: GcsSettings) -> None:
        self._scheme = scheme
        self._name = bucket
        self._settings = settings
        self._client: ClientOfProcess[storage.Client] = ClientOfProcess(lambda: _client(settings))

    # ---- what is there

    def list(self, directory: Location) -> list[FileEntry]:
        """Children of a directory, sorted by name; markers are no children."""
        prefix = prefix_of(self._key(directory))
        found: dict[str, FileEntry] = {}
        is_there = not prefix
        with _os_errors(directory):
            listing = self._bucket().list_blobs(prefix=prefix, delimiter="/", **_requests())
            for each in listing:
                is_there = True
                if name := each.name.removeprefix(prefix):
                    found[name] = FileEntry(directory / name, False, int(each.size))
            for each in listing.prefixes:
                place = directory / each.removeprefix(prefix).rstrip("/")
                found[place.name] = FileEntry(place, True, 0)
        if not found and not is_there:
            self._raise_not_listed(directory)
        return sorted(found.values(), key=lambda entry: entry.name)

    def stat(self, location: Location) -> FileEntry | None:
        """The file or directory there, or None."""
        key = self._key(location)
        head = self._head(location) if key else None
        if head is not None:
            return FileEntry(location, False, int(head.size))
        with _os_errors(location):
            below = any(self._bucket().list_blobs(prefix=prefix_of(key), max_results=1, **_requests()))
        return FileEntry(location, True, 0) if below or not key else None

    def open_input(self, location: Location) -> pa.NativeFile:
        """A seekable stream over the bytes of a file; it goes on with the bytes that it began with."""
        head = self._head(location) if self._key(location) else None
        if head is None:
            if self.stat(location) is not None:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(location))
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(location))
        size = int(head.size)
        if not size:
            return pa.PythonFile(io.BytesIO(b""), mode="r")
        read = functools.partial(self._read, location, head.generation)
        return pa.PythonFile(RangeReader(read, size, read(max(0, size - TAIL_BYTES), size)), mode="r")

    def _read(self, location: Location, generation: int, start: int, stop: int) -> bytes:
        with _os_errors(location):
            blob = self._bucket().blob(self._key(location), generation=generation)
            data: bytes = blob.download_as_bytes(
                start=start, end=stop - 1, raw_download=True, checksum=None, **_requests()
            )
        return data

    # ---- writing

    def create(self, location: Location) -> ObjectOutput:
        """Create a file, which appears when it is closed."""
        self._key(location)
        return ObjectOutput(location, self._put, lambda written: self.delete_file(written.location))

    def create_directory(self, directory: Location) -> None:
        """Nothing to do: there are no directories."""
        self._key(directory)

    def stage(self, hidden: Location, target: Location) -> ObjectOutput:
        """Create the hidden file."""
        self._key(target)
        return self.create(hidden)

    def publish(self, staged: Staged, target: Location) -> None:
        """Move the staged object, unless there is something else at its place."""
        source, key = self._key(staged.location), self._key(target)
        try:
            with _os_errors(target):
                bucket = self._bucket()
                bucket.move_blob(bucket.blob(source), key, if_generation_match=_ONLY_NEW, **_requests())
        except OSError:
            if not self._is(target, staged.part_tags):
                raise

    def unfinished(self, directory: Location) -> Sequence[Staged]:
        """What is staged are objects."""
        self._key(directory)
        return ()

    def abandon(self, staged: Iterable[Staged]) -> None:
        """Delete staged objects."""
        side_by_side(lambda each: self.delete_file(each.location), staged, THREADS)

    def delete_file(self, location: Location) -> None:
        """Delete a file; a missing one is fine."""
        with contextlib.suppress(FileNotFoundError), _os_errors(location):
            self._bucket().delete_blob(self._key(location), **_requests())

    def delete_directory(self, directory: Location) -> None:
        """Delete everything below a directory, and its markers."""
        prefix = prefix_of(self._key(directory))
        with _os_errors(directory):
            names = [each.name for each in self._bucket().list_blobs(prefix=prefix, **_requests())]
        side_by_side(lambda name: self._delete(directory, name), names, THREADS)

    def sync_directory(self, directory: Location) -> None:
        """Nothing to do: what a store has answered for, it keeps."""
        self._key(directory)

    # ---- requests

    def _put(self, written: Staged, body: IO[bytes], size: int) -> Staged:
        """Create an object. Raises FileExistsError."""
        location = written.location
        name = uuid.uuid4().hex
        try:
            with _os_errors(location):
                blob = self._bucket().blob(self._key(location))
                blob.metadata = {_OWN_NAME: name}
                blob.upload_from_file(body, size=size, if_generation_match=_ONLY_NEW, **_requests())
        except OSError:
            if not self._is(location, (name,)):
                raise
        return Staged(location, part_tags=(name,))

    def _is(self, location: Location, names: Sequence[str]) -> bool:
        """Whether the object there is the one that was written under this name."""
        head = self._head(location) if names else None
        return head is not None and (head.metadata or {}).get(_OWN_NAME) == names[0]

    def _delete(self, directory: Location, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), _os_errors(directory):
            self._bucket().delete_blob(name, **_requests())

    def _head(self, location: Location) -> storage.Blob | None:
        with _os_errors(location):
            return self._bucket().get_blob(self._key(location), **_requests())

    def _raise_not_listed(self, directory: Location) -> None:
        if self._head(directory) is not None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))

    def _bucket(self) -> storage.Bucket:
        return self._client.get().bucket(self._name, user_project=self._settings.payer)

    def _key(self, location: Location) -> str:
        if (location.scheme, location.authority) != (self._scheme, self._name):
            raise OSError(errno.EXDEV, f"the location does not lie in gs://{self._name}", str(location))
        return location.path.lstrip("/")


def _requests() -> dict[str, Any]:
    return {"retry": _RETRY, "timeout": _TIMEOUTS}


def _client(settings: GcsSettings) -> storage.Client:
    client = storage.Client(
        project=settings.project or "none",  # only needed to make buckets
        credentials=_credentials(settings),
        client_options={"api_endpoint": settings.root_url},
    )
    for scheme in ("https://", "http://"):
        client._http.mount(scheme, HTTPAdapter(pool_maxsize=THREADS))
    return client


def _credentials(settings: GcsSettings) -> Any:
    match settings.auth:
        case Auth.NOBODY:
            return AnonymousCredentials()
        case Auth.MACHINE:
            return compute_engine.Credentials(scopes=_SCOPES)
        case Auth.KEY_FILE | Auth.FEDERATION:
            return google.auth.load_credentials_from_file(settings.credentials_file, scopes=_SCOPES)[0]
        case Auth.DEFAULT:
            return google.auth.default(scopes=_SCOPES)[0]


_KINDS: Sequence[tuple[type[Exception] | tuple[type[Exception], ...], type[OSError], int]] = (
    (NotFound, FileNotFoundError, errno.ENOENT),
    (PreconditionFailed, FileExistsError, errno.EEXIST),
    ((Forbidden, Unauthorized), PermissionError, errno.EACCES),
    ((TooManyRequests, ServiceUnavailable), BlockingIOError, errno.EAGAIN),
    ((requests.Timeout, TimeoutError), TimeoutError, errno.ETIMEDOUT),
    ((requests.ConnectionError, ConnectionError, TransportError), ConnectionError, errno.ECONNREFUSED),
    (GoogleAuthError, PermissionError, errno.EACCES),
)


@contextlib.contextmanager
def _os_errors(location: Location) -> Iterator[None]:
    """What the client raises as an OSError of ours: with errno, one line, and the location."""
    try:
        yield
    except RetryError as error:
        raise _of_client(error.cause or error, location) from None
    except (GoogleAPICallError, GoogleAuthError, InvalidResponse, DataCorruption) as error:
        raise _of_client(error, location) from None
    except (requests.RequestException, ConnectionError) as error:
        raise _of_client(error, location) from None


def _of_client(error: BaseException, location: Location) -> OSError:
    text = " ".join(str(error).split()) or type(error).__name__
    for kinds, kind, number in _KINDS:
        if isinstance(error, kinds):
            return kind(number, text, str(location))
    return OSError(errno.EIO, text, str(location))
