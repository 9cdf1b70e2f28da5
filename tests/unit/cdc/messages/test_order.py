"""The order of a log's operations, and the watermarks of that order."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutation_api.cdc.messages.events import Event, LoggedEvent, Place, PositionSource
from mutation_api.cdc.messages.json_lines import LogFile
from mutation_api.cdc.messages.order import Order, OrderFacts, chosen_order
from mutation_api.cdc.source import Position
from mutation_api.errors import InputFormatError, SourcePositionError
from mutation_api.storage.location import Location

FILES = tuple(LogFile(Location.given(f"/log/{number}.json"), number, 9) for number in (3, 4))
BY_MESSAGE = Order(PositionSource.MESSAGE, "bin")
LINES = Order(PositionSource.LINE, "")


def facts(messages: int, unordered: int = 0, *logs: str, first: Place | None = None) -> OrderFacts:
    return OrderFacts(messages, unordered, first, (7, 4, 0, 3, 120, 1), (3, 120, 1), set(logs))


@pytest.mark.parametrize(
    ("tables", "asked", "expected"),
    [
        ([facts(2, 0, "bin")], PositionSource.AUTO, BY_MESSAGE),
        ([facts(2, 0, "bin")], PositionSource.MESSAGE, BY_MESSAGE),
        ([facts(2, 0, "bin")], PositionSource.LINE, LINES),
        ([facts(2, 2)], PositionSource.AUTO, LINES),
        ([], PositionSource.AUTO, LINES),
        ([facts(1, 0, "bin"), facts(1, 0, "bin")], PositionSource.AUTO, BY_MESSAGE),
    ],
)
def test_what_orders_a_log(tables: list[OrderFacts], asked: PositionSource, expected: Order) -> None:
    """Positions if all messages have them; lines if none has one, or if the user asked for lines."""
    assert chosen_order("debezium:erp", FILES, tables, asked) == expected


def test_logs_without_an_order(tmp_path: Path) -> None:
    """Some messages have a position and others do not; several logs; files of one number."""
    path = tmp_path / "5.json"
    path.write_text("1\n2\n")
    file = LogFile(Location.given(path), 5, 4)
    some = [facts(4, 1, "bin", first=Place(0, 2)), facts(2, 0, "bin")]
    with pytest.raises(InputFormatError, match=r"5\.json, line 2: .*but 5 of 6 messages have one"):
        chosen_order("debezium:erp", [file], some, PositionSource.AUTO)
    several = [facts(2, 0, "bin", "other")]
    with pytest.raises(
        SourcePositionError, match=r"debezium:erp: messages come from several logs.*bin; other"
    ):
        chosen_order("debezium:erp", [file], several, PositionSource.AUTO)
    with pytest.raises(InputFormatError, match="have the same number 5"):
        chosen_order("debezium:erp", [file, file], [facts(2, 2)], PositionSource.AUTO)


def test_positions() -> None:
    """The position in the log, then file, line and step; or these alone."""
    assert BY_MESSAGE.last(facts(1)) == (7, 4, 0, 3, 120, 1)
    assert LINES.last(facts(1)) == (3, 120, 1)
    event = LoggedEvent(Place(1, 60), Event("row", log_position=(7, 4, 0)))
    assert BY_MESSAGE.position_of(event, FILES) == (7, 4, 0, 4, 60, 0)
    assert LINES.position_of(event, FILES) == (4, 60, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the watermark of table t is not from this source: '{'"),
        ('{"seqno": 7}', "not from this source"),
        (
            LINES.described((4, 60, 0)),
            r"in the order of lines, but this log has the order of positions in bin\. Was the",
        ),
        (
            Order(PositionSource.MESSAGE, "old").described((1,)),
            "in the order of positions in old, but this log has the order",
        ),
    ],
)
def test_watermarks_of_another_order(text: str, message: str) -> None:
    """Their numbers cannot be compared."""
    BY_MESSAGE.check_watermarks("debezium:erp", {"t": Position((7,), BY_MESSAGE.described((7,)))})
    with pytest.raises(SourcePositionError, match=message):
        BY_MESSAGE.check_watermarks("debezium:erp", {"t": Position((7,), text)})
