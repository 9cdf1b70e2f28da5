"""From lines to messages: wrappers are removed, and lines that are not messages are reported.

What a line holds: see :mod:`~mutation_api.inputs.messages.printed_lines`. Blank lines are left out, and so
are messages that are null (tombstones), unless they are the deletes of a log of flattened messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from mutation_api.errors import InputFormatError
from mutation_api.inputs.messages.avro_schema import AvroError
from mutation_api.inputs.messages.events import Event, LoggedEvent, LogPart, MessageFormat, Place, Problem
from mutation_api.inputs.messages.followed_tables import FollowedTables
from mutation_api.inputs.messages.json_lines import LogFile, LogRange, read_lines
from mutation_api.inputs.messages.json_text import MessageParser
from mutation_api.inputs.messages.log_options import Positions
from mutation_api.inputs.messages.printed_lines import LineError, message_of

__all__ = ["MessageLog"]

_BLANKS = " \t\r\n"

_NO_TEXT = Event("damaged", problem=Problem(InputFormatError, None, "the line is not UTF-8"))
_NO_JSON = Event(
    "damaged",
    problem=Problem(
        InputFormatError,
        None,
        "the line is not one whole JSON message; is it cut off or spread over lines, are two of them on it, "
        "or has an object two fields of one name?",
    ),
)


@dataclass(frozen=True)
class MessageLog:
    """A log's files and their format; pickled for tasks.

    ``files`` are the parts in which messages have an order. ``ranges`` are parts of the files that are read,
    see :func:`~mutation_api.inputs.messages.json_lines.log_ranges`. ``positions``: what orders operations.
    ``followed``: gives tables the names under which they are followed; None leaves those of the messages.
    """

    files: tuple[LogPart, ...]
    ranges: tuple[LogRange, ...]
    format: MessageFormat
    positions: Positions
    followed: FollowedTables | None = field(default=None, kw_only=True)

    @property
    def read_files(self) -> tuple[LogFile, ...]:
        """The files that are read, to whose indices the ranges belong."""
        return tuple(file for file in self.files if isinstance(file, LogFile))

    @property
    def is_partitioned(self) -> bool:
        """Whether there is no order of lines among different parts."""
        return False

    @property
    def is_of_this_machine(self) -> bool:
        """See :class:`~mutation_api.inputs.parts.OperationParts`."""
        return False

    def events(self, number: int) -> Iterator[Iterator[LoggedEvent]]:
        """The events of a range, some at a time. Raises InputFormatError: a file cannot be read.

        They are made one by one: thousands that live at once keep Python's garbage collector busy.
        """
        parser = self._parser()
        for lines in self.lines(number):
            yield self._events_of(lines, parser)

    def _events_of(
        self, lines: Iterable[tuple[Place, str | None]], parser: MessageParser
    ) -> Iterator[LoggedEvent]:
        for place, text in lines:
            event = self._event(place, text, parser)
            if event is not None and not self._is_applied(place, event):
                yield LoggedEvent(place, event)

    def lines(self, number: int) -> Iterator[Iterable[tuple[Place, str | None]]]:
        """The lines of a range, some at a time; one that is not UTF-8 has no text."""
        part = self.ranges[number]
        for lines in read_lines(self.read_files[part.file], part):
            yield ((Place(part.file, offset), text) for offset, text in lines)

    def has_order(self, _place: Place, _parts: Collection[int]) -> bool:
        """Whether the order is known of a change of a whole table and of rows in parts of these indices."""
        return not self.is_partitioned

    def _parser(self) -> MessageParser:
        """What parses the messages of a range."""
        return MessageParser()

    def _is_applied(self, _place: Place, _event: Event) -> bool:
        """Whether the log itself knows that an event has been applied to all tables that it concerns."""
        return False

    def _topic(self, _place: Place) -> str | None:
        """The topic of a message, None if it is not known."""
        return None

    def _event(self, place: Place, text: str | None, parser: MessageParser) -> Event | None:
        """The event of a line; None if it has no message."""
        if text is None:
            return _NO_TEXT
        if not text.strip(_BLANKS):
            return None
        is_flattened = self.format.is_flattened
        try:
            message = message_of(text, parser, is_row=is_flattened)
        except (AvroError, LineError) as error:
            return Event("damaged", problem=Problem(InputFormatError, None, str(error)))
        except ValueError:
            return _NO_JSON
        if message is None or (message.value is None and not is_flattened):
            return None
        if is_flattened and message.topic is None:
            message = message._replace(topic=self._topic(place))
        event = self.format.event(message, self.positions)
        return event if self.followed is None else self.followed.named(event)
