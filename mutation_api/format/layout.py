"""Names of directories and files of a table, and what differs between Hive's releases.

AcidVersion: how the table formats of the Hive releases differ. No other module knows.

Names of base, delta, delete_delta, bucket, side and original files: build and parse. Pure.

Every Hive knows ``base_N`` (N may be negative), ``delta_X_Y[_SSSS]`` and ``delete_delta_X_Y[_SSSS]``; Hive 4
adds ``_vM`` to what a compaction in transaction M made, and ``_A`` (the attempt) to ``bucket_NNNNN``. Some
names are refused, because Hive fails or, worse, loses rows on them:

* ``…_vM`` and ``bucket_NNNNN_A`` before Hive 4: the whole query fails;
* numbers that are not padded: Hive selects the directory, then looks for it under its padded name.

Source: Hive's AcidUtils (2.3, 3.1, 4.x); the refusals were observed on Hive 2.3.10, 3.1.3 and 4.1.0.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from mutation_api.errors import DirectoryStateError

__all__ = [
    "ACID_VERSION_FILE",
    "BASE_MARKER",
    "BUCKET_PREFIX",
    "DELTA_PREFIX",
    "FLUSH_LENGTH_SUFFIX",
    "LONG_MIN",
    "TRANSACTIONAL_PROPERTIES",
    "AcidVersion",
    "BaseDirectory",
    "DeltaDirectory",
    "FileCalendar",
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


class FileCalendar(enum.Enum):
    """Calendar of dates and wall clocks before 1582-10-15 in a file that Hive reads right.

    HYBRID: Julian before that day. PROLEPTIC: Gregorian throughout. MARKED_PROLEPTIC: the same, and the ORC
    footer says so. Without the mark Hive 4 takes a file for hybrid.
    """

    HYBRID = "hybrid"
    PROLEPTIC = "proleptic"
    MARKED_PROLEPTIC = "marked-proleptic"


@dataclass(frozen=True)
class _Facts:
    splits_updates: bool
    has_row_ids: bool
    uses_write_ids: bool
    calendar: FileCalendar
    matches_columns_by_position: bool
    keeps_misplaced_rows: bool


class AcidVersion(enum.Enum):
    """Layout of a table's files.

    V1_LEGACY: Hive 2.x, property ``transactional_properties`` absent or ``legacy``: one delta per
    transaction, updates keep their ROW__ID. V1_SPLIT: Hive 2.x, ``default``: an update is a delete event plus
    an insert event. V2_HIVE3, V2_HIVE4: Hive 3.x and 4.x: as split, with write ids and encoded buckets.
    INSERT_ONLY_HIVE3, INSERT_ONLY_HIVE4: plain files in delta directories (``insert_only``).
    """

    V1_LEGACY = "v1-legacy"
    V1_SPLIT = "v1-split"
    V2_HIVE3 = "v2-hive3"
    V2_HIVE4 = "v2-hive4"
    INSERT_ONLY_HIVE3 = "insert-only-hive3"
    INSERT_ONLY_HIVE4 = "insert-only-hive4"

    @classmethod
    def of_table(
        cls, transactional_properties: str, *, has_write_ids: bool, is_hive_4: bool
    ) -> AcidVersion | None:
        """Layout of a table.

        Args:
            transactional_properties: the table property, one of :data:`TRANSACTIONAL_PROPERTIES`.
            has_write_ids: the table's server is Hive 3 or later.
            is_hive_4: the table's server is Hive 4 or later.

        Returns:
            None if that server does not support such tables.
        """
        return _VERSIONS[transactional_properties][has_write_ids + (has_write_ids and is_hive_4)]

    @property
    def splits_updates(self) -> bool:
        """An update is written as a delete event (delete_delta) and an insert event (delta)."""
        return _FACTS[self].splits_updates

    @property
    def has_row_ids(self) -> bool:
        """Rows are wrapped in events and have a ROW__ID; otherwise files hold rows alone (insert-only)."""
        return _FACTS[self].has_row_ids

    @property
    def uses_write_ids(self) -> bool:
        """Ids in names and events are the table's write ids; otherwise they are transaction ids (v1)."""
        return _FACTS[self].uses_write_ids

    @property
    def hive_release(self) -> int:
        """The major version of the Hive whose layout it is: 2, 3 or 4."""
        if self.is_hive_4:
            return 4
        return 3 if self.uses_write_ids else 2

    @property
    def of_original_files(self) -> AcidVersion:
        """A version whose files hold plain rows, as files from before a table was transactional do."""
        return AcidVersion.INSERT_ONLY_HIVE3

    @property
    def encodes_buckets(self) -> bool:
        """The bucket field of a ROW__ID is a bucket property; see bucket_codec. Otherwise a plain id."""
        return self.uses_write_ids and self.has_row_ids

    @property
    def may_be_unbucketed(self) -> bool:
        """A table need not be CLUSTERED BY."""
        return self.uses_write_ids

    @property
    def transaction_field(self) -> str:
        """Name of the first field of ROW__ID, in lower case as Hive prints it."""
        return "writeid" if self.uses_write_ids else "transactionid"

    @property
    def calendar(self) -> FileCalendar:
        """How early dates are written."""
        return _FACTS[self].calendar

    @property
    def counts_days_proleptic(self) -> bool:
        """Hive takes a file whose footer names no calendar for proleptic; otherwise for hybrid."""
        return self.calendar is FileCalendar.PROLEPTIC

    @property
    def matches_columns_by_position(self) -> bool:
        """Columns of a file are the table's in order, whatever their names; otherwise they go by name."""
        return _FACTS[self].matches_columns_by_position

    @property
    def keeps_misplaced_rows(self) -> bool:
        """Rows may lie in a bucket other than their hash says: Hive 3.1 writes some, updates leave them."""
        return _FACTS[self].keeps_misplaced_rows

    @property
    def numbers_files_through(self) -> bool:
        """Rows in the plain files of one bucket and directory are numbered across files, in order of path.

        Otherwise each file starts at 0, and ROW__IDs of different files repeat each other.
        """
        return self.uses_write_ids

    @property
    def ignores_nested_results(self) -> bool:
        """A delta may hold a directory of its own name, which all readers ignore.

        A second minor compaction of one range moves its result into that of the first. Hive 2.3's readers of
        split tables and those of Hive 4 fail on it (measured).
        """
        return self in (AcidVersion.V1_LEGACY, AcidVersion.V2_HIVE3)

    @property
    def scatters_deletes(self) -> bool:
        """In an unbucketed table a delete event is valid in the file of any bucket."""
        return self is AcidVersion.V2_HIVE3

    @property
    def marks_bases(self) -> bool:
        """A base that a compaction made is marked (``_metadata_acid``, or its name); others are overwrites.

        The base of an overwrite is visible as soon as its own id is valid. A compacted base is visible when
        no id in it is open.
        """
        return self.uses_write_ids

    @property
    def wants_one_writer_if_unbucketed(self) -> bool:
        """In a table without buckets, all new rows should get the same bucket id.

        A minor compaction of Hive 3.1.3 copies the deletes of all buckets into the file of each, and then the
        row reader and the major compaction fail ("Two readers for"); also after its own SQL (measured).
        """
        return self.encodes_buckets and not self.is_hive_4

    @property
    def compressions(self) -> tuple[str, ...]:
        """ORC codecs that the release's readers know and that we can write."""
        return (*_COMPRESSIONS, "zstd") if self.is_hive_4 else _COMPRESSIONS

    @property
    def ignores_case_of_events(self) -> bool:
        """The names of event fields may be lower case, as compaction by query writes them."""
        return self.is_hive_4

    @property
    def is_hive_4(self) -> bool:
        """The table's server is Hive 4: directory names may end in ``_v`` and a compaction's transaction.

        File names may end in the number of an attempt. A base that an unfinished or failed overwrite left is
        skipped, where older Hives fail.
        """
        return self.calendar is FileCalendar.MARKED_PROLEPTIC


