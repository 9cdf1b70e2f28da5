"""Verify has a finding for every file that Hive's own reader fails on, and none for sound ones."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from judges.errors import HiveError
from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import open_client
from mutation_api import connect
from mutation_api.upkeep.verify.verify import VerifyReport, verify_table
from tests.fixtures.fix_judge import LINES
from tests.fuzz.orc_cases import FILE_DAMAGES, WIDE_COLUMNS, wide_rows

pytestmark = pytest.mark.slow

KINDS = tuple(kind for kind in FILE_DAMAGES if kind not in ("orc-bomb", "orc-deep-types"))
"""Bombs and types nested without end are refused by us and would end Hive's JVM, which others need."""
CASES = {"2.3": 160, "3.1": 160, "4.1": 480, "4.2": 160}
"""Damaged files. Hive is asked about those that verify takes for sound, which are a fourth of them."""
DEFAULT_CASES = 40
PROVEN = 10
"""Files that verify finds damaged about which Hive is asked, too: it must fail on most, or proves nothing."""
OURS, HIVES = 0, 1
"""Partitions with the sound files, by who wrote them."""


@dataclasses.dataclass(frozen=True)
class Damaged:
    """A partition with a damaged copy of a file."""

    number: int
    kind: str
    writer: int

    def __str__(self) -> str:
        who = "ours" if self.writer == OURS else "Hive's"
        return f"partition {self.number}: {self.kind} by seed {self.number}, of a file of {who}"


def _fill(judge: HiveJudge, name: str) -> Path:
    """A table with sound files of both writers; returns its directory."""
    judge.sql(
        f"create table {name} ({WIDE_COLUMNS}) partitioned by (n int) clustered by (l) into 1 buckets "
        "stored as orc tblproperties ('transactional'='true', 'transactional_properties'='default', "
        "'orc.row.index.stride'='1000')"
    )
    rows = wide_rows()
    with connect(judge.uri) as hive, hive.transaction(name, create_partitions=True) as tx:
        tx.table(name).append(rows.append_column("n", pa.array([OURS] * len(rows), pa.int32())))
    names = ", ".join(rows.schema.names)
    judge.sql(f"insert into {name} partition (n={HIVES}) select {names} from {name} where n = {OURS}")
    with open_client(judge.uri) as metastore:
        location = metastore.get_table(*name.split(".")).location
    return Path(location.removeprefix("file:"))


def _damage(folder: Path, number: int) -> Damaged:
    """Add the directory of a partition with one damaged file."""
    rng = random.Random(number)
    found = Damaged(number, KINDS[number % len(KINDS)], rng.choice((OURS, HIVES)))
    copy = folder / f"n={number}"
    shutil.copytree(folder / f"n={found.writer}", copy)
    (file,) = copy.glob("*/bucket_*")
    before = after = file.read_bytes()
    while after == before:
        after = FILE_DAMAGES[found.kind](rng, before)
    file.write_bytes(after)
    return found


READERS = {
    "row": "select * from {name} where n = {number}",
    "pushed": "select * from {name} where n = {number} and l between 13000 and 14000",
    "vector": "select * from {name} where n = {number}",
}
SETTINGS = {
    "row": {"hive.fetch.task.conversion": "more"},
    "pushed": {"hive.fetch.task.conversion": "more", "hive.optimize.index.filter": "true"},
    "vector": {"hive.fetch.task.conversion": "none", "hive.vectorized.execution.enabled": "true"},
}


def _why_not_read(judge: HiveJudge, name: str, case: Damaged, readers: Sequence[str]) -> str:
    """What one of Hive's readers says of a partition that it cannot read; '' if all can."""
    for reader in readers:
        try:
            judge.sql(READERS[reader].format(name=name, number=case.number), settings=SETTINGS[reader])
        except HiveError as error:
            return f"{reader}: {str(error)[:300]}"
    return ""


def _damaged_partitions(report: VerifyReport) -> set[str]:
    return {finding.partition for finding in report.findings if finding.is_damage}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_what_hive_cannot_read_is_found(
    hive_line: HiveJudge, line_database: str, request: pytest.FixtureRequest
) -> None:
    """By the row reader, with a condition that skips groups of rows, and by the vectorised reader."""
    name = f"{line_database}.t"
    folder = _fill(hive_line, name)
    is_long = request.config.getoption("--long")
    count = CASES[hive_line.line[:3]] if is_long else DEFAULT_CASES
    with open_client(hive_line.uri) as metastore:
        assert verify_table(metastore, name).findings == ()
        cases = [_damage(folder, number) for number in range(HIVES + 1, HIVES + 1 + count)]
        metastore.add_partitions(*name.split("."), [[str(case.number)] for case in cases])
        found = _damaged_partitions(verify_table(metastore, name))
    assert not {f"n={OURS}", f"n={HIVES}"} & found
    unseen = [case for case in cases if f"n={case.number}" not in found]
    missed = [
        f"{case}: {why}" for case in unseen if (why := _why_not_read(hive_line, name, case, [*READERS]))
    ]
    assert not missed, "\n\n".join(missed)
    plain = [case for case in cases if case not in unseen and case.kind in ("orc-footer", "orc-place")]
    proven = plain[:PROVEN]
    assert sum(bool(_why_not_read(hive_line, name, case, ["row"])) for case in proven) > len(proven) / 2


@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_sums_of_large_decimals_are_sound(hive_line: HiveJudge, line_database: str) -> None:
    """Hive 3.1 records wrong sums of them, which no reader uses."""
    name = f"{line_database}.sums"
    hive_line.sql(
        f"create table {name} (id bigint, a decimal(18,6), b decimal(38,10), c decimal(9,2)) "
        "clustered by (id) into 1 buckets stored as orc tblproperties ('transactional'='true')"
    )
    small, wide = "999999999999.999998", "9999999999999999999999999999.9999999998"
    for start, sign in enumerate(("", "-", "-", "-", "")):
        rows = ", ".join(f"({start * 10 + n}, {sign}{small}, {sign}{wide}, {sign}0.0{n})" for n in range(5))
        hive_line.sql(f"insert into {name} values {rows}")
    hive_line.compact(name, "major")
    with open_client(hive_line.uri) as metastore:
        report = verify_table(metastore, name)
    assert "orc-statistics" not in {each.rule_name for each in report.findings}
    assert report.is_sound
