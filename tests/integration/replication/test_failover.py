"""Who may write a target, before and after a fail-over, by what REPL DUMP and REPL LOAD leave there.

Nothing here sets a property that Hive sets; the one that an operator sets is set as the refusal says.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mutation_api.errors import LockLostError, TableNotMutableError, TransactionAbortedError
from mutation_api.upkeep.doctor import doctor
from mutation_api.upkeep.replication import ReplicationRole, replication_of
from tests.integration.replication.replicated import FAILOVER, Replicated, Side, rows

pytestmark = [pytest.mark.slow, pytest.mark.long]
hive_4 = pytest.mark.parametrize("hive_notifying", ["4.1"], indirect=True)


@hive_4
def test_r4_only_the_replication_writes_a_target(pair: Replicated) -> None:
    """After a bootstrap and after an increment; also a table that somebody made there. All may read."""
    source, target = pair.source, pair.target
    source.create("flat")
    source.append("flat", 1)
    pair.cycle()
    target.judge.sql(
        f"CREATE TABLE {target.name('own')} (id bigint, msg string) STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true')"
    )
    for last in (1, 2):
        for name in ("flat", "own"):
            refused(target, name, r"target of a replication \(property 'repl.target.for'")
        with target.hive.snapshot(target.name("flat")) as view:
            assert view.table(target.name("flat")).scan().count() == last
        source.append("flat", 9 + last)
        pair.cycle()
    with pytest.raises(TableNotMutableError, match="target of a replication"):
        target.create("another")
    reasons = [str(each.reason) for each in doctor(target.metastore, target.database).tables]
    assert ["target of a replication" in reason for reason in reasons] == [True, True]
    assert role(target) is ReplicationRole.TARGET
    assert target.tables() == ["flat", "own"]


@hive_4
def test_r4_what_hive_itself_writes_at_a_target_is_lost(pair: Replicated) -> None:
    """Hive refuses nobody there; the next transaction of the source gets the write id of such a row."""
    source, target = pair.source, pair.target
    source.create("flat")
    source.append("flat", 1)
    pair.cycle()
    target.judge.sql(f"INSERT INTO {target.name('flat')} VALUES (100, 'lost')")
    assert [row.values[0] for row in target.rows("flat")] == [1, 100]
    source.append("flat", 2)
    pair.cycle()
    assert [row.values[0] for row in target.rows("flat")] != [1, 2, 100]


@hive_4
def test_r4_planned_failover(pair: Replicated, tmp_path: Path) -> None:
    """The source is refused from its last dump on, the target is open when it has that; then they turn."""
    source, target = pair.source, pair.target
    source.create("flat")
    source.append("flat", 1)
    pair.cycle()
    source.append("flat", 2)
    open_one = source.hive.transaction(source.name("flat")).begin()
    open_one.table(source.name("flat")).append(rows(3))
    pair.dump(FAILOVER)
    with pytest.raises((TransactionAbortedError, LockLostError)):
        open_one.commit()
    refused(source, "flat", r"failing over \(property 'repl.failover.endpoint' is 'SOURCE'\)")
    assert role(source) is ReplicationRole.FAILING_OVER
    refused(target, "flat", "target of a replication")
    pair.load(FAILOVER)
    refused(source, "flat", "failing over")
    assert [row.values[0] for row in target.rows("flat")] == [1, 2]
    assert role(target) is ReplicationRole.TAKEN_OVER
    target.append("flat", 4)
    back = pair.turned(tmp_path / "back")
    turn(back, "failing over", "target of a replication")
    target.append("flat", 5)
    back.cycle()
    back.check()
    assert [row.values[0] for row in source.rows("flat")] == [1, 2, 4, 5]
    refused(source, "flat", "target of a replication")
    assert (role(target), role(source)) == (ReplicationRole.SOURCE, ReplicationRole.TARGET)


@hive_4
def test_r4_unplanned_failover(pair: Replicated, tmp_path: Path) -> None:
    """The source is gone with what it had not dumped; the operator says that the target has taken over.

    When it comes back nothing there tells of that, until the first load; so the operator does.
    """
    source, target = pair.source, pair.target
    source.create("flat")
    source.append("flat", 1)
    pair.cycle()
    pair.cycle()  # Hive turns no target that has had its first load only
    source.append("flat", 2)  # its last act
    refused(target, "flat", r"SET DBPROPERTIES \('repl.background.enable'='true'\)")
    target.set_property("repl.background.enable", "true")
    target.append("flat", 3)
    assert role(target) is ReplicationRole.TAKEN_OVER
    source.append("flat", 9)  # not protected, and lost
    source.set_property("readonly", "true")
    refused(source, "flat", "read-only")
    back = pair.turned(tmp_path / "back")
    turn(back, "read-only", "target of a replication")
    target.append("flat", 4)
    back.cycle()
    back.check()
    assert [row.values[0] for row in source.rows("flat")] == [1, 3, 4]
    refused(source, "flat", "target of a replication")
    assert (role(target), role(source)) == (ReplicationRole.SOURCE, ReplicationRole.TARGET)
    assert not {*target.properties} & {"repl.background.enable", "repl.target.for", "repl.last.id"}


@hive_4
def test_r4_the_first_load_after_an_unplanned_failover_marks_the_source(
    pair: Replicated, tmp_path: Path
) -> None:
    """By the time at which it began; it aborts what is open there, too."""
    source, target = pair.source, pair.target
    source.create("flat")
    source.append("flat", 1)
    pair.cycle()
    pair.cycle()  # Hive turns no target that has had its first load only
    target.set_property("repl.background.enable", "true")
    back = pair.turned(tmp_path / "back")
    back.dump()
    open_one = source.hive.transaction(source.name("flat")).begin()
    open_one.table(source.name("flat")).append(rows(3))
    back.load()
    with pytest.raises((TransactionAbortedError, LockLostError)):
        open_one.commit()
    refused(source, "flat", "becoming the target")
    assert role(source) is ReplicationRole.BECOMING_TARGET
    target.append("flat", 4)
    back.cycle()
    refused(source, "flat", "target of a replication")
    back.check()


def turn(back: Replicated, *rules: str) -> None:
    """Hive's optimised bootstrap: first the tables that differ are found, then they are brought.

    ``rules``: what the side that becomes the target refuses after each load.
    """
    for rule in rules:
        back.dump()
        back.load()
        refused(back.target, "flat", rule)


def refused(side: Side, table: str, rule: str) -> None:
    """Before anything is written."""
    before = side.files(table)
    with pytest.raises(TableNotMutableError, match=rule):
        side.append(table, 1000)
    assert side.files(table) == before


def role(side: Side) -> ReplicationRole:
    return replication_of(side.metastore, side.database).role
