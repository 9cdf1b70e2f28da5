"""HDFS, accessed with ``hdfs-native``: no JVM in the workers.

Closing a file takes half a second, nearly all of it waiting: the NameNode first answers "not yet", and the
client sleeps before it repeats the request. So files are closed in parallel in many threads, which also
create small files.

Requests wait for a NameNode that is down, is starting, or hands over to another. After a lost answer, the
storage finds out whether the change took effect. A renamed file is recognised by its size and by its hidden
name, which no longer exists. A created file is recognised by its lease, and a closed file by its length after
the lease was recovered.

New files and directories get the mode of the directory in which they are created (files without x). The mode
of a table's directory shows who works on the table, and Hive's cleaner, another user, must be able to delete
the files. Below a default ACL, all permissions are requested, and the ACL decides. The client respects
neither umask nor ``dfs.replication`` nor ``dfs.blocksize`` of the configuration, so they are passed with each
file.
"""

from __future__ import annotations

import contextlib
import errno
import re
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hdfs_native import Client, WriteOptions

from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.hdfs_client import PatientClient, os_errors, url_of
from mutation_api.storage.hdfs_output import HdfsOutput
from mutation_api.storage.location import Location
from mutation_api.storage.object_store import SizedInput
from mutation_api.storage.protocol import FileEntry, Staged, os_error


class HdfsInput(SizedInput):
    """A file over the client's reader, which panics when read past the end."""

    def __init__(self, reader: Any, location: Location) -> None:
        super().__init__(len(reader), str(location))
        self._reader = reader
        self._location = location

    def _bytes_at(self, start: int, stop: int) -> bytes:
        with os_errors(self._location):
            return bytes(self._reader.read_range(start, stop - start))


THREADS = 256
"""The number of threads that close files. Closing a file takes half a second, and a task may write a file
every two milliseconds."""
_KNOWN_DIRECTORIES = 4096
_ALL = 0o777
_MILLIS_PER_SECOND = 1000
_READ_WRITE = 0o666
_RECOVERY_POLL_SECONDS = 0.2

_OWN_LEASE = re.compile(r"is already the current lease holder|current leaseholder is trying to recreate")


def connect(scheme: str, authority: str, settings: HadoopSettings) -> HdfsStorage:
    """Return the file system of a NameNode, a name service or a mount table, without making a request.

    Raises:
        OSError: If neither the location nor ``fs.defaultFS`` names a NameNode (EINVAL).
    """
    return HdfsStorage(scheme, authority, PatientClient(url_of(scheme, authority, settings), settings))


@dataclass(frozen=True)
class _Modes:
    """The modes of new files and directories in a directory."""

    directory: int
    file: int


