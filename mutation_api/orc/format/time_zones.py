"""Time zones for ORC's decoders and encoders, which look them up in files.

A stripe contains the name of its writer's time zone. The C++ library of pyarrow and pyorc opens the file of
that name below ``$TZDIR``, or ``/usr/share/zoneinfo``. A machine may have none of these files, or only some:
Debian has older names such as ``EST`` in another package. Java also has names that no database contains:
offsets (``GMT+08:00``) and short names (``CTT``).

:func:`add_zone` creates a directory for this process, with the files of the machine and the zone, and sets
``TZDIR`` to it. A zone that the machine lacks comes from the package ``tzdata``. The file of an offset is
generated.

Source: ``java.util.TimeZone`` (custom ids), ``java.time.ZoneId.SHORT_IDS``, RFC 8536 (the files).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.resources
import io
import itertools
import os
import re
import shutil
import struct
import tempfile
import threading
import zoneinfo
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from mutation_api.format.plain_array import has_timestamp
from mutation_api.format.timestamps import FIRST_KNOWN_INSTANT

_SYSTEM = Path("/usr/share/zoneinfo")
_VARIABLE = "TZDIR"
_MISSING = re.compile(r"Time zone file (.+) does not exist|Can't open (.+)")
_OFFSET = re.compile(r"(?:GMT|UTC|UT)?([+-])(\d{1,2})(?::?(\d\d)(?::?(\d\d))?)?")
_NAME = re.compile(r"[A-Za-z0-9_+\-:]+(?:/[A-Za-z0-9_+\-:]+)*")
_LARGEST_HOURS = 18

_SHORT_NAMES = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
    "Z": "+00:00",
}
"""Java's short names."""

_NO_OFFSET = frozenset(("", "UTC", "GMT", "Etc/UTC", "Etc/GMT", "Z"))
_NANOS_PER_SECOND = 10**9
_FIRST_AGREED = (FIRST_KNOWN_INSTANT + 24 * 60 * 60) * _NANOS_PER_SECOND
"""The local time, in nanoseconds since 1970, from which ORC and Java use the same offset of a zone."""
_FILES = "files"

_mutex = threading.Lock()
_aliases = itertools.count()


@functools.cache
def find_zones() -> None:
    """Let ORC find the zones of the package ``tzdata`` on a machine that does not have any zones."""
    if _VARIABLE not in os.environ and not (_SYSTEM / "GMT").exists():
        os.environ[_VARIABLE] = str(_package())


def is_zone_name(text: str) -> bool:
    """Return True if a stripe may contain this name of a zone. Decoders open the file of that name."""
    return not text or _NAME.fullmatch(text) is not None


def missing_zone(error: BaseException) -> str | None:
    """Return the zone that ORC did not find; None if the error has another cause."""
    found = _MISSING.search(str(error))
    if found is None:
        return None
    path = Path(found[1] or found[2])
    known = Path(os.environ.get(_VARIABLE, _SYSTEM))
    return str(path.relative_to(known)) if path.is_relative_to(known) else None


def add_zone(name: str) -> bool:
    """Make a zone available to ORC in this process.

    Args:
        name: the name in the stripe.

    Returns:
        False if it is not an offset, and neither this machine nor the package ``tzdata`` has it.

    Raises:
        OSError: If the directory cannot be written to.
    """
    content = _content(name)
    if content is None:
        return False
    with _mutex:
        root = _root()
        path = root / _FILES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        # ORC never looks again for a file that was missing, so the directory gets another name.
        alias = root / str(next(_aliases))
        alias.symlink_to(_FILES)
        os.environ[_VARIABLE] = str(alias)
    return True


@functools.lru_cache(maxsize=64)
def named_zone(name: str) -> zoneinfo.ZoneInfo | None:
    """Return the zone of that name, which Python need not know; None if the name is an offset.

    Args:
        name: the name in the stripe.
    """
    if name in _NO_OFFSET or _seconds(_SHORT_NAMES.get(name, name)) is not None:
        return None
    content = _content(name)
    return None if content is None else zoneinfo.ZoneInfo.from_file(io.BytesIO(content), key=name)


def _content(name: str) -> bytes | None:
    if not _NAME.fullmatch(name):
        return None
    for place in (_SYSTEM, _package()):
        with contextlib.suppress(OSError):
            return (place / name).read_bytes()
    seconds = _seconds(name)
    if seconds is not None:
        return _file_of_offset(seconds)
    return _content(_SHORT_NAMES[name]) if name in _SHORT_NAMES else None


def _seconds(name: str) -> int | None:
    """Return the offset that a name stands for, in seconds east of UTC; None if it is not an offset."""
    found = _OFFSET.fullmatch(name)
    if found is None:
        return None
    hours, minutes, seconds = (int(each or 0) for each in found.groups()[1:])
    if hours > _LARGEST_HOURS or minutes > 59 or seconds > 59:
        return None
    size = (hours * 60 + minutes) * 60 + seconds
    return -size if found[1] == "-" else size


def _file_of_offset(seconds: int) -> bytes:
    """Return the contents of a file for a zone that has always had one offset."""
    designation = b"GMT\0"
    block = struct.pack(">lbb", seconds, 0, 0) + designation
    counts = struct.pack(">6l", 0, 0, 0, 0, 1, len(designation))
    head = b"TZif2" + bytes(15) + counts
    sign = "-" if seconds > 0 else "+"  # POSIX counts offsets to the west
    hours, rest = divmod(abs(seconds), 3600)
    rule = f"<GMT>{sign}{hours}:{rest // 60:02}:{rest % 60:02}"
    return head + block + head + block + f"\n{rule}\n".encode("ascii")


def _package() -> Path:
    return Path(str(importlib.resources.files("tzdata"))) / "zoneinfo"


@functools.cache
def _root() -> Path:
    """Return a directory with the files that ORC has found so far. It is removed when the process ends."""
    root = Path(tempfile.mkdtemp(prefix="hive-mutate-zones-"))
    atexit.register(_remove, root, os.getpid())
    folder = root / _FILES
    folder.mkdir()
    before = os.environ.get(_VARIABLE)
    for place in (Path(before) if before else _SYSTEM, _package()):
        for path in _files(place):
            target = folder / path.relative_to(place)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(path)
    return root


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that was forked
        shutil.rmtree(folder, ignore_errors=True)


def _files(place: Path) -> Iterator[Path]:
    for directory, folders, names in os.walk(place):
        folders[:] = [each for each in folders if each not in ("posix", "right", "__pycache__")]
        yield from (Path(directory, name) for name in names if not name.endswith((".py", ".pyc")))


def uses_early_offsets(array: pa.Array) -> bool:
    """Return True if a column has timestamps for which ORC and Java use different offsets of a zone."""
    if pa.types.is_timestamp(array.type):
        # There may be any value below a null. The time zone is then looked up unnecessarily.
        data = array.buffers()[1]
        if data is None or not len(array):
            return False
        values = np.frombuffer(data, np.int64)[array.offset : array.offset + len(array)]
        return bool(values.min() < _FIRST_AGREED)
    kind = array.type
    if not kind.num_fields or not has_timestamp(kind):
        return False
    if pa.types.is_list(kind):
        return uses_early_offsets(array.values)
    if pa.types.is_map(kind):
        return uses_early_offsets(array.keys) or uses_early_offsets(array.items)
    return any(
        uses_early_offsets(array.field(i))
        for i in range(kind.num_fields)
        if has_timestamp(kind.field(i).type)
    )
