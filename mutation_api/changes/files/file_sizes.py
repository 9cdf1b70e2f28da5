"""Which files a user means, and how large they are."""

from __future__ import annotations

from mutation_api.acid.layout import is_hidden
from mutation_api.errors import ConfigurationError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry

__all__ = ["files_at"]


def files_at(file: Location) -> list[FileEntry]:
    """The file, or the files of a folder by name, without hidden ones.

    Raises:
        ConfigurationError: there is nothing, the folder has folders, or the storage cannot be read.
    """
    try:
        storage = storage_at(file)
        found = storage.stat(file)
        if found is None:
            raise ConfigurationError(f"there is no file {file.shown}")
        if not found.is_directory:
            return [found]
        entries = [entry for entry in storage.list(file) if not is_hidden(entry.name)]
    except OSError as error:
        raise ConfigurationError(f"{file.shown} cannot be read: {error}") from error
    folders = [entry.location.shown for entry in entries if entry.is_directory]
    if folders:
        raise ConfigurationError(
            f"{file.shown} holds folders ({folders[0]}), and only Spark reads those: name the files, or use "
            "its engine"
        )
    return entries
