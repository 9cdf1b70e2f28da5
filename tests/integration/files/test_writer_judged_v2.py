"""Files of the writer in format 2, read, updated and compacted by real Hive 3.1 and 4.1.

Each test writes what it can into one table and asks much at once: a statement of Hive takes a second or two.
Transactions are made by metastore calls, so that only the files are on trial.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from judges.hive.hive_judges import Hive31, Hive41
from judges.hive.model import HiveRow
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from mutation_api.format.bucket_hash import hash_columns
from mutation_api.format.event import RowIdArrays, bucket_ids, bucket_property
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.format.tail import read_tail
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable, TableRole, WriterOptions
from mutation_api.table.bucket_resolver import BucketIdResolver
from mutation_api.transaction.descriptors import describe
from mutation_api.write.coordinator import MutatorCoordinator
from tests.fixtures.fix_judge import new_database
from tests.fixtures.fix_newest import HIVE_4
from tests.support.golden_hashes import golden_column

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("hive_line", ["3.1", "4.1"], indirect=True),
]

VERSIONS = {
    "3.1": (AcidVersion.V2_HIVE3, AcidVersion.INSERT_ONLY_HIVE3),
    **dict.fromkeys(HIVE_4, (AcidVersion.V2_HIVE4, AcidVersion.INSERT_ONLY_HIVE4)),
}
READERS = {
    "row": {"hive.vectorized.execution.enabled": "false", "hive.fetch.task.conversion": "none"},
    "vector": {"hive.vectorized.execution.enabled": "true", "hive.fetch.task.conversion": "none"},
}
_numbers = itertools.count(1)


class JudgedTable:
    """A table that the judge's SQL made, and transactions of ours on it."""

    def __init__(
        self, judge: Hive31 | Hive41, database: str, columns: str, clauses: str = "", **properties: str
    ):
        self.judge, self.database, self.name = judge, database, f"t{next(_numbers)}"
        self.full_name = f"{database}.{self.name}"
        settings = ", ".join(f"'{k}'='{v}'" for k, v in {"transactional": "true", **properties}.items())
        judge.sql(
            f"CREATE TABLE {self.full_name} ({columns}) {clauses} STORED AS ORC TBLPROPERTIES ({settings})"
        )
        full, insert_only = VERSIONS[judge.line]
        with open_client(judge.uri) as metastore:
            info = metastore.get_table(database, self.name)
        self.version = insert_only if properties.get("transactional_properties") == "insert_only" else full
        self.plain = describe(info, self.version, TableRole.SINK, create_partitions=True, time_zone="UTC")

    def commit(
        self, *changes: Callable[[MutatorCoordinator], None], partitions: Any = (), **options: Any
    ) -> int:
        """One transaction, a coordinator for each change, each with its number; returns the write id."""
        with open_client(self.judge.uri) as metastore:
            bound, publish = self.begin(metastore, partitions)
            for number, change in enumerate(changes):
                settings = {"options": WriterOptions(**options), "insert_bucket_id": number}
                with MutatorCoordinator(bound, **settings) as target:
                    change(target)
                publish(target.close())
            metastore.commit_txn(bound.required_txn_id())
        return bound.required_write_id()

    def begin(
        self, metastore: ThriftMetastoreClient, partitions: Any = ()
    ) -> tuple[AcidTable, Callable[..., None]]:
        """The table bound to a new transaction, and what the committer does with files."""
        txn_id = metastore.open_txn("writer", "localhost", "test")
        if partitions:
            metastore.add_partitions(self.database, self.name, partitions)
        bound = self.plain.bind(txn_id, metastore.allocate_write_id(txn_id, self.database, self.name))

        def publish(manifests: Any) -> None:
            for manifest in manifests:
                target = Path(manifest.target.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                Path(manifest.staged.location.path).rename(target)

        return bound, publish

    def sql(self, text: str, **settings: str) -> list[list[Any]]:
        """A statement; ``TABLE`` stands for the table's name."""
        return self.judge.sql(text.replace("TABLE", self.full_name), settings=settings)

    def ask(self, query: str, **settings: str) -> list[list[Any]]:
        """The answer on which both readers agree."""
        answers = {name: self.sql(query, **reader, **settings) for name, reader in READERS.items()}
        assert answers["row"] == answers["vector"]
        return answers["row"]

    def rows(self, *, row_ids: bool = True) -> list[HiveRow]:
        """All rows, in the order of their first column."""
        found = self.judge.table_rows(self.full_name, row_ids=row_ids)
        return sorted(found, key=lambda row: (row.values[0], row.values))

    def values(self, *, row_ids: bool = True) -> list[list[Any]]:
        """Values of all rows."""
        return [list(row.values) for row in self.rows(row_ids=row_ids)]

    def files(self, pattern: str = "*delta_*/*") -> list[Path]:
        """Paths of the table's files."""
        return sorted(Path(self.plain.location.path).rglob(pattern))


@pytest.fixture(scope="module")
def databases() -> Iterator[dict[str, Any]]:
    """By line: a database for the tables of this module, dropped at its end."""
    made: dict[str, Any] = {}
    yield made
    for context in made.values():
        context[0].__exit__(None, None, None)


@pytest.fixture
def make(hive_line: Hive31 | Hive41, databases: dict[str, Any]) -> Callable[..., JudgedTable]:
    """Make a table on the line that the test is about."""
    if hive_line.line not in databases:
        context = new_database(hive_line)
        databases[hive_line.line] = (context, context.__enter__())
    database = databases[hive_line.line][1]
    return lambda *how, **properties: JudgedTable(hive_line, database, *how, **properties)


def ids_by_bucket(table: AcidTable, count: int) -> dict[int, list[int]]:
    """For each bucket the first ``count`` numbers that the table's hash puts there."""
    numbers = np.arange(count * table.num_buckets * 4)
    buckets = BucketIdResolver(table).resolve(pa.record_batch({"id": numbers})).to_numpy()
    return {bucket: numbers[buckets == bucket][:count].tolist() for bucket in range(table.num_buckets)}


def row_id(write_id: int, bucket: int, number: int) -> tuple[int, int, int]:
    return write_id, bucket_property(bucket), number


EVERY_TYPE = (
    ("id", "bigint"), ("b", "boolean"), ("i1", "tinyint"), ("i2", "smallint"), ("i4", "int"), ("f", "float"),
    ("d", "double"), ("s", "string"), ("v", "varchar(3)"), ("c", "char(4)"), ("y", "binary"),
    ("n", "decimal(20,3)"), ("big", "decimal(38,18)"), ("dt", "date"), ("t", "timestamp"),
    ("a", "array<date>"), ("m", "map<string,timestamp>"), ("st", "struct<x:int,y:array<string>>"),
)  # fmt: skip
WHEN = datetime.datetime(2001, 2, 3, 4, 5, 6, 789)


def full_row(key: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": key, "b": True, "i1": -128, "i2": 32767, "i4": -(2**31), "f": 1.5, "d": -2.25, "s": "äö\u20ac",
        "v": "äbcdef", "c": "ab", "y": b"\x00\xff", "n": decimal.Decimal("-12345678901234567.8905"),
        "big": decimal.Decimal("-99999999999999999999.999999999999999999"), "dt": datetime.date(1500, 3, 1),
        "t": WHEN, "a": [datetime.date(1, 1, 1), None], "m": {"k": WHEN}, "st": {"x": 1, "y": ["p", None]},
        **changes,
    }  # fmt: skip


def shown(value: Any) -> Any:
    """A value as judges print it, nested ones taken apart."""
    return json.loads(value) if isinstance(value, str) and value[:1] in "[{" else value


FULL_ROW_SHOWN = [
    True, -128, 32767, -(2**31), 1.5, -2.25, "äö€", "äbc", "ab  ", "00ff", "-12345678901234567.891",
    "-99999999999999999999.999999999999999999", "1500-03-01", "2001-02-03 04:05:06.000789",
    ["0001-01-01", None], {"k": "2001-02-03 04:05:06.000789"}, {"x": 1, "y": ["p", None]},
]  # fmt: skip


@pytest.mark.long
@pytest.mark.newest
@pytest.mark.feature(
    "all primitive and nested types", "char, varchar, decimal bounds", "dates and timestamps before 1582"
)
def test_every_type_codec_and_encoder(make):
    """Hive shows what was written: nested, null and early values, each codec, both encoders, before and after
    a compaction; updates and deletes of such rows too.
    """
    columns = ", ".join(f"{name} {type_}" for name, type_ in EVERY_TYPE)
    table = make(columns, "CLUSTERED BY (id) INTO 1 BUCKETS")
    early = datetime.datetime(1500, 3, 1, 3, 4, 5, 250_000)
    hollow = {**dict.fromkeys(full_row(1)), "a": [], "m": {}, "st": {"x": None, "y": None}}
    codecs = table.version.compressions
    for number, codec in enumerate(codecs):
        rows = [full_row(10 * number), full_row(10 * number + 1), {**hollow, "id": 10 * number + 2}]
        rows.append({**dict.fromkeys(full_row(1)), "id": 10 * number + 3})
        rows.append(full_row(10 * number + 4, t=early, m={"k": early}))
        parts = [rows[:-1], rows[-1:]] if number % 2 else [rows[:-1]]
        table.commit(
            lambda target, parts=parts: [target.insert([], r) for p in parts for r in p], compression=codec
        )
    marks = {
        read_tail(LocalStorage(), Location.given(path)).is_proleptic
        for path in table.files("delta_*/bucket_*")
    }
    assert marks == {table.version.is_hive_4 or None}, "only Hive 4 wants the mark"

    def second(target: MutatorCoordinator) -> None:
        for number in range(len(codecs)):
            target.delete([], {"ROW__ID": row_id(number + 1, 0, 0)})
            target.update([], {"ROW__ID": row_id(number + 1, 0, 1), **full_row(10 * number + 1, s="new")})

    write_id = table.commit(second)

    def check() -> None:
        found = {row.values[0]: row for row in table.rows()}
        for number in range(len(codecs)):
            first = 10 * number
            assert first not in found
            expected = [shown(value) for value in FULL_ROW_SHOWN]
            expected[6] = "new"
            assert [shown(value) for value in found[first + 1].values[1:]] == expected
            assert found[first + 1].row_id == row_id(write_id, 0, number)
            assert found[first + 3].values[1:] == (None,) * 17
            assert [shown(value) for value in found[first + 2].values[15:]] == [
                [],
                {},
                {"x": None, "y": None},
            ]
            if number % 2:
                assert found[first + 4].values[14] == "1500-03-01 03:04:05.25"
                assert shown(found[first + 4].values[16]) == {"k": "1500-03-01 03:04:05.25"}
        assert len(found) == 3 * len(codecs) + len(codecs) // 2
        count = [[len(codecs) + len(codecs) // 2]]
        assert table.ask("SELECT count(*) FROM TABLE WHERE dt = DATE '1500-03-01'") == count
        assert (
            table.ask("SELECT count(*) FROM TABLE WHERE c = 'ab' AND v = 'äbc' AND n < 0 AND i1 = -128")
            == count
        )

    check()
    table.judge.compact(table.full_name, "major")
    check()


@pytest.mark.long  # of 2.3 by default, in test_writer_judged.py
def test_many_stripes(make):
    """Key index, statistics and row index of files with many stripes: no row is lost or comes back, whether
    Hive reads whole files or parts of them, with predicates, and after both compactions.
    """
    table = make("id bigint, msg string", "CLUSTERED BY (id) INTO 2 BUCKETS", bucketing_version="2")
    assert table.plain.bucketing_version == 2
    count = 20_000
    ids = ids_by_bucket(table.plain, count)
    numbers = np.arange(count)

    def messages(bucket: int) -> list[str]:
        return [f"{i * 2654435761 % 2**32:x}" for i in ids[bucket]]

    def struct(keys: Any, texts: Any) -> pa.StructArray:
        return pa.StructArray.from_arrays([pa.array(keys, pa.int64()), pa.array(texts)], names=["id", "msg"])

    def first(target: MutatorCoordinator) -> None:
        none = RowIdArrays(numbers, numbers, numbers)
        for bucket in (0, 1):
            rows = struct(ids[bucket], messages(bucket))
            target.write_events("", bucket, np.zeros(count, np.int8), none, rows)

    def second(target: MutatorCoordinator) -> None:
        old = numbers[numbers % 3 == 0]
        codes = np.where(old % 2, 2, 1).astype(np.int8)
        for bucket in (0, 1):
            names = RowIdArrays(np.ones_like(old), np.full(len(old), bucket_property(bucket)), old)
            rows = struct([ids[bucket][n] for n in old], ["u"] * len(old))
            for part in (slice(0, 999), slice(999, None)):
                target.write_events("", bucket, codes[part], names.take(part), rows[part])

    table.commit(first, stripe_bytes=1000)
    table.commit(second, stripe_bytes=1000)
    stripes = [len(read_tail(LocalStorage(), Location.given(p)).stripes) for p in table.files()]
    assert sum(each > 2 for each in stripes) >= 4, stripes  # both insert deltas of both transactions
    kept: list[tuple[int, str]] = []
    for bucket in (0, 1):
        texts = messages(bucket)
        kept += [(ids[bucket][n], texts[n] if n % 3 else "u") for n in range(count) if n % 3 or not n % 2]
    keys, shown_texts = zip(*kept, strict=True)
    expected = [len(kept), sum(keys), max(keys), len(set(shown_texts))]
    some = sorted(pair for pair in kept if 4_000 <= pair[0] < 4_030)
    whole = "SELECT count(*), sum(id), max(id), count(DISTINCT msg) FROM TABLE"
    part = "SELECT id, msg FROM TABLE WHERE id >= 4000 AND id < 4030 ORDER BY id"
    pieces = {
        "hive.exec.orc.split.strategy": "ETL", "mapreduce.input.fileinputformat.split.maxsize": "60000",
        "hive.tez.bucket.pruning": "true",
    }  # fmt: skip

    assert table.ask(whole, **pieces) == [expected]
    assert table.ask(part, **pieces) == [list(pair) for pair in some]
    assert table.ask(f"SELECT msg FROM TABLE WHERE id = {some[3][0]}", **pieces) == [[some[3][1]]]
    table.judge.compact(table.full_name, "minor")
    assert table.ask(whole) == [expected]
    table.judge.compact(table.full_name, "major")
    assert table.ask(whole) == [expected]


def changes_of(
    table: JudgedTable, *, updates: dict[int, str] | None = None, deletes: Any = (), inserts: Any = ()
) -> Callable[[MutatorCoordinator], None]:
    """Changes of rows found by their first column, sorted as the coordinator wants them."""
    updates = updates or {}
    found = {row.values[0]: row for row in table.rows()}
    pairs = [(found[key], updates.get(key)) for key in (*updates, *deletes)]
    resolve = BucketIdResolver(table.plain).resolve if table.plain.is_bucketed else None
    groups: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for row, text in sorted(pairs, key=lambda pair: pair[0].row_id or ()):
        bucket = int(bucket_ids(np.array([row.row_id[1]]))[0])
        groups.setdefault((row.partition, bucket), []).append((row.row_id, row.values[0], text))
    for partition, key, text in inserts:
        bucket = resolve(pa.table({"id": [key]}))[0].as_py() if resolve else 0
        groups.setdefault((partition, bucket), []).append((None, key, text))

    def change(target: MutatorCoordinator) -> None:
        for (partition, _), records in groups.items():
            place = [partition.partition("=")[2]] if partition else []
            for identity, key, text in records:
                if identity is None:
                    target.insert(place, {"id": key, "msg": text})
                elif text is None:
                    target.delete(place, {"ROW__ID": identity})
                else:
                    target.update(place, {"ROW__ID": identity, "id": key, "msg": text})

    return change


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("clauses", "partition"),
    [("CLUSTERED BY (id) INTO 2 BUCKETS", ""), ("PARTITIONED BY (ds string)", "ds=a")],
    ids=["bucketed", "unbucketed partitions"],
)
def test_in_turns_with_hives_own_sql(make, clauses, partition):
    """We change Hive's rows and Hive ours, whatever statement, file or compaction they come from."""
    table = make("id bigint, msg string", clauses)
    of_compaction = "ds='a'" if partition else None
    into = f"TABLE PARTITION ({of_compaction})" if partition else "TABLE"
    table.sql(f"INSERT INTO {into} VALUES (1,'h1'),(2,'h2'),(3,'h3'),(4,'h4'),(5,'h5'),(6,'h6')")
    table.sql("UPDATE TABLE SET msg = 'h2u' WHERE id = 2")

    new_rows = [(partition, 10, "w10"), (partition, 11, "w11")]
    changes = [changes_of(table, updates={2: "w2", 3: "w3"}, deletes=[4], inserts=new_rows)]
    expected = {1: "h1", 2: "w2", 3: "w3", 5: "h5", 6: "h6", 10: "w10", 11: "w11"}
    has_writers = not (table.plain.is_bucketed or table.version.wants_one_writer_if_unbucketed)
    if has_writers:
        changes.append(lambda target: target.insert(["a"], {"id": 12, "msg": "w12"}))
        expected[12] = "w12"
    write_id = table.commit(*changes)
    rows = table.rows()
    assert {row.values[0]: row.values[1] for row in rows} == expected
    new = {row.values[0]: row.row_id for row in rows if row.row_id[0] == write_id}
    assert set(new) == {2, 3, 10, 11, 12} & set(expected)
    assert len(set(new.values())) == len(new)
    assert not has_writers or new[12] == row_id(write_id, 1, 0)

    table.sql("UPDATE TABLE SET msg = 'h3u' WHERE msg = 'w3'")
    table.sql("DELETE FROM TABLE WHERE id = 10 OR id = 1")
    expected |= {3: "h3u"}
    del expected[10], expected[1]
    table.judge.compact(table.full_name, "minor", partition=of_compaction)
    assert dict(table.values()) == expected

    new_rows = [(partition, 20, "w20")]
    table.commit(changes_of(table, updates={3: "w3u", 11: "w11u"}, deletes=[5], inserts=new_rows))
    expected |= {3: "w3u", 11: "w11u", 20: "w20"}
    del expected[5]
    assert dict(table.values()) == expected
    assert table.ask("SELECT count(*), max(msg) FROM TABLE WHERE id > 2") == [
        [sum(key > 2 for key in expected), max(text for key, text in expected.items() if key > 2)]
    ]
    table.judge.compact(table.full_name, "major", partition=of_compaction)
    assert dict(table.values()) == expected
    table.commit(changes_of(table, updates={20: "last"}, deletes=[key for key in expected if key != 20]))
    assert table.values() == [[20, "last"]]


@pytest.mark.long
@pytest.mark.feature("insert-only tables")
def test_insert_only_tables(make):
    """Plain files in delta directories: read, added to by Hive, counted, compacted; of every type, early days
    too; invisible until the commit.
    """
    columns = ", ".join(f"{name} {type_}" for name, type_ in EVERY_TYPE)
    table = make(columns, "PARTITIONED BY (ds string)", transactional_properties="insert_only")
    early = datetime.datetime(1500, 3, 1, 3, 4, 5, 250_000)
    odd = [full_row(3, t=early, m={"k": early}), full_row(4)]
    table.commit(
        lambda target: [target.insert([place], full_row(n)) for n, place in ((1, "a"), (2, "b"))],
        lambda target: [target.insert(["a"], row) for row in odd],
        partitions=[["a"], ["b"]],
    )
    assert [path.name for path in table.files()] == ["000000_0", "000001_0", "000000_0"]
    with open_client(table.judge.uri) as metastore:
        bound, publish = table.begin(metastore)
        with MutatorCoordinator(bound) as target:
            target.insert(["a"], full_row(5))
        publish(target.close())
        assert len(table.values(row_ids=False)) == 4
        metastore.abort_txn(bound.required_txn_id())
    table.sql(
        "INSERT INTO TABLE PARTITION (ds='a') SELECT "
        + ", ".join("9" if name == "id" else name for name, _ in EVERY_TYPE)
        + " FROM TABLE WHERE id = 1"
    )

    def check() -> None:
        found = {row[0]: [shown(value) for value in row[1:]] for row in table.values(row_ids=False)}
        assert set(found) == {1, 2, 3, 4, 9}
        expected = [shown(value) for value in FULL_ROW_SHOWN]
        assert found[1] == found[2] == found[4] == found[9] == expected
        assert found[3][13] == "1500-03-01 03:04:05.25"
        assert table.ask("SELECT count(*), sum(id) FROM TABLE WHERE dt = DATE '1500-03-01'") == [[5, 19]]

    check()
    table.judge.compact(table.full_name, "major", partition="ds='a'")
    check()


@pytest.mark.newest
def test_bucket_hashes(hive_line):
    """Every golden value, early dates and timestamps, both versions: our hash is that of Hive itself."""
    golden = Path(__file__).parents[2] / "golden" / "bucket_hash"
    cases: dict[tuple[str, ...], list[list[Any]]] = {}
    for line in (golden / "bucket_hash_v1.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        cases.setdefault(tuple(row["types"]), []).append(row["values"])
    moments = ["0001-01-01 00:00:00", "1500-02-28 01:02:03.5", "1582-10-04 23:59:59", "1582-10-15 00:00:00"]
    cases["date",] += [[moment[:10]] for moment in moments]
    cases["timestamp",] += [[moment] for moment in moments]
    cases["map<int,date>",] = [[[[1, moment[:10]]]] for moment in moments]
    compared = 0
    for types, rows in cases.items():
        parsed = [parse_hive_type(text) for text in types]
        columns = [golden_column([row[i] for row in rows], kind) for i, kind in enumerate(parsed)]
        for version in (1, 2):
            if version == 2 and any(kind.contains("binary") for kind in parsed):
                continue
            found = hash_columns(columns, parsed, version, "UTC", hybrid_dates=False)
            assert found.tolist() == hive_line.hash(types, rows, version=version), (types, version)
            compared += len(rows)
    assert compared > 400


@pytest.mark.long
def test_unions(make):
    """Rows of deletes are not NULL in a table with a union; Hive looks at the operation only."""
    table = make("id bigint, u uniontype<int,string>", "CLUSTERED BY (id) INTO 1 BUCKETS")

    def first(target: MutatorCoordinator) -> None:
        for number, value in enumerate([(0, 5), (1, "x"), None, (1, "y")]):
            target.insert([], {"id": number, "u": value})

    def second(target: MutatorCoordinator) -> None:
        target.delete([], {"ROW__ID": row_id(1, 0, 0)})
        target.update([], {"ROW__ID": row_id(1, 0, 1), "id": 1, "u": (1, "z")})
        target.delete([], {"ROW__ID": row_id(1, 0, 3)})
        target.insert([], {"id": 9, "u": (0, 7)})

    table.commit(first)
    table.commit(second)
    found = table.ask("SELECT id, u FROM TABLE WHERE id <> 2 ORDER BY id")
    assert found == [[1, '{1:"z"}'], [9, "{0:7}"]]
    assert table.ask("SELECT count(*) FROM TABLE WHERE id > 0") == [[3]]
