"""Progress that is stored in a table's properties: marks, methods, fingerprints.

Fingerprint: what the rows of a source table, and the capture of their changes, depend on. Pure.

Triggers log changes of rows. They do not see an ALTER that changes rows, a table that took the place of
another, or the time in which they were switched off. Each of these leaves a trace in the catalog of the
source. A fingerprint collects the traces. The position in Hive stores the fingerprint of the last extraction,
and the next extraction compares it with the one of its own snapshot
(:mod:`mutation_api.cdc.update.source_rows`).

Readers of stored text: each makes a typed value of a text, or says what is allowed. Pure.

Properties of a table in Hive can be altered by others than those who run our commands, and a position is a
row of a table. So no text of these is used as it stands: it is read here, whatever it is used for.

ProgressMark: how far a table was extracted, and what was extracted lately; the text of its watermark.
Pure.

It is written in the transaction that applies the rows, so it is true whatever crashes.

Methods of capture: how changes of a table are noticed, and which kinds each of them sees. Pure.
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

__all__ = [
    "RECENT_KEPT",
    "CaptureMethod",
    "Fingerprint",
    "ProgressMark",
    "Run",
    "StoredTextError",
    "as_fingerprint",
    "as_flag",
    "as_identifier",
    "as_key",
    "as_name",
    "as_names",
    "as_optional_name",
    "as_overlap",
    "as_table_name",
    "as_time",
    "as_time_zone",
    "one_of",
    "parsed_json",
    "ranges_of",
    "seconds_of",
]


@dataclass(frozen=True)
class Fingerprint:
    """The state of a source table.

    The values are texts that the database's module makes. They are compared; nothing else is read from them.

    Attributes:
        identity: the table itself; differs if another table has its name.
        columns: by name, what the values of the column depend on.
        partitions: by identifier, the storage of each partition; a table without partitions is one.
        capture: by name, the version of each object that captures changes.
    """

    identity: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, str] = field(default_factory=dict)
    capture: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The same in types of JSON."""
        return dict(vars(self))

    @classmethod
    def of(cls, values: Any) -> Fingerprint:
        """Read what :meth:`to_dict` returned. Raises ValueError: it is none."""
        maps = ("columns", "partitions", "capture")
        if not isinstance(values, dict) or not {*values} <= {"identity", *maps}:
            raise ValueError(f"a fingerprint has identity, {', '.join(maps)}")
        found = [values.get(name, {}) for name in maps]
        texts = [values.get("identity", "")]
        for each in found:
            texts += [*each, *each.values()] if isinstance(each, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a fingerprint has texts only")
        return cls(texts[0], *found)


_IDENTIFIER = re.compile(r"[0-9a-f]{8}")
_OVERLAP = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,60}")
_NOT_IN_NAMES = re.compile(r"[\x00\ud800-\udfff]")
_NAME_CHARACTERS = 500
_LATEST = 253_402_300_799.0
"""The last second of the year 9999."""


class StoredTextError(ValueError):
    """A text is not of the form that is wanted; the message says what is allowed."""


def parsed_json(text: str) -> Any:
    """Read JSON. Raises StoredTextError, whatever is wrong with it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoredTextError("JSON") from error


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """Return the reader of a word of a list."""

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
    """Read a name of the source; statements have it quoted, so it may have any character but NUL."""
    is_text = isinstance(text, str) and 0 < len(text) <= _NAME_CHARACTERS
    if not is_text or _NOT_IN_NAMES.search(text):
        raise StoredTextError(f"a name of 1 to {_NAME_CHARACTERS} characters, without NUL")
    return str(text)


def as_table_name(text: str) -> str:
    """Read the name of a table, with its schema if it has one; neither is empty."""
    found = as_name(text)
    if found.startswith(".") or found.endswith("."):
        raise StoredTextError("TABLE or SCHEMA.TABLE, neither of them empty")
    return found


def as_optional_name(text: str) -> str:
    """Read a name, or nothing."""
    return as_name(text) if text else ""


def as_names(text: str) -> tuple[str, ...]:
    """Read a list of names, which may be empty."""
    found = parsed_json(text)
    if not isinstance(found, list):
        raise StoredTextError("a JSON list of names")
    return tuple(map(as_name, found))


def as_key(text: str) -> tuple[str, ...]:
    """Read a list of the names of key columns, each once."""
    found = as_names(text)
    if not found or len(set(found)) < len(found):
        raise StoredTextError("a JSON list of at least one name, each once")
    return found


def as_flag(text: str) -> bool:
    """Read true or false."""
    return one_of(("true", "false"))(text) == "true"


def as_overlap(text: str) -> Decimal | None:
    """Read how far below its bound a growing column is read again; None for nothing.

    The unit is the column's: a number for a column of numbers, seconds for one of dates or times.
    """
    if not text:
        return None
    if not _OVERLAP.fullmatch(text):
        raise StoredTextError("a number of at least 0, such as 60 (of seconds, for a column of times)")
    return Decimal(text)


def as_time_zone(text: str) -> str:
    """Read the name of a time zone that this machine's or Python's zone database has."""
    try:
        is_known = text == "UTC" or (bool(_ZONE.fullmatch(text)) and bool(zoneinfo.ZoneInfo(text)))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        is_known = False
    if not is_known:
        raise StoredTextError("the name of a time zone, such as UTC or Europe/Berlin")
    return text


def as_time(text: str) -> str:
    """Read a time in ISO 8601, or nothing."""
    try:
        return datetime.fromisoformat(text).isoformat() if text else ""
    except ValueError as error:
        raise StoredTextError("a time in ISO 8601") from error


def as_fingerprint(text: str) -> Fingerprint | None:
    """Read a fingerprint; None for nothing."""
    if not text:
        return None
    try:
        return Fingerprint.of(parsed_json(text))
    except StoredTextError:
        raise
    except ValueError as error:
        raise StoredTextError(str(error)) from error


def seconds_of(value: Any) -> float:
    """Read seconds since 1970, up to the year 9999. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST:
        raise ValueError(f"{value!r} is not a time in seconds since 1970")
    return float(value)


