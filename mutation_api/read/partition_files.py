"""The files of a partition that a snapshot reads, and the partitions of a table without a metastore.

Files are found by listing directories. Only side files are opened: the markers of bases and the lengths of
files that are being written. Files are rejected if Hive would silently lose or duplicate rows: names in a
delta that are not bucket files, two files of one bucket in a delta, plain files whose rows cannot have a
ROW__ID.

Without a metastore, the directories of a table show its partitions and ACID version.

Source: Hive's AcidUtils and OrcInputFormat (2.3, 3.1, 4.x).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence

from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.errors import CorruptFileError, DirectoryStateError
from mutation_api.format.directory_state import DirectoryState, choose_directories
from mutation_api.format.event import ACID_VERSION
from mutation_api.format.layout import (
    ACID_VERSION_FILE,
    BASE_MARKER,
    FLUSH_LENGTH_SUFFIX,
    LONG_MIN,
    AcidVersion,
    BaseDirectory,
    DeltaDirectory,
    is_hidden,
    parse_bucket_file_name,
    parse_directory_name,
    parse_original_file_name,
)
from mutation_api.orc.format.tail import OrcTail, read_tail
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry, Storage
from mutation_api.storage.tree import Directories, directories_below, side_by_side
from mutation_api.table.acid_table import AcidTable

_UNKNOWN_BUCKET = -1
_FLUSH_LENGTH_BYTES = 8


def list_partition_files(
    storage: Directories,
    table: AcidTable,
    location: Location,
    valid: ValidIdList,
    valid_txns: ValidTxnList | None,
) -> list[EventFile]:
    """Return the files of a partition that a snapshot reads; empty if the directory is missing.

    Args:
        storage: the partition's storage.
        table: the table, whose version is used.
        location: the partition's location.
        valid: the ids that the snapshot sees.
        valid_txns: the transactions that it sees. See
            :func:`~mutation_api.format.directory_state.choose_directories`.

    Raises:
        DirectoryStateError: If Hive would fail on the directory, or would lose or duplicate rows.
        CorruptFileError: If a side file is damaged.
    """
    try:
        entries = storage.list(location)
    except FileNotFoundError:
        return []
    directories = [e.name for e in entries if e.is_directory]
    version = table.version
    state = choose_directories(
        directories,
        {e.name: e.size for e in entries if not e.is_directory},
        valid,
        version=version,
        location=str(location),
        valid_txns=valid_txns,
        base_formats=base_formats(storage, location, directories, version),
    )
    if version.has_row_ids:
        return list(_files_with_row_ids(storage, location, entries, state, version))
    return list(_insert_only_files(storage, location, state, version))


def base_formats(
    storage: Directories, location: Location, directories: Sequence[str], version: AcidVersion
) -> dict[str, str]:
    """Return the ``dataFormat`` of each base that has a marker."""
    if not version.marks_bases:
        return {}
    formats: dict[str, str] = {}
    for name in directories:
        directory = None if is_hidden(name) else parse_directory_name(name, version)
        if not isinstance(directory, BaseDirectory) or directory.compaction_txn or directory.last == LONG_MIN:
            continue
        marker = location / name / BASE_MARKER
        try:
            with storage.open_input(marker) as stream:
                formats[name] = str(json.loads(stream.read())["dataFormat"])
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(f"{marker} is not the marker of a base: {error}") from error
    return formats


def _files_with_row_ids(
    storage: Directories,
    location: Location,
    entries: Sequence[FileEntry],
    state: DirectoryState,
    version: AcidVersion,
) -> Iterator[EventFile]:
    if state.base:
        yield from _acid_files(storage, location, state.base, version)
    files = [entry for entry in entries if entry.name in state.original_files]
    for directory in state.original_directories:
        files += _plain_files_below(storage, location / directory)
    if version.numbers_files_through:
        files.sort(key=lambda entry: entry.location)
    for file in files:
        yield _plain_file(file, version)
    for delta in state.deltas:
        yield from _acid_files(storage, location, delta, version)


def _acid_files(
    storage: Directories, location: Location, directory: BaseDirectory | DeltaDirectory, version: AcidVersion
) -> list[EventFile]:
    entries = [e for e in _list_chosen(storage, location / directory.name) if not is_hidden(e.name)]
    if version.ignores_nested_results:
        entries = [e for e in entries if not (e.is_directory and e.name == directory.name)]
    if version.numbers_files_through and _is_loaded(entries, directory, version):
        return [_plain_file(e, version, directory) for e in entries if e.size > 0]
    names = {e.name for e in entries}
    files = []
    for entry in entries:
        if entry.name.removesuffix(FLUSH_LENGTH_SUFFIX) in names - {entry.name}:
            continue
        has_side_file = f"{entry.name}{FLUSH_LENGTH_SUFFIX}" in names
        files.append(_acid_file(storage, entry, directory, has_side_file, version))
    _check_one_file_a_bucket(files)
    return [f for f in files if f.length != 0]


def _list_chosen(storage: Directories, directory: Location) -> list[FileEntry]:
    try:
        return storage.list(directory)
    except FileNotFoundError as error:
        raise DirectoryStateError(
            f"{directory} was removed while its partition was being listed. Without a lock, Hive's cleaner "
            "may remove the files of a reader; take a new snapshot within a transaction"
        ) from error


def _is_loaded(
    entries: Sequence[FileEntry], directory: BaseDirectory | DeltaDirectory, version: AcidVersion
) -> bool:
    """Return True if LOAD DATA put plain files into a directory."""
    plain = [e for e in entries if parse_original_file_name(e.name, version).bucket_id is not None]
    if not plain:
        return False
    is_wrong_delta = isinstance(directory, DeltaDirectory) and (
        directory.is_delete or directory.first != directory.last
    )
    if len(plain) < len(entries) or is_wrong_delta:
        raise DirectoryStateError(
            f"{plain[0].location} is a plain file. LOAD DATA writes such files into a base or a delta of "
            f"one write id, without other files, but {len(entries) - len(plain)} other files are in the "
            "same directory. Move away the files that do not belong there"
        )
    return True


def _acid_file(
    storage: Directories,
    entry: FileEntry,
    directory: BaseDirectory | DeltaDirectory,
    has_side_file: bool,
    version: AcidVersion,
) -> EventFile:
    bucket_id = parse_bucket_file_name(entry.name, version)
    if bucket_id is None or entry.is_directory:
        raise DirectoryStateError(
            f"{entry.location} does not have a name of the form bucket_00000; Hive ignores such files in "
            "some tables and fails on them in others. Remove the file, or rename it so that it starts "
            "with an underscore"
        )
    side_file = entry.location.parent / f"{entry.name}{FLUSH_LENGTH_SUFFIX}"
    length = _flush_length(storage, side_file) if has_side_file else None
    if isinstance(directory, BaseDirectory):
        return EventFile(
            entry.location, EventFileKind.BASE, bucket_id, 0, directory.last, None, length, entry.size
        )
    kind = EventFileKind.DELETE_DELTA if directory.is_delete else EventFileKind.DELTA
    first, last, statement = directory.first, directory.last, directory.statement_id
    return EventFile(entry.location, kind, bucket_id, first, last, statement, length, entry.size)


def _check_one_file_a_bucket(files: Sequence[EventFile]) -> None:
    """Reject two files of one bucket. Hive 4 names files by attempt (bucket_00000_0, bucket_00000_1)."""
    found: dict[int, EventFile] = {}
    for file in files:
        other = found.setdefault(file.bucket_id, file)
        if other is not file:
            raise DirectoryStateError(
                f"{other.location} and {file.location} both belong to bucket {file.bucket_id}; Hive shows "
                "rows of such files twice, fails on their deletes, and loses one of the files when it "
                "compacts. Find out which attempt was committed, and move the other file away"
            )


def _flush_length(storage: Directories, side_file: Location) -> int:
    """Return the number of committed bytes of a file that is being written.

    This is the last complete number in its side file, or 0.
    """
    try:
        with storage.open_input(side_file) as stream:
            content: bytes = stream.read()
    except FileNotFoundError:
        raise DirectoryStateError(f"{side_file}: its writer has just finished; take a new snapshot") from None
    whole = len(content) // _FLUSH_LENGTH_BYTES * _FLUSH_LENGTH_BYTES
    if whole == 0:
        return 0
    length = int.from_bytes(content[whole - _FLUSH_LENGTH_BYTES : whole], "big", signed=True)
    if length < 0:
        raise CorruptFileError(f"{side_file}: invalid number of committed bytes: {length}")
    return length


def _plain_file(
    entry: FileEntry, version: AcidVersion, directory: BaseDirectory | DeltaDirectory | None = None
) -> EventFile:
    """Return a file of rows without events, inserted under its directory's id (0 if there is none)."""
    file = entry.location
    bucket_id = parse_original_file_name(file.name, version).bucket_id
    if bucket_id is None and version.encodes_buckets:
        raise DirectoryStateError(
            f"{file} does not have a bucket in its name, so its rows cannot have ROW__IDs; its name must "
            "have the form 000000_0 or 000000_0_copy_1"
        )
    first = directory.first if isinstance(directory, DeltaDirectory) else 0
    last = directory.last if directory else 0
    statement = directory.statement_id if isinstance(directory, DeltaDirectory) else None
    shown = _UNKNOWN_BUCKET if bucket_id is None else bucket_id
    return EventFile(file, EventFileKind.ORIGINAL, shown, first, last, statement, None, entry.size)


