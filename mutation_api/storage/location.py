"""Location: where a file or directory lies; the only form that a storage accepts.

A text without a scheme names a different file in every file system. So texts are parsed once, where they
enter (a metastore, a user, a manifest), and no method of a storage takes a text.

Why not ``urllib.parse``: it decodes. Hive's locations are Hadoop paths: ``%3A`` is three characters of a
directory's name (partition values are escaped that way), and ``#`` and ``?`` are ordinary characters.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Location", "LocationLike"]

_TEXT = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?(?P<path>/.*)?", re.DOTALL
)
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_LOCAL = "file"
_THIS_HOST = ("", "localhost")
_SPELLINGS = {"s3": "s3a", "s3n": "s3a", "abfs": "abfss"}
"""Older schemes of a store, and the scheme of its present Hadoop client."""
_HDFS_PORT = ":8020"


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """Where a file or directory lies. Two are equal if their texts name the same location.

    ``scheme`` is in lower case; ``authority`` (host and port, name service, bucket, container) may be empty;
    ``path`` is absolute, not decoded, and ends with a slash only if it is the root.
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Location:
        """The location that a text names: ``scheme:/path``, ``scheme://authority/path``, or a plain absolute
        path of this machine.

        Raises:
            OSError: EINVAL, the text is not a location: a relative path, no path, or a local path of another
                host.
        """
        if text.startswith("/"):
            return cls(_LOCAL, "", _without_end(text))
        match = _TEXT.fullmatch(text)
        if match is None or not (match["path"] or match["authority"]):
            raise OSError(
                errno.EINVAL, "a location is scheme:/path, scheme://authority/path or an absolute path", text
            )
        scheme, authority = match["scheme"].lower(), match["authority"] or ""
        scheme = _SPELLINGS.get(scheme, scheme)
        if scheme == _LOCAL:
            if authority not in _THIS_HOST:
                raise OSError(errno.EINVAL, "a local location names no other host", text)
            authority = ""
        if scheme == "hdfs":
            authority = authority.lower().removesuffix(_HDFS_PORT)
        if scheme == "abfss":
            authority = authority.lower()
        return cls(scheme, authority, _without_end(match["path"] or "/"))

    @classmethod
    def given(cls, text: LocationLike) -> Location:
        """The location that a user's text names, as in :meth:`parse`; also relative to the working directory.

        Raises OSError as :meth:`parse`.
        """
        if isinstance(text, Location):
            return text
        text = os.fspath(text)
        return cls.parse(text if _HAS_SCHEME.match(text) else str(Path(text).absolute()))

    def __str__(self) -> str:
        """A text that :meth:`parse` takes, spelled as Hive spells it."""
        if self.scheme == _LOCAL:
            return f"{_LOCAL}:{self.path}"
        return f"{self.scheme}://{self.authority}{self.path}"

    def __truediv__(self, names: str) -> Location:
        """The location of a name, or of several names with slashes between them, below this one."""
        if not names or names.startswith("/"):
            raise ValueError(f"{names!r} names nothing below {self}")
        start = "" if self.path == "/" else self.path
        return Location(self.scheme, self.authority, _without_end(f"{start}/{names}"))

    @property
    def local_path(self) -> str | None:
        """The path if the location is on this machine's disks, else None."""
        return self.path if self.scheme == _LOCAL else None

    @property
    def shown(self) -> str:
        """A text for people that :meth:`given` accepts: the path of a local location, else the full text."""
        return self.local_path or str(self)

    @property
    def name(self) -> str:
        """The last name of the path; '' for the root."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Location:
        """The directory that holds it; the root is its own parent."""
        return Location(self.scheme, self.authority, self.path.rpartition("/")[0] or "/")

    def is_within(self, other: Location) -> bool:
        """Whether it is the other location or lies below it."""
        if (self.scheme, self.authority) != (other.scheme, other.authority):
            return False
        return self.path == other.path or self.path.startswith(other.path.rstrip("/") + "/")

    def relative_to(self, other: Location) -> str:
        """The names between the other location and this one. Raises ValueError unless it lies below it."""
        if self == other or not self.is_within(other):
            raise ValueError(f"{self} does not lie below {other}")
        return self.path.removeprefix(other.path).lstrip("/")


def _without_end(path: str) -> str:
    return path.rstrip("/") or "/"


LocationLike = str | os.PathLike[str] | Location
"""What users may pass for a location: a Location, or a text or path that :meth:`Location.given` takes."""
