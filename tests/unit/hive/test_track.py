"""track() keeps the history of keys: what a reader finds, whatever the order of arrival; what is refused."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.errors import (
    ConfigurationError,
    ContradictionError,
    DuplicateKeyError,
    MutationError,
    RecordLayoutError,
    RecordValueError,
)
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.upkeep.create_acid_table import create_acid_table

NAME = "default.prices"
COLUMNS = (
    ColumnInfo("id", "int"),
    ColumnInfo("item", "string"),
    ColumnInfo("lsn", "int"),
    ColumnInfo("valid_from", "bigint"),
    ColumnInfo("valid_to", "bigint"),
    ColumnInfo("is_last", "boolean"),
)
Event = tuple[int, int, str | None, int]
"""Key, point, item (None: a delete) and the number that decides ties."""

Version = tuple[int, str | None, int, int | None, bool]
"""Key, item, beginning, end, and whether it is the last one."""


@pytest.fixture(params=["2.3", "3.1", "4.1"])
def hive(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """An empty table."""
    line = {"2.3": HIVE_2_3, "3.1": HIVE_3_1, "4.1": HIVE_4_1}[request.param]
    metastore = InMemoryMetastore(tmp_path, capabilities=line)
    create_acid_table(metastore, NAME, COLUMNS, clustered_by=["id"], num_buckets=2)
    with connect(metastore) as connected:
        yield connected


def changes(*events: Event) -> pa.Table:
    """Changes as a source has them."""
    return pa.table(
        {
            "ID": pa.array([each[0] for each in events], pa.int64()),
            "at": pa.array([each[1] for each in events], pa.int32()),
            "item": pa.array([each[2] for each in events], pa.string()),
            "lsn": pa.array([each[3] for each in events], pa.int32()),
            "operation": pa.array(["delete" if each[2] is None else "update" for each in events]),
        }
    )


def track(hive: Hive, *events: Event, sequence: Any = "at", **options: Any) -> Any:
    """Add events to the history."""
    return hive.table(NAME).track(
        changes(*events), key=["id"], sequence=sequence, **{"current": "is_last", **options}
    )


def read(hive: Hive) -> list[Version]:
    """The versions that a reader finds."""
    with hive.snapshot(NAME) as view:
        found = view.table(NAME).scan().to_arrow().to_pylist()
    names = ("id", "item", "valid_from", "valid_to", "is_last")
    return sorted(
        (tuple(each[name] for name in names) for each in found), key=lambda each: (each[0], each[2])
    )


def history(events: list[Event], *, has_ties: bool = False) -> list[Version]:
    """The versions that events in order give."""
    found: list[Version] = []
    last_at = {(id_, at): (lsn, item) for id_, at, item, lsn in sorted(events, key=lambda each: each[3])}
    for id_, group in itertools.groupby(sorted(last_at), key=lambda each: each[0]):
        points = [at for _, at in group]
        was_state = False
        for at, end in zip(points, [*points[1:], None], strict=True):
            item = last_at[id_, at][1]
            if item is not None:
                found.append((id_, item, at, end, end is None))
            elif has_ties or not was_state:
                found.append((id_, None, at, at, False))
            was_state = item is not None
    return found


@pytest.mark.thorough(1)
def test_changes_in_order(hive: Hive) -> None:
    """A change closes the open version and opens another one; a delete closes it."""
    assert str(track(hive, (1, 10, "tea", 0), (2, 10, "milk", 0))).endswith(
        "inserted: 2, updated: 0, deleted: 0"
    )
    report = track(hive, (1, 20, "coffee", 0), (2, 30, None, 0))
    assert (report.change_count, report.inserted, report.updated, report.deleted) == (2, 1, 2, 0)
    assert read(hive) == [
        (1, "tea", 10, 20, False),
        (1, "coffee", 20, None, True),
        (2, "milk", 10, 30, False),
    ]
    again = track(hive, (1, 20, "coffee", 0), (2, 30, None, 0), (1, 10, "tea", 0))
    assert (again.inserted, again.updated, again.deleted) == (0, 0, 0)


@pytest.mark.thorough(1)
def test_late_changes_split_a_version(hive: Hive) -> None:
    """A late state splits the interval into which it falls, a late delete cuts it, and a gap is filled."""
    track(hive, (1, 10, "a", 0), (1, 40, "d", 0))
    track(hive, (1, 30, None, 0))
    track(hive, (1, 20, "b", 0), (1, 5, "z", 0), (1, 35, "c", 0))
    expected = [("z", 5, 10), ("a", 10, 20), ("b", 20, 30), ("c", 35, 40), ("d", 40, None)]
    assert read(hive) == [(1, item, first, last, last is None) for item, first, last in expected]


def test_a_delete_that_arrives_first_is_remembered(hive: Hive) -> None:
    """It leaves an empty interval, which goes when the version that it ends arrives."""
    track(hive, (1, 20, None, 0))
    assert read(hive) == [(1, None, 20, 20, False)]
    track(hive, (1, 10, "a", 0))
    assert read(hive) == [(1, "a", 10, 20, False)]


def test_steps_of_one_transaction_see_each_other(hive: Hive) -> None:
    """A later call in a transaction continues the versions of an earlier one, or is refused on Hive 2."""
    with hive.transaction(NAME) as tx:
        table = tx.table(NAME)
        table.track(changes((1, 10, "a", 0)), ["id"], "at", current="is_last")
        if not table.descriptor.version.uses_write_ids:
            with pytest.raises(MutationError, match="Hive 2"):
                table.track(changes((1, 20, "b", 0)), ["id"], "at", current="is_last")
            return
        table.track(changes((1, 20, "b", 0)), ["id"], "at", current="is_last")
    assert [each[:4] for each in read(hive)] == [(1, "a", 10, 20), (1, "b", 20, None)]


def test_no_changes(hive: Hive) -> None:
    """They are fine, with and without the columns' types."""
    track(hive, (1, 10, "a", 0))
    assert track(hive).change_count == 0
    nothing = pa.table({name: pa.nulls(0) for name in ("id", "at", "item", "lsn", "operation")})
    report = hive.table(NAME).track(nothing, key=["id"], sequence="at", current="is_last")
    assert (report.change_count, report.inserted, report.updated) == (0, 0, 0)
    assert read(hive) == [(1, "a", 10, None, True)]