_COMPRESSIONS = ("zlib", "snappy", "lz4", "none")
_HYBRID, _PROLEPTIC, _MARKED = FileCalendar.HYBRID, FileCalendar.PROLEPTIC, FileCalendar.MARKED_PROLEPTIC
_FACTS = {
    #                                        splits row_ids write_ids calendar position misplaced
    AcidVersion.V1_LEGACY: _Facts(False, True, False, _HYBRID, False, False),
    AcidVersion.V1_SPLIT: _Facts(True, True, False, _HYBRID, False, False),
    AcidVersion.V2_HIVE3: _Facts(True, True, True, _PROLEPTIC, False, True),
    AcidVersion.V2_HIVE4: _Facts(True, True, True, _MARKED, True, False),
    AcidVersion.INSERT_ONLY_HIVE3: _Facts(True, False, True, _PROLEPTIC, False, True),
    AcidVersion.INSERT_ONLY_HIVE4: _Facts(True, False, True, _MARKED, True, False),
}

_VERSIONS = {
    #                 2.x                    3.x                            4.x
    "": (AcidVersion.V1_LEGACY, AcidVersion.V2_HIVE3, AcidVersion.V2_HIVE4),
    "legacy": (AcidVersion.V1_LEGACY, None, None),
    "default": (AcidVersion.V1_SPLIT, AcidVersion.V2_HIVE3, AcidVersion.V2_HIVE4),
    "insert_only": (None, AcidVersion.INSERT_ONLY_HIVE3, AcidVersion.INSERT_ONLY_HIVE4),
}
TRANSACTIONAL_PROPERTIES = tuple(_VERSIONS)
"""Values of the table property ``transactional_properties``; empty: the table does not have it."""


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
