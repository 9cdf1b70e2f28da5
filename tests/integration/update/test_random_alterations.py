"""Random alterations between random changes of rows: after each, Hive equals the source, or was refused."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.errors import (
    CaptureError,
    InputError,
    MutationError,
    RecordLayoutError,
    SourcePositionError,
)
from tests.integration.update.conftest import KINDS
from tests.integration.update.random_alterations import Alteration, Database, database_of
from tests.support.shops import Shop, Source

pytestmark = pytest.mark.slow

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"), ColumnInfo("v", "bigint"))
EXTRA = ColumnInfo("s", "int")
REFUSALS = (CaptureError, RecordLayoutError, SourcePositionError)
STEPS_TO_AGREEMENT = 4


class _Run:
    """A shop, and what was done to it."""

    def __init__(self, source: Source, place: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.database: Database = database_of(source, place)
        source.run(*self.database.create)
        self.metastore = InMemoryMetastore(place / "warehouse", capabilities=HIVE_4_1)
        self.shop = Shop(source, self.metastore, "default", COLUMNS)
        self.names = self.shop.enable().settings.names
        self.shop.extract()
        self.history: list[str] = []
        self.refused = self.equal = 0

    def round(self) -> None:
        """Change rows, alter the table, change rows, extract."""
        source, rng = self.shop.source, self.rng
        source.run(*self.database.random_rows(rng))
        undone_by: tuple[str, ...] = ()
        if rng.random() < 0.15:
            self._back_up_or_restore()
        else:
            alteration = self.database.random_alteration(rng, self.names)
            self.history += alteration.statements
            self._alter(alteration)
            undone_by = alteration.undone_by
        if not undone_by:
            source.run(*self.database.random_rows(rng))
        self._agree(undone_by)

    def _alter(self, alteration: Alteration) -> None:
        """Beside an extraction, or before it. No statement may fail."""
        source = self.shop.source
        if source.kind == "sqlite" or self.rng.random() < 0.6:
            source.run(*alteration.statements)
            return
        failed: list[BaseException] = []

        def work() -> None:
            try:
                source.run(*alteration.statements)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            self.shop.extract()
        except (*REFUSALS, InputError):
            pass  # the table is being altered
        finally:
            thread.join()
        assert not failed, (failed, self.history[-20:])

    def _back_up_or_restore(self) -> None:
        if not self.database.has_backup or self.rng.random() < 0.4:
            self.history.append("-- backup")
            self.database.save()
            self.database.has_backup = True
            self.backup_has_extra = self.database.has_extra
        elif self.backup_has_extra == self.database.has_extra:
            self.history.append("-- restore")
            self.database.restore()

    def _agree(self, undone_by: tuple[str, ...]) -> None:
        """Extract, and follow what a refusal says, until both sides are equal."""
        for _ in range(STEPS_TO_AGREEMENT):
            before = self.shop.rows()
            try:
                self.shop.extract()
            except REFUSALS as error:
                assert self.shop.rows() == before
                self.refused += 1
                undone_by = self._follow(error, undone_by)
                continue
            self.equal += 1
            break
        else:
            raise AssertionError(("no way on", self.history[-20:]))
        names = ", ".join(c.name for c in self.columns)
        expected = self.shop.source.rows(f"SELECT {names} FROM orders")
        found = [tuple(row.values()) for row in self.shop.rows()]
        assert sorted(found, key=str) == sorted(expected, key=str), self.history[-20:]

    def _follow(self, error: MutationError, undone_by: tuple[str, ...]) -> tuple[str, ...]:
        message = str(error)
        if "Hive lacks s" in message:
            info = self.metastore.get_table("default", "orders")
            self.metastore.set_columns("default", "orders", (*info.columns, EXTRA))
            self.database.has_extra = True
        elif undone_by:
            self.shop.source.run(*undone_by)
            return ()
        else:
            assert "update repair --table default.orders" in message
            self.shop.repair()
        return undone_by

    @property
    def columns(self) -> tuple[ColumnInfo, ...]:
        """Those of Hive's table."""
        return (*COLUMNS, EXTRA) if self.database.has_extra else COLUMNS


@pytest.mark.sampled(1)
@pytest.mark.parametrize("source", KINDS, indirect=True)
def test_random_alterations_end_equal_or_are_refused(source: Source, tmp_path: Path) -> None:
    """A few rounds of one seed."""
    run = _Run(source, tmp_path, 3)
    for _ in range(8):
        run.round()
    assert run.equal == 8


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("source", KINDS, indirect=True)
def test_many_random_alterations_end_equal_or_are_refused(source: Source, seed: int, tmp_path: Path) -> None:
    """200 rounds of each kind of source; a new table for each 25, since each round leaves deltas to read."""
    run = _Run(source, tmp_path, seed)
    for _ in range(25):
        run.round()
    assert run.refused
    assert run.equal == 25
