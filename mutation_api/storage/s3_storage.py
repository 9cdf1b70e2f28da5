"""S3 and compatible stores: a bucket, accessed with ``boto3``.

There is no rename. A file is staged as a multipart upload to its **final** key, which stays invisible until
the upload is completed. The completion is one request without data and refuses to replace an object
(``If-None-Match``). If a store does not support this condition, the key is looked up before the completion.

Markers that other programs leave (``name/``, ``name_$folder$``) are listed only as directories.

A file is sent in parts. Memory is bounded by a part, and a part whose request failed is sent again.

Each request is repeated (see ``s3_requests``). So a request may have taken effect although its answer was
lost. A repeated request detects this, since an object contains the name of its upload in its metadata.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any
from urllib.parse import unquote_plus

import pyarrow as pa

from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.storage.object_store import (
    TAIL_BYTES,
    ObjectOutput,
    ObjectStore,
    RangeReader,
    check_uploaded_to,
    nothing,
)
from mutation_api.storage.protocol import FileEntry, Staged, os_error
from mutation_api.storage.s3_requests import (
    ConflictError,
    OutOfRangeError,
    S3Requests,
    UnknownConditionError,
    of_code,
)
from mutation_api.storage.s3_settings import S3Settings
from mutation_api.storage.tree import side_by_side

_KEYS_OF_A_DELETE = 1000
_MOST_PARTS = 10_000
_EMR_MARKER = "_$folder$"
_OWN_NAME = "mutation-upload"
"""Metadata key for the name of the upload that became an object."""
_CONFLICTS_BORNE = 5


def connect(scheme: str, authority: str, settings: HadoopSettings) -> S3Storage:
    """Return the storage of a bucket, without making a request.

    Raises:
        OSError: If the location has no bucket, or if a setting is invalid (EINVAL).
    """
    if not authority:
        raise OSError(errno.EINVAL, "the location has no bucket; expected s3a://bucket/path", f"{scheme}:/")
    return S3Storage(scheme, authority, S3Settings.of_bucket(authority, settings))


class S3Storage(ObjectStore[Mapping[str, Any]]):
    """A bucket. See :class:`~mutation_api.storage.protocol.Storage`."""

    publishes_by_rename = False
    may_have_put = FileExistsError

    def __init__(self, scheme: str, bucket: str, settings: S3Settings) -> None:
        super().__init__(scheme, bucket)
        self._settings = settings
        self._requests = S3Requests(bucket, settings, self.threads)
        self._knows_conditions = True

    # ---- reading

    def list(self, directory: Location) -> list[FileEntry]:
        """Return the children of a directory, sorted by name, without markers."""
        prefix = self._prefix(directory)
        found: dict[str, FileEntry] = {}
        is_there = not prefix
        for page in self._requests.pages("list_objects_v2", directory, Prefix=prefix, Delimiter="/"):
            for each in page.get("CommonPrefixes", ()):
                child = directory / _decoded(each["Prefix"], page).removeprefix(prefix).rstrip("/")
                found[child.name] = FileEntry(child, True, 0)
            for each in page.get("Contents", ()):
                is_there = True
                name = _decoded(each["Key"], page).removeprefix(prefix)
                if name.endswith(_EMR_MARKER):
                    child = directory / name.removesuffix(_EMR_MARKER)
                    found.setdefault(child.name, FileEntry(child, True, 0))
                elif name:
                    found.setdefault(name, _file_entry(directory / name, each["Size"], each))
        if not found and not is_there:
            self._check_directory(directory)
        return sorted(found.values(), key=lambda entry: entry.name)

    def list_below(self, directory: Location) -> Iterator[FileEntry]:
        """Yield the files below a directory at any depth. Markers are yielded as directories."""
        for page in self._requests.pages("list_objects_v2", directory, Prefix=self._prefix(directory)):
            for each in page.get("Contents", ()):
                key = _decoded(each["Key"], page)
                is_marker = key.endswith(("/", _EMR_MARKER))
                child = self._location(key.removesuffix(_EMR_MARKER).rstrip("/"))
                yield FileEntry(child, True, 0) if is_marker else _file_entry(child, each["Size"], each)

    def stat(self, location: Location) -> FileEntry | None:
        """Return the file or directory at a location, or None."""
        key = self._key(location)
        head = self._head(location) if key else None
        if head is not None:
            return _file_entry(location, head["ContentLength"], head)
        page = self._requests.ask("list_objects_v2", location, Prefix=self._prefix(location), MaxKeys=1)
        return FileEntry(location, True, 0) if page.get("KeyCount") or not key else None

    def open_input(self, location: Location) -> pa.NativeFile:
        """Return a seekable stream over one version of a file. It never mixes bytes of two versions."""
        try:
            answer, tail = self._requests.content(
                location, Key=self._key(location), Range=f"bytes=-{TAIL_BYTES}"
            )
        except FileNotFoundError:
            if self.stat(location) is not None:
                raise os_error(errno.EISDIR, location) from None
            raise
        except OutOfRangeError:
            return nothing()  # an empty file has no last byte
        size = int(answer["ContentRange"].rpartition("/")[2]) if "ContentRange" in answer else len(tail)
        read = functools.partial(self._read, location, answer["ETag"])
        return pa.PythonFile(RangeReader(read, size, tail), mode="r")

    def _read(self, location: Location, tag: str, start: int, stop: int) -> bytes:
        return self._requests.content(
            location, Key=self._key(location), Range=f"bytes={start}-{stop - 1}", IfMatch=tag
        )[1]

    # ---- writing

    def stage(self, hidden: Location, target: Location) -> ObjectOutput:
        """Begin an upload to the target."""
        for location in (hidden, target):
            self._key(location)
        return ObjectOutput(
            target, self.send_parts, lambda written: self.abandon([written]), self.begin_upload
        )

    def publish(self, staged: Staged, target: Location) -> None:
        """Complete the upload, unless another object has the target's key."""
        check_uploaded_to(staged, target)
        for _ in range(_CONFLICTS_BORNE):
            if self._complete(staged):
                return
        raise OSError(errno.EBUSY, "other requests are writing to this key at the same time", str(target))

    def unfinished(self, directory: Location) -> Sequence[Staged]:
        """Return the uploads below a directory.

        Not every store lists them: MinIO lists uploads only for whole keys.
        """
        found = []
        for page in self._requests.pages("list_multipart_uploads", directory, Prefix=self._prefix(directory)):
            for each in page.get("Uploads", ()):
                found.append(Staged(self._location(_decoded(each["Key"], page)), each["UploadId"]))
        return sorted(found, key=lambda staged: (staged.location, staged.upload_id))

    def abandon(self, staged: Iterable[Staged]) -> None:
        """Abort uploads."""
        side_by_side(self._abort, staged, self.threads)

    def delete_file(self, location: Location) -> None:
        """Delete a file. A missing one is not an error."""
        self._ask("delete_object", location)

    def delete_directory(self, directory: Location) -> None:
        """Delete everything below a directory and its markers, many objects per request."""
        prefix = self._prefix(directory)
        keys = [
            _decoded(each["Key"], page)
            for page in self._requests.pages("list_objects_v2", directory, Prefix=prefix)
            for each in page.get("Contents", ())
        ]
        for start in range(0, len(keys), _KEYS_OF_A_DELETE):
            self._delete(directory, keys[start : start + _KEYS_OF_A_DELETE])

    # ---- for files being written

    def _put_new(self, location: Location, own_name: str, body: IO[bytes], size: int) -> None:
        """Create a small file in one request."""
        condition = self._condition()
        if not condition and self._head(location) is not None:
            raise os_error(errno.EEXIST, location)
        try:
            self._ask("put_object", location, Body=body.read(size), **self._named(own_name), **condition)
        except UnknownConditionError:
            if not condition:
                raise
            self._knows_conditions = False
            body.seek(0)
            self._put_new(location, own_name, body, size)

    def begin_upload(self, location: Location) -> Staged:
        """Begin an upload. Its only tag is its name."""
        name = uuid.uuid4().hex
        answer = self._ask("create_multipart_upload", location, **self._named(name))
        return Staged(location, answer["UploadId"], (name,))

    def send_parts(self, begun: Staged, body: IO[bytes], size: int) -> Staged:
        """Send all parts of an upload without completing it."""
        location = begun.location
        step = max(self._settings.part_bytes, -(-size // _MOST_PARTS))
        tags = []
        for number, start in enumerate(range(0, max(size, 1), step), start=1):
            body.seek(start)
            part = {"UploadId": begun.upload_id, "PartNumber": number, "Body": body.read(step)}
            answer = self._ask("upload_part", location, **part)
            tags.append(answer["ETag"])
        return Staged(location, begun.upload_id, (*begun.part_tags, *tags))

    def _complete(self, staged: Staged) -> bool:
        """Complete the upload. Return False if the request must be repeated."""
        location, (name, *tags) = staged.location, staged.part_tags
        condition = self._condition()
        head = None if condition else self._head(location)
        if head is not None and self._own_name(head) != name:
            raise os_error(errno.EEXIST, location)
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, start=1)]
        upload = {"UploadId": staged.upload_id}
        try:
            self._ask(
                "complete_multipart_upload", location, MultipartUpload={"Parts": parts}, **upload, **condition
            )
        except ConflictError:
            return False
        except UnknownConditionError:
            if not condition:
                raise
            self._knows_conditions = False
            return False
        except OSError as error:
            if not self._is_own(location, name):
                if not isinstance(error, (FileExistsError, FileNotFoundError)):
                    self._ask("list_parts", location, **upload)  # raises if the upload no longer exists
                raise
        return True

    def _abort(self, staged: Staged) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._ask("abort_multipart_upload", staged.location, UploadId=staged.upload_id)

    def _delete(self, directory: Location, keys: Sequence[str]) -> None:
        objects = [{"Key": key} for key in keys]
        answer = self._requests.ask("delete_objects", directory, Delete={"Objects": objects, "Quiet": True})
        for error in answer.get("Errors", ()):
            raise of_code(error.get("Code", ""), error.get("Message", ""), self._location(error["Key"]))

    # ---- requests

    def _ask(self, operation: str, location: Location, **arguments: Any) -> dict[str, Any]:
        return self._requests.ask(operation, location, Key=self._key(location), **arguments)

    def _head(self, location: Location) -> Mapping[str, Any] | None:
        try:
            return self._ask("head_object", location)
        except FileNotFoundError:
            return None

    def _own_name(self, head: Mapping[str, Any]) -> str | None:
        own: str | None = head.get("Metadata", {}).get(_OWN_NAME)
        return own

    def _condition(self) -> dict[str, str]:
        """Return the condition that no object is replaced. It is empty if the store does not support it."""
        return {"IfNoneMatch": "*"} if self._knows_conditions else {}

    def _named(self, own_name: str) -> dict[str, Any]:
        """Return the arguments that create an object with this name in its metadata."""
        return {"Metadata": {_OWN_NAME: own_name}, **self._encryption()}

    def _encryption(self) -> dict[str, Any]:
        kind, key = self._settings.encryption, self._settings.kms_key
        if kind is None:
            return {}
        return {"ServerSideEncryption": kind} | ({"SSEKMSKeyId": key} if key and "kms" in kind else {})


def _decoded(text: str, page: Mapping[str, Any]) -> str:
    """Return a key of a listing, decoded if the store reports that it encoded keys."""
    return unquote_plus(text) if page.get("EncodingType") == "url" else text


def _file_entry(location: Location, size: int, answer: Mapping[str, Any]) -> FileEntry:
    """Return a file with the time that the store's answer contains."""
    written = answer.get("LastModified")
    return FileEntry(location, False, int(size), None if written is None else written.timestamp())
