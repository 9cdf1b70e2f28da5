"""S3 and its like: a bucket, by ``boto3``.

There is no rename. A file is staged as a multipart upload to its **final** key, of which nothing is seen
before it is completed; completing is one request without data, and it refuses to replace (``If-None-Match``).
A store that does not know that condition is asked first whether the key is there.

There are no directories. A place is one if anything lies below it; markers that other programs leave
(``name/``, ``name_$folder$``) count as that and are listed as nothing else.

A file is written to the local disk first and sent when it is closed, in parts: memory is bounded by a part,
and a part whose request failed is sent again from there.

Each request is repeated with back-off as often as ``fs.s3a.attempts.maximum`` says; so each may have been
carried out though its answer was lost, and a repetition finds that out: uploads are named in the metadata of
what they become.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import tempfile
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any
from urllib.parse import unquote_plus

import boto3
import botocore
import pyarrow as pa
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry, Staged
from mutation_api.storage.s3_settings import S3Settings
from mutation_api.storage.side_by_side import side_by_side

__all__ = ["S3Storage", "connect"]

THREADS = 16
_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_KEYS_OF_A_DELETE = 1000
_MOST_PARTS = 10_000
_TAIL_BYTES = 64 * 1024
"""Read at once when a file is opened: the footer of an ORC file, mostly, and all of a small file."""
_FEWEST_READ_BYTES = 256 * 1024
"""Of a read further on: a request costs as much time as this many bytes."""
_EMR_MARKER = "_$folder$"
_OWN_NAME = "mutation-upload"
"""Metadata that tells whether an object is the one that an upload became."""
_MISSING = ("404", "NoSuchKey", "NotFound", "NoSuchBucket")
_NO_UPLOAD = ("NoSuchUpload", "404")
_TAKEN = ("PreconditionFailed", "412")
_BUSY = ("SlowDown", "503", "ServiceUnavailable", "RequestLimitExceeded", "Throttling", "TooManyRequests")
_REFUSED = (
    "AccessDenied",
    "403",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
)
_CONFLICT = ("ConditionalRequestConflict", "409")
_UNKNOWN_CONDITION = ("NotImplemented", "501", "InvalidArgument")
_CONFLICTS_BORNE = 5


def connect(scheme: str, authority: str, settings: HadoopSettings) -> S3Storage:
    """The storage of a bucket; nobody is asked yet.

    Raises:
        OSError: EINVAL, the location names no bucket, or a setting makes no sense.
    """
    if not authority:
        raise OSError(errno.EINVAL, "a location names its bucket: s3a://bucket/path", f"{scheme}:/")
    return S3Storage(scheme, authority, S3Settings.of_bucket(authority, settings))


class S3Storage:
    """One bucket; see :class:`~mutation_api.storage.protocol.Storage`."""

    publishes_by_rename = False
    threads = THREADS

    def __init__(self, scheme: str, bucket: str, settings: S3Settings) -> None:
        self._scheme = scheme
        self._bucket = bucket
        self._settings = settings
        self._guard = threading.Lock()
        self._client: tuple[int, Any] | None = None
        self._knows_conditions = True

    # ---- what is there

    def list(self, directory: Location) -> list[FileEntry]:
        """Children of a directory, sorted by name; markers are no children."""
        prefix = _prefix(self._key(directory))
        found: dict[str, FileEntry] = {}
        is_there = not prefix
        for page in self._pages("list_objects_v2", directory, Prefix=prefix, Delimiter="/"):
            for each in page.get("CommonPrefixes", ()):
                place = directory / _decoded(each["Prefix"], page).removeprefix(prefix).rstrip("/")
                found[place.name] = FileEntry(place, True, 0)
            for each in page.get("Contents", ()):
                is_there = True
                name = _decoded(each["Key"], page).removeprefix(prefix)
                if name.endswith(_EMR_MARKER):
                    place = directory / name.removesuffix(_EMR_MARKER)
                    found.setdefault(place.name, FileEntry(place, True, 0))
                elif name:
                    found.setdefault(name, FileEntry(directory / name, False, int(each["Size"])))
        if not found and not is_there:
            self._raise_not_listed(directory)
        return sorted(found.values(), key=lambda entry: entry.name)

    def list_below(self, directory: Location) -> Iterator[FileEntry]:
        """Files below a directory, at any depth, and markers as the directories that they stand for."""
        for page in self._pages("list_objects_v2", directory, Prefix=_prefix(self._key(directory))):
            for each in page.get("Contents", ()):
                key = _decoded(each["Key"], page)
                is_marker = key.endswith(("/", _EMR_MARKER))
                place = self._location(key.removesuffix(_EMR_MARKER).rstrip("/"))
                yield FileEntry(place, is_marker, 0 if is_marker else int(each["Size"]))

    def stat(self, location: Location) -> FileEntry | None:
        """The file or directory there, or None."""
        key = self._key(location)
        head = self._head(location) if key else None
        if head is not None:
            return FileEntry(location, False, int(head["ContentLength"]))
        page = self._ask("list_objects_v2", location, Prefix=_prefix(key), MaxKeys=1)
        return FileEntry(location, True, 0) if page.get("KeyCount") or not key else None

    def open_input(self, location: Location) -> pa.NativeFile:
        """A seekable stream over the bytes of a file; it goes on with the bytes that it began with."""
        key = self._key(location)
        try:
            answer = self._ask("get_object", location, Key=key, Range=f"bytes=-{_TAIL_BYTES}")
        except FileNotFoundError:
            if self.stat(location) is not None:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(location)) from None
            raise
        except _RangeError:
            return pa.PythonFile(io.BytesIO(b""), mode="r")  # of an empty file there is no last byte
        with _os_errors(location):
            tail = answer["Body"].read()
        size = int(answer["ContentRange"].rpartition("/")[2]) if "ContentRange" in answer else len(tail)
        read = functools.partial(self._read, location, answer["ETag"])
        return pa.PythonFile(_Reader(read, size, tail), mode="r")

    def _read(self, location: Location, tag: str, start: int, stop: int) -> bytes:
        with _os_errors(location):
            answer = self._connected().get_object(
                **self._common(), Key=self._key(location), Range=f"bytes={start}-{stop - 1}", IfMatch=tag
            )
            data: bytes = answer["Body"].read()
        return data

    # ---- writing

    def create(self, location: Location) -> _S3Output:
        """Create a file, which appears when it is closed."""
        self._key(location)
        return _S3Output(self, location, is_staged=False)

    def create_directory(self, directory: Location) -> None:
        """Nothing to do: there are no directories."""
        self._key(directory)

    def stage(self, hidden: Location, target: Location) -> _S3Output:
        """Begin an upload to the target."""
        for location in (hidden, target):
            self._key(location)
        return _S3Output(self, target, is_staged=True)

    def publish(self, staged: Staged, target: Location) -> None:
        """Complete the upload, unless there is something else at its place."""
        if staged.location != target:
            raise OSError(
                errno.EXDEV, f"it was uploaded to {staged.location} and cannot be renamed", str(target)
            )
        for _ in range(_CONFLICTS_BORNE):
            if self._complete(staged):
                return
        raise OSError(errno.EBUSY, "others write to this key at the same time", str(target))

    def unfinished(self, directory: Location) -> Sequence[Staged]:
        """Uploads below a directory. Not every store lists them: MinIO answers for whole keys only."""
        found = []
        for page in self._pages("list_multipart_uploads", directory, Prefix=_prefix(self._key(directory))):
            for each in page.get("Uploads", ()):
                found.append(Staged(self._location(_decoded(each["Key"], page)), each["UploadId"]))
        return sorted(found, key=lambda staged: (staged.location, staged.upload_id))

    def abandon(self, staged: Iterable[Staged]) -> None:
        """Abort uploads."""
        side_by_side(self._abort, staged, THREADS)

    def delete_file(self, location: Location) -> None:
        """Delete a file; a missing one is fine."""
        self._ask("delete_object", location, Key=self._key(location))

    def delete_directory(self, directory: Location) -> None:
        """Delete everything below a directory, many in one request, and its markers."""
        prefix = _prefix(self._key(directory))
        keys = [
            _decoded(each["Key"], page)
            for page in self._pages("list_objects_v2", directory, Prefix=prefix)
            for each in page.get("Contents", ())
        ]
        for start in range(0, len(keys), _KEYS_OF_A_DELETE):
            self._delete(directory, keys[start : start + _KEYS_OF_A_DELETE])

    def sync_directory(self, directory: Location) -> None:
        """Nothing to do: what a store has answered for, it keeps."""
        self._key(directory)

    # ---- for files being written

    def put(self, location: Location, body: IO[bytes], size: int) -> None:
        """Create a small file in one request. Raises FileExistsError."""
        name = uuid.uuid4().hex
        extra = {"Metadata": {_OWN_NAME: name}, **self._encryption()}
        if self._knows_conditions:
            extra["IfNoneMatch"] = "*"
        elif self._head(location) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(location))
        try:
            self._ask("put_object", location, Key=self._key(location), Body=body, ContentLength=size, **extra)
        except FileExistsError:
            if not self._is(location, name):
                raise
        except _ConditionError:
            if "IfNoneMatch" not in extra:
                raise
            self._knows_conditions = False
            body.seek(0)
            self.put(location, body, size)

    def upload(self, location: Location, body: IO[bytes], size: int) -> Staged:
        """Send all parts of an upload, which is not completed."""
        name = uuid.uuid4().hex
        extra = {"Metadata": {_OWN_NAME: name}, **self._encryption()}
        key = self._key(location)
        upload_id = self._ask("create_multipart_upload", location, Key=key, **extra)["UploadId"]
        try:
            step = max(self._settings.part_bytes, -(-size // _MOST_PARTS))
            tags = [name]
            for number, start in enumerate(range(0, max(size, 1), step), start=1):
                body.seek(start)
                answer = self._ask(
                    "upload_part",
                    location,
                    Key=key,
                    UploadId=upload_id,
                    PartNumber=number,
                    Body=body.read(step),
                )
                tags.append(answer["ETag"])
        except BaseException:
            with contextlib.suppress(OSError):
                self._abort(Staged(location, upload_id))
            raise
        return Staged(location, upload_id, tuple(tags))

    def _complete(self, staged: Staged) -> bool:
        """Whether it is complete now; False if the request must be repeated."""
        name, *tags = staged.part_tags
        condition = {"IfNoneMatch": "*"} if self._knows_conditions else {}
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, start=1)]
        location = staged.location
        if not condition and self._head(location) is not None and not self._is(location, name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(location))
        try:
            self._ask(
                "complete_multipart_upload",
                location,
                Key=self._key(location),
                UploadId=staged.upload_id,
                MultipartUpload={"Parts": parts},
                **condition,
            )
        except (FileExistsError, FileNotFoundError):
            if not self._is(location, name):
                raise
        except _ConflictError:
            return False
        except _ConditionError:
            if not condition:
                raise
            self._knows_conditions = False
            return False
        except OSError:
            if not self._is(location, name):
                self._ask("list_parts", location, Key=self._key(location), UploadId=staged.upload_id)
                raise
        return True

    def _is(self, location: Location, name: str) -> bool:
        """Whether the object there is the one that was written under this name."""
        head = self._head(location)
        return head is not None and head.get("Metadata", {}).get(_OWN_NAME) == name

    def _abort(self, staged: Staged) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._ask(
                "abort_multipart_upload",
                staged.location,
                Key=self._key(staged.location),
                UploadId=staged.upload_id,
            )

    def _delete(self, directory: Location, keys: Sequence[str]) -> None:
        objects = [{"Key": key} for key in keys]
        answer = self._ask("delete_objects", directory, Delete={"Objects": objects, "Quiet": True})
        for error in answer.get("Errors", ()):
            raise _of_code(error.get("Code", ""), error.get("Message", ""), self._location(error["Key"]))

    # ---- requests

    def _head(self, location: Location) -> dict[str, Any] | None:
        try:
            return self._ask("head_object", location, Key=self._key(location))
        except FileNotFoundError:
            return None

    def _pages(self, operation: str, location: Location, **arguments: Any) -> Iterator[dict[str, Any]]:
        with _os_errors(location):
            paginator = self._connected().get_paginator(operation)
            yield from paginator.paginate(**self._common(), EncodingType="url", **arguments)

    def _ask(self, operation: str, location: Location, **arguments: Any) -> dict[str, Any]:
        with _os_errors(location):
            answer: dict[str, Any] = getattr(self._connected(), operation)(**self._common(), **arguments)
            return answer

    def _common(self) -> dict[str, str]:
        payer = {"RequestPayer": "requester"} if self._settings.requester_pays else {}
        return {"Bucket": self._bucket, **payer}

    def _encryption(self) -> dict[str, Any]:
        kind, key = self._settings.encryption, self._settings.kms_key
        if kind is None:
            return {}
        return {"ServerSideEncryption": kind} | ({"SSEKMSKeyId": key} if key and "kms" in kind else {})

    def _raise_not_listed(self, directory: Location) -> None:
        if self._head(directory) is not None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))

    def _connected(self) -> Any:
        """The client of this process; its connections must not be shared with a forked one."""
        process_id = os.getpid()
        known = self._client
        if known is not None and known[0] == process_id:
            return known[1]
        with self._guard:
            if self._client is None or self._client[0] != process_id:
                self._client = (process_id, _client(self._settings))
            return self._client[1]

    def _key(self, location: Location) -> str:
        if (location.scheme, location.authority) != (self._scheme, self._bucket):
            raise OSError(errno.EXDEV, f"the location does not lie in s3a://{self._bucket}", str(location))
        return location.path.lstrip("/")

    def _location(self, key: str) -> Location:
        return Location(self._scheme, self._bucket, f"/{key}")


class _S3Output:
    """A file being written; see :class:`~mutation_api.storage.protocol.OutputFile`."""

    def __init__(self, storage: S3Storage, location: Location, *, is_staged: bool) -> None:
        self._storage = storage
        self._is_staged = is_staged
        self._written = Staged(location)
        self._is_closed = False
        self._earlier: IO[bytes] | None = None
        self._spool: IO[bytes] = _local_copy()

    @property
    def staged(self) -> Staged:
        """Where it will appear, and once it is closed the upload."""
        return self._written

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Append bytes to the local copy."""
        return self._spool.write(data)

    def restart(self) -> pa.NativeFile:
        """What was written so far, in the local copy."""
        self._earlier, self._spool = self._spool, _local_copy()
        self._earlier.seek(0)
        return pa.PythonFile(self._earlier, mode="r")

    def close(self) -> None:
        """Send it; a file that is not staged appears."""
        if self._is_closed:
            return
        location = self._written.location
        with self._spool as spool:
            size = spool.seek(0, os.SEEK_END)
            spool.seek(0)
            if self._is_staged:
                self._written = self._storage.upload(location, spool, size)
            else:
                self._storage.put(location, spool, size)
        self._is_closed = True
        self._drop_copies()

    def discard(self) -> None:
        """Abort the upload; of a file that is not staged and closed, delete it."""
        self._drop_copies()
        if self._is_closed and self._is_staged:
            self._storage.abandon([self._written])
        elif self._is_closed:
            self._storage.delete_file(self._written.location)

    def _drop_copies(self) -> None:
        self._spool.close()
        if self._earlier is not None:
            self._earlier.close()


