"""Files from before a compaction that are kept for a time, so that the compaction can be undone.

The copies are in ``_mutation_kept_<txn>`` in the partition's directory, which no reader, compactor or cleaner
looks into. A record beside them says which directories replaced them, and until when they are kept. It is
written last, so copies without a record are incomplete.

On a local disk, copies are links. HDFS has none, so the bytes are copied.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from metastore_client.model import OpenTxns, TxnState
from mutation_api.errors import CommitOutcomeUnknownError, ConfigurationError, CorruptFileError
from mutation_api.storage.connect import copy_file, storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.tree import side_by_side
from mutation_api.transaction.manifest import STAGING_PREFIX
from mutation_api.transaction.staging import Abandoned, children_of
from mutation_api.upkeep.partition_compaction import PartitionCompaction
from mutation_api.upkeep.transaction_files import files_below

_log = logging.getLogger(__name__)

_NAME = re.compile(re.escape(STAGING_PREFIX) + r"kept_(\d+)")
_RECORD, _NEW_RECORD = "kept.json", "new_kept.json"


@dataclass(frozen=True)
class KeptFiles:
    """The state of a partition before a compaction.

    Attributes:
        directory: the hidden directory.
        kind: the kind of the compaction.
        txn_id: the transaction in the name of the hidden directory.
        last: the highest id that the compaction covers.
        results: the names of the directories that the compaction wrote.
        files: the sizes of the kept files by path below the partition.
        hidden_ids: ids that readers must not see and whose rows may be in the files.
        kept_at: the time of the compaction, in seconds since 1970.
        expires_at: the time after which the files may be removed.
    """

    directory: Location
    kind: str
    txn_id: int
    last: int
    results: tuple[str, ...]
    files: Mapping[str, int]
    hidden_ids: tuple[int, ...]
    kept_at: float
    expires_at: float

    @property
    def copies(self) -> Location:
        """The directory of the copies, whose paths are those below the partition."""
        return self.directory / "files"

    @property
    def undone(self) -> Location:
        """The directory into which a restore moves the directories of the compaction."""
        return self.directory / "undone"

    @cached_property
    def names(self) -> list[str]:
        """The names of the kept directories and files in the partition's directory."""
        return list(dict.fromkeys(path.partition("/")[0] for path in self.files))

    @property
    def byte_count(self) -> int:
        """The size of the kept files."""
        return sum(self.files.values())

    @property
    def until(self) -> str:
        """The time until which the files are kept, as a string."""
        return datetime.fromtimestamp(self.expires_at, UTC).isoformat(timespec="seconds")

    @property
    def is_expired(self) -> bool:
        """True if the files may be removed at any time."""
        return time.time() >= self.expires_at

    def to_json(self) -> str:
        """Return the record."""
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        del fields["directory"]
        return json.dumps(fields)

    @classmethod
    def from_json(cls, directory: Location, text: str | bytes) -> KeptFiles:
        """Parse the record of a directory. Raises CorruptFileError if it is not one."""
        try:
            fields: dict[str, Any] = json.loads(text)
            fields |= {name: tuple(fields[name]) for name in ("results", "hidden_ids")}
            return cls(directory, **fields)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(
                f"{directory / _RECORD} is not the record of kept files: {error}"
            ) from error


def check_can_keep(location: Location) -> None:
    """Refuse a storage where files cannot be brought back in one step.

    Raises:
        ConfigurationError: If the storage has no directories.
    """
    if not storage_at(location).has_directories:
        raise ConfigurationError(
            f"{location}: files from before a compaction cannot be kept in {location.scheme}, where no "
            "directory can be renamed in one step, so a restore could show half of them. Leave out keep_old "
            "(--keep-old), and use the versions of the store"
        )


