"""JSON by orjson, where it certainly reads what is written; pure. Without orjson nothing is read here.

orjson takes the last of two fields of one name without a word, and numbers with a point or exponent as
doubles. But a text that it writes again byte for byte has no doubled field, since no dict has one, and what
orjson writes for a double is what stood there. Other texts (with blanks, ``1.50``, ``1E10``, escapes that are
not needed, integers of more than 64 bits) are for the exact reader. Kafka's converter, Maxwell and Canal
mostly write as orjson does.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

ORJSON: Any = importlib.import_module("orjson") if importlib.util.find_spec("orjson") else None
"""Comes with the extra ``json``. Without it the exact reader reads all, in three times the time."""

__all__ = ["QuickParser", "written"]

_TRIES, _MISSES_IN_TEN = 64, 6
"""After so many texts, with more misses than that, it is quicker not to try."""


class QuickParser:
    """Reads texts, one by one, as long as it can read most of them."""

    def __init__(self) -> None:
        self._tries = self._misses = 0
        self._is_worth_it = ORJSON is not None

    def parsed(self, text: str) -> tuple[Any] | None:
        """The value that a text is; None if only the exact reader can say.

        Numbers are of class int or float; :func:`written` has the text of a float.
        """
        if not self._is_worth_it:
            return None
        self._tries += 1
        try:
            value = ORJSON.loads(text)
            if ORJSON.dumps(value) == text.encode():
                return (value,)
        except ValueError:
            pass
        self._misses += 1
        self._is_worth_it = self._tries < _TRIES or self._misses * 10 <= self._tries * _MISSES_IN_TEN
        return None


def written(number: float) -> str:
    """The text that a float of :class:`QuickParser` was read from."""
    text: bytes = ORJSON.dumps(number)
    return text.decode()
