"""Targets of an export whose process dies at a chosen step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mutation_api.cdc.export.target import Target


class Died(BaseException):
    """The process is gone: whatever it would have done from here on is not done."""


class Mortal:
    """The calls that change a target; the process dies before or after one of them."""

    def __init__(self, target: Target, last: int | None) -> None:
        self._count = 0
        self._last = last
        for name in ("create", "create_file", "commit"):
            setattr(target, name, self._stepped(getattr(target, name)))

    def _stepped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any) -> Any:
            self._take()
            done = function(*arguments)
            self._take()
            return done

        return stepped

    def _take(self) -> None:
        self._count += 1
        if self._last is not None and self._count >= self._last:
            raise Died
