"""Examines the directories of one partition: names, ids, side files, and the files that a reader reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from mutation_api.errors import DirectoryStateError, ReadError
from mutation_api.format.directory_state import COMPACTED
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
from mutation_api.orc.read.event_file import EventFile
from mutation_api.read.partition_files import list_partition_files
from mutation_api.read.table_view import TableView
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry
from mutation_api.storage.tree import Directories
from mutation_api.upkeep.verify.finding import Finding, IdState, KnownIds, state_of

_FLUSH_LENGTH_BYTES = 8
_OLD_VERSION_BYTES, _VERSION_BYTES = b"\0\0\0\0", b"2"
_MARKERS_OF_HIVE_4 = (COMPACTED, "truncated", "dropped")

_Directory = BaseDirectory | DeltaDirectory


@dataclass
class PartitionFiles:
    """One partition: the findings about its directories, and the files that a snapshot reads.

    ``base_last`` is the highest id of its base, or 0 if there is none.
    """

    partition: str
    location: Location
    findings: list[Finding] = field(default_factory=list)
    files: list[EventFile] = field(default_factory=list)
    base_last: int = 0


def check_directory(
    directories: Directories, view: TableView, partition: str, location: Location, known: KnownIds
) -> PartitionFiles:
    """Examine the directories of one partition.

    Files that violate a rule are left out of the result's files, so that the rest can be examined.

    Args:
        directories: lists the directories.
        view: the table and its snapshot.
        partition: escaped name, '' for the whole table.
        location: the partition's directory.
        known: the ids as the metastore reports them.

    Raises:
        OSError: If a directory cannot be listed.
    """
    result = PartitionFiles(partition, location)
    try:
        entries = directories.list(location)
    except FileNotFoundError:
        if partition:
            result.findings.append(
                Finding("missing-partition", partition, location, "no directory", "a directory")
            )
        return result
    _Examination(directories, view, result, known).run(entries)
    return result


def committed_directories(
    entries: Sequence[FileEntry], version: AcidVersion, known: KnownIds
) -> list[tuple[FileEntry, _Directory]]:
    """Return bases and deltas with rows that readers may see. Names that do not parse are left out."""
    found = []
    for entry in entries:
        if entry.is_directory and not is_hidden(entry.name):
            try:
                directory = parse_directory_name(entry.name, version)
            except DirectoryStateError:
                continue
            if directory is not None and _state(directory, known)[0] is IdState.COMMITTED:
                found.append((entry, directory))
    return found


def _state(directory: _Directory, known: KnownIds) -> tuple[IdState, str]:
    """Return the state of a directory's ids, and the rule that it violates if they are not committed."""
    if directory.compaction_txn:
        state = state_of(directory.compaction_txn, known.txns)
        if state is not IdState.COMMITTED:
            rules = {IdState.UNKNOWN: "unknown-compaction", IdState.OPEN: "open-id"}
            return state, rules.get(state, "aborted-compaction")
    if directory.last == LONG_MIN:
        return IdState.COMMITTED, ""
    if directory.last > known.ids.high_watermark:
        return IdState.UNKNOWN, "unknown-id"
    first = directory.first if isinstance(directory, DeltaDirectory) else directory.last
    is_compacted_base = isinstance(directory, BaseDirectory) and bool(directory.compaction_txn)
    if is_compacted_base:
        return IdState.COMMITTED, ""
    states = _states_of_range(first, directory.last, known)
    state = next(s for s in (IdState.COMMITTED, IdState.OPEN, IdState.ABORTED) if s in states)
    return state, {IdState.OPEN: "open-id", IdState.ABORTED: "aborted-id"}.get(state, "")


def _states_of_range(first: int, last: int, known: KnownIds) -> set[IdState]:
    listed = [id for id in known.ids.exceptions if first <= id <= last]
    states = {state_of(id, known.ids) for id in listed}
    return states if len(listed) == last - first + 1 else {*states, IdState.COMMITTED}


