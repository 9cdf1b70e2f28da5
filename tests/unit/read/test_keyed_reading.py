"""read_split with keys: the filtered rows of the whole split, and how little is read for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_client.valid_ids import ValidIdList, ValidTxnList, ValidWriteIdList
from mutation_api.errors import RecordLayoutError
from mutation_api.format.event import bucket_property
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.read.partition_plan import plan_splits
from mutation_api.read.snapshot_reader import read_split
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from tests.support.acid_files import Event, write_events, write_orc
from tests.support.keyed_rows import plain

NAN = float("nan")
INSERT, UPDATE, DELETE = 0, 1, 2
COLUMNS = {"id": "bigint", "msg": "string", "part": "double", "n": "int"}
ROW = pa.struct([("id", pa.int64()), ("msg", pa.string()), ("part", pa.float64()), ("n", pa.int32())])
TXNS = 5
FILLER = "x" * 700
"""Long texts make many stripes of few rows."""


def table_at(path: Path, version: AcidVersion, columns: dict[str, str] | None = None) -> AcidTable:
    return AcidTable(
        database="d",
        name="t",
        location=Location.given(path),
        columns=tuple(AcidColumn(*c) for c in (columns or COLUMNS).items()),
        partition_keys=(),
        num_buckets=1,
        bucket_columns=("id",),
        version=version,
        bucketing_version=2 if version.uses_write_ids else 1,
    )


def everything(version: AcidVersion) -> ValidIdList:
    return ValidWriteIdList(2**63 - 1) if version.uses_write_ids else ValidTxnList.everything()


def read(
    table: AcidTable,
    valid: ValidIdList,
    columns: list[str] | None = None,
    only: KeyFilter | None = None,
    batch_rows: int = 64,
) -> Iterator[dict[str, Any]]:
    options = ReadOptions(TimestampForm.MICROSECONDS, batch_rows=batch_rows)
    for split in plan_splits(table, "", table.location, valid, ValidTxnList.everything()):
        for batch in read_split(table, split, valid, columns, table.version.has_row_ids, options, only):
            assert 0 < batch.num_rows <= batch_rows
            yield from batch.to_pylist()


def random_row(rng: random.Random) -> dict[str, Any]:
    return {
        "id": rng.choice([None, *range(40)]),
        "msg": f"{rng.randrange(10)}{FILLER if rng.random() < 0.3 else ''}",
        "part": rng.choice([0.0, -0.0, NAN, 1.5, None]),
        "n": rng.randrange(100),
    }


class RandomTable:
    """Files of one bucket: a base or an original file, then deltas with updates that change keys."""

    def __init__(self, rng: random.Random, folder: Path, version: AcidVersion) -> None:
        self.rng, self.folder, self.version = rng, folder, version
        self.bucket = bucket_property(0) if version.encodes_buckets else 0
        self.live: list[tuple[int, int, int]] = []
        self._first_file()
        for txn in range(2, TXNS):
            self._delta(txn)

    def _rows(self, count: int) -> list[dict[str, Any]]:
        return [random_row(self.rng) for _ in range(count)]

    def _first_file(self) -> None:
        rows = self._rows(self.rng.choice([1, 100, 400]))
        kind = self.rng.choice(["base", "original", "delta"])
        txn = 0 if kind == "original" else 1
        self.live = [(txn, self.bucket, n) for n in range(len(rows))]
        if kind == "original":
            write_orc(self.folder / "000000_0", pa.Table.from_pylist(rows, pa.schema(list(ROW))))
            return
        name = {"base": "base_0000001", "delta": "delta_0000001_0000001"}[kind]
        self._write(name, [(INSERT, *key, txn, row) for key, row in zip(self.live, rows, strict=True)])

    def _delta(self, txn: int) -> None:
        changed = sorted(self.rng.sample(self.live, min(len(self.live), self.rng.choice([0, 5, 60]))))
        deleted = {key for key in changed if self.rng.random() < 0.4}
        new = self._rows(self.rng.choice([0, 3, 150]))
        updates = [key for key in changed if key not in deleted]
        if self.version.splits_updates:
            new += self._rows(len(updates))
            self._write(f"delete_delta_{txn:07d}_{txn:07d}", [(DELETE, *key, txn, None) for key in changed])
            self.live = [key for key in self.live if key not in set(changed)]
            events: list[Event] = []
        else:
            events = [
                (DELETE, *key, txn, None) if key in deleted else (UPDATE, *key, txn, random_row(self.rng))
                for key in changed
            ]
            self.live = [key for key in self.live if key not in deleted]
        keys = [(txn, self.bucket, n) for n in range(len(new))]
        events += [(INSERT, *key, txn, row) for key, row in zip(keys, new, strict=True)]
        self.live += keys
        self._write(f"delta_{txn:07d}_{txn:07d}", events)

    def _write(self, directory: str, events: list[Event]) -> None:
        if events:
            write_events(self.folder / directory / "bucket_00000", events, ROW)


def random_keys(rng: random.Random) -> pa.Table:
    rows = [random_row(rng) for _ in range(rng.choice([0, 1, 4, 40]))]
    names = rng.sample(["id", "part", "n"], rng.randint(1, 2))
    table = pa.Table.from_pylist(rows, pa.schema(list(ROW)))
    return table.select(names)


@pytest.fixture
def stripes_read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, tuple[str, ...]]]:
    """(directory, stripe, columns) of every read of a stripe from now on."""
    found: list[tuple[str, int, tuple[str, ...]]] = []
    read_stripe = OrcInput.read_stripe

    def counted(self: OrcInput, index: int, columns: Any, groups: Any = None) -> pa.RecordBatch:
        found.append((self.location.parent.name, index, tuple(columns)))
        return read_stripe(self, index, columns, groups)

    monkeypatch.setattr(OrcInput, "read_stripe", counted)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("version", [v for v in AcidVersion if v.has_row_ids])
def test_random_tables_give_the_rows_of_the_filtered_whole(tmp_path: Path, version: AcidVersion) -> None:
    """All layouts, updates that change the key, deletes, aborted transactions, NULL and NaN, any columns."""
    rng = random.Random(f"{version}")
    given = 0
    for case in range(40):
        RandomTable(rng, tmp_path / str(case), version)
        table, keys, null_safe = table_at(tmp_path / str(case), version), random_keys(rng), rng.random() < 0.5
        aborted = tuple(sorted(rng.sample(range(2, TXNS), rng.randint(0, 1))))
        valid = ValidWriteIdList(TXNS, aborted) if version.uses_write_ids else ValidTxnList(TXNS, aborted)
        columns = rng.sample(list(COLUMNS), rng.randint(0, len(COLUMNS)))
        wanted = {tuple(map(plain, row.values())) for row in keys.to_pylist()}
        expected = []
        for row in read(table, valid):
            key = tuple(plain(row[name]) for name in keys.column_names)
            if key in wanted and (null_safe or None not in key):
                expected.append({name: row[name] for name in ("ROW__ID", *columns)})
        found = list(read(table, valid, columns, KeyFilter(keys, null_safe), batch_rows=rng.choice([7, 500])))
        assert repr(found) == repr(expected), case
        given += len(found)
    assert given > 500


@pytest.mark.parametrize("version", [AcidVersion.INSERT_ONLY_HIVE3, AcidVersion.INSERT_ONLY_HIVE4])
def test_insert_only_tables(
    tmp_path: Path, version: AcidVersion, stripes_read: list[tuple[str, int, tuple[str, ...]]]
) -> None:
    """No merge, no ROW__IDs; of stripes without a row nothing is read, or the keys alone."""
    rows = [{"id": n % 50, "msg": FILLER, "part": None, "n": n} for n in range(400)]
    write_orc(
        tmp_path / "delta_0000001_0000001_0000/000000_0", pa.Table.from_pylist(rows, pa.schema(list(ROW)))
    )
    only = KeyFilter(pa.table({"id": [3, 60]}))
    found = read(table_at(tmp_path, version), everything(version), ["n", "msg"], only)
    assert list(found) == [{"n": n, "msg": FILLER} for n in range(3, 400, 50)]
    for keys, expected in (([-1], set()), ([-1, 60], set()), ([10.5], {("part",)})):
        stripes_read.clear()
        only = KeyFilter(pa.table({"part" if expected else "id": keys}))
        assert not list(read(table_at(tmp_path, version), everything(version), None, only))
        assert {columns for *_, columns in stripes_read} == expected


def test_a_key_column_that_a_file_does_not_have_is_null(tmp_path: Path) -> None:
    """Added since: its rows are found by NULL, with NULL = NULL only; others by nothing."""
    version = AcidVersion.V2_HIVE4
    events: list[Event] = [(INSERT, 1, bucket_property(0), 0, 1, {"id": 1, "msg": "a", "part": None, "n": 1})]
    write_events(tmp_path / "delta_0000001_0000001_0000/bucket_00000", events, ROW)
    table = table_at(tmp_path, version, {**COLUMNS, "added": "int"})
    keys = pa.table({"added": pa.array([None, 5], pa.int32())})
    (row,) = read(table, everything(version), ["msg", "added"], KeyFilter(keys, null_safe=True))
    assert (row["msg"], row["added"]) == ("a", None)
    assert not list(read(table, everything(version), [], KeyFilter(keys)))


def test_keys_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """A column the table does not have, another type, a name in upper case."""
    version = AcidVersion.V1_LEGACY
    write_events(
        tmp_path / "delta_0000001_0000001/bucket_00000",
        [(INSERT, 1, 0, 0, 1, {"id": 1, "msg": "a", "part": None, "n": 1})],
        ROW,
    )
    table = table_at(tmp_path, version)
    for keys, message in (
        (pa.table({"nope": [1]}), "'nope'"),
        (pa.table({"n": [1]}), "keys n int64 do not fit column n int: pass them as int32"),
        (pa.table({"ID": [1]}), "keys ID int64 do not fit column id bigint"),
    ):
        with pytest.raises(RecordLayoutError, match=message):
            list(read(table, everything(version), [], KeyFilter(keys)))


def numbered(ids: list[int], first: int = 0, txn: int = 1) -> list[Event]:
    return [
        (INSERT, txn, bucket_property(0), first + n, txn, {"id": id_, "msg": FILLER, "part": 0.5, "n": id_})
        for n, id_ in enumerate(ids)
    ]


def test_other_columns_are_read_of_stripes_with_a_row_only(
    tmp_path: Path, stripes_read: list[tuple[str, int, tuple[str, ...]]]
) -> None:
    """One row of many stripes: the key of all of them, the rest of one, and that once."""
    version = AcidVersion.V2_HIVE4
    ids = [n for n in range(400) if n != 201]
    random.Random(1).shuffle(ids)
    write_events(tmp_path / "base_0000001/bucket_00000", numbered(ids), ROW)
    only = KeyFilter(pa.table({"id": [200, 201]}))
    (row,) = read(table_at(tmp_path, version), everything(version), ["id", "n", "msg"], only)
    assert (row["id"], row["msg"]) == (200, FILLER)
    early = [columns for *_, columns in stripes_read if "row.id" in columns]
    late = [columns for *_, columns in stripes_read if "row.id" not in columns]
    assert len(early) > 3
    assert {columns[-1] for columns in early} == {"row.id"}
    assert late == [("row.n", "row.msg")]


def test_stripes_whose_range_has_no_key_are_not_read(
    tmp_path: Path, stripes_read: list[tuple[str, int, tuple[str, ...]]]
) -> None:
    """Of a base and an insert delta; deletes are read whatever is looked for."""
    version = AcidVersion.V2_HIVE4
    write_events(tmp_path / "base_0000001/bucket_00000", numbered(list(range(0, 800, 2))), ROW)
    write_events(
        tmp_path / "delta_0000002_0000002_0000/bucket_00000", numbered(list(range(1000, 1400)), txn=2), ROW
    )
    deletes: list[Event] = [(DELETE, 1, bucket_property(0), n, 3, None) for n in (150, 200)]
    write_events(tmp_path / "delete_delta_0000003_0000003_0000/bucket_00000", deletes, ROW)
    # 401 lies between two values of a stripe, 900 between the files: neither makes a stripe be read twice.
    only = KeyFilter(pa.table({"id": [300, 302, 401, 900, 1399]}))
    found = list(read(table_at(tmp_path, version), everything(version), ["id"], only))
    assert [row["id"] for row in found] == [302, 1399]
    read_of = {
        name.rpartition("_000")[0]: [i for n, i, _ in stripes_read if n == name] for name, *_ in stripes_read
    }
    stripes = {name: len(indices) for name, indices in read_of.items()}
    assert stripes["base"] <= 2
    assert stripes["delta_0000002_0000002"] == 1
    assert stripes["delete_delta_0000003_0000003"] == 1


@pytest.mark.parametrize("version", [AcidVersion.V1_LEGACY, AcidVersion.V2_HIVE4])
def test_rows_behind_stripes_that_are_not_read_keep_their_numbers(
    tmp_path: Path, version: AcidVersion
) -> None:
    """Plain files are numbered through, and deletes go by these numbers."""
    for name, start in (("000000_0", 0), ("000000_0_copy_1", 1000))[: 2 if version.uses_write_ids else 1]:
        rows = [{"id": start + n, "msg": FILLER, "part": None, "n": n} for n in range(300)]
        write_orc(tmp_path / name, pa.Table.from_pylist(rows, pa.schema(list(ROW))))
    kind = "delete_delta" if version.splits_updates else "delta"
    bucket = bucket_property(0) if version.encodes_buckets else 0
    deletes: list[Event] = [(DELETE, 0, bucket, n, 2, None) for n in (298, 598)]
    write_events(tmp_path / f"{kind}_0000002_0000002/bucket_00000", deletes, ROW)
    only = KeyFilter(pa.table({"id": [7, 298, 299, 1298, 1299]}))
    found = read(table_at(tmp_path, version), everything(version), ["id"], only)
    numbers = [(row["ROW__ID"]["rowid"], row["id"]) for row in found]
    assert numbers == [(7, 7), (299, 299), (599, 1299)][: 3 if version.uses_write_ids else 2]


def test_legacy_deltas_are_read_in_full(
    tmp_path: Path, stripes_read: list[tuple[str, int, tuple[str, ...]]]
) -> None:
    """An update to another key removes the old version, though its stripe has none of the keys."""
    version = AcidVersion.V1_LEGACY
    rows = [(INSERT, 1, 0, n, 1, {"id": n, "msg": "a", "part": None, "n": n}) for n in range(10)]
    write_events(tmp_path / "base_0000001/bucket_00000", rows, ROW)
    row = {"id": 1000, "msg": "b", "part": None, "n": 1}
    write_events(tmp_path / "delta_0000002_0000002/bucket_00000", [(UPDATE, 1, 0, 5, 2, row)], ROW)
    only = KeyFilter(pa.table({"id": [5, 6]}))
    found = read(table_at(tmp_path, version), everything(version), ["id"], only)
    assert [row["id"] for row in found] == [6]
    assert [name for name, *_ in stripes_read] == ["base_0000001", "delta_0000002_0000002"]
