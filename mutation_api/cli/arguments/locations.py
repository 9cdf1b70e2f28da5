"""Places that arguments name: a path of this machine, or a location on any storage."""

from __future__ import annotations

import argparse
from pathlib import Path, PurePosixPath

from mutation_api.storage.location import Location

__all__ = ["extension", "place", "resolved"]


def place(text: str) -> Location:
    """Type of an argument: ``hdfs://…``, ``s3a://…``, ``file:/…`` or a path.

    Raises:
        argparse.ArgumentTypeError: it names no place.
    """
    try:
        return Location.given(text)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error.strerror}") from error


def resolved(location: Location) -> Location:
    """The same place without links, where there are any."""
    return location if location.local_path is None else Location.given(Path(location.local_path).resolve())


def extension(location: Location) -> str:
    """What follows the last point of the name, in lower case; '' if there is none."""
    return PurePosixPath(location.name).suffix.lower().removeprefix(".")
