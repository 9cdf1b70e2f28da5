"""The history of a real MariaDB's table in real Hive, from its binary log and from the logs of five tools.

The expected versions are those that plain Python makes of the row events, as an independent library decodes
them from the binary log.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from judges.hive.judge import HiveJudge
from judges.mysql import MySqlJudge
from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnInfo
from metastore_client.remote.thrift_client import open_client
from mutation_api import LocalOptions
from mutation_api.cdc import (
    POSITION,
    ChangesMapping,
    HistoryMapping,
    IngestReport,
    MySqlAddress,
    MySqlSource,
    TableMapping,
    ingest,
)
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.cdc_writers.history import Table, Transaction, single_rows
from tests.cdc_writers.mysql_log import LogFollower
from tests.integration.ingests.mysql_workload import KEYS, TABLES, Workload, create_tables
from tests.integration.ingests.test_ingest_five_logs import Logs
from tests.support.history_model import Change, Version, current_rows, versions

pytestmark = pytest.mark.slow

TABLE = "customers"
KEY = KEYS[TABLE]
COLUMNS = {name: TABLES[TABLE][name] for name in (*KEY, "amount")}
SERVER = "mysql"
FILES = ("debezium", "maxwell", "canal", "tungsten", "collector")
LONG_TIMEOUT_SECONDS = 1800.0
SHOWN = "date_format({0}, 'yyyy-MM-dd HH:mm:ss')"


class Follower:
    """Rows, history and changes of one table in Hive, which follow one log of it.

    ``tool``: whose log it is; SERVER is the server's own. The collector's files have no times.
    """

    def __init__(self, judge: HiveJudge, metastore: MetastoreClient, database: str, tool: str) -> None:
        self.judge = judge
        self.metastore = metastore
        self.tool = tool
        self.has_times = tool != "collector"
        self.names = {what: f"{database}.{tool}_{what}" for what in ("rows", "history", "changes")}
        point = "timestamp" if self.has_times else "string"
        position = {"log_position": "string"}
        interval = {"valid_from": point, "valid_to": point, **(position if self.has_times else {})}
        logged = {"operation": "string", **position}
        if self.has_times:
            logged["changed_at"] = "timestamp"
        for what, added in (("rows", {}), ("history", interval), ("changes", logged)):
            infos = [ColumnInfo(name, column.hive) for name, column in COLUMNS.items()]
            infos += [ColumnInfo(name, kind) for name, kind in added.items()]
            create_acid_table(metastore, self.names[what], infos, clustered_by=[KEY[1]], num_buckets=2)

    def ingest(self, source: Any, table: Table, engine: Mapping[str, Any]) -> IngestReport:
        """Bring the tables up to the end of the log."""
        name = table.name if self.tool in (SERVER, "collector") else table.full_name
        options: dict[str, Any] = {} if self.has_times else {"sequence": POSITION}
        mappings = (
            TableMapping(name, self.names["rows"], KEY if self.tool == "collector" else ()),
            HistoryMapping(name, self.names["history"], **options),
            ChangesMapping(name, self.names["changes"]),
        )
        return ingest(self.metastore, mappings, source, **engine)

    def check(self, log: Sequence[Change], first: Mapping[Any, Any]) -> int:
        """Compare all tables with plain Python's; tells how many versions there are.

        ``first``: the rows that the first run copied.
        """
        names = ", ".join(COLUMNS)
        rows = self._rows(f"SELECT {names} FROM {self.names['rows']}")
        copied = [Change(key, self._copied_at(), row) for key, row in first.items()]
        changes = [*copied, *log]
        assert rows == in_order(_row(key, row) for key, row in current_rows(changes).items())
        history = self.names["history"]
        assert self._rows(f"SELECT {names} FROM {history} WHERE valid_to IS NULL") == rows
        wanted = versions(changes)
        if self.has_times:
            begin, end = SHOWN.format("valid_from"), SHOWN.format("valid_to")
            found = self._rows(f"SELECT {names}, {begin}, {end} FROM {history}")
            assert found == in_order(map(_stored, wanted))
        else:
            # A delete leaves a row only if no version came before it in the log.
            has_row = "valid_to IS NULL OR valid_from < valid_to"
            found = self._rows(f"SELECT {names} FROM {history} WHERE {has_row}")
            assert found == in_order(_row(v.key, v.row) for v in wanted if v.row is not None)
        self._check_changes(changes)
        return len(wanted)

    def _check_changes(self, changes: Sequence[Change]) -> None:
        counts = self.judge.sql(f"SELECT operation, count(*) FROM {self.names['changes']} GROUP BY operation")
        found = dict(counts)
        deletes, deleted = sum(each.row is None for each in changes), found.pop("delete", 0)
        assert sum(found.values()) == len(changes) - deletes
        assert deleted == deletes or (self.tool == "tungsten" and deleted > deletes)  # part of an update

    def _copied_at(self) -> str | None:
        """The time of the copy, which only the server knows."""
        if self.tool != SERVER:
            return None
        # Hive before 4 orders only by columns that it returns.
        query = f"SELECT log_position, {SHOWN.format('changed_at')} AS shown FROM {self.names['changes']}"
        ((_, found),) = self.judge.sql(f"{query} ORDER BY log_position LIMIT 1")
        return str(found)

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        found = [[None if v is None else str(v) for v in row] for row in self.judge.sql(query)]
        return in_order((*key, _amount(amount), *points) for *key, amount, points in map(_parted, found))


def _parted(row: list[Any]) -> tuple[Any, ...]:
    return (*row[: len(COLUMNS)], row[len(COLUMNS) :])


def _amount(text: str | None) -> str | None:
    """A decimal without zeros at its end, some of which Hive leaves out."""
    return None if text is None else f"{Decimal(text).normalize():f}"


def _row(key: tuple[Any, ...], row: Any) -> tuple[Any, ...]:
    return (*map(str, key), row if row is None else row[0])


def _stored(version: Version) -> tuple[Any, ...]:
    return (*_row(version.key, version.row), version.first, version.last)


def in_order(rows: Any) -> list[Any]:
    return sorted(rows, key=repr)


def changes_of(transactions: Sequence[Transaction], tool: str) -> list[Change]:
    """The changes of the table, with the times that a tool's log has."""
    found: list[Change] = []
    for transaction in transactions:
        for event in transaction.events:
            if event.table.name != TABLE:
                continue
            at = event.begun if tool == SERVER else transaction.committed
            for operation, row in single_rows(event):
                key = tuple(row[name] for name in KEY)
                amount = None if row["amount"] is None else _amount(str(row["amount"]))
                value = None if operation == "delete" else (amount,)
                # The collector's points are only in order.
                found.append(Change(key, len(found) if tool == "collector" else _shown(at), value))
    return found