def _local_copy() -> IO[bytes]:
    """A file without a name on the local disk (``TMPDIR``)."""
    return tempfile.TemporaryFile(prefix="hive-mutation-")


class _Reader(io.RawIOBase):
    """A file over ranged requests, its end read already."""

    def __init__(self, read: Any, size: int, tail: bytes) -> None:
        super().__init__()
        self._read_range = read
        self._size = size
        self._known_start = size - len(tail)
        self._known = tail
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, "a position before the beginning")
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._position)
        count = left if size is None or size < 0 else min(size, left)
        if not count:
            return b""
        start = self._position
        self._know(start, start + count)
        self._position += count
        return self._known[start - self._known_start : start - self._known_start + count]

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _know(self, start: int, stop: int) -> None:
        """Have these bytes; what lay there before is forgotten, but for the end of the file."""
        if self._known_start <= start and stop <= self._known_start + len(self._known):
            return
        stop = min(self._size, max(stop, start + _FEWEST_READ_BYTES))
        self._known = self._read_range(start, stop)
        self._known_start = start


class _RangeError(OSError):
    """The range that was asked for lies behind the end."""


class _ConflictError(OSError):
    """Somebody writes the same key; the request may be repeated."""


class _ConditionError(OSError):
    """The store does not know the condition."""