def _plain_files_below(storage: Directories, directory: Location) -> list[FileEntry]:
    files: list[FileEntry] = []
    for entry in _list_chosen(storage, directory):
        if is_hidden(entry.name):
            continue
        if entry.is_directory:
            files += _plain_files_below(storage, entry.location)
        elif entry.size > 0:
            files.append(entry)
    return files


def _insert_only_files(
    storage: Directories, location: Location, state: DirectoryState, version: AcidVersion
) -> Iterator[EventFile]:
    """Return files of any name in the chosen directories and, as UNION ALL writes them, in those below."""
    stray = [*state.original_files, *state.original_directories]
    if stray:
        raise DirectoryStateError(
            f"{location}/{stray[0]} is outside every base and delta directory of an insert-only table; "
            "Hive ignores it unless hive.mm.allow.originals is set. Load it, or move it away"
        )
    deletes = [d.name for d in state.deltas if d.is_delete]
    if deletes:
        raise DirectoryStateError(
            f"{location}/{deletes[0]}: an insert-only table must not have deletes; check the table "
            "property transactional_properties"
        )
    chosen: list[BaseDirectory | DeltaDirectory] = [state.base] if state.base else []
    chosen += state.deltas
    for directory in chosen:
        for file in _plain_files_below(storage, location / directory.name):
            yield _plain_file(file, version, directory)


