"""The progress of a table's extraction: its mark, the methods of capture, and the fingerprint. Pure.

A progress mark is a watermark with the position and the recent extractions of a table. It is written in the
transaction that applies the rows, so it is correct even after a crash.

A method of capture defines how changes of a table are detected, and which operations are captured.

A fingerprint is the state that the rows of a source table and the capture of their changes depend on.
Triggers log changes of rows. They do not log an ALTER that changes rows, a table that replaced another one,
or changes made while the triggers were disabled. Each of these leaves a trace in the catalog of the source,
and a fingerprint collects these traces. The position in Hive stores the fingerprint of the last extraction.
The next extraction compares it with the fingerprint of its own snapshot
(:mod:`mutation_api.cdc.update.source_rows`).

Properties of a table in Hive can be altered by others than the users of this library, and a position is a row
of a table. No such string is therefore used unchanged: readers here return a typed value, or an error that
names the expected form.
"""

from __future__ import annotations

import base64
import enum
import json
import re
import zlib
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from mutation_api.cdc.source import Position
from mutation_api.errors import SourcePositionError


@dataclass(frozen=True)
class Fingerprint:
    """The state of a source table.

    The values are strings created by the database's module. They are only compared, never interpreted.

    Attributes:
        identity: the table itself; differs if another table now has its name.
        columns: by name, the state that the values of the column depend on.
        partitions: by identifier, the storage of each partition; a table without partitions counts as one.
        capture: by name, the version of each object that captures changes.
    """

    identity: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, str] = field(default_factory=dict)
    capture: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the fingerprint as a JSON-serialisable dict."""
        return dict(vars(self))

    @classmethod
    def of(cls, values: Any) -> Fingerprint:
        """Read the result of :meth:`to_dict`. Raises ValueError if it is not one."""
        maps = ("columns", "partitions", "capture")
        if not isinstance(values, dict) or not {*values} <= {"identity", *maps}:
            raise ValueError(f"a fingerprint may only contain identity, {', '.join(maps)}")
        found = [values.get(name, {}) for name in maps]
        texts = [values.get("identity", "")]
        for each in found:
            texts += [*each, *each.values()] if isinstance(each, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a fingerprint may only contain strings")
        return cls(texts[0], *found)


_IDENTIFIER = re.compile(r"[0-9a-f]{8}")
_OVERLAP = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,60}")
_NOT_IN_NAMES = re.compile(r"[\x00\ud800-\udfff]")
_NAME_CHARACTERS = 500
_LATEST = 253_402_300_799.0
"""The last second of the year 9999."""


class StoredTextError(ValueError):
    """Raised when a string does not have the expected form; the message describes the expected form."""


def parsed_json(text: str) -> Any:
    """Read JSON. Raises StoredTextError for all errors in it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoredTextError("JSON") from error


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """Return a reader that accepts the words of a list."""

    def read(text: str) -> str:
        if text not in names:
            raise StoredTextError(f"one of {', '.join(names)}")
        return text

    return read


def as_identifier(text: str) -> str:
    """Read the identifier of an update."""
    if not _IDENTIFIER.fullmatch(text):
        raise StoredTextError("8 of the digits 0-9 and a-f")
    return text


def as_name(text: Any) -> str:
    """Read a name in the source; it may contain any character except NUL, since statements quote it."""
    is_text = isinstance(text, str) and 0 < len(text) <= _NAME_CHARACTERS
    if not is_text or _NOT_IN_NAMES.search(text):
        raise StoredTextError(f"a name of 1 to {_NAME_CHARACTERS} characters, without NUL")
    return str(text)


def as_table_name(text: str) -> str:
    """Read the name of a table, with its schema if it has one; neither may be empty."""
    found = as_name(text)
    if found.startswith(".") or found.endswith("."):
        raise StoredTextError("TABLE or SCHEMA.TABLE, neither of them empty")
    return found


def as_optional_name(text: str) -> str:
    """Read a name, which may be empty."""
    return as_name(text) if text else ""


def as_names(text: str) -> tuple[str, ...]:
    """Read a list of names, which may be empty."""
    found = parsed_json(text)
    if not isinstance(found, list):
        raise StoredTextError("a JSON list of names")
    return tuple(map(as_name, found))


def as_key(text: str) -> tuple[str, ...]:
    """Read a list of key column names, each once."""
    found = as_names(text)
    if not found or len(set(found)) < len(found):
        raise StoredTextError("a JSON list of at least one name, each once")
    return found


def as_flag(text: str) -> bool:
    """Read true or false."""
    return one_of(("true", "false"))(text) == "true"