@contextlib.contextmanager
def _os_errors(location: Location) -> Iterator[None]:
    """What the client raises as an OSError of ours: with errno, one line, and the location."""
    try:
        yield
    except ClientError as error:
        told = error.response.get("Error", {})
        request_id = error.response.get("ResponseMetadata", {}).get("RequestId", "")
        text = f"{told.get('Message') or error.operation_name} ({told.get('Code')}, request {request_id})"
        raise _of_code(str(told.get("Code", "")), text, location) from None
    except BotoCoreError as error:
        raise _of_client(error, location) from None


def _of_code(code: str, text: str, location: Location) -> OSError:
    kinds: list[tuple[Sequence[str], type[OSError], int]] = [
        (_MISSING + _NO_UPLOAD, FileNotFoundError, errno.ENOENT),
        (_TAKEN, FileExistsError, errno.EEXIST),
        (_REFUSED, PermissionError, errno.EACCES),
        (_BUSY, BlockingIOError, errno.EAGAIN),
        (("InvalidRange", "416"), _RangeError, errno.EINVAL),
        (_CONFLICT, _ConflictError, errno.EBUSY),
        (_UNKNOWN_CONDITION, _ConditionError, errno.ENOTSUP),
    ]
    for codes, kind, number in kinds:
        if code in codes:
            return kind(number, " ".join(text.split()), str(location))
    return OSError(errno.EIO, " ".join(text.split()), str(location))