def test_a_dry_run_writes_nothing(hive: Hive) -> None:
    """Its report is that of the run."""
    tried = track(hive, (1, 10, "a", 0), dry_run=True)
    assert tried.is_dry_run and tried.inserted == 1 and "would be" in str(tried) and read(hive) == []
    assert track(hive, (1, 10, "a", 0)).inserted == tried.to_dict()["inserted"]


@pytest.mark.thorough(1)
def test_ties(hive: Hive) -> None:
    """Different changes at one point are refused, or decided by another column, in any run."""
    with pytest.raises(DuplicateKeyError, match=r"same at, so their order is unknown.*sequence=\['at', …\]"):
        track(hive, (1, 10, "a", 1), (1, 10, "b", 2))
    track(hive, (1, 10, "a", 1), (1, 10, "a", 1))
    with pytest.raises(DuplicateKeyError, match="order is unknown"):
        track(hive, (1, 10, None, 2))
    track(hive, (1, 10, "b", 2), sequence=["at", "lsn"])
    assert track(hive, (1, 10, "old", 0), sequence=["at", "lsn"]).to_dict()["inserted"] == 0
    assert read(hive) == [(1, "b", 10, None, True)]


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("events", "options", "error", "message"),
    [
        ([(None, 1, "a", 0)], {}, RecordValueError, "'id' of the changes is NULL in 1 rows"),
        ([(1, None, "a", 0)], {}, RecordValueError, "'at' of the changes is NULL"),
        ([(1 << 40, 1, "a", 0)], {}, RecordValueError, "1099511627776"),
        ([(1, 1, None, 0)], {"deletes": "refuse"}, RecordValueError, "deletes='close' ends"),
        ([(1, 1, "a", 0)], {"deletes": "drop"}, ConfigurationError, "expected 'close', 'ignore' or"),
        ([(1, 1, "a", 0)], {"valid_from": "begin"}, ConfigurationError, "no column 'begin'"),
        ([(1, 1, "a", 0)], {"valid_from": "valid_to"}, ConfigurationError, "separate columns"),
        ([(1, 1, "a", 0)], {"valid_from": "item"}, ConfigurationError, "must have the same type"),
        ([(1, 1, "a", 0)], {"current": "item"}, ConfigurationError, "must be boolean"),
        ([(1, 1, "a", 0)], {"columns": ["pric"]}, ConfigurationError, "no column 'pric'"),
        ([(1, 1, "a", 0)], {"sequence": "when"}, RecordLayoutError, "lack when"),
        ([(1, 1, "a", 0)], {"sequence": ["at", "x"]}, ConfigurationError, "no column 'x'"),
        (
            [(1, 1, "a", 0)],
            {"operation_column": "item"},
            RecordValueError,
            "'a'.*expected 'insert', 'update'",
        ),
    ],
    ids=range(13),
)
def test_what_is_refused(hive: Hive, events: Any, options: Any, error: Any, message: str) -> None:
    """Nothing is written."""
    with pytest.raises(error, match=message):
        track(hive, *events, **options)
    assert read(hive) == []


