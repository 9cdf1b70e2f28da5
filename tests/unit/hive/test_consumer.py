"""A consumer goes on where it committed: by itself, or in the transaction of its own writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.cdc import list_watermarks
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_OK, EXIT_USAGE
from mutation_api.errors import ConfigurationError, SourcePositionError, TransactionStateError
from mutation_api.hive.change_feed import ChangeFeed
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive

LINES = {"2.3": HIVE_2_3, "3.1": HIVE_3_1, "4.1": HIVE_4_1}
ORDERS, ITEMS, COPIES = "default.orders", "default.items", "default.copies"
MARKS = "default.mutation_watermarks"


@pytest.fixture(params=LINES)
def hive(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Two tables, and one of the consumer."""
    metastore = InMemoryMetastore(tmp_path, capabilities=LINES[request.param])
    with connect(metastore) as connected:
        for name in (ORDERS, ITEMS, COPIES):
            split = {"transactional_properties": "default"}
            connected.create_table(name, "id bigint", clustered_by=["id"], num_buckets=1, properties=split)
        yield connected


def add(hive: Hive, number: int, *names: str) -> None:
    """A transaction that adds a row to tables."""
    with hive.transaction(*names) as tx:
        for name in names:
            tx.table(name).append(pa.table({"id": [number]}))


def feed_of(hive: Hive, since: Any = None, name: str = "index", **options: Any) -> ChangeFeed:
    return hive.changes(ORDERS, ITEMS, since=since, consumer=name, **options)


def ids(transaction: Any, name: str = ORDERS) -> list[int]:
    found: list[int] = transaction.tables[name].to_arrow()["id"].to_pylist()
    return found


def rows(hive: Hive, name: str) -> list[int]:
    with hive.snapshot(name) as view:
        found: list[int] = view.table(name).scan().to_arrow()["id"].to_pylist()
        return sorted(found)


@pytest.mark.thorough
def test_it_goes_on_where_it_committed(hive: Hive) -> None:
    """What it has read without a commit comes again; only the first feed uses since."""
    add(hive, 1, ORDERS, ITEMS)
    for _ in range(2):
        with feed_of(hive, "beginning") as feed:
            (first,) = feed
            assert first.is_snapshot and ids(first) == [1]
    with feed_of(hive) as feed:
        assert len(list(feed)) == 1
        feed.commit()
    add(hive, 2, ORDERS)
    add(hive, 3, ORDERS, ITEMS)
    with feed_of(hive, "beginning") as feed:
        found = iter(feed)
        assert ids(next(found)) == [2]
        feed.commit()
        assert ids(next(found)) == [3]
    with feed_of(hive) as feed:
        (last,) = feed
        assert ids(last) == ids(last, ITEMS) == [3]
    marks = list_watermarks(hive.metastore, MARKS, source_id="consumer:index")
    assert [each.target for each in marks] == [ITEMS, ORDERS]
    assert [*json.loads(marks[1].text)["tables"]] == [ORDERS]
    assert feed.watermark_table == MARKS


def test_the_first_use_keeps_the_beginning(hive: Hive) -> None:
    """A consumer that ends before its first commit misses nothing that came after its first feed."""
    with feed_of(hive, "now") as feed:
        assert list(feed) == []
    add(hive, 1, ORDERS)
    with feed_of(hive, "now") as feed:
        (only,) = feed
    assert ids(only) == [1]


