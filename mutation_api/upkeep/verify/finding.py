"""Findings, and the rules that they break.

KnownIds: what the metastore says of the ids in a table's names and events. Pure.

Rules that a sound table keeps, and what to do when one is broken.

Source: Hive's AcidUtils, OrcInputFormat, OrcRawRecordMerger, VectorizedOrcAcidRowBatchReader (2.3, 3.1, 4.x),
and what their readers were seen to do with damaged files.

Finding: one place at which a table breaks a rule.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.storage.location import Location

__all__ = ["RULES", "Finding", "IdState", "KnownIds", "Rule", "Severity", "state_of"]


class IdState(enum.Enum):
    """COMMITTED, ABORTED, OPEN, or UNKNOWN: not given out."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class KnownIds:
    """``ids`` those of the table's files, ``txns`` the transactions of compactions.

    Both were asked for after the directories were listed, so that nothing there can be younger.
    """

    ids: ValidIdList
    txns: ValidTxnList


def state_of(id: int, valid: ValidIdList) -> IdState:
    """State of one id; one that the metastore has forgotten (its files are cleaned) counts as committed."""
    if valid.is_valid(id):
        return IdState.COMMITTED
    if id > valid.high_watermark:
        return IdState.UNKNOWN
    return IdState.ABORTED if id in valid.aborted else IdState.OPEN


class Severity(enum.Enum):
    """DAMAGE: a reader fails, or rows are lost, doubled or wrong. NOTICE: harmless, but worth knowing."""

    DAMAGE = "damage"
    NOTICE = "notice"


@dataclass(frozen=True)
class Rule:
    """One rule. ``meaning``: what it says; ``advice``: what to do when it is broken."""

    name: str
    severity: Severity
    meaning: str
    advice: str


_REWRITE = (
    "the program that wrote the file is faulty, or the file was changed since: restore it, or remove its "
    "directory and write that transaction's changes again"
)
_RESTORE = "restore the file from a copy or a replica; if there is none, its rows are lost"
_MOVE = "move it out of the table's directory, or give it a name that starts with an underscore"
_WAIT = "nothing needs to be done"

