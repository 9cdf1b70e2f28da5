"""SnapshotSplit: the files that one reader merges, and their text form for sending them to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mutation_api.errors import DirectoryStateError
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable

__all__ = ["SnapshotSplit", "takes_deletes_of_all_buckets"]


@dataclass(frozen=True)
class SnapshotSplit:
    """The files of one (partition, bucket) that one reader merges.

    ``partition_name`` is the escaped name, '' for an unpartitioned table; ``bucket_id`` is -1 for plain files
    without a bucket in their name.
    """

    partition_name: str
    location: Location
    bucket_id: int
    files: tuple[EventFile, ...]

    @property
    def byte_count(self) -> int:
        """Total size of its files."""
        return sum(file.byte_count for file in self.files)

    def is_of_bucket(self, num_buckets: int) -> bool:
        """Whether the split should hold rows of exactly one of the table's buckets.

        Plain files may hold any rows: they were loaded, or written before the table was transactional. So may
        a bucket that the table no longer has.
        """
        has_plain_files = any(file.kind is EventFileKind.ORIGINAL for file in self.files)
        return 0 <= self.bucket_id < num_buckets and not has_plain_files

    def to_json(self) -> str:
        """The split as one line of JSON."""
        value = {
            "partition_name": self.partition_name,
            "location": str(self.location),
            "bucket_id": self.bucket_id,
            "files": [_file_to_json(file, self.location) for file in self.files],
        }
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> SnapshotSplit:
        """Inverse of :meth:`to_json`. Raises DirectoryStateError, naming the text."""
        try:
            value = json.loads(text)
            location = Location.parse(value.pop("location"))
            files = tuple(_file_from_json(each, location) for each in value.pop("files"))
            return cls(**value, location=location, files=files)
        except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError) as error:
            raise DirectoryStateError(f"not a snapshot split: {text[:200]!r} ({error})") from error


def _file_to_json(file: EventFile, root: Location) -> dict[str, object]:
    """A file as JSON, with its path below the partition: full locations would make the text long."""
    name = file.location.relative_to(root)
    ids = [file.first, file.last, file.statement_id]
    return {
        "name": name,
        "kind": file.kind.value,
        "bucket_id": file.bucket_id,
        "ids": ids,
        "length": file.length,
        "bytes": file.byte_count,
    }


def _file_from_json(value: Mapping[str, Any], root: Location) -> EventFile:
    first, last, statement_id = value["ids"]
    kind = EventFileKind(value["kind"])
    return EventFile(
        root / value["name"],
        kind,
        value["bucket_id"],
        first,
        last,
        statement_id,
        value["length"],
        value["bytes"],
    )


def takes_deletes_of_all_buckets(table: AcidTable) -> bool:
    """Whether the deletes of a split's rows may lie in files of any bucket."""
    return table.version.scatters_deletes and not table.is_bucketed
