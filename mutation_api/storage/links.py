"""Links to files and directories, which only local disks have."""

from __future__ import annotations

from pathlib import Path

from mutation_api.storage.location import Location

__all__ = ["without_links"]


def without_links(location: Location) -> Location:
    """A local location with its links resolved, whether its target exists or not; others as given.

    So a link stays in force when its file is replaced.
    """
    return location if location.local_path is None else Location.given(Path(location.local_path).resolve())
