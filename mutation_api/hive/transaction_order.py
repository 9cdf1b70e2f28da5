"""The order in which a change feed returns transactions: the ids of each table ascend. Pure.

A transaction that changes rows of another one has a greater id in their table.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Mapping

__all__ = ["in_order"]

_Group = tuple[str, int]
"""A transaction: ``("", its id)``, or if that is not known, a table and the id there."""


def in_order(
    ids: Mapping[str, Collection[int]], transactions: Mapping[str, Mapping[int, int]]
) -> list[tuple[int | None, dict[str, int]]]:
    """Group ids by transaction, and order these so that the ids of each table ascend.

    Args:
        ids: the ids by table.
        transactions: by table, the transactions of ids, as far as they are known.

    Returns:
        The transactions, None if unknown, with their id in each table.
    """
    groups: dict[_Group, dict[str, int]] = {}
    of_id: dict[tuple[str, int], _Group] = {}
    for name, found in ids.items():
        for id in found:
            txn = transactions[name].get(id)
            group = ("", txn) if txn is not None else (name, id)
            groups.setdefault(group, {})[name] = id
            of_id[name, id] = group
    ahead: dict[_Group, set[_Group]] = {group: set() for group in groups}
    behind: dict[_Group, set[_Group]] = {group: set() for group in groups}
    for name, found in ids.items():
        for one, other in itertools.pairwise(sorted(found)):
            ahead[of_id[name, other]].add(of_id[name, one])
            behind[of_id[name, one]].add(of_id[name, other])
    ready = [_rank(group) for group, first in ahead.items() if not first]
    heapq.heapify(ready)
    done: list[tuple[int | None, dict[str, int]]] = []
    left = set(groups)
    while left:
        # Transactions whose ids cross in two tables do not depend on each other: the older one is first.
        chosen = heapq.heappop(ready)[1] if ready else min(left, key=_rank)
        if chosen not in left:
            continue
        left.discard(chosen)
        done.append((chosen[1] if not chosen[0] else None, groups[chosen]))
        for each in behind[chosen]:
            ahead[each].discard(chosen)
            if not ahead[each] and each in left:
                heapq.heappush(ready, _rank(each))
    return done


def _rank(group: _Group) -> tuple[tuple[bool, int, str], _Group]:
    """Return a sort key that puts forgotten transactions first, because they are older."""
    return (not group[0], group[1], group[0]), group
