"""Rules that a sound table meets, how to fix a violation, and the findings of violations. Pure.

Source: Hive's AcidUtils, OrcInputFormat, OrcRawRecordMerger, VectorizedOrcAcidRowBatchReader (2.3, 3.1, 4.x),
and the observed behaviour of their readers with damaged files.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.storage.location import Location


class IdState(enum.Enum):
    """The state of an id: COMMITTED, ABORTED, OPEN, or UNKNOWN (not allocated)."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class KnownIds:
    """The known ids: ``ids`` are those of the table's files, ``txns`` the transactions of compactions.

    Both were requested after the directories were listed, so that no directory can be newer.
    """

    ids: ValidIdList
    txns: ValidTxnList


def state_of(id: int, valid: ValidIdList) -> IdState:
    """Return the state of an id; a forgotten one (its files are cleaned) counts as committed."""
    if valid.is_valid(id):
        return IdState.COMMITTED
    if id > valid.high_watermark:
        return IdState.UNKNOWN
    return IdState.ABORTED if id in valid.aborted else IdState.OPEN


class Severity(enum.Enum):
    """DAMAGE: a reader fails, or rows are lost, duplicate or wrong. NOTICE: harmless, but worth knowing."""

    DAMAGE = "damage"
    NOTICE = "notice"


@dataclass(frozen=True)
class Rule:
    """One rule. ``meaning``: the rule in words; ``advice``: what to do if it is violated."""

    name: str
    severity: Severity
    meaning: str
    advice: str


_REWRITE = (
    "the program that wrote the file is faulty, or the file was changed later: restore it, or remove its "
    "directory and write that transaction's changes again at once: until then, rows that it deleted reappear"
)
_COMPACT = (
    "have the partition compacted (major), by Hive or by this library, which writes the rows with a right "
    "entry; Trino writes a wrong one if a file has several stripes. Do not remove the directory"
)
_RESTORE = "restore the file from a backup or a replica; if there is none, its rows are lost"
_MOVE = "move it out of the table's directory, or give it a name that starts with an underscore"
_WAIT = "nothing needs to be done"