@pytest.mark.long
def test_it_moves_in_the_transaction_of_its_own_writes(hive: Hive) -> None:
    """Both are committed, or neither."""
    with feed_of(hive, "now"):
        pass
    for number in (1, 2, 3):
        add(hive, number, ORDERS)
    with feed_of(hive) as feed:
        found = iter(feed)
        for number in (1, 2):
            transaction = next(found)
            try:
                with hive.transaction(COPIES, feed.watermark_table) as tx:
                    tx.table(COPIES).append(pa.table({"id": ids(transaction)}))
                    feed.commit(tx)
                    assert ids(transaction) == [number]
                    assert 1 / (2 - number)
            except ZeroDivisionError:
                pass
    assert rows(hive, COPIES) == [1]
    with feed_of(hive) as feed:
        for transaction in feed:
            with hive.transaction(COPIES, feed.watermark_table) as tx:
                tx.table(COPIES).append(pa.table({"id": ids(transaction)}))
                feed.commit(tx)
    assert rows(hive, COPIES) == rows(hive, ORDERS)
    with hive.transaction(COPIES) as tx, pytest.raises(ConfigurationError, match="mutation_watermarks"):
        feed.commit(tx)


@pytest.mark.thorough
def test_a_second_run_is_refused(hive: Hive) -> None:
    """Of two runs of one consumer, the one that commits later; of two consumers, none."""
    with feed_of(hive, "now"), feed_of(hive, "now", "other"):
        pass
    add(hive, 1, ORDERS)
    with feed_of(hive) as one, feed_of(hive) as two, feed_of(hive, name="other") as other:
        for feed in (one, two, other):
            assert len(list(feed)) == 1
        one.commit()
        other.commit()
        with pytest.raises(SourcePositionError, match="another run has moved its position"):
            two.commit()
        one.commit()


def test_what_is_refused(hive: Hive) -> None:
    """With the reason."""
    with pytest.raises(ConfigurationError, match="no position in default"), feed_of(hive):
        pass
    with hive.changes(ORDERS, since="now", consumer="index"):
        pass
    with pytest.raises(ConfigurationError, match="no position of table"), feed_of(hive):
        pass
    with hive.changes(ORDERS, since="now") as feed, pytest.raises(TransactionStateError, match="no consumer"):
        feed.commit()
    with pytest.raises(ConfigurationError, match="expected a name"):
        feed_of(hive, "now", "")
    with pytest.raises(ConfigurationError, match="several databases"):
        hive.changes(ORDERS, "other.t", since="now", consumer="index")
    with (
        pytest.raises(ConfigurationError, match="not a watermark table"),
        feed_of(hive, "now", watermark_table=COPIES),
    ):
        pass
    with pytest.raises(ConfigurationError, match="since is required"), hive.changes(ORDERS):
        pass


@pytest.mark.long
def test_it_is_listed_and_removed(
    hive: Hive, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command; afterwards it begins again, and others are left."""
    for module in ("changes", "watermarks"):
        monkeypatch.setattr(f"mutation_api.cli.{module}.metastore_from", lambda _: _Open(hive))
    add(hive, 1, ORDERS)
    words = ["changes", ORDERS, "--consumer", "index"]
    assert main([*words, "--since", "beginning"]) == EXIT_OK
    assert main(words) == EXIT_OK
    assert capsys.readouterr().out.count('"insert"') == 1
    with feed_of(hive, "now", "other"):
        pass
    marks = ["watermarks", "--table", ORDERS, "--source", "consumer:index"]
    assert main([*marks, "--remove", "--json"]) == EXIT_OK
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["source"] == "consumer:index"
    assert [each.source_id for each in list_watermarks(hive.metastore, MARKS, target=ORDERS)] == [
        "consumer:other"
    ]
    assert main([*words, "--since", "beginning"]) == EXIT_OK
    assert capsys.readouterr().out.count('"insert"') == 1
    for wrong in (["watermarks", "--table", ORDERS, "--remove"], [*words, "--position-file", "x"]):
        with pytest.raises(SystemExit) as caught:
            main(wrong)
        assert caught.value.code == EXIT_USAGE


class _Open:
    """The metastore of a connection, which the command does not close."""

    def __init__(self, hive: Hive) -> None:
        self._hive = hive

    def __enter__(self) -> Any:
        return self._hive.metastore

    def __exit__(self, *_: object) -> None:
        pass
