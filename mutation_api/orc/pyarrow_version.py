"""The oldest pyarrow that reads and writes ORC rightly; older ones are refused when this package is imported.

An older one gives no error where it is wrong. Measured with files of real Hive: up to 23 a timestamp that
nanoseconds cannot hold (9999-12-31, a common "no end") is read as another one, and up to 23 values of unions
below lists are lost; 24 ends the process. So a worker that brings its own old pyarrow must not start.
"""

from __future__ import annotations

import re

import pyarrow as pa

from mutation_api.errors import ConfigurationError

__all__ = ["OLDEST", "check_version"]

OLDEST = 25
"""The major version; the requirements of the package say the same."""


def check_version(version: str) -> None:
    """Refuse a pyarrow that is too old.

    Args:
        version: as ``pyarrow.__version__`` has it.

    Raises:
        ConfigurationError: it is too old; names both versions.
    """
    major = re.match(r"[0-9]+", version)
    if major is not None and int(major[0]) < OLDEST:
        raise ConfigurationError(
            f"pyarrow {version} is too old: it reads some timestamps of ORC files as others, without an "
            f"error; install pyarrow {OLDEST} or newer, on all machines that run tasks"
        )


check_version(pa.__version__)
