"""Key columns: no two keys of the source may become one key of Hive, where only one row would be left."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from mutation_api.errors import RecordLayoutError
from mutation_api.types.hive_type import HiveType
from mutation_api.update.rdbms.database import CapturedTable, SourceColumn

__all__ = ["KeyKind", "check_key"]

_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = 12 * 80
_MONTH = timedelta(days=30)


@dataclass(frozen=True, kw_only=True)
class KeyKind:
    """What a source column distinguishes.

    Attributes:
        ignores_trailing_spaces: whether the source takes 'a' and 'a ' for one key.
        is_instant: whether a value is an instant, which becomes the wall clock of a zone.
        is_text: whether a value is a text, of which Hive may have a date or a number.
    """

    ignores_trailing_spaces: bool = False
    is_instant: bool = False
    is_text: bool = False


def check_key(
    table: CapturedTable, column: SourceColumn, target: HiveType, kind: KeyKind, time_zone: str
) -> None:
    """Refuse a key column of Hive that cannot tell all keys of the source apart.

    Args:
        table: the source's table.
        column: a column of its key.
        target: the type of the column in Hive.
        kind: what the source distinguishes.
        time_zone: the zone of an instant's wall clock.

    Raises:
        RecordLayoutError: several keys of the source may become one; names the way on.
    """
    reason = advice = ""
    if target.kind == "char" and not kind.ignores_trailing_spaces:
        reason = "'a' and 'a ' are two keys in the source, and one in a char of Hive"
        advice = "Let the column be a varchar or a string in Hive"
    elif kind.is_instant and not _is_steady(time_zone):
        reason = f"two instants have the same wall clock where {time_zone} sets its clocks back"
        advice = "Choose the time zone UTC (--time-zone UTC)"
    elif kind.is_text and target.kind in ("date", "timestamp", "decimal"):
        reason = (
            f"several texts are the same {target.kind}, such as '1.5' and '1.50', '2024-05-31' and '20240531'"
        )
        advice = "Let the column be a string in Hive"
    if reason:
        raise RecordLayoutError(
            f"source table {table.full_name}, key column {column.name!r} ({column.type_text}) cannot go into "
            f"a column of type {target.text}: {reason}. {advice}"
        )


def _is_steady(time_zone: str) -> bool:
    """Return whether the zone has had one offset since 1970."""
    zone = ZoneInfo(time_zone)
    moments = (_FIRST + number * _MONTH for number in range(_MONTHS))
    return len({moment.astimezone(zone).utcoffset() for moment in moments}) == 1
