"""EventFile: one file that a snapshot reads, as known from its directory's listing."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from mutation_api.storage.location import Location

__all__ = ["EventFile", "EventFileKind"]


class EventFileKind(enum.Enum):
    """Kind of a file. ORIGINAL: rows without events; original, loaded or insert-only."""

    BASE = "base"
    ORIGINAL = "original"
    DELTA = "delta"
    DELETE_DELTA = "delete_delta"


@dataclass(frozen=True)
class EventFile:
    """One file that a snapshot reads.

    ``bucket_id`` is -1 for an original file without a bucket in its name. ``first``..``last`` are the ids of
    its directory (0, 0 outside one; 0, N for a base). ``length`` is the committed length in bytes from a side
    file, else None. ``byte_count`` is its size in the listing.
    """

    location: Location
    kind: EventFileKind
    bucket_id: int
    first: int
    last: int
    statement_id: int | None = None
    length: int | None = None
    byte_count: int = field(default=0, compare=False)
