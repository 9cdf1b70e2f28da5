"""Compaction requests and the status, with a metastore in memory that queues and never compacts."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from metastore_client.model import CompactionInfo, CompactionType, TxnInfo, TxnState
from metastore_client.testing import InMemoryMetastore
from mutation_api.cdc.update.progress_mark import RECENT_KEPT, ProgressMark, Run, ranges_of
from mutation_api.cdc.update.status import status_text, update_status
from mutation_api.cdc.update.status_html import status_page
from mutation_api.errors import CompactionError, ConfigurationError, PartitionCreationError
from mutation_api.upkeep import compact as compact_module
from mutation_api.upkeep.compact import CompactionThreshold, compact_table
from tests.support.shops import Shop
from tests.unit.cdc.update.conftest import COLUMNS, MakeShop


def _filled(make_shop: MakeShop) -> Shop:
    shop = make_shop()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1'), (2, 'coffee', '2')")
    shop.enable()
    shop.extract()
    return shop


def _folded(text: str) -> str:
    return re.sub(" +", " ", text)


def test_g11_fewer_changes_than_the_threshold_are_success(make_shop: MakeShop) -> None:
    """Nothing is asked for."""
    shop = _filled(make_shop)
    report = compact_table(shop.metastore, shop.table, threshold=CompactionThreshold(3))
    assert str(report) == "default.orders: nothing to do, its deltas (2 rows) are below 3 rows"
    assert shop.metastore.show_compactions() == []


def test_g9_g5_a_second_request_waits_for_the_first(make_shop: MakeShop) -> None:
    """The server queues one for a partition, whoever asks; without waiting that is all."""
    shop = _filled(make_shop)
    lines: list[str] = []
    for _ in range(2):
        report = compact_table(
            shop.metastore,
            shop.table,
            threshold=CompactionThreshold(2),
            wait_seconds=None,
            progress=lines.append,
        )
        assert [each.state for each in report.partitions] == ["requested"]
    assert len(shop.metastore.show_compactions()) == 1
    assert lines == [
        "default.orders: requested major compaction",
        "default.orders: waiting for the queued major compaction",
    ]


def test_g8_without_waiting_it_returns_at_once(make_shop: MakeShop) -> None:
    """The compaction is the server's; extraction goes on; whoever wants to know waits later."""
    shop = _filled(make_shop)
    report = compact_table(shop.metastore, shop.table, threshold=CompactionThreshold(1), wait_seconds=None)
    assert ([each.state for each in report.partitions], report.after) == (["requested"], ())
    assert [each.state for each in shop.metastore.show_compactions()] == ["initiated"]
    shop.source.run("INSERT INTO orders VALUES (3, 'water', '3')")
    shop.extract()
    assert len(shop.rows()) == 3


