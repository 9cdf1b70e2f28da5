"""How long to wait for a NameNode that is down, starts, or hands over to another one.

The client itself waits for a NameNode that refuses connections or is a standby, by Hadoop's settings
``dfs.client.failover.max.attempts``, ``….sleep.base.millis`` and ``….sleep.max.millis``. Without the first it
would wait for three minutes with one NameNode, and for a quarter of a minute with three. So we set it to a
value that makes about a minute of both. The client does not wait for a NameNode that is still starting. It
does not repeat a change whose answer was lost, since it cannot know whether the change took effect. Both are
done here, in the same time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from mutation_api.storage.hadoop_settings import HadoopSettings

__all__ = ["Patience"]

_ATTEMPTS = "dfs.client.failover.max.attempts"
_FIRST_SLEEP = "dfs.client.failover.sleep.base.millis"
_LONGEST_SLEEP = "dfs.client.failover.sleep.max.millis"
_FIRST_SLEEP_DEFAULT = 500
_LONGEST_SLEEP_DEFAULT = 15_000
_ROUNDS_DEFAULT = 8
"""Each attempt asks every NameNode once; the sleeps between attempts add up to a minute."""

_Result = TypeVar("_Result")


class Patience:
    """How long to wait for one HDFS; ``settings`` are those passed to its client."""

    def __init__(self, settings: HadoopSettings) -> None:
        """Raises OSError (EINVAL): a setting is not a number."""
        name_nodes = _most_name_nodes(settings)
        attempts = settings.number(_ATTEMPTS, _ROUNDS_DEFAULT * name_nodes)
        self._rounds = max(1, attempts // name_nodes)
        self._first = settings.number(_FIRST_SLEEP, _FIRST_SLEEP_DEFAULT) / 1000
        self._longest = settings.number(_LONGEST_SLEEP, _LONGEST_SLEEP_DEFAULT) / 1000
        self.settings = settings.with_properties({_ATTEMPTS: str(attempts)})

    @property
    def seconds(self) -> float:
        """About how long it waits."""
        return sum(self._sleeps())

    def repeat(
        self,
        work: Callable[[], _Result],
        is_passing: Callable[[OSError], bool],
        again: Callable[[], _Result] | None = None,
    ) -> _Result:
        """The result of ``work``; after an error that may pass, the result of a later ``work`` or ``again``.

        Raises their errors, and the last one when the time is up.
        """
        deadline = time.monotonic() + self.seconds
        for sleep in self._sleeps():
            try:
                return work()
            except OSError as error:
                if not is_passing(error) or time.monotonic() > deadline:
                    raise
            time.sleep(sleep * random.uniform(0.5, 1.5))
            work = again or work
        return work()

    def _sleeps(self) -> Iterator[float]:
        return (min(self._first * 2**n, self._longest) for n in range(self._rounds))


def _most_name_nodes(settings: HadoopSettings) -> int:
    services = [name.strip() for name in (settings.get("dfs.nameservices") or "").split(",")]
    found = [settings.get(f"dfs.ha.namenodes.{service}") or "" for service in services]
    return max(len([name for name in names.split(",") if name.strip()] or [""]) for names in found)