RECENT_KEPT = 200
"""Extractions that a mark remembers one by one."""
DAYS_KEPT = 60
_SHOWN_CHARACTERS = 500
_UNPACKED_BYTES_MAX = 1 << 16
PENDING_KEPT = 5000
"""Ranges of log rows that a mark remembers. With more, a run after a crash reads the rows again, which
changes nothing.
"""


@dataclass(frozen=True)
class Run:
    """One extraction that found something.

    ``at``: seconds since 1970 at which the source was read. ``lag``: age of the oldest change then, in
    seconds.
    """

    at: float
    inserted: int
    updated: int
    deleted: int
    lag: float

    @property
    def rows(self) -> int:
        """Rows of all kinds."""
        return self.inserted + self.updated + self.deleted


@dataclass(frozen=True)
class ProgressMark:
    """The position of a table.

    Attributes:
        extraction: its number, from 1.
        position: the greatest change position that was extracted: a number in the log, or a row version.
        as_of: seconds since 1970 in the source's clock, of the snapshot that was read.
        pending: ranges of log rows that were applied, and may still be in the log.
        newest: time of the newest of these, in seconds since 1970; 0 if there are none.
        fingerprint: what the rows of the source depended on then.
        bound: row-version methods: all rows below it have been extracted.
        below: row-version methods: numbers of rows below the bound, by groups of versions.
        recent: the last runs, oldest first.
        days: rows of each of the last days (UTC): (day, runs, inserted, updated, deleted).
        settings: what the position depends on of the table's settings, by name, as text.
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
        """The position for the watermark; a later extraction is greater."""
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
        """The mark of a watermark's text. Raises SourcePositionError: it is none."""
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
                f"the watermark {shown!r} is not one of an incremental update ({type(error).__name__}: "
                f"{str(error)[:_SHOWN_CHARACTERS]}). Nothing was read. Disable incremental "
                "update and discard (hive-mutate update disable --discard), then enable it anew: the first "
                "extraction compares the two tables"
            ) from error

    @property
    def number(self) -> int:
        """The position as a number, for methods with a log. Raises SourcePositionError: it is none."""
        if not re.fullmatch("[0-9]{1,19}", self.position):
            raise SourcePositionError(
                f"the position {self.position[:_SHOWN_CHARACTERS]!r} is not the number of a row in a log"
            )
        return int(self.position)

    def followed_by(self, run: Run, **values: Any) -> ProgressMark:
        """The mark after one more run."""
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
    """Return hundreds of numbers as a short text."""
    return base64.b85encode(zlib.compress(json.dumps(list(numbers)).encode())).decode() if numbers else ""


def _unpacked(text: str) -> tuple[int, ...]:
    """Return the numbers of :func:`_packed`. Raises ValueError, TypeError: it is not a text of it."""
    if not text:
        return ()
    try:
        found = zlib.decompressobj().decompress(base64.b85decode(text), _UNPACKED_BYTES_MAX)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return tuple(map(_count, parsed_json(found.decode())))


def _count(value: Any) -> int:
    """A whole number of at least 0 that a database's bigint holds. Raises ValueError."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is not a whole number of at least 0")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _run(at: Any, inserted: Any, updated: Any, deleted: Any, lag: Any) -> Run:
    return Run(seconds_of(at), _count(inserted), _count(updated), _count(deleted), seconds_of(lag))


def _day(day: Any, *counts: Any) -> tuple[str, int, int, int, int]:
    runs, inserted, updated, deleted = map(_count, counts)
    return (date.fromisoformat(_text(day)).isoformat(), runs, inserted, updated, deleted)


def ranges_of(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Ranges, both ends included, that hold exactly these numbers, which ascend."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


class CaptureMethod(enum.Enum):
    """How changes are captured; the value is its name in options and properties."""

    CHANGELOG = "changelog"
    """Triggers log the keys of inserted, updated and deleted rows."""
    CHANGELOG_INSERT = "changelog-insert"
    """A trigger logs the keys of inserted rows; other changes are asserted not to happen."""
    ROW_VERSION = "row-version"
    """A growing column tells inserted and updated rows; deletes by a comparison of keys, when asked."""
    ROW_VERSION_INSERT = "row-version-insert"
    """A growing column tells inserted rows; other changes are asserted not to happen."""
    BINLOG = "binlog"
    """MySQL's and MariaDB's binary log."""

    @property
    def has_log(self) -> bool:
        """Whether the source has a log table and triggers of ours."""
        return self in (CaptureMethod.CHANGELOG, CaptureMethod.CHANGELOG_INSERT)

    @property
    def has_version(self) -> bool:
        """Whether it needs a growing column."""
        return self in (CaptureMethod.ROW_VERSION, CaptureMethod.ROW_VERSION_INSERT)

    @property
    def is_insert_only(self) -> bool:
        """Whether it sees nothing but inserts."""
        return self in (CaptureMethod.CHANGELOG_INSERT, CaptureMethod.ROW_VERSION_INSERT)

    @property
    def sees(self) -> tuple[str, ...]:
        """The operations that it captures."""
        if self.is_insert_only:
            return ("insert",)
        if self is CaptureMethod.ROW_VERSION:
            return ("insert", "update")
        return ("insert", "update", "delete")
