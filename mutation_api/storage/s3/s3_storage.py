"""S3 and its like: a bucket, by ``boto3``.

There is no rename. A file is staged as a multipart upload to its **final** key, of which nothing is seen
before it is completed; completing is one request without data, and it refuses to replace (``If-None-Match``).
A store that does not know that condition is asked first whether the key is there.

There are no directories. A place is one if anything lies below it; markers that other programs leave
(``name/``, ``name_$folder$``) count as that and are listed as nothing else.

A file is written to the local disk first and sent when it is closed, in parts: memory is bounded by a part,
and a part whose request failed is sent again from there.

Each request is repeated with back-off as often as ``fs.s3a.attempts.maximum`` says (see ``s3_repeating``); so
each may have been carried out though its answer was lost, and a repetition finds that out: uploads are named
in the metadata of what they become.

Keys may expire at any time. Those that the AWS client found itself are looked for anew when the store calls
them expired, which is what a profile or an environment needs that somebody else keeps fresh.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, TypeVar
from urllib.parse import unquote_plus

import boto3
import botocore
import pyarrow as pa
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError

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
from mutation_api.storage.s3.repeating import Repeating
from mutation_api.storage.s3.s3_settings import S3Settings
from mutation_api.storage.side_by_side import side_by_side

__all__ = ["S3Storage", "connect"]

_Answer = TypeVar("_Answer")

THREADS = 16
_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_KEYS_OF_A_DELETE = 1000
_MOST_PARTS = 10_000
_EMR_MARKER = "_$folder$"
_OWN_NAME = "mutation-upload"
"""Metadata that tells whether an object is the one that an upload became."""
_MISSING = ("404", "NoSuchKey", "NotFound", "NoSuchBucket")
_NO_UPLOAD = ("NoSuchUpload", "404")
_TAKEN = ("PreconditionFailed", "412")
_BUSY = ("SlowDown", "503", "ServiceUnavailable", "RequestLimitExceeded", "Throttling", "TooManyRequests")
_REFUSED = ("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken")
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "400")
"""The answer to a HEAD tells its status alone; with good keys no HEAD of ours is a bad request."""
_EXPIRED_HINT = "the credentials for the store have expired; give new ones and run the job again"
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
    has_directories = False
    threads = THREADS
    closing_waits = False

    def __init__(self, scheme: str, bucket: str, settings: S3Settings) -> None:
        self._scheme = scheme
        self._bucket = bucket
        self._settings = settings
        self._client = ClientOfProcess(lambda: _client(settings))
        self._knows_conditions = True

    # ---- what is there

    def list(self, directory: Location) -> list[FileEntry]:
        """Children of a directory, sorted by name; markers are no children."""
        prefix = prefix_of(self._key(directory))
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
        for page in self._pages("list_objects_v2", directory, Prefix=prefix_of(self._key(directory))):
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
        page = self._ask("list_objects_v2", location, Prefix=prefix_of(key), MaxKeys=1)
        return FileEntry(location, True, 0) if page.get("KeyCount") or not key else None

    def open_input(self, location: Location) -> pa.NativeFile:
        """A seekable stream over the bytes of a file; it goes on with the bytes that it began with."""
        try:
            answer, tail = self._content(location, Range=f"bytes=-{TAIL_BYTES}")
        except FileNotFoundError:
            if self.stat(location) is not None:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(location)) from None
            raise
        except _RangeError:
            return pa.PythonFile(io.BytesIO(b""), mode="r")  # of an empty file there is no last byte
        size = int(answer["ContentRange"].rpartition("/")[2]) if "ContentRange" in answer else len(tail)
        read = functools.partial(self._read, location, answer["ETag"])
        return pa.PythonFile(RangeReader(read, size, tail), mode="r")

    def _read(self, location: Location, tag: str, start: int, stop: int) -> bytes:
        return self._content(location, Range=f"bytes={start}-{stop - 1}", IfMatch=tag)[1]

    def _content(self, location: Location, **arguments: Any) -> tuple[dict[str, Any], bytes]:
        """Answer and bytes; asked for again if the line breaks in the middle of them."""
        repeating = Repeating(self._settings.attempts)
        for attempt in range(1, self._settings.attempts):
            try:
                return self._content_at_once(location, arguments)
            except _BrokenError:
                time.sleep(repeating.pause_seconds(attempt))
        return self._content_at_once(location, arguments)

    def _content_at_once(
        self, location: Location, arguments: Mapping[str, Any]
    ) -> tuple[dict[str, Any], bytes]:
        answer = self._ask("get_object", location, Key=self._key(location), **arguments)
        try:
            return answer, answer["Body"].read()
        except (HTTPClientError, IncompleteReadError) as error:
            text = f"the line broke in the middle of an answer: {' '.join(str(error).split())}"
            raise _BrokenError(errno.ECONNRESET, text, str(location)) from None

    # ---- writing

    def create(self, location: Location) -> ObjectOutput:
        """Create a file, which appears when it is closed."""
        self._key(location)
        return ObjectOutput(location, self._put, lambda written: self.delete_file(written.location))

    def create_directory(self, directory: Location) -> None:
        """Nothing to do: there are no directories."""
        self._key(directory)

    def stage(self, hidden: Location, target: Location) -> ObjectOutput:
        """Begin an upload to the target."""
        for location in (hidden, target):
            self._key(location)
        return ObjectOutput(
            target, self.send_parts, lambda written: self.abandon([written]), self.begin_upload
        )

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
        for page in self._pages("list_multipart_uploads", directory, Prefix=prefix_of(self._key(directory))):
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
        prefix = prefix_of(self._key(directory))
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

    def _put(self, written: Staged, body: IO[bytes], size: int) -> Staged:
        """Create a small file in one request. Raises FileExistsError."""
        location = written.location
        name = uuid.uuid4().hex
        extra = {"Metadata": {_OWN_NAME: name}, **self._encryption()}
        if self._knows_conditions:
            extra["IfNoneMatch"] = "*"
        elif self._head(location) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(location))
        try:
            self._ask("put_object", location, Key=self._key(location), Body=body.read(size), **extra)
        except FileExistsError:
            if not self._is(location, name):
                raise
        except _ConditionError:
            if "IfNoneMatch" not in extra:
                raise
            self._knows_conditions = False
            body.seek(0)
            return self._put(written, body, size)
        return Staged(location)

    def begin_upload(self, location: Location) -> Staged:
        """Begin an upload; the one tag that it has is its name."""
        name = uuid.uuid4().hex
        extra = {"Metadata": {_OWN_NAME: name}, **self._encryption()}
        answer = self._ask("create_multipart_upload", location, Key=self._key(location), **extra)
        return Staged(location, answer["UploadId"], (name,))

    def send_parts(self, begun: Staged, body: IO[bytes], size: int) -> Staged:
        """Send all parts of an upload, which is not completed."""
        location = begun.location
        step = max(self._settings.part_bytes, -(-size // _MOST_PARTS))
        tags = []
        for number, start in enumerate(range(0, max(size, 1), step), start=1):
            body.seek(start)
            answer = self._ask(
                "upload_part",
                location,
                Key=self._key(location),
                UploadId=begun.upload_id,
                PartNumber=number,
                Body=body.read(step),
            )
            tags.append(answer["ETag"])
        return Staged(location, begun.upload_id, (*begun.part_tags, *tags))

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

    def _pages(self, operation: str, location: Location, **arguments: Any) -> Sequence[dict[str, Any]]:
        def pages(client: Any) -> Sequence[dict[str, Any]]:
            paginator = client.get_paginator(operation)
            return tuple(paginator.paginate(**self._common(), EncodingType="url", **arguments))

        return self._with_good_keys(location, pages)

    def _ask(self, operation: str, location: Location, **arguments: Any) -> dict[str, Any]:
        def request(client: Any) -> dict[str, Any]:
            answer: dict[str, Any] = getattr(client, operation)(**self._common(), **arguments)
            return answer

        return self._with_good_keys(location, request)

    def _with_good_keys(self, location: Location, request: Callable[[Any], _Answer]) -> _Answer:
        """Do it; once more with a client that looks for its keys anew if they have expired."""
        with _os_errors(location):
            client = self._client.get()
        try:
            with _os_errors(location):
                return request(client)
        except _ExpiredError:
            if not self._settings.finds_keys_itself:
                raise
        self._client.forget(client)
        with _os_errors(location):
            return request(self._client.get())

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

    def _key(self, location: Location) -> str:
        if (location.scheme, location.authority) != (self._scheme, self._bucket):
            raise OSError(errno.EXDEV, f"the location does not lie in s3a://{self._bucket}", str(location))
        return location.path.lstrip("/")

    def _location(self, key: str) -> Location:
        return Location(self._scheme, self._bucket, f"/{key}")


class _RangeError(OSError):
    """The range that was asked for lies behind the end."""


class _BrokenError(ConnectionError):
    """An answer began well and did not end."""


class _ExpiredError(PermissionError):
    """The keys were good once."""


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
    except json.JSONDecodeError as error:  # the store answers in XML
        text = f"whoever tells the keys for the store does not answer in JSON: {error}"
        raise PermissionError(errno.EACCES, text, str(location)) from None
    except RuntimeError as error:
        if "expired" not in str(error):  # so the client says that keys which it has just got are over
            raise
        raise _ExpiredError(errno.EACCES, f"{error} ({_EXPIRED_HINT})", str(location)) from None


def _of_code(code: str, text: str, location: Location) -> OSError:
    kinds: list[tuple[Sequence[str], type[OSError], int]] = [
        (_MISSING + _NO_UPLOAD, FileNotFoundError, errno.ENOENT),
        (_TAKEN, FileExistsError, errno.EEXIST),
        (_REFUSED, PermissionError, errno.EACCES),
        (_EXPIRED, _ExpiredError, errno.EACCES),
        (_BUSY, BlockingIOError, errno.EAGAIN),
        (("InvalidRange", "416"), _RangeError, errno.EINVAL),
        (_CONFLICT, _ConflictError, errno.EBUSY),
        (_UNKNOWN_CONDITION, _ConditionError, errno.ENOTSUP),
    ]
    if code in _EXPIRED:
        text = f"{text}: {_EXPIRED_HINT}"
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
        retries={"mode": "standard", "total_max_attempts": 1},  # see s3_repeating
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
    client = session.client("s3", endpoint_url=settings.endpoint, config=config)
    client.meta.events.register("needs-retry.s3", Repeating(settings.attempts))
    return client


def _decoded(text: str, page: Mapping[str, Any]) -> str:
    """A key of a listing; a store that does not encode does not say that it did."""
    return unquote_plus(text) if page.get("EncodingType") == "url" else text
