"""Our snapshot reader against Hive 2.3.10's own directory choice and row reader."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from judges.errors import HiveError
from judges.hive.hive_judges import Hive23
from metastore_client.valid_ids import ValidTxnList
from mutation_api.errors import DirectoryStateError
from mutation_api.format.directory_state import choose_directories
from mutation_api.format.json_values import to_json
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.read.partition_plan import plan_splits
from mutation_api.read.snapshot_reader import read_split
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from tests.fixtures.fix_judge import new_database
from tests.support.acid_files import Event, write_events
from tests.support.directory_cases import random_directories, random_snapshot
from tests.support.keyed_rows import check_keyed_rows

pytestmark = pytest.mark.slow

DIRECTORY_CASES = 150
ALL = ValidTxnList.everything()
V1 = AcidVersion.V1_LEGACY


@pytest.mark.long
@pytest.mark.parametrize("seed", [1])
def test_directories_are_chosen_as_hive_chooses(hive: Hive23, tmp_path: Path, seed: int) -> None:
    """Base, deltas in order and what is obsolete, or "not enough history", on random directories."""
    rng = random.Random(seed)
    refused = 0
    for case in range(DIRECTORY_CASES):
        names, valid = random_directories(rng), random_snapshot(rng)
        folder = tmp_path / str(case)
        for name in names:
            (folder / name).mkdir(parents=True)
        folder.mkdir(exist_ok=True)
        place = f"seed {seed}, case {case}: {names}, valid {valid.to_text()}"
        try:
            ours = choose_directories(names, {}, valid, version=V1, location=str(folder))
        except DirectoryStateError:
            refused += 1
            with pytest.raises(HiveError, match="Not enough history"):
                hive.acid_state(folder, valid.to_text())
            continue
        theirs = hive.acid_state(folder, valid.to_text())
        assert (ours.base.name if ours.base else None) == theirs.base, place
        assert [d.name for d in ours.deltas] == list(theirs.deltas), place
        assert sorted(ours.obsolete) == sorted(theirs.obsolete), place
    assert 0 < refused < DIRECTORY_CASES


def our_rows(directory: Path, columns: list[tuple[str, str]]) -> list[tuple[Any, ...]]:
    table = AcidTable(
        database="d",
        name="t",
        location=Location.given(directory),
        columns=tuple(AcidColumn(*c) for c in columns),
        partition_keys=(),
        num_buckets=1,
        bucket_columns=(columns[0][0],),
        version=V1,
    )
    rows: list[tuple[Any, ...]] = []
    for split in plan_splits(table, "", table.location, ALL):
        check_keyed_rows(table, split, ALL, ReadOptions(TimestampForm.MICROSECONDS))
        for batch in read_split(table, split, ALL, options=ReadOptions(TimestampForm.TEXT)):
            ids = [tuple(row_id.values()) for row_id in batch.column(0).to_pylist()]
            values = [to_json(batch.column(n)) for n, _ in columns]
            rows += zip(ids, *values, strict=True)
    return rows


def test_changed_column_types_are_read_as_hive_reads_them(hive: Hive23, tmp_path: Path) -> None:
    """A column whose type changed after the file was written: widened, narrowed, cut, rounded.

    Hive prints char padded; it is compared without blanks.
    """
    cases: list[tuple[pa.DataType, str, list[Any]]] = [
        (pa.int32(), "bigint", [1, -1, 2**31 - 1, None]),
        (pa.int64(), "int", [1, 2**31, -(2**40), None]),
        (pa.int32(), "double", [1, -5, 2**31 - 1, None]),
        (pa.int32(), "decimal(5,2)", [1, 999, 1000, None]),
        (pa.float32(), "double", [0.1, -0.25, 3.3e30, None]),
        (pa.string(), "char(3)", ["a", "abcd", "", None]),
        (pa.string(), "varchar(2)", ["a", "日本語", "", None]),
        (pa.decimal128(10, 3), "decimal(4,1)", ["1.250", "-1.250", "99999.000", None]),
        (pa.int32(), "string", [1, -7, 0, None]),
    ]
    fields = [(f"c{n}", case[0]) for n, case in enumerate(cases)]
    columns = [(f"c{n}", case[1]) for n, case in enumerate(cases)]
    events: list[Event] = []
    for row in range(4):
        values = {
            name: pa.scalar(case[2][row]).cast(case[0]).as_py() if case[2][row] is not None else None
            for (name, _), case in zip(fields, cases, strict=True)
        }
        events.append((0, 1, 0, row, 1, values))
    write_events(tmp_path / "delta_0000001_0000001/bucket_00000", events, pa.struct(fields))
    theirs = [
        (
            row.row_id,
            *(
                value.rstrip(" ") if value and kind.startswith("char(") else value
                for value, (_, kind) in zip(row.values, columns, strict=True)
            ),
        )
        for row in hive.read(tmp_path, columns, mode="row")
    ]
    assert our_rows(tmp_path, columns) == theirs


def test_random_updates_merge_as_hive_merges(hive: Hive23, tmp_path: Path) -> None:
    """Updates of random rows in several transactions, over stripes of a few rows."""
    rng = random.Random(7)
    events: dict[int, list[Event]] = {1: [(0, 1, 0, n, 1, row(rng, n)) for n in range(400)]}
    for txn in (2, 3, 4):
        changed = sorted(rng.sample(range(400), 60))
        events[txn] = [(1, 1, 0, n, txn, row(rng, n)) for n in changed]
        events[txn] += [(0, txn, 0, n, txn, row(rng, n)) for n in range(20)]
    for txn, found in events.items():
        write_events(tmp_path / f"delta_{txn:07d}_{txn:07d}/bucket_00000", found)
    assert pa.orc.ORCFile(str(tmp_path / "delta_0000001_0000001/bucket_00000")).nstripes > 3
    columns = [("id", "bigint"), ("msg", "string")]
    theirs = [(r.row_id, *r.values) for r in hive.read(tmp_path, columns, mode="row")]
    assert our_rows(tmp_path, columns) == theirs


def row(rng: random.Random, id_: int) -> dict[str, Any]:
    return {"id": id_, "msg": f"{rng.getrandbits(2000):x}"}


@pytest.mark.parametrize(("properties", "found"), [("", [0, 1, 1, 2]), ("default", [0, 1, 2])])
def test_hive_doubles_rows_of_a_bucket_without_a_base_file(
    hive: Hive23, properties: str, found: list[int]
) -> None:
    """With its own SQL alone, in the legacy layout, where it reads by stripes (the split strategy ETL): what
    lies in the deltas of a bucket is read once for each other bucket's file in the base.
    """
    more = f", 'transactional_properties'='{properties}'" if properties else ""
    with new_database(hive) as database:
        name = f"{database}.t"
        hive.sql(f"CREATE TABLE {name} (id int) CLUSTERED BY (id) INTO 3 BUCKETS STORED AS ORC")
        hive.sql(f"INSERT INTO {name} VALUES (0), (2)")
        hive.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('transactional'='true'{more})")
        hive.sql(f"INSERT INTO {name} VALUES (1)")

        def ids(strategy: str) -> list[int]:
            settings = {"hive.exec.orc.split.strategy": strategy}
            return sorted(id_ for (id_,) in hive.sql(f"SELECT id FROM {name}", settings=settings))

        assert (ids("BI"), ids("ETL")) == ([0, 1, 2], found)
        hive.compact(name, "major")
        assert ids("ETL") == [0, 1, 2]
