"""From where to where a run reads topics, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mutation_api.cdc.kafka.offsets import KafkaMark, TopicMark, TopicState, check_same, reading_plan
from mutation_api.cdc.source import Position
from mutation_api.errors import SourcePositionError

A = TopicState("a", "id-a", (0, 0), (4, 7))
B = TopicState("b", "id-b", (3,), (5,))
FIRST: Mapping[str, tuple[int, ...]] = {"a": A.firsts, "b": B.firsts}


def mark(cluster: str = "c1", **topics: tuple[str, tuple[int, ...]]) -> Position:
    """A watermark."""
    return KafkaMark(cluster, {name: TopicMark(*each) for name, each in topics.items()}).to_position()


def test_a_mark_is_read_as_it_was_written() -> None:
    found = KafkaMark("c1", {"a": TopicMark("id-a", (4, 7)), "b": TopicMark("", (5,))})
    position = found.to_position()
    assert KafkaMark.of(position) == found
    assert position.order == (16,)
    assert json.loads(position.text) == {
        "by": "kafka",
        "cluster": "c1",
        "topics": {"a": {"id": "id-a", "next": [4, 7]}, "b": {"id": "", "next": [5]}},
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"by": "line", "log": "", "at": [1, 2, 3]}',
        '{"by": "kafka"}',
        '{"by": "kafka", "topics": 1}',
    ],
)
def test_another_sources_watermark_is_none(text: str) -> None:
    assert KafkaMark.of(Position((1,), text)) is None
    with pytest.raises(SourcePositionError, match="was not written by a Kafka source"):
        reading_plan("s:x", "c1", [A], ["t"], {"t": Position((1,), text)}, {})


def test_a_first_run_reads_all_and_has_a_position_even_if_nothing_is_there() -> None:
    plan = reading_plan("s:x", "c1", [A, B], ["t"], {}, FIRST)
    assert (plan.firsts, plan.ends, plan.is_continued) == ((0, 0, 3), (4, 7, 5), (False,) * 3)
    assert [each.shown(9, "f") for each in plan.partitions][2] == "topic b, partition 0, offset 9, field f"
    assert plan.end == mark(a=("id-a", (4, 7)), b=("id-b", (5,)))
    empty = TopicState("a", "id-a", (2,), (2,))
    assert reading_plan("s:x", "c1", [empty], ["t"], {}, {"a": (2,)}).end == mark(a=("id-a", (2,)))


def test_a_run_goes_on_from_the_watermark_of_each_table() -> None:
    after = {"t": mark(a=("id-a", (1, 7))), "u": mark(a=("id-a", (4, 2)))}
    plan = reading_plan("s:x", "c1", [A], ["t", "u", "new"], after, {"a": (3, 3)})
    assert plan.starts == {"t": (1, 7), "u": (4, 2), "new": (3, 3)}
    assert plan.firsts == (1, 2)
    assert plan.is_continued == (True, True)
    same = mark(a=("id-a", (4, 7)))
    assert reading_plan("s:x", "c1", [A], ["t"], {"t": same}, {}).end is None
    assert reading_plan("s:x", "c1", [A], ["t", "new"], {"t": same}, {"a": (0, 0)}).end == same


def test_partitions_and_topics_that_were_added_are_read_from_their_beginning() -> None:
    plan = reading_plan("s:x", "c1", [A, B], ["t"], {"t": mark(a=("id-a", (2,)))}, {})
    assert plan.starts["t"] == (2, 0, 3)
    assert [each.name for each in plan.added] == ["topic a, partition 1"]
    assert plan.is_continued == (True, False, False)


@pytest.mark.parametrize(
    ("known", "now", "said"),
    [
        (mark("c2", a=("id-a", (0, 0))), [A], "from the Kafka cluster c2, but these brokers belong to c1"),
        (
            mark(a=("old", (0, 0))),
            [A],
            "topic a: it was deleted and created again: its id is id-a, and was old",
        ),
        (mark(a=("id-a", (0, 0, 0))), [A], "it has 2 partitions, but had 3"),
        (mark(a=("id-a", (4, 8))), [A], "partition 1: it was read up to offset 8, but ends at 7"),
        (mark(b=("id-b", (2,))), [B], "partition 0: it was read up to offset 2, but begins at 3"),
        (
            mark(a=("id-a", (1, 1)), b=("id-b", (5,))),
            [A],
            "topics a, b, but b is missing from this run",
        ),
        (mark(a=("", (9, 9))), [A], "partition 0: it was read up to offset 9, but ends at 4"),
        (
            mark(a=("id-a", (4,))),
            [TopicState("a", "id-a", (0, 1), (4, 7))],
            "partition 1: it was added since the last run, but begins at offset 1",
        ),
    ],
)
def test_what_cannot_be_continued_is_refused(known: Position, now: Any, said: str) -> None:
    with pytest.raises(SourcePositionError, match=said) as caught:
        reading_plan("s:x", "c1", now, ["t"], {"t": known}, {})
    assert str(caught.value).startswith("s:x, table t")
    assert "another source name" in str(caught.value) or "List all topics" in str(caught.value)


def test_the_position_never_goes_back_while_topics_grow() -> None:
    """A watermark that lies before the one of the table is refused by its order, a number."""
    before = reading_plan("s:x", "c1", [A], ["t"], {}, FIRST).end
    assert before is not None
    grown = TopicState("a", "id-a", (0, 0, 0), (4, 9, 1))
    behind = reading_plan("s:x", "c1", [grown, B], ["t"], {"t": before}, {}).end
    assert behind is not None
    assert behind.order > before.order
    assert len(behind.order) == len(before.order)


def test_a_topic_made_anew_while_it_is_read_is_noticed() -> None:
    check_same("s:x", [A], [TopicState("a", "id-a", (1, 0), (5, 7))])
    for other in (TopicState("a", "new", (0, 0), (4, 7)), TopicState("a", "id-a", (0, 0), (3, 7))):
        with pytest.raises(SourcePositionError, match="created again while it was read"):
            check_same("s:x", [A], [other])