def as_overlap(text: str) -> Decimal | None:
    """Read an overlap: how far below its bound a version column is read again. Return None if it is empty.

    The unit is that of the column: a number for a column of numbers, seconds for one of dates or times.
    """
    if not text:
        return None
    if not _OVERLAP.fullmatch(text):
        raise StoredTextError("a number of at least 0, such as 60 (seconds, for a column of times)")
    return Decimal(text)


def as_time_zone(text: str) -> str:
    """Read the name of a time zone from this machine's or Python's time zone database."""
    try:
        is_known = text == "UTC" or (bool(_ZONE.fullmatch(text)) and bool(zoneinfo.ZoneInfo(text)))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        is_known = False
    if not is_known:
        raise StoredTextError("the name of a time zone, such as UTC or Europe/Berlin")
    return text


def as_time(text: str) -> str:
    """Read a time in ISO 8601, which may be empty."""
    try:
        return datetime.fromisoformat(text).isoformat() if text else ""
    except ValueError as error:
        raise StoredTextError("a time in ISO 8601") from error


def as_fingerprint(text: str) -> Fingerprint | None:
    """Read a fingerprint; return None if the string is empty."""
    if not text:
        return None
    try:
        return Fingerprint.of(parsed_json(text))
    except StoredTextError:
        raise
    except ValueError as error:
        raise StoredTextError(str(error)) from error


def seconds_of(value: Any) -> float:
    """Read seconds since 1970, up to the year 9999. Raises ValueError for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST:
        raise ValueError(f"{value!r} is not a time in seconds since 1970")
    return float(value)


RECENT_KEPT = 200
"""The number of extractions that a mark remembers individually."""
DAYS_KEPT = 60
_SHOWN_CHARACTERS = 500
_UNPACKED_BYTES_MAX = 1 << 16
PENDING_KEPT = 5000
"""The number of ranges of log rows that a mark remembers.

