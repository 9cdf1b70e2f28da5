"""ORC files: format, writing and reading. A pyarrow version with silent errors is rejected on import.

An older one does not report an error where it is wrong. Measured with files of real Hive: up to 23, a
timestamp that nanoseconds cannot hold (9999-12-31, a common "no end") is read as another one, and values of
unions below lists are lost; 24 ends the process. So a worker that has its own old pyarrow must not start.
"""

from __future__ import annotations

import re

import pyarrow as pa

import mutation_api.errors

__all__ = ["OLDEST", "check_version"]

OLDEST = 25
"""The oldest accepted major version. The package requires the same version."""


def check_version(version: str) -> None:
    """Raise ConfigurationError if a pyarrow is too old.

    Args:
        version: the version, as in ``pyarrow.__version__``.

    Raises:
        ConfigurationError: If it is too old. The message names both versions.
    """
    major = re.match(r"[0-9]+", version)
    if major is not None and int(major[0]) < OLDEST:
        raise mutation_api.errors.ConfigurationError(
            f"pyarrow {version} is too old: it silently reads some timestamps of ORC files as other "
            f"values; install pyarrow {OLDEST} or newer on all machines that run tasks"
        )


check_version(pa.__version__)
