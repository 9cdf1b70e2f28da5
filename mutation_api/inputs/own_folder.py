"""A folder of a source's own, for what it keeps until it is applied."""

from __future__ import annotations

import logging
import tempfile
import uuid
import weakref
from collections.abc import Callable
from pathlib import Path

from mutation_api.errors import InputError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location

__all__ = ["OwnFolder"]

_OWN_NAME = "hive-mutate-"

_log = logging.getLogger(__name__)


class OwnFolder:
    """Each read of a source gets a new folder, in place of that of the read before.

    The last one goes with this object, also if nobody calls :meth:`remove`, as at the end of a command.
    """

    def __init__(self, directory: Location | None) -> None:
        """``directory``: where the folders are made; by default where temporary files are."""
        self._directory = directory
        self.remove: Callable[[], object] = _nothing

    def renewed(self, what: str) -> Location:
        """A new folder. Raises InputError; ``what`` begins its message."""
        self.remove()
        try:
            folder = _made(self._directory)
        except OSError as error:
            raise InputError(f"{what} cannot be kept until they are applied: {error}") from error
        self.remove = weakref.finalize(self, _remove, folder)
        return folder


def _nothing() -> None:
    pass


def _made(directory: Location | None) -> Location:
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


def _remove(folder: Location) -> None:
    """Remove it with all that is in it; that it stays is no error."""
    try:
        storage_at(folder).delete_directory(folder)
    except OSError:
        _log.warning(
            "%s: the folder holds rows of the source and could not be deleted; it can be deleted by hand",
            folder,
            exc_info=True,
        )