def _shown(moment: datetime | None) -> str:
    assert moment is not None
    return f"{moment:%Y-%m-%d %H:%M:%S}"


OTHER_LINES = [pytest.param(line, marks=pytest.mark.long) for line in ("2.3", "3.1")]


@pytest.mark.parametrize("hive_line", ["4.1", *OTHER_LINES], indirect=True)
@pytest.mark.parametrize(
    ("tools", "slices"),
    [
        pytest.param((SERVER, "debezium"), 2, id="server"),
        *[pytest.param((tool,), 2, id=tool, marks=pytest.mark.long) for tool in FILES],
        pytest.param((SERVER, *FILES), 4, id="all", marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(LONG_TIMEOUT_SECONDS)
def test_histories_of_all_logs(
    hive_line: HiveJudge,
    line_database: str,
    mysql: MySqlJudge,
    mysql_database: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tools: Sequence[str],
    slices: int,
) -> None:
    """Slices of a random workload: rows, versions and changes are those of the binary log."""
    is_short, rng = slices == 2, random.Random(slices)
    create_tables(mysql, mysql_database)
    mysql.sql(
        f"INSERT INTO {mysql_database}.{TABLE} VALUES ('north', 1, 2.50, 'a'), ('north', 2, NULL, NULL)"
    )
    kinds = {name: column.source for name, column in COLUMNS.items()}
    table = Table(mysql_database, TABLE, kinds, KEY)
    log, logs = LogFollower(mysql, [table]), Logs(tmp_path, [table])
    first = {("north", 1): ("2.5",), ("north", 2): (None,)}
    engines: list[Mapping[str, Any]] = [{"local": LocalOptions()}]
    if not is_short:
        engines.append({"spark": request.getfixturevalue("spark")})
    with ExitStack() as stack:
        metastore = stack.enter_context(open_client(hive_line.uri))
        chosen = [Follower(hive_line, metastore, line_database, tool) for tool in tools]
        address = MySqlAddress("127.0.0.1", mysql.user, mysql.password, mysql.port)
        left_out = [f"{TABLE}.label"]
        source = stack.enter_context(MySqlSource(address, mysql_database, ignored_columns=left_out))
        workload = stack.enter_context(Workload(mysql, mysql_database, rng))
        for each in chosen:
            if each.tool == SERVER:
                each.ingest(source, table, engines[0])
        seen: list[Transaction] = []
        for number in range(slices):
            for _ in range(4):  # the clock of the source also goes back
                ((now,),) = mysql.sql("SELECT UNIX_TIMESTAMP()")
                workload.set_clock(now + rng.randint(-5, 20))
                workload.run(5)
            new = log.transactions()
            seen += new
            logs.add(new)
            for each in chosen:
                read = source if each.tool == SERVER else logs.sources(each.tool)[0][0]
                each.ingest(read, table, engines[number % len(engines)])
                rows = first if each.tool == SERVER else {}
                assert each.check(changes_of(seen, each.tool), rows) > 10
