"""Names of base, delta, delete_delta, bucket, side and original files: build and parse. Pure.

Every Hive knows ``base_N`` (N may be negative), ``delta_X_Y[_SSSS]`` and ``delete_delta_X_Y[_SSSS]``; Hive 4
adds ``_vM`` to what a compaction in transaction M made, and ``_A`` (the attempt) to ``bucket_NNNNN``. Some
names are refused, because Hive fails or, worse, loses rows on them:

* ``…_vM`` and ``bucket_NNNNN_A`` before Hive 4: the whole query fails;
* numbers that are not padded: Hive selects the directory, then looks for it under its padded name.

Source: Hive's AcidUtils (2.3, 3.1, 4.x); the refusals were observed on Hive 2.3.10, 3.1.3 and 4.1.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mutation_api.acid.version import AcidVersion
from mutation_api.errors import DirectoryStateError

__all__ = [
    "ACID_VERSION_FILE",
    "BASE_MARKER",
    "BUCKET_PREFIX",
    "DELTA_PREFIX",
    "FLUSH_LENGTH_SUFFIX",
    "LONG_MIN",
    "BaseDirectory",
    "DeltaDirectory",
    "OriginalFile",
    "bucket_file_name",
    "delete_delta_directory_name",
    "delta_directory_name",
    "is_hidden",
    "parse_bucket_file_name",
    "parse_directory_name",
    "parse_original_file_name",
    "plain_file_name",
]

LONG_MIN = -(2**63)
"""Number of the base that the first compaction of a converted table may write; every snapshot may use it."""

FLUSH_LENGTH_SUFFIX = "_flush_length"
"""A side file ``bucket_N_flush_length`` holds the committed length of a file that is still being written."""

ACID_VERSION_FILE = "_orc_acid_version"
"""Hive 3 and later put this file into each directory that they write. It holds the version, 2."""

BASE_MARKER = "_metadata_acid"
"""JSON file in a base that says how the base was made."""

BASE_PREFIX = "base_"
DELTA_PREFIX = "delta_"
DELETE_DELTA_PREFIX = "delete_delta_"
BUCKET_PREFIX = "bucket_"

_BASE = re.compile(r"base_(-?[0-9]+)(?:_v([0-9]+))?")
_DELTA = re.compile(r"(delete_)?delta_([0-9]+)_([0-9]+)(?:_([0-9]+))?(?:_v([0-9]+))?")
_BUCKET = re.compile(r"(bucket_([0-9]+))(_[0-9]+)?")
_ORIGINAL = re.compile(r"([0-9]+)_[0-9]+")
_COPY = re.compile(r"([0-9]+)_[0-9]+_copy_[0-9]+")


@dataclass(frozen=True)
class BaseDirectory:
    """``base_N[_vM]``: all rows up to and including id ``last``.

    ``compaction_txn`` is M, the transaction (never a write id) of the compaction that made it; 0 if the name
    has none.
    """

    name: str
    last: int
    compaction_txn: int = 0


@dataclass(frozen=True)
class DeltaDirectory:
    """``delta_X_Y[_SSSS][_vM]`` or ``delete_delta_…``: events of ids ``first``..``last``, both included.

    Ids are transactions in v1, write ids in v2. ``statement_id`` is None if the name has none;
    ``compaction_txn`` as in a base.
    """

    name: str
    first: int
    last: int
    statement_id: int | None
    is_delete: bool
    compaction_txn: int = 0


@dataclass(frozen=True)
class OriginalFile:
    """A file of plain rows: from before the table became transactional, or loaded since.

    ``bucket_id`` is None if Hive cannot derive it from the name. Hive 2.3 does not understand
    ``000000_0_copy_1``: its rows get bucket -1, and no event can match them.
    """

    name: str
    bucket_id: int | None


def delta_directory_name(first: int, last: int, statement_id: int | None) -> str:
    """``delta_0000005_0000005_0000``; without the last part if ``statement_id`` is None."""
    statement = "" if statement_id is None else f"_{_pad(statement_id, 4)}"
    return f"{DELTA_PREFIX}{_pad(first, 7)}_{_pad(last, 7)}{statement}"


def delete_delta_directory_name(first: int, last: int, statement_id: int | None) -> str:
    """``delete_delta_0000005_0000005_0000``; without the last part if ``statement_id`` is None."""
    return f"delete_{delta_directory_name(first, last, statement_id)}"


def bucket_file_name(bucket_id: int) -> str:
    """``bucket_00003``."""
    return f"{BUCKET_PREFIX}{_pad(bucket_id, 5)}"


def plain_file_name(bucket_id: int) -> str:
    """``000003_0``: a file without events, as Hive names those of its tasks in insert-only tables."""
    return f"{_pad(bucket_id, 6)}_0"


def is_hidden(name: str) -> bool:
    """Whether Hive ignores a file or directory of this name."""
    return name.startswith(("_", "."))


def parse_directory_name(name: str, version: AcidVersion) -> BaseDirectory | DeltaDirectory | None:
    """Parse the name of a directory below a partition; None if it holds original files (not an ACID name).

    Raises:
        DirectoryStateError: the name starts like an ACID name, but Hive would fail on it or lose its rows.
    """
    if not name.startswith((BASE_PREFIX, DELTA_PREFIX, DELETE_DELTA_PREFIX)):
        return None
    base, delta = _BASE.fullmatch(name), _DELTA.fullmatch(name)
    if base is None and delta is None:
        raise DirectoryStateError(
            f"directory {name!r} starts like an ACID directory but is not base_N or [delete_]delta_X_Y[_S]; "
            "Hive fails every query on it: rename it so that it starts with an underscore, or remove it"
        )
    compaction = base[2] if base else delta[5] if delta else None
    if compaction is not None and not version.is_hive_4:
        raise DirectoryStateError(
            f"directory {name!r} was compacted by Hive 4, whose _v suffix older Hives cannot read; "
            "read the table with Hive 4"
        )
    if base:
        return BaseDirectory(name, int(base[1]), int(compaction or 0))
    assert delta is not None
    return _checked_delta(name, delta)


def parse_bucket_file_name(name: str, version: AcidVersion) -> int | None:
    """Bucket id of ``bucket_00003``, with Hive 4 also of ``bucket_00003_0``.

    None for any other name, a badly padded one (``bucket_3``) included.
    """
    match = _BUCKET.fullmatch(name)
    if match is None or (match[3] and not version.is_hive_4) or match[1] != bucket_file_name(int(match[2])):
        return None
    return int(match[2])


def parse_original_file_name(name: str, version: AcidVersion) -> OriginalFile:
    """How Hive understands a visible file outside the ACID directories: it reads all, few have a bucket."""
    match = _ORIGINAL.fullmatch(name) or (_COPY.fullmatch(name) if version.numbers_files_through else None)
    return OriginalFile(name, int(match[1]) if match else None)


def _checked_delta(name: str, match: re.Match[str]) -> DeltaDirectory:
    first, last = int(match[2]), int(match[3])
    statement_id = None if match[4] is None else int(match[4])
    is_delete = match[1] is not None
    build = delete_delta_directory_name if is_delete else delta_directory_name
    suffix = "" if match[5] is None else f"_v{_pad(int(match[5]), 7)}"
    expected = f"{build(first, last, statement_id)}{suffix}"
    if name != expected:
        raise DirectoryStateError(
            f"directory {name!r} is not padded; Hive looks for {expected!r} and silently loses the rows: "
            "rename the directory"
        )
    if last < first:
        raise DirectoryStateError(f"directory {name!r} names a range that ends before it starts")
    return DeltaDirectory(name, first, last, statement_id, is_delete, int(match[5] or 0))


def _pad(number: int, width: int) -> str:
    # Java's %07d counts the sign as one of the seven; so does Python's.
    return f"{number:0{width}d}"
