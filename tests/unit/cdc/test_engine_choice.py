"""Which engine does the work: as the caller says, or by the size of what is new."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from mutation_api.cdc import choice
from mutation_api.cdc.choice import EngineBySize, engine_for
from mutation_api.cdc.engine import Reading
from mutation_api.cdc.local_engine import LocalEngine
from mutation_api.cdc.source import Batch, LocalBatch, LocalOperations, OperationParts, SourceTable
from mutation_api.errors import ConfigurationError, InputError
from mutation_api.storage.location import Location
from mutation_api.write.local_plan import LocalOptions
from tests.support.change_source import ListSource, position
from tests.support.json_messages import ORDERS

TABLE = SourceTable("shop.orders", ORDERS, ("id",))
SMALL_BYTES = 100


class Parts(OperationParts):
    """Nothing, of a size."""

    def __init__(self, byte_count: int) -> None:
        self._byte_count = byte_count

    part_count = 0
    locations: Sequence[Location] = ()
    position = ("at",)

    @property
    def byte_count(self) -> int:
        return self._byte_count

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        raise AssertionError(number)


class Source:
    """A source that notes who reads it."""

    source_id = "mine:x"

    def __init__(
        self,
        byte_count: int,
        *,
        is_emptied: bool = False,
        is_copy: bool = False,
        fails: Exception | None = None,
        target_bytes: int = 0,
    ) -> None:
        self.given = LocalOperations(TABLE, Parts(byte_count), is_emptied, is_copy)
        self.fails = fails
        self.target_bytes = target_bytes
        self.readings: list[str] = []

    def read(self, spark: Any, tables: Any, after: Any) -> Batch:
        self.readings.append("spark")
        return Batch((), position(1))

    def read_local(self, tables: Any, after: Any) -> LocalBatch:
        self.readings.append("local")
        fails, self.fails = self.fails, None
        if fails is not None:
            raise fails
        return LocalBatch((self.given,), position(1))


class WholeSource(Source):
    """A source that reads its whole log before it knows what is new."""

    def byte_count(self) -> int:
        return self.given.operations.byte_count  # type: ignore[attr-defined, no-any-return]


class FakeSpark:
    """In place of Spark's engine."""

    spark = "session"

    def read(self, source: Any, tables: Any, after: Any, target_bytes: Any) -> Reading:
        return self.reading(source.read(self.spark, tables, after))

    def reading(self, batch: Batch) -> Reading:
        return Reading("spark", (), batch.position)

    def reading_in_tasks(self, batch: LocalBatch) -> Reading:
        return self.reading(Batch((), batch.position))


@pytest.fixture
def read() -> Callable[[Source], tuple[str, list[str]]]:
    """The engine that goes on with a source, and who has read it."""

    def by_size(source: Source) -> tuple[str, list[str]]:
        engine = EngineBySize(LocalEngine(LocalOptions()), SMALL_BYTES, FakeSpark)  # type: ignore[arg-type]
        return engine.read(source, [TABLE], {}, lambda _: source.target_bytes).engine, source.readings

    return by_size


def test_what_is_new_decides(read: Callable[[Source], tuple[str, list[str]]]) -> None:
    """What was read here is not read again by Spark; a large log that is read whole is not read here."""
    assert read(Source(SMALL_BYTES)) == ("local", ["local"])
    assert read(Source(SMALL_BYTES + 1)) == ("spark", ["local"])
    assert read(WholeSource(SMALL_BYTES)) == ("local", ["local"])
    assert read(WholeSource(SMALL_BYTES + 1)) == ("spark", ["spark"])


def test_all_rows_of_a_table_that_was_emptied_count(
    read: Callable[[Source], tuple[str, list[str]]],
) -> None:
    """They are compared with what came after, so both sizes count."""
    assert read(Source(1, is_emptied=True, target_bytes=SMALL_BYTES - 1)) == ("local", ["local"])
    assert read(Source(1, is_emptied=True, target_bytes=SMALL_BYTES)) == ("spark", ["local"])
    assert read(Source(1, target_bytes=SMALL_BYTES)) == ("local", ["local"])


def test_a_copy_stays_here_whatever_its_size(read: Callable[[Source], tuple[str, list[str]]]) -> None:
    """It is streamed; unless it replaces rows, which must be compared."""
    assert read(Source(SMALL_BYTES + 1, is_copy=True)) == ("local", ["local"])
    assert read(Source(1, is_copy=True, is_emptied=True, target_bytes=1)) == ("local", ["local"])
    assert read(Source(SMALL_BYTES, is_copy=True, is_emptied=True, target_bytes=1)) == ("spark", ["local"])


def test_what_is_not_reached_is_looked_for_with_sparks_configuration(
    read: Callable[[Source], tuple[str, list[str]]],
) -> None:
    """Once more; what is wrong otherwise starts no Spark."""
    unreachable = InputError("no such bucket")
    unreachable.__cause__ = OSError()
    source = Source(1, fails=unreachable)
    assert read(source) == ("local", ["local", "local"])
    source = Source(1, fails=InputError("a statement changed the table"))
    with pytest.raises(InputError, match="a statement"):
        read(source)
    assert source.readings == ["local"]


def test_the_engine_that_the_caller_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of both; without a word and without a session, this process."""
    monkeypatch.setattr(choice, "active_spark_context", lambda: None)
    local = LocalOptions(threads=1)
    assert engine_for(ListSource([]), None, local) == LocalEngine(local)
    assert engine_for(ListSource([]), None, None) == LocalEngine(LocalOptions())
    with pytest.raises(ConfigurationError, match="select different engines: pass only one of them"):
        engine_for(ListSource([]), object(), local)  # type: ignore[arg-type]
