"""The version of this package, which is written in setup.cfg alone. Installing copies it to the metadata.

A task on a cluster may run the package from an archive without metadata, so a missing version is allowed.
"""

from __future__ import annotations

from importlib import metadata

DISTRIBUTION = "hive-mutation-api"
UNKNOWN = "0+unknown"


def installed_version() -> str:
    """Return the installed version. UNKNOWN if none is installed, for example in an archive."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return UNKNOWN


__version__ = installed_version()
