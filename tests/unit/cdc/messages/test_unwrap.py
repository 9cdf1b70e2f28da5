"""Messages: what a line is, and that a damaged one is never read as something else."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mutation_api.cdc.messages.canal import CanalFormat
from mutation_api.cdc.messages.debezium import DebeziumFormat
from mutation_api.cdc.messages.events import Event, MessageFormat, PositionSource
from mutation_api.cdc.messages.maxwell import MaxwellFormat
from tests.support.json_messages import CHANGES, canal, debezium, events_of, maxwell, write_log

SEED = 20240601

Writer = Callable[..., str]
FORMATS: Sequence[tuple[MessageFormat, Writer]] = (
    (MaxwellFormat(), maxwell),
    (CanalFormat(), canal),
    (DebeziumFormat(), debezium),
)


def content(event: Event) -> tuple[Any, ...]:
    """What an event says, numbers told from texts."""
    rows = [(typed(images.before), typed(images.after)) for images in event.rows]
    return (event.kind, event.table, event.op, event.log_position, typed(event.key), rows)


def typed(value: Any) -> Any:
    """A JSON value, with the class of each part."""
    if isinstance(value, dict):
        return {name: typed(each) for name, each in value.items()}
    return [typed(each) for each in value] if isinstance(value, list) else (value.__class__, value)


@pytest.mark.parametrize(("message_format", "writer"), FORMATS)
def test_damaged_lines_are_never_read_as_something_else(
    tmp_path: Path, message_format: MessageFormat, writer: Writer
) -> None:
    """Cut anywhere, joined with another, a mark of JSON lost or doubled, bytes of no character: refused.

    A line that still is a message equals the original one, or has a problem.
    """
    chance = random.Random(SEED)
    whole = writer(CHANGES[2]).encode()
    structure = rb'"(?:[^"\\]|\\.)*"|([{}\[\],:\t])'
    marks = [match.start(1) for match in re.finditer(structure, whole) if match[1]]
    marks += [i for i, byte in enumerate(whole) if byte == ord('"')]
    damaged = [whole[:cut] for cut in sorted(chance.sample(range(1, len(whole)), 40))]
    for _ in range(40):
        at = chance.choice(marks)
        damaged += [whole[:at] + whole[at + 1 :], whole[: at + 1] + whole[at:]]
        at = chance.randrange(len(whole))
        damaged.append(whole[:at] + bytes([chance.randrange(0x80, 0x100)]) + whole[at + 1 :])
    damaged += [whole + whole, whole + b" " + whole, whole + b"," + whole, whole + b"]", whole + b"]}", b"{}"]
    damaged += [b"[]", b"1", b'"x"', b"x", b"[" + whole + b"]", whole + b',"\\u0001end of line"]']
    found = events_of(write_log(tmp_path, [whole, *damaged]), message_format, PositionSource.AUTO)
    original = found[1]
    assert original.problem is None
    for number, line in enumerate(damaged, start=2):
        event = found[number]
        assert event.problem is not None or content(event) == content(original), line
    assert sum(found[number].problem is not None for number in found) > len(damaged) * 0.9
