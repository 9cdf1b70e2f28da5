"""ingest: rows, history and changes of one source table move together, whatever the cut into runs."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import LocalOptions, connect
from mutation_api.cdc import (
    HEADER_DEFAULT,
    POSITION,
    CanalSource,
    ChangesMapping,
    DebeziumSource,
    HeaderField,
    HistoryMapping,
    IngestReport,
    MaxwellSource,
    TableMapping,
    TungstenSource,
    ingest,
)
from mutation_api.errors import (
    ConfigurationError,
    InputFormatError,
    MutationError,
    RecordValueError,
    SourcePositionError,
)
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.cdc_writers.tungsten import staging_record
from tests.integration.ingests.mortal import Died, Mortal, bury
from tests.support.change_source import Entry, ListSource, moment
from tests.support.history_model import Change, Version, current_rows, versions

pytestmark = pytest.mark.slow

ROWS, HISTORY, CHANGES = "default.orders", "default.orders_history", "default.orders_changes"
COLUMNS = {"id": "bigint", "msg": "string"}
INTERVAL = {"log_position": "string", "valid_from": "timestamp", "valid_to": "timestamp"}
LOGGED = {"operation": "string", "changed_at": "timestamp", "log_position": "string"}
ALL = (
    TableMapping("orders", ROWS, ("id",)),
    HistoryMapping("orders", HISTORY, current="is_last"),
    ChangesMapping("orders", CHANGES),
)


class Warehouse:
    """A metastore in memory with the three tables, and the engine that ingests."""

    def __init__(self, place: Path, engine: dict[str, Any]) -> None:
        self.metastore = InMemoryMetastore(place, capabilities=HIVE_4_1)
        self.engine = engine
        self.create(ROWS, COLUMNS)
        self.create(HISTORY, {**COLUMNS, **INTERVAL, "is_last": "boolean"})
        self.create(CHANGES, {**COLUMNS, **LOGGED})

    def create(self, name: str, columns: dict[str, str]) -> None:
        infos = [ColumnInfo(column, kind) for column, kind in columns.items()]
        create_acid_table(self.metastore, name, infos, clustered_by=["id"], num_buckets=2)

    def ingest(self, log: Sequence[Entry], *mappings: Any, **options: Any) -> IngestReport:
        source = ListSource(log, **{"has_times": True, "key": ("id",), **options.pop("source", {})})
        metastore = options.pop("metastore", self.metastore)
        return ingest(metastore, mappings or ALL, source, **options, **self.engine)

    def read(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        with connect(self.metastore) as hive, hive.snapshot(name) as view:
            found = view.table(name).scan(list(columns) or None).to_arrow().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=repr)

    def check(self, log: Sequence[Entry]) -> None:
        """Compare all three tables with what plain Python makes of the log."""
        changes = changes_of(log)
        rows = current_rows(changes)
        assert self.read(ROWS) == in_order((key, row) for key, row in rows.items())
        found = self.read(HISTORY, "id", "msg", "valid_from", "valid_to", "is_last")
        wanted = versions(changes)
        assert found == in_order(map(stored, wanted))
        assert in_order(each[:2] for each in found if each[4]) == self.read(ROWS)
        listed = [(e.values["id"], e.values.get("msg"), e.operation, moment(e.at)) for e in log]
        assert self.read(CHANGES, "id", "msg", "operation", "changed_at") == in_order(listed)


def stored(version: Version) -> tuple[Any, ...]:
    """A version as a row of the history."""
    last = None if version.last is None else moment(version.last)
    return version.key, version.row, moment(version.first), last, version.last is None


def changes_of(log: Sequence[Entry]) -> list[Change]:
    """The changes of a log."""
    return [Change(e.values["id"], e.at, None if e.operation == "delete" else e.values["msg"]) for e in log]


def in_order(rows: Any) -> list[Any]:
    return sorted(rows, key=repr)


def random_log(seed: int, count: int) -> list[Entry]:
    """Changes of a few keys, some of which change their key; the clock runs, stands and is set back."""
    rng = random.Random(seed)
    log: list[Entry] = []
    alive: set[int] = set()
    at = 1_700_000_000
    for seqno in range(count):
        at += rng.choice([0, 0, 1, 5, -3])
        key, text = rng.randrange(6), f"v{seqno}"
        if key not in alive:
            alive.add(key)
            log.append(Entry(seqno, "orders", "insert", {"id": key, "msg": text}, at))
        elif rng.random() < 0.3:
            alive.remove(key)
            log.append(Entry(seqno, "orders", "delete", {"id": key}, at))
        elif rng.random() < 0.2 and (free := sorted(set(range(6)) - alive)):
            alive ^= {key, free[0]}
            log.append(Entry(seqno, "orders", "delete", {"id": key}, at))
            log.append(Entry(seqno, "orders", "insert", {"id": free[0], "msg": text}, at))
        else:
            log.append(Entry(seqno, "orders", "update", {"id": key, "msg": text}, at))
    return log


@pytest.fixture(params=["local", "spark"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """Empty tables, and each engine."""
    is_local = request.param == "local"
    engine = {"local": LocalOptions()} if is_local else {"spark": request.getfixturevalue("spark")}
    return Warehouse(tmp_path, engine)


@pytest.fixture
def here(tmp_path: Path) -> Warehouse:
    """Empty tables, and this process."""
    return Warehouse(tmp_path, {"local": LocalOptions()})


@pytest.mark.parametrize("seed", [3, *[pytest.param(n, marks=pytest.mark.long) for n in range(4, 10)]])
def test_random_logs_in_random_runs(warehouse: Warehouse, seed: int) -> None:
    """After each run all three tables are those of the log so far; a log read again changes nothing."""
    rng = random.Random(seed)
    log = random_log(seed, 60)
    last = log[-1].seqno
    for end in [*sorted(rng.sample(range(last), 3)), last]:
        seen = [each for each in log if each.seqno <= end]
        warehouse.ingest(seen)
        warehouse.check(seen)
    again = warehouse.ingest(log, source={"source_id": "list:again"})
    (history,), (changes,) = again.histories, again.changes
    assert (history.history.inserted, history.history.updated, history.history.deleted) == (0, 0, 0)
    assert changes.merge.total.inserted == 0 and changes.operation_count == len(log)
    warehouse.check(log)
    assert warehouse.ingest(log).position is None


def log_of(text: str) -> list[Entry]:
    """``1 10 insert 7 seven``: seqno, time, operation, id, msg; a line for each."""
    found = []
    for line in text.strip().splitlines():
        seqno, at, operation, key, *msg = line.split()
        values = {"id": int(key), **({"msg": msg[0]} if msg else {})}
        found.append(Entry(int(seqno), "orders", operation, values, None if at == "-" else int(at)))
    return found


LOG = log_of("1 10 insert 1 a\n2 20 update 1 b\n3 30 delete 1\n4 40 insert 2 c")


def test_a_history_instead_of_rows(here: Warehouse) -> None:
    """The watermark is that of the history; positions in the log can be the points."""
    here.ingest(LOG[:2], HistoryMapping("orders", HISTORY, current="is_last"))
    report = here.ingest(LOG, HistoryMapping("orders", HISTORY, current="is_last"))
    assert (report.tables, report.operation_count, len(report.histories)) == ((), 2, 1)
    versions_found = here.read(HISTORY, "msg", "valid_from", "valid_to", "log_position")
    assert versions_found == in_order(
        [
            ("a", moment(10), moment(20), "a1.a0"),
            ("b", moment(20), moment(30), "a2.a1"),
            (None, moment(30), moment(30), "a3.a2"),
            ("c", moment(40), None, "a4.a3"),
        ]
    )
    values = report.to_dict()
    assert [each["table"] for each in values["histories"]] == [HISTORY]  # type: ignore[index,attr-defined]
    assert f"{HISTORY}           2" in str(report)
    name = "default.positions"
    here.create(name, {**COLUMNS, "valid_from": "string", "valid_to": "string"})
    here.ingest(LOG, HistoryMapping("orders", name, sequence=POSITION), source={"has_times": False})
    assert here.read(name) == in_order(
        [(1, "a", "a1.a0", "a2.a1"), (1, "b", "a2.a1", "a3.a2"), (2, "c", "a4.a3", None)]
    )


def test_a_column_of_the_rows_gives_the_points(here: Warehouse) -> None:
    """A delete has no value in it, and gets the time of the change; without times it can be ignored."""
    name = "default.by_column"
    here.create(name, {"id": "bigint", "msg": "string", **INTERVAL, "since": "timestamp"})
    log = [
        Entry(e.seqno, "orders", e.operation, {**e.values, "since": moment(5 * (e.at or 0))}, e.at)
        for e in LOG
    ]
    log[2] = Entry(3, "orders", "delete", {"id": 1}, 900)
    mapping = HistoryMapping("orders", name, sequence="Since")
    here.ingest(log, mapping)
    columns = ("msg", "valid_from", "valid_to")
    assert here.read(name, *columns) == in_order(
        [
            ("a", moment(50), moment(100)),
            ("b", moment(100), moment(900)),
            (None, moment(900), moment(900)),
            ("c", moment(200), None),
        ]
    )
    ignoring = "default.ignoring"
    here.create(ignoring, {"id": "bigint", "msg": "string", **INTERVAL, "since": "timestamp"})
    mapping = HistoryMapping("orders", ignoring, sequence="since", deletes="ignore")
    here.ingest(log, mapping, source={"source_id": "list:c", "has_times": False})
    assert here.read(ignoring, "msg", "valid_to") == [("a", moment(100)), ("b", None), ("c", None)]
    closing = HistoryMapping("orders", ignoring, sequence="since")
    with pytest.raises(RecordValueError, match=r"deletes rows\. A delete has no value in since"):
        here.ingest(log, closing, source={"source_id": "list:d", "has_times": False})
    with pytest.raises(ConfigurationError, match="have no column 'until' for the points of a history"):
        here.ingest(log, HistoryMapping("orders", name, sequence="until"), source={"source_id": "list:b"})


def test_a_dry_run_writes_nothing(here: Warehouse) -> None:
    """Its report is that of the run."""
    tried = here.ingest(LOG, dry_run=True)
    assert here.read(HISTORY) == here.read(ROWS) == here.read(CHANGES) == []
    done = here.ingest(LOG)
    assert tried.histories[0].history.inserted == done.histories[0].history.inserted == 4
    assert tried.changes[0].merge.total == done.changes[0].merge.total


@pytest.mark.parametrize(
    ("log", "mappings", "source", "error", "message"),
    [
        (LOG, ALL, {"has_times": False}, ConfigurationError, "list:test does not give the time at which"),
        ([*LOG, *log_of("5 - update 2 d")], ALL, {}, RecordValueError, r"position a5\.a4 has no time"),
        ([*LOG, Entry(5, "orders", "truncate", {})], ALL, {}, InputFormatError, "were removed at once"),
        (LOG, (*ALL, HistoryMapping("orders", ROWS)), {}, ConfigurationError, "is listed twice"),
        (
            LOG,
            (ALL[0], HistoryMapping("orders", HISTORY, ("msg",))),
            {},
            ConfigurationError,
            "different keys",
        ),
        (
            LOG,
            (ALL[0], HistoryMapping("orders", HISTORY)),
            {},
            ConfigurationError,
            "column is_last is boolean in the first and missing in the second",
        ),
        (LOG, (HistoryMapping("orders", CHANGES),), {}, ConfigurationError, "lacks valid_from, valid_to"),
        (
            LOG,
            (HistoryMapping("orders", HISTORY, sequence=POSITION),),
            {},
            ConfigurationError,
            "expected string",
        ),
        (LOG, (ChangesMapping("orders", HISTORY),), {}, ConfigurationError, "the table lacks operation"),
        (
            LOG,
            (ALL[0], ChangesMapping("orders", CHANGES, operation="msg")),
            {},
            ConfigurationError,
            f"{ROWS} has a column of this name",
        ),
    ],
    ids=range(10),
)
def test_what_is_refused(
    here: Warehouse, log: list[Entry], mappings: Any, source: Any, error: type[MutationError], message: str
) -> None:
    """Nothing is written."""
    with pytest.raises(error, match=message):
        here.ingest(log, *mappings, source=source)
    assert here.read(ROWS) == here.read(HISTORY) == here.read(CHANGES) == []


def test_targets_that_do_not_move_together(here: Warehouse) -> None:
    """A history that is added later lacks what the rows already have."""
    here.ingest(LOG[:2], ALL[0])
    with pytest.raises(SourcePositionError, match=r"different watermarks \(default\.orders: .*: nothing"):
        here.ingest(LOG)
    here.ingest(LOG, ALL[1], watermark_table="default.other_marks")
    assert len(here.read(HISTORY)) == 4


def test_a_run_that_dies_leaves_all_targets_at_one_state(
    here: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any step: rows, history and changes are those of before, or all new; the next run goes on."""
    whole = random_log(11, 40)

    def log_to(end: int) -> list[Entry]:
        return [each for each in whole if each.seqno <= end]

    here.ingest(log_to(10))
    mortal = Mortal(here.metastore)
    with mortal.at_files(monkeypatch):
        here.ingest(log_to(12), metastore=mortal, user="mortal")
    steps = len(mortal.steps)
    done, end = 12, 12
    for last in [*range(1, steps, steps // 6), steps]:
        end += 2
        mortal = Mortal(here.metastore, last)
        with mortal.at_files(monkeypatch), contextlib.suppress(Died):
            here.ingest(log_to(end), metastore=mortal, user="mortal")
        bury(here.metastore, "mortal")
        try:
            here.check(log_to(done))
        except AssertionError:
            here.check(log_to(end))
        here.ingest(log_to(end))
        here.check(log_to(end))
        done = end


def test_rows_of_partitions_and_tables_of_inserts_only(here: Warehouse) -> None:
    """A history may be partitioned by the mark of the last version; changes are inserts only."""
    name, listed = "default.parted", "default.inserted"
    with connect(here.metastore) as hive:
        schema = "id bigint, msg string, valid_from timestamp, valid_to timestamp, log_position string"
        hive.create_table(name, f"{schema}, last boolean", partitioned_by=["last"])
        schema = "id bigint, msg string, operation string, log_position string"
        hive.create_table(listed, schema, insert_only=True)
    mappings = (HistoryMapping("orders", name, current="last"), ChangesMapping("orders", listed))
    for log, name_of_source in ((LOG[:2], "list:a"), (LOG, "list:a"), (LOG, "list:b")):
        here.ingest(log, *mappings, create_partitions=True, source={"source_id": name_of_source})
    found = here.read(name, "id", "msg", "last")
    assert found == in_order([(1, "a", False), (1, "b", False), (1, None, False), (2, "c", True)])
    assert len(here.read(listed)) == 4


def test_versions_that_are_ended_by_hand(here: Warehouse) -> None:
    """As after a TRUNCATE, which the log does not list row by row: the next changes begin new versions."""
    mapping = HistoryMapping("orders", HISTORY, current="is_last")
    here.ingest(LOG, mapping)
    with connect(here.metastore) as hive:
        ended = {"valid_to": "timestamp_ntz '1970-01-01 00:00:50'", "is_last": "false"}
        assert hive.table(HISTORY).update(set=ended, where="valid_to IS NULL").total.updated == 1
    log = [*LOG, *log_of("6 60 insert 2 d\n7 70 update 2 e\n8 80 insert 1 f")]
    for end in (6, 8):
        here.ingest([each for each in log if each.seqno <= end], mapping)
    here.ingest(log[5:], mapping, source={"source_id": "list:again"})
    found = here.read(HISTORY, "id", "msg", "valid_from", "valid_to")
    assert [each for each in found if each[0] == 2 and each[1]] == in_order(
        [
            (2, "c", moment(40), moment(50)),
            (2, "d", moment(60), moment(70)),
            (2, "e", moment(70), None),
        ]
    )
    assert [each[1] for each in found if each[0] == 1] == ["a", "b", "f", None]


DEBEZIUM = {"db": "shop", "table": "orders", "file": "bin.1", "pos": 4, "row": 0, "ts_ms": 1700000001000}
MAXWELL = {"database": "shop", "table": "orders", "type": "insert", "position": "bin.1:4", "xoffset": 0}
CANAL = {"id": 1, "database": "shop", "table": "orders", "type": "INSERT", "isDdl": False, "old": None}
SECOND = moment(1700000001)


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        (DebeziumSource, {"op": "c", "before": None, "source": DEBEZIUM}, SECOND),
        (DebeziumSource, {"op": "c", "source": {**DEBEZIUM, "ts_us": 1700000001000000}}, SECOND),
        (MaxwellSource, {**MAXWELL, "ts": 1700000001}, SECOND),
        (CanalSource, {**CANAL, "es": 1700000001000, "ts": 1}, SECOND),
        (MaxwellSource, MAXWELL, None),
    ],
    ids=range(5),
)
def test_the_times_of_messages(
    here: Warehouse, tmp_path: Path, kind: Any, message: dict[str, Any], expected: Any
) -> None:
    """Each tool has its own field; a message without it is refused."""
    row = {"id": 1, "msg": "a"}
    rows = {"after": row} if "op" in message else {"data": row if kind is MaxwellSource else [row]}
    (tmp_path / "log").mkdir()
    text = json.dumps({**message, **rows})
    (tmp_path / "log" / "messages-1.json").write_text(f"{text}\n", encoding="utf-8")
    mapping = HistoryMapping("shop.orders", HISTORY, ("id",), current="is_last")
    source, engine = kind(tmp_path / "log", "shop"), here.engine
    if expected is None:
        with pytest.raises(RecordValueError, match="has no time, so its point"):
            ingest(here.metastore, [mapping], source, **engine)
        return
    ingest(here.metastore, [mapping], source, **engine)
    assert here.read(HISTORY, "msg", "valid_from") == [("a", expected)]


