"""A first dump of a table with an aborted write id: what Hive then hides at the target, and what mends it.

``REPL LOAD`` tells the target's metastore the aborted write ids alone, by a transaction each, and what the
next one will be. Where none of the known ones is valid, a reader sees the write ids up to the first of them,
so committed ones above the first aborted one are hidden, whoever wrote them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metastore_client.model import DataOperationType, LockComponent, LockLevel, LockRequest, LockType
from mutation_api.upkeep.replication import replication_of
from tests.integration.replication.replicated import Replicated, Side, commit_nothing

pytestmark = [pytest.mark.slow, pytest.mark.long]
hive_4 = pytest.mark.parametrize("hive_notifying", ["4.1"], indirect=True)

Act = Callable[[Side], None]


def by_sql(*ids: int) -> Act:
    def insert(side: Side) -> None:
        for each in ids:
            side.judge.sql(f"INSERT INTO {side.name('flat')} VALUES ({each}, 'new{each}')")

    return insert


def by_us(*ids: int) -> Act:
    def insert(side: Side) -> None:
        for each in ids:
            side.append("flat", each)

    return insert


def abort_over_thrift(side: Side) -> None:
    """A transaction that locked the table, got its write id and wrote nothing: none of our code."""
    metastore = side.metastore
    txn_id = metastore.open_txn("somebody", "there", "")
    component = LockComponent(
        LockType.SHARED_READ, LockLevel.TABLE, side.database, "flat", None, DataOperationType.INSERT
    )
    metastore.lock(LockRequest((component,), txn_id, "somebody", "there", ""))
    metastore.allocate_write_id(txn_id, side.database, "flat")
    metastore.abort_txn(txn_id)


def abort_ours(side: Side) -> None:
    side.hive.transaction(side.name("flat")).begin().abort()


@pytest.mark.parametrize(
    ("write", "mend"),
    [
        pytest.param(by_sql, lambda side: commit_nothing(side, "flat"), id="SQL alone"),
        pytest.param(by_us, by_us(4), id="ours"),
    ],
)
@hive_4
def test_hive_hides_what_was_committed_after_an_aborted_write_id(
    pair: Replicated, write: Callable[..., Act], mend: Act
) -> None:
    """Its own rows as well as ours; the next commit that is loaded shows them, though it be empty."""
    source, target = pair.source, pair.target
    create(source)
    write(1)(source)
    abort_over_thrift(source)
    write(2, 3)(source)
    assert "write id 2 is aborted" in str(warning(source))
    pair.cycle()
    assert shown(source) == [1, 2, 3]
    assert shown(target) == [1]
    assert len(target.files("flat")) == 3
    assert "write id 2 is aborted" in str(warning(target))
    mend(source)
    pair.cycle()
    pair.check()
    assert warning(target) is None


@hive_4
def test_of_several_aborted_write_ids_the_first_counts(pair: Replicated) -> None:
    """Also if the last of all is aborted, and by us."""
    source = pair.source
    create(source)
    by_us(1)(source)
    abort_ours(source)
    assert warning(source) is None
    by_us(2)(source)
    abort_ours(source)
    assert "write id 2 is aborted" in str(warning(source))
    pair.cycle()
    assert shown(pair.target) == [1]
    commit_nothing(source, "flat")
    pair.cycle()
    pair.check()


def create(side: Side) -> None:
    side.judge.sql(
        f"CREATE TABLE {side.name('flat')} (id bigint, msg string) STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true')"
    )


def shown(side: Side) -> list[int]:
    return [int(row.values[0]) for row in side.rows("flat")]


def warning(side: Side) -> str | None:
    """What ``doctor --replication`` says of the table."""
    return replication_of(side.metastore, f"{side.database}.flat").tables[0].warning