class _Examination:
    """The examination of one partition; adds findings to its result."""

    def __init__(
        self, directories: Directories, view: TableView, result: PartitionFiles, known: KnownIds
    ) -> None:
        self._directories = directories
        self._view = view
        self._version = view.table.version
        self._result = result
        self._known = known
        self._hidden: set[Location] = set()

    def run(self, entries: Sequence[FileEntry]) -> None:
        """Examine names, then the content of directories, then the files that a reader would read."""
        committed = [*self._committed(entries)]
        bases = [d.last for _, d in committed if isinstance(d, BaseDirectory)]
        self._result.base_last = max(bases, default=0)
        self._check_ranges(committed)
        for entry, directory in committed:
            if directory.last >= self._result.base_last and self._version.has_row_ids:
                self._check_files(entry, directory)
        if not self._version.uses_write_ids:
            self._check_version_file(entries, self._result.location, _OLD_VERSION_BYTES)
        self._list_files()

    def _committed(self, entries: Sequence[FileEntry]) -> Iterator[tuple[FileEntry, _Directory]]:
        for entry in entries:
            if not entry.is_directory or is_hidden(entry.name):
                continue
            try:
                directory = parse_directory_name(entry.name, self._version)
            except DirectoryStateError as error:
                self._hide("directory-name", entry.location, str(error), "a name that Hive reads")
                continue
            if directory is None:
                continue  # a directory of original files
            state, rule_name = _state(directory, self._known)
            if state is IdState.COMMITTED:
                yield entry, directory
            elif state is IdState.UNKNOWN:
                newest = (
                    self._known.txns.high_watermark
                    if rule_name == "unknown-compaction"
                    else self._known.ids.high_watermark
                )
                self._hide(rule_name, entry.location, entry.name, f"ids up to {newest}")
            else:
                self._add(rule_name, entry.location, f"an id that is {state.value}", "committed ids")

    def _check_ranges(self, committed: Sequence[tuple[FileEntry, _Directory]]) -> None:
        """Report deltas of one kind whose ranges overlap partly or are the same."""
        for is_delete in (False, True):
            deltas = [
                (entry, d)
                for entry, d in committed
                if isinstance(d, DeltaDirectory)
                and d.is_delete is is_delete
                and d.last > self._result.base_last
            ]
            deltas.sort(key=lambda pair: (pair[1].first, -pair[1].last, pair[0].name))
            widest: tuple[FileEntry, DeltaDirectory] | None = None
            for pair in deltas:
                if widest is not None and _conflicts(widest[1], pair[1]):
                    self._hide(
                        "overlapping-deltas",
                        pair[0].location,
                        f"{pair[0].name} beside {widest[0].name}",
                        "ranges apart",
                    )
                if widest is None or pair[1].last > widest[1].last:
                    widest = pair

    def _check_files(self, directory: FileEntry, parsed: _Directory) -> None:
        try:
            entries = self._directories.list(directory.location)
        except FileNotFoundError:
            return
        visible = [e for e in entries if not is_hidden(e.name) and not self._is_nested_result(e, directory)]
        for entry in [e for e in visible if e.is_directory]:
            self._hide("nested-directory", entry.location, "a directory", "files only")
        files = [e for e in visible if not e.is_directory]
        if isinstance(parsed, BaseDirectory):
            self._check_marker(entries)
        plain = [e for e in files if parse_original_file_name(e.name, self._version).bucket_id is not None]
        if plain and self._version.numbers_files_through and len(plain) == len(files):
            if isinstance(parsed, DeltaDirectory) and (parsed.is_delete or parsed.first != parsed.last):
                self._hide("plain-file", plain[0].location, "plain rows", "events")
            return
        self._check_names(files, parsed)
        if self._version.uses_write_ids and files:
            self._check_version_file(entries, directory.location, _VERSION_BYTES)

    def _is_nested_result(self, entry: FileEntry, directory: FileEntry) -> bool:
        """Return True if readers ignore an entry: the result of a second compaction of the same range."""
        is_result = entry.is_directory and entry.name == directory.name
        return is_result and self._version.ignores_nested_results

    def _check_names(self, files: Sequence[FileEntry], parsed: _Directory) -> None:
        by_name = {e.name: e for e in files}
        of_bucket: dict[int, FileEntry] = {}
        for entry in files:
            if entry.name.endswith(FLUSH_LENGTH_SUFFIX):
                self._check_side_file(entry, by_name.get(entry.name.removesuffix(FLUSH_LENGTH_SUFFIX)))
                continue
            bucket_id = parse_bucket_file_name(entry.name, self._version)
            if bucket_id is None:
                is_plain = parse_original_file_name(entry.name, self._version).bucket_id is not None
                rule_name = "plain-file" if is_plain else "file-name"
                self._hide(rule_name, entry.location, entry.name, "bucket_00000")
                continue
            other = of_bucket.setdefault(bucket_id, entry)
            if other is not entry:
                self._hide("bucket-twice", entry.location, f"beside {other.name}", "one file per bucket")
            elif entry.size == 0 and f"{entry.name}{FLUSH_LENGTH_SUFFIX}" not in by_name:
                self._hide("empty-file", entry.location, "no bytes", "an ORC file, which is never empty")

    def _check_side_file(self, entry: FileEntry, data: FileEntry | None) -> None:
        if data is None:
            self._hide("side-file", entry.location, "no data file", "a data file of the same bucket")
            return
        with self._directories.open_input(entry.location) as stream:
            content: bytes = stream.read()
        whole = len(content) // _FLUSH_LENGTH_BYTES * _FLUSH_LENGTH_BYTES
        last = content[whole - _FLUSH_LENGTH_BYTES : whole] if whole else b""
        length = int.from_bytes(last, "big", signed=True) if last else None
        if length is None or whole != len(content):
            found = f"{len(content)} bytes"
            self._hide("side-file", entry.location, found, "numbers with 8 bytes each", also=data.location)
        elif not 0 <= length <= data.size:
            expected = f"0 to {data.size}, the size of {data.name}"
            self._hide("side-file", entry.location, f"length {length}", expected, also=data.location)
        else:
            self._add("side-file-left", entry.location, f"length {length} of {data.size}", "no side file")

    def _check_marker(self, entries: Sequence[FileEntry]) -> None:
        for entry in entries:
            if entry.name != BASE_MARKER or not self._version.marks_bases:
                continue
            try:
                with self._directories.open_input(entry.location) as stream:
                    found = str(json.loads(stream.read())["dataFormat"])
            except (ValueError, KeyError, TypeError) as error:
                self._hide("base-marker", entry.location, f"no marker: {error}", "JSON with dataFormat")
                continue
            known = _MARKERS_OF_HIVE_4 if self._version.is_hive_4 else (COMPACTED,)
            if found not in known:
                self._hide("base-marker", entry.location, f"dataFormat {found!r}", " or ".join(known))

    def _check_version_file(self, entries: Sequence[FileEntry], directory: Location, expected: bytes) -> None:
        entry = next((e for e in entries if e.name == ACID_VERSION_FILE), None)
        if entry is None:
            if expected == _VERSION_BYTES:
                self._add("acid-version-missing", directory, f"no {ACID_VERSION_FILE}", repr(expected))
            return
        with self._directories.open_input(entry.location) as stream:
            found: bytes = stream.read()
        if found.strip() != expected:
            self._add("acid-version-file", entry.location, repr(found[:20]), repr(expected))

    def _list_files(self) -> None:
        view, result = self._view, self._result
        rest = _Without(self._directories, frozenset(self._hidden))
        try:
            result.files = list_partition_files(
                rest, view.table, result.location, view.valid_ids, view.valid_txns
            )
        except ReadError as error:
            self._add("directory", result.location, str(error), "files that a reader can read")

    def _hide(
        self,
        rule_name: str,
        location: Location,
        found: str,
        expected: str,
        *,
        also: Location | None = None,
    ) -> None:
        self._hidden |= {location} if also is None else {location, also}
        self._add(rule_name, location, found, expected)

    def _add(self, rule_name: str, location: Location, found: str, expected: str) -> None:
        self._result.findings.append(Finding(rule_name, self._result.partition, location, found, expected))


def _conflicts(wide: DeltaDirectory, other: DeltaDirectory) -> bool:
    """Return True if Hive reads both deltas although they contain the same events; ``wide`` starts first."""
    if (wide.first, wide.last) == (other.first, other.last):
        return wide.statement_id == other.statement_id
    return wide.first < other.first <= wide.last < other.last


@dataclass(frozen=True)
class _Without:
    """Directories with some of their files hidden."""

    directories: Directories
    hidden: frozenset[Location]

    def list(self, directory: Location) -> list[FileEntry]:
        return [e for e in self.directories.list(directory) if e.location not in self.hidden]

    def open_input(self, location: Location) -> pa.NativeFile:
        if location in self.hidden:
            raise FileNotFoundError(str(location))
        return self.directories.open_input(location)
