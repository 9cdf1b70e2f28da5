"""Google Cloud Storage: a bucket, accessed with ``google-cloud-storage``, and its settings.

Publishing is a rename. The store moves an object within its bucket in one atomic step, without transferring
its bytes, and on request refuses to replace another object (``ifGenerationMatch=0``). So a file is staged as
an object under its hidden name: one request by the writer, one by the committer. Multipart uploads, which the
S3 module uses, do not accept conditions there.

Markers that Hadoop's connector leaves (``name/``) are listed only as directories.

Failed requests are repeated with back-off for a limited time. So a request may have taken effect although its
answer was lost. A repeated request detects this: an object contains the name of its writer in its metadata,
which a move preserves.

Settings are Hadoop's properties. Missing ones are found as Google's clients find them: in
``GOOGLE_APPLICATION_CREDENTIALS``, in the login of ``gcloud``, or through the service account of the machine.

Source: the configuration page of Google's Hadoop connector. Its older ``google.cloud.auth.*`` properties
    apply if ``fs.gs.auth.*`` is not set.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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

from mutation_api.storage.hadoop_settings import ClientOfProcess, HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.storage.object_store import ObjectOutput, ObjectStore, opened
from mutation_api.storage.protocol import FileEntry, Staged, os_error
from mutation_api.storage.tree import side_by_side

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
def os_errors(location: Location) -> Iterator[None]:
    """Turn the client's errors into OSError with errno, a one-line reason and the location."""
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


_ROOT_URL_DEFAULT = "https://storage.googleapis.com"
_ATTEMPTS_DEFAULT = 8
_OLDER = "google.cloud.auth."
_NEWER = "fs.gs.auth."
_REFUSED = {
    "fs.gs.encryption.key": "this client does not support customer-supplied encryption keys",
    "fs.gs.auth.impersonation.service.account": "this client does not support impersonation",
    "fs.gs.auth.service.account.keyfile": "this client reads keys only from a JSON file "
    "(fs.gs.auth.service.account.json.keyfile)",
    "fs.gs.auth.service.account.private.key": "this client reads keys only from a file "
    "(fs.gs.auth.service.account.json.keyfile)",
}


class Auth(enum.Enum):
    """The source of credentials, by the connector's names."""

    DEFAULT = "APPLICATION_DEFAULT"
    MACHINE = "COMPUTE_ENGINE"
    KEY_FILE = "SERVICE_ACCOUNT_JSON_KEYFILE"
    FEDERATION = "WORKLOAD_IDENTITY_FEDERATION_CREDENTIAL_CONFIG_FILE"
    NOBODY = "UNAUTHENTICATED"


_KEY_FILE = "service.account.json.keyfile"
_FEDERATION_FILE = "workload.identity.federation.credential.config.file"
_FILES = {Auth.KEY_FILE: _KEY_FILE, Auth.FEDERATION: _FEDERATION_FILE}


@dataclass(frozen=True)
class GcsSettings:
    """The settings of a bucket. ``credentials_file`` is a path if ``auth`` requires one."""

    auth: Auth
    credentials_file: str | None
    root_url: str
    project: str | None
    payer: str | None
    attempts: int

    @classmethod
    def of_bucket(cls, bucket: str, settings: HadoopSettings) -> GcsSettings:
        """Return the settings of a bucket.

        Raises:
            OSError: If a setting is invalid or not supported by this client (EINVAL).
        """
        location = f"gs://{bucket}"
        for name, why in _REFUSED.items():
            if settings.get(name) is not None:
                raise OSError(errno.EINVAL, f"{name} is set, but {why}", location)
        auth = _auth(settings, location)
        project = settings.get("fs.gs.project.id")
        return cls(
            auth=auth,
            credentials_file=_credentials_file(settings, auth, location),
            root_url=(settings.get("fs.gs.storage.root.url") or _ROOT_URL_DEFAULT).rstrip("/"),
            project=project,
            payer=_payer(settings, bucket, location),
            attempts=max(1, settings.number("fs.gs.http.max.retry", _ATTEMPTS_DEFAULT - 1) + 1),
        )


def _auth(settings: HadoopSettings, location: str) -> Auth:
    text = settings.get(f"{_NEWER}type")
    if text is not None:
        known = {auth.value: auth for auth in Auth}
        if text.upper() not in known:
            raise OSError(
                errno.EINVAL, f"unsupported {_NEWER}type {text!r}; supported: {', '.join(known)}", location
            )
        return known[text.upper()]
    if _older_flag(settings, "null.enable", default=False):
        return Auth.NOBODY
    if _text(settings, _KEY_FILE) and _older_flag(settings, "service.account.enable", default=True):
        return Auth.KEY_FILE
    return Auth.DEFAULT


def _text(settings: HadoopSettings, name: str) -> str | None:
    return settings.get(f"{_NEWER}{name}") or settings.get(f"{_OLDER}{name}")