AT_A_TIME = 100
"""The number of partitions that are examined at a time. The first one usually suffices."""

_ACID_DIRECTORY = re.compile(r"(base|delta|delete_delta)_.*")
_NAMED_BY_HIVE_4 = re.compile(r"(base|delta|delete_delta)_.*_v[0-9]+|bucket_[0-9]+_[0-9]+")
_DATA_FILE = re.compile(r"(bucket_)?[0-9]+(_[0-9]+)?(_copy_[0-9]+)?")


def find_partitions(location: Location) -> dict[str, Location]:
    """Return the locations of the partitions below a table's location, by escaped name (``ds=x/hr=1``).

    Directories named ``key=value`` are partitions, nested if there are several keys. If '' is the only name,
    the table is not partitioned.

    Raises:
        DirectoryStateError: If the directory is missing, partitions have different keys, or there is data
            next to them.
    """
    try:
        found = dict(_partitions(location))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DirectoryStateError(f"{location}: no such directory") from error
    keys = {tuple(part.partition("=")[0] for part in name.split("/")) for name in found}
    if len(keys) > 1:
        shown = " and ".join(sorted("/".join(k) or "none" for k in keys)[:2])
        raise DirectoryStateError(f"{location}: partitions have different keys: {shown}")
    return found


def uses_write_ids(locations: Iterable[Location]) -> bool:
    """Return True if partitions have the version 2 layout.

    Hive 3 and later mark each directory, or each file.
    """
    for names, tail in _acid_directories(locations):
        if ACID_VERSION_FILE in names or any(map(_NAMED_BY_HIVE_4.fullmatch, names)):
            return True
        if tail is not None and ACID_VERSION in tail.user_metadata:
            return True
    return False


def is_written_by_hive_4(locations: Iterable[Location]) -> bool:
    """Return True if Hive 4, or a writer for it, wrote files of version 2. Names or calendars show this."""
    for names, tail in _acid_directories(locations):
        if any(map(_NAMED_BY_HIVE_4.fullmatch, names)) or (tail and tail.is_proleptic is not None):
            return True
    return False


def _acid_directories(locations: Iterable[Location]) -> Iterator[tuple[list[str], OrcTail | None]]:
    """Yield, for each base and delta, its name and those of its files, and the tail of one file, if any."""
    rest = iter(locations)
    while some := list(itertools.islice(rest, AT_A_TIME)):
        for found in side_by_side(_acid_directories_in, some, storage_at(some[0]).threads):
            yield from found


def _acid_directories_in(location: Location) -> list[tuple[list[str], OrcTail | None]]:
    storage = storage_at(location)
    found: list[tuple[list[str], OrcTail | None]] = []
    for directory in storage.list(location):
        if directory.is_directory and _ACID_DIRECTORY.fullmatch(directory.name):
            entries = storage.list(directory.location)
            files = [e for e in entries if e.size and _DATA_FILE.fullmatch(e.name)]
            tail = _tail(storage, files[0].location) if files else None
            found.append(([directory.name, *(e.name for e in entries)], tail))
    return found


def _tail(storage: Storage, file: Location) -> OrcTail | None:
    try:
        return read_tail(storage, file)
    except CorruptFileError:
        return None  # reading the file will raise the error


def _partitions(location: Location) -> Iterator[tuple[str, Location]]:
    directories = directories_below([location])
    level = [("", location)]
    while level:
        below = side_by_side(
            lambda named: _partitions_in(directories, *named), level, storage_at(location).threads
        )
        yield from (named for named, found in zip(level, below, strict=True) if not found)
        level = [named for found in below for named in found]


def _partitions_in(directories: Directories, name: str, location: Location) -> list[tuple[str, Location]]:
    """Return the partitions in the directory of the table or of a partition."""
    entries = [e for e in directories.list(location) if not is_hidden(e.name)]
    below = [e for e in entries if _is_partition(e)]
    if below and len(below) < len(entries):
        other = next(e for e in entries if e not in below)
        raise DirectoryStateError(f"{location} holds partitions ({below[0].name}) and data ({other.name})")
    return [(f"{name}/{e.name}" if name else e.name, e.location) for e in below]


def _is_partition(entry: FileEntry) -> bool:
    key, equals, _ = entry.name.partition("=")
    return entry.is_directory and bool(key and equals)
