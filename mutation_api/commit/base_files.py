"""Give buckets without a base file an empty one, in the legacy layout of Hive 2.

If a bucket has no file in the base, Hive 2.3 reads its deltas once for every base file. So rows appear twice
or more wherever Hive reads by stripes (``hive.exec.orc.split.strategy``: ETL, which the default chooses for
few or large files). A file of length 0 counts as missing; a file without rows does not. Bases get such gaps
from Hive's own compaction, if no delta had a file for a bucket; plain tables get them from empty buckets. A
base of one file is left as it is: rows of the other buckets are read once, with that file. A second file
would double the rows of all further buckets until they have files, too.

No reader sees a difference after an empty ORC file is added, so it needs no transaction. It appears in one
step, and stays if the transaction aborts. Split update does not need it.

Source: observed on Hive 2.3.10, also with its own SQL alone.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from mutation_api.acid.layout import (
    BaseDirectory,
    bucket_file_name,
    is_hidden,
    parse_bucket_file_name,
    parse_directory_name,
    parse_original_file_name,
    plain_file_name,
)
from mutation_api.acid.version import AcidVersion
from mutation_api.commit.manifest import staging_directory
from mutation_api.commit.staging import children_of
from mutation_api.orc.write.event_writer import OrcEventWriter
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry, Storage
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.row_type import row_type

__all__ = ["complete_base"]

_DOUBLING_FILES = 2
"""From this number of base files on, rows of the other buckets are read more than once."""

_log = logging.getLogger(__name__)


def complete_base(table: AcidTable, location: Location) -> None:
    """Create the missing bucket files of one partition's newest base, or of its original files.

    All buckets get one, since Hive's own deltas have gaps too. Two concurrent calls do no harm.

    Raises:
        OSError: the directory cannot be read or written.
        DirectoryStateError: it holds a directory that Hive fails on.
    """
    storage = storage_at(location)
    base = _newest_base(storage, location, table.version)
    if len(base.buckets) < _DOUBLING_FILES:
        return
    for bucket_id in sorted(set(range(table.num_buckets)) - base.buckets):
        name = base.file_name(bucket_id)
        _create_empty(storage, base.location / name, base.version, table)
        why = f"without it Hive reads the rows of bucket {bucket_id} several times"
        _log.info("table %s: created the empty file %s/%s: %s", table.full_name, base.location, name, why)


@dataclass(frozen=True)
class _Base:
    """Location of the base files, and the buckets that have one with content."""

    location: Location
    version: AcidVersion
    buckets: frozenset[int]

    def file_name(self, bucket_id: int) -> str:
        return bucket_file_name(bucket_id) if self.version.has_row_ids else plain_file_name(bucket_id)


def _newest_base(storage: Storage, location: Location, version: AcidVersion) -> _Base:
    entries = [entry for entry in children_of(storage, location) if not is_hidden(entry.name)]
    directories = [parse_directory_name(e.name, version) for e in entries if e.is_directory]
    bases = [directory for directory in directories if isinstance(directory, BaseDirectory)]
    if bases:
        newest = location / max(bases, key=lambda base: base.last).name
        files = [(parse_bucket_file_name(e.name, version), e) for e in storage.list(newest)]
        return _Base(newest, version, _with_content(files))
    files = [(parse_original_file_name(e.name, version).bucket_id, e) for e in entries if not e.is_directory]
    return _Base(location, version.of_original_files, _with_content(files))


def _with_content(files: Iterable[tuple[int | None, FileEntry]]) -> frozenset[int]:
    return frozenset(bucket_id for bucket_id, entry in files if bucket_id is not None and entry.size)


def _create_empty(storage: Storage, target: Location, version: AcidVersion, table: AcidTable) -> None:
    """Create a file that appears in one step; it replaces an existing file of length 0."""
    is_renamed = storage.publishes_by_rename
    hidden = _staging_of(target, table) / f"{uuid.uuid4().hex}_{target.name}"
    if is_renamed:
        storage.create_directory(hidden.parent)
    file = storage.create(hidden if is_renamed else target)
    own_id = table.required_txn_id()
    writer = OrcEventWriter(file, row_type(table.columns), version=version, own_id=own_id)
    try:
        writer.finish()
        found = storage.stat(target)
        if found is not None and not found.size:
            storage.delete_file(target)
        file.close()
        if is_renamed:
            storage.publish(file.staged, target)
    except FileExistsError:
        writer.discard()  # another transaction came first
    except BaseException:
        _discard_quietly(writer, target)
        raise


def _staging_of(target: Location, table: AcidTable) -> Location:
    """A directory in the transaction's staging directory, which is removed with it."""
    root = table.location if target.is_within(table.location) else target.parent
    return staging_directory(root, table.required_txn_id()) / "base_files" / "0"


def _discard_quietly(writer: OrcEventWriter, target: Location) -> None:
    try:
        writer.discard()
    except OSError as error:
        _log.warning("could not remove the hidden file for %s: %s", target, error)