class HdfsStorage:
    """An HDFS file system. See :class:`~mutation_api.storage.protocol.Storage`."""

    publishes_by_rename = True
    has_directories = True
    threads = THREADS
    closing_waits = True

    def __init__(self, scheme: str, authority: str, client: PatientClient) -> None:
        self._scheme = scheme
        self._authority = authority
        self._client = client
        self._modes: dict[str, _Modes] = {}

    def list(self, directory: Location) -> list[FileEntry]:
        """Return the children of a directory, sorted by name."""
        path = self._path(directory)
        found = self._client.ask(directory, lambda client: [*client.list_status(path)])
        if [status.path for status in found] == [path] and not found[0].isdir:
            raise os_error(errno.ENOTDIR, directory)
        return sorted((self._entry(status) for status in found), key=lambda entry: entry.name)

    def stat(self, location: Location) -> FileEntry | None:
        """Return the file or directory at a location, or None."""
        try:
            return self._entry(self._status(location))
        except FileNotFoundError:
            return None

    def open_input(self, location: Location) -> pa.NativeFile:
        """Return a seekable stream over the bytes of a file."""
        path = self._path(location)
        if self._status(location).isdir:
            raise os_error(errno.EISDIR, location)
        reader = self._client.ask(location, lambda client: client.read(path))
        return pa.PythonFile(HdfsInput(reader, location), mode="r")

    def create(self, location: Location) -> HdfsOutput:
        """Create a file, which is visible while it is written."""
        self._path(location)
        return HdfsOutput(self, location)

    def create_directory(self, directory: Location) -> None:
        """Create a directory and its parents, each with the mode of its own parent."""
        missing = []
        while self.stat(directory) is None and directory.path != "/":
            missing.append(directory)
            directory = directory.parent
        for each in reversed(missing):
            self._create_one_directory(each)

    def stage(self, hidden: Location, target: Location) -> HdfsOutput:
        """Create the hidden file."""
        self._path(hidden)
        self._path(target)
        return HdfsOutput(self, hidden)

    def publish(self, staged: Staged, target: Location) -> None:
        """Rename the staged file, whose only tag is its size."""
        self.rename(staged.location, target, int(staged.part_tags[0]) if staged.part_tags else None)

    def rename(self, source: Location, target: Location, size: int | None = None) -> None:
        """Rename in one atomic step that refuses an existing target.

        After a lost answer, a target of another size is not mistaken for this file.
        """
        paths = self._path(source), self._path(target)

        def rename_again(client: Client) -> None:
            try:
                with os_errors(source):
                    client.rename(*paths, False)
            except FileNotFoundError:
                found = client.get_file_info(paths[1])
                if found.isdir or size not in (None, found.length):
                    raise

        self._client.ask(source, lambda client: client.rename(*paths, False), again=rename_again)

    def publish_directory(self, hidden: Location, target: Location) -> None:
        """Rename the directory in one atomic step that refuses an existing target."""
        paths = self._path(hidden), self._path(target)

        def rename_again(client: Client) -> None:
            try:
                with os_errors(hidden):
                    client.rename(*paths, False)
            except FileNotFoundError:
                if not client.get_file_info(paths[1]).isdir:
                    raise

        self._client.ask(hidden, lambda client: client.rename(*paths, False), again=rename_again)

    def unfinished(self, directory: Location) -> Sequence[Staged]:
        """Return no files, since HDFS has no uploads."""
        self._path(directory)
        return ()

    def abandon(self, staged: Iterable[Staged]) -> None:
        """Delete staged files."""
        for each in staged:
            with contextlib.suppress(FileNotFoundError):
                self.delete_file(each.location)

    def delete_file(self, location: Location) -> None:
        """Delete a file, including one that a dead writer left open."""
        path = self._path(location)
        is_deleted = self._client.ask(
            location,
            lambda client: client.delete(path, False),
            again=lambda client: client.delete(path, False) or True,
        )
        if not is_deleted:
            raise os_error(errno.ENOENT, location)

    def delete_directory(self, directory: Location) -> None:
        """Delete a directory and everything in it."""
        path = self._path(directory)
        with contextlib.suppress(FileNotFoundError):
            self._client.ask(directory, lambda client: client.delete(path, True))

    def refusal(self, directory: Location) -> PermissionError | None:
        """Return the NameNode's refusal to remove a file that does not exist, or None.

        The NameNode checks permissions before it looks for the file. Only the NameNode knows groups, ACLs and
        superusers. Nothing is changed.
        """
        try:
            self.delete_file(directory / f"_mutation_probe_{uuid.uuid4().hex}")
        except PermissionError as error:
            return PermissionError(error.errno, error.strerror, str(directory))
        except FileNotFoundError:
            return None
        return None

    def sync_directory(self, directory: Location) -> None:
        """Do nothing: the NameNode answers only when its journal is on disk."""
        self._path(directory)

    def open_writer(self, location: Location) -> Any:
        """Return the client's own writer for a new file. The file must not exist, but its directory must."""
        path = self._path(location)
        mode = self._modes_in(location.parent).file
        first, over_own = (self._write_options(mode, overwrite=overwrite) for overwrite in (False, True))

        def create_again(client: Client) -> Any:
            try:
                return client.create(path, first)
            except FileExistsError as error:
                if not _OWN_LEASE.search(str(error)):
                    raise
                return client.create(path, over_own)

        return self._client.ask(location, lambda client: client.create(path, first), again=create_again)

    def finish_writing(self, location: Location, size: int) -> bool:
        """Finish a file that its writer could not close.

        Return True if it is closed with all written bytes.
        """
        path = self._path(location)
        deadline = time.monotonic() + self._client.seconds
        while not self._client.ask(location, lambda client: client.recover_lease(path)):
            if time.monotonic() > deadline:
                return False
            time.sleep(_RECOVERY_POLL_SECONDS)
        return bool(self._status(location).length == size)

    def _write_options(self, mode: int, *, overwrite: bool) -> WriteOptions:
        number = self._client.settings.number
        return WriteOptions(
            block_size=number("dfs.blocksize", 0) or None,
            replication=number("dfs.replication", 0) or None,
            permission=mode,
            overwrite=overwrite,
            create_parent=False,
        )

    def _create_one_directory(self, directory: Location) -> None:
        modes = self._modes_in(directory.parent)
        path = self._path(directory)
        self._client.ask(directory, lambda client: client.mkdirs(path, modes.directory, False))

    def _modes_in(self, directory: Location) -> _Modes:
        path = self._path(directory)
        if path not in self._modes:
            if len(self._modes) >= _KNOWN_DIRECTORIES:
                self._modes.clear()
            self._modes[path] = self._find_modes(directory)
        return self._modes[path]

    def _find_modes(self, directory: Location) -> _Modes:
        with contextlib.suppress(OSError), os_errors(directory):  # ACLs may be switched off
            acl = self._client.connected().get_acl_status(self._path(directory))
            if any(entry.scope == "default" for entry in acl.entries):
                return _Modes(_ALL, _READ_WRITE)
        mode = self._status(directory).permission & _ALL
        return _Modes(mode, mode & _READ_WRITE)

    def _status(self, location: Location) -> Any:
        path = self._path(location)
        return self._client.ask(location, lambda client: client.get_file_info(path))

    def _entry(self, status: Any) -> FileEntry:
        location = Location(self._scheme, self._authority, status.path)
        size = 0 if status.isdir else status.length
        return FileEntry(location, status.isdir, size, status.modification_time / _MILLIS_PER_SECOND)

    def _path(self, location: Location) -> str:
        if (location.scheme, location.authority) != (self._scheme, self._authority):
            raise OSError(errno.EXDEV, f"the location is not in {self._client.url}", str(location))
        return location.path
