"""Formats of files that hold rows for people, and what a file's name tells about them."""

from __future__ import annotations

from pathlib import PurePosixPath

from mutation_api.errors import ConfigurationError
from mutation_api.storage.location import Location

__all__ = ["FORMATS", "extension", "file_format"]

FORMATS = ("csv", "json", "orc", "parquet")
"""CSV with a header, JSON with an object a line, ORC, Parquet; so are the extensions of their names."""


def file_format(file: Location, given: str | None = None) -> str:
    """The format that was given, else the one that the file's extension tells.

    Raises:
        ConfigurationError: neither is one of FORMATS.
    """
    found = given or extension(file)
    if found not in FORMATS:
        raise ConfigurationError(
            f"{file.shown}: name the format with format_name, one of {', '.join(FORMATS)}"
        )
    return found


def extension(file: Location) -> str:
    """What follows the last point of the name, in lower case; '' if there is none."""
    return PurePosixPath(file.name).suffix.lower().removeprefix(".")
