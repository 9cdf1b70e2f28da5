"""ProgressMark: how far a table was extracted, and what was extracted lately; the text of its watermark.
Pure.

It is written in the transaction that applies the rows, so it is true whatever crashes.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any

from mutation_api.errors import SourcePositionError
from mutation_api.inputs.source import Position
from mutation_api.update.fingerprint import Fingerprint
from mutation_api.update.stored_text import parsed_json, seconds_of

__all__ = ["RECENT_KEPT", "ProgressMark", "Run", "ranges_of"]

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
