"""The files of one partition that a snapshot reads, found by listing its directories.

Only side files are opened: the markers of bases and the lengths of files that are being written.

If Hive would silently lose or double rows, files are refused: names in a delta that are not bucket files, two
files of one bucket in a delta, plain files whose rows cannot have a ROW__ID.

Source: Hive's AcidUtils and OrcInputFormat (2.3, 3.1, 4.x).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.acid.directory_state import DirectoryState, choose_directories
from mutation_api.acid.layout import (
    BASE_MARKER,
    FLUSH_LENGTH_SUFFIX,
    LONG_MIN,
    BaseDirectory,
    DeltaDirectory,
    is_hidden,
    parse_bucket_file_name,
    parse_directory_name,
    parse_original_file_name,
)
from mutation_api.acid.version import AcidVersion
from mutation_api.errors import CorruptFileError, DirectoryStateError
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry
from mutation_api.storage.tree import Directories
from mutation_api.table.acid_table import AcidTable

__all__ = ["list_partition_files"]

_UNKNOWN_BUCKET = -1
_FLUSH_LENGTH_BYTES = 8


def list_partition_files(
    storage: Directories,
    table: AcidTable,
    location: Location,
    valid: ValidIdList,
    valid_txns: ValidTxnList | None,
) -> list[EventFile]:
    """Files of a partition that a snapshot reads; none if the directory is missing.

    Args:
        storage: the partition's storage.
        table: its version is used.
        location: the partition's location.
        valid: the ids the snapshot sees.
        valid_txns: see :func:`~mutation_api.acid.directory_state.choose_directories`.

    Raises:
        DirectoryStateError: Hive would fail on the directory, or lose or double rows.
        CorruptFileError: a side file is damaged.
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
        base_formats=_base_formats(storage, location, directories, version),
    )
    if version.has_row_ids:
        return list(_files_with_row_ids(storage, location, entries, state, version))
    return list(_insert_only_files(storage, location, state, version))


def _base_formats(
    storage: Directories, location: Location, directories: Sequence[str], version: AcidVersion
) -> dict[str, str]:
    """``dataFormat`` of each base that has a marker."""
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
            f"{directory} was removed while its partition was being listed; a reader needs a lock, else "
            "Hive's cleaner may remove its files: take a new snapshot within a transaction"
        ) from error


def _is_loaded(
    entries: Sequence[FileEntry], directory: BaseDirectory | DeltaDirectory, version: AcidVersion
) -> bool:
    """Whether LOAD DATA put plain files into a directory."""
    plain = [e for e in entries if parse_original_file_name(e.name, version).bucket_id is not None]
    if not plain:
        return False
    is_wrong_delta = isinstance(directory, DeltaDirectory) and (
        directory.is_delete or directory.first != directory.last
    )
    if len(plain) < len(entries) or is_wrong_delta:
        raise DirectoryStateError(
            f"{plain[0].location} is a plain file. LOAD DATA writes such files, alone, into a base or a "
            f"delta of one write id; here {len(entries) - len(plain)} others lie beside it: move away the "
            "files that do not belong there"
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
            f"{entry.location} is not a file of the form bucket_00000; Hive ignores it in some tables and "
            "fails in others: rename it so that it starts with an underscore, or remove it"
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
    """Refuse two files of one bucket: Hive 4 names files by attempt (bucket_00000_0, bucket_00000_1)."""
    found: dict[int, EventFile] = {}
    for file in files:
        other = found.setdefault(file.bucket_id, file)
        if other is not file:
            raise DirectoryStateError(
                f"{other.location} and {file.location} both belong to bucket {file.bucket_id}; Hive shows "
                "rows of such files twice, fails on their deletes, and loses one of them when it compacts: "
                "find out which attempt was committed, and move the other one away"
            )


def _flush_length(storage: Directories, side_file: Location) -> int:
    """Committed bytes of a file that is being written: the last complete number in its side file, or 0."""
    try:
        with storage.open_input(side_file) as stream:
            content: bytes = stream.read()
    except FileNotFoundError:
        raise DirectoryStateError(f"{side_file}: its writer finished just now; take a new snapshot") from None
    whole = len(content) // _FLUSH_LENGTH_BYTES * _FLUSH_LENGTH_BYTES
    if whole == 0:
        return 0
    length = int.from_bytes(content[whole - _FLUSH_LENGTH_BYTES : whole], "big", signed=True)
    if length < 0:
        raise CorruptFileError(f"{side_file} says that {length} bytes are committed")
    return length


def _plain_file(
    entry: FileEntry, version: AcidVersion, directory: BaseDirectory | DeltaDirectory | None = None
) -> EventFile:
    """A file of rows without events; its rows were inserted by the id of its directory, 0 if it has none."""
    file = entry.location
    bucket_id = parse_original_file_name(file.name, version).bucket_id
    if bucket_id is None and version.encodes_buckets:
        raise DirectoryStateError(
            f"{file} has no bucket in its name, so its rows cannot have ROW__IDs; its name must be of the "
            "form 000000_0 or 000000_0_copy_1"
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
    """Files of any name in the chosen directories, for UNION ALL also in directories below them."""
    stray = [*state.original_files, *state.original_directories]
    if stray:
        raise DirectoryStateError(
            f"{location}/{stray[0]} lies outside every base and delta directory of an insert-only table; "
            "Hive ignores it unless hive.mm.allow.originals is set: load it, or move it away"
        )
    deletes = [d.name for d in state.deltas if d.is_delete]
    if deletes:
        raise DirectoryStateError(
            f"{location}/{deletes[0]}: an insert-only table has no deletes; check the table property "
            "transactional_properties"
        )
    chosen: list[BaseDirectory | DeltaDirectory] = [state.base] if state.base else []
    chosen += state.deltas
    for directory in chosen:
        for file in _plain_files_below(storage, location / directory.name):
            yield _plain_file(file, version, directory)