_DAMAGES = (
    # directories
    ("directory-name", "names are base_N or [delete_]delta_X_Y[_S], padded, on Hive 4 with _vM", _MOVE),
    (
        "unknown-id",
        "write ids in names were allocated by the metastore",
        "move the directory away: its rows would appear as soon as that id is allocated and committed",
    ),
    (
        "unknown-compaction",
        "transactions in names (_vM) were opened by the metastore",
        "move the directory away: it would hide others as soon as that transaction commits",
    ),
    (
        "overlapping-deltas",
        "the ranges of two deltas are disjoint, or one contains the other",
        "find out which of them a compaction wrote, and move the other one away: Hive reads both",
    ),
    ("directory", "Hive can determine which directories to read", "see what was found"),
    ("base-marker", "_metadata_acid records that the base was compacted", _RESTORE),
    ("acid-version-file", "_orc_acid_version holds the layout's version", "write the expected bytes into it"),
    ("nested-directory", "a base or delta contains only files", _MOVE),
    ("file-name", "files of a base or delta are named bucket_NNNNN, on Hive 4 with an attempt", _MOVE),
    (
        "bucket-twice",
        "a bucket has one file in each base or delta",
        "find out which attempt was committed (compare rows with the source), and move the other file away",
    ),
    (
        "side-file",
        "the length in bucket_N_flush_length does not exceed that of the file",
        "if the writer is gone, remove the side file; rows after the recorded length were never committed",
    ),
    ("plain-file", "files of plain rows are alone in a base or a delta of one id", _MOVE),
    (
        "unregistered-partition",
        "every partition directory with committed rows is registered in the metastore",
        "add the partition (ALTER TABLE … ADD PARTITION) if its rows belong to the table, or move it away",
    ),
    # one file
    ("unreadable", "every value of every stripe can be read", _RESTORE),
    ("empty-file", "files in a base or delta are not empty", _RESTORE),
    ("row-count", "footer, stripes and data have the same number of rows", _RESTORE),
    (
        "codec",
        "the table's Hive supports the compression",
        "write the rows again with zlib, or read the table with Hive 4",
    ),
    ("event-fields", "a file has the fields of an event, with Hive's names, types and order", _REWRITE),
    ("column-names", "columns are spelled as in the table, in lower case", _REWRITE),
    ("column-type", "values can be read as the table's type", "see what was found; ALTER TABLE may help"),
    (
        "key-index",
        "hive.acid.key.index holds the last ROW__ID of each stripe: Hive's row reader skips rows by it, or "
        "fails, if it divides a file",
        _COMPACT,
    ),
    (
        "acid-stats",
        "hive.acid.stats counts inserts, updates and deletes: before Hive 4, vectorised readers skip a file "
        "of deletes that counts none",
        _COMPACT,
    ),
    ("acid-version", "hive.acid.version is the layout's version", _REWRITE),
    ("orc-statistics", "ranges, counts and nulls recorded by ORC match the values", _REWRITE),
    (
        "row-index",
        "the positions of row groups in ORC's index lead to their values",
        "a query with a condition fails or returns wrong values: set hive.optimize.index.filter=false until "
        "the rows are written again",
    ),
    (
        "bloom-filter",
        "the Bloom filter of a row group has all values of its column",
        "a query with a condition loses rows: set hive.optimize.index.filter=false until the rows are "
        "written again",
    ),
    # events
    ("event-null", "no field of an event is null", _REWRITE),
    ("operation", "a delta holds inserts, a delete delta deletes, a base no deletes", _REWRITE),
    ("row-missing", "inserts and updates have a row", _REWRITE),
    ("order", "events are sorted by ROW__ID, the newest of a row first", _REWRITE),
    (
        "key-twice",
        "no two rows have the same ROW__ID",
        "copy the rows to a new table: an update or delete of one of them affects both",
    ),
    ("id-range", "ids of events are within the range of their directory", _REWRITE),
    ("original-id", "an insert's ROW__ID has the id that wrote it", _REWRITE),
    ("row-number", "row ids are not negative", _REWRITE),
    ("bucket-field", "buckets in ROW__IDs are encoded as Hive does it", _REWRITE),
    ("bucket-file", "the bucket in a ROW__ID is that of the file", _REWRITE),
    ("statement", "the statement in a new row's ROW__ID is that of the delta", _REWRITE),
    (
        "bucket-count",
        "buckets are below the table's number of buckets, or Hive 3 and 4 read them nevertheless",
        "if the table had more buckets before, restore their number by ALTER TABLE … CLUSTERED BY; if the "
        "file was added by hand, copy the rows to a new table",
    ),
    (
        "bucket-hash",
        "rows are in the bucket that their values hash to",
        "the file was added by hand, or a program other than Hive altered the table: copy the rows to a new "
        "table; until then read all buckets (prune_buckets=False)",
    ),
    ("early-delete", "a delete has a higher id than the row's insert", _REWRITE),
    # the files of a bucket
    (
        "delete-hits-nothing",
        "every delete and update is of an existing row",
        "a base or delta of this partition is missing, or a delete was written for another table: restore "
        "what is missing",
    ),
    (
        "deleted-twice",
        "a row is deleted once",
        "let Hive compact the partition (major) with its row reader: vectorised readers lose other deletes",
    ),
    ("read", "a reader can merge the bucket's files", "see what was found"),
    # the metastore
    (
        "row-statistics",
        "numRows is the number of rows if the metastore marks it as accurate",
        "ANALYZE TABLE … COMPUTE STATISTICS: count(*) is answered from it",
    ),
    (
        "column-statistics",
        "minimum, maximum, nulls and true values match a column if the metastore marks its statistics as "
        "accurate",
        "ANALYZE TABLE … COMPUTE STATISTICS FOR COLUMNS: min, max and count are answered from them",
    ),
)
_NOTICES = (
    (
        "aborted-id",
        "a directory's id was aborted: no reader looks at it, and Hive's cleaner removes it",
        _WAIT,
    ),
    ("open-id", "a directory belongs to an open transaction, and was not examined", _WAIT),
    ("aborted-compaction", "a compaction did not commit: no reader looks at its directory", _WAIT),
    (
        "acid-version-missing",
        "a directory has no _orc_acid_version; no reader needs it",
        "nothing needs to be done",
    ),
    ("side-file-left", "a writer left a side file; readers obey it", "remove it if its writer is gone"),
    (
        "bucket-hash-old",
        "rows are not in the bucket that they hash to: Hive 3.1 writes some rows in this way, and ALTER "
        "TABLE leaves some",
        "nothing needs to be done for Hive and this library, which find them; Trino refuses such a table or "
        "misses rows: for Trino, copy the rows to a new table",
    ),
    (
        "key-twice-old",
        "rows of one transaction share ROW__IDs, as some rows written by Hive 2.3's MERGE do",
        "let Hive compact the table before you change such a row: a change affects both",
    ),
    (
        "key-index-of-deletes",
        "a delete delta has a hive.acid.key.index that differs from Hive's, as Trino writes it",
        "nothing needs to be done: Hive and this library read its deletes without that entry. Do not remove "
        "the directory: deleted rows would reappear",
    ),
    (
        "acid-stats-of-deletes",
        "hive.acid.stats of a delete delta counts fewer deletes than there are, as Trino writes it for files "
        "of several stripes",
        "nothing needs to be done: Hive and this library read all its deletes. Do not remove the directory: "
        "deleted rows would reappear",
    ),
    ("missing-partition", "a partition's directory is missing: it has no rows", _WAIT),
    (
        "statistics-unchecked",
        "statistics were not compared: the table changed in the meantime, or it cannot be read",
        _WAIT,
    ),
    (
        "column-statistics-plan",
        "statistics of a column are wrongly marked as accurate, but this Hive answers no query from them",
        "ANALYZE TABLE … COMPUTE STATISTICS FOR COLUMNS, for better plans; Hive 4's own INSERT spoils the "
        "range of decimals",
    ),
    (
        "not-read-here",
        "a file holds values that Hive reads but this library cannot: it was examined up to these values",
        "leave that column out when you read with this library, or let Hive write the rows again",
    ),
    ("not-merged", "a bucket's files were not compared, because one of them is damaged", _WAIT),
)