def keep_files(work: PartitionCompaction, keep_old: timedelta) -> KeptFiles:
    """Copy the files that a compaction replaces, before they are replaced.

    Args:
        work: the compaction; its new files may be published but not committed.
        keep_old: how long the copies are kept.

    Raises:
        OSError: If a file cannot be copied. No copy is left.
    """
    root = work.view.locations[work.partition]
    check_can_keep(root)
    storage, now = storage_at(root), time.time()
    names = dict.fromkeys(file.location.relative_to(root).partition("/")[0] for file in work.joined)
    roots = [root / name for name in names]
    is_directory = [(entry := storage.stat(each)) is not None and entry.is_directory for each in roots]
    below = side_by_side(files_below, [r for r, is_one in zip(roots, is_directory, strict=True) if is_one], 8)
    sizes = {each.location: each.size for entries in below for each in entries}
    sizes |= {file.location: file.byte_count for file in work.joined if file.location.parent == root}
    kept = KeptFiles(
        root / f"{STAGING_PREFIX}kept_{work.txn_id}",
        work.kind.name.lower(),
        work.txn_id,
        work.last,
        tuple(each.name for each in work.directories),
        {location.relative_to(root): size for location, size in sizes.items()},
        tuple(sorted(_hidden_ids(work))),
        now,
        now + keep_old.total_seconds(),
    )
    try:
        for directory in dict.fromkeys((kept.copies / path).parent for path in kept.files):
            storage.create_directory(directory)
        side_by_side(lambda path: copy_file(root / path, kept.copies / path), kept.files, storage.threads)
        # The record appears in one step, so that it is not found without content after a death.
        target = kept.directory / _RECORD
        record = storage.stage(kept.directory / _NEW_RECORD, target)
        record.write(kept.to_json().encode())
        record.close()
        storage.publish(record.staged, target)
    except BaseException:
        remove_kept(kept.directory)
        raise
    return kept


@contextlib.contextmanager
def removed_after_errors(kept: KeptFiles | None) -> Iterator[None]:
    """Remove the copies if the block raises an error, after which the compaction did not happen.

    If its outcome is unknown, the copies stay.
    """
    try:
        yield
    except CommitOutcomeUnknownError:
        raise
    except BaseException:
        if kept is not None:
            remove_kept(kept.directory)
        raise


def _hidden_ids(work: PartitionCompaction) -> set[int]:
    """Return the ids within the ranges of the kept files that readers do not see.

    The server forgets aborted ids after the compaction, and then readers would see their rows.
    """
    valid = work.view.valid_ids
    ranges = {(file.first, file.last) for file in work.joined if file.first < file.last}
    return {id for id in valid.exceptions for first, last in ranges if first <= id <= last}


def find_kept(location: Location) -> list[KeptFiles]:
    """Return what is kept of a partition, the oldest first. Raises OSError, and CorruptFileError."""
    return _kept_in(directory for directory, _ in _directories(location))


def _kept_in(directories: Iterable[Location]) -> list[KeptFiles]:
    found = []
    for directory in directories:
        record = directory / _RECORD
        try:
            with storage_at(record).open_input(record) as stream:
                found.append(KeptFiles.from_json(directory, stream.read()))
        except FileNotFoundError:
            continue
    return sorted(found, key=lambda each: each.txn_id)


def find_removable(location: Location, open_txns: OpenTxns) -> list[Abandoned]:
    """Return the hidden directories of a partition that have expired, or were left incomplete.

    Args:
        location: the location of the partition.
        open_txns: the open transactions, listed before.

    Raises:
        OSError: If the directory cannot be listed.
        CorruptFileError: If a record is damaged.
    """
    alive = {each.id for each in open_txns.txns if each.state is TxnState.OPEN}
    listed = _directories(location)
    known = {each.directory: each for each in _kept_in(directory for directory, _ in listed)}
    return [
        Abandoned(txn_id, directory)
        for directory, txn_id in listed
        if (known[directory].is_expired if directory in known else txn_id not in alive)
        and txn_id <= open_txns.high_watermark
    ]


def remove_expired(location: Location) -> None:
    """Remove what has expired of a partition. A failure is only logged: a sweep removes it later."""
    try:
        expired = [each for each in find_kept(location) if each.is_expired]
    except (OSError, CorruptFileError) as error:
        _log.warning("could not look for kept files in %s: %s", location, error)
        return
    for each in expired:
        remove_kept(each.directory)


def remove_kept(directory: Location) -> bool:
    """Remove a hidden directory, its record first. Return False after a failure, which is logged."""
    storage, record = storage_at(directory), directory / _RECORD
    try:
        if storage.stat(record) is not None:
            storage.delete_file(record)
        storage.delete_directory(directory)
    except OSError as error:
        _log.warning("could not remove kept files in %s: %s", directory, error)
        return False
    return True


def is_of_kept_files(name: str) -> bool:
    """Return True if this is the name of a hidden directory of kept files."""
    return _NAME.fullmatch(name) is not None


def kept_directory_of(path: str) -> str | None:
    """Return the part of a path up to a directory of kept files. None if it is not in one."""
    names = path.split("/")
    for number, name in enumerate(names[:-1], 1):
        if is_of_kept_files(name):
            return "/".join(names[:number])
    return None


def _directories(location: Location) -> list[tuple[Location, int]]:
    entries = children_of(storage_at(location), location)
    matches = [(each, _NAME.fullmatch(each.name)) for each in entries if each.is_directory]
    return [(each.location, int(match[1])) for each, match in matches if match is not None]
