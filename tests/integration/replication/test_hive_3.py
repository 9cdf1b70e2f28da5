"""Hive 3.1: its REPL DUMP and REPL LOAD know transactional tables, but no files of a commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive31
from mutation_api.errors import TableNotMutableError
from mutation_api.hive.connect import connect
from mutation_api.upkeep.replication import replication_of
from tests.fixtures.fix_judge import new_database
from tests.integration.replication.replicated import Side, forget

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.mark.feature(
    "replication by REPL DUMP and REPL LOAD",
    lines=["3.1"],
    says="the first dump copies all rows, later dumps copy none",
)
def test_a_first_dump_brings_rows_and_later_ones_none(hive31_notifying: Hive31, tmp_path: Path) -> None:
    """Neither ours nor those of Hive's own INSERT; the target is refused by ``repl.last.id``."""
    judge = hive31_notifying
    settings = {
        "hive.repl.rootdir": f"file:{tmp_path}/dumps",
        "hive.repl.dump.include.acid.tables": "true",
        "hive.metastore.event.db.notification.api.auth": "false",
    }
    given = ", ".join(f"'{name}'='{value}'" for name, value in settings.items())
    with new_database(judge) as database, connect(judge.uri) as hive:
        source, target = Side(judge, database, hive), Side(judge, f"{database}_copy", hive)
        source.set_property("repl.source.for", "test")
        source.create("flat")
        source.append("flat", 1, 2)
        [[folder, event]] = judge.sql(f"REPL DUMP {database} WITH ({given})")
        judge.sql(f"REPL LOAD {target.database} FROM '{folder}'")
        first = source.rows("flat")
        assert target.rows("flat") == first
        source.append("flat", 3)
        judge.sql(f"INSERT INTO {source.name('flat')} VALUES (4, 'sql')")
        [[folder, _]] = judge.sql(f"REPL DUMP {database} FROM {event} WITH ({given})")
        judge.sql(f"REPL LOAD {target.database} FROM '{folder}'")
        assert [row.values[0] for row in source.rows("flat")] == [1, 2, 3, 4]
        assert target.rows("flat") == first
        assert int(target.properties["repl.last.id"]) > int(event)
        with pytest.raises(TableNotMutableError, match=r"repl\.last\.id"):
            target.append("flat", 9)
        report = replication_of(source.metastore, database)
        assert "release" in [rule.name for rule in report.rules if rule.is_met is False]
        forget(source)
        judge.sql(f"DROP DATABASE {target.database} CASCADE")