With more, a run after a crash reads the rows again, which changes nothing.
"""


@dataclass(frozen=True)
class Run:
    """One extraction that found something.

    ``at``: time at which the source was read, in seconds since 1970. ``lag``: age of the oldest change at
    that time, in seconds.
    """

    at: float
    inserted: int
    updated: int
    deleted: int
    lag: float

    @property
    def rows(self) -> int:
        """The number of rows of all operations."""
        return self.inserted + self.updated + self.deleted


@dataclass(frozen=True)
class ProgressMark:
    """The position of a table.

    Attributes:
        extraction: its number, from 1.
        position: the highest change position extracted: a number in the log, or a row version.
        as_of: time of the snapshot that was read, by the source's clock, in seconds since 1970.
        pending: ranges of log rows that were applied and may still be in the log.
        newest: time of the newest of these, in seconds since 1970; 0 if there are none.
        fingerprint: the fingerprint of the source table at that time.
        bound: row-version methods: all rows below it have been extracted.
        below: row-version methods: numbers of rows below the bound, by groups of versions.
        recent: the last runs, oldest first.
        days: rows of each of the last days (UTC): (day, runs, inserted, updated, deleted).
        settings: the table's settings that the position depends on, by name, as strings.
    """

    extraction: int
    position: str
    as_of: float
    pending: tuple[tuple[int, int], ...] = ()
    newest: float = 0.0
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    bound: str = ""
    below: tuple[int, ...] = ()
    recent: tuple[Run, ...] = ()
    days: tuple[tuple[str, int, int, int, int], ...] = field(default=())
    settings: Mapping[str, str] = field(default_factory=dict)

    def to_position(self) -> Position:
        """Return the position for the watermark; a later extraction has a greater one."""
        values = {
            **vars(self),
            "fingerprint": self.fingerprint.to_dict(),
            "below": _packed(self.below),
            "pending": self.pending if len(self.pending) <= PENDING_KEPT else (),
            "recent": [
                [round(run.at, 3), run.inserted, run.updated, run.deleted, round(run.lag, 3)]
                for run in self.recent
            ],
        }
        return Position((self.extraction,), json.dumps(values, ensure_ascii=False))

    @classmethod
    def of(cls, text: str) -> ProgressMark:
        """Return the mark in a watermark's string. Raises SourcePositionError if it does not contain one."""
        try:
            values: dict[str, Any] = parsed_json(text)
            return cls(
                extraction=_count(values["extraction"]),
                position=_text(values["position"]),
                as_of=seconds_of(values["as_of"]),
                pending=tuple((_count(low), _count(high)) for low, high in values["pending"]),
                newest=seconds_of(values.get("newest", 0.0)),
                fingerprint=Fingerprint.of(values["fingerprint"]),
                bound=_text(values.get("bound", "")),
                below=_unpacked(_text(values["below"])),
                recent=tuple(_run(*each) for each in values["recent"]),
                days=tuple(_day(*each) for each in values["days"]),
                settings={_text(name): _text(each) for name, each in values.get("settings", {}).items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
            raise SourcePositionError(
                f"watermark {shown!r} was not written by incremental update ({type(error).__name__}: "
                f"{str(error)[:_SHOWN_CHARACTERS]}). Nothing was read. Run hive-mutate update disable "
                "--discard, then enable incremental update again: the first extraction compares the two "
                "tables"
            ) from error

    @property
    def number(self) -> int:
        """The position as a number, for methods with a log. Raises SourcePositionError if it is not one."""
        if not re.fullmatch("[0-9]{1,19}", self.position):
            raise SourcePositionError(
                f"the position {self.position[:_SHOWN_CHARACTERS]!r} is not the number of a row in a log"
            )
        return int(self.position)

    def followed_by(self, run: Run, **values: Any) -> ProgressMark:
        """Return the mark after one more run."""
        day = datetime.fromtimestamp(run.at, UTC).date().isoformat()
        last = self.days[-1] if self.days and self.days[-1][0] == day else (day, 0, 0, 0, 0)
        rest = self.days[:-1] if self.days and self.days[-1][0] == day else self.days
        today = (day, last[1] + 1, last[2] + run.inserted, last[3] + run.updated, last[4] + run.deleted)
        return replace(
            self,
            extraction=self.extraction + 1,
            as_of=run.at,
            recent=(*self.recent, run)[-RECENT_KEPT:],
            days=(*rest, today)[-DAYS_KEPT:],
            **values,
        )


def _packed(numbers: Sequence[int]) -> str:
    """Return hundreds of numbers as a short string."""
    return base64.b85encode(zlib.compress(json.dumps(list(numbers)).encode())).decode() if numbers else ""


def _unpacked(text: str) -> tuple[int, ...]:
    """Return the numbers of :func:`_packed`. Raises ValueError or TypeError if ``text`` is not from it."""
    if not text:
        return ()
    try:
        found = zlib.decompressobj().decompress(base64.b85decode(text), _UNPACKED_BYTES_MAX)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return tuple(map(_count, parsed_json(found.decode())))


def _count(value: Any) -> int:
    """Return a whole number from 0 to the maximum of a bigint. Raises ValueError for other values."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is not a whole number of at least 0")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value


def _run(at: Any, inserted: Any, updated: Any, deleted: Any, lag: Any) -> Run:
    return Run(seconds_of(at), _count(inserted), _count(updated), _count(deleted), seconds_of(lag))


def _day(day: Any, *counts: Any) -> tuple[str, int, int, int, int]:
    runs, inserted, updated, deleted = map(_count, counts)
    return (date.fromisoformat(_text(day)).isoformat(), runs, inserted, updated, deleted)


def ranges_of(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the ranges, both ends included, that contain exactly these ascending numbers."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


class CaptureMethod(enum.Enum):
    """A method of capturing changes; its value is its name in options and properties."""

    CHANGELOG = "changelog"
    """Triggers log the keys of inserted, updated and deleted rows."""
    CHANGELOG_INSERT = "changelog-insert"
    """A trigger logs the keys of inserted rows; other changes must not happen."""
    ROW_VERSION = "row-version"
    """A monotonically increasing column identifies new and changed rows; comparing keys finds deletes."""
    ROW_VERSION_INSERT = "row-version-insert"
    """A monotonically increasing column identifies inserted rows; other changes must not happen."""
    BINLOG = "binlog"
    """MySQL's and MariaDB's binary log."""

    @property
    def has_log(self) -> bool:
        """True if the source has a log table and triggers of this library."""
        return self in (CaptureMethod.CHANGELOG, CaptureMethod.CHANGELOG_INSERT)

    @property
    def has_version(self) -> bool:
        """True if the method needs a monotonically increasing column."""
        return self in (CaptureMethod.ROW_VERSION, CaptureMethod.ROW_VERSION_INSERT)

    @property
    def is_insert_only(self) -> bool:
        """True if the method captures only inserts."""
        return self in (CaptureMethod.CHANGELOG_INSERT, CaptureMethod.ROW_VERSION_INSERT)

    @property
    def sees(self) -> tuple[str, ...]:
        """The operations that it captures."""
        if self.is_insert_only:
            return ("insert",)
        if self is CaptureMethod.ROW_VERSION:
            return ("insert", "update")
        return ("insert", "update", "delete")
