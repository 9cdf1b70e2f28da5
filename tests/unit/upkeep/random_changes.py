"""Random transactions of a table with columns ``id`` and ``msg``, for tests of compactions."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from mutation_api.hive.connection import Hive


def random_change(
    hive: Hive,
    name: str,
    number: int,
    rng: random.Random,
    rows_of: Callable[[list[int], str], pa.Table],
    *,
    ids_apart: int,
    is_insert_only: bool,
) -> None:
    """A transaction with some changes of any kind, or one that is aborted.

    ``number`` is that of the change. The ids of appends begin ``ids_apart`` from each other, and each has
    fewer rows than six tenths of it.
    """
    table = hive.table(name)
    kind = "append" if is_insert_only else rng.choice(["append", "append", "update", "delete", "abort"])
    if kind == "abort":
        with pytest.raises(KeyError), hive.transaction(name) as tx:
            tx.table(name).append(rows_of([999], "aborted"))
            raise KeyError
    elif kind == "append":
        count = rng.randrange(1, ids_apart * 6 // 10)
        table.append(rows_of([number * ids_apart + n for n in range(count)], "a"))
    elif kind == "update":
        table.update(set={"msg": f"'u{number}'"}, where=f"id % 3 = {number % 3}")
    else:
        table.delete(where=f"id % 5 = {number % 5}")
