"""OpenedLog: a log of messages at the moment when a run reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mutation_api.inputs.messages.unwrap import MessageLog
from mutation_api.inputs.source import Position

__all__ = ["OpenedLog"]


@dataclass(frozen=True)
class OpenedLog:
    """A log, and what its place knows of positions.

    ``log``: the messages. ``after``: watermarks with which operations are still to be compared, by the
    source's name of a table. ``end``: the position that is reached when all messages are applied; None if it
    is that of the last operation. ``marks``: all watermarks, by the source's name of a table.
    """

    log: MessageLog
    after: Mapping[str, Position]
    end: Position | None = None
    marks: Mapping[str, Position] = field(default_factory=dict)
