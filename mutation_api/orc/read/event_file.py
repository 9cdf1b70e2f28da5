"""EventFile: one file that a snapshot reads, as listing its directory tells it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from mutation_api.storage.location import Location

__all__ = ["EventFile", "EventFileKind"]


class EventFileKind(enum.Enum):
    """What a file is to its partition. ORIGINAL: rows without events; original, loaded or insert-only."""

    BASE = "base"
    ORIGINAL = "original"
    DELTA = "delta"
    DELETE_DELTA = "delete_delta"


@dataclass(frozen=True)
class EventFile:
    """One file that a snapshot reads.

    ``bucket_id`` is -1 for an original file whose name has none. ``first``..``last`` are the ids of its
    directory (0, 0 outside of one; 0, N for a base). ``length`` is the committed length in bytes if a side
    file says so, else None. ``byte_count`` is its size as it was listed.
    """

    location: Location
    kind: EventFileKind
    bucket_id: int
    first: int
    last: int
    statement_id: int | None = None
    length: int | None = None
    byte_count: int = field(default=0, compare=False)
