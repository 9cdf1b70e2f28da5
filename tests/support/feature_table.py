"""The tables *Hive line x feature* of docs/compatibility.md: made of what tests say, when they have passed.

A test says with ``@pytest.mark.feature("…")`` what it proves; ``fix_features`` collects and compares. A test
that was left out, as ``long`` ones are by default, still says what it would prove. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from judges.sparks import SPARKS

LINES = ("2.3", "3.1", "4.1", "4.2")


def spark_row(version: str) -> str:
    """The row of a version of pyspark."""
    return f"Spark's jobs by pyspark {version}"


TABLES = (
    "bucketed tables",
    "tables without buckets",
    "partitions",
    "insert-only tables",
    "tables with `transactional_properties=legacy`",
    "inserts, updates, deletes read by SQL, row by row and vectorised",
    "SQL's UPDATE, DELETE and MERGE over the library's rows, and the reverse",
    "merges by key, compared with SQL's MERGE",
    "minor and major compaction of written files",
    "`count(*)`, min and max right after a commit",
    "column statistics with the commit",
    "point lookups by bucket key",
    "rows from before the table was transactional, LOAD DATA",
    "data of Hive 2 not yet compacted",
    "columns added later",
    "columns whose type was altered",
    "tables whose buckets were altered",
    "NOT NULL and CHECK constraints, DEFAULT",
    "materialized views over written tables",
    "all primitive and nested types",
    "char, varchar, decimal bounds",
    "dates and timestamps before 1582",
    "`timestamp with local time zone`",
    "snapshots with ROW__ID",
    "writers wait for each other",
    "optimistic writers: first to commit wins",
    "no leftovers after an abort or a crash",
    "file notifications for replication",
    "replication by REPL DUMP and REPL LOAD",
    "replication targets",
    "creating tables",
    "verify",
    "reading the past",
    "history of a table",
    "explaining transactions",
    "incremental update from a database",
    "requesting compactions and waiting for them",
    "compactions by this library",
    "compactions by this library without the queue",
    "files from before a compaction come back",
    "erasure with a search of all files",
    "Trino beside Hive: reads and writes",
    "metastore behind TLS",
    "metastore behind HTTPS",
    "metastore with user and password",
)

GROUPS: Mapping[str, tuple[str, ...]] = {
    "features": TABLES,
    "storage": ("HDFS", "HDFS with Kerberos", "HDFS HA", "S3"),
    "spark": tuple(map(spark_row, SPARKS)),
}
"""The rows of each table, in order, by the name in its marks."""

FEATURES = tuple(name for names in GROUPS.values() for name in names)
"""All rows; a mark with another name is an error."""

NOT_TESTED = "–"

Cells = Mapping[tuple[str, str], str]
"""(feature, line) -> what the table says there."""


@dataclass(frozen=True)
class Claim:
    """What one test says of one feature on one line: the text of that cell."""

    feature: str
    line: str
    text: str

    def __post_init__(self) -> None:
        """Refuse names that the table does not have."""
        if self.feature not in FEATURES or self.line not in LINES:
            raise ValueError(f"no row or column of the feature tables: {self.feature!r} on {self.line!r}")

    @property
    def cell(self) -> tuple[str, str]:
        """Where it stands in the table."""
        return (self.feature, self.line)


class Outcome(TypedDict):
    """What came of one test, in values that JSON knows; claims are those of `Claim`, in its order."""

    claims: list[list[str]]
    state: Literal["passed", "failed", "left out"]


def remembered(
    earlier: Mapping[str, Outcome], now: Mapping[str, Outcome], *, is_whole_run: bool
) -> dict[str, Outcome]:
    """The outcomes by test, as known after a run.

    A whole run replaces what was known of all tests that ran; a run of some adds to it. A test that was left
    out keeps the outcome of an earlier run in which it claimed the same.
    """
    known = {name: outcome for name, outcome in earlier.items() if name in now or not is_whole_run}
    for name, outcome in now.items():
        is_known = name in known and known[name]["claims"] == outcome["claims"]
        if outcome["state"] != "left out" or not is_known:
            known[name] = outcome
    return known


def claimed(outcomes: Mapping[str, Outcome], *states: str) -> Iterator[Claim]:
    """What the tests with one of these states claim."""
    for outcome in outcomes.values():
        if outcome["state"] in states:
            yield from (Claim(*claim) for claim in outcome["claims"])


def shown(outcomes: Mapping[str, Outcome], page: Cells) -> dict[tuple[str, str], str]:
    """What the tables may show: what passed, and what stands there if tests left out say it, too."""
    left_out = [claim for claim in claimed(outcomes, "left out") if page.get(claim.cell) == claim.text]
    return cells([*claimed(outcomes, "passed"), *left_out])


def cells(claims: Iterable[Claim]) -> dict[tuple[str, str], str]:
    """What tests say together.

    Raises:
        ValueError: two of them contradict each other.
    """
    found: dict[tuple[str, str], str] = {}
    for claim in claims:
        if found.setdefault(claim.cell, claim.text) != claim.text:
            raise ValueError(f"{claim.cell}: one test says {found[claim.cell]!r}, another {claim.text!r}")
    return found


def marks(group: str) -> tuple[str, str]:
    """The comments between which a table stands."""
    return f"<!-- {group}: begin -->", f"<!-- {group}: end -->"


def table(group: str, known: Cells) -> str:
    """A table as Markdown, between its marks; features without any test are left out."""
    rows = [[f, *(known.get((f, line), NOT_TESTED) for line in LINES)] for f in GROUPS[group]]
    head = ["", *(f"Hive {line}" for line in LINES)]
    lines = [head, ["---"] * len(head), *(row for row in rows if set(row[1:]) != {NOT_TESTED})]
    begin, end = marks(group)
    return "\n".join([begin, *(f"| {' | '.join(line)} |" for line in lines), end])


def replaced(page: str, known: Cells) -> str:
    """The page with other tables in the places of its own. Raises ValueError if marks are missing."""
    for group in GROUPS:
        begin, end = marks(group)
        before, mark, rest = page.partition(begin)
        _, last, after = rest.partition(end)
        if not mark or not last:
            raise ValueError(f"the page has no {begin} … {end}")
        page = f"{before}{table(group, known)}{after}"
    return page


def in_page(page: str) -> dict[tuple[str, str], str]:
    """The cells of the page's tables, those that say something."""
    found: dict[tuple[str, str], str] = {}
    for group in GROUPS:
        begin, end = marks(group)
        found |= _cells_of(page.partition(begin)[2].partition(end)[0])
    return found


def _cells_of(inside: str) -> dict[tuple[str, str], str]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in inside.strip().splitlines()]
    lines = [name.removeprefix("Hive ") for name in rows[0][1:]] if rows[1:] else []  # it may lack a new one
    return {
        (row[0], line): cell
        for row in rows[2:]
        for line, cell in zip(lines, row[1:], strict=True)
        if cell != NOT_TESTED
    }


def differences(page: Cells, proven: Cells) -> Sequence[str]:
    """Where the page says something else than the tests."""
    return [
        f"{feature} on Hive {line}: page {page.get((feature, line), NOT_TESTED)!r}, "
        f"tests {proven.get((feature, line), NOT_TESTED)!r}"
        for feature, line in sorted(page.keys() | proven.keys())
        if page.get((feature, line)) != proven.get((feature, line))
    ]