def test_g10_waiting_has_an_end(make_shop: MakeShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says that no worker took it, and what to start."""
    monkeypatch.setattr(compact_module, "POLL_SECONDS", 0.01)
    shop = _filled(make_shop)
    with pytest.raises(CompactionError, match=r"is initiated after .*hive.compactor.worker.threads"):
        compact_table(shop.metastore, shop.table, threshold=CompactionThreshold(1), wait_seconds=0.05)


@pytest.mark.parametrize("is_unneeded", [True, False])
def test_hive_4_refuses_what_would_merge_nothing(
    make_shop: MakeShop, monkeypatch: pytest.MonkeyPatch, *, is_unneeded: bool
) -> None:
    """That is success; another refusal is not."""
    shop = _filled(make_shop)
    metastore, plain = shop.metastore, shop.metastore.show_compactions
    why = "None of the compaction thresholds met, compaction request is refused!" if is_unneeded else "no"

    def refused() -> list[CompactionInfo]:
        return [dataclasses.replace(each, state="refused", error=why) for each in plain()]

    monkeypatch.setattr(metastore, "show_compactions", refused)
    if is_unneeded:
        report = compact_table(metastore, shop.table, threshold=CompactionThreshold(1), wait_seconds=5)
        assert [each.state for each in report.partitions] == ["refused"]
        return
    with pytest.raises(CompactionError, match="compaction refused"):
        compact_table(metastore, shop.table, threshold=CompactionThreshold(1), wait_seconds=5)


def test_a_failure_has_the_server_s_reason(make_shop: MakeShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the worker's name."""
    shop = _filled(make_shop)
    metastore = shop.metastore
    assert isinstance(metastore, InMemoryMetastore)
    plain = metastore.show_compactions

    def failed() -> list[CompactionInfo]:
        return [
            dataclasses.replace(each, state="failed", error="no space left", worker_id="w1")
            for each in plain()
        ]

    monkeypatch.setattr(metastore, "show_compactions", failed)
    with pytest.raises(
        CompactionError, match=r"compaction failed .*The server reports: no space left\. Worker: w1"
    ):
        compact_table(metastore, shop.table, threshold=CompactionThreshold(1), wait_seconds=5)


def test_kinds_and_partitions_are_checked(make_shop: MakeShop) -> None:
    """Before anything is asked for."""
    shop = _filled(make_shop)
    with pytest.raises(ConfigurationError, match="expected one of minor, major, rebalance"):
        compact_table(shop.metastore, shop.table, kind="full")
    with pytest.raises(ConfigurationError, match="does not have the partition day=1"):
        compact_table(shop.metastore, shop.table, partitions=["day=1"])
    assert shop.metastore.show_compactions() == []


def test_g16_g17_the_status_has_every_section(make_shop: MakeShop) -> None:
    """Before the first extraction, and after it."""
    shop = make_shop()
    shop.enable()
    text = _folded(status_text(update_status(shop.metastore, shop.table)))
    assert "Max change position extracted: (none so far)" in text
    shop.extract()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1')")
    shop.extract()
    shop.source.run("DELETE FROM orders")
    status = update_status(shop.metastore, shop.table)
    text = _folded(status_text(status))
    for wanted in (
        "CHANGE EXTRACTION STATUS",
        "CHANGE INGESTION STATUS",
        "COMPACTION STATUS",
        "MISC INFORMATION",
        "OFFLOAD INFORMATION",
        "Max change position extracted: 1",
        "Extraction method: changelog",
        "Changes outstanding: 1",
        "(there is currently no ongoing compaction)",
        "Id columns:",
    ):
        assert wanted in text
    assert {name for kind, name in status.objects if kind != "watermark table"} == {
        name for name in shop.source.objects() if "autoindex" not in name
    }
    found = json.loads(json.dumps(status.to_dict()))
    assert (found["position"], found["outstanding"], found["extraction"]) == ("1", 1, 2)
    assert found["runs"][-1]["inserted"] == 1


def test_g17_the_page_needs_nothing_else(make_shop: MakeShop) -> None:
    """No script, no address; names are escaped; a source that does not answer is shown as such."""
    shop = _filled(make_shop)
    status = update_status(shop.metastore, shop.table)
    page = status_page([dataclasses.replace(status, source_error="<b>gone</b>", waiting=None)], 0.0)
    assert "<script" not in page
    assert not re.search(r'(src|href)="', page)
    assert "&lt;b&gt;gone&lt;/b&gt;" in page
    assert "Deltas by partition" in page
    assert "(prefers-color-scheme: dark)" in page  # a formatter once cut words of the style in two
    assert page.count("<section>") == page.count("</section>") == 1


EVIL = "<img src=x onerror='a' title=\"b\">&"


def _evil(value: Any) -> Any:
    """The same with this text for every text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {each.name: _evil(getattr(value, each.name)) for each in dataclasses.fields(value)}
        return dataclasses.replace(value, **changes)
    if isinstance(value, tuple):
        return type(value)(map(_evil, value)) if type(value) is tuple else value
    return EVIL if type(value) is str else value


def test_no_text_becomes_part_of_the_page(make_shop: MakeShop) -> None:
    """Whoever may write properties of the table, its rows or names of users writes text and nothing else."""
    shop = _filled(make_shop)
    status = update_status(shop.metastore, shop.table)
    compaction = CompactionInfo("default", "orders", "p", CompactionType.MAJOR, "failed", id=1, error="why")
    dead = TxnInfo(1, TxnState.OPEN, "user", "host", "agent")
    status = dataclasses.replace(status, compactions=(compaction,), dead_txns=(dead,))
    page = status_page([_evil(status)], 0.0)
    assert "<img" not in page
    assert page.count("&lt;img src=x onerror=&#39;a&#39; title=&#34;b&#34;&gt;&amp;") > 10


def test_a_source_that_is_gone_is_reported_not_raised(make_shop: MakeShop) -> None:
    """The metastore's half of the status is still worth something."""
    shop = _filled(make_shop)
    shop.source.run("DROP TABLE orders")
    status = update_status(shop.metastore, shop.table)
    assert status.waiting is not None
    assert status.waiting.count == 0
    assert "does not exist" in status.source_error
    assert "update repair --table default.orders" in status_text(status)


def test_what_is_not_captured_is_shown(make_shop: MakeShop) -> None:
    """What happened at the source, and what the next extraction will do about it."""
    shop = _filled(make_shop)
    shop.source.run("ALTER TABLE orders ADD COLUMN note TEXT")
    status = update_status(shop.metastore, shop.table)
    assert "column note was added: the whole table is compared" in status_text(status)
    assert "column note was added" in status_page([status], 0.0)
    assert status.to_dict()["differences"][-1].startswith("column note was added")
    shop.source.run(f"DROP TRIGGER {status.settings.names.capture}_after_update")
    status = update_status(shop.metastore, shop.table)
    assert "does not have the trigger" in status_text(status)


def test_g19_a_row_of_a_partition_that_is_not_loaded_is_refused(make_shop: MakeShop) -> None:
    """If that was chosen; it stays in the log, and is applied when the partition is there."""
    shop = make_shop(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price TEXT)",
        (COLUMNS[0], COLUMNS[1]),
        COLUMNS[2],
    )
    shop.enable(create_partitions=False)
    shop.extract()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1.50')")
    with pytest.raises(PartitionCreationError, match=r"price=1\.5"):
        shop.extract()
    assert shop.rows() == []
    shop.metastore.add_partitions("default", "orders", [["1.5"]])
    shop.extract()
    assert [row["item"] for row in shop.rows()] == ["tea"]


def test_a_mark_remembers_a_bounded_past() -> None:
    """The last runs one by one, days as sums; the text gives the same mark."""
    mark = ProgressMark(0, "0", 0.0)
    for number in range(RECENT_KEPT + 50):
        mark = mark.followed_by(Run(number * 3600.0, 1, 2, 3, 0.5), pending=((1, 2), (5, 5)))
    assert len(mark.recent) == RECENT_KEPT
    assert mark.days[0] == ("1970-01-01", 24, 24, 48, 72)
    assert ProgressMark.of(mark.to_position().text) == mark
    assert mark.to_position().order == (RECENT_KEPT + 50,)


def test_ranges_hold_exactly_the_numbers() -> None:
    """A number between two of them may be of a transaction that is still open."""
    assert ranges_of([]) == ()
    assert ranges_of([1, 2, 3, 5, 7, 8]) == ((1, 3), (5, 5), (7, 8))


def test_page_is_written(make_shop: MakeShop, tmp_path: Path) -> None:
    """A file that a browser opens."""
    shop = _filled(make_shop)
    place = tmp_path / "status.html"
    place.write_text(status_page([update_status(shop.metastore, shop.table)], 0.0), encoding="utf-8")
    assert place.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