def test_ignored_deletes_and_columns(hive: Hive) -> None:
    """deletes='ignore' leaves versions open; columns=[…] leaves the table's others NULL."""
    track(hive, (1, 10, "a", 7), (1, 20, None, 8), deletes="ignore", columns=["item"], current=None)
    with hive.snapshot(NAME) as view:
        (found,) = view.table(NAME).scan().to_arrow().to_pylist()
    assert (found["item"], found["lsn"], found["valid_to"], found["is_last"]) == ("a", None, None, None)


def test_overlapping_versions_in_the_table(hive: Hive) -> None:
    """They are not guessed about."""
    rows = {"id": [1, 1], "item": ["a", "b"], "lsn": [0, 0], "valid_from": [1, 2], "valid_to": [None, None]}
    hive.table(NAME).append(pa.table({**rows, "is_last": [True, True]}))
    with pytest.raises(ContradictionError, match=r"overlap.*Correct these rows"):
        track(hive, (1, 10, "c", 0))
    assert track(hive, (2, 10, "c", 0)).inserted == 1


def random_log(seed: int) -> tuple[list[Event], list[list[Event]], bool]:
    """A log, the same events in runs in any order (some twice), and whether numbers decide ties."""
    drawn = random.Random(seed)
    has_ties = drawn.random() < 0.5
    events: dict[tuple[int, ...], Event] = {}
    for number in range(drawn.randrange(1, 30)):
        id_, at = drawn.randrange(4), drawn.randrange(12)
        item = None if drawn.random() < 0.3 else drawn.choice("abc")
        events[(id_, at, number) if has_ties else (id_, at)] = (id_, at, item, number)
    log = [*events.values()]
    arrived = drawn.sample(log, len(log)) + drawn.choices(log, k=3)
    cuts = sorted(drawn.randrange(len(arrived) + 1) for _ in range(3))
    return log, [arrived[a:b] for a, b in itertools.pairwise([0, *cuts, len(arrived)])], has_ties


def check_random_log(hive: Hive, seed: int) -> None:
    """Any order of arrival and any cut into runs ends in the table that the log in order gives."""
    log, runs, has_ties = random_log(seed)
    for run in runs:
        track(hive, *run, sequence=["at", "lsn"] if has_ties else "at")
    assert read(hive) == history(log, has_ties=has_ties), seed


@pytest.mark.thorough(1)
@pytest.mark.parametrize("seed", range(4))
def test_random_logs(hive: Hive, seed: int) -> None:
    """See :func:`check_random_log`."""
    check_random_log(hive, seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(10, 350, 20))
def test_a_thousand_random_logs(hive: Hive, first: int) -> None:
    """See :func:`check_random_log`; the table is emptied in between."""
    for seed in range(first, first + 20):
        check_random_log(hive, seed)
        hive.table(NAME).truncate()
