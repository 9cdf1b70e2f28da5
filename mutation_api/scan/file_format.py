"""Formats of files that hold rows for people, and how a file's name shows its format."""

from __future__ import annotations

from pathlib import PurePosixPath

from mutation_api.errors import ConfigurationError
from mutation_api.storage.location import Location

__all__ = ["FORMATS", "extension", "file_format"]

FORMATS = ("csv", "json", "orc", "parquet")
"""CSV with a header, JSON with one object a line, ORC, Parquet. The extensions of files are the same."""


def file_format(file: Location, given: str | None = None) -> str:
    """The given format, else the file's extension.

    Raises:
        ConfigurationError: it is not one of FORMATS.
    """
    found = given or extension(file)
    if found not in FORMATS:
        raise ConfigurationError(
            f"{file.shown}: name the format with format_name, one of {', '.join(FORMATS)}"
        )
    return found


def extension(file: Location) -> str:
    """The part of the name after its last dot, in lower case; '' if it has no dot."""
    return PurePosixPath(file.name).suffix.lower().removeprefix(".")