_DAMAGES = (
    # directories
    ("directory-name", "names are base_N or [delete_]delta_X_Y[_S], padded, on Hive 4 with _vM", _MOVE),
    (
        "unknown-id",
        "write ids in names were given out by the metastore",
        "move the directory away: its rows would appear as soon as that id is given out and committed",
    ),
    (
        "unknown-compaction",
        "transactions in names (_vM) were opened by the metastore",
        "move the directory away: it would hide others as soon as that transaction commits",
    ),
    (
        "overlapping-deltas",
        "the ranges of two deltas lie apart or one within the other",
        "find out which of them a compaction made, and move the other one away: Hive reads both",
    ),
    ("directory", "Hive can tell which directories to read", "see what was found"),
    ("base-marker", "_metadata_acid says that the base was compacted", _RESTORE),
    ("acid-version-file", "_orc_acid_version holds the layout's version", "write the expected bytes into it"),
    ("nested-directory", "a base or delta holds files only", _MOVE),
    ("file-name", "files of a base or delta are named bucket_NNNNN, on Hive 4 with an attempt", _MOVE),
    (
        "bucket-twice",
        "a bucket has one file in each base or delta",
        "find out which attempt was committed (compare rows with the source), and move the other file away",
    ),
    (
        "side-file",
        "the length in bucket_N_flush_length is that of a part of the file",
        "if the writer is gone, remove the side file; rows behind the recorded length were never committed",
    ),
    ("plain-file", "files of plain rows lie alone in a base or a delta of one id", _MOVE),
    (
        "unregistered-partition",
        "the metastore knows every partition directory that holds committed rows",
        "add the partition (ALTER TABLE … ADD PARTITION) if its rows belong to the table, or move it away",
    ),
    # one file
    ("unreadable", "every value of every stripe can be read", _RESTORE),
    ("empty-file", "files in a base or delta are not empty", _RESTORE),
    ("row-count", "footer, stripes and data have the same number of rows", _RESTORE),
    (
        "codec",
        "the table's Hive knows the compression",
        "write the rows again with zlib, or read the table with Hive 4",
    ),
    ("event-fields", "a file holds the fields of an event, in Hive's names, types and order", _REWRITE),
    ("column-names", "columns are spelled as in the table, in lower case", _REWRITE),
    ("column-type", "values can be read as the table's type", "see what was found; ALTER TABLE may help"),
    ("key-index", "hive.acid.key.index holds the last ROW__ID of each stripe", _REWRITE),
    ("acid-stats", "hive.acid.stats counts inserts, updates and deletes", _REWRITE),
    ("acid-version", "hive.acid.version is the layout's version", _REWRITE),
    ("orc-statistics", "ranges, counts and nulls that ORC records hold for the values", _REWRITE),
    (
        "row-index",
        "the positions of row groups in ORC's index lead to where their values lie",
        "a query with a condition fails or shows other values: set hive.optimize.index.filter=false until "
        "the rows are written again",
    ),
    # events
    ("event-null", "no field of an event is null", _REWRITE),
    ("operation", "a delta holds inserts, a delete delta deletes, a base no deletes", _REWRITE),
    ("row-missing", "inserts and updates have a row", _REWRITE),
    ("order", "events are sorted by ROW__ID, the newest of a row first", _REWRITE),
    (
        "key-twice",
        "no two rows have one ROW__ID",
        "copy the rows to a new table: an update or delete of one of them takes both",
    ),
    ("id-range", "ids of events lie within the range of their directory", _REWRITE),
    ("original-id", "an insert's ROW__ID has the id that wrote it", _REWRITE),
    ("row-number", "row ids are not negative", _REWRITE),
    ("bucket-field", "buckets in ROW__IDs are encoded as Hive does it", _REWRITE),
    ("bucket-file", "the bucket in a ROW__ID is that of the file", _REWRITE),
    ("statement", "the statement in a new row's ROW__ID is that of the delta", _REWRITE),
    (
        "bucket-count",
        "buckets are below the table's number of buckets, or Hive 3 and 4 read them nevertheless",
        "if the table had more buckets once, set their number back by ALTER TABLE … CLUSTERED BY; if the "
        "file was added by hand, copy the rows to a new table",
    ),
    (
        "bucket-hash",
        "rows lie in the bucket that their values hash to",
        "the file was added by hand, or another program than Hive altered the table: copy the rows to a new "
        "table; until then read all buckets (prune_buckets=False)",
    ),
    ("early-delete", "a delete has a higher id than the row's insert", _REWRITE),
    # the files of a bucket
    (
        "delete-hits-nothing",
        "every delete and update is of a row that is there",
        "a base or delta of this partition is missing, or a delete was written for another table: restore "
        "what is missing",
    ),
    (
        "deleted-twice",
        "a row is deleted once",
        "let Hive compact the partition (major) by its row reader: the vectorised readers lose other deletes",
    ),
    ("read", "a reader can merge the bucket's files", "see what was found"),
    # the metastore
    (
        "row-statistics",
        "numRows is the number of rows where the metastore calls it accurate",
        "ANALYZE TABLE … COMPUTE STATISTICS: count(*) is answered from it",
    ),
    (
        "column-statistics",
        "least and greatest value, nulls and truths are those of a column where the metastore calls them "
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
        "rows lie elsewhere than they hash to, as Hive 3.1 itself places some, and ALTER TABLE leaves them",
        "nothing needs to be done for Hive and this library, which find them; Trino refuses such a table, or "
        "misses rows: for Trino copy the rows to a new table",
    ),
    (
        "key-twice-old",
        "rows of one transaction share ROW__IDs, as Hive 2.3's MERGE writes some",
        "let Hive compact the table before you change such a row: a change takes both",
    ),
    (
        "key-index-of-deletes",
        "a delete delta has another hive.acid.key.index than Hive writes, as those of Trino have",
        "nothing needs to be done: Hive and this library read its deletes without that entry. Do not remove "
        "the directory: deleted rows would come back",
    ),
    ("missing-partition", "a partition's directory is missing: it has no rows", _WAIT),
    (
        "statistics-unchecked",
        "statistics were not compared: the table changed meanwhile, or cannot be read",
        _WAIT,
    ),
    (
        "column-statistics-plan",
        "statistics of a column are called accurate and are not, but this Hive answers no query from them",
        "ANALYZE TABLE … COMPUTE STATISTICS FOR COLUMNS, for better plans; Hive 4's own INSERT spoils the "
        "range of decimals",
    ),
    (
        "not-read-here",
        "a file holds values that Hive reads and this library cannot: it was examined up to them",
        "leave that column out of what you read here, or let Hive write the rows again",
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
    """A rule of :data:`~RULES` that is broken.

    Attributes:
        rule_name: key of the rule.
        partition: escaped name of the partition, '' for none.
        location: the file or directory.
        found: what is there.
        expected: what should be there.
        row: position in the file of the first row concerned, from 0; None if it is not about rows.
        row_id: its ROW__ID: id, bucket field, row id.
        count: number of rows (or of places) concerned.
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
        """The broken rule."""
        return RULES[self.rule_name]

    @property
    def is_damage(self) -> bool:
        """Whether a reader fails, or rows are lost, doubled or wrong."""
        return self.rule.severity is Severity.DAMAGE

    def to_json(self) -> dict[str, object]:
        """The finding as one JSON object."""
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
        """One line for people."""
        place = str(self.location)
        if self.row is not None:
            place += f", row {self.row:,}"
        if self.row_id is not None:
            place += f", ROW__ID {','.join(map(str, self.row_id))}"
        more = f" ({self.count:,} rows)" if self.count > 1 else ""
        return f"{self.rule_name}: {place}: found {self.found}; expected {self.expected}{more}"
