"""Random directories of a partition, and snapshots that look at them."""

from __future__ import annotations

import random

from metastore_client.valid_ids import NO_OPEN_ID, ValidTxnList
from mutation_api.format.layout import delete_delta_directory_name, delta_directory_name

_IDS = 9


def base_directory_name(last: int) -> str:
    """``base_0000005`` holds everything up to id 5; Hive pads as Java does, the sign included."""
    return f"base_{last:07d}"


def random_directories(rng: random.Random) -> list[str]:
    """A handful of bases and deltas of few ids, so that they often cover each other."""
    names = {base_directory_name(rng.randint(1, _IDS)) for _ in range(rng.choice((0, 0, 1, 2)))}
    for _ in range(rng.randint(0, 9)):
        first = rng.randint(1, _IDS)
        last = rng.choice((first, first, rng.randint(first, _IDS)))
        statement = rng.choice((None, 0, 1)) if first == last else None
        build = rng.choice((delta_directory_name, delete_delta_directory_name))
        names.add(build(first, last, statement))
    return sorted(names)


def random_snapshot(rng: random.Random) -> ValidTxnList:
    """A high watermark with a few open or aborted ids below it."""
    high = rng.randint(0, _IDS + 1)
    exceptions = tuple(sorted(rng.sample(range(1, high + 1), min(high, rng.choice((0, 0, 1, 3))))))
    open_ids = [e for e in exceptions if rng.random() < 0.5]
    return ValidTxnList(high, exceptions, min(open_ids, default=NO_OPEN_ID))