def _of_client(error: BotoCoreError, location: Location) -> OSError:
    text = " ".join(str(error).split())
    name = type(error).__name__
    if "Timeout" in name:
        return TimeoutError(errno.ETIMEDOUT, text, str(location))
    if "Credential" in name or "Profile" in name:
        return PermissionError(errno.EACCES, text, str(location))
    if "Connection" in name or "Endpoint" in name or "HTTPClient" in name:
        return ConnectionError(errno.ECONNREFUSED, text, str(location))
    return OSError(errno.EIO, text, str(location))


def _client(settings: S3Settings) -> Any:
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        max_pool_connections=max(THREADS, settings.max_connections),
        retries={"mode": "standard", "total_max_attempts": settings.attempts},
        s3={"addressing_style": "path" if settings.path_style else "auto"},
        signature_version=botocore.UNSIGNED if settings.anonymous else None,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    session = boto3.session.Session(
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=settings.secret_key,
        aws_session_token=settings.session_token,
        region_name=settings.region,
    )
    return session.client("s3", endpoint_url=settings.endpoint, config=config)


def _prefix(key: str) -> str:
    return f"{key}/" if key else ""


def _decoded(text: str, page: Mapping[str, Any]) -> str:
    """A key of a listing; a store that does not encode does not say that it did."""
    return unquote_plus(text) if page.get("EncodingType") == "url" else text
