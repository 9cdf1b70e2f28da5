"""BinlogOptions: the options of one extraction by the binary log. Pure.

They stand apart from the source, so that no package of MySQL is needed to name them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NO_OPTIONS", "BinlogOptions"]


@dataclass(frozen=True, kw_only=True)
class BinlogOptions:
    """What an extraction does about the log.

    Attributes:
        seen_to: positions of statements that were carried out in Hive by hand.
        recopy: whether the table is read whole again, and its rows in Hive are replaced.
        zero_dates: handling of dates with a zero month or day: ``error`` or ``null``.
        ignored_columns: columns that only one side has, besides those of the settings.
    """

    seen_to: tuple[str, ...] = ()
    recopy: bool = False
    zero_dates: str = "error"
    ignored_columns: tuple[str, ...] = ()


NO_OPTIONS = BinlogOptions()
