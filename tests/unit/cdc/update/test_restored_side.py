"""A source or a target that was restored from an older backup: noticed, refused, with how to go on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mutation_api.cdc.update.progress_mark import ProgressMark
from mutation_api.cdc.update.source_rows import check_bound, is_acknowledged
from mutation_api.errors import SourcePositionError
from tests.support.shops import Shop, SqliteSource
from tests.unit.cdc.update.conftest import MakeShop


def _followed(make_shop: MakeShop) -> tuple[Shop, str]:
    """A table with one row, extracted twice; and the name of its log."""
    shop = make_shop()
    log = shop.enable().settings.names.log
    shop.extract()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1')")
    shop.extract()
    return shop, log


def _path(shop: Shop) -> Path:
    assert isinstance(shop.source, SqliteSource)
    return shop.source.path


@pytest.mark.thorough
@pytest.mark.parametrize("later", [[], ["INSERT INTO orders VALUES (7, 'new', '7'), (8, 'new', '8')"]])
def test_a_restored_source_is_refused(make_shop: MakeShop, tmp_path: Path, later: list[str]) -> None:
    """Whether its log is empty, or gives numbers a second time; what is advised makes both sides equal."""
    shop, _ = _followed(make_shop)
    backup = Path(shutil.copy(_path(shop), tmp_path / "backup"))
    for number in (2, 3):
        shop.source.run(f"INSERT INTO orders VALUES ({number}, 'lost', '1')")
        shop.extract()
    shutil.copy(backup, _path(shop))
    shop.source.run(*later)
    rows = shop.rows()
    with pytest.raises(SourcePositionError, match=r"has applied extraction 4, but the last one .* log is 2"):
        shop.extract()
    assert shop.rows() == rows
    shop.disable(discard=True)
    shop.enable()
    shop.extract()
    assert [row["id"] for row in shop.rows()] == [row[0] for row in shop.source.rows("SELECT id FROM orders")]


@pytest.mark.thorough
def test_a_source_restored_to_shortly_before_is_compared(make_shop: MakeShop, tmp_path: Path) -> None:
    """Numbers of the log are given a second time, so it is not the log of the last extraction."""
    shop, _ = _followed(make_shop)
    backup = Path(shutil.copy(_path(shop), tmp_path / "backup"))
    shop.source.run("INSERT INTO orders VALUES (2, 'lost', '1')")
    shop.extract()
    shutil.copy(backup, _path(shop))
    shop.source.run("INSERT INTO orders VALUES (3, 'new', '3')")
    assert shop.extract().ingested.position is not None
    shop.source.run("INSERT INTO orders VALUES (4, 'new', '4')")
    shop.extract()
    assert sorted(row["id"] for row in shop.rows()) == [1, 3, 4]


def test_a_restored_target_is_refused(make_shop: MakeShop) -> None:
    """The source has removed log rows that this target never had."""
    shop, log = _followed(make_shop)
    shop.source.run(f"UPDATE {log} SET hm_sequence = -9")
    with pytest.raises(SourcePositionError, match="The table in Hive seems to have been restored"):
        shop.extract()


def test_a_source_without_its_log_is_refused(make_shop: MakeShop) -> None:
    """It may be restored from before it was enabled."""
    shop, log = _followed(make_shop)
    shop.source.run(f"DROP TABLE {log}")
    with pytest.raises(SourcePositionError, match=f"no longer has the table {log}"):
        shop.extract()
    shop.disable(discard=True)
    assert shop.source.objects() == []


def test_positions_that_belong_together() -> None:
    """The same number; the one before, when the run was killed between commit and removal; no others."""
    mark = ProgressMark(3, "9", 0.0, bound="1000")
    assert is_acknowledged(3, mark, "x", "sales.orders")
    assert not is_acknowledged(2, mark, "x", "sales.orders")
    assert not is_acknowledged(None, ProgressMark(1, "0", 0.0), "x", "sales.orders")
    for receipt in (None, 1, 4):
        with pytest.raises(SourcePositionError, match=r"x: .*update repair --table sales.orders"):
            is_acknowledged(receipt, mark, "x", "sales.orders")
    check_bound(mark, "1000", "x")
    with pytest.raises(SourcePositionError, match="transaction 1000, but the source is at 999"):
        check_bound(mark, "999", "x")


def test_a_source_restored_from_before_the_first_copy_is_compared(
    make_shop: MakeShop, tmp_path: Path
) -> None:
    """Only the missing receipt shows it, and that may be a run that was stopped; so both are compared."""
    shop = make_shop()
    shop.enable()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1')")
    backup = Path(shutil.copy(_path(shop), tmp_path / "backup"))
    shop.source.run("DELETE FROM orders", "INSERT INTO orders VALUES (2, 'lost', '1')")
    shop.extract()
    shutil.copy(backup, _path(shop))
    shop.extract()
    assert [row["id"] for row in shop.rows()] == [1]
    assert shop.extract().ingested.position is None


@pytest.mark.thorough
@pytest.mark.parametrize("side", ["source", "log"])
def test_a_repair_is_the_way_on(make_shop: MakeShop, tmp_path: Path, side: str) -> None:
    """After a restored source, and after the log was dropped."""
    shop, log = _followed(make_shop)
    backup = Path(shutil.copy(_path(shop), tmp_path / "backup"))
    for number in (2, 3):
        shop.source.run(f"INSERT INTO orders VALUES ({number}, 'lost', '1')")
        shop.extract()
    if side == "source":
        shutil.copy(backup, _path(shop))
    else:
        shop.source.run(f"DROP TABLE {log}")
    with pytest.raises(SourcePositionError, match=r"update repair --table default\.orders"):
        shop.extract()
    assert "CREATE TABLE" in str(shop.repair(dry_run=True))
    shop.repair()
    shop.source.run("INSERT INTO orders VALUES (9, 'new', '9')")
    report = shop.extract()
    assert "a repair" in str(report)
    assert [row["id"] for row in shop.rows()] == [row[0] for row in shop.source.rows("SELECT id FROM orders")]
    shop.repair()
    shop.repair()
    shop.extract()
    assert shop.extract().ingested.position is None
