"""Names of directories and files of a table, and the differences between Hive's releases. Pure.

:class:`AcidVersion` contains the differences between the table formats of the releases. No other module
depends on them.

Every Hive release reads ``base_N`` (N may be negative), ``delta_X_Y[_SSSS]`` and ``delete_delta_X_Y[_SSSS]``.
Hive 4 adds ``_vM`` to the result of a compaction in transaction M, and ``_A`` (the attempt) to
``bucket_NNNNN``. Some names are refused, because Hive fails or, worse, loses rows on them:

* ``…_vM`` and ``bucket_NNNNN_A`` before Hive 4: the whole query fails.
* Numbers that are not padded: Hive selects the directory, then looks for it under its padded name.

Source: Hive's AcidUtils (2.3, 3.1, 4.x). The failures were observed on Hive 2.3.10, 3.1.3 and 4.1.0.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from mutation_api.errors import DirectoryStateError


class FileCalendar(enum.Enum):
    """The calendar of dates and timestamps before 1582-10-15 in a file that Hive reads correctly.

    HYBRID: Julian before that day. PROLEPTIC: Gregorian throughout. MARKED_PROLEPTIC: Gregorian throughout,
        and the ORC footer states this. Without the mark, Hive 4 assumes that a file is hybrid.
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
    """The layout of a table's files.

    V1_LEGACY: Hive 2.x, property ``transactional_properties`` absent or ``legacy``: one delta per
        transaction, and
    updates keep their ROW__ID. V1_SPLIT: Hive 2.x, ``default``: an update is a delete event plus an insert
    event. V2_HIVE3, V2_HIVE4: Hive 3.x and 4.x: like V1_SPLIT, with write ids and encoded buckets.
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
        """Return the layout of a table, or None if its server does not support such tables.

        Args:
            transactional_properties: the table property, one of :data:`TRANSACTIONAL_PROPERTIES`.
            has_write_ids: True if the table's server is Hive 3 or later.
            is_hive_4: True if the table's server is Hive 4 or later.
        """
        return _VERSIONS[transactional_properties][has_write_ids + (has_write_ids and is_hive_4)]

    @property
    def splits_updates(self) -> bool:
        """True if an update is written as a delete event (delete_delta) and an insert event (delta)."""
        return _FACTS[self].splits_updates

    @property
    def has_row_ids(self) -> bool:
        """True if rows are in events and have a ROW__ID, false if files contain only rows (insert-only)."""
        return _FACTS[self].has_row_ids

    @property
    def uses_write_ids(self) -> bool:
        """True if ids in names and events are the table's write ids, false if transaction ids (v1)."""
        return _FACTS[self].uses_write_ids

    @property
    def hive_release(self) -> int:
        """The major version of the Hive release with this layout: 2, 3 or 4."""
        if self.is_hive_4:
            return 4
        return 3 if self.uses_write_ids else 2

    @property
    def of_original_files(self) -> AcidVersion:
        """A version whose files contain plain rows, like files from before a table was transactional."""
        return AcidVersion.INSERT_ONLY_HIVE3

    @property
    def encodes_buckets(self) -> bool:
        """True if a ROW__ID's bucket field is a bucket property (see bucket_codec), false if a plain id."""
        return self.uses_write_ids and self.has_row_ids

    @property
    def may_be_unbucketed(self) -> bool:
        """True if a table need not be CLUSTERED BY."""
        return self.uses_write_ids

    @property
    def transaction_field(self) -> str:
        """The name of the first field of ROW__ID, in lower case as Hive prints it."""
        return "writeid" if self.uses_write_ids else "transactionid"

    @property
    def calendar(self) -> FileCalendar:
        """The calendar in which early dates are written."""
        return _FACTS[self].calendar

    @property
    def counts_days_proleptic(self) -> bool:
        """True if Hive assumes that a file without a calendar in its footer is proleptic, false if hybrid."""
        return self.calendar is FileCalendar.PROLEPTIC

    @property
    def matches_columns_by_position(self) -> bool:
        """True if columns of a file match the table's by position, false if by name."""
        return _FACTS[self].matches_columns_by_position

    @property
    def keeps_misplaced_rows(self) -> bool:
        """True if rows may be in another bucket than the one of their hash.

        Hive 3.1 writes some; updates leave them.
        """
        return _FACTS[self].keeps_misplaced_rows

    @property
    def numbers_files_through(self) -> bool:
        """True if rows are numbered across the plain files of one bucket and directory, in path order.

        Otherwise, each file starts at 0, and the ROW__IDs of different files are the same.
        """
        return self.uses_write_ids

    @property
    def ignores_nested_results(self) -> bool:
        """True if a delta may contain a directory of its own name, which all readers ignore.

        A second minor compaction of the same range moves its result into that of the first. Hive 2.3's
        readers of split tables and Hive 4's readers fail on it (measured).
        """
        return self in (AcidVersion.V1_LEGACY, AcidVersion.V2_HIVE3)

    @property
    def scatters_deletes(self) -> bool:
        """True if, in an unbucketed table, a delete event is valid in the file of any bucket."""
        return self is AcidVersion.V2_HIVE3

    @property
    def marks_bases(self) -> bool:
        """True if bases made by a compaction are marked (``_metadata_acid``, or the name).

        Others are overwrites. The base of an overwrite is visible as soon as its own id is valid. A compacted
        base is visible if no id in it is open.
        """
        return self.uses_write_ids

    @property
    def wants_one_writer_if_unbucketed(self) -> bool:
        """True if all new rows of a table without buckets should get the same bucket id.

        A minor compaction of Hive 3.1.3 copies the deletes of all buckets into the file of each bucket. Then
        the row reader and the major compaction fail ("Two readers for"), even after Hive's own SQL
        (measured).
        """
        return self.encodes_buckets and not self.is_hive_4

    @property
    def compressions(self) -> tuple[str, ...]:
        """The ORC codecs that the release's readers support and that this library can write."""
        return (*_COMPRESSIONS, "zstd") if self.is_hive_4 else _COMPRESSIONS

    @property
    def ignores_case_of_events(self) -> bool:
        """True if the names of event fields may be in lower case, as compaction by query writes them."""
        return self.is_hive_4

    @property
    def is_hive_4(self) -> bool:
        """True if the table's server is Hive 4.

        Directory names may then end in ``_v`` and a compaction's transaction, and file names in the number of
        an attempt. A base left by an unfinished or failed overwrite is skipped, while older Hive releases
        fail on it.
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
"""Values of the table property ``transactional_properties``. '' means that the table does not have it."""


LONG_MIN = -(2**63)
"""The id of the base that the first compaction of a converted table may write. Every snapshot may use it."""

FLUSH_LENGTH_SUFFIX = "_flush_length"
"""The suffix of a side file ``bucket_N_flush_length``.

