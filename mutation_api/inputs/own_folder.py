"""A folder of a source's own, for what it keeps until it is applied."""

from __future__ import annotations

import logging
import tempfile
import uuid
from pathlib import Path

from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location

__all__ = ["own_folder", "remove_own_folder"]

_OWN_NAME = "hive-mutate-"

_log = logging.getLogger(__name__)


def own_folder(directory: Location | None) -> Location:
    """A new folder in this one, by default in that for temporary files.

    On a local disk only this user may read it. Raises OSError.
    """
    directory = directory or Location.given(tempfile.gettempdir())
    local = directory.local_path
    if local is not None:
        Path(local).mkdir(parents=True, exist_ok=True)
        return Location.given(tempfile.mkdtemp(prefix=_OWN_NAME, dir=local))
    folder = directory / f"{_OWN_NAME}{uuid.uuid4().hex}"
    storage_at(folder).create_directory(folder)
    return folder


def remove_own_folder(folder: Location) -> None:
    """Remove it with all that is in it; that it stays is no error."""
    try:
        storage_at(folder).delete_directory(folder)
    except OSError:
        _log.warning(
            "%s: the folder holds rows of the source and could not be deleted; it can be deleted by hand",
            folder,
            exc_info=True,
        )
