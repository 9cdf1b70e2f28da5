"""The version of this package. Its one home is setup.cfg; installing copies it to the metadata read here.

A task on a cluster may run the package from an archive without metadata, so a missing version is no error.
"""

from __future__ import annotations

from importlib import metadata

__all__ = ["__version__", "installed_version"]

DISTRIBUTION = "hive-mutation-api"
UNKNOWN = "0+unknown"


def installed_version() -> str:
    """What was installed; UNKNOWN if nothing was, as where the source runs from an archive."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return UNKNOWN


__version__ = installed_version()