The side file contains the committed length of a file that is still being written.
"""

ACID_VERSION_FILE = "_orc_acid_version"
"""Hive 3 and later put this file into each directory that they write. It contains the version, 2."""

BASE_MARKER = "_metadata_acid"
"""A JSON file in a base that describes how the base was made."""

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
    """A directory ``base_N[_vM]``: all rows up to and including id ``last``.

    ``compaction_txn`` is M, the transaction (never a write id) of the compaction that made it, or 0 if the
    name has none.
    """

    name: str
    last: int
    compaction_txn: int = 0


@dataclass(frozen=True)
class DeltaDirectory:
    """A directory ``delta_X_Y[_SSSS][_vM]`` or ``delete_delta_…``.

    It contains the events of the ids ``first``..``last``, both included. Ids are transactions in v1 and write
    ids in v2. ``statement_id`` is None if the name has none. For ``compaction_txn`` see
    :class:`BaseDirectory`.
    """

    name: str
    first: int
    last: int
    statement_id: int | None
    is_delete: bool
    compaction_txn: int = 0


@dataclass(frozen=True)
class OriginalFile:
    """A file of plain rows, from before the table became transactional or loaded since.

    ``bucket_id`` is None if Hive cannot derive it from the name. Hive 2.3 does not understand
    ``000000_0_copy_1``: its rows get bucket -1, and no event can match them.
    """

    name: str
    bucket_id: int | None


def base_directory_name(last: int, txn_id: int = 0) -> str:
    """Return a name such as ``base_0000005``, or ``base_0000005_v0000012`` for a transaction other than 0."""
    return f"{BASE_PREFIX}{_pad(last, 7)}{_visibility(txn_id)}"


def delta_directory_name(first: int, last: int, statement_id: int | None, txn_id: int = 0) -> str:
    """Return a name such as ``delta_0000005_0000005_0000``, or ``delta_0000005_0000009_v0000012``.

    The statement is omitted if ``statement_id`` is None, and the transaction of a compaction if it is 0.
    """
    statement = "" if statement_id is None else f"_{_pad(statement_id, 4)}"
    return f"{DELTA_PREFIX}{_pad(first, 7)}_{_pad(last, 7)}{statement}{_visibility(txn_id)}"


def delete_delta_directory_name(first: int, last: int, statement_id: int | None, txn_id: int = 0) -> str:
    """Return a name such as ``delete_delta_0000005_0000005_0000``; see :func:`delta_directory_name`."""
    return f"delete_{delta_directory_name(first, last, statement_id, txn_id)}"


def _visibility(txn_id: int) -> str:
    return f"_v{_pad(txn_id, 7)}" if txn_id else ""


def bucket_file_name(bucket_id: int) -> str:
    """Return a name such as ``bucket_00003``."""
    return f"{BUCKET_PREFIX}{_pad(bucket_id, 5)}"


def plain_file_name(bucket_id: int) -> str:
    """Return the name of a file without events, such as ``000003_0``.

    Hive gives such names to the files of its tasks in insert-only tables.
    """
    return f"{_pad(bucket_id, 6)}_0"


def is_hidden(name: str) -> bool:
    """Return True if Hive ignores a file or directory with this name."""
    return name.startswith(("_", "."))


def parse_directory_name(name: str, version: AcidVersion) -> BaseDirectory | DeltaDirectory | None:
    """Parse the name of a directory below a partition. Return None if it is not an ACID name.

    A directory with another name contains original files.

    Raises:
        DirectoryStateError: If the name starts like an ACID name, but Hive would fail on it or lose its rows.
    """
    if not name.startswith((BASE_PREFIX, DELTA_PREFIX, DELETE_DELTA_PREFIX)):
        return None
    base, delta = _BASE.fullmatch(name), _DELTA.fullmatch(name)
    if base is None and delta is None:
        raise DirectoryStateError(
            f"directory {name!r} starts like an ACID directory but is not base_N or [delete_]delta_X_Y[_S]; "
            "Hive fails every query on it. Rename it so that it starts with an underscore, or remove it"
        )
    compaction = base[2] if base else delta[5] if delta else None
    if compaction is not None and not version.is_hive_4:
        raise DirectoryStateError(
            f"directory {name!r} was compacted by Hive 4, and older releases cannot read its _v suffix; "
            "read the table with Hive 4"
        )
    if base:
        return BaseDirectory(name, int(base[1]), int(compaction or 0))
    assert delta is not None
    return _checked_delta(name, delta)


def parse_bucket_file_name(name: str, version: AcidVersion) -> int | None:
    """Return the bucket id of ``bucket_00003``, with Hive 4 also of ``bucket_00003_0``.

    For other names, including badly padded ones (``bucket_3``), return None.
    """
    match = _BUCKET.fullmatch(name)
    if match is None or (match[3] and not version.is_hive_4) or match[1] != bucket_file_name(int(match[2])):
        return None
    return int(match[2])


def parse_original_file_name(name: str, version: AcidVersion) -> OriginalFile:
    """Return how Hive understands a visible file outside the ACID directories.

    Hive reads all such files, but few have a bucket.
    """
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
            f"directory {name!r} is not padded; Hive looks for {expected!r} and silently loses the rows. "
            "Rename the directory"
        )
    if last < first:
        raise DirectoryStateError(f"directory {name!r} has a range that ends before it starts")
    return DeltaDirectory(name, first, last, statement_id, is_delete, int(match[5] or 0))


def _pad(number: int, width: int) -> str:
    # Java's %07d counts the sign as one of the seven characters, and so does Python's.
    return f"{number:0{width}d}"
