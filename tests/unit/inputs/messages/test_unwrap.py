"""Messages: what a line is, and that a damaged one is never read as something else."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyspark.sql.functions as sf
import pytest
from pyspark.sql import SparkSession

from mutation_api.inputs.messages.canal import CanalFormat
from mutation_api.inputs.messages.debezium import DebeziumFormat
from mutation_api.inputs.messages.events import MessageFormat
from mutation_api.inputs.messages.json_lines import line_number, log_files
from mutation_api.inputs.messages.log_options import Positions
from mutation_api.inputs.messages.maxwell import MaxwellFormat
from mutation_api.inputs.messages.unwrap import log_events
from tests.support.json_messages import CHANGES, canal, debezium, maxwell, write_log

pytestmark = pytest.mark.slow

SEED = 20240601

Writer = Callable[..., str]
FORMATS: Sequence[tuple[MessageFormat, Writer]] = (
    (MaxwellFormat(), maxwell),
    (CanalFormat(), canal),
    (DebeziumFormat(), debezium),
)


def looked(spark: SparkSession, message_format: MessageFormat, folder: Path) -> dict[int, Any]:
    """Events by the number of their line."""
    files = log_files([folder])
    events = log_events(spark, files, message_format, Positions.AUTO)
    texts = events.withColumns({"rows": sf.to_json("rows"), "key": sf.to_json("key")})
    return {line_number(files[each.file].location, each.offset): each for each in texts.collect()}


@pytest.mark.parametrize(("message_format", "writer"), FORMATS)
def test_damaged_lines_are_never_read_as_something_else(
    spark: SparkSession, tmp_path: Path, message_format: MessageFormat, writer: Writer
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
    found = looked(spark, message_format, write_log(tmp_path, [whole, *damaged]))
    original = found[1]
    assert original.problem is None
    parts = ("kind", "table", "op", "log_position", "key", "rows")
    for number, line in enumerate(damaged, start=2):
        event = found[number]
        same = all(event[part] == original[part] for part in parts)
        assert event.problem is not None or same, line
    assert sum(found[number].problem is not None for number in found) > len(damaged) * 0.9
