"""A source that stops before the end of its log, and one that gives tables whole again."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import LocalOptions, connect
from mutation_api.cdc import TableMapping, ingest
from mutation_api.cdc.ingest_report import list_watermarks
from mutation_api.cdc.source import LocalBatch, Position, SourceTable, Stop
from mutation_api.errors import SourcePositionError, StoppedAtStatementError
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.support.change_source import Entry, ListSource, entries, position

TABLES = (TableMapping("a", "default.a", ("id",)), TableMapping("b", "default.b", ("id",)))


class StoppingSource(ListSource):
    """Ends each batch early, for some of its tables."""

    def __init__(self, log: Sequence[Entry], stop: Stop | None = None, set_back: Sequence[str] = ()) -> None:
        super().__init__(log)
        self.stop = stop
        self.set_back = frozenset(set_back)

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        kept = {name: at for name, at in after.items() if name not in self.set_back}
        found = super().read_local(tables, kept)
        wanted = found.tables
        if self.stop is not None:
            wanted = tuple(each for each in wanted if each.table.name in self.stop.positions)
        end = found.position if wanted else None
        return replace(found, tables=wanted, position=end, stop=self.stop, set_back=self.set_back)


@pytest.fixture
def metastore(tmp_path: Path) -> InMemoryMetastore:
    """Two empty tables."""
    made = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    for each in TABLES:
        columns = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))
        create_acid_table(made, each.target, columns, clustered_by=["id"], num_buckets=1)
    return made


def ids(metastore: InMemoryMetastore, table: str) -> list[int]:
    """Keys of the rows."""
    with connect(metastore) as hive, hive.snapshot(f"default.{table}") as view:
        return sorted(view.table(f"default.{table}").scan().to_arrow()["id"].to_pylist())


def marks(metastore: InMemoryMetastore) -> dict[str, tuple[int, ...]]:
    """Positions by table of the source."""
    found = list_watermarks(metastore, "default.mutation_watermarks")
    return {mark.source_table: mark.order for mark in found}


LOG = [*entries("1 insert 1\n2 insert 2", "a"), *entries("2 insert 5", "b")]


def test_what_precedes_a_stop_is_committed_before_it_is_told(metastore: InMemoryMetastore) -> None:
    """A table that the stop does not name keeps its place; the error has the report, and can be pickled."""
    source = StoppingSource(LOG, Stop("the log has TRUNCATE at 3", {"a": position(2)}))
    with pytest.raises(
        StoppedAtStatementError, match=r"TRUNCATE at 3. Stopped .* applied, in trans"
    ) as caught:
        ingest(metastore, TABLES, source, local=LocalOptions())
    assert (ids(metastore, "a"), ids(metastore, "b"), marks(metastore)) == ([1, 2], [], {"a": (2,)})
    report = caught.value.report
    assert isinstance(report, type(pickle.loads(pickle.dumps(caught.value)).report))
    assert report.to_dict()["stopped"] == "the log has TRUNCATE at 3"
    report = ingest(metastore, TABLES, StoppingSource(LOG), local=LocalOptions())
    assert (ids(metastore, "b"), report.stop, marks(metastore)) == ([5], None, {"a": (2,), "b": (2,)})


def test_a_stop_with_nothing_before_it_commits_nothing(metastore: InMemoryMetastore) -> None:
    """Each run says so until somebody goes on."""
    source = StoppingSource(LOG, Stop("x", {}))
    for _ in range(2):
        with pytest.raises(StoppedAtStatementError, match="everything before it had already been applied"):
            ingest(metastore, TABLES, source, local=LocalOptions())
    assert marks(metastore) == {}


def test_a_dry_run_stops_and_writes_nothing(metastore: InMemoryMetastore) -> None:
    """It says what would be applied."""
    source = StoppingSource(LOG, Stop("x", {"a": position(2)}))
    with pytest.raises(StoppedAtStatementError, match="everything before it would be applied"):
        ingest(metastore, TABLES, source, local=LocalOptions(), dry_run=True)
    assert ids(metastore, "a") == []


def test_only_a_table_that_is_given_whole_may_be_set_back(metastore: InMemoryMetastore) -> None:
    """Other watermarks never move backwards."""
    ingest(metastore, TABLES, StoppingSource(LOG), local=LocalOptions())
    restored = [*entries("1 truncate 0\n1 insert 7", "a"), *entries("1 truncate 0\n1 insert 8", "b")]
    with pytest.raises(SourcePositionError, match=r"table b: its position .* lies before"):
        ingest(metastore, TABLES, StoppingSource(restored, set_back=["a"]), local=LocalOptions())
    assert (ids(metastore, "a"), marks(metastore)["a"]) == ([1, 2], (2,))
    ingest(metastore, TABLES, StoppingSource(restored, set_back=["a", "b"]), local=LocalOptions())
    assert (ids(metastore, "a"), ids(metastore, "b"), marks(metastore)["b"]) == ([7], [8], (1,))
