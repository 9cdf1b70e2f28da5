"""A metastore's client that records its calls, and how long they took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metastore_client import MetastoreConfig, ThriftMetastoreClient


@dataclass(frozen=True)
class Call:
    """One call of the Thrift interface, its answer awaited; ``started`` is the time of a monotonic clock."""

    name: str
    seconds: float
    started: float = 0.0


class CountedMetastore(ThriftMetastoreClient):
    """The usual client; ``calls`` are those made so far, in order. Calls of several threads may overlap."""

    def __init__(self, uri: str) -> None:
        super().__init__(MetastoreConfig.load(uri))
        self.calls: list[Call] = []

    def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        started = time.monotonic()
        try:
            return super()._call(name, *arguments, **options)
        finally:
            self.calls.append(Call(name, time.monotonic() - started, started))


def by_name(calls: Sequence[Call]) -> str:
    """How often each call was made and its total time, the dearest first."""
    spent: dict[str, list[float]] = {}
    for call in calls:
        spent.setdefault(call.name, []).append(call.seconds)
    dearest = sorted(spent.items(), key=lambda each: -sum(each[1]))
    return ", ".join(f"{name} {len(seconds)} ({sum(seconds):.3f} s)" for name, seconds in dearest)
