"""AcidVersion: how the table formats of the Hive releases differ. No other module knows."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["TRANSACTIONAL_PROPERTIES", "AcidVersion", "FileCalendar"]


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
