"""The offsets between which a run reads the partitions, and the checks for continuing topics. Pure.

The watermark of a table has the offset of the next message for each partition of each topic, and the ids that
distinguish a topic from another one of the same name. All tables of a run get the same watermark. Its order
is one number, the sum of these offsets, which can only increase.

Offsets have gaps: transaction markers, messages of aborted transactions, and messages that compaction
removed. A gap is therefore not an error. Messages are lost if the log begins after the watermark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mutation_api.cdc.source import Position
from mutation_api.errors import SourcePositionError

BY = "kafka"

_START_OVER = (
    "Nothing was written. To continue, copy the table again (for example, with a snapshot by the "
    "connector) and read it under another source name"
)


@dataclass(frozen=True)
class KafkaPartition:
    """A partition as part of a log; ``number`` is its index in the log, ``count`` its topic's partitions."""

    topic: str
    partition: int
    number: int
    count: int

    @property
    def name(self) -> str:
        """The name of the partition, for messages."""
        return f"topic {self.topic}, partition {self.partition}"

    def shown(self, offset: int, field: str | None = None) -> str:
        """Return the name of an offset, for messages."""
        return f"{self.name}, offset {offset}" + (f", field {field}" if field else "")


@dataclass(frozen=True)
class TopicState:
    """A topic as its brokers describe it, with one number for each partition.

    ``topic_id`` is empty if the brokers are too old to have ids. ``firsts``: the first offset that still
    exists. ``ends``: the offset after the last message whose transaction has ended.
    """

    name: str
    topic_id: str
    firsts: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True)
class TopicMark:
    """A topic in a watermark; ``nexts``: the offset of the next message of each partition."""

    topic_id: str
    nexts: tuple[int, ...]


@dataclass(frozen=True)
class KafkaMark:
    """A watermark; ``cluster`` is the cluster's id, ``topics`` has the topics by name."""

    cluster: str
    topics: Mapping[str, TopicMark]

    @classmethod
    def of(cls, position: Position) -> KafkaMark | None:
        """Parse the watermark in a position; return None if another kind of source wrote it."""
        try:
            text = json.loads(position.text)
            if text["by"] != BY:
                return None
            topics = {
                name: TopicMark(each["id"], tuple(map(int, each["next"])))
                for name, each in text["topics"].items()
            }
            return cls(text["cluster"], topics)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def to_position(self) -> Position:
        """Return the position of this watermark."""
        topics = {name: {"id": each.topic_id, "next": list(each.nexts)} for name, each in self.topics.items()}
        total = sum(sum(each.nexts) for each in self.topics.values())
        return Position((total,), json.dumps({"by": BY, "cluster": self.cluster, "topics": topics}))


@dataclass(frozen=True)
class ReadingPlan:
    """The offsets that a run reads; all sequences have one element for each partition.

    ``starts``: by table, the offset of the first message that was not applied to it. ``firsts``: the offset
    at which reading begins. ``ends``: the offset before which it ends. ``is_continued``: True if the offset
    comes from a watermark. ``end``: the position that is reached, or None if there is nothing new. ``added``:
    partitions that are missing from the watermarks.
    """

    partitions: tuple[KafkaPartition, ...]
    starts: Mapping[str, tuple[int, ...]]
    firsts: tuple[int, ...]
    ends: tuple[int, ...]
    is_continued: tuple[bool, ...]
    end: Position | None
    added: tuple[KafkaPartition, ...]


def reading_plan(
    source_id: str,
    cluster: str,
    topics: Sequence[TopicState],
    tables: Sequence[str],
    after: Mapping[str, Position],
    first_starts: Mapping[str, Sequence[int]],
) -> ReadingPlan:
    """Plan a run.

    Args:
        source_id: name of the source in messages.
        cluster: id of the cluster.
        topics: the topics.
        tables: the source's names of the tables.
        after: the watermarks, by table.
        first_starts: by topic, where each partition begins for a table without a watermark.

    Raises:
        SourcePositionError: If a watermark belongs to another source or cluster. Also if a topic was deleted
            and created again, has fewer partitions, lost messages, or is missing from ``topics``.
    """
    partitions = _partitions(topics)
    marks = {table: _mark(source_id, table, after[table]) for table in tables if table in after}
    for table, mark in marks.items():
        _check(f"{source_id}, table {table}", cluster, mark, topics)
    starts = {table: _starts(topics, marks.get(table), first_starts) for table in tables}
    firsts = tuple(map(min, zip(*starts.values(), strict=True)))
    ends = tuple(end for topic in topics for end in topic.ends)
    end = KafkaMark(cluster, {t.name: TopicMark(t.topic_id, t.ends) for t in topics})
    is_same = len(marks) == len(tables) and all(mark == end for mark in marks.values())
    known = [_is_known(each, mark) for mark in marks.values() for each in partitions]
    is_continued = tuple(any(known[number :: len(partitions)]) for number in range(len(partitions)))
    new_topics = {topic.name for topic in topics if not any(topic.name in m.topics for m in marks.values())}
    added = tuple(
        each
        for each, is_known in zip(partitions, is_continued, strict=True)
        if marks and not is_known and each.topic not in new_topics
    )
    return ReadingPlan(
        partitions, starts, firsts, ends, is_continued, None if is_same else end.to_position(), added
    )


