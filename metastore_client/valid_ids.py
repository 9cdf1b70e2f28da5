"""Lists of valid ids, which define what a snapshot sees, and the row counts that they allow. Pure.

The string forms of the lists in Hive (``hive.txn.valid.txns``, ``hive.txn.valid.writeids``)::

    2.x        hwm:minOpen:e1:e2:…                              exceptions: both open and aborted
    3.x+       hwm:minOpen:open,open:aborted,aborted            ``hwm:minOpen::`` if there are none
    write ids  database.table:hwm:minOpen:open,…:aborted,…

A metastore records the row count of a table or partition, and whether it is accurate. Hive 4 answers
``count(*)`` from this number. Its INSERT, UPDATE and DELETE add to the recorded number whether it is marked
as accurate or not, and its minor compaction marks the sum as accurate (seen on 4.1.0). So a writer must leave
the right number, as Hive's own statements do. Marking it as not accurate is not enough.

Source: Hive's ValidReadTxnList, ValidReaderWriteIdList.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from metastore_client.model import OpenTxns, TxnState

NO_OPEN_ID = 9223372036854775807
"""The value of ``min_open`` when no transaction is open (Java's Long.MAX_VALUE)."""

_MOST_LISTED = 1_000_000
"""The maximum number of consecutive ids that become entries of a list. Damaged input may name far more."""


class RangeValidity(enum.Enum):
    """The share of a range's ids that are valid: none, some or all."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


@dataclass(frozen=True)
class ValidIdList:
    """The ids that a snapshot sees: every id <= ``high_watermark`` that is not an exception.

    ``exceptions`` are sorted and contain both open and aborted ids. ``min_open`` is the smallest open id.
    ``aborted`` are the exceptions that are known to be aborted.
    """

    high_watermark: int
    exceptions: tuple[int, ...] = ()
    min_open: int = NO_OPEN_ID
    aborted: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if list(self.exceptions) != sorted(set(self.exceptions)):
            object.__setattr__(self, "exceptions", tuple(sorted(set(self.exceptions))))

    def is_valid(self, id: int) -> bool:
        """Return True if the snapshot sees rows written under ``id``."""
        if id > self.high_watermark:
            return False
        at = bisect_left(self.exceptions, id)
        return at == len(self.exceptions) or self.exceptions[at] != id

    def is_valid_base(self, id: int) -> bool:
        """Return True if a compacted base up to ``id`` is usable: no id at or below it was open."""
        return id < self.min_open and id <= self.high_watermark

    def range_validity(self, first: int, last: int) -> RangeValidity:
        """Return how many of the ids first..last (both included) are valid."""
        if self.high_watermark < first:
            return RangeValidity.NONE
        known_last = min(last, self.high_watermark)  # an exception above the watermark counts once
        invalid = last - known_last
        invalid += bisect_right(self.exceptions, known_last) - bisect_left(self.exceptions, first)
        if invalid == 0:
            return RangeValidity.ALL
        return RangeValidity.NONE if invalid == last - first + 1 else RangeValidity.SOME

    def up_to(self, last: int) -> Self:
        """Return this list without ids above ``last``."""
        return dataclasses.replace(
            self,
            high_watermark=min(last, self.high_watermark),
            exceptions=tuple(id for id in self.exceptions if id <= last),
            aborted=frozenset(id for id in self.aborted if id <= last),
        )

    def without(self, ids: Collection[int]) -> Self:
        """Return this list with ``ids`` as additional exceptions."""
        return dataclasses.replace(self, exceptions=tuple(sorted({*self.exceptions, *ids})))

    def including(self, id: int) -> Self:
        """Return this list with one more visible id, for a transaction that reads its own rows."""
        unknown = listed_ids(self.high_watermark + 1, id - 1)
        return dataclasses.replace(
            self,
            high_watermark=max(id, self.high_watermark),
            exceptions=tuple(each for each in (*self.exceptions, *unknown) if each != id),
        )

    def to_write_id_text(self) -> str:
        """Return the 3.x form: ``hwm:minOpen:open,open:aborted,aborted``."""
        is_open = [str(i) for i in self.exceptions if i not in self.aborted]
        aborted = [str(i) for i in self.exceptions if i in self.aborted]
        return f"{self.high_watermark}:{self.min_open}:{','.join(is_open)}:{','.join(aborted)}"


@dataclass(frozen=True)
class ValidTxnList(ValidIdList):
    """The transactions that a snapshot sees."""

    @classmethod
    def everything(cls) -> ValidTxnList:
        """Return a list in which every id is valid, for directories that no metastore knows."""
        return cls(high_watermark=NO_OPEN_ID)

    @classmethod
    def from_open_txns(
        cls, open_txns: OpenTxns, own_txn_id: int | None, *, has_write_ids: bool = False
    ) -> ValidTxnList:
        """Return the snapshot of a reader: all transactions except open and aborted ones.

        The reader's own writes count as valid.

        Args:
            open_txns: the server's list, requested after the locks were granted.
            own_txn_id: the reading transaction. If None, the reader has none.
            has_write_ids: the server's capability. If true, the snapshot ends at the reading transaction, as
                in Hive. A later transaction that has committed may have a higher write id, and only one of
                Hive's readers obeys a delete whose write id is below that of its row.

        Source: createValidReadTxnList in Hive's TxnUtils (2.3), TxnCommonUtils (3.0 and later).
        """
        if has_write_ids and own_txn_id is not None:
            listed = [t for t in open_txns.txns if t.id < own_txn_id]
            open_ids = [t.id for t in listed if t.state is TxnState.OPEN]
            high_watermark = min(own_txn_id, open_txns.high_watermark)
        else:
            listed = [t for t in open_txns.txns if t.id != own_txn_id]
            open_ids = [t.id for t in open_txns.txns if t.state is TxnState.OPEN]
            high_watermark = open_txns.high_watermark
        return cls(
            high_watermark=high_watermark,
            exceptions=tuple(sorted(t.id for t in listed)),
            min_open=min(open_ids, default=NO_OPEN_ID),
            aborted=frozenset(t.id for t in listed if t.state is TxnState.ABORTED),
        )

    @classmethod
    def parse(cls, text: str) -> ValidTxnList:
        """Read the 2.x or the 3.x form.

        Raises:
            ValueError: If the string has neither form. The message contains the string.
        """
        parts = text.strip().split(":")
        try:
            high_watermark = int(parts[0])
            min_open = int(parts[1]) if len(parts) > 1 and parts[1] else NO_OPEN_ID
            is_comma_form = len(parts) == 4 and ("," in text or parts[2] == "" or parts[3] == "")
            aborted: list[int] = []
            if is_comma_form:
                aborted = _parse_ids(parts[3])
                exceptions = _parse_ids(parts[2]) + aborted
            else:
                exceptions = [int(p) for p in parts[2:] if p]
        except (ValueError, IndexError):
            raise ValueError(
                f"not a list of valid transactions: {text!r} (expected highWatermark:minOpen:id:id…)"
            ) from None
        return cls(high_watermark, tuple(exceptions), min_open, frozenset(aborted))

    def to_text(self) -> str:
        """Return the 2.x form, which Hive 2.3's readers parse."""
        return f"{self.high_watermark}:{self.min_open}:" + ":".join(map(str, self.exceptions))


def marked(ids: Sequence[int], bits: bytes) -> frozenset[int]:
    """Return the ids whose bit is set. Bit i % 8 of byte i // 8 belongs to ``ids[i]``; absent bits are 0."""
    return frozenset(id for at, id in enumerate(ids) if at // 8 < len(bits) and bits[at // 8] >> at % 8 & 1)


@dataclass(frozen=True)
class ValidWriteIdList(ValidIdList):
    """The write ids of one table that a snapshot sees. ``table`` is ``database.table``."""

    table: str = ""

    @classmethod
    def from_bits(
        cls,
        table: str,
        high_watermark: int,
        invalid: Sequence[int],
        min_open: int | None,
        aborted_bits: bytes,
    ) -> ValidWriteIdList:
        """Build the list from a server's answer. See :func:`marked` for ``aborted_bits``."""
        aborted = marked(invalid, aborted_bits)
        least_open = min((id for id in invalid if id not in aborted), default=NO_OPEN_ID)
        return cls(
            high_watermark,
            tuple(invalid),
            least_open if min_open is None else min(min_open, least_open),
            aborted,
            table,
        )

    @classmethod
    def parse(cls, text: str) -> ValidWriteIdList:
        """Read ``database.table:hwm:minOpen:open:aborted``.

        Raises:
            ValueError: If the string does not have this form. The message contains the string.
        """
        try:
            table, high_watermark, min_open, is_open, aborted = text.strip().split(":")
            return cls(
                int(high_watermark),
                tuple(_parse_ids(is_open) + _parse_ids(aborted)),
                int(min_open) if min_open else NO_OPEN_ID,
                frozenset(_parse_ids(aborted)),
                table,
            )
        except ValueError:
            raise ValueError(
                f"not a list of valid write ids: {text!r} (expected "
                "database.table:highWatermark:minOpen:id,id:id,id, open ones before aborted ones)"
            ) from None

    def to_text(self) -> str:
        """Return the form that the server and Hive's readers parse."""
        return f"{self.table}:{self.to_write_id_text()}"


def listed_ids(first: int, last: int) -> range:
    """Return the ids first..last (both included), each of which becomes an entry of a list.

    Raises:
        ValueError: If there are more than a million. No server has so many open and aborted ids.
    """
    if last - first >= _MOST_LISTED:
        raise ValueError(f"ids {first} to {last}: a list holds at most {_MOST_LISTED} consecutive ids")
    return range(first, last + 1)


def _parse_ids(text: str) -> list[int]:
    ids: list[int] = []
    for piece in filter(None, text.split(",")):
        first, dash, last = piece.partition("-")
        ids.extend(listed_ids(int(first), int(last)) if dash else [int(piece)])
    return ids


COLUMN_STATS_ACCURATE = "COLUMN_STATS_ACCURATE"
"""The parameter that lists which statistics are accurate, as JSON."""
CountRows = Callable[[Mapping[str, int | None]], Mapping[str, int | None]]
"""A function that returns the row counts to record, given the recorded ones, by partition ('' for the table).

None stands for an unknown number.
"""
_BASIC, _COLUMNS, _NUM_ROWS = "BASIC_STATS", "COLUMN_STATS", "numRows"


def accurate_row_count(
    parameters: Mapping[str, str], writer: int | None, valid_write_ids: ValidWriteIdList
) -> int | None:
    """Return the recorded row count, or None if it is not accurate.

    It is accurate if the parameters mark it so and its writer has not aborted.

    Args:
        parameters: parameters of the table or partition.
        writer: the write id under which the parameters were stored.
        valid_write_ids: the reader's write ids. A writer that is still open counts, because Hive also adds to
            its number.
    """
    try:
        rows = int(parameters.get(_NUM_ROWS, ""))
    except ValueError:
        return None
    is_accurate = is_row_count_accurate(parameters) and writer not in valid_write_ids.aborted
    return rows if is_accurate and rows >= 0 else None


def is_row_count_accurate(parameters: Mapping[str, str]) -> bool:
    """Return True if a table or partition marks its row count as accurate."""
    return _is_true(_claims(parameters).get(_BASIC))


def _claims(parameters: Mapping[str, str]) -> dict[str, Any]:
    try:
        claims = json.loads(parameters.get(COLUMN_STATS_ACCURATE, "{}"))
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}


def _is_true(claim: object) -> bool:
    return str(claim).lower() == "true"


def with_row_count(
    parameters: Mapping[str, str], row_count: int | None, columns: Collection[str] = ()
) -> dict[str, str]:
    """Return the parameters with an accurate row count, or without the claim of one if ``row_count`` is None.

    Statistics of columns are no longer marked as accurate, except those of ``columns`` if they were and the
    row count is.
    """
    others = {name: value for name, value in parameters.items() if name != COLUMN_STATS_ACCURATE}
    if row_count is None:
        return others
    kept = {name: "true" for name in accurate_columns(parameters) if name in columns}
    claims = {_BASIC: "true", **({_COLUMNS: kept} if kept else {})}
    return others | {
        _NUM_ROWS: str(row_count),
        COLUMN_STATS_ACCURATE: json.dumps(claims, separators=(",", ":")),
    }


def with_accurate_columns(parameters: Mapping[str, str], columns: Collection[str] | None) -> dict[str, str]:
    """Return the parameters with these columns marked as accurate; if None, with nothing marked so."""
    others = {name: value for name, value in parameters.items() if name != COLUMN_STATS_ACCURATE}
    if columns is None:
        return others
    claims = _claims(parameters) | {_COLUMNS: dict.fromkeys(sorted(columns), "true")}
    return others | {COLUMN_STATS_ACCURATE: json.dumps(claims, separators=(",", ":"))}


def accurate_columns(parameters: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns (lower case) whose statistics a table or partition marks as accurate, sorted."""
    columns = _claims(parameters).get(_COLUMNS)
    if not isinstance(columns, dict):
        return ()
    return tuple(sorted(name.lower() for name, claim in columns.items() if _is_true(claim)))
