"""Arguments that name files and directories: local paths, or locations on any storage."""

from __future__ import annotations

import argparse
from pathlib import Path

from mutation_api.cli.arguments.option_names import in_option_names
from mutation_api.errors import ConfigurationError
from mutation_api.scan.file_format import FORMATS, extension, file_format
from mutation_api.storage.location import Location

__all__ = ["add_format_argument", "add_output_argument", "input_format", "location_from", "output_format"]


def add_format_argument(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare ``--format``."""
    parser.add_argument("--format", choices=FORMATS, help=what)


def add_output_argument(
    group: argparse.ArgumentParser | argparse._ArgumentGroup,  # argparse has no public name for it
    what: str,
) -> None:
    """Declare ``--output``."""
    group.add_argument("--output", type=location_from, metavar="FILE", help=what)


def location_from(text: str) -> Location:
    """Type of an argument: ``hdfs://…``, ``s3a://…``, ``file:/…`` or a path.

    Raises:
        argparse.ArgumentTypeError: it is not a location.
    """
    try:
        return Location.given(text)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error.strerror}") from error


def input_format(file: Location, given: str | None) -> str:
    """The format in ``--format``, else by the file's extension. Raises ConfigurationError."""
    with in_option_names({"format_name": "--format"}):
        return file_format(file, given)


def output_format(file: Location) -> str:
    """The format by the extension of ``--output``; call it before anything is read.

    Raises:
        ConfigurationError: the extension is unknown, the name is a folder, or its folder does not exist.
    """
    found = extension(file)
    if found not in FORMATS:
        raise ConfigurationError(
            f"--output {file.shown}: the name must end in {', '.join(f'.{each}' for each in FORMATS)}"
        )
    path = file.local_path
    if path is not None and (Path(path).is_dir() or not Path(path).parent.is_dir()):
        raise ConfigurationError(f"--output {file.shown}: it is a folder, or its folder does not exist")
    return found
