"""Location: the location of a file or directory. Storages accept no other form.

A path without a scheme names a different file in every file system. So strings are parsed once, where they
enter (from a metastore, a user or a manifest), and no method of a storage accepts a string.

``urllib.parse`` was not used because it decodes. Hive's locations are Hadoop paths: ``%3A`` is three
characters of a directory's name (partition values are escaped that way), and ``#`` and ``?`` are ordinary
characters.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path

_TEXT = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?(?P<path>/.*)?", re.DOTALL
)
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_LOCAL = "file"
_THIS_HOST = ("", "localhost")
_SPELLINGS = {"s3": "s3a", "s3n": "s3a", "abfs": "abfss"}
"""Older schemes of a store -> the scheme of its current Hadoop client."""
_HDFS_PORT = ":8020"


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """The location of a file or directory. Two locations are equal if they refer to the same place.

    ``scheme`` is in lower case. ``authority`` (host and port, name service, bucket or container) may be
    empty. ``path`` is absolute, is not decoded, and ends with a slash only if it is the root.
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Location:
        """Parse ``scheme:/path``, ``scheme://authority/path``, or an absolute path of this machine.

        Raises:
            OSError: If the string is not a location (EINVAL): it is a relative path, has no path, or is a
                local path of another host.
        """
        if text.startswith("/"):
            return cls(_LOCAL, "", _without_end(text))
        match = _TEXT.fullmatch(text)
        if match is None or not (match["path"] or match["authority"]):
            raise OSError(
                errno.EINVAL, "expected scheme:/path, scheme://authority/path or an absolute path", text
            )
        scheme, authority = match["scheme"].lower(), match["authority"] or ""
        scheme = _SPELLINGS.get(scheme, scheme)
        if scheme == _LOCAL:
            if authority not in _THIS_HOST:
                raise OSError(errno.EINVAL, "a local location must not name another host", text)
            authority = ""
        if scheme == "hdfs":
            authority = authority.lower().removesuffix(_HDFS_PORT)
        if scheme == "abfss":
            authority = authority.lower()
        return cls(scheme, authority, _without_end(match["path"] or "/"))

    @classmethod
    def given(cls, text: LocationLike) -> Location:
        """Return the location that a user specifies:

        in the form of :meth:`parse`, or relative to the working directory.

        Raises:
            OSError: If :meth:`parse` refuses the string (EINVAL).
        """
        if isinstance(text, Location):
            return text
        text = os.fspath(text)
        return cls.parse(text if _HAS_SCHEME.match(text) else str(Path(text).absolute()))

    def __str__(self) -> str:
        """Return a string that :meth:`parse` accepts, spelled as Hive spells it."""
        if self.scheme == _LOCAL:
            return f"{_LOCAL}:{self.path}"
        return f"{self.scheme}://{self.authority}{self.path}"

    def __truediv__(self, names: str) -> Location:
        """Return the location below this one with a name, or with several names separated by slashes."""
        if not names or names.startswith("/"):
            raise ValueError(f"expected names of a location below {self}, got {names!r}")
        start = "" if self.path == "/" else self.path
        return Location(self.scheme, self.authority, _without_end(f"{start}/{names}"))

    @property
    def local_path(self) -> str | None:
        """The path if the location is on this machine's disks, otherwise None."""
        return self.path if self.scheme == _LOCAL else None

    @property
    def shown(self) -> str:
        """The location in readable form, as :meth:`given` accepts it: a local path, or the full string."""
        return self.local_path or str(self)

    @property
    def name(self) -> str:
        """The last name of the path, or '' for the root."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Location:
        """The directory that contains the location. The root is its own parent."""
        return Location(self.scheme, self.authority, self.path.rpartition("/")[0] or "/")

    def is_within(self, other: Location) -> bool:
        """Return True if this is the other location or is below it."""
        if (self.scheme, self.authority) != (other.scheme, other.authority):
            return False
        return self.path == other.path or self.path.startswith(other.path.rstrip("/") + "/")

    def relative_to(self, other: Location) -> str:
        """Return the names between the other location and this one.

        Raises:
            ValueError: If this location is not below the other one.
        """
        if self == other or not self.is_within(other):
            raise ValueError(f"{self} is not below {other}")
        return self.path.removeprefix(other.path).lstrip("/")


def _without_end(path: str) -> str:
    return path.rstrip("/") or "/"


LocationLike = str | os.PathLike[str] | Location
"""A location given by a user: a Location, or a string or path that :meth:`Location.given` accepts."""
