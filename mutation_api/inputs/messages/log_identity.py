"""LogIdentity: what a watermark holds of a log besides numbers, so that numbers of another log are noticed.

A position counts only beside what counted it: a server's binary log, the database and connector of a table,
the snapshot that a table began with, the bytes of files that were read. The text of a watermark holds these
under ``identity``; one that an earlier version wrote has none, and nothing is compared with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mutation_api.inputs.messages.compressed import CompressedFileError, is_compressed, opened_bytes
from mutation_api.inputs.messages.json_lines import LogFile
from mutation_api.inputs.messages.table_names import TableId
from mutation_api.inputs.source import IDENTITY, Position
from mutation_api.inputs.source_files import FINGERPRINT_BYTES, fingerprint, fingerprint_of

__all__ = ["KnownFile", "KnownParts", "LogIdentity", "TableIdentity"]

_ALL = 2**63 - 1
"""Bytes of a file of which all counts as read."""
_BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class KnownFile:
    """A file as a run read it: its name, the number in its name, its bytes, and the md5 of the last ones.

    Of a compressed file they are those before the compression, so it may be compressed or decompressed later.
    """

    name: str
    number: int
    size: int
    md5: str

    @classmethod
    def of(cls, file: LogFile) -> KnownFile:
        """The file as it is now. Raises OSError, CompressedFileError."""
        size, md5 = _size_and_md5(file, None)
        return cls(file.location.name, file.number, size, md5)

    def begins(self, file: LogFile) -> bool:
        """Whether a file still begins with these bytes. Raises OSError."""
        try:
            return _size_and_md5(file, self.size) == (self.size, self.md5)
        except CompressedFileError:  # the log's reader says what is wrong with it
            return False


@dataclass(frozen=True)
class TableIdentity:
    """Where the rows of a table came from.

    ``owner``: connector, database and schema, None where messages do not name it. ``snapshot``: position of
    the snapshot that the table began with, None without one. ``is_streamed``: whether changes followed.
    """

    owner: tuple[str | None, str | None, str | None] = (None, None, None)
    snapshot: str | None = None
    is_streamed: bool = False

    def ids(self, tables: Iterable[str | None]) -> set[TableId]:
        """Tables of these names, if their owner is known."""
        return {TableId(*self.owner, table) for table in tables} if any(self.owner) else set()


@dataclass(frozen=True)
class KnownParts:
    """What an earlier run had read of the files of a log.

    ``sizes``: bytes of each file. ``replaced``: names of files that hold other bytes now, or fewer.
    ``renumbered``: files with their number then.
    """

    sizes: tuple[int, ...]
    replaced: tuple[KnownFile, ...] = ()
    renumbered: tuple[tuple[LogFile, int], ...] = ()


@dataclass(frozen=True)
class LogIdentity:
    """See the module. ``files`` is None if the watermark does not hold them."""

    origins: tuple[tuple[str, str], ...] = ()
    files: tuple[KnownFile, ...] | None = None
    tables: Mapping[str, TableIdentity] = field(default_factory=dict)

    @classmethod
    def of(cls, position: Position) -> LogIdentity:
        """That of a watermark; one without anything if it holds none, or one that cannot be read."""
        try:
            found = json.loads(position.text)[IDENTITY]
            files = found.get("files")
            return cls(
                tuple((str(kind), str(name)) for kind, name in found.get("origins", ())),
                None if files is None else tuple(KnownFile(*each) for each in files),
                {name: _table(each) for name, each in found.get("tables", {}).items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def added_to(self, position: Position) -> Position:
        """The position with this identity in its text."""
        found: dict[str, object] = {"origins": [list(each) for each in self.origins]}
        if self.files is not None:
            found["files"] = [[each.name, each.number, each.size, each.md5] for each in self.files]
        found["tables"] = {
            name: {"of": list(each.owner), "snapshot": each.snapshot, "streamed": each.is_streamed}
            for name, each in sorted(self.tables.items())
        }
        return Position(position.order, json.dumps({**json.loads(position.text), IDENTITY: found}))

    def known_parts(self, files: Sequence[LogFile]) -> KnownParts:
        """What was read of these files, which are found by their bytes, whatever their names are now.

        Raises OSError.
        """
        if self.files is None:
            return KnownParts(tuple(_ALL for _ in files))
        left = list(self.files)
        found: dict[int, KnownFile] = {}
        for by_name in (True, False):
            for index, file in enumerate(files):
                name = _plain_name(file.location.name)
                alike = [each for each in left if _plain_name(each.name) == name or not by_name]
                known = next((each for each in alike if each.size and each.begins(file)), None)
                if index not in found and known is not None:
                    found[index] = known
                    left.remove(known)
        names = {_plain_name(file.location.name) for file in files}
        return KnownParts(
            tuple(found[index].size if index in found else 0 for index in range(len(files))),
            tuple(each for each in left if each.size and _plain_name(each.name) in names),
            tuple((files[i], known.number) for i, known in found.items() if known.number != files[i].number),
        )


def _size_and_md5(file: LogFile, end: int | None) -> tuple[int, str]:
    """Number of a file's bytes, at most ``end``, and the md5 of the last ones. Raises OSError."""
    if not is_compressed(file.location.name):
        size = file.size if end is None else min(file.size, end)
        return size, fingerprint(file.location, size)
    size, last = 0, b""
    with opened_bytes(file.location, file.size) as stream:
        while (left := _ALL if end is None else end - size) and (
            block := stream.read(min(left, _BLOCK_BYTES))
        ):
            size += len(block)
            last = (last + block)[-FINGERPRINT_BYTES:]
    return size, fingerprint_of(last)


def _plain_name(name: str) -> str:
    return name.rpartition(".")[0] if is_compressed(name) else name


def _table(found: Mapping[str, object]) -> TableIdentity:
    of, snapshot = found["of"], found["snapshot"]
    assert isinstance(of, list)
    log, database, schema = of
    return TableIdentity(
        (log, database, schema), None if snapshot is None else str(snapshot), bool(found["streamed"])
    )
