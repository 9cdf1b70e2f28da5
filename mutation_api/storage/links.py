"""Links to files and directories, which only local disks have."""

from __future__ import annotations

from pathlib import Path

from mutation_api.storage.location import Location

__all__ = ["without_links"]


def without_links(location: Location) -> Location:
    """What a location on a local disk leads to, whether it exists or not; any other as it is.

    So a file that is replaced through a link keeps its link.
    """
    return location if location.local_path is None else Location.given(Path(location.local_path).resolve())