def check_same(source_id: str, before: Sequence[TopicState], behind: Sequence[TopicState]) -> None:
    """Raise SourcePositionError if a topic was deleted and created again between two descriptions of it."""
    for old, new in zip(before, behind, strict=True):
        if old.topic_id != new.topic_id or any(map(int.__gt__, old.ends, new.ends)):
            raise SourcePositionError(
                f"{source_id}, topic {old.name}: it was deleted and created again while it was read. Nothing "
                "was written; run again"
            )


def _partitions(topics: Sequence[TopicState]) -> tuple[KafkaPartition, ...]:
    places = [(topic, number) for topic in topics for number in range(len(topic.ends))]
    return tuple(
        KafkaPartition(topic.name, number, index, len(topic.ends))
        for index, (topic, number) in enumerate(places)
    )


def _mark(source_id: str, table: str, position: Position) -> KafkaMark:
    mark = KafkaMark.of(position)
    if mark is None:
        raise SourcePositionError(
            f"{source_id}: the watermark of table {table} was not written by a Kafka source: "
            f"{position.text!r}. Use different source names for topics and for files"
        )
    return mark


def _is_known(partition: KafkaPartition, mark: KafkaMark) -> bool:
    topic = mark.topics.get(partition.topic)
    return topic is not None and partition.partition < len(topic.nexts)


def _starts(
    topics: Sequence[TopicState], mark: KafkaMark | None, first_starts: Mapping[str, Sequence[int]]
) -> tuple[int, ...]:
    """Return where each partition begins for a table."""
    starts: list[int] = []
    for topic in topics:
        if mark is None:
            starts += first_starts[topic.name]
        elif topic.name not in mark.topics:  # added to the topics of the source
            starts += topic.firsts
        else:
            nexts = mark.topics[topic.name].nexts
            starts += (*nexts, *topic.firsts[len(nexts) :])
    return tuple(starts)


def _check(what: str, cluster: str, mark: KafkaMark, topics: Sequence[TopicState]) -> None:
    """Raise SourcePositionError if topics cannot be read from a watermark on."""
    if mark.cluster != cluster:
        raise SourcePositionError(
            f"{what}: it was read from the Kafka cluster {mark.cluster}, but these brokers belong to "
            f"{cluster}, where its offsets have no meaning. {_START_OVER}"
        )
    states = {topic.name: topic for topic in topics}
    unread = sorted(mark.topics.keys() - states.keys())
    if unread:
        raise SourcePositionError(
            f"{what}: until now it was read from the topics {', '.join(sorted(mark.topics))}, but "
            f"{', '.join(unread)} is missing from this run. List all topics, or use another source name"
        )
    for name, known in mark.topics.items():
        _check_topic(f"{what}, topic {name}", known, states[name])


def _check_topic(what: str, known: TopicMark, now: TopicState) -> None:
    if known.topic_id and now.topic_id and known.topic_id != now.topic_id:
        raise SourcePositionError(
            f"{what}: it was deleted and created again: its id is {now.topic_id}, and was {known.topic_id}. "
            f"Unread messages are lost. {_START_OVER}"
        )
    if len(now.ends) < len(known.nexts):
        raise SourcePositionError(
            f"{what}: it has {len(now.ends)} partitions, but had {len(known.nexts)}. Was it deleted and "
            f"created again? {_START_OVER}"
        )
    for number, offset in enumerate(known.nexts):
        if offset > now.ends[number]:
            raise SourcePositionError(
                f"{what}, partition {number}: it was read up to offset {offset}, but ends at "
                f"{now.ends[number]}. Was the topic created again, or did its brokers lose messages? "
                f"{_START_OVER}"
            )
        if offset < now.firsts[number]:
            raise SourcePositionError(
                f"{what}, partition {number}: it was read up to offset {offset}, but begins at "
                f"{now.firsts[number]}: the messages in between were deleted before they were read "
                f"(retention). {_START_OVER}. Keep messages longer (retention.ms), or read more often"
            )
    for number in range(len(known.nexts), len(now.ends)):
        if now.firsts[number]:
            raise SourcePositionError(
                f"{what}, partition {number}: it was added since the last run, but begins at offset "
                f"{now.firsts[number]}: messages were deleted before they were read (retention). "
                f"{_START_OVER}"
            )