def _older_flag(settings: HadoopSettings, name: str, default: bool) -> bool:
    """Return a flag by either of its names. The newer name takes precedence."""
    return settings.flag(f"{_NEWER}{name}", settings.flag(f"{_OLDER}{name}", default))


def _credentials_file(settings: HadoopSettings, auth: Auth, location: str) -> str | None:
    if auth not in _FILES:
        return None
    path = _text(settings, _FILES[auth])
    if path is None:
        raise OSError(
            errno.EINVAL, f"{_NEWER}type is {auth.value}, but {_NEWER}{_FILES[auth]} is missing", location
        )
    return path.removeprefix("file://")


def _payer(settings: HadoopSettings, bucket: str, location: str) -> str | None:
    """Return the project that pays for requests, or None if it is the bucket's owner."""
    mode = (settings.get("fs.gs.requester.pays.mode") or "DISABLED").upper()
    buckets = (settings.get("fs.gs.requester.pays.buckets") or "").replace(" ", "").split(",")
    if mode not in ("DISABLED", "ENABLED", "CUSTOM"):
        raise OSError(
            errno.EINVAL,
            f"unsupported fs.gs.requester.pays.mode {mode!r}; supported: DISABLED, ENABLED and CUSTOM",
            location,
        )
    if mode == "DISABLED" or (mode == "CUSTOM" and bucket not in buckets):
        return None
    payer = settings.get("fs.gs.requester.pays.project.id") or settings.get("fs.gs.project.id")
    if payer is None:
        raise OSError(
            errno.EINVAL, "fs.gs.requester.pays.project.id is missing: name the project that pays", location
        )
    return payer


_TIMEOUTS = (10, 60)
"""Timeouts in seconds for connecting and reading."""
_RETRY_SECONDS = 120.0
_RETRY = DEFAULT_RETRY.with_delay(initial=0.2, maximum=20.0, multiplier=2.0).with_timeout(_RETRY_SECONDS)
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)


def patience() -> dict[str, Any]:
    """Return the arguments of every request: repeat it with back-off for a limited time."""
    return {"retry": _RETRY, "timeout": _TIMEOUTS}


def connected(settings: GcsSettings, threads: int) -> storage.Client:
    """Return a client for this many threads, without making a request."""
    client = storage.Client(
        project=settings.project or "none",  # needed only to create buckets
        credentials=_credentials(settings),
        client_options={"api_endpoint": settings.root_url},
    )
    for scheme in ("https://", "http://"):
        client._http.mount(scheme, HTTPAdapter(pool_maxsize=threads))
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


_OWN_NAME = "mutation-upload"
"""Metadata key for the name of an object's writer."""
_ONLY_NEW = 0
"""The generation that, as a condition, means that the object must not exist."""


def connect(scheme: str, authority: str, settings: HadoopSettings) -> GcsStorage:
    """Return the storage of a bucket, without making a request.

    Raises:
        OSError: If the location has no bucket, or if a setting is invalid (EINVAL).
    """
    if not authority:
        raise OSError(errno.EINVAL, "the location has no bucket; expected gs://bucket/path", f"{scheme}:/")
    return GcsStorage(scheme, authority, GcsSettings.of_bucket(authority, settings))


class GcsStorage(ObjectStore[storage.Blob]):
    """A bucket. See :class:`~mutation_api.storage.protocol.Storage`."""

    publishes_by_rename = True

    def __init__(self, scheme: str, bucket: str, settings: GcsSettings) -> None:
        super().__init__(scheme, bucket)
        self._settings = settings
        self._client = ClientOfProcess(lambda: connected(settings, self.threads))

    # ---- reading

    def list(self, directory: Location) -> list[FileEntry]:
        """Return the children of a directory, sorted by name, without markers."""
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
        """Return the file or directory at a location, or None."""
        key = self._key(location)
        head = self._head(location) if key else None
        if head is not None:
            return FileEntry(location, False, int(head.size), _modified(head))
        with os_errors(location):
            below = any(self._bucket().list_blobs(prefix=self._prefix(location), max_results=1, **patience()))
        return FileEntry(location, True, 0) if below or not key else None

    def open_input(self, location: Location) -> pa.NativeFile:
        """Return a seekable stream over one version of a file. It never mixes bytes of two versions."""
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
        """Return no uploads, since staged files are complete objects."""
        self._key(directory)
        return ()

    def abandon(self, staged: Iterable[Staged]) -> None:
        """Delete staged objects."""
        side_by_side(lambda each: self.delete_file(each.location), staged, self.threads)

    def delete_file(self, location: Location) -> None:
        """Delete a file. A missing one is not an error."""
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
    """Return the time when an object was written, in seconds since 1970."""
    return None if blob.updated is None else float(blob.updated.timestamp())
