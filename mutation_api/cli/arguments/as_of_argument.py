"""A point in a table's past on the command line: an id, or a moment with a time zone."""

from __future__ import annotations

import argparse
import datetime

__all__ = ["point_in_time"]


def point_in_time(text: str) -> int | datetime.datetime:
    """Type of an argument: ``17``, or ``2026-03-01T12:00:00Z``, ``2026-03-01 12:00+01:00``.

    Raises argparse.ArgumentTypeError: neither of them, or a moment without a time zone.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither an id nor a moment such as 2026-03-01T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone: add Z or +01:00")
    return moment