def test_the_times_of_staging_files(here: Warehouse, tmp_path: Path) -> None:
    """The commit timestamp, if the records have one; an update is a delete and an insert at one point."""
    folder = tmp_path / "staging" / "alpha" / "shop" / "orders"
    folder.mkdir(parents=True)
    at = "2023-11-14 22:13:21.000"
    fields = [("I", "1", "a"), ("D", "2", "a"), ("I", "2", "b")]
    records = [[operation, seqno, "1", at, "1", "1", text] for operation, seqno, text in fields]
    (folder / "orders-1.csv").write_text("".join(map(staging_record, records)), encoding="utf-8")
    mapping = HistoryMapping("shop.orders", HISTORY, ("id",), current="is_last")
    ingest(here.metastore, [mapping], TungstenSource(tmp_path / "staging", "alpha"), **here.engine)
    assert here.read(HISTORY, "msg", "valid_from", "valid_to") == [("b", SECOND, None)]
    header = tuple(each for each in HEADER_DEFAULT if each is not HeaderField.COMMIT_TIMESTAMP)
    shorter = "".join(staging_record([*each[:3], *each[4:]]) for each in records)
    (folder / "orders-1.csv").write_text(shorter, encoding="utf-8")
    without = TungstenSource(tmp_path / "staging", "alpha", header=header)
    with pytest.raises(ConfigurationError, match="tungsten:alpha does not give the time"):
        ingest(here.metastore, [mapping], without, watermark_table="default.others", **here.engine)