RULES = {
    name: Rule(name, severity, meaning, advice)
    for severity, rows in ((Severity.DAMAGE, _DAMAGES), (Severity.NOTICE, _NOTICES))
    for name, meaning, advice in rows
}
"""All rules by name."""


@dataclass(frozen=True)
class Finding:
    """A violated rule of :data:`~RULES`.

    Attributes:
        rule_name: key of the rule.
        partition: escaped name of the partition, '' for none.
        location: the file or directory.
        found: the value found. expected: the expected value.
        row: position in the file of the first affected row, from 0. If None, it is not about rows.
        row_id: its ROW__ID: id, bucket field, row id.
        count: number of affected rows or locations.
    """

    rule_name: str
    partition: str
    location: Location
    found: str
    expected: str
    row: int | None = None
    row_id: tuple[int, int, int] | None = None
    count: int = 1

    @property
    def rule(self) -> Rule:
        """The violated rule."""
        return RULES[self.rule_name]

    @property
    def is_damage(self) -> bool:
        """True if a reader fails, or if rows are lost, duplicate or wrong."""
        return self.rule.severity is Severity.DAMAGE

    def to_dict(self) -> dict[str, object]:
        """Return the finding as one JSON object."""
        return {
            "rule": self.rule_name,
            "severity": self.rule.severity.value,
            "partition": self.partition,
            "location": str(self.location),
            "row": self.row,
            "row_id": None if self.row_id is None else list(self.row_id),
            "count": self.count,
            "found": self.found,
            "expected": self.expected,
            "advice": self.rule.advice,
        }

    def __str__(self) -> str:
        """Return one readable line."""
        place = str(self.location)
        if self.row is not None:
            place += f", row {self.row:,}"
        if self.row_id is not None:
            place += f", ROW__ID {','.join(map(str, self.row_id))}"
        more = f" ({self.count:,} rows)" if self.count > 1 else ""
        return f"{self.rule_name}: {place}: found {self.found}; expected {self.expected}{more}"
